"""The partial matches of a page of keys: their columns, and their form in the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import concatenated, offsets_of
from asterism.operators.state_store import BODY, Record, batch_from_bytes, batch_to_bytes, layout_of, record_of


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


@dataclass(slots=True)
class Loaded:
    """Pages put together: rows of all pages with common numbering, and no rows yet for new keys."""

    nodes: Ints
    n_nodes: int
    run_at: Ints
    run_rows: Ints
    waiting_at: Ints
    waiting_rows: Ints
    timer_at: Ints
    timer_rows: Ints

    @classmethod
    def of(cls, pages: Sequence[Page], n_keys: int) -> Loaded:
        from asterism.matching.kernels import NO_EVENT

        nodes: list[Ints] = []
        runs: list[Ints] = []
        waiting: list[Ints] = []
        event_base = node_base = 0
        for page in pages:
            moved = page.nodes.copy()
            moved[:, 0] += event_base
            moved[:, 2] = np.where(moved[:, 2] >= 0, moved[:, 2] + node_base, -1)
            nodes.append(moved)
            for target, rows in ((runs, page.run_rows), (waiting, page.waiting_rows)):
                shifted = rows.copy()
                started = shifted[:, 0] != NO_EVENT
                shifted[started, 0] += event_base
                shifted[started, 1] += node_base
                target.append(shifted)
            event_base += len(page.times)
            node_base += len(page.nodes)
        room = np.empty((64, 3), np.int64)
        return cls(
            np.concatenate([*nodes, room]),
            node_base,
            joined_offsets([page.run_at for page in pages], n_keys),
            concatenated(runs, 3),
            joined_offsets([page.waiting_at for page in pages], n_keys),
            concatenated(waiting, 3),
            joined_offsets([page.timer_at for page in pages], n_keys),
            concatenated([page.timer_rows for page in pages], 1),
        )

    def arrays(self) -> tuple[Any, ...]:
        return (
            self.nodes, self.n_nodes, self.run_at, self.run_rows,
            self.waiting_at, self.waiting_rows, self.timer_at, self.timer_rows,
        )  # fmt: skip


def joined_offsets(offsets: Sequence[Ints], n_keys: int) -> Ints:
    counts = np.concatenate([*(np.diff(at) for at in offsets), np.zeros(0, np.int64)])
    return offsets_of(np.concatenate([counts, np.zeros(n_keys - len(counts), np.int64)]))
