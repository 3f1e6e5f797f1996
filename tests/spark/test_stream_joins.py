"""Joins on Spark give what Spark's SQL gives over tables, and the same over streams in any micro-batches."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    JoinedStream,
    KeyedStream,
    SlidingWindows,
    as_of_join,
    interval_join,
    read_state,
    window_join,
)
from asterism.errors import StateError
from asterism.joins.types import BRINGING, KEEPS_RIGHT
from tests.spark.streams import Collect, write_file, write_files

pytestmark = pytest.mark.spark
SECOND = timedelta(seconds=1)
START = 1_700_000_000_000_000
TIME = pa.timestamp("us", "UTC")
ORDERS = pa.schema([("id", pa.int64()), ("item", pa.string()), ("ts", TIME), ("amount", pa.int64())])
PRICES = pa.schema([("item", pa.string()), ("at", TIME), ("price", pa.int64()), ("version", pa.int64())])


def rows(schema: pa.Schema, count: int, seed: int) -> pa.Table:
    """Rows of a minute, in order of arrival: up to five seconds late, some without a key."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        time = number * 60_000_000 // count
        values = {
            "id": number, "version": number, "item": rng.choice(["a", "b", "c", None]), "ts": START + time,
            "at": START + time // 100_000 * 100_000, "amount": rng.randrange(10), "price": rng.randrange(10),
        }  # fmt: skip
        found.append((time + rng.randrange(5_000_000), number, {name: values[name] for name in schema.names}))
    found.sort()
    columns = {f.name: pa.array([row[f.name] for _, _, row in found], f.type) for f in schema}
    return pa.table(columns, schema=schema)


def keyed(df: DataFrame, **options: Any) -> KeyedStream:
    return KeyedStream(
        df, key="item", time="ts" if "ts" in df.columns else "at", max_out_of_orderness=5 * SECOND, **options
    )


def joins(orders: DataFrame, prices: DataFrame, how: str, **more: Any) -> dict[str, JoinedStream]:
    options: dict[str, Any] = {"how": how, "on": "amount <= price", "key_groups": 2} | more
    left, right = keyed(orders), keyed(prices)
    found = {
        "interval": interval_join(left, right, (-2 * SECOND, 1 * SECOND), upper_exclusive=True, **options),
        "window": window_join(left, right, SlidingWindows.of(4 * SECOND, 3 * SECOND), **options),
    }
    if how not in KEEPS_RIGHT:
        found["as of"] = as_of_join(left, keyed(prices, order_by=["version"]), tolerance=SECOND, **options)
    return found


IN_SQL = {
    "interval": """
        SELECT {order}, {price} FROM {orders} o {join} JOIN {prices} p ON o.item = p.item AND amount <= price
        AND at >= ts - INTERVAL 2 SECONDS AND at < ts + INTERVAL 1 SECOND""",
    "as of": """
        SELECT {order}, {price} FROM {orders} o {join} JOIN (
            SELECT o.id, max_by(struct(p.*), struct(at, version)) AS p FROM {orders} o JOIN {prices} p
            ON o.item = p.item AND p.at <= o.ts GROUP BY o.id
        ) AS last ON o.id = last.id AND last.p.at >= ts - INTERVAL 1 SECOND AND amount <= last.p.price""",
    "window": """
        WITH o AS (SELECT window(ts, '4 seconds', '3 seconds') AS w, * FROM {orders}),
             p AS (SELECT window(at, '4 seconds', '3 seconds') AS w, * FROM {prices})
        SELECT {window}, {order}, {price} FROM o {join} JOIN p
        ON o.item = p.item AND o.w = p.w AND amount <= price""",
}


def in_sql(spark: SparkSession, kind: str, how: str, **tables: DataFrame) -> list[tuple[Any, ...]]:
    price = {"as of": "p.at, p.price, p.version"}.get(kind, "at, price, version") if how in BRINGING else ""
    order, window = "o.id, o.item, ts, amount", "o.w.start, o.w.end"
    if how in KEEPS_RIGHT:
        order = order.replace("o.item", "coalesce(o.item, p.item)")
        window = "coalesce(o.w.start, p.w.start), coalesce(o.w.end, p.w.end)"
    text = IN_SQL[kind]
    for name, columns in (("order", order), ("window", window), ("price", price), ("join", how.replace("_", " "))):
        text = text.replace("{" + name + "}", columns)
    return in_order(spark.sql(text.replace(",  FROM", " FROM"), **tables))


def in_order(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in df.toArrow().to_pylist()), key=str)


FAST = {"full", "left_semi"}


@pytest.mark.parametrize("how", sorted(FAST))
def test_joins_of_tables_are_those_of_sql(spark: SparkSession, how: str) -> None:
    check_tables(spark, how)


def check_tables(spark: SparkSession, how: str) -> None:
    orders, prices = (spark.createDataFrame(rows(*what)) for what in ((ORDERS, 120, 1), (PRICES, 90, 2)))
    for kind, joined in joins(orders, prices, how).items():
        expected = in_sql(spark, kind, how, orders=orders, prices=prices)
        assert len(expected) > 10
        assert in_order(joined.results) == expected, kind


def stream(spark: SparkSession, folder: Path, table: pa.Table) -> DataFrame:
    schema = spark.createDataFrame(table.slice(0, 1)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def test_streams_are_joined_as_tables_across_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    check_streams(spark, tmp_path, "full")


def check_streams(spark: SparkSession, tmp_path: Path, how: str) -> None:
    orders, prices = rows(ORDERS, 120, 1), rows(PRICES, 90, 2)
    expected = in_order(joins(spark.createDataFrame(orders), spark.createDataFrame(prices), how)["interval"].results)
    write_files(orders.slice(0, 80), tmp_path / "orders", [])
    write_files(prices.slice(0, 60), tmp_path / "prices", [])
    joined = joins(stream(spark, tmp_path / "orders", orders), stream(spark, tmp_path / "prices", prices), how)[
        "interval"
    ]

    found, late, checkpoint = Collect(), {"late_left": Collect(), "late_right": Collect()}, str(tmp_path / "cp")
    joined.run({"results": found, **late}, checkpoint=checkpoint, drain=False)
    before = len(found.rows)
    assert 0 < before < len(expected)
    state = read_state(spark, checkpoint)
    assert state.kind == "join"
    assert state.inputs == ["left", "right"]
    assert state.waiting_events("left").count() > 0
    kept = state.kept_rows("left").collect()
    assert kept
    assert {row.key.item for row in kept} <= {"a", "b", "c", None}
    assert all(row.event.item == row.key.item for row in kept)
    assert state.heaviest_keys(1).collect()[0].rows > 0
    with pytest.raises(StateError, match="a join has no side 'middle'"):
        state.kept_rows("middle")
    with pytest.raises(StateError, match=r"the state of a join has no deadlines\n.*kept_rows\(side\)"):
        state.deadlines()
    with pytest.raises(StateError, match="the state of a join has no windows"):
        state.windows()

    # A row of each side comes too late.
    write_file(pa.concat_tables([orders.slice(80), orders.slice(0, 1)]), tmp_path / "orders", 10)
    write_file(pa.concat_tables([prices.slice(60), prices.slice(0, 1)]), tmp_path / "prices", 10)
    joined.run({"results": found, **late}, checkpoint=checkpoint)
    assert sorted((tuple(row.values()) for row in found.rows), key=str) == expected
    assert [row["id"] for row in late["late_left"].rows] == orders.column("id").to_pylist()[:1]
    assert [row["version"] for row in late["late_right"].rows] == prices.column("version").to_pylist()[:1]
    assert read_state(spark, checkpoint).is_empty
