"""Gives a harness another number of key groups, through the tables of a savepoint in Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.groups import KEY_HASH as HASH_OF_EVENTS
from asterism.columns.time import END_OF_TIME
from asterism.operators.state.broadcast_state import parts_in
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import BROADCAST_PAGE, DEFINITION_PAGE, SETS_PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.rules.binding.replication import SELECTOR
from asterism.savepoints import chunks as savepoint_chunks
from asterism.savepoints.changes.change import StateChange, changed_waiting
from asterism.savepoints.chunks import (
    OF_KEYS,
    Chunk,
    GroupWriter,
    chunk_schemas,
    chunks_of,
    gathered,
    tables_of_file,
)
from asterism.savepoints.instances import is_distributed
from asterism.savepoints.key_groups import (
    KEY_HASH,
    POSITION,
    THE_KEY,
    StoredPage,
    Summary,
    broadcast_tables,
    groups_of,
    is_of_keys,
    merged_entries,
    next_times,
    rows_of_pages,
    rows_schema,
    waiting_in,
    waiting_rows,
)
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.plain_types import as_plain, retyped
from asterism.savepoints.rule_sets import RuleSets
from asterism.testing.operator_harness import OperatorHarness, key_hashes

ChangeOf = Callable[[StateDefinition, Summary], StateChange]


def in_parquet(table: pa.Table) -> pa.Table:
    """The table after it was a file."""
    file = io.BytesIO()
    pq.write_table(as_plain(table), file)
    return pq.read_table(file)


def hashes_of(keys: pa.Table, definition: StateDefinition) -> Ints:
    return key_hashes(keys) if definition.keys.names else np.zeros(keys.num_rows, np.int64)


Edit = Callable[[KeyStates, pa.Table], pa.Table]
"""Changes the rows of a savepoint: those of keys, or events that wait. The key is a struct in THE_KEY, or in columns."""


def regrouped(
    stores: list[MemoryStore],
    key_groups: int,
    change_of: ChangeOf | None = None,
    edit: Edit | None = None,
    udfs: Mapping[str, pa.DataType] | None = None,
) -> list[MemoryStore]:
    """The same state in another number of key groups, for another definition if it is given, and after an *edit*.

    :param udfs: the types of the functions in Python that rules call
    """
    headers = {n: GroupHeader.from_bytes(s.header) for n, s in enumerate(stores) if s.header is not None}
    if not headers:
        return [MemoryStore() for _ in range(key_groups)]
    first = next(iter(headers))
    definition = StateDefinition.from_bytes(stores[first].pages[DEFINITION_PAGE])
    rules = rules_of(stores, definition, udfs)
    states, summary = key_states(definition, rules), Summary.of(definition, list(headers.values()))
    summary = Summary.from_dict(definition, summary.to_dict())
    pages = [
        StoredPage(n, headers[n], number, value)
        for n in headers
        for number, value in sorted(stores[n].pages.items())
        if is_of_keys(states, number)
    ]
    # All pages together have the rows of each alone.
    rows = [rows_of_pages(states, some) for some in ([page] for page in pages)]
    table = pa.concat_tables([rows_schema(states).empty_table(), *rows])
    assert not pages or rows_of_pages(states, pages).equals(table)
    key = one_chunk(table.column(THE_KEY))
    keys = pa.table(key.flatten(), names=key.type.names)
    of_rules = states.hashes(keys)
    hashes = hashes_of(keys, definition) if of_rules is None else of_rules
    if is_distributed(definition):
        hashes = table.column("key_group").to_numpy().astype(np.int64)
    assert (groups_of(hashes, len(stores)) == table.column("key_group").to_numpy()).all()
    table = in_parquet(table.append_column(KEY_HASH, pa.array(hashes)))
    change = None if change_of is None else change_of(definition, summary)
    waiting = {name: _waiting(stores, headers, definition, name) for name in definition.inputs}
    if edit is not None:
        table = edit(states, table)
        waiting = {name: edit(states, events) for name, events in waiting.items()}
    if change is not None:
        changed, _ = change.rows(table)
        table, definition = in_parquet(changed), change.new
        waiting = {name: in_parquet(changed_waiting(change, name, events)[0]) for name, events in waiting.items()}
        if change.rekeys:
            key = one_chunk(table.column(THE_KEY))
            hashes = hashes_of(pa.table(key.flatten(), names=key.type.names), definition)
            table = table.set_column(table.column_names.index(KEY_HASH), KEY_HASH, pa.array(hashes))
        states, summary = (
            key_states(definition),
            replace(summary, definition=definition, fingerprint=change.fingerprint),
        )
    broadcast: dict[str, pa.Table] = {}
    index = stores[first].pages.get(BROADCAST_PAGE) if rules is None else None
    if index is not None:
        former = definition if change is None else change.old
        for name, schema in broadcast_tables(former).items():
            entries = _entries(stores[first], parts_in(index, name), schema)
            now, entries, _ = (name, entries, None) if change is None else change.broadcast(name, entries)
            broadcast |= {} if now is None else {now: entries}
        broadcast |= {n: s.empty_table() for n, s in broadcast_tables(definition).items() if n not in broadcast}
    schemas = chunk_schemas(summary, states)
    chunks: list[list[Chunk]] = [[] for _ in range(key_groups)]
    tables = {OF_KEYS: table, **{name: _with_hashes(events, states) for name, events in waiting.items()}}
    for name, rows in tables.items():
        for part in _in_parts(rows):
            for group, chunk in chunks_of(part, schemas[name], key_groups):
                chunks[group].append((name, chunk))
    writer = GroupWriter(summary, rules, key_groups, broadcast)
    return [writer.written(group, of_group) for group, of_group in enumerate(chunks)]


def _in_parts(rows: pa.Table) -> list[pa.Table]:
    """The rows of a file with several row groups, which is read a few rows at a time."""
    if not rows.num_rows:
        return []
    file = io.BytesIO()
    pq.write_table(as_plain(rows), file, row_group_size=17)
    with mock.patch.object(savepoint_chunks, "MANY_ROWS", 7):
        return list(gathered(tables_of_file(pa.py_buffer(file.getvalue()), [*rows.column_names, "no such column"])))


def _entries(store: MemoryStore, parts: list[int], schema: pa.Schema) -> pa.Table:
    rows = in_parquet(merged_entries((batch_from_bytes(store.pages[page], schema) for page in parts), schema))
    return pa.table([retyped(one_chunk(rows.column(f.name)), f.type) for f in schema], schema=schema)


def _waiting(
    stores: list[MemoryStore], headers: Mapping[int, GroupHeader], definition: StateDefinition, name: str
) -> pa.Table:
    number, schema = list(definition.inputs).index(name), definition.inputs[name]
    keyed = any(column.startswith("k:") or column == SELECTOR for column in schema.names)
    tables = []
    for group, header in headers.items() if keyed else list(headers.items())[:1]:
        for place, first in waiting_in(header, number):
            value = header.buffers[number] if place is None else stores[group].pages[place]
            tables.append(waiting_rows(schema, group, first, value))
    if not tables:
        return schema.empty_table()
    return in_parquet(pa.concat_tables(tables)).sort_by([("key_group", "ascending"), (POSITION, "ascending")])


def _with_hashes(events: pa.Table, states: KeyStates) -> pa.Table:
    """Events with KEY_HASH; those of a broadcast input have none."""
    keys = [name for name in events.column_names if name.startswith("k:")]
    of_rules = states.waiting_hashes(events) if SELECTOR in events.column_names else None
    if of_rules is None and not keys:
        return events
    hashes = hashes_of(events.select(keys), states.definition) if of_rules is None else of_rules
    if is_distributed(states.definition):
        hashes = events.column("key_group").to_numpy().astype(np.int64)
    return events.append_column(KEY_HASH, pa.array(hashes))


def rules_of(
    stores: list[MemoryStore], definition: StateDefinition, udfs: Mapping[str, pa.DataType] | None = None
) -> RuleSets | None:
    """The rules of the key groups, if these are those of a query with rules; through the file of a savepoint."""
    if definition.kind is not OperatorKind.RULES:
        return None
    pages = {n: store.pages[SETS_PAGE] for n, store in enumerate(stores) if SETS_PAGE in store.pages}
    rules = RuleSets.of(pages, len(stores), definition.details["keys"], udfs=udfs)
    return RuleSets.from_json(rules.to_json(), "/savepoint")


def regroup(harness: OperatorHarness, key_groups: int, edit: Edit | None = None) -> None:
    """Continue with another number of key groups, after an *edit*."""
    harness.close()
    harness.stores[:] = regrouped(harness.stores, key_groups, edit=edit)
    _set_times(harness)


def continue_with(old: OperatorHarness, new: OperatorHarness, change_of: ChangeOf) -> None:
    """Continue the state of a harness with that of another definition, which has not begun."""
    old.close()
    new.stores[:], new.now = regrouped(old.stores, len(new.stores), change_of), old.now
    _set_times(new)


def _set_times(harness: OperatorHarness) -> None:
    harness.next_times, harness.next_processing_times = [], []
    for store in harness.stores:
        times = (END_OF_TIME, END_OF_TIME)
        if store.header is not None:
            definition = StateDefinition.from_bytes(store.pages[DEFINITION_PAGE])
            times = next_times(GroupHeader.from_bytes(store.header), definition)
        harness.next_times.append(min(times) if min(times) < END_OF_TIME else None)
        harness.next_processing_times.append(harness.now.processing_time)


__all__ = ["HASH_OF_EVENTS", "regroup", "regrouped"]
