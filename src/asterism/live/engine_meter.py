"""What a live engine has done since it was opened: the numbers that its metrics have."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

from asterism.live.snapshots import SnapshotRecord
from asterism.operators.histograms import HistogramStatistics

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""The bounds of the durations of calls, in seconds."""


class EngineMeter:
    """Written during calls, and read by any thread at any time.

    Counters do not go back when a call is taken back: its batch comes again, and is then not counted twice.

    :param record: that with which the engine was opened
    """

    def __init__(self, record: SnapshotRecord) -> None:
        self._opened = record
        self.batches = self.events = 0
        self.counts: Mapping[str, int] = {}
        self.behind: Mapping[str, Mapping[str, int]] = {}
        """By input, of its slowest partitions, how many microseconds they are behind the fastest one."""
        self.last_events, self.last_seconds, self.last_began = 0, 0.0, 0.0
        """Of the last call that succeeded; *last_began* in seconds since 1970, and 0 if there was none."""
        self.seconds_between: float | None = None
        """From the beginning of the call before to that of the last one."""
        self.failed_calls = 0
        self.snapshots = self.failed_snapshots = 0
        self.saved_at: float | None = None
        self.saved_events = 0
        """The events that the last snapshot contains, of those since the engine was opened."""
        self.outcome: str | None = None
        """How the engine has ended; None: it goes on."""
        self._durations = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def called(self, record: SnapshotRecord, events: int, seconds: float) -> None:
        """A call has succeeded, and has taken so many *events*.

        :param record: as it is after the call
        """
        before = self._opened
        self.batches = max(self.batches, record.batch - before.batch)
        self.events = max(self.events, record.events - before.events)
        self.counts = {
            name: max(count - before.counts.get(name, 0), self.counts.get(name, 0))
            for name, count in record.counts.items()
        }
        began = time.time() - seconds
        self.seconds_between = began - self.last_began if self.last_began else None
        self.last_events, self.last_seconds, self.last_began = events, seconds, began
        self._durations[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def saved(self, record: SnapshotRecord) -> None:
        """A snapshot with this record has been written."""
        self.snapshots += 1
        self.saved_at, self.saved_events = time.time(), record.events - self._opened.events

    @property
    def durations(self) -> HistogramStatistics:
        """The durations of calls that have succeeded, in seconds."""
        *up_to, count = accumulate(list(self._durations))
        return HistogramStatistics(count, self._seconds, None, None, dict(zip(BOUNDS, up_to, strict=True)))
