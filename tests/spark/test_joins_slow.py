"""Slow: further cases of test_joins.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import Input, KeyedStream, Output, StreamOperator, connect
from tests.spark.streams import Collect
from tests.spark.test_joins import (
    TABLES,
    Explain,
    OrdersFirst,
    bucketed,
    check_one_shuffle,
    never_broadcast,
    orders_file,
    rows,
    shuffles,
    star,
    tables,
    tuples,
)

pytestmark = pytest.mark.spark


def test_the_build_side_of_a_join_is_read_first(spark: SparkSession, tmp_path: Path, explain: Explain) -> None:
    with bucketed(spark, tmp_path, {"orders": 3, "shipments": 3}) as inputs:
        streams = {name: KeyedStream(df, key=TABLES[name], time="ts") for name, df in inputs.items()}
        joined = connect(OrdersFirst(), streams, co_partitioned=True).output("out")
        orders, shipments = inputs["orders"], inputs["shipments"]
        expected = shipments.join(orders, shipments.id.eqNullSafe(orders.id))
        assert rows(joined) == rows(expected.select(shipments.id, shipments.ts, orders.amount))
        assert "Exchange" not in explain(joined)
        assert rows(connect(OrdersFirst(), streams).output("out")) == rows(joined)


def test_tables_that_do_not_lie_together_are_shuffled_once(
    spark: SparkSession, tmp_path: Path, explain: Explain
) -> None:
    check_one_shuffle(spark, tmp_path, explain, {"orders": 4, "payments": 2, "shipments": 3})


def test_a_stream_meets_a_bucketed_table_where_that_lies(spark: SparkSession, tmp_path: Path, explain: Explain) -> None:
    inputs = tables(spark)
    inputs["payments"].write.parquet(str(tmp_path / "stream"))
    with bucketed(spark, tmp_path, {"orders": 4}) as static:
        stream = spark.readStream.schema(inputs["payments"].schema).parquet(str(tmp_path / "stream"))
        table = static["orders"].selectExpr("id AS order_id", "amount AS ordered")
        joined = stream.join(table, "order_id").select("order_id", "ordered", "ts")
        plan = explain(joined)
        assert shuffles(plan) == 1
        assert plan.index("Exchange hashpartitioning(order_id") < plan.index("StreamingRelation")  # it is the stream's
        assert "SelectedBucketsCount: 4 out of 4" in plan
        found = Collect()
        query = joined.writeStream.foreachBatch(found).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
        expected = inputs["payments"].join(table, "order_id").select("order_id", "ordered", "ts")
        assert tuples(found.rows) == rows(expected)


def test_a_stream_is_joined_in_one_stage_and_goes_on_to_an_operator(
    spark: SparkSession, small: dict[str, DataFrame], tmp_path: Path, explain: Explain
) -> None:
    probe = orders_file(spark, tmp_path / "orders")
    stream = spark.readStream.schema(probe.schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "orders"))
    with never_broadcast(spark):
        assert shuffles(explain(star(stream, small))) == 0

        class Last(StreamOperator):
            orders = Input("order_id BIGINT, name STRING, region_name STRING")
            out = Output("order_id BIGINT, name STRING, region_name STRING")

            @orders.process_element
            def order(self, order: Any, ctx: Any) -> None:
                self.out.collect(order)

        joined = KeyedStream(star(stream, small), key="order_id")
        query = connect(Last(), orders=joined, key_groups=2, drain=True)
        plan = explain(query.output("out"))
        assert shuffles(plan) == plan.count("Exchange hashpartitioning(key_group") == 1
        found = Collect()
        query.run({"out": found}, checkpoint=str(tmp_path / "cp"))
    expected = star(probe, small).select("order_id", "name", "region_name")
    assert tuples(found.rows) == rows(expected)
