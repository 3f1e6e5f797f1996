"""Finds the rows of one side whose time lies in a range, by key: sort, then binary search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from asterism.columns.arrays import Ints, Mask

NO_KEY = -1
"""The number of a key with a NULL, which equals no key."""


@dataclass(frozen=True, slots=True)
class JoinRows:
    """The rows of one side in a call.

    :ivar keys: the numbers of their keys
    :ivar joins: whether the key has no NULL
    :ivar new: whether the row became ready in this call; all other rows are from the state
    :ivar seen: the operator's time when the row was last written, if the join needs it
    """

    times: Ints
    keys: Ints
    joins: Mask
    new: Mask
    seen: Ints

    @property
    def join_keys(self) -> Ints:
        return np.where(self.joins, self.keys, NO_KEY)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of each of the *probes*: the targets ``order[begin:end]`` of the right side."""

    probes: Ints
    begin: Ints
    end: Ints
    order: Ints

    def pairs(self, at_once: int) -> Iterator[tuple[Ints, Ints]]:
        """(probes, targets) of pairs, at most *at_once* in each part, even if a probe has more candidates."""
        counts = self.end - self.begin
        until = np.cumsum(counts)
        for first in range(0, int(until[-1]) if len(until) else 0, at_once):
            numbers = np.arange(first, min(first + at_once, int(until[-1])))
            at = np.searchsorted(until, numbers, side="right")
            rows = self.begin[at] + numbers - (until[at] - counts[at])
            yield self.probes[at], self.order[rows]


class SortedRows:
    """The rows of one side, sorted by key and time; rows with equal times remain in order. Rows without a key are left out.

    :ivar order: the rows, sorted
    """

    def __init__(self, keys: Ints, times: Ints) -> None:
        known = np.flatnonzero(keys != NO_KEY)
        keys, times = keys[known], times[known]
        # A single number for key and time. If they do not fit into 64 bits, times are replaced by their ranks.
        self._first = int(times.min()) - 1 if len(times) else 0
        self._width = int(times.max()) - self._first + 2 if len(times) else 1
        self._distinct: Ints | None = None
        if self._width * (int(keys.max(initial=0)) + 1) >= 2**62:
            self._distinct = np.unique(times)
            self._width = len(self._distinct) + 1
        places = self._numbers(keys, times, "left")
        order = np.argsort(places, kind="stable")
        self.order: Ints = known[order]
        self._places = places[order]

    def ranges(self, keys: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """(begin, end): ``order[begin[n]:end[n]]`` are the rows with the key ``keys[n]`` and a time from ``first[n]`` to
        ``last[n]``. NO_KEY has none.
        """
        begin = np.searchsorted(self._places, self._numbers(keys, first, "left"))
        end = np.searchsorted(self._places, self._numbers(keys, last, "right"))
        return begin, end

    def _numbers(self, keys: Ints, times: Ints, side: Literal["left", "right"]) -> Ints:
        """Numbers in the order of keys and times. With *side* "right", they are after all rows with this key and time."""
        if self._distinct is not None:
            return keys * self._width + np.searchsorted(self._distinct, times, side=side)
        places = np.clip(times, self._first, self._first + self._width - 1) - self._first
        return keys * self._width + places + (side == "right")


def ranges(keys: Ints, first: Ints, last: Ints, of_keys: Ints, of_times: Ints) -> tuple[Ints, Ints, Ints]:
    """(begin, end, order) of :class:`SortedRows`.

    :param of_keys, of_times: the keys and times of the rows

    >>> begin, end, order = ranges(np.array([0, 1]), np.array([2, 0]), np.array([9, 9]), np.array([0, 1, 0]), np.array([5, 7, 1]))
    >>> [order[b:e].tolist() for b, e in zip(begin, end)]
    [[0], [1]]
    """
    rows = SortedRows(of_keys, of_times)
    return *rows.ranges(keys, first, last), rows.order
