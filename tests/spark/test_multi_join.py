"""A join of many streams on Spark gives what Spark's SQL gives over tables, and the same over streams in any micro-batches."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import KeyedStream, MultiJoinedStream, multi_join, read_state
from asterism.errors import CheckpointMismatchError, StreamDefinitionError
from tests.spark.streams import Collect, write_file, write_files

pytestmark = pytest.mark.spark
SECOND = timedelta(seconds=1)
START = 1_700_000_000_000_000
TIME = pa.timestamp("us", "UTC")
SCHEMAS = {
    "orders": pa.schema([("id", pa.int64()), ("item", pa.string()), ("ts", TIME), ("amount", pa.int64())]),
    "payments": pa.schema([("product", pa.string()), ("at", TIME), ("paid", pa.int64())]),
    "shipments": pa.schema([("item", pa.string()), ("sent", pa.int64()), ("place", pa.int64())]),
}
KEYS = {"orders": ("item", "ts"), "payments": ("product", "at"), "shipments": ("item", "sent")}
IN_SQL = """
    SELECT o.*, at, paid, sent, place FROM {orders} o
    JOIN {payments} p ON o.item = p.product AND at BETWEEN ts - INTERVAL 1 SECOND AND ts + INTERVAL 2 SECONDS AND paid >= amount
    LEFT JOIN {shipments} s ON o.item = s.item AND timestamp_micros(sent) BETWEEN at AND at + INTERVAL 3 SECONDS
    AND timestamp_micros(sent) BETWEEN ts - INTERVAL 2 SECONDS AND ts + INTERVAL 4 SECONDS AND place + amount > paid
"""


def tables() -> dict[str, pa.Table]:
    """Rows of a minute, in order of arrival: up to five seconds late, some without a key."""
    rng, found = random.Random(7), {}
    for name, schema in SCHEMAS.items():
        rows = []
        for number in range(90):
            time, key = number * 60_000_000 // 90, rng.choice(["a", "b", "c", None])
            values = {"id": number, "item": key, "product": key, "ts": START + time, "at": START + time,
                      "sent": START + time, **{column: rng.randrange(9) for column in ("amount", "paid", "place")}}  # fmt: skip
            rows.append((time + rng.randrange(5_000_000), number, {column: values[column] for column in schema.names}))
        rows.sort()
        found[name] = pa.table({f.name: pa.array([row[f.name] for *_, row in rows], f.type) for f in schema})
    return found


def joined(frames: dict[str, DataFrame], *, shipments: str = "left", **more: Any) -> MultiJoinedStream:
    streams = {
        name: KeyedStream(
            df, KEYS[name][0], KEYS[name][1], max_out_of_orderness=5 * SECOND,
            time_unit="microseconds" if name == "shipments" else "milliseconds",
        )
        for name, df in frames.items()
    }  # fmt: skip
    return multi_join(
        streams,
        {
            ("orders", "payments"): (-1 * SECOND, 2 * SECOND),
            ("payments", "shipments"): (0 * SECOND, 3 * SECOND),
            ("shipments", "orders"): (-4 * SECOND, 2 * SECOND),
        },
        how={"shipments": shipments},
        on={"payments": "paid >= amount", "shipments": "place + amount > paid"},
        key_groups=2,
        **more,
    )


def in_order(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in df.toArrow().to_pylist()), key=str)


def stream(spark: SparkSession, folder: Path, table: pa.Table) -> DataFrame:
    schema = spark.createDataFrame(table.slice(0, 1)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def test_tables_as_in_sql_and_streams_as_tables_across_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    rows = tables()
    frames = {name: spark.createDataFrame(table) for name, table in rows.items()}
    over_tables = joined(frames)
    expected = in_order(over_tables.results)
    assert expected == in_order(spark.sql(IN_SQL, **frames))
    assert len(expected) > 50
    assert {row[-1] is None for row in expected} == {True, False}
    assert over_tables.late("orders").count() == 0
    with pytest.raises(AttributeError, match="a joined stream is not a DataFrame"):
        over_tables.select("id")
    with pytest.raises(StreamDefinitionError, match="must be a KeyedStream"):
        multi_join({"a": frames["orders"], "b": frames["payments"]}, {})  # type: ignore[dict-item]

    for name, table in rows.items():
        write_files(table.slice(0, 60), tmp_path / name, [30])
    streams = {name: stream(spark, tmp_path / name, table) for name, table in rows.items()}
    over_streams = joined(streams)
    assert repr(over_streams).startswith("MultiJoinedStream(orders, inner payments (orders between -timedelta(")
    found, late, checkpoint = Collect(), Collect(), str(tmp_path / "cp")
    sinks: Any = {"results": found, "late_payments": late}
    over_streams.run(sinks, checkpoint=checkpoint, drain=False)
    assert 0 < len(found.rows) < len(expected)
    state = read_state(spark, checkpoint)
    assert (state.kind, state.inputs) == ("join", list(rows))
    assert state.waiting_events("shipments").count() > 0
    kept = state.kept_rows("payments").collect()
    assert {row.key.item for row in kept} <= {"a", "b", "c"}
    assert all(row.event.paid is not None for row in kept)
    assert state.heaviest_keys(1).collect()[0].rows > 0

    for name, table in rows.items():
        write_file(pa.concat_tables([table.slice(60), table.slice(0, 1)]), tmp_path / name, 10)
    with pytest.raises(CheckpointMismatchError, match="cannot be continued: what is joined changed"):
        joined(streams, shipments="inner").run(sinks, checkpoint=checkpoint)
    joined(streams, max_rows=1000).run(sinks, checkpoint=checkpoint)
    assert sorted((tuple(row.values()) for row in found.rows), key=str) == expected
    assert [row["paid"] for row in late.rows] == rows["payments"].column("paid").to_pylist()[:1]
    assert read_state(spark, checkpoint).is_empty
