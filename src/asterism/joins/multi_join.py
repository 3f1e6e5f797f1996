"""A join of many streams: which rows join, how long a row is needed, and the search for the results of a call.

The inputs are numbered in the order in which SQL joins them: ``a JOIN b ON ... LEFT JOIN c ON ...``. Each result has one time, at
which it is known: that of its latest row, or the time after which no row of an input can come that it lacks. A call finds the
results whose time lies between the time of the call before and its own. So no result is stored, and no row is marked.

Source: Flink's multi-way join (FLIP-516), which has the idea of FLIP-92: an operator with many inputs that stores no intermediate
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.joins.kinds import IntervalJoin
from asterism.joins.matching import NO_KEY, Candidates, JoinRows, SortedRows

NO_ROW = -1
"""Replaces the row of an input of which none has joined."""
_FAR = 2**61


@dataclass(frozen=True, slots=True)
class Bound:
    """A row of the input *later* joins a row of the input *earlier* if it is from *lower* to *upper* microseconds after it."""

    earlier: int
    later: int
    lower: int
    upper: int

    @classmethod
    def of(cls, first: int, second: int, interval: IntervalJoin) -> Bound:
        if first < second:
            return cls(first, second, interval.lower, interval.upper)
        return cls(second, first, -interval.upper, -interval.lower)

    def window(self, number: int) -> tuple[int, int]:
        """The interval in which rows of the input *number* lie, around a row of the other one."""
        return (self.lower, self.upper) if number == self.later else (-self.upper, -self.lower)


@dataclass(frozen=True)
class MultiJoin:
    """
    :ivar left: for each input whether rows without a row of this input are in the result
    :ivar bounds: at least one for each input after the first, with an input before it
    """

    left: tuple[bool, ...]
    bounds: tuple[Bound, ...]

    @property
    def count(self) -> int:
        return len(self.left)

    @cached_property
    def of_input(self) -> list[list[Bound]]:
        """For each input the bounds that its join has."""
        return [[bound for bound in self.bounds if bound.later == number] for number in range(self.count)]

    def present_with(self, *numbers: int) -> frozenset[int]:
        """The inputs that have a row in each result with rows of the inputs *numbers*: a time of no row is in no interval."""
        found: set[int] = set()
        todo = [*numbers, *(number for number, left in enumerate(self.left) if not left)]
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo += [bound.earlier for bound in self.of_input[number]]
        return frozenset(found)

    @cached_property
    def _latest(self) -> list[list[int]]:
        """For the inputs i and k: how much later than a row of i it is known which row of k is joined, or that there is none."""
        return [[self._latest_of(number, other) for other in range(self.count)] for number in range(self.count)]

    def _latest_of(self, number: int, other: int) -> int:
        if not self.left[other]:
            return int(self._distances(self.present_with(number))[number, other])
        refs = [bound.earlier for bound in self.of_input[other]]
        after = self._distances(self.present_with(number, *refs))
        return int(min(after[number, bound.earlier] + bound.upper for bound in self.of_input[other]))

    def _distances(self, present: frozenset[int]) -> Ints:
        """How much later than a row of one input a row of another one can be, if rows of the inputs *present* are joined."""
        after = np.full((self.count, self.count), _FAR, np.int64)
        np.fill_diagonal(after, 0)
        for bound in self.bounds:
            if bound.later in present:
                after[bound.earlier, bound.later] = bound.upper
                after[bound.later, bound.earlier] = -bound.lower
        for by in range(self.count):
            after = np.minimum(after, np.minimum(after[:, by : by + 1] + after[by : by + 1, :], _FAR))
        return after

    @cached_property
    def kept_for(self) -> list[int]:
        """For each input how long after its time a row can be in a result, or can be the reason that there is none."""
        others = range(self.count)
        return [max(0, *(self._latest[i][k] for k in others if k != i or self.left[i])) for i in others]

    @property
    def outlives(self) -> int:
        """How far the time of a row may lie behind the horizon when it is emitted, in microseconds."""
        return max(0, *(self._latest[i][k] for i in range(self.count) for k in range(self.count) if i != k))


class MultiJoinSearch:
    """The results of a call.

    :param sides: the rows of each input
    :param conditions: for some inputs the inputs that the condition of its join reads
    :param passed: whether the condition of an input is TRUE, for rows as in :meth:`results`
    :param before: everything until this time has been found
    :param horizon: all rows until this time have come
    """

    def __init__(
        self,
        join: MultiJoin,
        sides: Sequence[JoinRows],
        conditions: Mapping[int, frozenset[int]],
        passed: Callable[[int, Ints], Mask],
        before: int,
        horizon: int,
        at_once: int,
    ) -> None:
        self._join, self._sides, self._conditions, self._passed = join, sides, conditions, passed
        self._before, self._horizon = before, horizon
        self._at_once = max(at_once // join.count, 1)
        self._sorted = [SortedRows(side.join_keys, side.times) for side in sides]

    # ------------------------------------------------------------------ results

    def results(self) -> Iterator[Ints]:
        """The results, some at a time: for each of them the rows of all inputs, or NO_ROW."""
        self._active = [self._is_active(number) for number in range(self._join.count)]
        for seed, active in enumerate(self._active):
            # Neighbours are found faster one after the other.
            order, joins = self._sorted[seed].order, self._sides[seed].joins
            rows = np.concatenate([order[active[order]], np.flatnonzero(active & ~joins)])
            must = self._join.present_with(seed, 0)
            for at in range(0, len(rows), self._at_once):
                begun = rows[at : at + self._at_once]
                found = np.full((self._join.count, len(begun)), NO_ROW, np.int64)
                found[seed] = begun
                of_alone = self._due((), (seed,), must)[1]
                yield from self._extended(
                    *self._where_passed(of_alone, found, self._sides[seed].join_keys[begun]), (seed,), must
                )

    def _is_active(self, number: int) -> Mask:
        """The rows to which a result can owe its time: it is their own, or the end of an interval after it."""
        times = self._sides[number].times
        found: Mask = times > self._before
        for bound in self._join.bounds:
            if bound.earlier == number and self._join.left[bound.later]:
                until = times + bound.upper
                found = found | ((until > self._before) & (until <= self._horizon))
        return found

    def _extended(self, rows: Ints, keys: Ints, visited: tuple[int, ...], must: frozenset[int]) -> Iterator[Ints]:
        """The results with *rows* of the inputs *visited*, of which the first is the seed. Those that have an active row of an
        input before the seed are found from that one.

        :param must: the inputs that have a row in each result with a row of the seed
        """
        if not len(keys):
            return
        if len(visited) == self._join.count:
            times = self._times(rows, keys, visited)
            yield rows[:, (times > self._before) & (times <= self._horizon)]
            return
        number, begin, end, first, last = self._next(rows, keys, visited, must)
        after, outer = (*visited, number), number not in must
        on_match, on_result = self._due(visited, after, must)
        matched = np.zeros(len(keys), np.bool_) if on_match else end > begin
        if len(after) == self._join.count and not on_match:
            # Where all other rows were known before, only new rows of the last input make a result.
            old = np.flatnonzero(self._times(rows, keys, visited) <= self._before)
            since = np.maximum(first[old], self._before + 1)
            begin[old], end[old] = self._candidates(number, keys[old], since, last[old])
        for probes, targets in Candidates(np.arange(len(keys)), begin, end, self._sorted[number].order).pairs(
            self._at_once
        ):
            found = rows[:, probes]
            found[number] = targets
            for condition in on_match:
                chosen = self._passed(condition, found)
                found, probes = found[:, chosen], probes[chosen]
                matched[probes] = True
            found, of_found = self._where_passed(on_result, found, keys[probes])
            if number < visited[0]:
                other = ~self._active[number][found[number]]
                found, of_found = found[:, other], of_found[other]
            yield from self._extended(found, of_found, after, must)
        if outer:
            alone = ~matched & (self._none_after(number, rows, keys) <= self._horizon)
            found, of_found = self._where_passed(on_result, rows[:, alone], keys[alone])
            yield from self._extended(found, of_found, after, must)

    def _next(
        self, rows: Ints, keys: Ints, visited: tuple[int, ...], must: frozenset[int]
    ) -> tuple[int, Ints, Ints, Ints, Ints]:
        """The input to visit next: one whose rows must be in the result, the one with the fewest candidates; then the others, in
        order. With begin and end of its candidates, and the interval that these lie in.
        """
        linked = {end for bound in self._join.bounds for end in (bound.earlier, bound.later)
                  if {bound.earlier, bound.later} & set(visited)}  # fmt: skip
        chosen = sorted(must & linked - set(visited)) or [min(set(range(self._join.count)) - set(visited))]
        found = []
        for number in chosen:
            first, last = self._interval(number, rows, visited)
            found.append((number, *self._candidates(number, keys, first, last), first, last))
        return min(found, key=lambda each: int((each[2] - each[1]).sum()))

    def _interval(self, number: int, rows: Ints, visited: Sequence[int]) -> tuple[Ints, Ints]:
        """The first and the last time of rows of an input that join *rows*. If the first is after the last, there are none."""
        first = np.full(rows.shape[1], BEFORE_TIME, np.int64)
        last = np.full(rows.shape[1], END_OF_TIME, np.int64)
        for bound in self._join.bounds:
            other = bound.earlier if bound.later == number else bound.later
            if number in (bound.earlier, bound.later) and other in visited:
                lower, upper = bound.window(number)
                times = self._times_of(other, rows)
                none = rows[other] == NO_ROW
                first = np.maximum(first, np.where(none, END_OF_TIME, times + lower))
                last = np.minimum(last, np.where(none, BEFORE_TIME, times + upper))
        return first, last

    def _candidates(self, number: int, keys: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        begin, end = self._sorted[number].ranges(keys, first, last)
        return begin, np.maximum(begin, end)

    def _times_of(self, number: int, rows: Ints) -> Ints:
        times = self._sides[number].times
        return times[rows[number]] if len(times) else np.zeros(rows.shape[1], np.int64)

    def _none_after(self, number: int, rows: Ints, keys: Ints) -> Ints:
        """The time after which no row of an input can come that joins *rows*."""
        first, last = self._interval(number, rows, [bound.earlier for bound in self._join.of_input[number]])
        return np.where((first > last) | (keys == NO_KEY), BEFORE_TIME, last)

    def _times(self, rows: Ints, keys: Ints, visited: Sequence[int]) -> Ints:
        """The times at which *rows* were known."""
        found = np.full(rows.shape[1], BEFORE_TIME, np.int64)
        for number in visited:
            none = rows[number] == NO_ROW
            times = self._times_of(number, rows)
            if none.any():
                times = np.where(none, self._none_after(number, rows, keys), times)
            found = np.maximum(found, times)
        return found

    def _due(self, visited: Sequence[int], after: Sequence[int], must: frozenset[int]) -> tuple[list[int], list[int]]:
        """The conditions that can be evaluated when an input is visited: that of this input, if it may have no row; and those
        that the result must satisfy.
        """
        new = [
            number
            for number, reads in self._conditions.items()
            if reads | {number} <= set(after) and not reads | {number} <= set(visited)
        ]
        return [number for number in new if number not in must], [number for number in new if number in must]

    def _where_passed(self, conditions: Sequence[int], rows: Ints, keys: Ints) -> tuple[Ints, Ints]:
        for condition in conditions:
            if len(keys):
                chosen = self._passed(condition, rows)
                rows, keys = rows[:, chosen], keys[chosen]
        return rows, keys

    # ------------------------------------------------------------------ state

    def kept(self) -> tuple[list[Mask], list[Ints], list[Ints]]:
        """For each input the rows that can be needed later; the times at which they must be processed again; and the times from
        which they are not needed any more.
        """
        gone = [side.times + after for side, after in zip(self._sides, self._join.kept_for, strict=True)]
        keep = [side.joins & (times > self._horizon) for side, times in zip(self._sides, gone, strict=True)]
        due = [np.full(len(times), END_OF_TIME, np.int64) for times in gone]
        for bound in self._join.bounds:
            for number, other in ((bound.later, bound.earlier), (bound.earlier, bound.later)):
                lower, upper = bound.window(other)
                order, side = self._sorted[number].order, self._sides[number]
                rows = order[keep[number][order]]
                over = side.times[rows] + upper <= self._horizon
                needed = other == bound.earlier or not self._join.left[other]
                rows = rows[over if needed else ~over]
                times = side.times[rows]
                begin, end = self._candidates(other, side.keys[rows], times + lower, times + upper)
                if needed:
                    # Without a row of the other input there is no result with this one.
                    is_kept = np.concatenate([[0], np.cumsum(keep[other][self._sorted[other].order])])
                    keep[number][rows[is_kept[end] == is_kept[begin]]] = False
                    continue
                if len(self._join.of_input[other]) == 1 and other not in self._conditions:
                    rows = rows[end == begin]  # the others have a row
                due[number][rows] = np.minimum(due[number][rows], side.times[rows] + upper)
        return keep, due, gone

    def largest_key(self, keep: Sequence[Mask]) -> tuple[list[int | None], list[int]]:
        """Of the key with most rows that are kept: a row of each input, if it has one, and their numbers."""
        keys = [side.keys[mask] for side, mask in zip(self._sides, keep, strict=True)]
        counts = np.bincount(np.concatenate(keys))
        if not len(counts):
            return [None] * len(keys), [0] * len(keys)
        largest = int(counts.argmax())
        rows = [np.flatnonzero(mask & (side.keys == largest)) for side, mask in zip(self._sides, keep, strict=True)]
        return [int(of_key[0]) if len(of_key) else None for of_key in rows], [len(of_key) for of_key in rows]
