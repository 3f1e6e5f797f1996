"""Which windows an element belongs to, against Python's own calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.windows import SlidingWindows, TumblingWindows, Windows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]
MOMENTS = st.datetimes(datetime(1965, 1, 1), datetime(2037, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))
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
