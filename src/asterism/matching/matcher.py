"""Runs the kernel: events and partial matches in, matches and partial matches out.

A :class:`Matcher` runs one or more patterns over events of one schema, in one call of the kernel. A *key* of the kernel is a
pattern together with a key of the events. :class:`KeyedEvents` defines which events are passed for each key. Partial matches
are kept in pages (:mod:`asterism.matching.page`).

See docs/decisions/0026 and 0126.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask, from_numpy, one_chunk, to_numpy
from asterism.columns.groups import (
    distinct,
    first_rows,
    group_codes,
    narrow,
    offsets_of,
    positions_among_equals,
    sorted_rows,
)
from asterism.columns.time import END_OF_TIME, TIME
from asterism.errors import AsterismError, LimitExceededError
from asterism.expressions.names import PreviousColumn
from asterism.matching.asked_conditions import FIRST_AHEAD, FIRST_FAILURE, Answers, AskedEvents, next_ahead
from asterism.matching.binding import LIMIT_HINT, BoundPattern
from asterism.matching.instructions import Op
from asterism.matching.key_memory import KeyMemory
from asterism.matching.key_rows import KeyRows
from asterism.matching.linking import Linked, with_address
from asterism.matching.page import Page
from asterism.matching.python_conditions import POINTER, PythonCalls

if TYPE_CHECKING:
    from asterism.matching.kernels import Events, Keys, Tables

SLICE = 2**20
"""The approximate size of the slices in which a call returns its results: the number of matches and new nodes of partial
matches in the kernel, and the number of events in the matches made from them.
"""
SLICE_BYTES = 2**27
"""The approximate size of these events in bytes."""


@contextmanager
def enough_memory(heaviest: Callable[[], str]) -> Iterator[None]:
    """Raise a descriptive error if a call runs out of memory."""
    try:
        yield
    except MemoryError as error:
        raise LimitExceededError(
            "not enough memory for this call",
            f"Largest part: {heaviest()}.\n{type(error).__name__}: {error}".rstrip(": "),
            "lower max_partial_matches, use more key_groups or smaller micro-batches, or increase the memory of the workers",
        ) from error


@dataclass(frozen=True, slots=True)
class MatchColumns:
    """Matches (or timed-out partial matches), columnar: row *i* took ``events[offsets[i]:offsets[i + 1]]``.

    Events are row numbers of :attr:`Step.events`, keys are row numbers of :attr:`Step.keys`, times are microseconds. The
    position of an event is its index among the visible events of its key and time (see :attr:`BoundPattern.relevant_only`).
    """

    key: Ints
    emitted: Ints
    offsets: Ints
    events: Ints
    positions: Ints
    stages: Ints
    numbers: Ints | None = None
    """for each match its number among those of its key, from 1 on, if the pattern counts them"""

    @classmethod
    def none(cls) -> MatchColumns:
        """No matches."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, np.zeros(1, np.int64), empty, empty, empty)

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class Step:
    """A slice of the results of :meth:`Matcher.advance`."""

    keys: pa.Table
    events: pa.Table
    times: Ints
    matches: MatchColumns
    timeouts: MatchColumns
    dropped: int = 0
    """the number of partial matches dropped by the limit"""
    page: Page | None = None
    """the remaining partial matches, in the last slice"""
    kept: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """the rows of *keys* that are the keys of *page*"""
    deadlines: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """for each key of *page* its next deadline"""
    latest_deadlines: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """for each key of *page* until when it may wait after its next deadline, because nobody would see a difference"""

    @property
    def last(self) -> bool:
        """Whether this is the last slice of its call."""
        return self.page is not None

    def next_deadline(self, keys: Ints) -> int:
        """The next deadline of some *keys* of *page*; the end of time if there is none."""
        return int(self.deadlines[keys].min(initial=END_OF_TIME))


