"""The partial matches of a page of keys: their columns, their format in the state, and the form in which they stay in memory.

See docs/decisions/0189.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    batch_of,
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

    def packed(self, parts: Sequence[Ints]) -> Iterator[PackedPage]:
        """A page of the keys of each of *parts*, none of which is empty. They share their arrays."""
        if len(parts) > 1 and max(self.keys.nbytes, self.events.nbytes) > MAX_BATCH:
            middle = len(parts) // 2
            for half in (parts[:middle], parts[middle:]):
                yield from self.of(np.concatenate(half)).packed(_renumbered(half))
            return
        from asterism.matching import kernels

        order, ends = np.concatenate(parts), offsets_of([len(part) for part in parts])
        at, numbers, event_at, kept = kernels.divide(self.times, self.positions, self.nodes, self.rows, order, ends)
        keys, events = batch_of(self.keys.take(from_numpy(order))), batch_of(self.events.take(from_numpy(kept)))
        # Arrow takes long to find the bytes of a slice.
        row_bytes = (keys.nbytes + events.nbytes) // max(1, len(order) + len(kept))
        bounds = (itertools.pairwise(offsets.tolist()) for offsets in (at, ends, event_at))
        for (begin, end), (key, last_key), (event, last_event) in zip(*bounds, strict=True):
            n_keys, n_events = last_key - key, last_event - event
            yield PackedPage(
                numbers[begin:end],
                keys.slice(key, n_keys),
                events.slice(event, n_events),
                row_bytes * (n_keys + n_events) + 8 * (end - begin),
            )

    def as_packed(self) -> PackedPage:
        """All keys, as a page stays in memory."""
        return next(self.packed([np.arange(self.keys.num_rows)]))

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


class PackedPage:
    """A page as it stays in the memory of a live engine, see :class:`~asterism.operators.state.state_store.KeptPage`.

    :param numbers: everything but *keys* and *events*, in the format of :func:`asterism.matching.kernels.divide`
    :param size: about its bytes in memory
    """

    __slots__ = ("_size", "events", "keys", "numbers")

    def __init__(self, numbers: Ints, keys: pa.RecordBatch, events: pa.RecordBatch, size: int) -> None:
        self.numbers, self.keys, self.events, self._size = numbers, keys, events, size

    def __len__(self) -> int:
        return self._size

    @property
    def page(self) -> Page:
        return self.joined([self])

    @classmethod
    def joined(cls, pages: Sequence[PackedPage]) -> Page:
        """The keys of all *pages*, which are distinct, in this order."""
        from asterism.matching import kernels

        keys, events = (
            pa.Table.from_batches(batches).combine_chunks()
            for batches in ([page.keys for page in pages], [page.events for page in pages])
        )
        return Page(keys, events, *kernels.together(np.concatenate([page.numbers for page in pages])))

    def to_bytes(self) -> bytes:
        """As :meth:`Page.to_bytes`."""
        return self.stored_with(self.keys)

    def stored_with(self, keys: pa.RecordBatch) -> bytes:
        """:param keys: in place of its own"""
        from asterism.matching import kernels

        sizes, arrays = kernels.stored_arrays(self.numbers)
        parts = bytes(keys.serialize()), bytes(self.events.serialize())
        lengths = np.array([len(part) for part in parts], np.int64)
        return record_of(Record.PAGE, lengths.tobytes(), sizes.tobytes(), arrays.tobytes(), *parts)


class DecodedPage:
    """The only page of an operator, as it stays in the memory of a live engine."""

    def __init__(self, page: Page) -> None:
        self.page, self._size = page, page.nbytes

    def __len__(self) -> int:
        return self._size

    def to_bytes(self) -> bytes:
        return self.page.to_bytes()


def resident(page: Page, parts: Sequence[Ints]) -> Iterator[PackedPage | DecodedPage]:
    """The keys of each of *parts*, as they stay in memory."""
    if len(parts) > 1:
        return page.packed(parts)
    return (DecodedPage(page if len(part) == page.keys.num_rows else page.of(part)) for part in parts)


def together(pages: Sequence[PackedPage | Page]) -> Page:
    """The keys of all *pages*, which are distinct, in this order."""
    packed = [page for page in pages if isinstance(page, PackedPage)]
    if not packed:
        return Page.concat([page for page in pages if isinstance(page, Page)])
    # After a restart, some pages are from the snapshot.
    return PackedPage.joined([page if isinstance(page, PackedPage) else page.as_packed() for page in pages])


def _renumbered(parts: Sequence[Ints]) -> list[Ints]:
    """The numbers of the keys of each of *parts* among those of all of them."""
    ends = offsets_of([len(part) for part in parts]).tolist()
    return [np.arange(begin, end) for begin, end in itertools.pairwise(ends)]


_ARRAYS: list[tuple[int, type[np.signedinteger[Any]]]] = [
    (0, np.int64), (0, np.int32), (3, np.int32), (0, np.int32), (3, np.int32), (0, np.int32), (3, np.int64), (0, np.int32),
    (1, np.int64),
]  # fmt: skip
"""The arrays of a page in the state: the number of columns, and the type. Numbers of events, nodes and rows have 32 bits."""
NO_EVENT = 2**62
"""Replaces the first event of a start state; the same number as in the kernels, which are loaded only to be run."""
_NARROW_NO_EVENT = 2**31 - 1
MAX_BATCH = 2**30
"""The number of bytes of keys or events up to which these are one batch: Arrow has a limit for text."""
