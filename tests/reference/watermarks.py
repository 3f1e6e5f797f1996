"""Flink's watermark of a source with partitions: that of each is ``forBoundedOutOfOrderness`` with ``withIdleness``, that of the
source their minimum. If all are idle, it is the maximum, as in the ``StatusWatermarkValve`` behind several subtasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MILLISECOND = 1000


@dataclass
class PartitionedSource:
    """Times are microseconds."""

    delay: int
    idle_after: int | None = None
    watermark: int | None = None
    """None: there is none yet."""
    of: dict[str, int] = field(default_factory=dict)
    last_event: dict[str, int] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)

    def is_late(self, time: int) -> bool:
        return self.watermark is not None and time <= self.watermark

    def micro_batch(self, events: Iterable[tuple[str, int]], now: int) -> None:
        """The events of all partitions, as (partition, time)."""
        for partition, time in events:
            self.of[partition] = max(
                time - self.delay - MILLISECOND, self.of.get(partition, time - self.delay - MILLISECOND)
            )
            self.last_event[partition] = now
            self.idle.discard(partition)
        self.at(now)

    def at(self, now: int) -> None:
        """Processing time has advanced."""
        for partition, last in self.last_event.items():
            if self.idle_after is not None and now - last >= self.idle_after:
                self.idle.add(partition)
        active = [mark for partition, mark in self.of.items() if partition not in self.idle]
        combined = min(active) if active else max(self.of.values(), default=None)
        if combined is not None:
            self.watermark = combined if self.watermark is None else max(self.watermark, combined)
