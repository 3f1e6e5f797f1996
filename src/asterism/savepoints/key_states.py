"""The pages of operators as one row for each key, and back.

A row has the key and its *state*: a struct whose fields are mostly lists, such as the partial matches of the key and their
events. References between the lists of a key, such as from a partial match to its first event, are positions in these lists. So
a row is complete in itself: rows can be moved to other key groups, removed, and read without the rest.

See docs/decisions/0128.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, cast_table, cast_to, one_chunk
from asterism.columns.groups import first_rows, group_codes, offsets_of
from asterism.columns.time import BEFORE_TIME
from asterism.matching.key_rows import KeyRows
from asterism.matching.page import NO_EVENT, Page, resident
from asterism.matching.stored_matches import CHANGE, lowest_state
from asterism.operators.evolution import STATES_OF_WINDOW_FUNCTIONS
from asterism.operators.operator import EVENTS
from asterism.operators.state.keyed_state import KEY
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.operators.state.state_store import (
    additions_from_bytes,
    tables_by_name,
    tables_to_bytes,
    with_additions,
)
from asterism.operators.stored_state import of_keys
from asterism.row_patterns.stored_searches import ROWS
from asterism.savepoints.rows.nested import (
    as_structs,
    as_table,
    list_of_rows,
    listed,
    sizes_of,
    unlisted,
    without,
)
from asterism.savepoints.rows.references import check_matches, check_nodes, check_progress, check_sizes, check_within
from asterism.windows.plan import UNFIRED
from asterism.windows.session_ids import IDS, REPLACES, SESSION_ID
from asterism.windows.stored_windows import FUNCTION_KEYS, FUNCTION_STATE, PANES, WINDOW_STATE

_NOTHING = np.empty(0, np.int64)
_EMPTIED = "emptied"
NODES, PARTIAL_MATCHES = "nodes", "partial_matches"
"""The fields of the state of a pattern that others change."""
State = Mapping[str, pa.Array]
"""The state of keys: the fields by name, with a value for each key."""


class KeyStates(ABC):
    """Reads and writes the pages of an operator.

    :ivar keys: the key columns, as they are stored
    :ivar fields: the fields of the state
    """

    keys: pa.Schema
    fields: pa.Schema
    others: Sequence[int] = ()
    """The numbers of the pages that have state by key, beside the pages of keys."""

    def __init__(self, definition: StateDefinition) -> None:
        self.definition = definition

    @abstractmethod
    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        """The keys of a page, and the state of each.

        :param number: that of the page
        """

    def read_all(self, pages: Sequence[tuple[bytes, int]]) -> tuple[pa.Table, State, list[int]]:
        """The keys of several pages, the state of each, and how many keys each page has.

        :param pages: with their numbers
        """
        parts = [self.read(page, number) for page, number in pages]
        state = {name: pa.concat_arrays([of_page[name] for _, of_page in parts]) for name in self.fields.names}
        return pa.concat_tables([keys for keys, _ in parts]), state, [keys.num_rows for keys, _ in parts]

    @abstractmethod
    def written(self, keys: pa.Table, state: State) -> bytes:
        """A page of *keys*, each of them once, with their *state*."""

    def divided(self, keys: pa.Table, state: State, ends: Sequence[int]) -> Iterator[bytes]:
        """Several pages of consecutive *keys*.

        :param ends: where each page ends
        """
        for begin, end in pairwise([0, *ends]):
            part = {name: column.slice(begin, end - begin) for name, column in state.items()}
            yield self.written(keys.slice(begin, end - begin), part)

    def other_pages(self, keys: pa.Table, state: State) -> Iterable[tuple[int, bytes]]:
        """The other pages of a key group, with their numbers."""
        return ()

    def hashes(self, keys: pa.Table) -> Ints | None:
        """The hashes by which keys are distributed; None: Spark's ``xxhash64`` of their columns."""
        return None

    def waiting_hashes(self, events: pa.Table) -> Ints | None:
        """As :meth:`hashes`, of the keys of events that wait."""
        return None

    def in_pages(self, keys: pa.Table) -> pa.Table:
        """The columns by which keys are divided into pages."""
        return keys

    def is_undivided(self, state: State) -> bool:
        """Whether the operator has all of this *state* in one page."""
        return False


