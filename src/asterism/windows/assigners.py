"""Window assigners, which define the windows of an element: immutable values.

A window is an interval from its start to its end, without the end. All times here are microseconds since 1970-01-01 UTC, as
columns.

Source: Flink's "Windows", section "Window Assigners".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from asterism.arguments import expect, shown
from asterism.columns.arrays import Ints
from asterism.columns.groups import consecutive
from asterism.columns.time import END_OF_TIME, FAR, micros, to_datetime
from asterism.columns.time_zones import moments, wall_times
from asterism.errors import StreamDefinitionError, UserFunctionError
from asterism.spelling import PythonNames
from asterism.windows.arguments import code, duration, name_of
from asterism.windows.user_functions import called

DAY = timedelta(days=1)
MAX_WINDOWS = 10_000
"""Maximum number of sliding windows of an element."""
MAX_KEPT = micros(timedelta(days=1_000_000))
"""The longest duration, in microseconds."""
Gap = str | Callable[[pa.Table], Any]


class Windows(metaclass=PythonNames):
    """Base of window assigners, including user-defined ones: a subclass with the method :meth:`assign`.

    >>> class EvenAndOdd(Windows):
    ...     '''Windows of an hour and of two hours.'''
    ...
    ...     def assign(self, times):
    ...         hour = 3_600_000_000
    ...         row = np.repeat(np.arange(len(times)), 2)
    ...         size = np.tile([hour, 2 * hour], len(times))
    ...         start = times[row] // size * size
    ...         order = np.lexsort((start + size, start, row))
    ...         return row, start[order], (start + size)[order]
    >>> [column.tolist() for column in EvenAndOdd().assign(np.array([5_000_000_000]))]
    [[0, 0], [0, 3600000000], [7200000000, 7200000000]]

    Source: Flink's ``WindowAssigner``.
    """

    @property
    def is_user_defined(self) -> bool:
        """Whether they are user-defined windows."""
        return type(self).__module__ != __name__

    @property
    def starts_differ(self) -> bool:
        """Whether no two windows of a key have the same start."""
        return not self.is_user_defined

    def __repr__(self) -> str:
        # Without anything that depends on the process: the text is part of the fingerprint of the state.
        return f"{type(self).__name__}(...)"

    @property
    def merges(self) -> bool:
        """Whether windows merge when they touch."""
        return False

    @property
    def is_global(self) -> bool:
        return False

    def assign(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        """The windows of elements.

        :param times: their times, in microseconds since 1970-01-01 UTC
        :return: three arrays of 64-bit integers with a row for each window of an element: the index of the element, and the
            start and the end of the window in microseconds. Every element has a window; rows are in the order of elements,
            and those of an element in the order of start and end. The answer may depend only on the times.
        """
        raise NotImplementedError


def assigned(windows: Windows, times: Ints) -> tuple[Ints, Ints, Ints]:
    """:meth:`Windows.assign`, and checks of what user-defined windows return."""
    if not windows.is_user_defined:
        return windows.assign(times)
    what = f"the windows {type(windows).__name__}"
    assignment = called(f"{what}: assign", windows.assign, times.copy())
    hint = "return row, start, end: numpy arrays of integers of the same length"
    if not isinstance(assignment, tuple | list) or len(assignment) != 3:
        raise UserFunctionError(f"{what} must assign three arrays, not {shown(assignment)}", hint=hint)
    columns: list[Ints] = []
    for name, column in zip(("elements", "starts", "ends"), assignment, strict=True):
        array = np.asarray(column)
        if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
            raise UserFunctionError(f"{what}: the {name} must be an array of integers, not {shown(column)}", hint=hint)
        columns.append(array.astype(np.int64))
    row, start, end = columns
    if len(start) != len(row) or len(end) != len(row):
        raise UserFunctionError(
            f"{what}: the arrays differ in length",
            f"Elements: {len(row):,}, starts: {len(start):,}, ends: {len(end):,}",
            hint,
        )
    if len(row) and (row.min() < 0 or row.max() >= len(times)):
        raise UserFunctionError(
            f"{what}: there is no element {int(row.max() if row.min() >= 0 else row.min())}", hint=hint
        )
    ordered = (row[1:] > row[:-1]) | (
        (row[1:] == row[:-1]) & ((start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] > end[:-1])))
    )
    if not ordered.all():
        raise UserFunctionError(
            f"{what}: the windows are not in order",
            "They must be in the order of elements, and those of an element in the order of start and end, each once.",
            "order = np.lexsort((end, start, row))",
        )
    without = np.flatnonzero(np.bincount(row, minlength=len(times)) == 0)
    if len(without):
        raise UserFunctionError(
            f"{what}: an element has no window",
            f"Its time is {to_datetime(int(times[without[0]]))}.",
            "filter such elements out before, or add a window for the others",
        )
    wrong = np.flatnonzero((end <= start) | (np.abs(start) > FAR) | (np.abs(end) > FAR))
    if len(wrong):
        raise UserFunctionError(
            f"{what}: a window must end after its start, within 146,000 years of 1970",
            f"Start: {int(start[wrong[0]])}, end: {int(end[wrong[0]])}, in microseconds.",
        )
    return row, start, end


@dataclass(frozen=True)
class _Grid:
    """Instants at equal distances: in microseconds, or in days or months of the calendar of a time zone."""

    step: int
    """microseconds, or months"""
    offset: int
    months: bool
    zone: str | None

    def index(self, times: Ints) -> Ints:
        """The index of the last instant at or before each time."""
        if self.zone is None:
            indexes: Ints = (times - self.offset) // self.step
            return indexes
        wall = wall_times(times, self.zone) - self.offset
        if self.months:
            wall = wall.astype("M8[us]").astype("M8[M]").astype(np.int64)
        number: Ints = wall // self.step
        # At a change of daylight saving time, local times are repeated or skipped.
        number += times >= self.moment(number + 1)
        number -= times < self.moment(number)
        return number

    def moment(self, number: Ints, later: int = 0) -> Ints:
        """The instant with this index; *later* adds microseconds or months of the calendar."""
        at = number * self.step + later
        if self.zone is None:
            plain: Ints = at + self.offset
            return plain
        wall = (at.astype("M8[M]").astype("M8[us]").astype(np.int64) if self.months else at) + self.offset
        return moments(wall, self.zone)


@dataclass(frozen=True, repr=False)
class _Aligned(Windows):
    size: timedelta | int
    """an integer: months"""
    slide: timedelta | int
    offset: timedelta = timedelta(0)
    zone: str | None = None

    def __post_init__(self) -> None:
        where = f"{type(self).__name__}.{'of_months' if isinstance(self.slide, int) else 'of'}"
        texts = []
        for length in (self.size, self.slide):
            if isinstance(self.slide, int):
                _check_months(where, length)
                texts.append(f"{length} months")
            else:
                texts.append(code(duration(length, where)))
        _check_slide(where, self.size, self.slide, *texts)
        _check_calendar(where, self.size, self.slide, self.offset, self.zone)

    @property
    def grid(self) -> _Grid:
        months = isinstance(self.slide, int)
        return _Grid(_steps(self.slide), micros(self.offset), months, self._zone)

    @property
    def _zone(self) -> str | None:
        return "UTC" if self.zone is None and isinstance(self.slide, int) else self.zone

    def assign(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        grid, size = self.grid, _steps(self.size)
        newest = grid.index(times)
        rows = np.arange(len(times))
        if self.size == self.slide:
            return rows, grid.moment(newest), grid.moment(newest + 1)
        numbers = newest[:, None] - np.arange(
            -(-size // grid.step), -1, -1
        )  # one more than needed: days differ in length
        rows = np.repeat(rows, numbers.shape[1])
        starts, ends = grid.moment(numbers.ravel()), grid.moment(numbers.ravel(), size)
        inside = times[rows] < ends
        return rows[inside], starts[inside], ends[inside]

    def __repr__(self) -> str:
        name = "TumblingWindows" if isinstance(self, TumblingWindows) else "SlidingWindows"
        lengths = [self.size] if isinstance(self, TumblingWindows) else [self.size, self.slide]
        return _code(f"{name}.{'of_months' if isinstance(self.size, int) else 'of'}", lengths, self.offset, self.zone)


@dataclass(frozen=True, repr=False)
class TumblingWindows(_Aligned):
    """Windows of one size that follow each other without a gap. Created by :meth:`of` and :meth:`of_months`.

    Source: Flink's ``TumblingEventTimeWindows``, ``TumblingProcessingTimeWindows``.
    """

    @classmethod
    def of(cls, size: timedelta, *, offset: timedelta = timedelta(0), zone: str | None = None) -> TumblingWindows:
        """
        :param size: with *zone*, whole days
        :param offset: windows start at multiples of *size* after 1970-01-01 (a Thursday), plus this
        :param zone: a time zone, such as ``"Europe/Berlin"``, whose calendar defines days: a day with a change of daylight
            saving time is an hour longer or shorter. Default: UTC
        :raises StreamDefinitionError: *size* is not positive; *offset* is not shorter than *size*; the zone is unknown, or has
            no effect

        >>> TumblingWindows.of(timedelta(days=1), zone="Europe/Berlin")
        TumblingWindows.of(timedelta(days=1), zone='Europe/Berlin')
        """
        duration(size, "TumblingWindows.of")
        return cls(size, size, offset, zone)

    @classmethod
    def of_months(cls, months: int, *, offset: timedelta = timedelta(0), zone: str | None = None) -> TumblingWindows:
        """
        :param months: the length of a window in months: 3 for quarters, 12 for years
        :param offset: added to the first of the month, 00:00
        :param zone: the time zone of the calendar. Default: UTC
        :raises StreamDefinitionError: as for :meth:`of`

        >>> TumblingWindows.of_months(1, zone="America/New_York")
        TumblingWindows.of_months(1, zone='America/New_York')
        """
        _check_months("TumblingWindows.of_months", months)
        return cls(months, months, offset, zone)


@dataclass(frozen=True, repr=False)
class SlidingWindows(_Aligned):
    """Windows of one size that start at equal distances and overlap. Created by :meth:`of` and :meth:`of_months`.

    Source: Flink's ``SlidingEventTimeWindows``, ``SlidingProcessingTimeWindows``.
    """

    @classmethod
    def of(
        cls, size: timedelta, slide: timedelta, *, offset: timedelta = timedelta(0), zone: str | None = None
    ) -> SlidingWindows:
        """
        :param size: with *zone*, whole days, as is *slide*
        :param slide: the distance between the starts of two windows; at most *size*
        :param offset, zone: as for :meth:`TumblingWindows.of`
        :raises StreamDefinitionError: as for :meth:`TumblingWindows.of`; *slide* is larger than *size*; an element would belong
            to more than MAX_WINDOWS windows

        >>> SlidingWindows.of(timedelta(hours=1), timedelta(minutes=5))
        SlidingWindows.of(timedelta(hours=1), timedelta(minutes=5))
        """
        for length in (size, slide):
            duration(length, "SlidingWindows.of")
        return cls(size, slide, offset, zone)

    @classmethod
    def of_months(
        cls, months: int, slide: int, *, offset: timedelta = timedelta(0), zone: str | None = None
    ) -> SlidingWindows:
        """
        :param months: the length of a window in months
        :param slide: the distance between the starts of two windows in months

        >>> SlidingWindows.of_months(12, 1)
        SlidingWindows.of_months(12, 1)
        """
        for number in (months, slide):
            _check_months("SlidingWindows.of_months", number)
        return cls(months, slide, offset, zone)


@dataclass(frozen=True, repr=False)
class CumulativeWindows(Windows):
    """Windows with the same start that grow by a step up to a size: the sales of the day so far, every hour. Created by
    :meth:`of`.

    Source: Flink SQL's ``CUMULATE``.
    """

    size: timedelta
    step: timedelta
    offset: timedelta = timedelta(0)
    zone: str | None = None

    def __post_init__(self) -> None:
        where = "CumulativeWindows.of"
        for length in (self.size, self.step):
            duration(length, where)
        texts = f"Size {code(self.size)}, step {code(self.step)}."
        if self.size % self.step:
            raise StreamDefinitionError(
                f"{where}: the size is not a multiple of the step",
                texts,
                "choose a step that divides the size, such as an hour for a day",
            )
        if self.size // self.step > MAX_WINDOWS:
            raise StreamDefinitionError(
                f"{where}: each element would be in more than {MAX_WINDOWS:,} windows", texts, "use a larger step"
            )
        _check_calendar(where, self.size, self.size, self.offset, self.zone)
        if self.zone is not None and DAY % self.step:
            raise StreamDefinitionError(
                f"{where}: with a time zone, the step must divide a day", texts, "use a step such as an hour or a day"
            )

    @classmethod
    def of(
        cls, size: timedelta, step: timedelta, *, offset: timedelta = timedelta(0), zone: str | None = None
    ) -> CumulativeWindows:
        """
        :param size: the length of the longest window; with *zone*, whole days
        :param step: the length of the shortest window, and the difference between two. *size* is a multiple of it; with *zone*,
            so is a day.
        :param offset, zone: as for :meth:`TumblingWindows.of`
        :raises StreamDefinitionError: as for :meth:`TumblingWindows.of`; *size* is not a multiple of *step*; an element would
            belong to more than MAX_WINDOWS windows

        >>> CumulativeWindows.of(timedelta(days=1), timedelta(hours=1))
        CumulativeWindows.of(timedelta(days=1), timedelta(hours=1))
        """
        return cls(size, step, offset, zone)

    @property
    def starts_differ(self) -> bool:
        return False

    def assign(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        size, step = micros(self.size), micros(self.step)
        grid = _Grid(size, micros(self.offset), months=False, zone=self.zone)
        number = grid.index(times)
        start, stop = grid.moment(number), grid.moment(number + 1)
        first = (times - start) // step + 1
        last = -(-(stop - start) // step)  # a day of a calendar may be longer or shorter
        counts = last - first + 1
        rows = np.repeat(np.arange(len(times)), counts)
        steps = consecutive(first, counts)
        return rows, start[rows], np.minimum(start[rows] + steps * step, stop[rows])

    def __repr__(self) -> str:
        return _code("CumulativeWindows.of", [self.size, self.step], self.offset, self.zone)


@dataclass(frozen=True, repr=False)
class SessionWindows(Windows):
    """A window for each burst of elements, which ends when no element has arrived for the gap. Windows that overlap or touch are
    merged. Created by :meth:`with_gap` and :meth:`with_dynamic_gap`.

    Source: Flink's ``EventTimeSessionWindows``, ``DynamicEventTimeSessionWindows`` and their processing-time variants.
    """

    gap: timedelta | Gap

    def __post_init__(self) -> None:
        if isinstance(self.gap, timedelta):
            duration(self.gap, "SessionWindows.with_gap")
        elif not isinstance(self.gap, str) and not callable(self.gap):
            raise StreamDefinitionError(
                f"SessionWindows.with_dynamic_gap takes an expression or a function, not {shown(self.gap)}",
                hint="if the gap is the same for all elements, use SessionWindows.with_gap(timedelta(minutes=30))",
            )

    @classmethod
    def with_gap(cls, gap: timedelta) -> SessionWindows:
        """
        :raises StreamDefinitionError: *gap* is not positive

        >>> SessionWindows.with_gap(timedelta(minutes=30))
        SessionWindows.with_gap(timedelta(minutes=30))
        """
        return cls(duration(gap, "SessionWindows.with_gap"))

    @classmethod
    def with_dynamic_gap(cls, gap: Gap) -> SessionWindows:
        """Each element defines its own gap.

        :param gap: a Spark SQL expression, an INTERVAL or a number of seconds; or a Python function that takes a table of
            elements (:class:`pyarrow.Table`) and returns one such value for each element
        :raises StreamDefinitionError: *gap* is neither

        >>> SessionWindows.with_dynamic_gap("CASE WHEN mobile THEN 600 ELSE 1800 END")
        SessionWindows.with_dynamic_gap('CASE WHEN mobile THEN 600 ELSE 1800 END')
        """
        return cls(gap)

    @property
    def merges(self) -> bool:
        return True

    @property
    def dynamic_gap(self) -> Gap | None:
        return None if isinstance(self.gap, timedelta) else self.gap

    def assign(self, times: Ints, gaps: Ints | None = None) -> tuple[Ints, Ints, Ints]:
        """The window of each element before merging: from its time, with the length of its gap."""
        rows = np.arange(len(times))
        if isinstance(self.gap, timedelta):
            return rows, times, times + micros(self.gap)
        assert gaps is not None
        return rows, times, times + gaps

    def __repr__(self) -> str:
        if isinstance(self.gap, timedelta):
            return f"SessionWindows.with_gap({code(self.gap)})"
        return f"SessionWindows.with_dynamic_gap({name_of(self.gap)})"


@dataclass(frozen=True)
class GlobalWindows(Windows):
    """One window without an end for all elements of a key. It needs a trigger that does not wait for the end: one that
    waits fires only at the end of the input, when a table ends or a stream is drained. In event time, a processing-time
    trigger that waits for the end never fires.

    >>> GlobalWindows()
    GlobalWindows()

    Source: Flink's ``GlobalWindows``.
    """

    @property
    def is_global(self) -> bool:
        return True

    def assign(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        return np.arange(len(times)), np.zeros(len(times), np.int64), np.full(len(times), END_OF_TIME, np.int64)


# ---------------------------------------------------------------------- checks


def _code(function: str, lengths: Iterable[timedelta | int], offset: timedelta, zone: str | None) -> str:
    arguments = [str(length) if isinstance(length, int) else code(length) for length in lengths]
    arguments += [f"offset={code(offset)}"] if offset else []
    arguments += [f"zone={zone!r}"] if zone is not None else []
    return f"{function}({', '.join(arguments)})"


def _steps(value: timedelta | int) -> int:
    return value if isinstance(value, int) else micros(value)


def _check_months(where: str, months: object) -> None:
    if isinstance(months, bool) or not isinstance(months, int) or not 1 <= months <= 12_000:
        raise StreamDefinitionError(f"{where} takes a number of months, 1 or more, not {shown(months)}")


def _check_slide(where: str, size: Any, slide: Any, size_text: str, slide_text: str) -> None:
    if slide > size:
        raise StreamDefinitionError(
            f"{where}: the slide is larger than the size",
            f"Size {size_text}, slide {slide_text}: elements between the end of a window and the start of the next would be in "
            "no window.",
            "make the slide at most the size, or filter the elements before",
        )
    if _steps(size) // _steps(slide) > MAX_WINDOWS:
        raise StreamDefinitionError(
            f"{where}: each element would be in more than {MAX_WINDOWS:,} windows",
            f"Size {size_text}, slide {slide_text}.",
            "use a larger slide",
        )


def _check_calendar(
    where: str, size: timedelta | int, slide: timedelta | int, offset: timedelta, zone: str | None
) -> None:
    what = f"{where}: the offset must be a timedelta"
    expect(StreamDefinitionError, offset, timedelta, what, "offset=timedelta(hours=1)")
    longest = timedelta(days=28 * slide) if isinstance(slide, int) else slide
    if abs(offset) >= longest:
        raise StreamDefinitionError(
            f"{where}: the offset must be smaller than the distance between windows: {offset}",
            "An offset moves the start of all windows by less than that distance.",
        )
    if zone is None:
        return
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, TypeError, OSError):
        raise StreamDefinitionError(
            f"{where}: unknown time zone {shown(zone)}", hint='"Europe/Berlin", "UTC"'
        ) from None
    if isinstance(size, timedelta) and isinstance(slide, timedelta) and (size % DAY or slide % DAY):
        raise StreamDefinitionError(
            f"{where}: a time zone needs windows of whole days or months",
            "Minutes and hours are equally long in all time zones; when clocks are set back, an hour of local time occurs twice.",
            "remove the zone; if windows must not begin at full hours, use an offset",
        )
