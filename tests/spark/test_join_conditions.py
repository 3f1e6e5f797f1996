"""Parts of the conditions of joins that Spark computes: results are those of columns of the inputs computed before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import (
    JoinedStream,
    KeyedStream,
    MultiJoinedStream,
    SlidingWindows,
    as_of_join,
    interval_join,
    multi_join,
    window_join,
)
from asterism.joins.types import FULL_OUTER
from tests.spark import test_multi_join
from tests.spark.test_stream_joins import ORDERS, PRICES, SECOND, rows

pytestmark = pytest.mark.spark
FAST = (FULL_OUTER,)
"""The types of joins in the fast tests."""
LEFT = {"l0": "join_twice(amount)", "l1": "(amount <> 4 AND 1 DIV (amount - 4) - step < 5)"}
RIGHT = {
    "r0": "format_string('%02d', p_price + step)", "r1": "variant_get(parse_json(string(p_price)), '$', 'bigint')",
    "r2": "string(p_price) COLLATE UTF8_LCASE <> '3'",
}  # fmt: skip
"""Columns that Spark computes for conditions, in which those of the right side have a prefix."""


@pytest.fixture(autouse=True, scope="module")
def of_session(spark: SparkSession) -> None:
    spark.udf.register("join_twice", lambda x: None if x is None else 2 * x, "bigint")
    spark.sql("DECLARE OR REPLACE VARIABLE step INT DEFAULT 1")


def condition(of: dict[str, str]) -> str:
    l0, l1, r0, r1, r2 = (of[name] for name in ("l0", "l1", "r0", "r1", "r2"))
    return f"p_price <> 5 AND {l1} AND {r2} AND amount < 9 AND ({l0} <= CAST({r0} AS BIGINT) * 3 OR {r1} = amount) OR amount = 4"


def joins(
    orders: DataFrame, prices: DataFrame, on: str, how: str, key: str = "item", **options: Any
) -> dict[str, JoinedStream]:
    left = KeyedStream(orders, key, "ts", max_out_of_orderness=5 * SECOND)
    right = KeyedStream(prices, "item", "at", max_out_of_orderness=5 * SECOND)
    options = {"how": how, "on": on, "prefix": "p_"} | options
    found = {
        "interval": interval_join(left, right, (-2 * SECOND, 1 * SECOND), **options),
        "window": window_join(left, right, SlidingWindows.of(4 * SECOND, 3 * SECOND), **options),
    }
    if how in ("inner", "left", "left_semi", "left_anti"):
        found["as of"] = as_of_join(left, right, tolerance=SECOND, **options)
    return found


def computed(orders: DataFrame, prices: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The inputs with all columns that conditions need."""
    right = prices.withColumns({name: F.expr(text.replace("p_price", "price")) for name, text in RIGHT.items()})
    return orders.withColumns({name: F.expr(text) for name, text in LEFT.items()}), right


BEFORE = condition({name: name if name[0] == "l" else f"p_{name}" for name in (*LEFT, *RIGHT)})
"""The condition over columns computed before."""


def values(df: DataFrame) -> list[str]:
    return sorted(map(str, map(tuple, df.collect())))


@pytest.mark.parametrize("how", FAST)
def test_tables(spark: SparkSession, how: str) -> None:
    check_tables(spark, how)


def check_tables(spark: SparkSession, how: str) -> None:
    orders, prices = (spark.createDataFrame(rows(schema, 60, seed=1)).coalesce(1) for schema in (ORDERS, PRICES))
    found = joins(orders, prices, condition(LEFT | RIGHT), how)
    expected = joins(*computed(orders, prices), BEFORE, how)
    for kind, join in found.items():
        names = [name for name in expected[kind].results.columns if name.removeprefix("p_") not in {*LEFT, *RIGHT}]
        assert join.results.columns == names
        assert values(join.results) == values(expected[kind].results.select(names)), kind
    assert values(found["interval"].results)


def test_many_inputs(spark: SparkSession) -> None:
    frames = {name: spark.createDataFrame(table) for name, table in test_multi_join.tables().items()}

    def joined(of: dict[str, DataFrame], on: dict[str, str]) -> MultiJoinedStream:
        streams = {
            name: KeyedStream(df, *test_multi_join.KEYS[name], time_unit=f"{'micro' if name == 'shipments' else 'milli'}seconds")
            for name, df in of.items()
        }  # fmt: skip
        between = {("orders", "payments"): (-SECOND, 2 * SECOND), ("payments", "shipments"): (timedelta(0), 3 * SECOND)}
        return multi_join(
            streams, between, how={"shipments": "left"}, on=on, prefix={"payments": "p_", "shipments": "s_"}
        )

    found = joined(
        frames,
        {
            "payments": "join_twice(p_paid) >= amount AND exists(array(amount), x -> x <> 3)",
            "shipments": "join_twice(s_place + 1) + join_twice(amount) > join_twice(p_paid)",
        },
    ).results
    twice = {
        "orders": frames["orders"].withColumns({"x": F.expr("2 * amount")}),
        "payments": frames["payments"].withColumns({"y": F.expr("2 * paid")}),
        "shipments": frames["shipments"].withColumns({"z": F.expr("2 * (place + 1)")}),
    }
    on = {"payments": "p_y >= amount AND amount <> 3", "shipments": "s_z + x > p_y"}
    expected = joined(twice, on).results.select(found.columns)
    assert not {"x", "p_y", "s_z"} & {*found.columns}
    assert values(found) == values(expected)
    assert values(found)


def test_only_columns_that_are_read_are_kept(spark: SparkSession) -> None:
    orders, prices = (spark.createDataFrame(rows(schema, 2, seed=1)) for schema in (ORDERS, PRICES))
    join = joins(orders, prices, "join_twice(amount) > 3 AND join_twice(p_price) > 1", "left_semi")["interval"]
    kept = join.operator.definition.tables
    assert [name for name in kept["right"].names if name[:2] == "e:"] == ["e::sql:join_twice(p_price) > 1"]
    assert join.results.schema == orders.schema
