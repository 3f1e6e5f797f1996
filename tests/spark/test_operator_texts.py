"""What a user reads when an operator is connected wrongly on Spark: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.spark.api.statements import sql
from asterism.streams.broadcast_joins import Side
from asterism.streams.data_streams import BroadcastStream, DataStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from tests.kit import Golden, Provocation

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


def provocations(spark: SparkSession) -> dict[str, Provocation]:
    df = spark.createDataFrame(
        [(1, NEW_YEAR, 0.5, date(2025, 1, 1))], "id BIGINT, at TIMESTAMP, price DOUBLE, day DATE"
    )
    rules = spark.createDataFrame([(1,)], "v BIGINT")
    stream: DataFrame = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp AS at")

    class Pair(StreamOperator):
        left = Input("id BIGINT")
        right = Input("id BIGINT")
        out = Output("id BIGINT")

        @left.process_element
        @right.process_element
        def anything(self, e: Any, ctx: Any) -> None: ...

    keyed = KeyedStream(df, "id", "at")
    streaming, timeless = KeyedStream(stream, "id", "at"), KeyedStream(stream, "id")
    return {
        "spark_key_groups": lambda: connect(Pair(), left=keyed, right=keyed, key_groups=0),
        "spark_connected_twice": lambda: connect(Pair(), {"left": keyed}, left=keyed, right=keyed),
        "spark_not_a_stream": lambda: connect(Pair(), left=df, right=keyed),  # type: ignore[arg-type]
        "spark_order_by": lambda: connect(Pair(), left=KeyedStream(df, "id", "at", order_by=["price"]), right=keyed),
        "spark_no_inputs": lambda: connect(Pair()),
        "spark_not_an_operator": lambda: connect(Pair, left=keyed, right=keyed),  # type: ignore[arg-type]
        "spark_keyed_as_broadcast": lambda: connect(Pair(), left=keyed, right=BroadcastStream(df)),
        "spark_co_partitioned_stream": lambda: connect(Pair(), left=keyed, right=streaming, co_partitioned=True),
        "spark_output_unknown": lambda: connect(Pair(), left=keyed, right=keyed).output("outs"),
        "spark_output_unknown_in_run": lambda: connect(Pair(), left=keyed, right=keyed).run(
            {"outs": lambda df, n: None}
        ),
        "spark_no_checkpoint": lambda: connect(Pair(), left=streaming, right=streaming).run(
            {"out": lambda df, n: None}
        ),
        "spark_processing_time_without_end": lambda: connect(Pair(), left=timeless, right=timeless).run(
            {"out": lambda df, n: None}, checkpoint="unused", drain=False
        ),
        "spark_no_key_to_partition_by": lambda: connect(
            Pair(), left=KeyedStream(df), right=KeyedStream(df), co_partitioned=True
        ).output("out"),
        "stream_key_unknown": lambda: KeyedStream(df, ["ids"], "at"),
        "stream_key_is_a_double": lambda: KeyedStream(df, "price"),
        "stream_time_unknown": lambda: BroadcastStream(df, "ta"),
        "stream_time_is_a_double": lambda: KeyedStream(df, "id", "price"),
        "stream_key_is_a_column": lambda: KeyedStream(df, df["id"]),  # type: ignore[arg-type]
        "stream_unit_unknown": lambda: BroadcastStream(df, "id", time_unit="ms"),
        "stream_unit_of_a_timestamp": lambda: KeyedStream(df, "id", "at", time_unit="seconds"),
        "stream_delay_is_a_number": lambda: KeyedStream(df, "id", "at", max_out_of_orderness=5),  # type: ignore[arg-type]
        "stream_order_is_a_text": lambda: KeyedStream(df, "id", "at", order_by="price"),
        "spark_side_on_a_column": lambda: Side(df, on=df["id"]),  # type: ignore[arg-type]
        "stream_order_unknown": lambda: KeyedStream(df, "id", "at", order_by=["-prize"]),
        "stream_delay_negative": lambda: BroadcastStream(rules, max_out_of_orderness=timedelta(seconds=-1)),
        "stream_idle_at_once": lambda: KeyedStream(df, "id", "at", idle_after=timedelta(0)),
        "stream_idle_without_time": lambda: KeyedStream(df, "id", idle_after=timedelta(seconds=1)),
        "stream_partition_is_a_text": lambda: KeyedStream(df, "id", "at", watermark_by="id"),
        "stream_partition_is_a_column": lambda: KeyedStream(df, "id", "at", watermark_by=[df["id"]]),  # type: ignore[list-item]
        "stream_partition_unknown": lambda: KeyedStream(df, "id", "at", watermark_by=["ids"]),
        "stream_partition_is_a_double": lambda: DataStream(df, "at", watermark_by=["id", "price"]),
        "stream_partition_twice": lambda: KeyedStream(df, "id", "at", watermark_by=["id", "id"]),
        "stream_partition_without_time": lambda: BroadcastStream(df, watermark_by=["id"]),
        "stream_partition_with_a_watermark": lambda: KeyedStream(
            spark.readStream.format("rate").load().withWatermark("timestamp", "1 second"),
            "value",
            "timestamp",
            watermark_by=["value"],
        ),
        "stream_partition_of_a_statement": lambda: sql(
            "SELECT * FROM rates MATCH_RECOGNIZE (ORDER BY timestamp MEASURES A.value AS v PATTERN (A) DEFINE A AS TRUE)",
            spark,
            rates=spark.readStream.format("rate").load(),
            watermark_by=["partition"],
        ),
    }


@pytest.mark.spark
def test_error_texts_of_connecting(spark: SparkSession, golden: Golden) -> None:
    every = provocations(spark)
    for name, provocation in every.items():
        golden.error(name, provocation)
    assert golden.names() == set(every)
