"""Window assigners, which define the windows of an element: immutable values.

A window is an interval from its start to its end, without the end. All times here are microseconds since 1970-01-01 UTC, as
columns.

Source: Flink's "Windows", section "Window Assigners".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.arrays import Ints
from asterism.columns.time import END_OF_TIME, micros
from asterism.columns.time_zones import moments, wall_times
from asterism.errors import StreamDefinitionError
from asterism.windows.arguments import code, duration, name_of

DAY = timedelta(days=1)
MAX_WINDOWS = 10_000
"""Maximum number of sliding windows of an element."""
MAX_KEPT = micros(timedelta(days=1_000_000))
"""The longest duration, in microseconds."""
Gap = str | Callable[[pa.Table], Any]


class Windows:
    """Base of window assigners."""

    @property
    def merges(self) -> bool:
        """Whether windows merge when they touch."""
        return False

    @property
    def is_global(self) -> bool:
        return False

    def assign(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        """The windows of elements with these *times*: element, start, end. The windows of an element are ordered by start."""
        raise NotImplementedError


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
            found: Ints = (times - self.offset) // self.step
            return found
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

    def _rest(self) -> str:
        offset = f", offset={code(self.offset)}" if self.offset else ""
        zone = f", zone={self.zone!r}" if self.zone is not None else ""
        return offset + zone + ")"


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

    def __repr__(self) -> str:
        if isinstance(self.size, int):
            return f"TumblingWindows.of_months({self.size}" + self._rest()
        return f"TumblingWindows.of({code(self.size)}" + self._rest()


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

    def __repr__(self) -> str:
        if isinstance(self.size, int):
            return f"SlidingWindows.of_months({self.size}, {self.slide}" + self._rest()
        assert isinstance(self.slide, timedelta)
        return f"SlidingWindows.of({code(self.size)}, {code(self.slide)}" + self._rest()


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
            f"{where}: each element would be in more than {MAX_WINDOWS} windows",
            f"Size {size_text}, slide {slide_text}.",
            "use a larger slide",
        )


def _check_calendar(
    where: str, size: timedelta | int, slide: timedelta | int, offset: timedelta, zone: str | None
) -> None:
    if not isinstance(offset, timedelta):
        raise StreamDefinitionError(f"{where}: the offset must be a timedelta, not {shown(offset)}")
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
