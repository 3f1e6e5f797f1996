"""The watermarks of the partitions of an input, such as those of a topic, and that of the input, which is their minimum.

See docs/decisions/0118.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.errors import LimitExceededError

MAX_PARTITIONS, MAX_NAME = 10_000, 1_000
"""Maximum number of partitions of an input, without those that were forgotten because they are idle, and of characters of a name.
"""
MAX_SHOWN = 5
"""How many partitions a query reports as those that hold back its watermark."""
IDLE = -(2**62)
"""Replaces the processing time of the last activity of an input or a partition: it is idle until its next activity."""
_SIZES = struct.Struct("<HII")  # the number of the input, the number of partitions, the length of their names


def check_partitions(count: int, columns: Iterable[str]) -> None:
    """:raises LimitExceededError: there are too many partitions"""
    if count > MAX_PARTITIONS:
        raise LimitExceededError(
            f"an input has more than {MAX_PARTITIONS:,} partitions",
            f"They are the distinct values of watermark_by: {', '.join(columns)}.\n"
            "The state keeps the watermark of each of them.",
            'name columns with few distinct values, such as those of a topic: watermark_by=["topic", "partition"]',
        )


def check_names(names: Iterable[str], columns: Iterable[str]) -> None:
    """:raises LimitExceededError: the name of a partition is too long"""
    longest = max(names, key=len, default="")
    if len(longest) > MAX_NAME:
        raise LimitExceededError(
            f"the name of a partition has more than {MAX_NAME:,} characters: {longest[:60]}...",
            f"It consists of the values of watermark_by: {', '.join(columns)}.\n"
            "The state keeps the name of each partition.",
            'name columns that the source sets, such as those of a topic: watermark_by=["topic", "partition"]',
        )


@dataclass(slots=True)
class PartitionWatermarks:
    """Per partition that has had events, in the order of arrival: its name, its watermark, and the processing time of its last
    activity. Times are microseconds.

    :param columns: the columns that distinguish the partitions. A partition is named by their values, see :func:`partition_name`
    """

    columns: Sequence[str]
    names: list[str] = field(default_factory=list)
    watermarks: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    last_activity: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def update(self, arrived: Mapping[str, int], processing_time: int) -> None:
        """Idle partitions are forgotten when there would be too many.

        :param arrived: the watermarks of partitions with new events
        :raises LimitExceededError: there are too many partitions that are not idle
        """
        if len(arrived.keys() | set(self.names)) > MAX_PARTITIONS:
            self._forget_idle(arrived)
        places = {name: place for place, name in enumerate(self.names)}
        new = sorted(arrived.keys() - places.keys())
        if new:
            check_partitions(len(self.names) + len(new), self.columns)
            places |= {name: place for place, name in enumerate(new, len(self.names))}
            self.names = [*self.names, *new]
            self.watermarks = np.append(self.watermarks, np.full(len(new), BEFORE_TIME))
            self.last_activity = np.append(self.last_activity, np.zeros(len(new), np.int64))
        at = np.array([places[name] for name in arrived], np.int64)
        self.watermarks[at] = np.maximum(self.watermarks[at], np.array(list(arrived.values()), np.int64))
        self.last_activity[at] = processing_time

    def _forget_idle(self, arrived: Collection[str]) -> None:
        is_kept = (self.last_activity != IDLE) | (self.watermarks == self.latest)
        is_kept |= np.array([name in arrived for name in self.names], bool)
        self.names = [name for name, kept in zip(self.names, is_kept.tolist(), strict=True) if kept]
        self.watermarks, self.last_activity = self.watermarks[is_kept], self.last_activity[is_kept]

    def combined(self, processing_time: int, idle_after: int | None) -> tuple[int, bool]:
        """(the minimum of the watermarks without idle partitions, or the maximum if all are idle; whether all are idle)."""
        if not self.names:
            return BEFORE_TIME, False
        if idle_after is not None:
            active = processing_time - self.last_activity < idle_after
            if not active.any():
                return self.latest, True
            return int(self.watermarks[active].min()), False
        return int(self.watermarks.min()), False

    def mark_idle(self, processing_time: int, idle_after: int) -> None:
        self.last_activity[processing_time - self.last_activity >= idle_after] = IDLE

    def restart_idle_time(self, idle_time: int) -> None:
        """Postpone the last activity of the partitions that are not idle."""
        self.last_activity[self.last_activity != IDLE] += idle_time

    @property
    def latest(self) -> int:
        """The latest watermark of a partition."""
        return int(self.watermarks.max(initial=BEFORE_TIME))

    @property
    def holding_back(self) -> Mask:
        """A mask of the partitions for which the watermark of the input waits."""
        active: Mask = self.last_activity != IDLE
        least = self.watermarks[active].min(initial=END_OF_TIME)
        slowest: Mask = active & (self.watermarks == least)
        return slowest

    @property
    def behind(self) -> dict[str, int]:
        """Of the slowest partitions that are not idle, how far they are behind the fastest one; as JSON of their columns."""
        distances = np.where(self.last_activity != IDLE, self.latest - self.watermarks, 0)
        slowest = np.argsort(-distances, kind="stable")[:MAX_SHOWN].tolist()
        return {
            json.dumps(dict(zip(self.columns, values_of(self.names[at]), strict=True)), ensure_ascii=False): int(
                distances[at]
            )
            for at in slowest
            if distances[at]
        }

    def to_bytes(self, number: int) -> bytes:
        """:param number: that of the input"""
        names = json.dumps([list(self.columns), self.names], ensure_ascii=False).encode()
        sizes = _SIZES.pack(number, len(self.names), len(names))
        return sizes + names + self.watermarks.tobytes() + self.last_activity.tobytes()

    @classmethod
    def all_from_bytes(cls, value: bytes) -> dict[int, Self]:
        """The partitions of all inputs that have some, by the number of the input."""
        partitions, at = {}, 0
        while at < len(value):
            number, count, length = _SIZES.unpack_from(value, at)
            at += _SIZES.size
            columns, names = json.loads(value[at : at + length])
            at += length
            times = np.frombuffer(value, np.int64, 2 * count, at).reshape(2, count).copy()
            at += times.nbytes
            partitions[number] = cls(columns, names, *times)
        return partitions


def partition_name(values: Sequence[object]) -> str:
    """The name of a partition in state and between processes.

    >>> partition_name(["logins", 3]), partition_name([None])
    ('["logins","3"]', '[null]')
    """
    texts = [None if value is None else str(value) for value in values]
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def partition_text(partition: Mapping[str, str | None]) -> str:
    """
    >>> partition_text({"topic": "logins", "partition": "3"})
    'topic=logins, partition=3'
    """
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in partition.items())


def values_of(name: str) -> list[str | None]:
    """The values of the columns of a partition, as strings.

    >>> values_of('["logins","3"]')
    ['logins', '3']
    """
    values: list[str | None] = json.loads(name)
    return values
