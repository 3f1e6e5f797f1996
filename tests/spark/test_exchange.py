"""Chunks: no row is lost, none changes its place, and none of them is large, however many rows there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Pattern
from asterism.columns.groups import KEY_HASH
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_store import batch_from_bytes
from asterism.spark.host import exchange
from asterism.spark.host.partitioning import group_of
from tests.spark.streams import FUNNEL, events, stream_of, write_files

KEY_GROUPS = 4
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
START = datetime(2026, 1, 1, tzinfo=UTC)
PAIR = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(minutes=1))


def rows(count: int, note: int) -> pa.RecordBatch:
    """Events of which every second one is in the first key group, each with a string of *note* characters."""
    key = np.where(np.arange(count) % 2, np.arange(count), 0)
    return pa.RecordBatch.from_pydict(
        {
            "ts": pa.array([START + timedelta(seconds=n) for n in range(count)], pa.timestamp("us", "UTC")),
            "key": pa.array(key),
            "kind": pa.array(["a"] * count),
            "note": pa.array([f"{n:0{note}}" for n in range(count)]),
            KEY_HASH: pa.array(key),
        }
    )


def operator_of(batch: pa.RecordBatch) -> CepOperator:
    schema = batch.schema.remove(batch.schema.get_field_index(KEY_HASH))
    spec = OutputSpec(OutputKind.MATCHES, measures=("a.note AS note",))
    return CepOperator(PAIR, schema, keys=["key"], time="ts", outputs={OutputKind.MATCHES.value: spec})


def in_order(operator: CepOperator, batches: list[pa.RecordBatch]) -> tuple[dict[int, list[Any]], list[int]]:
    """The notes of each key group, in the order of their numbers; and the sizes of all chunks."""
    chunks = []
    for packed in exchange.pack(operator, KEY_GROUPS, EVENTS)(iter(batches)):
        chunks += [(group_of(row["key_group"]), row["seq"], row["chunk"]) for row in packed.to_pylist() if row["chunk"]]
    assert len({(group, seq) for group, seq, _ in chunks}) == len(chunks)
    found: dict[int, list[Any]] = {group: [] for group in range(KEY_GROUPS)}
    for group, _, chunk in sorted(chunks, key=lambda each: each[1]):
        found[group] += batch_from_bytes(chunk, operator.inputs[EVENTS].prepared).column("e:note").to_pylist()
    return found, [len(chunk) for _, _, chunk in chunks]


NESTED = pa.record_batch(
    {
        "text": ["a", None, "ccc"],
        "list": [[1], None, [2, 3]],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "struct": [{"a": 1}, None, {"a": None}],
        "bool": [True, None, False],
        "nothing": pa.nulls(3),
        "decimal": pa.array([1, None, 3], pa.decimal128(10, 2)),
    }
)


@pytest.mark.parametrize("ranges", [[(0, 3)], [(1, 2), (0, 1)], [(2, 1)] * 3, [(0, 0), (0, 3)]])
def test_chunks_in_one_buffer_are_those_that_are_written_alone(ranges: list[tuple[int, int]]) -> None:
    parts = [NESTED.slice(*bounds) for bounds in ranges]
    chunks = exchange.serialized(parts)
    chunks.validate(full=True)
    assert chunks.to_pylist() == [part.serialize().to_pybytes() for part in parts]


@pytest.mark.parametrize(("limit", "note"), [(1 << 18, 5), (1 << 12, 5), (1 << 12, 5000), (1, 5)])
def test_a_chunk_has_a_maximum_size_and_order_is_kept(limit: int, note: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows(900, note)
    monkeypatch.setattr(exchange, "CHUNK_BYTES", limit)
    found, sizes = in_order(operator_of(batch), [batch])

    notes = batch.column("note").to_pylist()
    groups = batch.column(KEY_HASH).to_numpy() % KEY_GROUPS
    for group in range(KEY_GROUPS):
        assert found[group] == [notes[n] for n in np.flatnonzero(groups == group)]
    assert max(sizes) < max(limit, note) + 1000  # the names of columns, and what is rounded up


def test_rows_of_many_bytes_are_packed_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [rows(10, 1000) for _ in range(10)]
    monkeypatch.setattr(exchange, "GATHER_BYTES", 25_000)
    assert [table.num_rows for table in exchange.gathered(iter(batches))] == [30, 30, 30, 10]


def test_a_large_result_is_divided_and_reads_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CHUNK_BYTES", 1 << 12)
    nested = [[{"n": n, "s": "x" * n}] * (n % 3) for n in range(500)]
    table = pa.table({"n": pa.array(range(500)), "list": pa.array(nested)})
    for compressed in (False, True):
        parts = list(exchange.results({"one": table, "none": table.slice(0, 0)}, compressed=compressed))
        assert {name for name, _ in parts} == {"one"}
        assert len(parts) > 10

        chunks = pa.table({"chunk": pa.array([chunk for _, chunk in parts], pa.binary())})
        received = exchange.unpack(table.schema)(iter(chunks.to_batches(max_chunksize=7)))
        assert pa.Table.from_batches(received).equals(table)


@pytest.mark.spark
def test_a_query_sends_rows_without_a_look_at_their_size(spark: SparkSession, tmp_path: Any) -> None:
    check_chunk_sizes(spark, tmp_path, {}, ("1000", str(2**31 - 1)))


def check_chunk_sizes(spark: SparkSession, tmp_path: Any, mine: dict[str, str], used: tuple[str, str]) -> None:
    found: set[tuple[str | None, ...]] = set()

    def sink(matches: DataFrame, batch_id: int) -> None:
        matches.collect()
        found.add(tuple(matches.sparkSession.conf.get(key) for key in (RECORDS, BYTES)))

    write_files(events(50), tmp_path / "in", [])
    before = [spark.conf.get(key) for key in (RECORDS, BYTES)]
    try:
        for key, value in mine.items():
            spark.conf.set(key, value)
        now = [spark.conf.get(key) for key in (RECORDS, BYTES)]
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL)
        stream.run({"matches": sink}, checkpoint=str(tmp_path / "cp"))
        assert [spark.conf.get(key) for key in (RECORDS, BYTES)] == now
    finally:
        for key in mine:
            spark.conf.unset(key)
    assert found == {used}
    assert [spark.conf.get(key) for key in (RECORDS, BYTES)] == before


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.string()),
        pa.struct([("a", pa.list_(pa.struct([("b", pa.string())])))]),
    ],
    ids=str,
)
def test_nulls_take_no_room_in_chunks(kind: pa.DataType) -> None:
    count = 200_000
    table = pa.table({"n": pa.array(np.arange(count)), "nothing": pa.nulls(count, kind)})
    sizes, found = [], []
    for _, chunk in exchange.results({"matches": table}):
        sizes.append(len(chunk))
        found.append(batch_from_bytes(chunk, table.schema))
    assert pa.concat_tables(found).equals(table)
    assert len(sizes) > 5
    assert max(sizes) < 1.1 * exchange.CHUNK_BYTES
