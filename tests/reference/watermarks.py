"""Flink's watermark of a source with partitions: that of each is ``forBoundedOutOfOrderness`` with ``withIdleness``, that of the
source their minimum. If all are idle, it is the maximum, as in the ``StatusWatermarkValve`` behind several subtasks. An operator
combines its inputs in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    @property
    def is_idle(self) -> bool:
        return bool(self.of) and self.idle == self.of.keys()

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
        """A micro-batch at this processing time."""
        for partition, last in self.last_event.items():
            if self.idle_after is not None and now - last >= self.idle_after:
                self.idle.add(partition)
        active = [mark for partition, mark in self.of.items() if partition not in self.idle]
        combined = min(active) if active else max(self.of.values(), default=None)
        if combined is not None:
            self.watermark = combined if self.watermark is None else max(self.watermark, combined)

    @property
    def last_of_active(self) -> list[int]:
        return [last for partition, last in self.last_event.items() if partition not in self.idle]

    def continued(self, pause: int) -> None:
        """The query was stopped for *pause*, which is not idle time."""
        for partition in self.last_event.keys() - self.idle:
            self.last_event[partition] += pause


@dataclass
class SeveralInputs:
    """The inputs of an operator. The idle time of one that has never had an event begins with the first event of any."""

    inputs: Mapping[str, PartitionedSource]
    begin: int | None = None
    without_events: set[str] = field(default_factory=set)
    """The inputs without events that are idle."""
    watermark: int | None = None

    def is_late(self, time: int) -> bool:
        return self.watermark is not None and time <= self.watermark

    def micro_batch(
        self, events: Mapping[str, Sequence[tuple[str, int]]], now: int, *, begins_run: bool = False
    ) -> None:
        """:param begins_run: whether the query was stopped before"""
        if begins_run and self.begin is not None:
            last = [last for source in self.inputs.values() for last in source.last_of_active]
            waits = [name for name, source in self.inputs.items() if not source.of and name not in self.without_events]
            pause = now - max([*last, *([self.begin] if waits else [])], default=now)
            self.begin += pause
            for source in self.inputs.values():
                source.continued(pause)
        if any(events.values()) and self.begin is None:
            self.begin = now
        for name, source in self.inputs.items():
            source.micro_batch(events.get(name, ()), now)
            waited = None if self.begin is None or source.of else now - self.begin
            if waited is not None and source.idle_after is not None and waited >= source.idle_after:
                self.without_events.add(name)
        marks = [source.watermark for source in self.inputs.values()]
        active = [
            source.watermark
            for name, source in self.inputs.items()
            if not (source.is_idle if source.of else name in self.without_events)
        ]
        if active and None in active:
            return
        combined = min((mark for mark in active if mark is not None), default=None)
        if combined is None:
            combined = max((mark for mark in marks if mark is not None), default=None)
        if combined is not None:
            self.watermark = combined if self.watermark is None else max(self.watermark, combined)