class PatternStates(KeyStates):
    """Events in the order of the page; nodes, each an event that was accepted in a stage after the parent node."""

    NODES, PARTIAL, WAITING, TIMERS = NODES, PARTIAL_MATCHES, "waiting_matches", "timers"
    _EVENT: ClassVar = [("time", pa.int64()), ("position", pa.int64())]
    _NODE = pa.schema([("event", pa.int64()), ("stage", pa.int64()), ("parent", pa.int64())])
    _ROW = pa.schema([("event", pa.int64()), ("node", pa.int64()), ("state", pa.int64())])

    def __init__(self, definition: StateDefinition) -> None:
        super().__init__(definition)
        self.keys, self.events = definition.tables[KEYS_TABLE], definition.tables[EVENTS]
        self.fields = pa.schema(
            [
                (EVENTS, list_of_rows(pa.schema([*pa.schema(self._EVENT), *self.events]))),
                (self.NODES, list_of_rows(self._NODE)),
                (self.PARTIAL, list_of_rows(self._ROW)),
                (self.WAITING, list_of_rows(self._ROW)),
                (self.TIMERS, pa.list_(pa.int64())),
            ]
        )

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        return self._read(Page.from_bytes(page, self.keys, self.events))

    def read_all(self, pages: Sequence[tuple[bytes, int]]) -> tuple[pa.Table, State, list[int]]:
        parts = [Page.from_bytes(page, self.keys, self.events) for page, _ in pages]
        return *self._read(Page.concat(parts)), [part.keys.num_rows for part in parts]

    def _read(self, whole: Page) -> tuple[pa.Table, State]:
        count = whole.keys.num_rows
        whole = replace(whole, keys=whole.keys.combine_chunks(), events=whole.events.combine_chunks())
        whole = whole.of(np.arange(count))  # without what nothing refers to
        rows = whole.rows
        of_runs, of_waiting = (np.repeat(np.arange(count), np.diff(at)) for at in (rows.run_at, rows.waiting_at))
        of_events, of_nodes, event_place, node_place, nodes = separated(whole, of_runs, of_waiting, count)
        events = pa.table([pa.array(whole.times), pa.array(whole.positions), *whole.events.columns],
                          names=[*dict(self._EVENT), *self.events.names])  # fmt: skip
        return whole.keys, {
            EVENTS: listed(as_structs(events), of_events, count),
            self.NODES: listed(structs_of(nodes, self._NODE), of_nodes, count),
            self.PARTIAL: listed(
                structs_of(moved_rows(rows.run_rows, event_place, node_place), self._ROW), of_runs, count
            ),
            self.WAITING: listed(
                structs_of(moved_rows(rows.waiting_rows, event_place, node_place), self._ROW), of_waiting, count
            ),
            self.TIMERS: listed(
                pa.array(rows.timer_rows[:, 0]), np.repeat(np.arange(count), np.diff(rows.timer_at)), count
            ),
        }

    def divided(self, keys: pa.Table, state: State, ends: Sequence[int]) -> Iterator[bytes]:
        parts = [np.arange(begin, end) for begin, end in pairwise([0, *ends])]
        for page in resident(self._page(keys, state), parts):
            yield page.to_bytes()

    def written(self, keys: pa.Table, state: State) -> bytes:
        return self._page(keys, state).to_bytes()

    def _page(self, keys: pa.Table, state: State) -> Page:
        events, _ = unlisted(state[EVENTS])
        details = self.definition.details
        buffer = JoinedBuffer.of(state, len(details["stages"]))
        parts: list[Ints] = []
        for name in (self.PARTIAL, self.WAITING):
            rows, of_rows = numbers_in(state[name])
            buffer.refer(rows, of_rows, waiting=name == self.WAITING)
            if name == self.PARTIAL:
                check_within("state", rows[:, 2], lowest_state(details.get(CHANGE)), len(details["states"]))
            parts += offsets_of(sizes_of(state[name])), rows
        timers = state[self.TIMERS]
        parts += offsets_of(sizes_of(timers)), _ints(timers.flatten()).reshape(-1, 1)
        times, positions = (_ints(one_chunk(events.column(name))) for name in dict(self._EVENT))
        kept = pa.table([cast_to(events.column(f.name), f.type) for f in self.events], schema=self.events)
        if not self.events.names:
            kept = events.select([])
        return Page(keys, kept, times, positions, buffer.nodes, KeyRows(*parts))


