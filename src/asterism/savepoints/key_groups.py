"""The state of key groups as rows of keys, waiting events and a summary, and the state of another number of key groups.

What belongs to a key moves with it: partial matches, windows, entries of keyed state, timers, events that wait for the watermark.
What belongs to no key is the same in every key group: watermarks, broadcast state, the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.errors import StateError
from asterism.operators.evolution import FIXED
from asterism.operators.state.broadcast_state import pages_of_entries
from asterism.operators.state.group_header import NO_PAGE, GroupHeader
from asterism.operators.state.page_numbers import (
    BROADCAST_PAGE,
    DEFINITION_PAGE,
    MAX_PAGES,
    SETS_PAGE,
    PageKind,
    page_number,
)
from asterism.operators.state.pages import kept_pages, pages_of
from asterism.operators.state.partition_watermarks import PartitionWatermarks
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import StateStore, batch_from_bytes, batch_to_bytes
from asterism.operators.state.waiting_events import CHUNK_BYTES
from asterism.operators.stored_state import BROADCAST
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.plain_types import retyped, retyped_table

KEY_GROUP, KEY_HASH, THE_KEY, STATE = "key_group", "key_hash", "key", "state"
NEXT_EVENT_TIME, NEXT_PROCESSING_TIME = "next_event_time", "next_processing_time"
POSITION = "position"
_SAMPLE = 256
_CHUNK = 2**32
"""The distance between the positions of two chunks of waiting events."""


def rows_schema(states: KeyStates) -> pa.Schema:
    """The columns of :func:`rows_of_pages`. The times are those at which something is due without new events, or earlier."""
    return pa.schema(
        [
            (KEY_GROUP, pa.int32()),
            (THE_KEY, pa.struct([f.with_name(f.name.removeprefix("k:")) for f in states.keys])),
            (NEXT_EVENT_TIME, pa.int64()),
            (NEXT_PROCESSING_TIME, pa.int64()),
            (STATE, pa.struct(list(states.fields))),
        ]
    )


class StoredPage(NamedTuple):
    """A page of a key group that has state by key, with its number and the header of the key group."""

    key_group: int
    header: GroupHeader
    number: int
    value: bytes


def rows_of_pages(states: KeyStates, pages: Sequence[StoredPage]) -> pa.Table:
    """A row for each key of these pages, at least one."""
    keys, state, sizes = states.read_all([(page.value, page.number) for page in pages])
    indexes = [
        0 if page.number in states.others else _index_of(page.number, len(page.header.next_event_times))
        for page in pages
    ]
    times = np.array(
        [
            (page.header.next_event_times[index], page.header.next_processing_times[index])
            for page, index in zip(pages, indexes, strict=True)
        ],
        np.int64,
    )
    of_rows = np.repeat(times, sizes, axis=0)
    schema = rows_schema(states)
    columns = [
        pa.array(np.repeat(np.array([page.key_group for page in pages], np.int32), sizes)),
        pa.StructArray.from_arrays(
            [one_chunk(column) for column in keys.columns], fields=list(schema.field(THE_KEY).type)
        ),
        *(pa.array(np.ascontiguousarray(column)) for column in of_rows.T),
        pa.StructArray.from_arrays([state[f.name] for f in states.fields], fields=list(states.fields)),
    ]
    return pa.table(columns, schema=schema)


def _index_of(number: int, count: int) -> int:
    return number if number in PageKind.FIXED_KEYS.value else number - page_number(0, count, fixed=False)


def is_of_keys(states: KeyStates, number: int) -> bool:
    """Whether a page with this number has state by key."""
    return number in PageKind.FIXED_KEYS.value or number in PageKind.KEYS.value or number in states.others


def waiting_in(header: GroupHeader, number: int) -> list[tuple[int | None, int]]:
    """Where the waiting events of the input *number* are, with the position of the first: pages, and then the header (None)."""
    places: list[int | None] = [place for place, _ in header.chunks[number]]
    if header.buffers[number]:
        places.append(None)
    return [(place, _CHUNK * index) for index, place in enumerate(places)]


def waiting_rows(schema: pa.Schema, key_group: int, first: int, value: bytes) -> pa.Table:
    """The waiting events in a page or a header, as prepared, with KEY_GROUP and POSITION in front."""
    events = batch_from_bytes(value, schema)
    columns = [np.full(events.num_rows, key_group, np.int32), first + np.arange(events.num_rows)]
    return pa.table([*map(pa.array, columns), *events.columns], names=[KEY_GROUP, POSITION, *schema.names])


# ---------------------------------------------------------------------- what belongs to no key


@dataclass(frozen=True, slots=True)
class Summary:
    """What all key groups have in common, beside the rows of their keys. Times are microseconds.

    :param pages: the number of pages of a key group; None: it follows the size of the state. Where it does and there is a single
        page, the operator divides it when it is called.
    :param watermarks, last_activity: by input, as in :class:`GroupHeader`
    :param announced: whether there is a state without keys: the watermarks
    """

    definition: StateDefinition
    fingerprint: bytes
    pages: int | None
    watermark: int
    watermarks: Sequence[int]
    last_activity: Sequence[int]
    announced: bool
    partitions: Mapping[int, PartitionWatermarks] = field(default_factory=dict)

    @classmethod
    def of(cls, definition: StateDefinition, headers: Sequence[GroupHeader]) -> Summary:
        """
        :param headers: those of all key groups that have one, at least one
        :raises StateError: key groups have the state of different programs
        """
        fingerprints = {header.fingerprint for header in headers}
        if len(fingerprints) > 1:
            raise several_definitions()
        partitions: dict[int, PartitionWatermarks] = {}
        for header in headers:
            partitions.update(header.partitions)
        fixed = int(definition.details.get(FIXED, {}).get("pages", "1"))
        # A definition does not say whether a single page is fixed. Several pages are not, if one would be.
        divides = fixed == 1 and any(len(header.next_event_times) > 1 for header in headers)
        watermarks = np.max([header.watermarks for header in headers], axis=0)
        return cls(
            definition,
            headers[0].fingerprint,
            None if divides else fixed,
            max(header.watermark for header in headers),
            watermarks.tolist(),
            np.max([header.last_activity for header in headers], axis=0).tolist(),
            bool((watermarks != BEFORE_TIME).any()),
            partitions,
        )

    def to_dict(self) -> dict[str, Any]:
        names = list(self.definition.inputs)
        return {
            "fingerprint": self.fingerprint.hex(),
            "pages": self.pages,
            "watermark": self.watermark,
            "inputs": {
                name: {"watermark": watermark, "last_activity": activity}
                for name, watermark, activity in zip(names, self.watermarks, self.last_activity, strict=True)
            },
            "announced": self.announced,
            "partitions": {
                names[number]: {
                    "columns": list(partitions.columns),
                    "names": partitions.names,
                    "watermarks": partitions.watermarks.tolist(),
                    "last_activity": partitions.last_activity.tolist(),
                }
                for number, partitions in self.partitions.items()
            },
        }

    @classmethod
    def from_dict(cls, definition: StateDefinition, document: Mapping[str, Any]) -> Summary:
        """:raises ValueError: a number is not one"""
        names = list(definition.inputs)
        inputs = [document["inputs"][name] for name in names]
        partitions = {
            names.index(name): PartitionWatermarks(
                part["columns"],
                list(part["names"]),
                np.array(part["watermarks"], np.int64),
                np.array(part["last_activity"], np.int64),
            )
            for name, part in document["partitions"].items()
        }
        pages = document["pages"]
        if pages is not None and (type(pages) is not int or not 1 <= pages <= MAX_PAGES):
            raise ValueError(f"pages is {pages!r:.40}, not an integer from 1 to {MAX_PAGES:,}")
        times = [document["watermark"], *(part[name] for part in inputs for name in ("watermark", "last_activity"))]
        if any(type(time) is not int or not -(2**63) <= time < 2**63 for time in times):
            raise ValueError("a watermark is not a number of microseconds")
        if any(not len(each.names) == len(each.watermarks) == len(each.last_activity) for each in partitions.values()):
            raise ValueError("the partitions of an input have not the same number of watermarks")
        return cls(
            definition,
            bytes.fromhex(document["fingerprint"]),
            document["pages"],
            document["watermark"],
            [part["watermark"] for part in inputs],
            [part["last_activity"] for part in inputs],
            document["announced"],
            partitions,
        )


def several_definitions() -> StateError:
    return StateError(
        "key groups have the state of different programs",
        "The query was changed, and some key groups have not processed anything since.",
        "let the query process a micro-batch with data, which calls all key groups, and stop it again",
    )


def broadcast_tables(definition: StateDefinition) -> dict[str, pa.Schema]:
    """The schemas of broadcast states, by name."""
    tables = definition.tables.items()
    return {name.removeprefix(BROADCAST): schema for name, schema in tables if name.startswith(BROADCAST)}


# ---------------------------------------------------------------------- key groups


def groups_of(hashes: Ints, key_groups: int) -> Ints:
    """The key group of each key hash."""
    return (hashes.view(np.uint64) % np.uint64(key_groups)).astype(np.int64)


def write_group(
    store: StateStore,
    summary: Summary,
    states: KeyStates,
    rows: pa.Table | None,
    waiting: Mapping[str, pa.Table],
    broadcast: Mapping[str, pa.Table],
    sets: bytes | None = None,
) -> None:
    """Write the state of one key group to an empty store.

    :param rows: those of its keys, with KEY_HASH; None: it has none
    :param waiting: the events of each input that wait in it, in order
    :param broadcast: the entries of each broadcast state
    :param sets: the page of the sets of rules; None: there are no rules
    """
    header = GroupHeader(
        summary.fingerprint,
        np.full(1, NO_PAGE, np.int64),
        np.full(1, END_OF_TIME, np.int64),
        np.array(summary.watermarks, np.int64),
        np.array(summary.last_activity, np.int64),
        [b""] * len(summary.watermarks),
        summary.watermark,
        defined=True,
        partitions=dict(summary.partitions),
    )
    if rows is not None and rows.num_rows:
        _write_keys(store, header, summary, states, rows)
    else:
        header.redivide(summary.pages or 1)
    _write_waiting(store, header, summary.definition, waiting)
    if broadcast:
        index, pages = pages_of_entries(broadcast)
        for number, value in {**pages, BROADCAST_PAGE: index}.items():
            store.write_page(number, value)
    if sets is not None:
        store.write_page(SETS_PAGE, sets)
    waits = any(map(header.is_waiting, range(len(header.buffers))))
    if header.exists.any() or waits or summary.announced:
        store.write_page(DEFINITION_PAGE, summary.definition.to_bytes())
        store.write_header(header.to_bytes())


def _write_keys(store: StateStore, header: GroupHeader, summary: Summary, states: KeyStates, rows: pa.Table) -> None:
    hashes = one_chunk(rows.column(KEY_HASH)).to_numpy()
    key = one_chunk(rows.column(THE_KEY))
    columns = [retyped(column, field.type) for column, field in zip(key.flatten(), states.keys, strict=True)]
    keys = pa.table(columns, schema=states.keys)
    whole = retyped(one_chunk(rows.column(STATE)), pa.struct(list(states.fields)))
    by_name = dict(zip(states.fields.names, whole.flatten(), strict=True))
    undivided = states.is_undivided(by_name)
    count = 1 if undivided else summary.pages or kept_pages(_bytes_of(states, keys, by_name))
    header.redivide(count)
    for place, value in states.other_pages(keys, by_name):
        store.write_page(place, value)
    if summary.pages is not None:
        of_rows = ((hashes.view(np.uint64) >> np.uint64(32)) % np.uint64(count)).astype(np.int64)
    else:
        of_rows = pages_of(states.in_pages(keys), count)
    order = np.argsort(of_rows, kind="stable")
    chosen = pa.array(order)
    keys, state = keys.take(chosen), whole.take(chosen)
    times = [
        one_chunk(rows.column(name)).to_numpy()[order].astype(np.int64)
        for name in (NEXT_EVENT_TIME, NEXT_PROCESSING_TIME)
    ]
    sizes = np.bincount(of_rows, minlength=count)
    used = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[used])
    fields = dict(zip(states.fields.names, state.flatten(), strict=True))
    for index, value in zip(used.tolist(), states.divided(keys, fields, ends.tolist()), strict=True):
        store.write_page(page_number(index, count, fixed=summary.pages is not None), value)
        header.size += len(value)
    begins = ends - sizes[used]
    header.next_event_times[used] = np.maximum(np.minimum.reduceat(times[0], begins), NO_PAGE + 1)
    header.next_processing_times[used] = np.minimum.reduceat(times[1], begins)


def _bytes_of(states: KeyStates, keys: pa.Table, state: Mapping[str, pa.Array]) -> int:
    """About the bytes of the state of *keys* in pages, by some of them."""
    count: int = keys.num_rows
    some = min(count, _SAMPLE)
    sample = {name: column.slice(0, some) for name, column in state.items()}
    return len(states.written(keys.slice(0, some), sample)) * count // some


def _write_waiting(
    store: StateStore, header: GroupHeader, definition: StateDefinition, waiting: Mapping[str, pa.Table]
) -> None:
    place = PageKind.WAITING_EVENTS.first
    for number, (name, schema) in enumerate(definition.inputs.items()):
        events = waiting.get(name)
        if events is None or not events.num_rows:
            continue
        events = retyped_table(events, schema)
        value = batch_to_bytes(events)
        if len(value) <= CHUNK_BYTES:
            header.buffers[number] = value
            continue
        step = max(1, events.num_rows * CHUNK_BYTES // len(value))
        for first in range(0, events.num_rows, step):
            part = events.slice(first, step)
            store.write_page(place, batch_to_bytes(part))
            header.chunks[number].append((place, int(part.column(TIME).to_numpy().min())))
            place += 1


def next_times(header: GroupHeader, definition: StateDefinition) -> tuple[int, int]:
    """The next event time and processing time at which the operator must be called, or earlier ones."""
    event_time = header.first_event_time
    for number, schema in enumerate(definition.inputs.values()):
        event_time = min([event_time, *(first for _, first in header.chunks[number])])
        if header.buffers[number]:
            waiting = batch_from_bytes(header.buffers[number], schema).column(TIME).to_numpy()
            event_time = min(event_time, int(waiting.min()))
    return event_time, header.first_processing_time


def merged_entries(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """The entries of a broadcast state from its parts, in order."""
    return pa.concat_tables([schema.empty_table(), *tables])
