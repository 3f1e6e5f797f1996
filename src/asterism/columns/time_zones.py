"""What the clocks of a time zone show, and when: times are microseconds since 1970-01-01, as columns.

Arrow does it fast, but only as far as the changes of the clocks are listed, to 2037. What is later is told by ``zoneinfo``, which
knows the rule by which they go on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints
from asterism.columns.time import EPOCH

_SECOND = 1_000_000
FAR = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp()) * _SECOND
_CYCLE = 146_097 * 86_400
"""Seconds of 400 years, after which the calendar, weekdays included, is the same."""
_LAST = int(datetime(9990, 1, 1, tzinfo=UTC).timestamp())
"""Python's datetime ends soon after."""


def wall_times(times: Ints, zone: str) -> Ints:
    """What the clocks show at *times*."""
    near = pc.local_timestamp(pa.array(np.minimum(times, FAR)).cast(pa.timestamp("us", zone))).cast(pa.int64())
    found: Ints = near.to_numpy(zero_copy_only=False)
    return _with_far(times, found, lambda second, place: second + _offset(second, place), zone)


def moments(walls: Ints, zone: str) -> Ints:
    """When the clocks show *walls*: the first time, where they are set back; where they are set forward, when that is done."""
    naive = pa.array(np.minimum(walls, FAR)).cast(pa.timestamp("us"))
    near = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="latest").cast(pa.int64())
    found: Ints = near.to_numpy(zero_copy_only=False)
    return _with_far(walls, found, _moment, zone)


def _with_far(times: Ints, near: Ints, function: Callable[[int, ZoneInfo], int], zone: str) -> Ints:
    far = times >= FAR
    if not far.any():
        return near
    seconds, rest = np.divmod(times[far], _SECOND)
    distinct, which = np.unique(seconds, return_inverse=True)
    cycles = np.maximum(0, -(-(distinct - _LAST) // _CYCLE)) * _CYCLE
    place = ZoneInfo(zone)
    found = [function(second, place) for second in (distinct - cycles).tolist()]
    result = near.copy()
    result[far] = (np.array(found, np.int64) + cycles)[which] * _SECOND + rest
    return result


def _offset(second: int, zone: ZoneInfo) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _moment(wall: int, zone: ZoneInfo) -> int:
    shown = (EPOCH + timedelta(seconds=wall)).replace(tzinfo=zone)
    before, after = shown.utcoffset(), shown.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    low, high = wall - round(after.total_seconds()), wall - round(before.total_seconds())
    if low >= high:  # the clocks show it once, or twice
        return high
    while low + 1 < high:  # they are set forward in between
        middle = (low + high) // 2
        if _offset(middle, zone) == round(before.total_seconds()):
            low = middle
        else:
            high = middle
    return high
