"""A join of many streams: which rows join, how long a row is needed, and the search for the results of a call.

The inputs are numbered in the order in which SQL joins them: ``a JOIN b ON ... LEFT JOIN c ON ...``. A result becomes known at
one time: the time of its latest row, or, if it has no row of an input, the time after which no such row can arrive. A call finds
the results that have become known since the previous call. So results are not stored, and rows need no marks.

Source: Flink's multi-way join (FLIP-516), after FLIP-92: an operator with many inputs that stores no intermediate results.
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
"""The row of an input of which no row has joined."""
_FAR = 2**61


@dataclass(frozen=True, slots=True)
class Bound:
    """A row of the input *later* joins a row of the input *earlier* if its time is *lower* to *upper* microseconds after it."""

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
        """The interval of rows of the input *number*, relative to a row of the other input."""
        return (self.lower, self.upper) if number == self.later else (-self.upper, -self.lower)


@dataclass(frozen=True)
class MultiJoin:
    """
    :ivar left: for each input, whether a result may have no row of it
    :ivar bounds: for each input after the first, at least one bound with an earlier input
    """

    left: tuple[bool, ...]
    bounds: tuple[Bound, ...]

    @property
    def count(self) -> int:
        return len(self.left)

    @cached_property
    def of_input(self) -> list[list[Bound]]:
        """For each input, the bounds with earlier inputs."""
        return [[bound for bound in self.bounds if bound.later == number] for number in range(self.count)]

    def present_with(self, *numbers: int) -> frozenset[int]:
        """The inputs that have a row in each result with rows of the inputs *numbers*. A missing row is in no interval."""
        present: set[int] = set()
        stack = [*numbers, *(number for number, left in enumerate(self.left) if not left)]
        while stack:
            number = stack.pop()
            if number not in present:
                present.add(number)
                stack += [bound.earlier for bound in self.of_input[number]]
        return frozenset(present)

    @cached_property
    def _latest(self) -> list[list[int]]:
        """``[i][k]``: how much later than a row of input i it is known which row of input k joins it, or that there is none."""
        return [[self._latest_of(number, other) for other in range(self.count)] for number in range(self.count)]

    def _latest_of(self, number: int, other: int) -> int:
        if not self.left[other]:
            return int(self._distances(self.present_with(number))[number, other])
        refs = [bound.earlier for bound in self.of_input[other]]
        after = self._distances(self.present_with(number, *refs))
        return int(min(after[number, bound.earlier] + bound.upper for bound in self.of_input[other]))

    def _distances(self, present: frozenset[int]) -> Ints:
        """``[i, k]``: how much later than a row of input i a row of input k can be, if rows of the inputs *present* join."""
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
        """For each input, how long after its time a row can be in a result, or can be the reason why there is no result."""
        others = range(self.count)
        return [max(0, *(self._latest[i][k] for k in others if k != i or self.left[i])) for i in others]

    @property
    def outlives(self) -> int:
        """The maximum difference between the horizon and the time of a row that is emitted, in microseconds."""
        return max(0, *(self._latest[i][k] for i in range(self.count) for k in range(self.count) if i != k))


@dataclass
class MultiJoinSearch:
    """The results of a call.

    :param sides: the rows of each input
    :param conditions: for each input with a condition, the inputs that the condition reads
    :param passed: a mask of the rows, as in :meth:`results`, for which the condition of an input is TRUE
    :param before: the time of the previous call, which found all results up to it
    :param horizon: all rows up to this time have arrived
    """

    join: MultiJoin
    sides: Sequence[JoinRows]
    conditions: Mapping[int, frozenset[int]]
    passed: Callable[[int, Ints], Mask]
    before: int
    horizon: int
    at_once: int

    def __post_init__(self) -> None:
        self.at_once = max(self.at_once // self.join.count, 1)
        self._sorted = [SortedRows(side.join_keys, side.times) for side in self.sides]

    # ------------------------------------------------------------------ results

    def results(self) -> Iterator[Ints]:
        """The results in parts: for each input (row of the array), the row of each result (column), or NO_ROW."""
        self._active = [self._is_active(number) for number in range(self.join.count)]
        for seed, active in enumerate(self._active):
            # The search in the sorted rows is faster in their order.
            order, joins = self._sorted[seed].order, self.sides[seed].joins
            rows = np.concatenate([order[active[order]], np.flatnonzero(active & ~joins)])
            must = self.join.present_with(seed, 0)
            for at in range(0, len(rows), self.at_once):
                begun = rows[at : at + self.at_once]
                result_rows = np.full((self.join.count, len(begun)), NO_ROW, np.int64)
                result_rows[seed] = begun
                of_alone = self._due((), (seed,), must)[1]
                yield from self._extended(
                    *self._where_passed(of_alone, result_rows, self.sides[seed].join_keys[begun]), (seed,), must
                )

    def _is_active(self, number: int) -> Mask:
        """A mask of the rows that can determine when a result becomes known: at their time, or at the end of an interval after
        it.
        """
        times = self.sides[number].times
        is_active: Mask = times > self.before
        for bound in self.join.bounds:
            if bound.earlier == number and self.join.left[bound.later]:
                until = times + bound.upper
                is_active = is_active | ((until > self.before) & (until <= self.horizon))
        return is_active

    def _extended(self, rows: Ints, keys: Ints, visited: tuple[int, ...], must: frozenset[int]) -> Iterator[Ints]:
        """The results with *rows* of the inputs *visited*, of which the first is the seed. Results with an active row of an
        earlier input than the seed are left out, because that input as seed finds them.

        :param must: the inputs that have a row in each result with a row of the seed
        """
        if not len(keys):
            return
        if len(visited) == self.join.count:
            times = self._times(rows, keys, visited)
            yield rows[:, (times > self.before) & (times <= self.horizon)]
            return
        number, begin, end, first, last = self._next(rows, keys, visited, must)
        after, outer = (*visited, number), number not in must
        on_match, on_result = self._due(visited, after, must)
        matched = np.zeros(len(keys), np.bool_) if on_match else end > begin
        if len(after) == self.join.count and not on_match:
            # If all other rows were known in the previous call, only new rows of the last input make a new result.
            old = np.flatnonzero(self._times(rows, keys, visited) <= self.before)
            since = np.maximum(first[old], self.before + 1)
            begin[old], end[old] = self._candidates(number, keys[old], since, last[old])
        for probes, targets in Candidates(np.arange(len(keys)), begin, end, self._sorted[number].order).pairs(
            self.at_once
        ):
            extended = rows[:, probes]
            extended[number] = targets
            for condition in on_match:
                chosen = self.passed(condition, extended)
                extended, probes = extended[:, chosen], probes[chosen]
                matched[probes] = True
            extended, extended_keys = self._where_passed(on_result, extended, keys[probes])
            if number < visited[0]:
                other = ~self._active[number][extended[number]]
                extended, extended_keys = extended[:, other], extended_keys[other]
            yield from self._extended(extended, extended_keys, after, must)
        if outer:
            alone = ~matched & (self._none_after(number, rows, keys) <= self.horizon)
            extended, extended_keys = self._where_passed(on_result, rows[:, alone], keys[alone])
            yield from self._extended(extended, extended_keys, after, must)

    def _next(
        self, rows: Ints, keys: Ints, visited: tuple[int, ...], must: frozenset[int]
    ) -> tuple[int, Ints, Ints, Ints, Ints]:
        """(the input to visit next, begin and end of its candidates, first and last time of its candidates). Inputs whose rows
        must be in the result come first, the one with the fewest candidates before the others; then all other inputs, in order.
        """
        linked = {end for bound in self.join.bounds for end in (bound.earlier, bound.later)
                  if {bound.earlier, bound.later} & set(visited)}  # fmt: skip
        chosen = sorted(must & linked - set(visited)) or [min(set(range(self.join.count)) - set(visited))]
        choices = []
        for number in chosen:
            first, last = self._interval(number, rows, visited)
            choices.append((number, *self._candidates(number, keys, first, last), first, last))
        return min(choices, key=lambda each: int((each[2] - each[1]).sum()))

    def _interval(self, number: int, rows: Ints, visited: Sequence[int]) -> tuple[Ints, Ints]:
        """The first and the last time of rows of an input that join *rows*. If the first is after the last, no row joins them."""
        first = np.full(rows.shape[1], BEFORE_TIME, np.int64)
        last = np.full(rows.shape[1], END_OF_TIME, np.int64)
        for bound in self.join.bounds:
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
        times = self.sides[number].times
        return times[rows[number]] if len(times) else np.zeros(rows.shape[1], np.int64)

    def _none_after(self, number: int, rows: Ints, keys: Ints) -> Ints:
        """The time after which no row of an input that joins *rows* can arrive."""
        first, last = self._interval(number, rows, [bound.earlier for bound in self.join.of_input[number]])
        return np.where((first > last) | (keys == NO_KEY), BEFORE_TIME, last)

    def _times(self, rows: Ints, keys: Ints, visited: Sequence[int]) -> Ints:
        """The times at which *rows* became known."""
        known_at = np.full(rows.shape[1], BEFORE_TIME, np.int64)
        for number in visited:
            none = rows[number] == NO_ROW
            times = self._times_of(number, rows)
            if none.any():
                times = np.where(none, self._none_after(number, rows, keys), times)
            known_at = np.maximum(known_at, times)
        return known_at

    def _due(self, visited: Sequence[int], after: Sequence[int], must: frozenset[int]) -> tuple[list[int], list[int]]:
        """The conditions that can be evaluated once an input has been visited: (conditions that decide which of its rows join,
        conditions that the result must satisfy).
        """
        new = [
            number
            for number, reads in self.conditions.items()
            if reads | {number} <= set(after) and not reads | {number} <= set(visited)
        ]
        return [number for number in new if number not in must], [number for number in new if number in must]

    def _where_passed(self, conditions: Sequence[int], rows: Ints, keys: Ints) -> tuple[Ints, Ints]:
        for condition in conditions:
            if len(keys):
                chosen = self.passed(condition, rows)
                rows, keys = rows[:, chosen], keys[chosen]
        return rows, keys

    # ------------------------------------------------------------------ state

    def kept(self) -> tuple[list[Mask], list[Ints], list[Ints]]:
        """For each input: a mask of the rows that can be needed later; the times at which they must be processed again; and the
        times from which they are no longer needed.
        """
        gone = [side.times + after for side, after in zip(self.sides, self.join.kept_for, strict=True)]
        keep = [side.joins & (times > self.horizon) for side, times in zip(self.sides, gone, strict=True)]
        due = [np.full(len(times), END_OF_TIME, np.int64) for times in gone]
        for bound in self.join.bounds:
            for number, other in ((bound.later, bound.earlier), (bound.earlier, bound.later)):
                lower, upper = bound.window(other)
                order, side = self._sorted[number].order, self.sides[number]
                rows = order[keep[number][order]]
                over = side.times[rows] + upper <= self.horizon
                needed = other == bound.earlier or not self.join.left[other]
                rows = rows[over if needed else ~over]
                times = side.times[rows]
                begin, end = self._candidates(other, side.keys[rows], times + lower, times + upper)
                if needed:
                    # A row without a row of the other input is in no result.
                    is_kept = np.concatenate([[0], np.cumsum(keep[other][self._sorted[other].order])])
                    keep[number][rows[is_kept[end] == is_kept[begin]]] = False
                    continue
                if len(self.join.of_input[other]) == 1 and other not in self.conditions:
                    rows = rows[end == begin]  # the others have a row
                due[number][rows] = np.minimum(due[number][rows], side.times[rows] + upper)
        return keep, due, gone

    def largest_key(self, keep: Sequence[Mask]) -> tuple[list[int | None], list[int]]:
        """For the key with the most kept rows: (a row of each input, or None; the number of rows of each input)."""
        keys = [side.keys[mask] for side, mask in zip(self.sides, keep, strict=True)]
        counts = np.bincount(np.concatenate(keys))
        if not len(counts):
            return [None] * len(keys), [0] * len(keys)
        largest = int(counts.argmax())
        rows = [np.flatnonzero(mask & (side.keys == largest)) for side, mask in zip(self.sides, keep, strict=True)]
        return [int(of_key[0]) if len(of_key) else None for of_key in rows], [len(of_key) for of_key in rows]
