"""Searches the ordered rows of a clause for matches (:mod:`asterism.row_patterns.kernels`).

DuckDB evaluates the conditions that the kernel cannot decide, for many rows at once, as in
:mod:`asterism.matching.asked_conditions`. If an answer is not known, the search of the partition stops and looks ahead: it
goes on with presumed answers, and forgets what it does. After the other partitions, all answers that are missing are computed
together.
See docs/decisions/0116.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import mask_of, offsets_of
from asterism.columns.time import END_OF_TIME
from asterism.errors import LimitExceededError, SkipStrategyError
from asterism.matching.asked_conditions import (
    ENOUGH,
    FIRST_AHEAD,
    FIRST_FAILURE,
    PRESUMED_TRUE,
    CandidateAnswers,
    next_ahead,
)
from asterism.matching.instructions import STACK
from asterism.row_patterns import kernels as k
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause.clause import SkipTo, quoted
from asterism.row_patterns.match_conditions import BoundConditions, ClauseConditions
from asterism.row_patterns.match_items import FoundMatches, leaves_of_paths, over_leaves, table_of_leaves
from asterism.row_patterns.ordered_rows import OrderedRows, Path
from asterism.row_patterns.resolution import MatchNumber, ResolvedExpression, RowValue, is_near

MAX_TABLE = 2**30  # bytes of the table of ends of a partition
MATCHED_ROWS = 5_000_000
"""How many rows of matches are made into a result at a time; with SKIP TO NEXT ROW, a row is in many matches."""
NO_LIMIT = 2**62
MAX_STEPS = 20_000_000
"""Maximum steps of the search for one match, if conditions depend on the match so far: edges tried, operations of conditions."""
ASKED = 50
"""The number of steps of a condition that is evaluated outside of the kernel, in addition to one for each row of the match."""
MAX_STOPPED = 4_096
"""The number of partitions that wait for answers before these are computed."""
MAX_LABELS = 4_000_000
"""The number of rows of paths, over all missing answers, with which no search looks ahead any further."""
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
        self._answers = _RowAnswers(ordered, bound.groups)
        self._first_pass, self._next = True, 0
        self._ahead, self._answered, self._advanced = FIRST_AHEAD, 0, [0, 0]
        self._stopped: list[_StoppedSearch] = []
        self._waiting: deque[_StoppedSearch] = deque()
        self._failure: BaseException | None = None

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
            yield self._found_so_far()

    def _searched(self) -> int:
        """Search until there is a part, or everything has been searched: MORE or OK.

        An error is that of the first partition with an error, whatever the order in which partitions are searched.
        """
        while True:
            most = MATCHED_ROWS + (int(self._tables.work.position[k.USED]) if self._waiting or self._stopped else 0)
            status = k.find_matches(self._tables, self._state.progress, most, MAX_STEPS)
            if status == k.MORE:
                if self._stopped:  # these are searched before new partitions
                    self._set_end(int(self._tables.work.position[k.AT_PARTITION]) + 2)
                return status
            if status == k.OK:
                if not self._goes_on():
                    return status
            elif status == k.ASK:
                self._ask()
            elif not self._has_made_room(status):
                self._fail(self._error_of(status))

    def _has_made_room(self, status: int) -> bool:
        if status == k.NO_ROOM:
            self._make_room()
        elif status == k.NO_ROOM_FOR_MATCH:
            self._make_room_for_match()
        return status in (k.NO_ROOM, k.NO_ROOM_FOR_MATCH)

    def _found_so_far(self) -> FoundMatches:
        """The matches that were found, except for those of partitions behind one that waits."""
        work, position, offsets = self._tables.work, self._tables.work.position, self._ordered.offsets
        matches, labels = work.matches[: position[k.FOUND]].copy(), work.labels[: position[k.USED]].copy()
        last = min((stopped.partition for stopped in (*self._waiting, *self._stopped)), default=len(offsets) - 2)
        is_ready = matches[:, k.PARTITION] <= last
        ready, rest = (_selected(matches, labels, mask) for mask in (is_ready, ~is_ready))
        position[k.FOUND], position[k.USED] = len(rest[0]), len(rest[1])
        work.matches[: len(rest[0])], work.labels[: len(rest[1])] = rest
        unmatched = work.unmatched.copy()
        unmatched[offsets[last + 1] :] = False
        work.unmatched[: offsets[last + 1]] = False
        return FoundMatches(*ready, unmatched)

    # ------------------------------------------------------------------------------------------------ partitions

    def _goes_on(self) -> bool:
        """Go to a partition that is not searched yet, or whose answers have been computed. Whether there is one."""
        offsets, position = self._ordered.offsets, self._tables.work.position
        if self._first_pass:
            self._first_pass, self._next = False, max(self._next, int(position[k.AT_PARTITION]))
        if self._waiting:
            self._resume(self._waiting.popleft())
            return True
        is_full = len(self._stopped) >= MAX_STOPPED or (self._stopped and position[k.USED] > MATCHED_ROWS)
        if self._next < len(offsets) - 1 and not is_full and self._failure is None:
            self._first_pass = True
            self._open(self._next)
            self._set_end(len(offsets))
            return True
        if self._stopped:
            self._answers.compute()
            stops, self._advanced = self._advanced, [0, 0]
            if stops[0]:
                self._ahead = next_ahead(self._ahead, stops[1] / stops[0])
            self._waiting.extend(sorted(self._stopped, key=lambda stopped: stopped.partition))
            self._stopped = []
            self._resume(self._waiting.popleft())
            return True
        if self._failure is not None:
            raise self._failure
        return False

    def _open(self, partition: int) -> None:
        """Go to a partition that is not searched yet."""
        position = self._tables.work.position
        position[k.AT_PARTITION], position[k.FILLED], position[k.PASSED] = partition, 0, 0
        position[k.DEPTH] = position[k.ANSWER] = -1

    def _set_end(self, count: int) -> None:
        """Search only partitions between the first *count* offsets."""
        rows = self._tables.rows
        self._tables = self._tables._replace(rows=rows._replace(offsets=self._ordered.offsets[:count]))

    def _fail(self, error: BaseException) -> None:
        """The current partition has an error, which is raised after the partitions before it have been searched."""
        partition = int(self._tables.work.position[k.AT_PARTITION])
        self._waiting = deque(stopped for stopped in self._waiting if stopped.partition < partition)
        self._stopped = [stopped for stopped in self._stopped if stopped.partition < partition]
        self._failure = error
        self._open(partition + 1)
        self._set_end(partition + 2)

    # ------------------------------------------------------------------------------------------------ answers

    def _ask(self) -> None:
        """Decide whether the row that is tested satisfies its condition. If that is not known yet, the partition waits."""
        code = self._answers.asked(self._tables.pattern, self._tables.work, ahead=False)
        if code >= 0:
            self._answer(code, self._is_decided_by_known_rows() if code >= FIRST_FAILURE else True)
            return
        stopped = self._stop()
        if self._answered:
            self._advanced[0] += 1
            self._advanced[1] += self._answered
        self._look_ahead(code, stopped)
        self._stopped.append(stopped)
        self._set_end(stopped.partition + 2)
        self._open(stopped.partition + 1)

    def _answer(self, code: int, is_decided: bool) -> None:
        self._answered += 1
        position = self._tables.work.position
        if code < FIRST_FAILURE:
            position[k.ANSWER] = k.HOLDS if code == 1 else k.FAILS
        elif is_decided:
            self._fail(self._answers.error(code))
            return
        else:
            position[k.ANSWER] = k.WAIT
        position[k.STEPS] += ASKED + position[k.DEPTH] + 1

    def _stop(self) -> _StoppedSearch:
        """What of the search in this partition is needed to resume it. The matches from the current start are taken away."""
        work, position = self._tables.work, self._tables.work.position
        room, found, here = int(position[k.DEPTH]) + 3, int(position[k.FOUND]), int(position[k.FOUND_HERE])
        first_label = work.matches[found - here, k.FIRST_LABEL] if here else position[k.USED]
        parts = [work.frames[:room], work.counts, work.places[:, :room], work.sums[:, :room]]
        stopped = _StoppedSearch(
            position.copy(),
            [part.copy() for part in (*parts, *_flags(work))],
            work.matches[found - here : found].copy(),
            work.labels[first_label : position[k.USED]].copy(),
            self._is_decided_by_known_rows(),
        )
        position[k.FOUND], position[k.USED] = found - here, first_label
        return stopped

    def _resume(self, stopped: _StoppedSearch) -> None:
        """Go to a partition whose answer has been computed."""
        self._set_end(stopped.partition + 2)
        self._restore(stopped)
        work, position = self._tables.work, self._tables.work.position
        frames, counts, places, sums, *_ = stopped.work
        work.frames[: len(frames)], work.counts[:] = frames, counts
        work.places[:, : places.shape[1]], work.sums[:, : sums.shape[1]] = places, sums
        while position[k.FOUND] + len(stopped.matches) > len(work.matches) or (
            position[k.USED] + len(stopped.labels) > len(work.labels)
        ):
            self._make_room_for_match(len(stopped.matches), len(stopped.labels))
            work = self._tables.work
        found, used = int(position[k.FOUND]), int(position[k.USED])
        matches, labels = stopped.matches, stopped.labels
        if len(matches):
            matches[:, k.FIRST_LABEL] += used - matches[0, k.FIRST_LABEL]
        work.matches[found : found + len(matches)], work.labels[used : used + len(labels)] = matches, labels
        position[k.FOUND], position[k.USED] = found + len(matches), used + len(labels)
        self._answered = 0
        code = self._answers.asked(self._tables.pattern, work, ahead=False)
        self._answer(code, stopped.is_decided)

    def _restore(self, stopped: _StoppedSearch) -> None:
        """Restore the position in a partition, except for what belongs to all partitions."""
        work, position = self._tables.work, self._tables.work.position
        kept = position[_OF_ALL_PARTITIONS].copy()
        position[:] = stopped.position
        position[_OF_ALL_PARTITIONS] = kept
        for flags, before in zip(_flags(work), stopped.work[4:], strict=True):
            flags[:] = before

    def _look_ahead(self, presumed: int, stopped: _StoppedSearch) -> None:
        """Ask for the answers that the search needs if the missing ones are as presumed. What it does is forgotten."""
        position, partition = self._tables.work.position, stopped.partition
        progress, begin = self._state.progress, int(position[k.BEGIN] + position[k.AT_ROW])
        of_all, row = position[_OF_ALL_PARTITIONS].copy(), progress[partition].copy()
        conditions = self._tables.conditions
        forgetful = conditions._replace(remembers=np.zeros_like(conditions.remembers))
        self._tables = self._tables._replace(conditions=forgetful)
        self._set_end(partition + 2)
        asked = 0
        while asked < self._ahead and presumed != ENOUGH and presumed < FIRST_FAILURE:
            asked += 1
            position[k.ANSWER] = k.HOLDS if presumed in (1, PRESUMED_TRUE) else k.FAILS
            position[k.STEPS] += ASKED + position[k.DEPTH] + 1
            if not self._asks_again():
                break
            presumed = self._answers.asked(self._tables.pattern, self._tables.work, ahead=True)
        self._tables = self._tables._replace(conditions=conditions)
        self._restore(stopped)
        position[_OF_ALL_PARTITIONS] = of_all
        progress[partition] = row
        self._tables.work.unmatched[begin : self._ordered.offsets[partition + 1]] = False

    def _asks_again(self) -> bool:
        """Whether another answer is needed in this partition."""
        while True:
            status = k.find_matches(self._tables, self._state.progress, NO_LIMIT, MAX_STEPS)
            try:
                if not self._has_made_room(status):
                    return bool(status == k.ASK)
            except LimitExceededError:
                return False

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

    # ------------------------------------------------------------------------------------------------ room

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

    def _make_room_for_match(self, count: int = 1, rows: int | None = None) -> None:
        work = self._tables.work
        matches, labels, position = work.matches, work.labels, work.position
        while position[k.FOUND] + count > len(matches):
            matches = np.concatenate([matches, np.zeros_like(matches)])
        while position[k.USED] + (position[k.DEPTH] if rows is None else rows) > len(labels):
            labels = np.concatenate([labels, np.zeros_like(labels)])
        self._tables = self._tables._replace(work=work._replace(matches=matches, labels=labels))

    # ------------------------------------------------------------------------------------------------ errors

    def _error_of(self, status: int) -> LimitExceededError | SkipStrategyError:
        if status == k.TOO_MANY_STEPS:
            return self._too_many_steps()
        if status == k.TOO_LONG:
            return self._too_long()
        work = self._tables.work
        return self._no_row_to_skip_to(work.matches[work.position[k.FOUND] - 1], status == k.NO_ROW_TO_SKIP_TO)

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
            "WITHIN, or a pattern whose matches end; a larger max_rows; or on_limit='drop', to continue with the next row",
        )

    def _no_row_to_skip_to(self, match: Ints, absent: bool) -> SkipStrategyError:
        skip = self._clause.clause.skip
        name = quoted(skip.variable or "")
        problem = (
            f"it has no row of {name}" if absent else f"{name} is its first row, so the same match would follow forever"
        )
        key = self._shown_keys(int(match[k.START]))
        return SkipStrategyError(
            f"AFTER MATCH SKIP {skip.to.value} {name}: cannot continue after match {match[k.NUMBER]}, because {problem}",
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


# ---------------------------------------------------------------------------------------------------- conditions of paths


def decided(ordered: OrderedRows, path: Path) -> bool:
    """Whether the last row of a path satisfies its condition."""
    return bool(mask_of(over_leaves(_condition_of(ordered.clause, path), leaves_of_path(ordered, path), 1))[0])


def leaves_of_path(ordered: OrderedRows, path: Path) -> list[pa.Array]:
    """The value of each leaf of the condition of the last row of a path."""
    return leaves_of_paths(ordered, _condition_of(ordered.clause, path), [path])


def _condition_of(clause: CheckedClause, path: Path) -> ResolvedExpression:
    return clause.conditions[clause.automaton.names[clause.automaton.variables[path[3][-1]]]].resolved


Candidate = tuple[int | bytes, ...]
"""For each leaf of a condition: the row that it reads (NOWHERE: none), the number of the match, or a hash of the path."""


class _RowAnswers(CandidateAnswers[Candidate]):
    """The answers of conditions for rows, by the number of the variable.

    :param groups: see :class:`asterism.row_patterns.match_conditions.BoundConditions`
    """

    def __init__(self, ordered: OrderedRows, groups: Mapping[str | None, int]) -> None:
        clause = ordered.clause
        super().__init__(len(clause.automaton.names))
        self._ordered, self._groups = ordered, groups
        self._conditions = [
            clause.conditions[name].resolved if name in clause.conditions else None for name in clause.automaton.names
        ]
        self._reads = [self._reads_of(clause, name) for name in clause.automaton.names]
        self._paths: dict[tuple[int, Candidate], Path] = {}
        self._labels = 0

    def _reads_of(self, clause: CheckedClause, name: str) -> list[tuple[int, int, bool, int]]:
        """For each leaf of a condition: its group, how many rows are skipped, whether from the last one, the steps from there."""
        if name not in clause.conditions:
            return []
        condition = clause.conditions[name]
        reads = []
        for leaf in condition.resolved.leaves:
            if is_near(leaf, condition.names):
                read = _NEAR, 0, True, leaf.place.steps
            elif isinstance(leaf, RowValue) and not leaf.labelled and leaf.place.variable in self._groups:
                place = leaf.place
                read = self._groups[place.variable], place.skip, place.last, place.steps
            else:
                read = _MATCH_NUMBER if isinstance(leaf, MatchNumber) else _PATH, 0, False, 0
            reads.append(read)
        return reads

    def asked(self, pattern: k.PatternTables, work: k.Workspace, *, ahead: bool) -> int:
        """The answer for the row that is tested; see :meth:`looked_up`."""
        position, frames = work.position, work.frames
        start, depth = int(position[k.BEGIN] + position[k.AT_ROW]), int(position[k.DEPTH])
        number = int(pattern.variables[frames[depth + 1, 0]])
        candidate: list[int | bytes] = []
        for group, skip, last, steps in self._reads[number]:
            if group == _NEAR:
                candidate.append(start + depth + steps)
            elif group >= 0:
                count = int(work.counts[group])
                at = count - 1 - skip if last else skip
                candidate.append(start + int(work.places[group, at]) + steps if skip < count else k.NOWHERE)
            elif group == _MATCH_NUMBER:
                candidate.append(int(position[k.MATCHES_BEFORE]))
            else:
                candidate.append(_hash_of(start, int(position[k.MATCHES_BEFORE]), frames[1 : depth + 2, 0]))
        key = tuple(candidate)
        code = self.looked_up(number, key, ahead=ahead)
        if code < 0 and (number, key) not in self._paths:
            path = start, int(position[k.AT_PARTITION]), int(position[k.MATCHES_BEFORE]) + 1
            self._paths[number, key] = *path, frames[1 : depth + 2, 0].copy()
            self._labels += depth + 1
        return code

    def error(self, code: int) -> BaseException:
        return self._errors[code - FIRST_FAILURE]

    def compute(self) -> None:
        super().compute()
        self._paths.clear()
        self._labels = 0

    def _is_enough(self) -> bool:
        return super()._is_enough() or self._labels >= MAX_LABELS

    def _table(self, number: int, candidates: Sequence[Candidate]) -> pa.Table:
        resolved = self._condition(number)
        paths = [self._paths[number, candidate] for candidate in candidates]
        return table_of_leaves(resolved, leaves_of_paths(self._ordered, resolved, paths), len(paths))

    def _values(self, number: int, table: pa.Table) -> pa.ChunkedArray:
        return self._condition(number).body.evaluate(table)[0]

    def _condition(self, number: int) -> ResolvedExpression:
        resolved = self._conditions[number]
        assert resolved is not None
        return resolved


_NEAR, _MATCH_NUMBER, _PATH = -1, -2, -3
"""Not a group: the row that is tested, the number of the match, the whole path."""


def _hash_of(start: int, number: int, states: Ints) -> bytes:
    return hashlib.blake2b(states.tobytes(), digest_size=16, key=b"%d %d" % (start, number)).digest()


@dataclass(slots=True)
class _StoppedSearch:
    """The search in a partition that waits for an answer.

    :ivar work: what of the workspace it reads again: frames, counts, places, sums; then arrays of fixed sizes
    :ivar matches: those found from the current start, with their labels
    :ivar is_decided: see :meth:`MatchSearch._is_decided_by_known_rows`
    """

    position: Ints
    work: list[Any]
    matches: Ints
    labels: Ints
    is_decided: bool

    @property
    def partition(self) -> int:
        return int(self.position[k.AT_PARTITION])


_OF_ALL_PARTITIONS = [k.FOUND, k.USED, k.FILLED, k.BEYOND, k.OPEN_STEPS]


def _flags(work: k.Workspace) -> list[Any]:
    return [work.late, work.late_later, work.passed, work.leads_on, work.impossible]


def _selected(matches: Ints, labels: Ints, mask: Mask) -> tuple[Ints, Ints]:
    """Some of the matches, with their labels."""
    labels, matches = labels[np.repeat(mask, matches[:, k.ROWS])], matches[mask]
    matches[:, k.FIRST_LABEL] = offsets_of(matches[:, k.ROWS])[:-1]
    return matches, labels
