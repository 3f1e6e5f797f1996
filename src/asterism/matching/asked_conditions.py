"""Conditions over several events that the stack machine cannot compute: DuckDB computes them, for many candidates at once.

An :class:`AskedCondition` is a Boolean part of a condition, such as ``levenshtein(name, LAST(a.name)) < 3``. Its aggregates are
columns beside those of the event. A *candidate* is an event together with the values that the kernel has on its stack: the number
of an event for FIRST and LAST, otherwise the value of the aggregate.

The kernel asks :class:`Answers` for each candidate. If the answer is not known, the key stops, and the kernel goes on with the
next key. Then :meth:`Answers.compute` computes all answers that are missing, and the kernel continues. While a key waits, the
kernel looks ahead: it runs the next events with presumed answers, so that their candidates are computed, too.

See docs/decisions/0113.
"""

from __future__ import annotations

import abc
import ctypes
import enum
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask, from_numpy
from asterism.columns.failures import evaluated_in_parts
from asterism.errors import AsterismError, EvaluationFailedError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.types import FLOATS, is_decimal

POINTER = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)
NULL_ANSWER, PRESUMED_FALSE, PRESUMED_TRUE, ENOUGH = 2, -1, -2, -3
"""Answers, beside 0 and 1, and the numbers of errors from FIRST_FAILURE on. Negative: it is not known yet. ENOUGH: do not look
ahead any further. The kernel is compiled with these numbers.
"""
FIRST_FAILURE = 1000
FIRST_AHEAD, MAX_AHEAD = 64, 4096
"""How many events a key that waits looks ahead: at first, and at most."""
MAX_MISSING = 65_536
"""The number of candidates with which no key looks ahead any further."""
MAX_KNOWN = 500_000
"""The number of answers after which the older ones are forgotten."""
AT_ONCE = 2**26
"""The approximate size of the columns, in bytes, that are computed together."""


class OperandKind(enum.Enum):
    """What an operand of an asked condition is."""

    OF_EVENT = "a column of the event"
    OF_PREVIOUS = "a value of an event of the key before it"
    OF_PICKED = "a value of the event that FIRST or LAST picks"
    EXTREME = "MIN or MAX"
    NUMBER = "SUM, COUNT or AVG"


@dataclass(frozen=True, slots=True)
class Operand:
    """A column of an asked condition.

    :param type: the type of the column
    :param value: the number of the expression over events that has the values; -1: it is a number
    :param at: its place on the stack
    :param before: for OF_PREVIOUS, how many events before the event
    :param slot: for EXTREME, the slot of the value
    """

    kind: OperandKind
    type: pa.DataType
    value: int = -1
    at: int = 0
    before: int = 0
    slot: int = -1


@dataclass(frozen=True, slots=True)
class AskedCondition:
    """A Boolean expression over *operands*; plain data.

    :param text: the condition as written
    :param count: the number of its operands on the stack
    """

    text: str
    expression: Vectorized
    operands: tuple[Operand, ...]
    count: int

    @property
    def reads_event(self) -> bool:
        """Whether the answer depends on the event, beside the operands on the stack."""
        return any(operand.kind in (OperandKind.OF_EVENT, OperandKind.OF_PREVIOUS) for operand in self.operands)


class AskedEvents(NamedTuple):
    """The events of a call, for asked conditions.

    :ivar columns: for each pattern, the columns of its values by number
    :ivar rows: for each event its row in the columns
    :ivar slots: the values of the slots, in the layout of the kernel
    """

    columns: Sequence[dict[int, pa.Array]]
    rows: Ints
    slots: Ints
    before: Callable[[int], Ints] | None
    """see :meth:`asterism.matching.key_memory.KeyMemory.before`"""
    n_stored: int


Candidate = tuple[int, int, bytes]
"""The event, or -1 if it does not matter; which operands on the stack are NULL, as bits; their values, of 64 bits each."""


class CandidateColumns(NamedTuple):
    """Candidates, columnar."""

    events: Ints
    values: Ints
    """a row of operands for each"""
    nulls: Mask
    """likewise"""

    @classmethod
    def of(cls, candidates: Sequence[Candidate], count: int) -> CandidateColumns:
        """:param count: the number of operands on the stack"""
        size = len(candidates), count
        values = np.frombuffer(b"".join(values for _, _, values in candidates), np.int64).reshape(size)
        bits = np.array([nulls for _, nulls, _ in candidates], np.int64)
        return cls(
            np.array([event for event, _, _ in candidates], np.int64),
            values,
            (bits[:, np.newaxis] >> np.arange(count)) & 1 == 1,
        )