class SeparatedBuffer(NamedTuple):
    """The events and nodes that the keys of a page share, as those of each key alone.

    :ivar nodes: with places in place of numbers
    """

    of_events: Ints
    of_nodes: Ints
    event_place: Ints
    node_place: Ints
    nodes: Ints


def separated(whole: Page, of_runs: Ints, of_waiting: Ints, count: int) -> SeparatedBuffer:
    """
    :param of_runs, of_waiting: the keys of the partial matches, and of the matches that wait
    :param count: the number of keys
    """
    rows = whole.rows
    of_nodes = _owners_of_nodes(
        whole.nodes, np.concatenate([rows.run_rows, rows.waiting_rows]), np.concatenate([of_runs, of_waiting])
    )
    of_events = np.zeros(len(whole.times), np.int64)
    of_events[whole.nodes[:, 0]] = of_nodes
    event_place, node_place = places_of(of_events, count), places_of(of_nodes, count)
    nodes = whole.nodes.copy()
    nodes[:, 0] = event_place[nodes[:, 0]]
    has_parent = nodes[:, 2] >= 0
    nodes[has_parent, 2] = node_place[nodes[has_parent, 2]]
    return SeparatedBuffer(of_events, of_nodes, event_place, node_place, nodes)


def _owners_of_nodes(nodes: Ints, rows: Ints, owners: Ints) -> Ints:
    """For each node the key of the rows that lead to it. Every node has one."""
    of_nodes = np.full(len(nodes), -1, np.int64)
    refers = rows[:, 1] >= 0
    at, of_at = rows[refers, 1], owners[refers]
    while len(at):
        of_nodes[at] = of_at
        parents = nodes[at, 2]
        new = parents >= 0
        new[new] = of_nodes[parents[new]] < 0
        at, of_at = parents[new], of_at[new]
    return of_nodes


class JoinedBuffer(NamedTuple):
    """The events and nodes of several keys together: the reverse of :class:`SeparatedBuffer`.

    :ivar nodes: with numbers among all of them
    :ivar events, sizes: how many events and nodes each key has
    :ivar event_at, node_at: the numbers of the first ones
    """

    nodes: Ints
    events: Ints
    sizes: Ints
    event_at: Ints
    node_at: Ints

    @classmethod
    def of(cls, state: State, stages: int) -> JoinedBuffer:
        """
        :param state: with the lists EVENTS and NODES
        :param stages: how many stages there are
        :raises StateError: a node refers to what is not there
        """
        nodes, owners = numbers_in(state[NODES])
        events, sizes = sizes_of(state[EVENTS]), sizes_of(state[NODES])
        check_nodes(nodes, owners, events, sizes, stages)
        event_at, node_at = offsets_of(events)[:-1], offsets_of(sizes)[:-1]
        nodes[:, 0] += event_at[owners]
        nodes[:, 2] += np.where(nodes[:, 2] >= 0, node_at[owners], 0)
        return cls(nodes, events, sizes, event_at, node_at)

    def refer(self, rows: Ints, owners: Ints, *, waiting: bool) -> None:
        """Make numbers of the places in rows of a first event, a last node, and a state.

        :param owners: the key of each
        :param waiting: whether they are matches that wait, and not partial ones
        :raises StateError: a row refers to what is not there
        """
        check_matches(rows, owners, self.events, self.sizes, waiting=waiting)
        refers = rows[:, 1] >= 0
        rows[refers, 0] += self.event_at[owners[refers]]
        rows[refers, 1] += self.node_at[owners[refers]]


def places_of(owners: Ints, count: int) -> Ints:
    """For each item its place among those of its owner."""
    order = np.argsort(owners, kind="stable")
    begins = offsets_of(np.bincount(owners, minlength=count))[:-1]
    places = np.empty(len(owners), np.int64)
    places[order] = np.arange(len(owners)) - begins[owners[order]]
    return places


