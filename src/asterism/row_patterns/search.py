"""Searches the ordered rows of a clause for matches (:mod:`asterism.row_patterns.kernels`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import mask_of
from asterism.columns.time import END_OF_TIME
from asterism.errors import InvalidEventError, LimitExceededError, SkipStrategyError
from asterism.matching.instructions import STACK
from asterism.row_patterns.automaton import RowAutomaton
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause import SkipTo, quoted
from asterism.row_patterns.match_conditions import BoundConditions, ClauseConditions
from asterism.row_patterns.match_items import FoundMatches, MatchItems, meant_by, over_leaves
from asterism.row_patterns.ordered_rows import OrderedRows, times_of
from asterism.row_patterns.resolution import ResolvedExpression, RowValue

if TYPE_CHECKING:
    from asterism.row_patterns.search_kernels import PatternTables, RowTables, Workspace

MAX_TABLE = 2**30  # bytes of the table of ends of a partition
MATCHED_ROWS = 5_000_000
"""How many rows of matches are made into a result at a time; with SKIP TO NEXT ROW, a row is in many matches."""
NO_LIMIT = 2**62
DEADLINE = 5
"""The last column of progress, as in search_kernels.py."""
MAX_STEPS = 20_000_000
"""Of the search for one match: edges tried and operations of conditions."""
ASKED = (
    2_000  # steps that a condition counts which is computed outside of the kernel, beside one for each row of the match
)
MAX_WORKSPACE = 2**30  # bytes
MEMORY = 2**26  # bytes for failures
AT_FIRST = 1024  # rows of a match

Path = tuple[int, int, int, Ints]
"""(first row, partition, number of the match, states of its rows); the last one is that of the row that is tested."""


@dataclass(frozen=True, slots=True)
class SearchedPattern:
    """The searched clause, and where the search continues after a match; see :func:`asterism.row_patterns.kernels.find_matches`.

    :ivar timeouts: whether matches that time out are searched, too
    """

    automaton: RowAutomaton
    within: int | None
    skip: int
    skip_to: Mask
    timeouts: bool


@dataclass(frozen=True, slots=True)
class SearchCallbacks:
    """
    :ivar decide: computes the condition of the last row of a path
    :ivar too_many_steps: makes the error for a search: gets the partition, the row where it begins, and the steps
    """

    decide: Callable[[Path], bool]
    too_many_steps: Callable[[int, int, int], LimitExceededError]


class MatchSearch:
    """Finds matches, in order.

    :param times: for each row its time
    :param limits: of rows that may still come: the last arguments of :func:`asterism.row_patterns.kernels.find_matches`
    """

    def __init__(
        self,
        pattern: SearchedPattern,
        bound: BoundConditions,
        offsets: Ints,
        times: Ints,
        limits: tuple[bool, int, int, int, int, bool],
        callbacks: SearchCallbacks,
    ) -> None:
        from asterism.row_patterns import search_kernels as k

        assert bound.conditions is not None
        automaton, within = pattern.automaton, -1 if pattern.within is None else pattern.within
        self._pattern: PatternTables = k.PatternTables(
            automaton.variables,
            automaton.excluded,
            automaton.state_of,
            automaton.edges,
            automaton.also,
            automaton.first_edge,
            within,
            pattern.skip,
            pattern.skip_to,
            pattern.timeouts,
        )
        self._conditions = bound.conditions
        self._rows: RowTables = k.RowTables(offsets, bound.bits, bound.values, times)
        self._limits = k.FutureRows(*limits)
        self._callbacks = callbacks
        self._largest = int(np.diff(offsets).max(initial=0))
        self._work = self._workspace(len(automaton.variables))

    def _workspace(self, states: int) -> Workspace:
        from asterism.row_patterns import search_kernels as k

        conditions = self._conditions
        position = np.zeros(k.POSITIONS, np.int64)
        position[k.DEPTH] = position[k.ANSWER] = -1
        position[k.COMPLETES] = 1
        widths = [
            sum(2 if kind == k.K_REGISTER else 1 for kind in conditions.keys[begin:end, 0])
            for begin, end in zip(conditions.first_key, conditions.first_key[1:], strict=False)
        ]
        width = k.MEMORY_COLUMNS + max(widths, default=0)
        places = 1
        while places * width * 8 < MEMORY and places < 4 * self._largest * states:
            places *= 2
        rows = min(AT_FIRST, self._largest)
        return k.Workspace(
            position=position,
            ends=np.empty((self._largest, states), np.int32),
            needs=np.empty(
                (0 if self._knows_all() and not self._pattern.timeouts else self._largest, states), np.int32
            ),
            frames=np.zeros((rows + 2, 2), np.int64),
            counts=np.zeros(len(conditions.members), np.int64),
            places=np.zeros((len(conditions.members), rows + 2), np.int64),
            sums=np.zeros((len(conditions.registers), rows + 3, 2), np.int64),
            stack=np.zeros((2, STACK), np.int64),
            memory=np.zeros((places if conditions.remembers.any() else 1, width), np.int64),
            key=np.zeros(width, np.int64),
            matches=np.zeros((1024, 6), np.int64),
            labels=np.zeros(2 * AT_FIRST, np.int32),
            unmatched=np.zeros(len(self._rows.bits), np.bool_),
            impossible=np.zeros(len(conditions.programs), np.bool_),
            reached=np.zeros(states, np.bool_),
            todo=np.zeros(states + 1, np.int64),
            late=np.zeros(len(conditions.programs), np.bool_),
            late_later=np.zeros(len(conditions.programs), np.bool_),
            passed=np.zeros(len(conditions.bounds), np.bool_),
            leads_on=np.zeros(states, np.bool_),
        )

    def _knows_all(self) -> bool:
        return self._limits.ended and self._largest <= self._limits.max_rows

    def run(self, progress: Ints, position: Ints, most: int) -> Iterator[tuple[int, Ints, Ints, Mask]]:
        """(status, matches, labels, unmatched), with the arguments and results of
        :func:`asterism.row_patterns.kernels.find_matches`, until all is found or the search fails.
        """
        from asterism.row_patterns import search_kernels as k

        status = k.MORE
        while status == k.MORE:
            status = k.ASK
            while status in (k.ASK, k.NO_ROOM, k.NO_ROOM_FOR_MATCH):
                status = k.find_matches(
                    self._pattern, self._conditions, self._rows, self._limits, self._work, progress, most, MAX_STEPS
                )
                if status == k.ASK:
                    self._answer()
                elif status == k.NO_ROOM:
                    self._make_room()
                elif status == k.NO_ROOM_FOR_MATCH:
                    self._make_room_for_match()
            work, at = self._work, self._work.position
            position[0] = partition = int(at[k.AT_PARTITION])
            if status == k.TOO_MANY_STEPS:
                row = int(self._rows.offsets[partition] + at[k.AT_ROW])
                raise self._callbacks.too_many_steps(partition, row, int(at[k.STEPS]))
            matches, labels = work.matches[: at[k.FOUND]].copy(), work.labels[: at[k.USED]].copy()
            yield status, matches, labels, work.unmatched.copy()
            at[k.FOUND] = at[k.USED] = 0
            work.unmatched[:] = False

    def _answer(self) -> None:
        from asterism.row_patterns import search_kernels as k

        position = self._work.position
        partition = int(position[k.AT_PARTITION])
        first = int(self._rows.offsets[partition] + position[k.AT_ROW])
        states = self._work.frames[1 : position[k.DEPTH] + 2, 0].copy()
        try:
            holds = self._callbacks.decide((first, partition, int(position[k.MATCHES_BEFORE]) + 1, states))
        except InvalidEventError:
            if self._is_looked_at():
                raise
            position[k.ANSWER] = k.WAIT
        else:
            position[k.ANSWER] = k.HOLDS if holds else k.FAILS
        position[k.STEPS] += ASKED + len(states)

    def _is_looked_at(self) -> bool:
        """Whether a match could be completed with known rows from the row that is tested. Otherwise, rows that are still to come
        decide whether it matters that its condition fails.
        """
        from asterism.row_patterns import search_kernels as k

        position, depth = self._work.position, self._work.position[k.DEPTH]
        if position[k.PARTIAL]:  # all rows that WITHIN allows are known
            return True
        limit = min(position[k.UNTIL], position[k.FRONTIER])
        if not self._limits.ended and (self._pattern.edges[:, 1] & k.AT_END).any():
            begin, end = self._rows.offsets[position[k.AT_PARTITION] :][:2]
            limit = min(limit, end - begin - 1)  # the last known row need not be the end of the partition
        target = self._pattern.edges[self._work.frames[depth, 1], 0]
        if target == k.ACCEPT:
            return True
        return bool(self._work.ends[position[k.AT_ROW] + depth, target] <= limit)

    def _make_room(self) -> None:
        """Make room for longer matches."""
        work = self._work
        room = min(2 * len(work.frames), self._largest + 2)
        size = 8 * room * (2 + len(work.places) + 2 * len(work.sums))
        if size > MAX_WORKSPACE:
            raise LimitExceededError(
                f"a match of more than {len(work.frames):,} rows is too long for conditions on the match so far",
                f"The search would need {size:,} bytes (limit {MAX_WORKSPACE:,}).",
                "WITHIN, or a pattern whose matches are shorter",
            )
        frames = np.zeros((room, 2), np.int64)
        places = np.zeros((len(work.places), room), np.int64)
        sums = np.zeros((len(work.sums), room + 1, 2), np.int64)
        frames[: len(work.frames)] = work.frames
        places[:, : work.places.shape[1]] = work.places
        sums[:, : work.sums.shape[1]] = work.sums
        self._work = work._replace(frames=frames, places=places, sums=sums)

    def _make_room_for_match(self) -> None:
        from asterism.row_patterns import search_kernels as k

        matches, labels, position = self._work.matches, self._work.labels, self._work.position
        if position[k.FOUND] == len(matches):
            matches = np.concatenate([matches, np.zeros_like(matches)])
        while position[k.USED] + position[k.DEPTH] > len(labels):
            labels = np.concatenate([labels, np.zeros_like(labels)])
        self._work = self._work._replace(matches=matches, labels=labels)


@dataclass(slots=True)
class Search:
    """The progress of the search in each partition, and the limits of rows to come.

    :ivar progress: see :func:`asterism.row_patterns.kernels.find_matches`
    :ivar processing_time: of this search, in microseconds since the epoch
    :ivar ended: whether no more rows come
    :ivar horizon: rows that come have later times, in microseconds
    :ivar max_rows: how many rows of a partition a search may wait with for more
    :ivar drop: whether a start with which it would wait longer is dropped; otherwise LimitExceededError is raised
    """

    progress: Ints
    processing_time: int
    ended: bool = True
    horizon: int = END_OF_TIME
    max_rows: int = NO_LIMIT
    drop: bool = False

    @classmethod
    def of_table(cls, ordered: OrderedRows, processing_time: int) -> Search:
        return cls(no_progress(len(ordered.offsets) - 1), processing_time)

    def limits(self, clause: CheckedClause) -> tuple[bool, int, int, int, int, bool]:
        """The limits of rows to come, for the kernels; the last arguments of ``find_matches``."""
        lookahead, trailing = reach_of_conditions(clause)[1], reach_of_measures(clause)[1]
        return self.ended, self.horizon, lookahead, trailing, self.max_rows, self.drop


def no_progress(count: int) -> Ints:
    """The progress of partitions in which nothing has been searched yet."""
    found = np.zeros((count, DEADLINE + 1), np.int64)
    found[:, DEADLINE] = END_OF_TIME
    return found


def reach_of_conditions(clause: CheckedClause) -> tuple[int, int]:
    """How many rows before and after a row its conditions read."""
    return _reach(one.resolved for one in clause.conditions.values())


def reach_of_measures(clause: CheckedClause) -> tuple[int, int]:
    """How many rows before the first and after the last row of a match its measures read, at most."""
    return _reach(clause.measures)


def _reach(expressions: Iterable[ResolvedExpression]) -> tuple[int, int]:
    steps = [leaf.place.steps for one in expressions for leaf in one.leaves if isinstance(leaf, RowValue)]
    return max(0, -min(steps, default=0)), max(0, max(steps, default=0))


def found_matches(
    clause: CheckedClause, automaton: RowAutomaton, conditions: ClauseConditions, ordered: OrderedRows, search: Search
) -> Iterator[FoundMatches]:
    """Matches, many at a time; see :func:`match_ordered`."""
    from asterism.row_patterns import kernels as k
    from asterism.row_patterns import search_kernels as deep

    largest = int(np.diff(ordered.offsets).max(initial=0))
    size = 4 * largest * len(automaton.variables)
    if size > MAX_TABLE:
        raise LimitExceededError(
            f"a partition of {largest:,} rows is too large for a pattern of {len(automaton.variables):,} elements",
            f"The search would need {size:,} bytes (limit {MAX_TABLE:,}).",
            "use smaller partitions, or fewer repetitions in {n,m}",
        )
    skip = clause.clause.skip
    kinds = {
        SkipTo.PAST_LAST_ROW: k.PAST_LAST_ROW,
        SkipTo.NEXT_ROW: k.NEXT_ROW,
        SkipTo.FIRST: k.TO_FIRST,
        SkipTo.LAST: k.TO_LAST,
        SkipTo.NO_SKIP: deep.NO_SKIP,
    }
    in_depth = clause.clause.timeouts or skip.to is SkipTo.NO_SKIP or automaton.needs_depth
    in_depth |= not search.ended and conditions.bounds_times
    bound = conditions.bound(automaton, ordered.rows, ordered.shifted, ordered.words, in_depth=in_depth)
    bounded = bound.conditions is not None and len(bound.conditions.bounds) > 0
    times, meant = times_of(clause, ordered, needed=bounded), meant_by(clause, skip.variable)
    position = np.zeros(1, np.int64)
    if bound.near and not in_depth:
        parts = _near_matches(clause, automaton, ordered, bound, search, times, kinds[skip.to], meant, position)
    else:
        pattern = SearchedPattern(automaton, clause.within, kinds[skip.to], meant, clause.clause.timeouts)
        asked = SearchCallbacks(partial(decided, clause, automaton, ordered), partial(_step_error, clause, ordered))
        parts = MatchSearch(pattern, bound, ordered.offsets, times, search.limits(clause), asked).run(
            search.progress, position, MATCHED_ROWS
        )
    for status, matches, labels, unmatched in parts:
        if status == k.TOO_LONG:
            raise _too_long(clause, ordered, search, int(position[0]))
        if status not in (k.OK, k.MORE):
            raise _skip_error(clause, ordered, matches[-1], status == k.NO_ROW_TO_SKIP_TO)
        yield FoundMatches(matches, labels, unmatched)


def _near_matches(
    clause: CheckedClause,
    automaton: RowAutomaton,
    ordered: OrderedRows,
    bound: BoundConditions,
    search: Search,
    times: Ints,
    skip: int,
    meant: Mask,
    position: Ints,
) -> Iterator[tuple[int, Ints, Ints, Mask]]:
    """The search if no condition depends on the match."""
    from asterism.row_patterns import kernels as k

    within = -1 if clause.within is None else clause.within
    status = k.MORE
    while status == k.MORE:
        status, matches, labels, unmatched = k.find_matches(
            ordered.offsets,
            bound.bits.view(np.bool_),
            automaton.variables,
            automaton.edges,
            automaton.first_edge,
            times,
            within,
            skip,
            meant,
            search.progress,
            position,
            MATCHED_ROWS,
            *search.limits(clause),
        )
        yield status, matches, labels, unmatched


def decided(clause: CheckedClause, automaton: RowAutomaton, ordered: OrderedRows, path: Path) -> bool:
    """Whether the last row of a path satisfies its condition."""
    condition = clause.conditions[automaton.names[automaton.variables[path[3][-1]]]].resolved
    return bool(mask_of(over_leaves(condition, leaves_of_path(clause, automaton, ordered, path), 1))[0])


def leaves_of_path(clause: CheckedClause, automaton: RowAutomaton, ordered: OrderedRows, path: Path) -> list[pa.Array]:
    """The values that the condition of the last row of a path reads, for each leaf one."""
    first, partition, number, states = path
    matches = np.array([[first, partition, number, 0, len(states), 0]], np.int64)
    found = FoundMatches(matches, states, np.zeros(0, np.bool_))
    condition = clause.conditions[automaton.names[automaton.variables[states[-1]]]].resolved
    items = MatchItems(clause, automaton, ordered, found, np.zeros(1, np.int64), np.array([len(states)]))
    leaves = items.leaves([condition], whole=True)
    return [leaves[leaf] for leaf in condition.leaves]


def _step_error(
    clause: CheckedClause, ordered: OrderedRows, partition: int, row: int, steps: int
) -> LimitExceededError:
    from asterism.row_patterns import search_kernels as k

    place = row - int(ordered.offsets[partition]) + 1
    limits = f"limit {MAX_STEPS:,}, and {k.USUAL_STEPS:,} on average"
    where = f"The search for a match that begins at row {place:,} of the partition: {steps:,} steps ({limits})."
    key = _shown_keys(clause, ordered, row, order=True)
    why, hint = "because conditions depend on the match so far", ", or PREV instead of LAST and FIRST in conditions"
    if clause.clause.skip.to is SkipTo.NO_SKIP:
        why, hint = "because NO SKIP asks for all ways to match", ", or AFTER MATCH SKIP TO NEXT ROW"
    return LimitExceededError(
        f"the search for matches takes too many steps, {why}",
        f"{where}\nThat row: {key}" if key else where,
        f"WITHIN, quantifiers with an upper limit{hint}",
    )


def _too_long(clause: CheckedClause, ordered: OrderedRows, search: Search, partition: int) -> LimitExceededError:
    from asterism.row_patterns import kernels as k

    row = int(ordered.offsets[partition] + search.progress[partition, k.NEXT_START])
    place = _shown_keys(clause, ordered, row, order=True)
    return LimitExceededError(
        f"more than {search.max_rows:,} rows of a partition wait for the end of a match (max_rows)",
        f"The first of them: {place}" if place else None,
        "WITHIN, or a pattern whose matches end; a larger max_rows; or on_limit='drop', to go on with the next row",
    )


def _shown_keys(clause: CheckedClause, ordered: OrderedRows, row: int, *, order: bool = False) -> str:
    """The values of PARTITION BY in a row, for messages, and those of ORDER BY."""
    sources = [*zip(clause.clause.partition_by, clause.partition_by, strict=True)]
    shown = [(one.expression.text, number) for one, number in sources]
    if order:
        shown += [(one.expression.text, n) for one, n in zip(clause.clause.order_by, clause.order_by, strict=True)]
    return ", ".join(f"{text} = {ordered.keys[number][row].as_py()!r}" for text, number in shown)


def _skip_error(clause: CheckedClause, ordered: OrderedRows, match: Ints, absent: bool) -> SkipStrategyError:
    from asterism.row_patterns import kernels as k

    skip = clause.clause.skip
    name = quoted(skip.variable or "")
    problem = (
        f"it has no row of {name}" if absent else f"{name} is its first row, so the same match would follow forever"
    )
    key = _shown_keys(clause, ordered, int(match[k.START]))
    return SkipStrategyError(
        f"AFTER MATCH SKIP {skip.to.value} {name}: cannot go on after match {match[k.NUMBER]}, because {problem}",
        f"Partition: {key}" if key else None,
        "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW",
    )
