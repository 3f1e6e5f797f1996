"""State whose key has another name or a wider type: each new key is made of exactly one former key.

The former definition and its rows are written with the new key; everything else then changes as it does otherwise.

See docs/decisions/0148.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from asterism.changes.plan import Counts
from asterism.columns.arrays import one_chunk
from asterism.columns.schemas import small_type
from asterism.errors import StateError
from asterism.operators.evolution import FIXED, WITHOUT_STATE
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.change import StateChange
from asterism.savepoints.key_groups import STATE, THE_KEY, rows_schema
from asterism.savepoints.kinds import key_states
from asterism.savepoints.plain_types import retyped

_TEXTS = ("the key", "PARTITION BY")
"""What the fixed part of a definition calls the key."""
_INTEGERS = tuple(map(str, (pa.int8(), pa.int16(), pa.int32(), pa.int64())))


@dataclass(frozen=True)
class KeyChange:
    """
    :param old: the former definition
    :param keys: the new key columns
    :param texts: the new key in the fixed part of the definition
    :param renamed: the rest of the new names, which are not those of key columns
    """

    old: StateDefinition
    keys: pa.Schema
    texts: Mapping[str, str]
    renamed: Mapping[str, str]

    @classmethod
    def of(cls, old: StateDefinition, new: StateDefinition, renamed: Mapping[str, str]) -> KeyChange | None:
        """None: the key is the same.

        :param renamed: new names of key columns and of other things, by their former ones
        :raises StateError: the new key cannot be derived from the former one
        """
        before, after = old.keys, new.keys
        texts = {name: new.details[FIXED][name] for name in _TEXTS if name in new.details.get(FIXED, {})}
        same = all(old.details.get(FIXED, {}).get(name) == text for name, text in texts.items())
        if same and [*map(small_type, before.types)] == [*map(small_type, after.types)] and before.names == after.names:
            return None
        if len(before) != len(after):
            raise _refused(before, after, f"it has {len(after)} columns in place of {len(before)}")
        of_key = {former: name for former, name in renamed.items() if former in before.names and name in after.names}
        for was, now in zip(before, after, strict=True):
            if was.name != now.name and of_key.get(was.name) != now.name:
                hint = f'renamed={{"{was.name}": "{now.name}"}} (--rename {was.name}={now.name}), if the values are the same'
                raise _refused(before, after, f"whether {now.name} has the values of {was.name} is not known", hint)
            if not _is_wider(was.type, now.type):
                raise _refused(before, after, f"{was.name} was {was.type} and is {now.type}")
        return cls(old, after, texts, {former: name for former, name in renamed.items() if former not in of_key})

    @cached_property
    def note(self) -> str:
        return f"the key ({_shown(self.old.keys)}) is now ({_shown(self.keys)})"

    @cached_property
    def definition(self) -> StateDefinition:
        """The former definition with the new key."""
        old = self.old
        stored = {field.name for field in key_states(old).keys}
        fixed = {**old.details.get(FIXED, {}), **self.texts}
        return replace(
            old,
            keys=self.keys,
            tables={name: self._schema(schema, stored) for name, schema in old.tables.items()},
            inputs={name: self._schema(schema, set()) for name, schema in old.inputs.items()},
            details={**old.details, FIXED: fixed},
        )

    def _schema(self, schema: pa.Schema, stored: set[str]) -> pa.Schema:
        """:param stored: names of key columns, beside those that begin with ``k:``"""
        fields = []
        for field in schema:
            prefix = field.name[:2] if field.name[:2] in ("k:", "e:") else ""
            name = field.name.removeprefix(prefix)
            of_key = prefix == "k:" or (prefix == "" and field.name in stored)
            place = self._place(name, of_key=of_key) if of_key or prefix == "e:" else None
            if place is None:
                fields.append(field)
            else:
                now = self.keys.field(place)
                numbered = of_key and name not in self.old.keys.names  # a clause numbers its keys
                fields.append(pa.field(field.name if numbered else prefix + now.name, now.type, field.nullable))
        return pa.schema(fields, metadata=schema.metadata)

    def _place(self, name: str, *, of_key: bool) -> int | None:
        if name in self.old.keys.names:
            return int(self.old.keys.get_field_index(name))
        return int(name) if of_key and name.isdigit() else None


class RekeyedState(StateChange):
    """A change of the state that first gets another key.

    :param change: what becomes of the state with the new key
    """

    rekeys = True

    def __init__(self, key: KeyChange, change: StateChange) -> None:
        self.old, self.new, self._key, self._change = key.old, change.new, key, change

    @property
    def notes(self) -> list[str]:
        return [self._key.note, *self._change.notes]

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        schema = rows_schema(key_states(self._key.definition))
        columns = {name: retyped(one_chunk(rows.column(name)), schema.field(name).type) for name in (THE_KEY, STATE)}
        return self._change.rows(pa.table({name: columns.get(name, rows.column(name)) for name in rows.column_names}))

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        schema = self._key.definition.inputs[name]
        columns = [retyped(one_chunk(column), field.type) for column, field in zip(events.columns, schema, strict=True)]
        return self._change.waiting(name, pa.table(columns, schema=schema))

    def broadcast(self, name: str, entries: pa.Table) -> tuple[str | None, pa.Table, Counts]:
        return self._change.broadcast(name, entries)


def _is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether different values of a type are different values of the other one, which are written in the same way."""
    before, after = small_type(before), small_type(after)
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return bool(before.scale == after.scale and before.precision <= after.precision)
    kinds = str(before), str(after)
    if not set(kinds) <= {*_INTEGERS}:
        return bool(before == after)
    return _INTEGERS.index(kinds[0]) <= _INTEGERS.index(kinds[1])


def _refused(before: pa.Schema, after: pa.Schema, reason: str, hint: str | None = None) -> StateError:
    return StateError(
        "the new key cannot be derived from the former one",
        f"Was: {_shown(before)}\nIs:  {_shown(after)}\n{reason[0].upper()}{reason[1:]}.",
        hint or f"{WITHOUT_STATE}; a key can have another name, or a wider type of integers or decimals",
    )


def _shown(keys: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in keys) or "none"
