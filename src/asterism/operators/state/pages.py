"""The pages of state of a key group: their number, and those that a call reads and writes.

Keys are distributed over pages by a hash. A call reads and writes whole pages, those of the keys that have events or a
deadline. With a single page, each call costs as much as the whole state, which is best if it changes most of it; with many
pages, a call costs as much as the pages that it needs. The number of pages follows the size of the state and what calls need.

See docs/decisions/0033.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask, to_numpy
from asterism.columns.groups import KEY_HASH, group_codes
from asterism.columns.time import END_OF_TIME
from asterism.operators.state.group_header import NO_PAGE, UNKNOWN, GroupHeader
from asterism.operators.state.page_numbers import MAX_PAGES, page_number
from asterism.operators.state.state_store import KeptPage, StateStore

PAGE = "__page"
"""Column of prepared events of keyed inputs: the page of their key, if their number is fixed and there is more than one."""
PAGE_BYTES = 2**12
"""The maximum mean size of pages when state is divided. A call of few keys needs a page for each of them, of any size."""
_Written = tuple[bytes | KeptPage | None, int, int]
_NOTHING: _Written = (None, NO_PAGE, END_OF_TIME)
_PLACE = np.min_scalar_type(MAX_PAGES)
_STEP = 4
_SAMPLE = 16
_CALM = 64
"""The number of calls for which state is not divided again after most of its pages had a deadline in one call."""


class Pages:
    """The pages that a call reads and writes.

    :param events: the ready events of each keyed input
    :param keys: the names of their key columns
    :param due: a mask of the pages that have something to do without events
    :param fixed: whether the number of pages is fixed; the pages of events are then in the column PAGE
    :param last: whether no state remains after this call
    :param undivided: whether there must be one page
    """

    def __init__(
        self,
        store: StateStore,
        header: GroupHeader,
        events: Sequence[pa.Table],
        keys: Sequence[str],
        due: Mask,
        *,
        fixed: bool,
        last: bool,
        undivided: bool = False,
    ) -> None:
        self._store, self._header, self._fixed = store, header, fixed
        self.keeps = bool(getattr(store, "keeps_pages", False))
        """Whether a page may be written, and may have been, as a :class:`~asterism.operators.state.state_store.KeptPage`."""
        count = len(due)
        if header.size == UNKNOWN:
            only = store.read_page(0) if count == 1 and header.exists[0] else None
            header.size = 0 if only is None else len(only)
        tables = [table.select(list(keys)) for table in events]
        self._count = count if fixed or last else 1 if undivided else self._wanted(tables, due)
        if count == 1:
            of_rows = [np.zeros(table.num_rows, np.int64) for table in tables]
        elif fixed:
            of_rows = [table.column(PAGE).to_numpy().astype(np.int64) for table in events]
        else:
            of_rows = [pages_of(table, count) for table in tables]
        exists = header.exists
        needed = due | exists if self._count != count else due.copy()
        for rows in of_rows:
            needed[rows] = True
        self._numbers = np.flatnonzero(needed)
        self.of_events: list[Ints] = [np.searchsorted(self._numbers, rows) for rows in of_rows]
        """For each input, the indexes in *stored* of the pages of its events."""
        places = zip(self._places(self._numbers, count), exists[self._numbers].tolist(), strict=True)
        self.stored: list[Any] = [store.read_page(place) if is_there else None for place, is_there in places]
        """The pages that were read; None: there is no such page yet."""
        self.has_all = not (exists & ~needed).any()
        """Whether all pages that exist were read."""
        self._before = count

    @property
    def is_one(self) -> bool:
        """Whether all keys are written into one page."""
        return self._count == 1

    def of_keys(self, keys: pa.Table) -> Ints:
        """The indexes in :attr:`stored` of the pages of *keys*, which are in pages that were read."""
        return np.searchsorted(self._numbers, pages_of(keys, self._before))

    def _wanted(self, tables: Sequence[pa.Table], due: Mask) -> int:
        header, count = self._header, len(due)
        header.undivided = max(header.undivided - 1, 0)
        if count > 1 and 2 * int(due.sum()) > count:
            header.undivided = _CALM
            return count // _STEP
        if count == 1 and (header.undivided or header.size <= PAGE_BYTES):
            return 1
        # If the events have enough distinct keys to decide, a sample of this size shows it.
        sample = _SAMPLE * _grown(count, header.size)
        keys = sum(group_codes(table.slice(0, sample))[1] for table in tables)
        wanted = wanted_pages(count, header.size, keys)
        return min(wanted, count) if header.undivided else wanted

    def _places(self, numbers: Ints, count: int) -> list[int]:
        """Under which numbers pages are stored."""
        return [page_number(number, count, fixed=self._fixed) for number in numbers.tolist()]

    def rewrite(
        self,
        keys: Callable[[], pa.Table],
        page: Ints,
        encode: Callable[[Sequence[Ints]], Iterable[tuple[bytes | KeptPage, int, int]]],
    ) -> None:
        """Replace the contents of the pages that were read. Nothing is written if *encode* fails.

        :param keys: makes the keys that remain
        :param page: for each of them the index in :attr:`stored` of its page
        :param encode: for each of several sets of rows of these keys, makes a page, and the next event time and processing time
            at which it has something to do
        """
        header, store = self._header, self._store
        before = len(header.next_event_times)
        numbers, stored = self._numbers, self.stored
        if self._count != before:
            numbers, stored = np.arange(self._count), [None] * self._count
            page = pages_of(keys(), self._count)
        # NumPy sorts numbers of 16 bits in less time.
        order = np.argsort(page.astype(_PLACE), kind="stable") if len(numbers) > 1 else np.arange(len(page))
        ends = np.searchsorted(page[order], np.arange(len(numbers) + 1)).tolist()
        parts = [order[begin:end] for begin, end in itertools.pairwise(ends)]
        encoded = iter(list(encode([rows for rows in parts if len(rows)])))
        new = [next(encoded) if len(rows) else _NOTHING for rows in parts]
        if self._count != before:
            for place in self._places(np.flatnonzero(header.exists), before):
                store.write_page(place, None)
            header.redivide(self._count)
        self._put(numbers, stored, new)

    def discard(self) -> None:
        """Delete the pages that were read."""
        self._put(self._numbers, self.stored, [_NOTHING] * len(self.stored))

    def _put(self, numbers: Ints, stored: Sequence[Any], new: Sequence[_Written]) -> None:
        header, store = self._header, self._store
        pages, event_times, processing_times = zip(*new, strict=True) if new else ((), (), ())
        for place, old, page in zip(self._places(numbers, self._count), stored, pages, strict=True):
            if page != old:
                store.write_page(place, page)
        header.size += sum([len(page) for page in pages if page is not None])
        header.size -= sum([len(page) for page in stored if page is not None])
        header.next_event_times[numbers], header.next_processing_times[numbers] = event_times, processing_times


def wanted_pages(pages: int, size: int, keys: int) -> int:
    """The number of pages for *size* bytes of state, currently in *pages* pages, for a call with events of *keys* keys.

    >>> wanted_pages(1, 4_000_000, 30), wanted_pages(1, 4_000_000, 3000), wanted_pages(256, 4_000_000, 3000)
    (1024, 1, 64)
    """
    # A call that needs many of the pages is cheaper with fewer ones.
    if pages > 1 and (2 * keys > pages or size < pages * PAGE_BYTES // _STEP**2):
        return pages // _STEP
    # More pages have a larger size, so that it must have grown before they are divided again.
    grown = _grown(pages, size) if pages == 1 or size > 2 * pages * PAGE_BYTES else pages
    return grown if keys < grown // _STEP else pages


def kept_pages(size: int) -> int:
    """The least number of pages for *size* bytes of state that is not divided further as long as it does not grow.

    >>> kept_pages(4_000), kept_pages(30_000), kept_pages(4_000_000)
    (1, 4, 1024)
    """
    return 1 if size <= PAGE_BYTES else max(_STEP, _grown(1, size // 2))


def _grown(pages: int, size: int) -> int:
    while pages < MAX_PAGES and size > pages * PAGE_BYTES:
        pages *= _STEP
    return pages


def fixed_pages_of(events: pa.Table, pages: int) -> pa.Array:
    """The column PAGE, computed from other bits of KEY_HASH than those of the key group."""
    hashes = to_numpy(events.column(KEY_HASH)).view(np.uint64)
    return pa.array(((hashes >> np.uint64(32)) % np.uint64(pages)).astype(np.uint8))


def pages_of(keys: pa.Table, pages: int) -> Ints:
    """The page of each row of *keys*. This hash is independent of the one by which Spark finds the key group."""
    if pages == 1:
        return np.zeros(keys.num_rows, np.int64)
    # Compiled code is loaded only if it is needed.
    from asterism.columns.hashing import hash_keys

    return (hash_keys(keys) % np.uint64(pages)).astype(np.int64)
