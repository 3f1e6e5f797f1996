"""The header of a key group: the state that every call for it needs."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.errors import CheckpointMismatchError, StateError
from asterism.operators.state.partition_watermarks import PartitionWatermarks
from asterism.operators.state.state_store import BODY, FIRST_LAYOUT, Record, layout_of, record_of

NO_PAGE = -(2**63)
"""Replaces the next event time of a page: there is no such page."""
_SIZES = struct.Struct("<HHHqqH")
_WATERMARK_AT = struct.calcsize("<HHH")
_FIRST_SIZES = struct.Struct("<HHHq")
UNKNOWN = -1
"""The number of bytes in headers of release 0.1.0."""


def other_query() -> StateError:
    return CheckpointMismatchError(
        "the checkpoint belongs to another query",
        "These must be the same: the pattern, its columns, outputs and semantics;\n"
        "or the operator's states, and the columns, keys and times of its inputs.",
        "use a new checkpoint location, or run the query that created the checkpoint",
    )


class MovedHeader(NamedTuple):
    """A header with other watermarks.

    :ivar watermark: that of the operator
    :ivar next_event_time, next_processing_time: of all pages; the end of time if none has something to do
    """

    value: bytes
    watermark: int
    next_event_time: int
    next_processing_time: int


@dataclass(slots=True)
class GroupHeader:
    """Times are microseconds; inputs are in the operator's order.

    *next_event_times* and *next_processing_times* are, per page, the next event time and processing time at which it has
    something to do. *watermarks* and *last_activity* are, per input, its watermark and the processing time of its last activity.
    *buffers* are, per input, the latest events that wait for the watermark, and *chunks* the places of earlier ones, each with
    the time of its first event (see :mod:`asterism.operators.state.waiting_events`).
    """

    fingerprint: bytes
    next_event_times: Ints
    next_processing_times: Ints
    watermarks: Ints
    last_activity: Ints
    buffers: list[bytes]
    watermark: int = BEFORE_TIME
    """The operator's watermark; BEFORE_TIME if the host supplies it."""
    size: int = 0
    """The number of bytes in all pages."""
    undivided: int = 0
    """The number of calls until the state may be divided into more pages."""
    chunks: list[list[tuple[int, int]]] = field(default_factory=list)
    defined: bool = False
    """Whether the state has a definition, see :mod:`asterism.operators.state.state_definition`."""
    partitions: dict[int, PartitionWatermarks] = field(default_factory=dict)
    """The partitions of the inputs that have some, by the number of the input."""

    def __post_init__(self) -> None:
        self.chunks = self.chunks or [[] for _ in self.buffers]

    @classmethod
    def new(cls, fingerprint: bytes, pages: int, inputs: int, processing_time: int) -> GroupHeader:
        return cls(
            fingerprint,
            np.full(pages, NO_PAGE, np.int64),
            np.full(pages, END_OF_TIME, np.int64),
            np.full(inputs, BEFORE_TIME, np.int64),
            np.full(inputs, processing_time, np.int64),
            [b""] * inputs,
        )

    @property
    def exists(self) -> Mask:
        """A mask of the pages that exist."""
        there: Mask = self.next_event_times != NO_PAGE
        return there

    @property
    def first_event_time(self) -> int:
        """The first of the next event times of pages; the end of time if there is none."""
        return int(self.next_event_times[self.exists].min(initial=END_OF_TIME))

    @property
    def first_processing_time(self) -> int:
        """The first of the next processing times of pages; the end of time if there is none."""
        return int(self.next_processing_times.min(initial=END_OF_TIME))  # that of a page that does not exist

    def is_waiting(self, number: int) -> bool:
        """Whether events of the input *number* wait for the watermark."""
        return bool(self.buffers[number] or self.chunks[number])

    def redivide(self, pages: int) -> None:
        """Set another number of pages, all of which are empty."""
        self.next_event_times = np.full(pages, NO_PAGE, np.int64)
        self.next_processing_times = np.full(pages, END_OF_TIME, np.int64)
        self.size = 0

    def to_bytes(self) -> bytes:
        pages, inputs = len(self.next_event_times), len(self.buffers)
        sizes = _SIZES.pack(len(self.fingerprint), pages, inputs, self.watermark, self.size, self.undivided)
        lengths = [len(buffer) for buffer in self.buffers]
        counts = [len(chunks) for chunks in self.chunks]
        places = [number for chunks in self.chunks for chunk in chunks for number in chunk]
        numbers = np.array([*lengths, *counts, *places], np.int64)
        times = self.next_event_times, self.next_processing_times, self.watermarks, self.last_activity, numbers
        # Headers of inputs without partitions end with the buffers, as in earlier releases.
        partitions = [watermarks.to_bytes(number) for number, watermarks in self.partitions.items()]
        return record_of(
            Record.HEADER, sizes, self.fingerprint, *(each.tobytes() for each in times), *self.buffers, *partitions
        )

    @staticmethod
    def moved(
        value: bytes,
        fingerprint: bytes,
        timed: Sequence[int],
        watermarks: Mapping[int, int],
        watermark: int,
        processing_time: int,
    ) -> MovedHeader | None:
        """The header after a call in which watermarks advance and nothing else happens, without reading all of it. None: more may
        happen; it belongs to another definition, has partitions or events that wait, a page is due, or an input has ended.

        :param timed: the inputs that have an event time, at least one
        :param watermarks: those that have arrived, by input
        :param watermark: that of the host
        """
        if layout_of(value, Record.HEADER) == FIRST_LAYOUT:
            return None
        length, pages, inputs, before, _, _ = _SIZES.unpack_from(value, BODY)
        at = BODY + _SIZES.size + length
        marks_at = at + 16 * pages
        end = marks_at + 32 * inputs
        if value[at - length : at] != fingerprint or len(value) != end or any(value[end - 16 * inputs :]):
            return None
        marks = list(struct.unpack_from(f"<{inputs}q", value, marks_at))
        activity = list(struct.unpack_from(f"<{inputs}q", value, marks_at + 8 * inputs))
        if max(marks) == BEFORE_TIME:
            activity = [processing_time] * inputs
        for number, arrived in watermarks.items():
            marks[number], activity[number] = max(marks[number], arrived), processing_time
        now = max(before, watermark, min(marks[number] for number in timed))
        times = np.frombuffer(value, np.int64, 2 * pages, at)
        exists = times[:pages] != NO_PAGE
        event_time, next_processing_time = (
            int(part[exists].min(initial=END_OF_TIME)) for part in (times[:pages], times[pages:])
        )
        if max(marks) in (BEFORE_TIME, END_OF_TIME) or event_time <= now or next_processing_time <= processing_time:
            return None
        new = bytearray(value)
        struct.pack_into("<q", new, BODY + _WATERMARK_AT, now)
        struct.pack_into(f"<{2 * inputs}q", new, marks_at, *marks, *activity)
        return MovedHeader(bytes(new), now, event_time, next_processing_time)

    @classmethod
    def from_bytes(cls, value: bytes, fingerprint: bytes | None = None) -> GroupHeader:
        """:param fingerprint: of the operator; None: the state may be that of any operator
        :raises StateError: the state belongs to another operator
        """
        layout = layout_of(value, Record.HEADER)
        is_first = layout == FIRST_LAYOUT
        sizes = _FIRST_SIZES if is_first else _SIZES
        length, pages, inputs, watermark, *rest = sizes.unpack_from(value, BODY)
        size, undivided = rest or (UNKNOWN, 0)
        at = BODY + sizes.size + length
        stored_fingerprint = value[at - length : at]
        if fingerprint is not None and stored_fingerprint != fingerprint:
            raise other_query()

        def numbers(count: int) -> Ints:
            nonlocal at
            array = np.frombuffer(value, np.int64, count, at).copy()
            at += array.nbytes
            return array

        times = numbers(pages), numbers(pages), numbers(inputs), numbers(inputs)
        lengths = numbers(inputs).tolist()
        counts = [] if is_first else numbers(inputs).tolist()
        chunks = [[(place, first) for place, first in numbers(2 * each).reshape(each, 2).tolist()] for each in counts]
        ends = at + np.cumsum([0, *lengths])
        buffers = [value[begin:end] for begin, end in itertools.pairwise(ends.tolist())]
        partitions = PartitionWatermarks.all_from_bytes(value[ends[-1] :])
        return cls(stored_fingerprint, *times, buffers, watermark, size, undivided, chunks, not is_first, partitions)
