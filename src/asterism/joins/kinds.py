"""The three joins: which rows of the right side a row of the left side joins, when that is decided, and what is kept until then.

A join takes all rows that are ready: the rows of the state and the new ones. All later rows have times after the operator's time,
the *horizon*.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from asterism.arguments import expect, hint_of_duration, shown
from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.errors import StreamDefinitionError
from asterism.joins.matching import NO_KEY, Candidates, JoinRows, ranges
from asterism.joins.types import JOIN_TYPES, STREAM_JOIN_TYPES
from asterism.windows.arguments import code, duration
from asterism.windows.assigners import MAX_KEPT, SessionWindows, SlidingWindows, TumblingWindows, Windows


@dataclass(frozen=True, slots=True)
class SideSearch:
    """The entries of one side: its rows; in a window join, its rows in each of their windows.

    :ivar rows: the row of each entry
    :ivar decided: the entries that no later row can join
    :ivar keep: the rows that may join a row that is not ready
    :ivar due: the time at which each row must be processed again
    :ivar over: the time from which each row is not needed any more
    :ivar windows: the start and the end of the window of each entry, in a window join
    """

    rows: Ints
    decided: Mask
    keep: Mask
    due: Ints
    over: Ints
    windows: tuple[Ints, Ints] | None = None


@dataclass(frozen=True, slots=True)
class JoinSearch:
    """The candidates of a call: of each *probe*, which is an entry of the left side, the *targets*, entries of the right side."""

    left: SideSearch
    right: SideSearch
    candidates: list[Candidates]


def _never(rows: JoinRows) -> Ints:
    return np.full(len(rows.times), END_OF_TIME, np.int64)


# ---------------------------------------------------------------------- interval join


def _hint(between: Any) -> str:
    """What could be written instead of bounds that are not two timedeltas."""
    bounds = between if isinstance(between, tuple | list) and len(between) == 2 else (None, None)
    lower, upper = (
        code_of(bound) if isinstance(bound, timedelta) else hint_of_duration(bound, default)
        for bound, default in zip(bounds, ("timedelta(0)", "timedelta(hours=1)"), strict=True)
    )
    return f"between=({lower}, {upper})"


@dataclass(frozen=True)
class IntervalJoin:
    """A row at the time *t* joins the rows from *t* + *lower* to *t* + *upper*, in microseconds.

    Source: Flink's ``KeyedStream.intervalJoin``, ``IntervalJoinOperator``.
    """

    lower: int
    upper: int

    name = "an interval join"
    """in error messages"""
    types = STREAM_JOIN_TYPES
    """the join types that it supports"""
    remembers_matches = True
    """whether a row can be kept after it has joined a row of the other side"""
    needs_seen = False
    """whether rows are stored with the time of the operator"""

    @classmethod
    def of(cls, between: Any, *, lower_exclusive: bool = False, upper_exclusive: bool = False) -> IntervalJoin:
        """:raises StreamDefinitionError: the bounds are not two durations, or there is no time between them"""
        if (
            not isinstance(between, tuple | list)
            or len(between) != 2
            or not all(isinstance(bound, timedelta) for bound in between)
        ):
            raise StreamDefinitionError(f"between must be two timedeltas, not {shown(between)}", hint=_hint(between))
        for name, value in (("lower_exclusive", lower_exclusive), ("upper_exclusive", upper_exclusive)):
            expect(StreamDefinitionError, value, bool, f"{name} must be True or False")
        for bound in between:
            if abs(bound) > timedelta(microseconds=MAX_KEPT):
                raise StreamDefinitionError(f"a bound of an interval join is out of range: {bound}", hint=_hint(None))
        lower, upper = (micros(bound) for bound in between)
        interval = cls(lower + lower_exclusive, upper - upper_exclusive)
        if interval.lower > interval.upper:
            kinds = ["exclusive" if flag else "inclusive" for flag in (lower_exclusive, upper_exclusive)]
            raise StreamDefinitionError(
                "no time lies between the bounds of the interval join",
                f"lower: {code_of(between[0])}, {kinds[0]}\nupper: {code_of(between[1])}, {kinds[1]}",
                "the lower bound comes first: between=(timedelta(minutes=-5), timedelta(0))",
            )
        return interval

    def __repr__(self) -> str:
        return (
            f"between {code_of(timedelta(microseconds=self.lower))} and {code_of(timedelta(microseconds=self.upper))}"
        )

    @property
    def outlives(self) -> int:
        """The maximum difference between the horizon and the time of a row that is emitted, in microseconds."""
        return max(self.upper, -self.lower, 0)

    def search(self, left: JoinRows, right: JoinRows, horizon: int) -> JoinSearch:
        candidates = []
        # A pair is emitted when the later of its rows becomes ready.
        for probes, partners in ((left.new, right.joins), (~left.new, right.joins & right.new)):
            probe_rows = np.flatnonzero(probes)
            if len(probe_rows) and partners.any():
                times = left.times[probe_rows]
                of_keys = np.where(partners, right.keys, NO_KEY)
                bounds = ranges(
                    left.join_keys[probe_rows], times + self.lower, times + self.upper, of_keys, right.times
                )
                candidates.append(Candidates(probe_rows, *bounds))
        left_search, right_search = (
            SideSearch(np.arange(len(rows.times)), over <= horizon, over > horizon, over, over)
            for rows, over in ((left, left.times + self.upper), (right, right.times - self.lower))
        )
        return JoinSearch(left_search, right_search, candidates)


def code_of(value: timedelta) -> str:
    """The code of a duration, which may be negative."""
    return f"-{code(-value)}" if value < timedelta(0) else code(value)


# ---------------------------------------------------------------------- as-of join


@dataclass(frozen=True)
class AsOfJoin:
    """A row joins the version of the right side that is valid at its time: the last row of its key at or before it, at most
    *tolerance* microseconds before.

    Source: Flink SQL's ``FOR SYSTEM_TIME AS OF``; pandas' ``merge_asof``.
    """

    tolerance: int | None = None

    name = "an as-of join"
    types = JOIN_TYPES
    outlives = 0
    remembers_matches = False
    needs_seen = False

    @classmethod
    def of(cls, tolerance: timedelta | None) -> AsOfJoin:
        """:raises StreamDefinitionError: it is not a duration"""
        if tolerance is None:
            return cls()
        return cls(micros(duration(tolerance, "the tolerance of an as-of join", zero=True)))

    def __repr__(self) -> str:
        rest = "" if self.tolerance is None else f", at most {code_of(timedelta(microseconds=self.tolerance))} before"
        return "the last version" + rest

    def search(self, left: JoinRows, right: JoinRows, horizon: int) -> JoinSearch:
        rows = np.arange(len(left.times))
        begin, end, order = ranges(
            left.join_keys, np.full(len(rows), BEFORE_TIME), left.times, right.join_keys, right.times
        )
        known = end > begin
        if self.tolerance is not None and known.any():
            last = order[np.maximum(end - 1, 0)]
            known &= left.times - right.times[last] <= self.tolerance
        latest = np.zeros(len(right.times), np.bool_)
        keys = right.keys[order]
        latest[order[np.append(keys[1:] != keys[:-1], True)[: len(order)]]] = True
        over = _never(right) if self.tolerance is None else right.times + self.tolerance
        keep = latest & ((over > horizon) if self.tolerance is not None else True) & (horizon != END_OF_TIME)
        nothing, none_decided = np.zeros(len(rows), np.bool_), np.zeros(len(right.times), np.bool_)
        return JoinSearch(
            SideSearch(rows, ~nothing, nothing, _never(left), _never(left)),
            SideSearch(np.arange(len(right.times)), none_decided, keep, _never(right), over),
            [Candidates(rows, np.where(known, end - 1, end), end, order)],
        )


# ---------------------------------------------------------------------- window join


@dataclass(frozen=True)
class WindowJoin:
    """Rows of the same window are joined, when the window ends.

    Source: Flink's ``JoinedStreams``, and window joins of Flink SQL.
    """

    windows: Windows

    name = "a window join"
    types = STREAM_JOIN_TYPES
    remembers_matches = False

    def __post_init__(self) -> None:
        if not isinstance(self.windows, Windows):
            raise StreamDefinitionError(
                f"not windows: {shown(self.windows)}",
                hint="TumblingWindows.of(timedelta(hours=1)), SlidingWindows or SessionWindows",
            )
        if self.windows.is_global:
            raise StreamDefinitionError(
                "a global window has no end at which its rows could be joined",
                hint="TumblingWindows.of(timedelta(hours=1)), or an interval join",
            )
        if isinstance(self.windows, SessionWindows) and self.windows.dynamic_gap is not None:
            raise StreamDefinitionError(
                "the sessions of a window join have a dynamic gap",
                "A session contains rows of both streams, which have different columns.",
                "SessionWindows.with_gap(timedelta(minutes=10))",
            )

    def __repr__(self) -> str:
        return repr(self.windows)

    @property
    def outlives(self) -> int:
        """The size of the windows; 0 for sessions, which have no maximum size: only their end is not behind the horizon."""
        size = self.windows.size if isinstance(self.windows, TumblingWindows | SlidingWindows) else timedelta(0)
        return micros(size * timedelta(days=31) if isinstance(size, int) else size)

    @property
    def gap(self) -> int | None:
        """The gap of sessions, in microseconds; None for other windows."""
        gap = self.windows.gap if isinstance(self.windows, SessionWindows) else None
        return micros(gap) if isinstance(gap, timedelta) else None

    @property
    def needs_seen(self) -> bool:
        return self.gap is None and not isinstance(self.windows, TumblingWindows)

    def search(self, left: JoinRows, right: JoinRows, horizon: int) -> JoinSearch:
        if self.gap is None:
            left_search, right_search = (_in_windows(self.windows, rows, horizon) for rows in (left, right))
        else:
            left_search, right_search = _in_sessions(self.gap, left, right, horizon)
        assert left_search.windows is not None
        assert right_search.windows is not None
        # A window is its start and its end: windows with the same start can differ.
        windows = _numbered(*map(np.concatenate, zip(left_search.windows, right_search.windows, strict=True)))
        left_numbers, right_numbers = windows[: len(left_search.rows)], windows[len(left_search.rows) :]
        left_keys, right_keys = left.join_keys[left_search.rows], right.join_keys[right_search.rows]
        candidates = ranges(left_keys, left_numbers, left_numbers, right_keys, right_numbers)
        return JoinSearch(left_search, right_search, [Candidates(np.arange(len(left_search.rows)), *candidates)])


JoinKind = IntervalJoin | AsOfJoin | WindowJoin
"""The rule by which rows of the same key are joined."""


def _ended(side: JoinRows, rows: Ints, start: Ints, end: Ints, due: Ints) -> SideSearch:
    """The windows of one side that end in a call: the row, the start and the end of each entry.

    :param due: for each row of the side, the end of its next window; END_OF_TIME if it has no further window
    """
    return SideSearch(rows, np.ones(len(rows), np.bool_), due != END_OF_TIME, due, _never(side), (start, end))


def _numbered(start: Ints, end: Ints) -> Ints:
    _, start_rank = np.unique(start, return_inverse=True)
    ends, end_rank = np.unique(end, return_inverse=True)
    numbers: Ints = start_rank * len(ends) + end_rank
    return numbers


def _in_windows(windows: Windows, side: JoinRows, horizon: int) -> SideSearch:
    rows, start, end = windows.assign(side.times)
    last = end - 1
    due = np.full(len(side.times), END_OF_TIME, np.int64)
    open_ = last > horizon
    np.minimum.at(due, rows[open_], last[open_])
    now = ~open_ & (last > side.seen[rows])
    return _ended(side, rows[now], start[now], end[now], due)


def _in_sessions(gap: int, left: JoinRows, right: JoinRows, horizon: int) -> tuple[SideSearch, SideSearch]:
    """Sessions contain the rows of both sides. Adjacent sessions are merged, so a session ends after its last microsecond."""
    # A row of the right side whose key has a NULL joins nothing and extends no session of the left side.
    times, right_keys = np.concatenate([left.times, right.times]), np.where(right.joins, right.keys, -1 - right.keys)
    keys = np.concatenate([left.keys, right_keys])
    order = np.lexsort((times, keys))
    sorted_times, sorted_keys = times[order], keys[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_times[1:] - sorted_times[:-1] > gap)
    number = np.cumsum(begins) - 1
    last = np.append(np.flatnonzero(begins)[1:], len(order))[: int(begins.sum())] - 1
    start, end = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    start[order] = sorted_times[begins][number]
    end[order] = sorted_times[last][number] + gap
    ended = end <= horizon
    due = np.where(ended, END_OF_TIME, end)
    count = len(left.times)
    sides = []
    for side, part in ((left, slice(0, count)), (right, slice(count, None))):
        rows = np.flatnonzero(ended[part])
        sides.append(_ended(side, rows, start[part][rows], end[part][rows], due[part]))
    return sides[0], sides[1]
