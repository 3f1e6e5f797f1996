"""Searches the ordered rows of a clause for matches (:mod:`asterism.row_patterns.kernels`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import mask_of
from asterism.columns.time import END_OF_TIME
from asterism.errors import InvalidEventError, LimitExceededError, SkipStrategyError
from asterism.matching.instructions import STACK
from asterism.row_patterns import kernels as k
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause.clause import SkipTo, quoted
from asterism.row_patterns.match_conditions import BoundConditions, ClauseConditions
from asterism.row_patterns.match_items import FoundMatches, MatchItems, over_leaves
from asterism.row_patterns.ordered_rows import OrderedRows, Path
from asterism.row_patterns.resolution import ResolvedExpression

MAX_TABLE = 2**30  # bytes of the table of ends of a partition
MATCHED_ROWS = 5_000_000
"""How many rows of matches are made into a result at a time; with SKIP TO NEXT ROW, a row is in many matches."""
NO_LIMIT = 2**62
MAX_STEPS = 20_000_000
"""Maximum steps of the search for one match, if conditions depend on the match so far: edges tried, operations of conditions."""
ASKED = 2_000
"""The number of steps of a condition that is evaluated outside of the kernel, in addition to one for each row of the match."""
MAX_WORKSPACE = 2**30  # bytes
MEMORY = 2**26  # bytes for failures
AT_FIRST = 1024  # rows of a match


# ---------------------------------------------------------------------------------------------------- where the search is


@dataclass(slots=True)
class SearchState:
    """The progress of the search in each partition, and the limits of later rows.

    :ivar progress: see :func:`asterism.row_patterns.kernels.find_matches`
    :ivar processing_time: of this search, in microseconds since the epoch
    :ivar ended: whether the input has ended
    :ivar horizon: all rows of later calls have later times, in microseconds
    :ivar max_rows: the maximum number of rows of a partition with which a search waits for more
    :ivar drop: whether a start that would exceed the maximum is dropped; otherwise LimitExceededError is raised
    """

    progress: Ints
    processing_time: int
    ended: bool = True
    horizon: int = END_OF_TIME
    max_rows: int = NO_LIMIT
    drop: bool = False


def no_progress(count: int) -> Ints:
    """The progress of partitions in which nothing has been searched yet."""
    progress = np.zeros((count, k.DEADLINE + 1), np.int64)
    progress[:, k.DEADLINE] = END_OF_TIME
    return progress


# ---------------------------------------------------------------------------------------------------- the search


def pattern_tables(clause: CheckedClause) -> k.PatternTables:
    """The pattern of a clause, and where the search continues after a match, for the kernel."""
    skip, automaton = clause.clause.skip, clause.automaton
    kinds = {
        SkipTo.PAST_LAST_ROW: k.PAST_LAST_ROW,
        SkipTo.NEXT_ROW: k.NEXT_ROW,
        SkipTo.FIRST: k.TO_FIRST,
        SkipTo.LAST: k.TO_LAST,
        SkipTo.NO_SKIP: k.NO_SKIP,
    }
    return k.PatternTables(
        variables=automaton.variables,
        excluded=automaton.excluded,
        state_of=automaton.state_of,
        edges=automaton.edges,
        also=automaton.also,
        first_edge=automaton.first_edge,
        within=-1 if clause.within is None else clause.within,
        skip=kinds[skip.to],
        skip_to=clause.meant_by(skip.variable),
        timeouts=clause.clause.timeouts,
    )


class MatchSearch:
    """Finds the matches of a clause, in order.

    :param state: where the search begins; the search updates it
    :raises asterism.errors.LimitExceededError: a partition is too large for the pattern
    """

    def __init__(self, conditions: ClauseConditions, ordered: OrderedRows, state: SearchState) -> None:
        clause, automaton = ordered.clause, ordered.clause.automaton
        self._clause, self._ordered, self._state = clause, ordered, state
        self._largest = int(np.diff(ordered.offsets).max(initial=0))
        size = 4 * self._largest * len(automaton.variables)
        if size > MAX_TABLE:
            raise LimitExceededError(
                f"a partition of {self._largest:,} rows is too large for a pattern of {len(automaton.variables):,} elements",
                f"The search would need {size:,} bytes (limit {MAX_TABLE:,}).",
                "use smaller partitions, or fewer repetitions in {n,m}",
            )
        in_depth = clause.clause.timeouts or clause.clause.skip.to is SkipTo.NO_SKIP or automaton.needs_depth
        in_depth |= not state.ended and bool(conditions.time_bounds)
        bound = conditions.bound(ordered, in_depth=in_depth)
        exact = bound.near and not in_depth
        times = ordered.times(needed=not exact and len(bound.conditions.bounds) > 0)
        self._tables: k.SearchTables = k.SearchTables(
            pattern_tables(clause),
            bound.conditions,
            k.RowTables(ordered.offsets, bound.bits, exact, bound.values, times),
            k.FutureRows(
                state.ended,
                state.horizon,
                clause.reach_of_conditions[1],
                clause.reach_of_measures[1],
                state.max_rows,
                state.drop,
            ),
            self._workspace(bound),
        )

    def _workspace(self, bound: BoundConditions) -> k.Workspace:
        conditions, states = bound.conditions, len(self._clause.automaton.variables)
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
        knows_all = self._state.ended and self._largest <= self._state.max_rows
        return k.Workspace(
            position=position,
            ends=np.empty((self._largest, states), np.int32),
            needs=np.empty((0 if knows_all and not self._clause.clause.timeouts else self._largest, states), np.int32),
            frames=np.zeros((rows + 2, 2), np.int64),
            counts=np.zeros(len(conditions.members), np.int64),
            places=np.zeros((len(conditions.members), rows + 2), np.int64),
            sums=np.zeros((len(conditions.registers), rows + 3, 2), np.int64),
            stack=np.zeros((2, STACK), np.int64),
            memory=np.zeros((places if conditions.remembers.any() else 1, width), np.int64),
            key=np.zeros(width, np.int64),
            matches=np.zeros((1024, 6), np.int64),
            labels=np.zeros(2 * AT_FIRST, np.int32),
            unmatched=np.zeros(len(bound.bits), np.bool_),
            impossible=np.zeros(len(conditions.programs), np.bool_),
            reached=np.zeros(states, np.bool_),
            todo=np.zeros(states + 1, np.int64),
            late=np.zeros(len(conditions.programs), np.bool_),
            late_later=np.zeros(len(conditions.programs), np.bool_),
            passed=np.zeros(len(conditions.bounds), np.bool_),
            leads_on=np.zeros(states, np.bool_),
        )

    def run(self) -> Iterator[FoundMatches]:
        """The matches in parts, each with many matches.

        :raises asterism.errors.SkipStrategyError: AFTER MATCH SKIP has no row to go to
        :raises asterism.errors.LimitExceededError: the search takes too long, or waits with too many rows
        """
        status = k.MORE
        while status == k.MORE:
            status = self._searched()
            work, position = self._tables.work, self._tables.work.position
            matches, labels = work.matches[: position[k.FOUND]].copy(), work.labels[: position[k.USED]].copy()
            if status == k.TOO_MANY_STEPS:
                raise self._too_many_steps()
            if status == k.TOO_LONG:
                raise self._too_long()
            if status not in (k.OK, k.MORE):
                raise self._no_row_to_skip_to(matches[-1], status == k.NO_ROW_TO_SKIP_TO)
            yield FoundMatches(matches, labels, work.unmatched.copy())
            position[k.FOUND] = position[k.USED] = 0
            work.unmatched[:] = False

    def _searched(self) -> int:
        """Search until there is a part, or an error, and return the status."""
        while True:
            status = k.find_matches(self._tables, self._state.progress, MATCHED_ROWS, MAX_STEPS)
            if status == k.ASK:
                self._answer()
            elif status == k.NO_ROOM:
                self._make_room()
            elif status == k.NO_ROOM_FOR_MATCH:
                self._make_room_for_match()
            else:
                return status

    def _answer(self) -> None:
        """Compute the condition of the row that is tested."""
        position, row = self._tables.work.position, self._start
        states = self._tables.work.frames[1 : position[k.DEPTH] + 2, 0].copy()
        path = row, int(position[k.AT_PARTITION]), int(position[k.MATCHES_BEFORE]) + 1, states
        try:
            holds = decided(self._ordered, path)
        except InvalidEventError:
            if self._is_decided_by_known_rows():
                raise
            position[k.ANSWER] = k.WAIT
        else:
            position[k.ANSWER] = k.HOLDS if holds else k.FAILS
        position[k.STEPS] += ASKED + len(states)

    def _is_decided_by_known_rows(self) -> bool:
        """Whether a match could be completed with known rows from the row that is tested. Otherwise, later rows decide whether
        the failure of its condition matters.
        """
        pattern, work = self._tables.pattern, self._tables.work
        position, depth = work.position, work.position[k.DEPTH]
        if position[k.PARTIAL]:  # all rows that WITHIN allows are known
            return True
        limit = min(position[k.UNTIL], position[k.FRONTIER])
        if not self._state.ended and (pattern.edges[:, 1] & k.AT_END).any():
            limit = min(limit, position[k.SIZE] - 1)  # the last known row need not be the end of the partition
        target = pattern.edges[work.frames[depth, 1], 0]
        if target == k.ACCEPT:
            return True
        return bool(work.ends[position[k.AT_ROW] + depth, target] <= limit)

    def _make_room(self) -> None:
        """Make room for longer matches."""
        work = self._tables.work
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
        self._tables = self._tables._replace(work=work._replace(frames=frames, places=places, sums=sums))

    def _make_room_for_match(self) -> None:
        work = self._tables.work
        matches, labels, position = work.matches, work.labels, work.position
        if position[k.FOUND] == len(matches):
            matches = np.concatenate([matches, np.zeros_like(matches)])
        while position[k.USED] + position[k.DEPTH] > len(labels):
            labels = np.concatenate([labels, np.zeros_like(labels)])
        self._tables = self._tables._replace(work=work._replace(matches=matches, labels=labels))

    # ------------------------------------------------------------------------------------------------ errors

    @property
    def _start(self) -> int:
        """The row from which a match is searched."""
        position = self._tables.work.position
        return int(position[k.BEGIN] + position[k.AT_ROW])

    def _too_many_steps(self) -> LimitExceededError:
        position, row = self._tables.work.position, self._start
        place, steps = int(position[k.AT_ROW]) + 1, int(position[k.STEPS])
        limits = f"limit {MAX_STEPS:,}, and {k.USUAL_STEPS:,} on average"
        where = f"The search for a match that begins at row {place:,} of the partition: {steps:,} steps ({limits})."
        key = self._shown_keys(row, order=True)
        why, hint = "because conditions depend on the match so far", ", or PREV instead of LAST and FIRST in conditions"
        if self._clause.clause.skip.to is SkipTo.NO_SKIP:
            why, hint = "because NO SKIP asks for all ways to match", ", or AFTER MATCH SKIP TO NEXT ROW"
        return LimitExceededError(
            f"the search for matches takes too many steps, {why}",
            f"{where}\nThat row: {key}" if key else where,
            f"WITHIN, quantifiers with an upper limit{hint}",
        )

    def _too_long(self) -> LimitExceededError:
        place = self._shown_keys(self._start, order=True)
        return LimitExceededError(
            f"more than {self._state.max_rows:,} rows of a partition wait for the end of a match (max_rows)",
            f"The first of them: {place}" if place else None,
            "WITHIN, or a pattern whose matches end; a larger max_rows; or on_limit='drop', to go on with the next row",
        )

    def _no_row_to_skip_to(self, match: Ints, absent: bool) -> SkipStrategyError:
        skip = self._clause.clause.skip
        name = quoted(skip.variable or "")
        problem = (
            f"it has no row of {name}" if absent else f"{name} is its first row, so the same match would follow forever"
        )
        key = self._shown_keys(int(match[k.START]))
        return SkipStrategyError(
            f"AFTER MATCH SKIP {skip.to.value} {name}: cannot go on after match {match[k.NUMBER]}, because {problem}",
            f"Partition: {key}" if key else None,
            "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW",
        )

    def _shown_keys(self, row: int, *, order: bool = False) -> str:
        """The values of PARTITION BY in a row, for errors; with *order*, also those of ORDER BY."""
        clause = self._clause
        shown = [
            (key.expression.text, n) for key, n in zip(clause.clause.partition_by, clause.partition_by, strict=True)
        ]
        if order:
            shown += [(key.expression.text, n) for key, n in zip(clause.clause.order_by, clause.order_by, strict=True)]
        return ", ".join(f"{text} = {self._ordered.keys[number][row].as_py()!r}" for text, number in shown)


# ---------------------------------------------------------------------------------------------------- one condition


def decided(ordered: OrderedRows, path: Path) -> bool:
    """Whether the last row of a path satisfies its condition."""
    return bool(mask_of(over_leaves(_condition_of(ordered.clause, path), leaves_of_path(ordered, path), 1))[0])


def leaves_of_path(ordered: OrderedRows, path: Path) -> list[pa.Array]:
    """The value of each leaf of the condition of the last row of a path."""
    first, partition, number, states = path
    matches = np.array([[first, partition, number, 0, len(states), 0]], np.int64)
    found_matches = FoundMatches(matches, states, np.zeros(0, np.bool_))
    condition = _condition_of(ordered.clause, path)
    items = MatchItems(ordered, found_matches, np.zeros(1, np.int64), np.array([len(states)]))
    leaves = items.leaves([condition], whole=True)
    return [leaves[leaf] for leaf in condition.leaves]


def _condition_of(clause: CheckedClause, path: Path) -> ResolvedExpression:
    return clause.conditions[clause.automaton.names[clause.automaton.variables[path[3][-1]]]].resolved
