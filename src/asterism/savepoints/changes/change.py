"""The tables of a savepoint for a changed definition, whatever the kind of the query.

See docs/decisions/0132.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter

import numpy as np
import pyarrow as pa

from asterism.changes.plan import Counts
from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.groups import group_codes
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.key_groups import NEXT_EVENT_TIME, STATE, THE_KEY, rows_schema
from asterism.savepoints.key_states import KeyStates, State
from asterism.savepoints.plain_types import retyped, retyped_table

SOON = 1000
"""So much after the watermark, in microseconds, what is due is processed. Spark's timers are not due before."""


class StateChange(ABC):
    """What a new definition makes of the state of a former one. Plain data, so that it can be sent to the workers."""

    old: StateDefinition
    new: StateDefinition
    rekeys: bool = False
    """Whether the hashes of keys change."""

    @property
    def fingerprint(self) -> bytes:
        """That of the changed state. No operator has it, so that an operator converts what it still has to."""
        return hashlib.sha256(b"changed" + self.new.to_bytes()).digest()[:16]

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        return []

    @abstractmethod
    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` that still have a state, and what became of all."""

    @abstractmethod
    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""

    def broadcast(self, name: str, entries: pa.Table) -> tuple[str | None, pa.Table, Counts]:
        """(the name of a broadcast state now, None: it was removed; its entries; what became of them)."""
        return name, entries, Counter()


def written_page(states: KeyStates, rows: pa.Table) -> bytes:
    """A page of the keys of some rows of the table ``keys``."""
    key, state = one_chunk(rows.column(THE_KEY)), one_chunk(rows.column(STATE))
    columns = [retyped(column, field.type) for column, field in zip(key.flatten(), states.keys, strict=True)]
    fields = retyped(state, pa.struct(list(states.fields))).flatten()
    return states.written(pa.table(columns, schema=states.keys), dict(zip(states.fields.names, fields, strict=True)))


def rows_of_state(states: KeyStates, former: pa.Table, keys: pa.Table, state: State, due: Ints) -> pa.Table:
    """Rows of the table ``keys`` with another state.

    :param former: the rows before, of the same keys
    :param due: the event time at which something is due for each key, or earlier
    """
    of_key = pa.StructArray.from_arrays(
        [one_chunk(column) for column in keys.columns], fields=list(rows_schema(states).field(THE_KEY).type)
    )
    of_state = pa.StructArray.from_arrays([state[f.name] for f in states.fields], fields=list(states.fields))
    columns = {THE_KEY: of_key, STATE: of_state, NEXT_EVENT_TIME: pa.array(due)}
    return pa.table({name: columns.get(name, former.column(name)) for name in former.column_names})


def rows_of_keys(states: KeyStates, former: pa.Table, keys: pa.Table) -> pa.Table:
    """Of the rows of the table ``keys``, those of some of their *keys*, in this order."""
    names = keys.schema
    known = pa.table(
        [retyped(c, f.type) for c, f in zip(one_chunk(former.column(THE_KEY)).flatten(), states.keys, strict=True)],
        schema=names,
    )
    codes, count = group_codes(pa.concat_tables([known, keys]))
    places = np.zeros(count, np.int64)
    places[codes[: former.num_rows]] = np.arange(former.num_rows)
    return former.take(pa.array(places[codes[former.num_rows :]]))


def changed_waiting(change: StateChange, name: str, rows: pa.Table) -> tuple[pa.Table, Counts]:
    """The rows of the table ``waiting_NAME``, and what became of all."""
    before = change.old.inputs[name]
    changed, counts = change.waiting(name, retyped_table(rows, before))
    others = rows.select([column for column in rows.column_names if column not in before.names]).slice(
        0, changed.num_rows
    )
    return pa.table([*others.columns, *changed.columns], names=[*others.column_names, *changed.column_names]), counts
