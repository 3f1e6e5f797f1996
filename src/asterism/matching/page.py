"""The partial matches of a page of keys: their columns, and their format in the state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of
from asterism.matching.key_rows import KeyRows
from asterism.operators.state.state_store import (
    BODY,
    FIRST_LAYOUT,
    Record,
    batch_from_bytes,
    batch_to_bytes,
    layout_of,
    record_of,
)


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
    rows: KeyRows
    table_bytes: int | None = None
    """About the bytes of *keys* and *events*, if they are known."""

    @classmethod
    def empty(cls, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        none, at, timers = np.empty((0, 3), np.int64), np.zeros(1, np.int64), np.empty((0, 1), np.int64)
        numbers, rows = np.empty(0, np.int64), KeyRows(at, none, at, none, at, timers)
        return cls(key_schema.empty_table(), event_schema.empty_table(), numbers, numbers, none, rows)

    @classmethod
    def concat(cls, pages: Sequence[Page]) -> Page:
        """The keys of all *pages*, which are distinct, in this order."""
        if len(pages) == 1:
            return pages[0]
        n_events, n_nodes = [len(page.times) for page in pages], [len(page.nodes) for page in pages]
        nodes = _shifted([page.nodes for page in pages], {0: n_events, 2: n_nodes})
        rows: list[Ints] = []
        for number, pairs in enumerate(zip(*(page.rows.pairs() for page in pages), strict=True)):
            rows.append(offsets_of(np.concatenate([at[1:] - at[:-1] for at, _ in pairs])))
            arrays = [rows_of_page for _, rows_of_page in pairs]
            is_timer = number == _TIMERS
            rows.append(np.concatenate(arrays) if is_timer else _shifted(arrays, {0: n_events, 1: n_nodes}, of=1))
        return cls(
            pa.concat_tables([page.keys for page in pages]),
            pa.concat_tables([page.events for page in pages]),
            np.concatenate([page.times for page in pages]),
            np.concatenate([page.positions for page in pages]),
            nodes,
            KeyRows(*rows),
        )

    def divided(self, parts: Sequence[Ints]) -> Iterator[Page]:
        """A page of the keys of each of *parts*. Several pages share their arrays."""
        if len(parts) < 2:
            yield from (self if len(part) == self.keys.num_rows else self.of(part) for part in parts)
            return
        from asterism.matching import kernels

        order, ends = np.concatenate(parts), offsets_of([len(part) for part in parts])
        node_at, nodes, event_at, kept, rows = kernels.divide(len(self.times), self.nodes, self.rows, order, ends)
        # A slice of several chunks takes long.
        keys, events = (
            table.take(pa.array(numbers)).combine_chunks()
            for table, numbers in ((self.keys, order), (self.events, kept))
        )
        # Arrow takes long to find the bytes of a slice.
        row_bytes = (keys.nbytes + events.nbytes) / max(1, len(order) + len(kept))
        times, positions, pairs = self.times[kept], self.positions[kept], list(rows.pairs())
        bounds = (itertools.pairwise(at.tolist()) for at in (ends, node_at, event_at))
        for (key, last_key), (node, last_node), (event, last_event) in zip(*bounds, strict=True):
            of_part = [
                array
                for at, some in pairs
                for array in (at[key : last_key + 1] - at[key], some[at[key] : at[last_key]])
            ]
            yield Page(
                keys.slice(key, last_key - key),
                events.slice(event, last_event - event),
                times[event:last_event],
                positions[event:last_event],
                nodes[node:last_node],
                KeyRows(*of_part),
                round(row_bytes * (last_key - key + last_event - event)),
            )

    def of(self, keys: Ints) -> Page:
        """A page of some of the *keys*."""
        from asterism.matching import kernels

        rows = self.rows.of(keys)
        nodes, kept = kernels.compact(len(self.times), self.nodes, len(self.nodes), rows.run_rows, rows.waiting_rows)
        events = self.events.take(pa.array(kept))
        return Page(self.keys.take(pa.array(keys)), events, self.times[kept], self.positions[kept], nodes, rows)

    @property
    def nbytes(self) -> int:
        """About the bytes of its arrays and columns."""
        arrays = (self.times, self.positions, self.nodes, *self.rows)
        of_tables = self.keys.nbytes + self.events.nbytes if self.table_bytes is None else self.table_bytes
        return int(of_tables + sum(array.nbytes for array in arrays))

    def to_bytes(self) -> bytes:
        keys, events = batch_to_bytes(self.keys), batch_to_bytes(self.events)
        run_rows = np.where(self.rows.run_rows == NO_EVENT, _NARROW_NO_EVENT, self.rows.run_rows)
        arrays = [self.times, self.positions, self.nodes, *self.rows._replace(run_rows=run_rows)]
        sizes = np.array([len(keys), len(events), *(array.size for array in arrays)], np.int64)
        parts = [array.astype(kind).tobytes() for array, (_, kind) in zip(arrays, _ARRAYS, strict=True)]
        return record_of(Record.PAGE, sizes.tobytes(), *parts, keys, events)

    @classmethod
    def from_bytes(cls, value: bytes, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        layout = layout_of(value, Record.PAGE)
        at = BODY
        sizes = np.frombuffer(value, np.int64, 2 + len(_ARRAYS), at)
        at += sizes.nbytes
        arrays: list[Ints] = []
        for size, (columns, kind) in zip(sizes[2:].tolist(), _ARRAYS, strict=True):
            array = np.frombuffer(value, np.int64 if layout == FIRST_LAYOUT else kind, size, at)
            at += array.nbytes
            arrays.append((array.reshape(-1, columns) if columns else array).astype(np.int64))
        view = memoryview(value)
        key_bytes, event_bytes = int(sizes[0]), int(sizes[1])
        keys = batch_from_bytes(view[at : at + key_bytes], key_schema)
        events = batch_from_bytes(view[at + key_bytes : at + key_bytes + event_bytes], event_schema)
        times, positions, nodes, *of_keys = arrays
        rows = KeyRows(*of_keys)
        rows.run_rows[rows.run_rows == _NARROW_NO_EVENT] = NO_EVENT
        return cls(keys, events, times, positions, nodes, rows)


class DecodedPage:
    """A page that stays as it is in the memory of a live engine, see :class:`~asterism.operators.state.state_store.KeptPage`."""

    def __init__(self, page: Page) -> None:
        self.page, self._size = page, page.nbytes

    def __len__(self) -> int:
        return self._size

    def to_bytes(self) -> bytes:
        return self.page.to_bytes()


_ARRAYS: list[tuple[int, type[np.signedinteger[Any]]]] = [
    (0, np.int64), (0, np.int32), (3, np.int32), (0, np.int32), (3, np.int32), (0, np.int32), (3, np.int64), (0, np.int32),
    (1, np.int64),
]  # fmt: skip
"""The arrays of a page in the state: the number of columns, and the type. Numbers of events, nodes and rows have 32 bits."""
NO_EVENT = 2**62
"""Replaces the first event of a start state; the same number as in the kernels, which are loaded only to be run."""
_NARROW_NO_EVENT = 2**31 - 1
_TIMERS = 2
"""The index of the timers in :meth:`KeyRows.pairs`."""


def _shifted(arrays: Sequence[Ints], columns: Mapping[int, Sequence[int]], of: int | None = None) -> Ints:
    """All *arrays* in one. The numbers in *columns*, which refer to items of the given counts per array, become numbers of
    those items in all arrays together.

    :param of: only in rows where this column is not negative; otherwise negative numbers do not change
    """
    joined = np.concatenate(arrays)
    sizes = [len(array) for array in arrays]
    for column, counts in columns.items():
        shift = np.repeat(offsets_of(counts)[:-1], sizes)
        refers = joined[:, column if of is None else of] >= 0
        joined[refers, column] += shift[refers]
    return joined
