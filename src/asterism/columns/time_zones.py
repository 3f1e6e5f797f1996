"""Conversion between instants and local times of a time zone, as columns of microseconds since 1970-01-01.

The transitions of a zone are computed once per process, from ``zoneinfo``. The calendar, including weekdays, repeats every 400
years, and from 2100 on so do the rules of all zones.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from asterism.columns.arrays import Ints
from asterism.columns.time import EPOCH


@dataclass(frozen=True, slots=True)
class Zone:
    """The transitions of a zone, in microseconds since 1970: ``offsets[k]`` applies before ``instants[k]``.

    *local* are the local times from which the new offset applies: for a repeated local time the earlier instant is used; a
    skipped one is converted with the offset before the transition.
    """

    instants: Ints
    local: Ints
    offsets: Ints

    def at_instant(self, times: Ints) -> Ints:
        """The offsets at instants."""
        return self.offsets[np.searchsorted(self.instants, _in_known_years(times), side="right")]

    def first_instant(self, local_times: Ints) -> Ints:
        """The earliest instants of local times; for skipped local times, the transition."""
        known = _in_known_years(local_times)
        change = np.searchsorted(self.local, known, side="right")
        limit = np.append(self.instants, np.iinfo(np.int64).max)[change]
        instants: Ints = np.minimum(known - self.offsets[change], limit) + (local_times - known)
        return instants

    def at_local_time(self, times: Ints) -> Ints:
        """The offsets at local times."""
        return self.offsets[np.searchsorted(self.local, _in_known_years(times), side="right")]


_CYCLE = 146_097 * 86_400_000_000
_DAILY, _WEEKLY, _LAST = (datetime(year, 1, 1, tzinfo=UTC) for year in (1840, 2040, 2501))
_LAST_CYCLE = (datetime(2100, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def _in_known_years(times: Ints) -> Ints:
    return np.where(times < _LAST_CYCLE, times, _LAST_CYCLE + (times - _LAST_CYCLE) % _CYCLE)


_FIXED = re.compile(r"(?:UTC|GMT|UT|Z)?(?:([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?)?", re.ASCII)


@functools.cache
def zone_of(name: str) -> Zone:
    """The zone of an IANA name or of a fixed offset: ``Europe/Madrid``, ``+05:30``, ``UTC+1``.

    >>> zone = zone_of("Europe/Madrid")
    >>> noon = np.array([1_720_000_000_000_000])
    >>> int(zone.at_instant(noon)[0]) // 3_600_000_000
    2
    """
    none = np.empty(0, np.int64)
    fixed = _FIXED.fullmatch(name)
    if fixed is not None:
        sign, *parts = fixed.groups("0")
        hours, minutes, seconds = (int(part) for part in parts)
        offset = (hours * 3600 + minutes * 60 + seconds) * (-1 if sign == "-" else 1)
        return Zone(none, none, np.array([offset * 1_000_000]))
    zone = ZoneInfo(name)

    def offset_at(seconds: int) -> int:
        offset = (EPOCH + timedelta(seconds=seconds)).astimezone(zone).utcoffset()
        assert offset is not None
        return round(offset.total_seconds())

    first, weekly, last = (int((when - EPOCH).total_seconds()) for when in (_DAILY, _WEEKLY, _LAST))
    samples = [*range(first, weekly, 86_400), *range(weekly, last, 7 * 86_400)]
    at = [offset_at(seconds) for seconds in samples]
    instants: list[int] = []
    offsets = [at[0]]
    for number in range(1, len(samples)):
        while offsets[-1] != at[number]:
            begin = max(samples[number - 1], instants[-1] if instants else first)
            changed = functools.partial(lambda old, seconds: offset_at(seconds) != old, offsets[-1])
            change = begin + bisect_right(range(begin, samples[number]), False, key=changed)
            instants.append(change)
            offsets.append(offset_at(change))
    micros, steps = np.array(instants, np.int64) * 1_000_000, np.array(offsets, np.int64) * 1_000_000
    return Zone(micros, micros + np.maximum(steps[:-1], steps[1:]), steps)


def wall_times(times: Ints, zone: str) -> Ints:
    """The local times of the instants *times*."""
    return times + zone_of(zone).at_instant(times)


def moments(local_times: Ints, zone: str) -> Ints:
    """The instants of local times: the earlier one of a repeated local time; of a skipped one, the transition."""
    return zone_of(zone).first_instant(local_times)
