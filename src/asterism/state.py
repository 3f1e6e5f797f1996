"""State of keyed operators: pages of bytes, one small header per key group, and where they are kept.

A key group's keys are spread over a fixed number of pages; a page holds many keys in columnar form. Every record begins
with a magic word and a layout version, so that a later release can tell what it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.errors import StateError

Ints = npt.NDArray[np.int64]

LAYOUT = 2
"""2: pages have the positions of events."""
_MAGIC = b"ASTR"
_PREFIX = struct.Struct("<4sHH")  # magic, layout version, kind of record
_PAGE, _HEADER, _TABLES = 1, 2, 3


class StateStore(Protocol):
    """The state of one key group, as the host keeps it."""

    def read_header(self) -> bytes | None: ...

    def write_header(self, value: bytes | None) -> None: ...

    def read_page(self, number: int) -> bytes | None: ...

    def write_page(self, number: int, value: bytes | None) -> None: ...


@dataclass(slots=True)
class MemoryStore:
    """State in this process; what tests and batch runs use."""

    header: bytes | None = None
    pages: dict[int, bytes] = field(default_factory=dict)

    def read_header(self) -> bytes | None:
        return self.header

    def write_header(self, value: bytes | None) -> None:
        self.header = value

    def read_page(self, number: int) -> bytes | None:
        return self.pages.get(number)

    def write_page(self, number: int, value: bytes | None) -> None:
        if value is None:
            self.pages.pop(number, None)
        else:
            self.pages[number] = value

    @property
    def is_empty(self) -> bool:
        """Nothing is remembered at all."""
        return self.header is None and not self.pages


def _open(value: bytes, kind: int) -> int:
    """The layout of a record."""
    magic, layout, found = _PREFIX.unpack_from(value) if len(value) >= _PREFIX.size else (b"", 0, 0)
    if magic != _MAGIC or found != kind:
        raise StateError("the state of the checkpoint was not written by this operator")
    if layout > LAYOUT:
        raise StateError(
            f"the state was written in layout {layout}, this release reads up to layout {LAYOUT}",
            hint="restart with the release that wrote the checkpoint, or a later one",
        )
    return int(layout)


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def batch_to_bytes(table: pa.Table, *, compressed: bool = False) -> bytes:
    """The rows of a table, without its schema."""
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    if not compressed:
        return bytes(batch.serialize())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema
    return bytes(messages.read_next_message().serialize())


def batch_from_bytes(value: bytes | memoryview, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(value), schema)])


def tables_to_bytes(tables: Sequence[pa.Table]) -> bytes:
    """Several tables as one record, without their schemas."""
    parts = [batch_to_bytes(table) for table in tables]
    sizes = np.array([len(part) for part in parts], np.int64)
    return _PREFIX.pack(_MAGIC, LAYOUT, _TABLES) + sizes.tobytes() + b"".join(parts)


def tables_from_bytes(value: bytes, schemas: Sequence[pa.Schema]) -> list[pa.Table]:
    _open(value, _TABLES)
    sizes = np.frombuffer(value, np.int64, len(schemas), _PREFIX.size)
    at = _PREFIX.size + sizes.nbytes
    view, tables = memoryview(value), []
    for size, schema in zip(sizes.tolist(), schemas, strict=True):
        tables.append(batch_from_bytes(view[at : at + size], schema))
        at += size
    return tables


@dataclass(slots=True)
class Page:
    """Keys, and for each its partial matches, waiting matches and timers (``*_at``: where the rows of a key begin).

    An event's *position* is that among the events of its key with its time, as they were seen.
    """

    keys: pa.Table
    events: pa.Table
    times: Ints
    positions: Ints
    nodes: Ints
    run_at: Ints
    run_rows: Ints
    waiting_at: Ints
    waiting_rows: Ints
    timer_at: Ints
    timer_rows: Ints

    @classmethod
    def empty(cls, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        none, at = np.empty((0, 3), np.int64), np.zeros(1, np.int64)
        return cls(
            keys=key_schema.empty_table(),
            events=event_schema.empty_table(),
            times=np.empty(0, np.int64),
            positions=np.empty(0, np.int64),
            nodes=none,
            run_at=at,
            run_rows=none,
            waiting_at=at,
            waiting_rows=none,
            timer_at=at,
            timer_rows=np.empty((0, 1), np.int64),
        )

    def _arrays(self) -> list[Ints]:
        return [
            self.times,
            self.positions,
            self.nodes,
            self.run_at,
            self.run_rows,
            self.waiting_at,
            self.waiting_rows,
            self.timer_at,
            self.timer_rows,
        ]

    def to_bytes(self) -> bytes:
        keys, events = batch_to_bytes(self.keys), batch_to_bytes(self.events)
        arrays = self._arrays()
        sizes = np.array([len(keys), len(events), *(array.size for array in arrays)], np.int64)
        body = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        return _PREFIX.pack(_MAGIC, LAYOUT, _PAGE) + sizes.tobytes() + body + keys + events

    @classmethod
    def from_bytes(cls, value: bytes, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        layout = _open(value, _PAGE)
        columns_of = [0, *([0] if layout > 1 else []), 3, 0, 3, 0, 3, 0, 1]
        at = _PREFIX.size
        sizes = np.frombuffer(value, np.int64, 2 + len(columns_of), at)
        at += sizes.nbytes
        arrays = []
        for size, columns in zip(sizes[2:].tolist(), columns_of, strict=True):
            array = np.frombuffer(value, np.int64, size, at)
            arrays.append(array.reshape(-1, columns) if columns else array)
            at += 8 * size
        view = memoryview(value)
        key_bytes, event_bytes = int(sizes[0]), int(sizes[1])
        keys = batch_from_bytes(view[at : at + key_bytes], key_schema)
        events = batch_from_bytes(view[at + key_bytes : at + key_bytes + event_bytes], event_schema)
        if layout == 1:
            arrays.insert(1, np.zeros_like(arrays[0]))
        return cls(keys, events, *arrays)


NO_PAGE = -(2**63)
"""In place of the time at which a page wants to be woken: there is no such page."""
_NEVER = 2**63 - 1
_BEFORE = -(2**63) + 1


@dataclass(slots=True)
class GroupHeader:
    """What every call for a key group needs. Times are microseconds; inputs are numbered in the operator's order.

    *wakes* and *clocks* say, per page, at which event time and processing time it has something to do; *watermarks* and *heard*,
    per input, its watermark and the processing time at which it was last heard of; *buffers* hold, per input, the events that
    wait for the watermark.
    """

    fingerprint: bytes
    wakes: Ints
    clocks: Ints
    watermarks: Ints
    heard: Ints
    buffers: list[bytes]
    watermark: int = _BEFORE
    """The operator's own; BEFORE_TIME where the host knows it better."""

    @classmethod
    def new(cls, fingerprint: bytes, pages: int, inputs: int, processing_time: int) -> GroupHeader:
        return cls(
            fingerprint,
            np.full(pages, NO_PAGE, np.int64),
            np.full(pages, _NEVER, np.int64),
            np.full(inputs, _BEFORE, np.int64),
            np.full(inputs, processing_time, np.int64),
            [b""] * inputs,
        )

    def to_bytes(self) -> bytes:
        sizes = struct.pack("<HHHq", len(self.fingerprint), len(self.wakes), len(self.buffers), self.watermark)
        lengths = np.array([len(buffer) for buffer in self.buffers], np.int64)
        arrays = np.concatenate([self.wakes, self.clocks, self.watermarks, self.heard, lengths])
        head = _PREFIX.pack(_MAGIC, LAYOUT, _HEADER) + sizes + self.fingerprint + arrays.tobytes()
        return head + b"".join(self.buffers)

    @classmethod
    def from_bytes(cls, value: bytes, fingerprint: bytes) -> GroupHeader:
        _open(value, _HEADER)
        at = _PREFIX.size
        length, pages, inputs, watermark = struct.unpack_from("<HHHq", value, at)
        at += struct.calcsize("<HHHq")
        found = value[at : at + length]
        if found != fingerprint:
            raise StateError(
                "the checkpoint belongs to another query",
                "What must be the same: the pattern, its columns, outputs and semantics;\n"
                "or the operator's states, and the columns, keys and times of its inputs.",
                "start with a new checkpoint location, or run what the checkpoint was made with",
            )
        at += length
        count = 2 * pages + 3 * inputs
        arrays = np.frombuffer(value, np.int64, count, at).copy()
        at += 8 * count
        wakes, clocks, rest = arrays[:pages], arrays[pages : 2 * pages], arrays[2 * pages :].reshape(3, inputs)
        buffers = []
        for size in rest[2].tolist():
            buffers.append(value[at : at + size])
            at += size
        return cls(found, wakes, clocks, rest[0], rest[1], buffers, watermark)
