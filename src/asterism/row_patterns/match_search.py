"""Runs the search for matches whose conditions depend on the match so far (:mod:`asterism.row_patterns.search_kernels`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.errors import InvalidEventError, LimitExceededError
from asterism.matching.instructions import STACK
from asterism.row_patterns.automaton import RowAutomaton
from asterism.row_patterns.match_conditions import BoundConditions

if TYPE_CHECKING:
    from asterism.row_patterns.search_kernels import PatternTables, RowTables, Workspace

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
    """What is searched, and where the search continues after a match; see :func:`asterism.row_patterns.kernels.find_matches`.

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