class PatternFailure(NamedTuple):
    """The first failure of the pattern *number*, for a row of the keys; *stage* is the stage of the partial match, if known.

    *of_expression*: a SQL condition cannot be computed. *error* makes the exception from the location of the failure and a hint
    about limits.
    """

    number: int
    time: int
    key: int
    stage: str | None
    of_expression: bool
    error: Callable[[str, str], AsterismError]


@dataclass(frozen=True, slots=True)
class KeyedEvents:
    """New events in the layout of the kernel: grouped by key, and sorted by time within a key.

    :param keys: the distinct keys, one row each
    :param stored: for each key its index among the keys of the page, or -1
    :param pattern: for each key the number of its pattern
    :param kept: for each key, whether its remaining partial matches are kept in the page
    :param horizon: for each key the time to which it advances after its events; ``kernels.NO_ADVANCE``: not beyond its events
    :param begins: where the events of each key begin, followed by the end of the last key
    :param table: the events, in any order
    :param rows: for each event its row in *table*
    :param bits: for each event its condition bits, in words
    :param positions: for each event its position among the events of its key and time
    """

    keys: pa.Table
    stored: Ints
    pattern: Ints
    kept: Mask
    horizon: Ints
    begins: Ints
    table: pa.Table
    rows: Ints
    bits: Ints
    positions: Ints

    @classmethod
    def of_one(
        cls,
        pattern: BoundPattern,
        page: Page,
        keys: pa.Table,
        events: pa.Table,
        horizon: int,
        *,
        is_open: Mask | None = None,
    ) -> KeyedEvents:
        """All *events* for a single pattern, with the same *horizon* for all keys.

        :param keys: the key columns of *events*, row by row
        :param events: in arrival order, with TIME and the ``bit_fields`` and ``event_schema`` of the pattern
        :param is_open: for each key of *page*, then for each of *events*, whether its key does not advance beyond its events
        """
        from asterism.matching.kernels import NO_ADVANCE

        n_stored = page.keys.num_rows
        all_keys = pa.concat_tables([page.keys, keys]) if n_stored else keys
        codes, n_keys = group_codes(all_keys)
        first_row = first_rows(codes, n_keys)
        horizons = np.full(n_keys, horizon, np.int64)
        if is_open is not None:
            horizons[codes[is_open]] = NO_ADVANCE
        codes = codes[n_stored:]
        times = to_numpy(events.column(TIME))
        order, begins = sorted_rows(narrow(codes), times)
        positions = np.zeros(len(order), np.int64)
        if not begins.all():  # otherwise no key has two events of one time
            positions = positions_among_equals(codes[order], times[order], pattern.sees(events)[order])
        words = [to_numpy(events.column(field.name))[order] for field in pattern.bit_fields]
        return cls(
            keys=all_keys.take(from_numpy(first_row)),
            stored=np.concatenate([np.arange(n_stored), np.full(n_keys - n_stored, -1)]),
            pattern=np.zeros(n_keys, np.int64),
            kept=np.ones(n_keys, np.bool_),
            horizon=horizons,
            begins=offsets_of(np.bincount(codes, minlength=n_keys)),
            table=events,
            rows=order,
            bits=np.stack(words, axis=1).astype(np.int64),
            positions=positions,
        )