def moved_rows(rows: Ints, event_place: Ints, node_place: Ints) -> Ints:
    moved = rows.copy()
    refers = (rows[:, 1] >= 0) & (rows[:, 0] != NO_EVENT)
    moved[refers, 0], moved[refers, 1] = event_place[rows[refers, 0]], node_place[rows[refers, 1]]
    return moved


def structs_of(numbers: Ints, schema: pa.Schema) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(column) for column in numbers.T], fields=list(schema))


def numbers_in(lists: pa.ListArray) -> tuple[Ints, Ints]:
    """The numbers in lists of structs, a row for each struct, and the owner of each row."""
    rows, owners = unlisted(lists)
    return np.stack([_ints(one_chunk(column)) for column in rows.columns], 1), owners


def _ints(array: pa.Array) -> Ints:
    numbers: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=True)
    return numbers


class RowPatternStates(KeyStates):
    """The rows of the key that are not decided or may still be read, and the progress of its search."""

    PROGRESS = "search"

    def __init__(self, definition: StateDefinition) -> None:
        super().__init__(definition)
        self.keys = pa.schema([f for f in definition.tables[KEYS_TABLE] if not f.name.startswith("p:")])
        self.progress = without(definition.tables[KEYS_TABLE], self.keys.names)
        self.rows = definition.tables[ROWS]
        self.fields = pa.schema([(self.PROGRESS, pa.struct(list(self.progress))), (ROWS, list_of_rows(self.rows))])

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        tables = tables_by_name(page, self.definition.tables)
        keys, rows = tables[KEYS_TABLE], tables[ROWS]
        sizes = keys.column("p:rows").to_numpy()
        lists = listed(as_structs(rows), np.repeat(np.arange(len(sizes)), sizes), len(sizes))
        return keys.select(self.keys.names), {self.PROGRESS: as_structs(keys.select(self.progress.names)), ROWS: lists}

    def written(self, keys: pa.Table, state: State) -> bytes:
        progress = as_table(state[self.PROGRESS])
        sizes = sizes_of(state[ROWS])
        check_sizes("rows", _ints(one_chunk(progress.column("p:rows"))), sizes)
        for name in ("next_start", "covered"):
            check_progress(name, _ints(one_chunk(progress.column(f"p:{name}"))), sizes)
        whole = pa.table([*keys.columns, *progress.columns], schema=self.definition.tables[KEYS_TABLE])
        return tables_to_bytes([whole, cast_table(unlisted(state[ROWS])[0], self.rows)])


class JoinStates(KeyStates):
    """The rows of each input that may still join others."""

    def __init__(self, definition: StateDefinition) -> None:
        super().__init__(definition)
        first = next(iter(definition.tables.values()))
        self.keys = pa.schema([field for field in first if field.name.startswith("k:")])
        self.rows = {name: without(schema, self.keys.names) for name, schema in definition.tables.items()}
        self.fields = pa.schema([(name, list_of_rows(schema)) for name, schema in self.rows.items()])

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        tables = tables_by_name(page, self.definition.tables)
        keys, of_tables = _keys_in([table.select(self.keys.names) for table in tables.values()])
        state = {
            name: listed(as_structs(table.select(self.rows[name].names)), owners, keys.num_rows)
            for (name, table), owners in zip(tables.items(), of_tables, strict=True)
        }
        return keys, state

    def written(self, keys: pa.Table, state: State) -> bytes:
        tables = []
        for name, schema in self.definition.tables.items():
            rows, owners = unlisted(state[name])
            tables.append(_with_keys(keys, owners, rows, schema))
        return tables_to_bytes(tables)


def _keys_in(tables: list[pa.Table]) -> tuple[pa.Table, list[Ints]]:
    """The distinct keys of several tables, and for each table the key of each row."""
    keys = pa.concat_tables(tables)
    codes, count = group_codes(keys)
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return keys.take(pa.array(first_rows(codes, count))), np.split(codes, ends)


