"""The partial matches of a page of keys: their columns, and their format in the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of
from asterism.operators.state_store import BODY, Record, batch_from_bytes, batch_to_bytes, layout_of, record_of


class KeyRows(NamedTuple):
    """The partial matches, waiting matches and timers of keys; ``*_at``: where the rows of each key begin."""

    run_at: Ints
    run_rows: Ints
    waiting_at: Ints
    waiting_rows: Ints
    timer_at: Ints
    timer_rows: Ints

    def pairs(self) -> Iterator[tuple[Ints, Ints]]:
        return zip(self[::2], self[1::2], strict=True)

    def of(self, keys: Ints) -> KeyRows:
        """The rows of *keys*, in this order; -1 denotes a key without rows."""
        found: list[Ints] = []
        for at, rows in self.pairs():
            new_at = offsets_of(np.append(np.diff(at), 0)[keys])
            first = np.append(at[:-1], 0)[keys]
            found += new_at, rows[np.arange(new_at[-1]) + np.repeat(first - new_at[:-1], np.diff(new_at))]
        return KeyRows(*found)


@dataclass(slots=True)
class Page:
    """Keys and their rows, with the events and nodes that the rows refer to.

    The *position* of an event is its index among the visible events of its key and time. Rows and nodes: see
    :mod:`asterism.matching.kernels`.
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
        none, at, timers = np.empty((0, 3), np.int64), np.zeros(1, np.int64), np.empty((0, 1), np.int64)
        numbers = np.empty(0, np.int64)
        return cls(
            key_schema.empty_table(), event_schema.empty_table(), numbers, numbers, none, at, none, at, none, at, timers
        )

    @property
    def rows(self) -> KeyRows:
        return KeyRows(self.run_at, self.run_rows, self.waiting_at, self.waiting_rows, self.timer_at, self.timer_rows)

    def to_bytes(self) -> bytes:
        keys, events = batch_to_bytes(self.keys), batch_to_bytes(self.events)
        arrays = [self.times, self.positions, self.nodes, *self.rows]
        sizes = np.array([len(keys), len(events), *(array.size for array in arrays)], np.int64)
        body = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        return record_of(Record.PAGE, sizes.tobytes(), body, keys, events)

    @classmethod
    def from_bytes(cls, value: bytes, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        layout = layout_of(value, Record.PAGE)
        columns_of = [0, *([0] if layout > 1 else []), 3, 0, 3, 0, 3, 0, 1]
        at = BODY
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
