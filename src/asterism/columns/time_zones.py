"""Conversion between instants and local times of a time zone, as columns of microseconds since 1970-01-01.

Arrow is fast, but its transitions are listed only to 2037. Later times use ``zoneinfo``, which has the rule for later
transitions.
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
"""Seconds of 400 years, the period of the calendar including weekdays."""
_LAST = int(datetime(9990, 1, 1, tzinfo=UTC).timestamp())
"""Python's datetime ends shortly after."""


def wall_times(times: Ints, zone: str) -> Ints:
    """The local times of the instants *times*."""
    near = pc.local_timestamp(pa.array(np.minimum(times, FAR)).cast(pa.timestamp("us", zone))).cast(pa.int64())
    found: Ints = near.to_numpy(zero_copy_only=False)
    return _with_far(times, found, lambda second, place: second + _offset(second, place), zone)


def moments(walls: Ints, zone: str) -> Ints:
    """The instants of the local times *walls*: the earlier one of a repeated local time; of a skipped one, the transition."""
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
    if low >= high:  # the local time exists once or twice
        return high
    while low + 1 < high:  # the local time is skipped
        middle = (low + high) // 2
        if _offset(middle, zone) == round(before.total_seconds()):
            low = middle
        else:
            high = middle
    return high