class Matcher:
    """One or more patterns over events of one schema. Plain data, so that it can be sent to the workers.

    :param event_schema: the columns that pages keep of events; by default those that a single pattern needs
    :param reporting: for each pattern, whether its timed-out partial matches are wanted; default: those of all
    """

    def __init__(
        self,
        patterns: Sequence[BoundPattern],
        event_schema: pa.Schema | None = None,
        reporting: Sequence[bool] | None = None,
    ) -> None:
        self.patterns = list(patterns)
        self._reporting = np.array([True] * len(self.patterns) if reporting is None else reporting, np.bool_)
        self.event_schema = patterns[0].event_schema if event_schema is None else event_schema
        self.words = max(pattern.words for pattern in patterns)
        self._has_memory = any(pattern.has_memory for pattern in patterns)
        self._asking = [number for number, pattern in enumerate(patterns) if pattern.programs.asked]
        self._calling = [number for number, pattern in enumerate(patterns) if pattern.per_event]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "linked"}

    @cached_property
    def linked(self) -> Linked:
        """The automata of all patterns in shared tables."""
        return Linked(self.patterns, self.event_schema)

    @cached_property
    def _waits(self) -> Ints:
        """For each pattern, how long after its end a partial match may be removed."""
        pairs = zip(self.patterns, self._reporting.tolist(), strict=True)
        return np.array([0 if reports else pattern.removed_within for pattern, reports in pairs], np.int64)

    def advance_one(self, page: Page, events: KeyedEvents, **options: Any) -> Iterator[Step]:
        """:meth:`advance` for a single pattern, whose failure is raised."""
        for made in self.advance(page, events, **options):
            if isinstance(made, Step):
                yield made
            else:
                values = events.keys.slice(made[0].key, 1).to_pydict().items()
                where = "key " + ", ".join(f"{name}={value[0]!r}" for name, value in values)
                if made[0].stage is not None and made[0].of_expression:
                    where = f'stage "{made[0].stage}", {where}'
                raise made[0].error(where, LIMIT_HINT)

    def advance(
        self,
        page: Page,
        events: KeyedEvents,
        *,
        processing_time: int = 0,
        go_on: bool = False,
    ) -> Iterator[Step | list[PatternFailure]]:
        """Process *events* against the partial matches of *page*, slice by slice, key by key and in order of time.

        If a pattern fails, the failures are yielded last, and the earlier slices must be discarded.

        :param processing_time: for per-event conditions
        :param go_on: find the first failure of every pattern; otherwise stop at the first failure
        """
        from asterism.matching import kernels

        n_stored = len(page.times)
        pool = _Pool.of(page, events, self.event_schema.names)
        times = pool.times[pool.rows]
        bits = np.concatenate([np.zeros((n_stored, self.words), np.int64), events.bits]) if n_stored else events.bits
        rows = kernels.rows_of_keys(page.rows, events.stored)
        begins = n_stored + events.begins
        memory = None
        if self._has_memory:
            memory = KeyMemory(self.patterns, events.pattern, events.horizon == END_OF_TIME, rows, begins, times, bits)
            rows = memory.rows
            pool = pool.with_previous(self.patterns[0].plan.previous, n_stored, memory)
        tables, values, columns = self.linked.values(pool.events, pool.rows, memory)
        calls = {
            number: PythonCalls(self.patterns[number], pool.events, pool.rows, times, processing_time)
            for number in self._calling
        }
        previous = None if memory is None else memory.before
        answers = self._answers(AskedEvents(columns, pool.rows, values, previous, n_stored))
        # The pointers are referenced while the kernel runs.
        pointers = [(Op.PYTHON, number, POINTER(call.answer)) for number, call in calls.items()]
        pointers += [(Op.ASK, number, POINTER(asked.answer)) for number, asked in answers.items()]
        for op, number, pointer in pointers:
            tables = with_address(tables, slice(*self.linked.op_at[number : number + 2]), pointer, op)
        self._shift_states(rows, events.pattern, 1)
        pooled, keys = kernels.Events(times, bits, values), self._keys(events, begins)
        for made in _slices(tables, pooled, keys, page.nodes, rows, [*answers.values()], go_on=go_on):
            failed = made.failures[:, kernels.FAILED_HOW] != kernels.OK
            if not self._reporting.all():
                made = made.reporting(self._reporting[events.pattern])
            if failed.any():
                if made.last:
                    numbers = np.flatnonzero(failed).tolist()
                    yield [self._failure(number, calls.get(number), answers.get(number), made) for number in numbers]
                    return
                continue
            for matches, timeouts, complete in made.portions(pool, memory):
                dropped = made.dropped if complete else 0
                if not (complete and made.last):
                    yield Step(events.keys, pool.events, pool.times, matches, timeouts, dropped=dropped)

        rows, nodes = made.rows, made.nodes[: made.n_nodes]
        self._shift_states(rows, events.pattern, -1)
        if memory is not None:
            rows, nodes = memory.stored(rows, nodes)
        alive = [at[1:] > at[:-1] for at, _ in rows.pairs()]
        live = np.flatnonzero((alive[0] | alive[1] | alive[2]) & events.kept)
        rows, deadlines = kernels.rows_of_keys(rows, live), made.deadlines[live]
        latest = self._latest(deadlines, events.pattern[live], rows)
        left = self._page(events.keys.take(from_numpy(live)), rows, nodes, pool)
        yield Step(events.keys, pool.events, pool.times, matches, timeouts, dropped, left, live, deadlines, latest)

    def _shift_states(self, rows: KeyRows, patterns: Ints, sign: int) -> None:
        """Number the states of *rows* as in the tables of all patterns, or, if *sign* is -1, as in those of their own."""
        if len(self.patterns) > 1:  # the states of the first pattern have the same numbers in both
            from asterism.matching.kernels import FIRST_STATE

            first_state = self.linked.tables.automata[patterns, FIRST_STATE]
            rows.run_rows[:, 2] += sign * np.repeat(first_state, np.diff(rows.run_at))

    def _latest(self, deadlines: Ints, patterns: Ints, rows: KeyRows) -> Ints:
        """For each key until when it may wait; one with a match that a skip strategy holds back must not."""
        if not self._waits.any():
            return deadlines
        waits = np.where(np.diff(rows.waiting_at) > 0, 0, self._waits[patterns])
        latest: Ints = np.minimum(deadlines, END_OF_TIME - waits) + waits
        return latest

    def _keys(self, events: KeyedEvents, begins: Ints) -> Keys:
        from asterism.matching import kernels

        return kernels.Keys(
            events.pattern,
            begins,
            events.horizon,
            next_deadline=np.full(len(events.pattern), kernels.NEVER, np.int64),
            failures=np.zeros((len(self.patterns), 4), np.int64),
            asked_at=np.full(len(events.pattern), -1, np.int64),
            asked_began=np.zeros(len(events.pattern), np.int64),
        )

    def _answers(self, events: AskedEvents) -> dict[int, Answers]:
        """For each pattern with asked conditions their answers."""
        return {
            number: Answers(self.patterns[number].programs.asked, number, events, self.linked.slots_of[number])
            for number in self._asking
        }

    def _page(self, keys: pa.Table, rows: KeyRows, nodes: Ints, pool: _Pool) -> Page:
        """A page of *keys*, with the nodes and events that their *rows* refer to. Renumbers the rows in place."""
        from asterism.matching import kernels

        nodes, kept = kernels.compact(len(pool.rows), nodes, len(nodes), rows.run_rows, rows.waiting_rows)
        kept_rows, positions = pool.rows[kept], pool.positions[kept]
        if len(self.patterns) > 1 and len(kept):
            # Two patterns may have kept the same event, with different positions among the events visible to them.
            room = int(positions.max()) + 1
            pairs, place = distinct(kept_rows * room + positions, room * len(pool.times))
            kept_rows, positions = pairs // room, pairs % room
            # Rows are in the order of arrival, and the kernel compares partial matches by the numbers of their first events.
            order = np.argsort(pool.times[kept_rows], kind="stable")
            kept_rows, positions = kept_rows[order], positions[order]
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            place = rank[place]
            nodes[:, 0] = place[nodes[:, 0]]
            for some in (rows.run_rows, rows.waiting_rows):
                begun = some[:, 1] >= 0
                some[begun, 0] = place[some[begun, 0]]
        return Page(keys, pool.events.take(from_numpy(kept_rows)), pool.times[kept_rows], positions, nodes, rows)

    def _failure(self, number: int, calls: PythonCalls | None, answers: Answers | None, made: _Slice) -> PatternFailure:
        from asterism.matching import kernels
        from asterism.matching.stack_machine import DIVISION_BY_ZERO, OVERFLOW

        pattern, tables = self.patterns[number], self.linked.tables
        time, code, key, state = made.failures[number].tolist()
        stage = None
        if state >= 0:
            stage_number = tables.edges[tables.states[state, kernels.FIRST_EDGE], kernels.STAGE]
            # The state before alternatives has no stage.
            stage = pattern.nfa.stages[stage_number] if stage_number >= 0 else None

        def error(where: str, hint: str) -> AsterismError:
            if answers is not None and code >= FIRST_FAILURE:
                return answers.error(code, where)
            if calls is not None and calls.failure is not None:
                return calls.error(where)
            return pattern.error(code, where, made.dropped, hint)

        of_expression = code in (DIVISION_BY_ZERO, OVERFLOW) or code >= FIRST_FAILURE
        return PatternFailure(number, time, key, stage, of_expression, error)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The events of a call, those of the pages first. *rows* and *positions* are those of the events of the kernel."""

    events: pa.Table
    times: Ints
    rows: Ints
    positions: Ints

    @classmethod
    def of(cls, page: Page, events: KeyedEvents, columns: Sequence[str]) -> _Pool:
        n_stored = len(page.times)
        table, times = events.table.select(columns), to_numpy(events.table.column(TIME))
        if not n_stored:  # without copies
            return cls(table.combine_chunks(), times, events.rows, events.positions)
        return cls(
            pa.concat_tables([page.events, table]).combine_chunks(),
            np.concatenate([page.times, times]),
            rows=np.concatenate([np.arange(n_stored), n_stored + events.rows]),
            positions=np.concatenate([page.positions, events.positions]),
        )

    def with_previous(self, columns: Sequence[PreviousColumn], n_stored: int, memory: KeyMemory) -> _Pool:
        """Set the *columns* of the new events, each of which has a separate row, from the events before them."""
        if not columns:
            return self
        events = self.events
        place = np.empty(len(self.rows) - n_stored, np.int64)
        place[self.rows[n_stored:] - n_stored] = np.arange(len(place))
        for column in columns:
            source = memory.before(column.before)[place]
            stored, kept = "e:" + column.column, one_chunk(events.column("e:" + column.name))
            new = kept.take(from_numpy(np.where(source >= 0, self.rows[source], 0), source >= 0))
            number = events.schema.get_field_index(stored)
            chunks = [*events.column(number).slice(0, n_stored).chunks, new]
            events = events.set_column(number, events.schema.field(number), pa.chunked_array(chunks, new.type))
        return replace(self, events=events.combine_chunks())


@dataclass(frozen=True, slots=True)
class _Slice:
    """The results of the kernel for a slice of a call. If there are *failures*, the rest must be discarded."""

    nodes: Ints
    n_nodes: int
    rows: KeyRows
    out: Ints
    lost: Ints
    dropped: int
    failures: Ints
    deadlines: Ints
    last: bool

    def reporting(self, wanted: Mask) -> _Slice:
        """Without the timed-out partial matches of keys that are not *wanted*."""
        if wanted.all():
            return self
        return replace(self, lost=self.lost[wanted[self.lost[:, 0]]] if wanted.any() else self.lost[:0])

    def portions(self, pool: _Pool, memory: KeyMemory | None) -> Iterator[tuple[MatchColumns, MatchColumns, bool]]:
        """Matches and timed-out partial matches, in portions of about SLICE; the third item says whether it is the last."""
        most = SLICE
        if pool.events.num_rows:
            most = min(most, SLICE_BYTES * pool.events.num_rows // max(pool.events.nbytes, 1))
        of_outputs = [_Portions.of(rows, self.nodes, most) for rows in (self.out, self.lost)]
        count = max(len(portions.cuts) for portions in of_outputs) - 1
        for number in range(count):
            matches, timeouts = (portions.unfolded(number, pool) for portions in of_outputs)
            if memory is not None:
                matches = replace(matches, numbers=memory.numbers(matches.key))
            yield matches, timeouts, number == count - 1


@dataclass(frozen=True, slots=True)
class _Portions:
    """Matches as rows of the kernel, in portions that end at *cuts*.

    The column of a single row is contiguous, and that of several rows is not. A kernel would be compiled for both.
    """

    rows: Ints
    nodes: Ints
    offsets: Ints
    cuts: list[int]

    @classmethod
    def of(cls, rows: Ints, nodes: Ints, most: int) -> _Portions:
        """Split matches into portions of at most *most* events; a single match may exceed this."""
        from asterism.matching import kernels

        lengths = kernels.lengths(nodes, np.ascontiguousarray(rows[:, 2])) if len(rows) else rows[:, 2]
        offsets = offsets_of(lengths)
        cuts = [0]
        while cuts[-1] < len(rows) or len(cuts) == 1:
            end = int(np.searchsorted(offsets, offsets[cuts[-1]] + most, "right")) - 1
            cuts.append(min(max(end, cuts[-1] + 1), len(rows)))
        return cls(rows, nodes, offsets, cuts)

    def unfolded(self, number: int, pool: _Pool) -> MatchColumns:
        from asterism.matching import kernels

        begin, end = (self.cuts[min(place, len(self.cuts) - 1)] for place in (number, number + 1))
        if begin == end:
            return MatchColumns.none()
        rows, offsets = self.rows[begin:end], self.offsets[begin : end + 1] - self.offsets[begin]
        events, stages = kernels.unfold(self.nodes, np.ascontiguousarray(rows[:, 2]), offsets)
        return MatchColumns(rows[:, 0], rows[:, 1], offsets, pool.rows[events], pool.positions[events], stages)


def _slices(
    tables: Tables,
    events: Events,
    keys: Keys,
    nodes: Ints,
    rows: KeyRows,
    answers: Sequence[Answers],
    *,
    go_on: bool,
) -> Iterator[_Slice]:
    """Run the kernel, slice by slice. Where keys stop for *answers*, compute these and continue."""
    from asterism.matching import kernels

    advance_keys: Any = kernels.advance_keys
    resume = np.array([0, keys.event_at[0], -1, 0, FIRST_AHEAD], np.int64)
    kept: list[_Slice] = []
    n_kept = 0
    while True:
        stopped_at = keys.asked_at.copy()
        nodes, n_nodes, rows, out, lost, dropped = advance_keys(tables, events, keys, resume, SLICE, go_on, nodes, rows)
        done = bool(resume[kernels.RESUME_KEY] == len(keys.horizon))
        stopped = done and bool(answers) and bool((keys.asked_at >= 0).any())
        if stopped and not go_on and (keys.failures[:, kernels.FAILED_HOW] != kernels.OK).any():
            stopped = False
        last = done and not stopped
        made = _Slice(nodes, n_nodes, rows, out, lost, int(dropped), keys.failures, keys.next_deadline, last)
        if stopped:
            for asked in answers:
                asked.compute()
            resume[:] = 0, keys.event_at[0], -1, 1, _looking_ahead(int(resume[-1]), stopped_at, keys)
            n_kept += len(out) + len(lost)
            if n_kept + n_nodes < SLICE:  # the nodes of matches are kept until there are many
                kept.append(made)
                nodes = nodes[:n_nodes]
                continue
        yield _joined([*kept, made]) if kept else made
        kept, n_kept = [], 0
        if last:
            return
        nodes = kernels.kept_nodes(nodes, n_nodes, rows.run_rows, rows.waiting_rows)


def _looking_ahead(ahead: int, stopped_at: Ints, keys: Keys) -> int:
    """How many events a key looks ahead, which depends on how far the presumed answers were right."""
    both = (stopped_at >= 0) & (keys.asked_at >= 0)
    if not both.any():
        return ahead
    return next_ahead(ahead, float((keys.asked_at - stopped_at)[both].mean()))


def _joined(slices: Sequence[_Slice]) -> _Slice:
    """Slices with the same nodes as one. The matches of a key are neighbours."""
    out, lost = (np.concatenate([getattr(part, name) for part in slices]) for name in ("out", "lost"))
    out, lost = (rows[np.argsort(rows[:, 0], kind="stable")] for rows in (out, lost))
    return replace(slices[-1], out=out, lost=lost, dropped=sum(part.dropped for part in slices))
