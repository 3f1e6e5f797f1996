"""Rows of a savepoint as chunks on Spark, without Spark: whole files and rows become the pages that operators had."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import DEFINITION_PAGE, HEADER
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import MemoryStore
from asterism.savepoints.chunks import OF_KEYS, GroupWriter, chunk_schemas
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    THE_KEY,
    StoredPage,
    Summary,
    groups_of,
    is_of_keys,
    rows_of_pages,
)
from asterism.savepoints.kinds import key_states
from asterism.savepoints.plain_types import as_plain
from asterism.spark.host.host import EVENT_TIME, NO_TIMER
from asterism.spark.host.partitioning import group_of, label
from asterism.spark.savepoints.restoring import TableContent, _as_table, _Packing, _PageMaker, _RestoringHost
from asterism.testing.operator_harness import key_hashes
from tests.savepoints.test_regrouping import CASES, feed, steps

KEY_GROUPS = 5


class _State:
    """A state variable of Spark for one key group after the other."""

    def __init__(self) -> None:
        self.key, self.values = 0, dict[Any, Any]()

    def exists(self) -> bool:
        return self.key in self.values

    def get(self) -> Any:
        return self.values.get(self.key)

    def update(self, value: Any) -> None:
        self.values[self.key] = value

    def updateValue(self, number: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802 - Spark's name
        self.values[self.key, number[0]] = value[0]


@pytest.fixture(scope="module")
def moved() -> tuple[pa.Table, GroupWriter]:
    """The rows of a pattern's keys, and the writer of their key groups."""
    harness = CASES["pattern, followed by"](1)
    for number, step in enumerate(steps(3)):
        feed(harness, number, step)
    (store,) = harness.stores
    assert store.header is not None
    header, definition = GroupHeader.from_bytes(store.header), StateDefinition.from_bytes(store.pages[DEFINITION_PAGE])
    states = key_states(definition)
    pages = [StoredPage(0, header, n, value) for n, value in store.pages.items() if is_of_keys(states, n)]
    rows = rows_of_pages(states, pages)
    key = rows.column(THE_KEY).combine_chunks()
    hashes = key_hashes(pa.table(key.flatten(), names=key.type.names))
    return as_plain(rows.append_column(KEY_HASH, pa.array(hashes))), GroupWriter(
        Summary.of(definition, [header]), None, KEY_GROUPS
    )


def _as_content(rows: pa.Table) -> list[pa.RecordBatch]:
    half = rows.num_rows // 2
    files = []
    for part in (rows.slice(0, half), rows.slice(half)):
        file = io.BytesIO()
        pq.write_table(part, file)
        files.append(file.getvalue())
    paths = [f"file:/savepoint/keys/{number}.parquet" for number in range(len(files))]
    return [pa.RecordBatch.from_arrays([pa.array(paths), pa.array(files, pa.binary())], ["path", "content"])]


@pytest.mark.parametrize("batches_of", [_as_content, lambda rows: rows.to_batches(max_chunksize=3)])
def test_files_and_rows_become_the_same_chunks(
    moved: tuple[pa.Table, GroupWriter], batches_of: Callable[[pa.Table], list[pa.RecordBatch]]
) -> None:
    rows, writer = moved
    assert writer.summary is not None
    schema = chunk_schemas(writer.summary, key_states(writer.summary.definition))[OF_KEYS]
    packing = _Packing(OF_KEYS, schema, KEY_GROUPS, TableContent("/savepoint/keys", {}))
    chunks = pa.Table.from_batches(packing(iter(batches_of(rows))))
    expected = np.unique(groups_of(rows.column(KEY_HASH).to_numpy(), KEY_GROUPS)).tolist()
    assert sorted(map(group_of, chunks.column(KEY_GROUP).to_pylist())) == expected
    maker = _PageMaker(writer, EVENT_TIME)
    host = _RestoringHost(EVENT_TIME, inline=True, maker=maker)
    timers, header, pages = [], _State(), _State()
    handle: Any = SimpleNamespace(
        registerTimer=timers.append,
        getValueState=lambda *of: header,
        getMapState=lambda *of: pages,
        getListState=lambda *of: _State(),
    )
    host.init(handle)
    for group in range(KEY_GROUPS):
        header.key = pages.key = label(group)
        of_group = [row for row in chunks.to_pylist() if row[KEY_GROUP] == label(group)]
        given = [SimpleNamespace(input=None, rows=None), *(SimpleNamespace(**row) for row in of_group)]
        assert list(host.handleInputRows((label(group),), iter(given), SimpleNamespace())) == []
        store = writer.written(group, [(row["input"], row["rows"]) for row in of_group])
        timer, value, page = header.get() or (NO_TIMER, None, None)
        assert (value, page) == (store.header, store.pages.get(0))
        assert (timer == NO_TIMER) == (0 not in store.pages)
        others = {number: value for (key, number), value in pages.values.items() if key == label(group)}
        assert others == {number: value for number, value in store.pages.items() if number}
        table = _as_table(label(group), *maker.pages(label(group), [(row["input"], row["rows"]) for row in of_group]))
        assert set(table.column("page").to_pylist()) == {HEADER, *store.pages}
    assert len(timers) == len(expected)


def test_a_group_without_rows_has_what_all_groups_have(moved: tuple[pa.Table, GroupWriter]) -> None:
    store = moved[1].written(0, [])
    assert set(store.pages) == {DEFINITION_PAGE}
    assert store.header is not None
    assert not GroupHeader.from_bytes(store.header).exists.any()
    assert GroupWriter(None, None, KEY_GROUPS).written(0, []) == MemoryStore()
