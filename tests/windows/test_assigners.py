"""Which windows an element belongs to, against Python's own calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.columns.time_zones import moments, wall_times
from asterism.windows.assigners import SlidingWindows, TumblingWindows, Windows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]
MOMENTS = st.one_of(
    st.datetimes(datetime(1965, 1, 1), datetime(2037, 1, 1)), st.datetimes(datetime(2036, 6, 1), datetime(9980, 1, 1))
).map(lambda at: at.replace(tzinfo=UTC))
FIND = settings(deadline=None, derandomize=True, max_examples=200, database=None)


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def windows_of(windows: Windows, at: datetime) -> list[tuple[datetime, datetime]]:
    rows, starts, ends = windows.assign(np.array([micros(at)]))
    assert (rows == 0).all()
    return [
        (EPOCH + int(start) * MICROSECOND, EPOCH + int(end) * MICROSECOND)
        for start, end in zip(starts, ends, strict=True)
    ]


@settings(FIND, max_examples=100)
@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2036, 1, 1)), st.sampled_from([*ZONES, "Africa/Cairo", "Asia/Beirut"])
)
def test_time_zones_are_those_of_arrow(at: datetime, zone: str) -> None:
    """By the quarter of an hour for a day, so that the clocks are set in between now and then; at midnight, too."""
    at = at.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
    times = micros(at) + np.arange(-100, 100) * 900_000_000
    shown = pc.local_timestamp(pa.array(times).cast(pa.timestamp("us", zone))).cast(pa.int64()).to_numpy()
    assert (wall_times(times, zone) == shown).all()
    walls = pa.array(times).cast(pa.timestamp("us"))
    found = pc.assume_timezone(walls, zone, ambiguous="earliest", nonexistent="latest").cast(pa.int64()).to_numpy()
    assert (moments(times, zone) == found).all()


@pytest.mark.parametrize("year", [2036, 2037, 2038, 2400, 9998, 20_000, 250_000])
def test_summers_of_all_years(year: int) -> None:
    """The first of July begins at ten in the evening by UTC, as far as there are times."""
    july = int(np.datetime64(f"{year:05}-07-01" if year < 10_000 else "2000-07-01", "us").astype(np.int64))
    if year >= 10_000:
        july += (year - 2000) // 400 * 146_097 * 86_400_000_000
    [row], [start], [end] = TumblingWindows.of(timedelta(days=1), zone="Europe/Berlin").assign(np.array([july]))
    assert (row, start, end) == (0, july - 7_200_000_000, july + 79_200_000_000)


def test_days_on_which_the_clocks_are_set_in_the_far_future() -> None:
    """The last Sundays of March and October of 2060."""
    for month, day, hours in ((3, 28, 23), (10, 31, 25)):
        [(start, end)] = windows_of(
            TumblingWindows.of(timedelta(days=1), zone="Europe/Berlin"), datetime(2060, month, day, 12, tzinfo=UTC)
        )
        assert (end - start) == timedelta(hours=hours)


@FIND
@given(MOMENTS, st.sampled_from(ZONES))
def test_a_day_is_that_of_the_calendar(at: datetime, zone: str) -> None:
    [(start, end)] = windows_of(TumblingWindows.of(timedelta(days=1), zone=zone), at)
    local = ZoneInfo(zone)
    assert start <= at < end
    assert end.astimezone(local).date() > at.astimezone(local).date()
    assert start.astimezone(local).date() == at.astimezone(local).date()
    assert (start - MICROSECOND).astimezone(local).date() < at.astimezone(local).date()


@FIND
@given(MOMENTS, st.sampled_from(ZONES))
def test_a_month_is_that_of_the_calendar(at: datetime, zone: str) -> None:
    [(start, end)] = windows_of(TumblingWindows.of_months(1, zone=zone), at)
    local = at.astimezone(ZoneInfo(zone))
    first = datetime(local.year, local.month, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert start == first
    assert start <= at < end
    assert 27 < (end - start).days < 32


@FIND
@given(MOMENTS, st.sampled_from(ZONES), st.timedeltas(timedelta(0), timedelta(hours=23, minutes=59)))
def test_days_follow_each_other_without_a_gap(at: datetime, zone: str, offset: timedelta) -> None:
    windows = TumblingWindows.of(timedelta(days=1), offset=offset, zone=zone)
    [(start, end)] = windows_of(windows, at)
    assert start <= at < end
    assert windows_of(windows, start) == [(start, end)]
    assert windows_of(windows, end)[0][0] == end
    assert windows_of(windows, start - MICROSECOND)[0][1] == start


@FIND
@given(MOMENTS, st.sampled_from(ZONES), st.integers(1, 9), st.integers(1, 9))
def test_sliding_days_hold_the_element(at: datetime, zone: str, size: int, slide: int) -> None:
    size, slide = max(size, slide), min(size, slide)
    found = windows_of(SlidingWindows.of(timedelta(days=size), timedelta(days=slide), zone=zone), at)
    assert found == sorted(found)
    assert all(start <= at < end for start, end in found)
    assert abs(len(found) - size / slide) < 2


@pytest.mark.parametrize("offset", [0, 3, -3, 9])
def test_sliding_windows_are_all_that_hold_the_element(offset: int) -> None:
    second = timedelta(seconds=1)
    windows = SlidingWindows.of(10 * second, 4 * second, offset=offset % 4 * second)
    for time in range(-30, 30):
        found = [(micros(a) // 10**6, micros(b) // 10**6) for a, b in windows_of(windows, EPOCH + time * second)]
        starts = [start for start in range(-60, 60) if (start - offset) % 4 == 0 and start <= time < start + 10]
        assert found == [(start, start + 10) for start in starts]
