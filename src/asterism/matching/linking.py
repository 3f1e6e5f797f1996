"""Links patterns into shared tables: numbers within one pattern become numbers across all patterns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, filled, from_strings, one_chunk, to_numpy
from asterism.columns.groups import as_int64, offsets_of
from asterism.expressions.evaluation import Vectorized
from asterism.matching.binding import BoundPattern
from asterism.matching.instructions import EVENT_NUMBER, Op, kind_of
from asterism.matching.instructions import Kind as ValueKind
from asterism.matching.key_memory import Fact, KeyMemory, PreviousValue

if TYPE_CHECKING:
    from asterism.matching.kernels import Tables


_TABLES = ("states", "edges", "guards", "conditions", "ops", "automata", "preferred")


class EventNumber(NamedTuple):
    """The slot with the number of the event."""


class Linked:
    """The tables of *patterns* combined. Slots come from columns of *event_schema*, or from expressions over them."""

    def __init__(self, patterns: Sequence[BoundPattern], event_schema: pa.Schema) -> None:
        from asterism.matching import kernels as k

        self.event_schema = event_schema
        self.schema = patterns[0].scope.schema
        self.computed = Vectorized(self.schema)
        self._slots: dict[str | PreviousValue | Fact | EventNumber, int] = {}
        """the slot of a column, of an expression of *computed* (its number), or of a value from earlier events of a key"""
        self.slots_of: list[list[int]] = []
        """for each pattern its slots"""
        self._asked = [
            {value: self._source(pattern, value) for value in pattern.programs.asked_values} for pattern in patterns
        ]
        """for each pattern the sources of the values that asked conditions read"""
        self._asks = any(self._asked)
        self._strings: dict[str, int] = {}
        parts = [
            pattern.tables._replace(ops=self._moved_ops(number, pattern)) for number, pattern in enumerate(patterns)
        ]
        at = {name: offsets_of([len(getattr(part, name)) for part in parts]) for name in _TABLES}
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _TABLES}

        def begins(target: str, source: str) -> Ints:
            """A column with, for each row of *source*, the first row of *target* of the same pattern."""
            return np.repeat(at[target][:-1], np.diff(at[source])).reshape(-1, 1)

        states, edges, guards = joined["states"], joined["edges"], joined["guards"]
        states[:, [k.FIRST_EDGE, k.END_EDGE]] += begins("edges", "states")
        edges[:, [k.TARGET]] += begins("states", "edges")
        edges[:, [k.GUARD]] += np.where(edges[:, [k.GUARD]] >= 0, begins("guards", "edges"), 0)
        guards[:, [0]] += begins("conditions", "guards")
        guards[:, 1:] += np.where(guards[:, 1:] >= 0, begins("guards", "guards"), 0)
        joined["conditions"][:, 1:] += begins("ops", "conditions")
        joined["automata"][:, [k.FIRST_STATE, k.START_STATE]] += begins("states", "automata")
        joined["automata"][:, [k.FIRST_PREFERRED, k.END_PREFERRED]] += begins("preferred", "automata")
        self.tables: Tables = parts[0]._replace(**joined)
        self.op_at = at["ops"]
        """for each pattern the index of its first operation"""

    def _moved_ops(self, number: int, pattern: BoundPattern) -> Ints:
        """The operations of a pattern, with slots and strings renumbered."""
        slots = [
            self._slots.setdefault(self._source(pattern, slot), len(self._slots)) for slot in pattern.programs.slots
        ]
        self.slots_of.append(slots)
        ops: Ints = pattern.tables.ops.copy()
        for row in ops:
            if row[0] == Op.SLOT:
                row[1] = slots[row[1]]
            elif row[0] == Op.PREVIOUS:
                row[0], row[1] = Op.SLOT, self._slot_for(PreviousValue(slots[row[4]], int(row[1])))
            elif row[0] == Op.FACT:
                row[0], row[1] = Op.SLOT, self._slot_for(Fact(number, int(row[1])))
            elif row[0] == Op.AGG and row[4] >= 0:
                row[4] = slots[row[4]]
            elif row[0] == Op.AGG and row[4] == EVENT_NUMBER:
                row[4] = self._slot_for(EventNumber())
            elif row[0] == Op.STRING:
                row[1] = self._strings.setdefault(pattern.programs.strings[row[1]], len(self._strings))
        return ops

    def _slot_for(self, slot: PreviousValue | Fact | EventNumber) -> int:
        return self._slots.setdefault(slot, len(self._slots))

    def _source(self, pattern: BoundPattern, number: int) -> str:
        """A column of the events, or the number of an expression of *computed*."""
        name = pattern.slot_column(number)
        if name not in self.event_schema.names:
            name = str(self.computed.adopt(pattern.vectorized, number))
        return name

    def values(
        self, pool: pa.Table, rows: Ints, memory: KeyMemory | None
    ) -> tuple[Tables, Ints, list[dict[int, pa.Array]]]:
        """(the tables; the values of the slots at *rows* of *pool*, in the layout of the kernel; for each pattern the columns of
        *pool* that its asked conditions read)
        """
        computed = self.computed.evaluate(pool.rename_columns(self.schema.names)) if self.computed.texts else []

        def column(source: str) -> pa.Array:
            return one_chunk(computed[int(source)] if source.isdecimal() else pool.column(source))

        columns = [column(slot) if isinstance(slot, str) else None for slot in self._slots]
        asked: list[dict[int, pa.Array]] = [{}] * len(self._asked)
        if self._asks:
            asked = [{value: column(source) for value, source in sources.items()} for sources in self._asked]
        values, ranks = stack_values(columns, rows, [*self._strings])
        if memory is not None:
            memory.fill(
                values, {name: slot for name, slot in self._slots.items() if isinstance(name, PreviousValue | Fact)}
            )
        if EventNumber() in self._slots:
            values[:, 2 * self._slots[EventNumber()]] = np.arange(len(values))
        if not len(ranks):
            return self.tables, values, asked
        ops = self.tables.ops.copy()
        constant = ops[:, 0] == Op.STRING
        ops[constant, 0], ops[constant, 1] = Op.CONST, ranks[ops[constant, 1]]
        return self.tables._replace(ops=ops), values, asked


def stack_values(columns: Sequence[pa.Array | None], rows: Ints, strings: Sequence[str]) -> tuple[Ints, Ints]:
    """(the values of slots at *rows*, as the stack machine holds them; the values of constant strings)

    Slots without a column are filled by the caller.
    Slot *k* is in column 2k, and 1 in column 2k + 1 if it is NULL. Strings are represented by their rank among all strings of
    this call; order and equality are those of the bytes.
    """
    values = np.zeros((len(rows), max(2 * len(columns), 1)), np.int64)
    texts: dict[int, pa.Array] = {}
    for slot, array in enumerate(columns):
        if array is None:
            continue
        kind = kind_of(array.type)
        values[:, 2 * slot + 1] = to_numpy(array.is_null())[rows]
        if kind is ValueKind.STRING:
            texts[slot] = array.cast(pa.string())
        elif kind is ValueKind.FLOAT:
            doubles = filled(array.cast(pa.float64()))
            values[:, 2 * slot] = doubles.view(np.int64)[rows]
        elif kind is not ValueKind.NULL:
            values[:, 2 * slot] = as_int64(array)[rows]
    constants = from_strings(strings)
    if not texts and not len(constants):
        return values, np.zeros(0, np.int64)
    distinct = pc.unique(pa.chunked_array([*texts.values(), constants], pa.string())).drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    for slot, array in texts.items():
        values[:, 2 * slot] = filled(pc.index_in(array, distinct))[rows]
    return values, to_numpy(pc.index_in(constants, distinct)).astype(np.int64)


def with_address(tables: Tables, wanted: slice, pointer: Any, op: Op) -> Tables:
    """The tables with the address of a callback in those of the *wanted* operations that are *op*."""
    ops = tables.ops.copy()
    selected = ops[wanted]
    selected[selected[:, 0] == op, 2] = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    return tables._replace(ops=ops)
