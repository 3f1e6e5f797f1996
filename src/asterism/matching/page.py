"""The partial matches of a page of keys: their columns, and their format in the state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, empty_table, from_numpy
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
    size: int | None = None
    """About its bytes in memory, if they are known."""

    @classmethod
    def empty(cls, key_schema: pa.Schema, event_schema: pa.Schema) -> Page:
        none, at, timers = np.empty((0, 3), np.int64), np.zeros(1, np.int64), np.empty((0, 1), np.int64)
        numbers, rows = np.empty(0, np.int64), KeyRows(at, none, at, none, at, timers)
        return cls(empty_table(key_schema), empty_table(event_schema), numbers, numbers, none, rows)

    @classmethod
    def concat(cls, pages: Sequence[Page]) -> Page:
        """The keys of all *pages*, which are distinct, in this order."""
        if len(pages) == 1:
            return pages[0]
        from asterism.matching import kernels

        nodes = np.concatenate([page.nodes for page in pages])
        rows = KeyRows(*map(np.concatenate, zip(*(page.rows for page in pages), strict=True)))
        event_at, node_at, key_at = (
            offsets_of(counts)
            for counts in zip(
                *((len(page.times), len(page.nodes), len(page.rows[0]) - 1) for page in pages), strict=True
            )
        )
        return cls(
            # A table of many chunks takes long.
            pa.concat_tables([page.keys for page in pages]).combine_chunks(),
            pa.concat_tables([page.events for page in pages]),
            np.concatenate([page.times for page in pages]),
            np.concatenate([page.positions for page in pages]),
            nodes,
            kernels.join(event_at, node_at, key_at, nodes, rows),
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
            table.take(from_numpy(numbers)).combine_chunks()
            for table, numbers in ((self.keys, order), (self.events, kept))
        )
        times, positions = self.times[kept], self.positions[kept]
        of_keys = [_Divided.of(at, some, ends) for at, some in rows.pairs()]
        rows_of_parts = zip(*(arrays for each in of_keys for arrays in (each.at, each.rows)), strict=True)
        # Arrow takes long to find the bytes of a slice.
        row_bytes = (keys.nbytes + events.nbytes) / max(1, len(order) + len(kept))
        n_keys, n_events, n_nodes = np.diff(ends), np.diff(event_at), np.diff(node_at)
        sizes = row_bytes * (n_keys + n_events) + 8 * (2 * n_events + 3 * n_nodes + sum(each.sizes for each in of_keys))
        bounds = (itertools.pairwise(at.tolist()) for at in (ends, node_at, event_at))
        for (key, last_key), (node, last_node), (event, last_event), size, of_part in zip(
            *bounds, sizes.astype(np.int64).tolist(), rows_of_parts, strict=True
        ):
            yield Page(
                keys.slice(key, last_key - key),
                events.slice(event, last_event - event),
                times[event:last_event],
                positions[event:last_event],
                nodes[node:last_node],
                KeyRows(*of_part),
                size,
            )

    def of(self, keys: Ints) -> Page:
        """A page of some of the *keys*."""
        from asterism.matching import kernels

        rows = kernels.rows_of_keys(self.rows, keys)
        nodes, kept = kernels.compact(len(self.times), self.nodes, len(self.nodes), rows.run_rows, rows.waiting_rows)
        events = self.events.take(from_numpy(kept))
        return Page(self.keys.take(from_numpy(keys)), events, self.times[kept], self.positions[kept], nodes, rows)

    @property
    def nbytes(self) -> int:
        """About the bytes of its arrays and columns."""
        if self.size is not None:
            return self.size
        arrays = (self.times, self.positions, self.nodes, *self.rows)
        return int(self.keys.nbytes + self.events.nbytes + sum(array.nbytes for array in arrays))

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


class _Divided(NamedTuple):
    """The rows of one kind of keys, in parts.

    :ivar at: the offsets of the keys of each part, from 0 on
    :ivar rows: those of each part
    """

    at: list[Ints]
    rows: list[Ints]
    sizes: Ints

    @classmethod
    def of(cls, at: Ints, rows: Ints, ends: Ints) -> _Divided:
        """:param ends: where the keys of each part end, which begins with 0"""
        first, count = at[ends], np.arange(len(ends))
        begins = ends + count
        of_key = np.arange(begins[-1]) - np.repeat(count[:-1], np.diff(begins))
        offsets = at[of_key] - np.repeat(first[:-1], np.diff(begins))
        sizes = np.diff(begins) + rows.shape[1] * np.diff(first)
        return cls(
            [offsets[begin:end] for begin, end in itertools.pairwise(begins.tolist())],
            [rows[begin:end] for begin, end in itertools.pairwise(first.tolist())],
            sizes,
        )
