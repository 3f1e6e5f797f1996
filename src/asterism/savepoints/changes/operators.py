"""The state of a user-defined operator, continued with another one: states that are renamed or removed, and wider types.

See docs/decisions/0132.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.schemas import small_type
from asterism.columns.time import BEFORE_TIME
from asterism.errors import StateError
from asterism.operators.evolution import aligned, check_evolution, with_expiry
from asterism.operators.multiple_input import MultipleInputOperator
from asterism.operators.state.keyed_state import EXPIRES, KEY, NAME
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.operators.stored_state import BROADCAST, STATE, of_keys
from asterism.savepoints.changes.change import StateChange, rows_of_state, written_page
from asterism.savepoints.key_groups import NEXT_EVENT_TIME
from asterism.savepoints.kinds import key_states
from asterism.savepoints.rows.nested import by_name

_WIDER: dict[str, tuple[str, ...]] = {
    "int8": ("int16", "int32", "int64", "float", "double"),
    "int16": ("int32", "int64", "float", "double"),
    "int32": ("int64", "double"),
    "float": ("double",),
    "date32[day]": (),
}
"""For each type, those that have all its values."""


class OperatorChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: the new operator, with its inputs
    :param renamed: new names of states, by their former names
    :param watermark: that of the state
    :param processing_time: when it was written. What has expired by then, in the operator's time, remains expired
    :raises StateError: the state cannot be continued at all
    """

    def __init__(
        self,
        old: StateDefinition,
        operator: MultipleInputOperator,
        renamed: Mapping[str, str] | None = None,
        watermark: int = BEFORE_TIME,
        processing_time: int = BEFORE_TIME,
    ) -> None:
        self.old, self.new = old, operator.definition
        self._time = watermark if operator.event_time else processing_time
        renamed = dict(renamed or {})
        states = {table.partition(":")[2]: table for table in old.tables if table.startswith((STATE, BROADCAST))}
        for former, name in renamed.items():
            if former not in states or not any(prefix + name in self.new.tables for prefix in (STATE, BROADCAST)):
                raise StateError(
                    f'the state "{former}" cannot be renamed to "{name}"',
                    f"Former states: {', '.join(states) or 'none'}",
                    "name states as renamed={former: new}",
                )
        self._tables: dict[str, str] = {}
        """the names of tables by their former names, of those that continue"""
        self._reasons: dict[str, str] = {}
        """why others do not"""
        self._removed: dict[str, list[str]] = {}
        """the fields of structs that those that continue lose, by their former names"""
        for name, table in states.items():
            new_name = renamed.get(name, name)
            prefix = STATE if table.startswith(STATE) else BROADCAST
            reason = self._refusal(table, prefix + new_name, name, new_name)
            if reason is None and prefix + new_name in self._tables.values():
                raise StateError(f'two former states would be "{new_name}"', hint="rename the other one, too")
            if reason is None:
                self._tables[table] = prefix + new_name
            else:
                self._reasons[table] = reason
        kept = {table: self.new.tables[name] for table, name in self._tables.items()}
        others = {table: schema for table, schema in old.tables.items() if table not in states.values()}
        kinds = {
            name.partition(":")[2]: self.new.details["kinds"][name.partition(":")[2]] for name in self._tables.values()
        }
        tables = {**others, **{self._tables[table]: schema for table, schema in kept.items()}}
        check_evolution(replace(old, tables=tables, details={**old.details, "kinds": kinds}), self.new)

    def _refusal(self, table: str, new_table: str, name: str, new_name: str) -> str | None:
        if new_table not in self.new.tables:
            return f'the state "{name}" was removed'
        kinds = self.old.details["kinds"][name], self.new.details["kinds"][new_name]
        if kinds[0] != kinds[1]:
            return f'the state "{name}" was a {kinds[0]} and is a {kinds[1]}'
        before, after = self.old.tables[table], self.new.tables[new_table]
        for field in before:
            if field.name == EXPIRES:
                continue
            now = after.field(field.name).type
            removed = _removed_fields(field.type, now)
            # With another number of fields, keys of a map that differ could become equal.
            fits = _is_wider(field.type, now) and not (
                field.name == NAME and (removed or _removed_fields(now, field.type))
            )
            if not fits:
                return f'the state "{name}" was {field.type} and is {now}'
            if removed:
                self._removed[table] = removed
        return None

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` that still have a state, and what became of all."""
        before, after = key_states(self.old), key_states(self.new)
        tables = tables_by_name(written_page(before, rows), of_keys(self.old.tables))
        counts: Counts = Counter()
        made: dict[str, pa.Table] = {}
        for table, rows_of_table in tables.items():
            stored = self._live(rows_of_table)
            if table.startswith(STATE):
                counts += self._counted(table, stored.num_rows)
            name = self._tables.get(table, table)
            if table not in self._reasons and name in self.new.tables:
                made[name] = _widened(stored, self.new.tables[name])
        schemas = of_keys(self.new.tables)
        whole = [made.get(name, schema.empty_table()) for name, schema in schemas.items()]
        live = np.unique(np.concatenate([_owners(made[name]) for name in made if name != KEYS_TABLE] or [_NONE]))
        keys, state = after.read(tables_to_bytes(whole))
        chosen = pa.array(live)
        left = rows.take(chosen)
        due = one_chunk(left.column(NEXT_EVENT_TIME)).to_numpy()
        return rows_of_state(after, left, keys.take(chosen), {n: s.take(chosen) for n, s in state.items()}, due), counts

    def _live(self, entries: pa.Table) -> pa.Table:
        """The entries that have not expired: without a time to live, the others would be there again."""
        if EXPIRES not in entries.column_names:
            return entries
        return entries.filter(pa.array(entries.column(EXPIRES).to_numpy() > self._time))

    def _counted(self, table: str, count: int) -> Counts:
        reason = self._reasons.get(table)
        what = f'entries of the state "{table.partition(":")[2]}"'
        now = self._tables.get(table, table).partition(":")[2]
        note = f'as "{now}"' if now != table.partition(":")[2] else ""
        parts = [PlanPart(what, "", "", CONTINUES if reason is None else DROPPED, reason or note)]
        if reason is None:
            parts += [
                PlanPart(
                    f'values of the field "{field}" of the state "{now}"', "", "", DROPPED, "the field was removed"
                )
                for field in self._removed.get(table, ())
            ]
        return Counter({part: count for part in parts if count})

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        counts = Counter(
            {PlanPart("events that wait", "", "", CONTINUES, ""): events.num_rows} if events.num_rows else {}
        )
        return aligned(events, self.new.inputs[name]), counts

    def broadcast(self, name: str, entries: pa.Table) -> tuple[str | None, pa.Table, Counts]:
        """(the name of a broadcast state now, None: it was removed; its entries; what became of them)."""
        table, entries = BROADCAST + name, self._live(entries)
        counts = self._counted(table, entries.num_rows)
        if table not in self._tables:
            return None, entries, counts
        now = self._tables[table]
        return now.partition(":")[2], _widened(entries, self.new.tables[now]), counts


_NONE = np.empty(0, np.int64)


def _owners(rows: pa.Table) -> Ints:
    owners: Ints = rows.column(KEY).to_numpy().astype(np.int64)
    return owners


def _is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether values of a type are values of another one, or of the same."""
    if small_type(before) == small_type(after):
        return True
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        return all(
            _is_wider(before.field(field.name).type, field.type) if field.name in before.names else field.nullable
            for field in after
        )
    if pa.types.is_list(before) and pa.types.is_list(after):
        return _is_wider(before.value_type, after.value_type)
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        scale = after.scale - before.scale
        return bool(scale >= 0 and after.precision - after.scale >= before.precision - before.scale)
    return str(after) in _WIDER.get(str(before), ())


def _removed_fields(before: pa.DataType, after: pa.DataType, path: str = "") -> list[str]:
    """The fields of structs in a type that another one does not have."""
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        removed: list[str] = []
        for field in before:
            name = path + field.name
            kept = field.name in after.names
            removed += _removed_fields(field.type, after.field(field.name).type, f"{name}.") if kept else [name]
        return removed
    if pa.types.is_list(before) and pa.types.is_list(after):
        return _removed_fields(before.value_type, after.value_type, path)
    return []


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of *schema*, as its types. Fields of structs are found by their names; those that are new are NULL."""
    rows = with_expiry(rows, schema)
    return pa.table([by_name(one_chunk(rows.column(field.name)), field.type) for field in schema], schema=schema)
