"""State of keyed operators: pages of bytes, one small header per key group, and their storage.

The keys of a key group are distributed over pages; a page contains many keys in columnar form. Every record
starts with a magic word and a layout version, so that a later release can identify it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from asterism.errors import CheckpointMismatchError, NewerStateError
from asterism.operators.state.page_numbers import kind_of_page

FIRST_LAYOUT = 2
"""That of release 0.1.0."""
LAYOUT = 4
"""The header has the size of the state, and there is a definition."""
_MAGIC = b"ASTR"
_PREFIX = struct.Struct("<4sHH")  # magic, layout version, kind of record
BODY = _PREFIX.size
"""Offset of the body of a record."""


class Record(enum.IntEnum):
    """Kinds of records."""

    PAGE = 1
    HEADER = 2
    TABLES = 3
    DEFINITION = 4
    BROADCAST = 5


class KeptPage(Protocol):
    """A page that a store in memory keeps as its operator has made it, and encodes when it must. It never changes."""

    def __len__(self) -> int:
        """About its number of bytes in memory."""

    def to_bytes(self) -> bytes:
        """The page as it is stored."""


class StateStore(Protocol):
    """The state of one key group, stored by the host. A store with a true attribute ``keeps_pages`` also takes pages of keys that
    are not bytes, but a :class:`KeptPage`, and returns these or bytes.
    """

    def read_header(self) -> bytes | None: ...

    def write_header(self, value: bytes | None) -> None: ...

    def read_page(self, number: int) -> bytes | None: ...

    def write_page(self, number: int, value: bytes | None) -> None: ...


@dataclass(slots=True)
class MemoryStore:
    """State in this process, for tests and batch runs."""

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
            kind_of_page(number)  # only numbers of the table are stored
            self.pages[number] = value

    @property
    def is_empty(self) -> bool:
        """Whether there is no state at all."""
        return self.header is None and not self.pages


def record_of(kind: Record, *body: bytes) -> bytes:
    return _PREFIX.pack(_MAGIC, LAYOUT, kind) + b"".join(body)


def kind_of(value: bytes) -> int:
    """The kind of a record; 0 if it is none."""
    magic, _, kind = _PREFIX.unpack_from(value) if len(value) >= _PREFIX.size else (b"", 0, 0)
    return int(kind) if magic == _MAGIC else 0


def layout_of(value: bytes, kind: Record) -> int:
    """The layout of a record."""
    magic, layout, stored_kind = _PREFIX.unpack_from(value) if len(value) >= _PREFIX.size else (b"", 0, 0)
    if magic != _MAGIC or stored_kind != kind:
        raise CheckpointMismatchError("the state of the checkpoint was not written by this operator")
    if layout < FIRST_LAYOUT or FIRST_LAYOUT < layout < LAYOUT:
        raise CheckpointMismatchError(
            f"the state was written in layout {layout}, which no release of Asterism has used",
            "A development version between two releases has written it.",
            "use a new checkpoint location",
        )
    if layout > LAYOUT:
        raise NewerStateError(
            f"the state was written in layout {layout}, but this release reads only up to layout {LAYOUT}",
            hint="restart with the release that wrote the checkpoint, or a later one",
        )
    return int(layout)


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def batch_of(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def batch_to_bytes(table: pa.Table, *, compressed: bool = False) -> bytes:
    """The rows of a table, without its schema."""
    batch = batch_of(table)
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
    return record_of(Record.TABLES, sizes.tobytes(), *parts)


def with_additions(value: bytes, additions: pa.Table | None) -> bytes:
    """A record of tables with one more table at its end, which has its schema in itself. Releases and readers that do not know
    it ignore it.
    """
    if additions is None:
        return value
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, additions.schema) as writer:
        writer.write_table(additions)
    return b"".join([value, sink.getvalue().to_pybytes()])


def additions_from_bytes(value: bytes, tables: int) -> pa.Table | None:
    """The table that was added to a record of so many *tables*; None: there is none."""
    layout_of(value, Record.TABLES)
    sizes = np.frombuffer(value, np.int64, tables, BODY)
    at = BODY + sizes.nbytes + int(sizes.sum())
    return pa.ipc.open_stream(pa.py_buffer(value)[at:]).read_all() if at < len(value) else None


def tables_by_name(value: bytes, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    return dict(zip(schemas, tables_from_bytes(value, list(schemas.values())), strict=True))


def tables_from_bytes(value: bytes, schemas: Sequence[pa.Schema]) -> list[pa.Table]:
    layout_of(value, Record.TABLES)
    sizes = np.frombuffer(value, np.int64, len(schemas), BODY)
    at = BODY + sizes.nbytes
    view, tables = memoryview(value), []
    for size, schema in zip(sizes.tolist(), schemas, strict=True):
        tables.append(batch_from_bytes(view[at : at + size], schema))
        at += size
    return tables
