"""Left joins of streams, and joins of the results of joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    JoinedStream,
    KeyedStream,
    as_of_join,
    interval_join,
)
from asterism.joins.types import STREAM_JOIN_TYPES
from tests.spark.streams import Collect, write_files
from tests.spark.test_stream_joins import (
    FAST,
    ORDERS,
    PRICES,
    SECOND,
    check_streams,
    check_tables,
    in_order,
    keyed,
    rows,
    stream,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("how", sorted({*STREAM_JOIN_TYPES} - FAST))
def test_joins_of_tables_are_those_of_sql(spark: SparkSession, how: str) -> None:
    check_tables(spark, how)


@pytest.mark.parametrize("how", ["left"])
def test_streams_are_joined_as_tables_across_a_restart(spark: SparkSession, tmp_path: Path, how: str) -> None:
    check_streams(spark, tmp_path, how)


def test_a_join_of_streams_is_joined_with_versions_in_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the first join are behind its watermark by as much as its interval, and are not late in the second one."""
    orders, prices = rows(ORDERS, 120, 1), rows(PRICES, 90, 2)
    table = keyed(spark.createDataFrame(prices), order_by=["version"])

    def both(orders: DataFrame, prices: DataFrame) -> JoinedStream:
        options: dict[str, Any] = {"how": "left", "on": "next_price - amount > 7", "prefix": "next_", "key_groups": 2}
        first = interval_join(keyed(orders), keyed(prices), (0 * SECOND, 20 * SECOND), **options).results
        left = KeyedStream(first, key="item", time="ts")
        return as_of_join(left, table, how="left", key_groups=2)

    expected = in_order(both(spark.createDataFrame(orders), spark.createDataFrame(prices)).results)
    write_files(orders, tmp_path / "orders", [30, 60, 90])
    write_files(prices, tmp_path / "prices", [25, 45, 65])
    found, late = Collect(), Collect()
    streams = (stream(spark, tmp_path / name, table) for name, table in (("orders", orders), ("prices", prices)))
    both(*streams).run({"results": found, "late_left": late}, checkpoint=str(tmp_path / "cp"))
    assert late.rows == []
    assert sorted((tuple(row.values()) for row in found.rows), key=str) == expected