_C = TypeVar("_C", bound=Hashable)


class CandidateAnswers(abc.ABC, Generic[_C]):
    """The answers of *count* conditions for candidates. A search asks :meth:`looked_up`, and where an answer is missing, it goes
    on with something else until :meth:`compute` has computed all that are missing.
    """

    def __init__(self, count: int) -> None:
        self._known: list[dict[_C, int]] = [{} for _ in range(count)]
        self._known_before: list[dict[_C, int]] = [{} for _ in range(count)]
        self._missing: list[dict[_C, bool]] = [{} for _ in range(count)]
        """the candidates whose answers are missing, and whether a search needs them, not only one ahead"""
        self._count = 0
        self._presumed = [0] * count
        """how many more candidates hold than not"""
        self._errors: list[BaseException] = []

    # ------------------------------------------------------------------ a search asks

    def looked_up(self, number: int, candidate: _C, *, ahead: bool) -> int:
        """The answer of the condition *number*, or a negative number if it is not known yet."""
        known = self._known[number].get(candidate)
        if known is not None:
            return known
        known = self._known_before[number].get(candidate)
        if known is not None:
            self._known[number][candidate] = known
            return known
        missing = self._missing[number]
        if candidate not in missing:
            self._count += 1
            missing[candidate] = not ahead
        elif not ahead:
            missing[candidate] = True
        if ahead and self._is_enough():
            return ENOUGH
        return PRESUMED_TRUE if self._presumed[number] > 0 else PRESUMED_FALSE

    def _is_enough(self) -> bool:
        """Whether so many answers are missing that no search looks ahead any further."""
        return self._count >= MAX_MISSING

    def _failed(self, error: BaseException) -> int:
        self._errors.append(error)
        return FIRST_FAILURE + len(self._errors) - 1

    # ------------------------------------------------------------------ answers are computed

    def compute(self) -> None:
        """Compute the answers that are missing."""
        for number, missing in enumerate(self._missing):
            if not missing:
                continue
            if len(self._known[number]) > MAX_KNOWN:
                self._known_before[number], self._known[number] = self._known[number], {}
            self._missing[number] = {}
            candidates = list(missing)
            try:
                answers = self._computed(number, candidates)
            except InvalidEventError:  # that of an event that is not reached must not matter
                candidates = [candidate for candidate, needed in missing.items() if needed]
                answers = self._computed_one_by_one(number, candidates)
            self._known[number].update(zip(candidates, answers, strict=True))
            self._presumed[number] += 2 * answers.count(1) - len(answers)
        self._count = 0

    def _computed(self, number: int, candidates: Sequence[_C]) -> list[int]:
        answers: list[int] = []
        step = 1024
        at = 0
        while at < len(candidates):
            table = self._table(number, candidates[at : at + step])
            answers += _codes(self._values(number, table))
            at += step
            step = max(1, min(len(candidates), step * AT_ONCE // max(table.nbytes, 1), 64 * step))
        return answers

    def _computed_one_by_one(self, number: int, candidates: Sequence[_C]) -> list[int]:
        def computed_for(rows: pa.Table) -> list[int]:
            return self._computed(number, [candidates[place] for place in rows.column(0).to_pylist()])

        places = pa.table({"place": np.arange(len(candidates))})
        answers: list[int] = []
        for part, computed in evaluated_in_parts(computed_for, places, len(candidates)):
            if computed is not None:
                answers += computed
                continue
            try:
                answers += computed_for(places.slice(part.start, 1))
            except InvalidEventError as error:
                answers.append(self._failed(error))
        return answers

    @abc.abstractmethod
    def _table(self, number: int, candidates: Sequence[_C]) -> pa.Table:
        """What the condition *number* reads, a row for each candidate."""

    @abc.abstractmethod
    def _values(self, number: int, table: pa.Table) -> pa.ChunkedArray:
        """The condition *number* over such a table."""


def _codes(values: pa.ChunkedArray) -> list[int]:
    codes: list[int] = values.cast(pa.int64()).fill_null(NULL_ANSWER).to_pylist()
    return codes


class Answers(CandidateAnswers[Candidate]):
    """The answers of the asked conditions of the pattern *number* during one call of the kernel.

    :param slots: for each slot of the pattern that of the kernel
    """

    def __init__(
        self, conditions: Sequence[AskedCondition], number: int, pool: AskedEvents, slots: Sequence[int]
    ) -> None:
        super().__init__(len(conditions))
        self._conditions, self._number, self._pool, self._slots = conditions, number, pool, slots
        self._reads_event = [condition.reads_event for condition in conditions]
        self._lengths = [8 * condition.count for condition in conditions]
        self._extremes: dict[int, tuple[Ints, Ints]] = {}

    def answer(self, number: int, event: int, address: int, nulls: int, ahead: int) -> int:
        """The answer for a candidate, or a negative number if it is not known yet; see :func:`asterism.matching.kernels.ask`."""
        try:
            candidate = (
                event if self._reads_event[number] else -1,
                nulls,
                ctypes.string_at(address, self._lengths[number]),
            )
            return self.looked_up(number, candidate, ahead=ahead != 0)
        except BaseException as raised:  # no exception may pass through the kernel; error() raises it again
            return self._failed(raised)

    def error(self, code: int, where: str) -> AsterismError:
        """The exception for the code of an error. One that no condition causes, such as KeyboardInterrupt, is raised."""
        error = self._errors[code - FIRST_FAILURE]
        if not isinstance(error, AsterismError):
            raise error
        detail = "\n".join(part for part in (error.detail, where) if part)
        failed = EvaluationFailedError(error.message, detail, error.hint)
        failed.__cause__ = error.__cause__
        return failed

    def _values(self, number: int, table: pa.Table) -> pa.ChunkedArray:
        return self._conditions[number].expression.evaluate(table)[0]

    def _table(self, number: int, candidates: Sequence[Candidate]) -> pa.Table:
        """The operands of candidates, a row each."""
        condition = self._conditions[number]
        given = CandidateColumns.of(candidates, condition.count)
        columns = [self._column(operand, given) for operand in condition.operands]
        columns.append(pa.nulls(len(candidates), pa.int8()))  # without operands, it provides the number of rows
        return pa.table(columns, schema=condition.expression.schema)

    def _column(self, operand: Operand, candidates: CandidateColumns) -> pa.Array:
        pool = self._pool
        if operand.kind is OperandKind.OF_EVENT:
            events = candidates.events
        elif operand.kind is OperandKind.OF_PREVIOUS:
            assert pool.before is not None
            events = pool.before(operand.before)[candidates.events - pool.n_stored]
        else:
            values, nulls = candidates.values[:, operand.at], candidates.nulls[:, operand.at]
            if operand.kind is OperandKind.NUMBER:
                return _numbers(values, nulls, operand.type)
            if operand.kind is OperandKind.EXTREME:
                values = self._with_value(operand.slot, values)
            events = np.where(nulls, -1, values)
        column = pool.columns[self._number][operand.value]
        picked = column.take(from_numpy(pool.rows[np.maximum(events, 0)], events >= 0))
        return picked.cast(operand.type, safe=False)

    def _with_value(self, slot: int, values: Ints) -> Ints:
        """For each value of a slot an event that has it."""
        column = 2 * self._slots[slot]
        if slot not in self._extremes:
            given = np.flatnonzero(self._pool.slots[:, column + 1] == 0)
            events = given[np.argsort(self._pool.slots[given, column], kind="stable")]
            self._extremes[slot] = events, self._pool.slots[events, column]
        events, ordered = self._extremes[slot]
        if not len(events):
            return np.full(len(values), -1)
        picked: Ints = events[np.minimum(np.searchsorted(ordered, values), len(events) - 1)]
        return picked


def next_ahead(ahead: int, advanced: float) -> int:
    """How far to look ahead, if it was *ahead* and searches advanced so far on average before the next answer was missing."""
    return min(2 * ahead, MAX_AHEAD) if 2 * advanced > ahead else max(ahead // 2, 4) if 8 * advanced < ahead else ahead


def _numbers(values: Ints, nulls: Mask, data_type: pa.DataType) -> pa.Array:
    """Numbers of the stack machine in their type."""
    values = np.ascontiguousarray(values)
    if data_type in FLOATS:
        return from_numpy(values.view(np.float64), ~nulls).cast(data_type)
    if not is_decimal(data_type):
        return from_numpy(values, ~nulls).cast(data_type)
    words = np.stack([values, np.where(values < 0, -1, 0)], axis=1)
    validity = from_numpy(~nulls).buffers()[1]
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(words.tobytes())])
