"""Finds the rows of one side whose time lies in a range, by key: sort, then binary search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from asterism.columns.arrays import Ints, Mask

NO_KEY = -1
"""The number of a key with a NULL, which equals no key."""


@dataclass(frozen=True, slots=True)
class JoinRows:
    """The rows of one side in a call.

    :ivar keys: the numbers of their keys
    :ivar joins: whether the key has no NULL
    :ivar new: whether the row became ready in this call; the others are those of the state
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
    """For each of some *probes* its candidates: the targets ``order[begin:end]`` of the right side."""

    probes: Ints
    begin: Ints
    end: Ints
    order: Ints

    def pairs(self, at_once: int) -> Iterator[tuple[Ints, Ints]]:
        """(probe, target), some *at_once*, however many candidates a probe has."""
        counts = self.end - self.begin
        until = np.cumsum(counts)
        for first in range(0, int(until[-1]) if len(until) else 0, at_once):
            numbers = np.arange(first, min(first + at_once, int(until[-1])))
            at = np.searchsorted(until, numbers, side="right")
            rows = self.begin[at] + numbers - (until[at] - counts[at])
            yield self.probes[at], self.order[rows]


def ranges(keys: Ints, first: Ints, last: Ints, of_keys: Ints, of_times: Ints) -> tuple[Ints, Ints, Ints]:
    """(begin, end, order): ``order[begin[n]:end[n]]`` are the rows with the key ``keys[n]`` and a time from ``first[n]`` to
    ``last[n]``, in the order of their times, and equal times in the order of the rows. NO_KEY has none.

    :param of_keys, of_times: the keys and times of the rows

    >>> begin, end, order = ranges(np.array([0, 1]), np.array([2, 0]), np.array([9, 9]), np.array([0, 1, 0]), np.array([5, 7, 1]))
    >>> [order[b:e].tolist() for b, e in zip(begin, end)]
    [[0], [1]]
    """
    known = np.flatnonzero(of_keys != NO_KEY)
    order = known[np.lexsort((of_times[known], of_keys[known]))]
    distinct, rank = np.unique(of_times[order], return_inverse=True)
    # One number for key and time: times are numbered, since a key and a time do not fit into 64 bits.
    width = len(distinct) + 1
    places = of_keys[order] * width + rank
    begin = np.searchsorted(places, keys * width + np.searchsorted(distinct, first, side="left"))
    end = np.searchsorted(places, keys * width + np.searchsorted(distinct, last, side="right"))
    return begin, end, order
