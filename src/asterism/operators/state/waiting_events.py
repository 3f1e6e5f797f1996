"""The events of a key group that wait for the watermark.

The latest are in the header, which every call reads and writes. When they have more than CHUNK_BYTES, they become a chunk: a page
that is read again only when the watermark has passed the first of its events. So a call costs as much as the events that arrive
and pass, and not as much as those that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from asterism.columns.arrays import from_numpy, to_numpy
from asterism.columns.time import END_OF_TIME, TIME
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import PageKind
from asterism.operators.state.state_store import StateStore, batch_from_bytes, batch_to_bytes

CHUNK_BYTES = 2**16


class WaitingEvents:
    """The waiting events of the input *number*, whose prepared events have this *schema*."""

    def __init__(self, store: StateStore, header: GroupHeader, number: int, schema: pa.Schema) -> None:
        self._store, self._header, self._number, self._schema = store, header, number, schema

    def first_time(self) -> int:
        """The time of the first of them; the end of time if there is none."""
        recent, chunks = self._header.buffers[self._number], self._header.chunks[self._number]
        first = min((first for _, first in chunks), default=END_OF_TIME)
        return min(first, _first_time(batch_from_bytes(recent, self._schema))) if recent else first

    def replace(self, function: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the events by what *function* makes of them, whose times are the same."""
        header, number = self._header, self._number
        if header.buffers[number]:
            header.buffers[number] = batch_to_bytes(function(batch_from_bytes(header.buffers[number], self._schema)))
        for place, _ in header.chunks[number]:
            stored = self._store.read_page(place)
            assert stored is not None
            self._store.write_page(place, batch_to_bytes(function(batch_from_bytes(stored, self._schema))))

    def exchange(self, arrived: Sequence[pa.Table], watermark: int) -> list[pa.Table]:
        """Add the events that have *arrived*, and remove and return those that the watermark has passed, in arrival order."""
        header, number = self._header, self._number
        ready: list[pa.Table] = []
        chunks = []
        for place, first in header.chunks[number]:
            if first > watermark:
                chunks.append((place, first))
                continue
            stored = self._store.read_page(place)
            assert stored is not None
            # The rest stays in its place, which keeps the order of arrival.
            passed, rest = _divided(batch_from_bytes(stored, self._schema), watermark)
            ready.append(passed)
            self._store.write_page(place, batch_to_bytes(rest) if rest.num_rows else None)
            if rest.num_rows:
                chunks.append((place, _first_time(rest)))
        header.chunks[number] = chunks
        recent = header.buffers[number]
        tables = [batch_from_bytes(recent, self._schema)] if recent else []
        tables += arrived
        if not tables:
            return ready
        passed, rest = _divided(pa.concat_tables(tables), watermark)
        if arrived or passed.num_rows:
            header.buffers[number] = batch_to_bytes(rest) if rest.num_rows else b""
        if len(header.buffers[number]) > CHUNK_BYTES:
            places = PageKind.WAITING_EVENTS
            place = 1 + max((place for some in header.chunks for place, _ in some), default=places.first - 1)
            self._store.write_page(place, header.buffers[number])
            header.chunks[number].append((place, _first_time(rest)))
            header.buffers[number] = b""
        return [*ready, passed]


def _divided(events: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
    """The events that the watermark has passed, and the others."""
    passed = to_numpy(events.column(TIME)) <= watermark
    if passed.all():
        return events, events.slice(0, 0)
    if not passed.any():
        return events.slice(0, 0), events
    return events.filter(from_numpy(passed)), events.filter(from_numpy(~passed))


def _first_time(events: pa.Table) -> int:
    return int(to_numpy(events.column(TIME)).min())