def _with_keys(keys: pa.Table, owners: Ints, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    of_rows = keys.take(pa.array(owners))
    columns = [(of_rows if f.name in of_rows.column_names else rows).column(f.name) for f in schema]
    return pa.table([cast_to(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)


class OperatorStates(KeyStates):
    """The entries of each keyed state, the timers, and the elements that wait to be selected."""

    def __init__(self, definition: StateDefinition) -> None:
        super().__init__(definition)
        self.tables = of_keys(definition.tables)
        self.keys = self.tables[KEYS_TABLE]
        self.fields = pa.schema(
            [(name, list_of_rows(without(schema, [KEY]))) for name, schema in self.tables.items() if name != KEYS_TABLE]
        )

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        tables = tables_by_name(page, self.tables)
        keys = tables.pop(KEYS_TABLE)
        return keys, {name: _by_index(rows, keys.num_rows) for name, rows in tables.items()}

    def written(self, keys: pa.Table, state: State) -> bytes:
        rest = [_with_index(state[name], schema) for name, schema in self.tables.items() if name != KEYS_TABLE]
        return tables_to_bytes([keys, *rest])


def _by_index(rows: pa.Table, count: int) -> pa.ListArray:
    """The rows of a table by their column KEY, which has the index of their owner."""
    owners = rows.column(KEY).to_numpy().astype(np.int64)
    return listed(as_structs(rows.drop_columns([KEY])), owners, count)


def _with_index(lists: pa.ListArray, schema: pa.Schema) -> pa.Table:
    rows, owners = unlisted(lists)
    columns = [pa.array(owners) if f.name == KEY else rows.column(f.name) for f in schema]
    return pa.table([cast_to(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)


class WindowsStates(KeyStates):
    """The windows of the key, each with its elements or aggregates; the states of a window function."""

    SEEN, ELEMENTS, ADDED, WORDS = "seen", "elements", "added", "words"
    _ADDED = pa.schema([(UNFIRED, pa.int64()), (_EMPTIED, pa.int64()), (SESSION_ID, pa.string()), (REPLACES, IDS)])

    def __init__(self, definition: StateDefinition) -> None:
        super().__init__(definition)
        tables = definition.tables
        panes = tables[PANES]
        self.keys = pa.schema(list(panes)[: panes.get_field_index("start")])
        self.panes = without(panes, self.keys.names)
        self.by_key = [name for name in tables if name.startswith(FUNCTION_STATE)]
        self.by_window = [name for name in tables if name.startswith(WINDOW_STATE)]
        self.has_rows = "rows" in tables
        fields = [f if f.name != self.WORDS else pa.field(f.name, pa.list_(pa.int64())) for f in self.panes]
        if self.has_rows:
            fields.append(pa.field(self.ELEMENTS, list_of_rows(tables["rows"])))
        fields += [pa.field(name, list_of_rows(without(tables[name], [KEY]))) for name in self.by_window]
        fields.append(pa.field(self.ADDED, pa.struct(list(self._ADDED))))
        self.fields = pa.schema(
            [
                (self.SEEN, pa.int64()),
                (PANES, pa.list_(pa.struct(fields))),
                *((name, list_of_rows(without(tables[name], [KEY]))) for name in self.by_key),
            ]
        )

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        tables = tables_by_name(page, self.definition.tables)
        panes = tables[PANES]
        seen = next(iter(tables["seen"].column(0).to_pylist()), BEFORE_TIME)
        with_state = tables.get(FUNCTION_KEYS, panes.select(self.keys.names).slice(0, 0))
        keys, (of_panes, of_states) = _keys_in([panes.select(self.keys.names), with_state])
        count = panes.num_rows
        columns = {f.name: one_chunk(panes.column(f.name)) for f in self.panes}
        columns[self.WORDS] = _variable(columns[self.WORDS])
        if self.has_rows:
            sizes = panes.column("count").to_numpy()
            columns[self.ELEMENTS] = listed(as_structs(tables["rows"]), np.repeat(np.arange(count), sizes), count)
        columns |= {name: _by_index(tables[name], count) for name in self.by_window}
        columns[self.ADDED] = self._added(additions_from_bytes(page, len(tables)), count)
        state: dict[str, pa.Array] = {
            self.SEEN: pa.array(np.full(keys.num_rows, seen, np.int64)),
            PANES: listed(as_structs(pa.table(columns)), of_panes, keys.num_rows),
        }
        for name in self.by_key:
            owners = of_states[tables[name].column(KEY).to_numpy()]
            state[name] = listed(as_structs(tables[name].drop_columns([KEY])), owners, keys.num_rows)
        return keys, state

    def _added(self, added: pa.Table | None, count: int) -> pa.StructArray:
        if added is None:
            return pa.nulls(count, pa.struct(list(self._ADDED)))
        defaults = {_EMPTIED: pa.array(np.zeros(count, np.int64)), REPLACES: pa.array([[]] * count, IDS)}
        columns = [
            one_chunk(added.column(f.name)).cast(f.type)
            if f.name in added.column_names
            else defaults.get(f.name, pa.nulls(count, f.type))
            for f in self._ADDED
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._ADDED))

    def written(self, keys: pa.Table, state: State) -> bytes:
        schemas = self.definition.tables
        panes, of_panes = unlisted(state[PANES])
        words = one_chunk(panes.column(self.WORDS)).flatten()
        width = schemas[PANES].field(self.WORDS).type.list_size
        at = panes.column_names.index(self.WORDS)
        fixed = panes.set_column(at, self.WORDS, pa.FixedSizeListArray.from_arrays(words, width))
        # A page was written at a watermark. Nothing of it was due until the last one that its key group has seen.
        seen = max(state[self.SEEN].to_pylist(), default=BEFORE_TIME)
        tables = {
            "seen": pa.table({"seen": [seen]}, schema=schemas["seen"]),
            PANES: _with_keys(keys, of_panes, fixed, schemas[PANES]),
        }
        if self.has_rows:
            sizes = sizes_of(one_chunk(panes.column(self.ELEMENTS)))
            check_sizes("count", _ints(one_chunk(panes.column("count"))), sizes)
            tables["rows"] = cast_table(unlisted(one_chunk(panes.column(self.ELEMENTS)))[0], schemas["rows"])
        if FUNCTION_KEYS in schemas:
            counts = [sizes_of(state[name]) for name in self.by_key]
            chosen = np.flatnonzero(np.sum(counts, axis=0))
            tables[FUNCTION_KEYS] = keys.take(pa.array(chosen))
            for name in self.by_key:
                tables[name] = _with_index(state[name].take(pa.array(chosen)), schemas[name])
            for name in self.by_window:
                tables[name] = _with_index(one_chunk(panes.column(name)), schemas[name])
        value = tables_to_bytes([tables[name] for name in schemas])
        return with_additions(value, self._additions(panes))

    def _additions(self, panes: pa.Table) -> pa.Table | None:
        """What is added to a page, if one of the pages of its panes had it."""
        added = one_chunk(panes.column(self.ADDED))
        if added.null_count == len(added):
            return None
        is_null = added.is_null().to_numpy(zero_copy_only=False)
        rows = as_table(added)
        firings, counts = (_ints(one_chunk(panes.column(name))) for name in ("firings", "count"))
        unfired, emptied = (_ints(one_chunk(rows.column(name)).fill_null(0)) for name in (UNFIRED, _EMPTIED))
        columns = {
            UNFIRED: pa.array(np.where(is_null, np.where(firings == 0, counts, 0), unfired)),
            _EMPTIED: pa.array(np.where(is_null, 0, emptied)),
        }
        if rows.column(SESSION_ID).null_count < rows.num_rows:
            replaces = [ids or [] for ids in rows.column(REPLACES).to_pylist()]
            columns |= {SESSION_ID: one_chunk(rows.column(SESSION_ID)), REPLACES: pa.array(replaces, IDS)}
        return pa.table(columns)


def _variable(lists: pa.FixedSizeListArray) -> pa.ListArray:
    width = lists.type.list_size
    values = np.asarray(lists.values.to_numpy()).reshape(-1, width)[lists.offset : lists.offset + len(lists)]
    return listed(pa.array(values.ravel()), np.repeat(np.arange(len(lists)), width), len(lists))


assert (FUNCTION_STATE, WINDOW_STATE) == STATES_OF_WINDOW_FUNCTIONS
