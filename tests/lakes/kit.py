"""What the scenarios share: sinks of both lakes, micro-batches without a query, and a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, PatternStream
from asterism.sinks import DeltaSink, IcebergSink

EVENTS = "ts TIMESTAMP, user STRING, kind STRING"
GUESSED = (
    Pattern.begin("fails").where("kind = 'failed'").times(2).consecutive()
    .next("login").where("kind = 'accepted'")
    .within(timedelta(minutes=1))
)  # fmt: skip
SELECT = ["match_id", "COUNT(fails.*) AS failures", "login.ts AS login"]


def sink_of(lake: str, table: str, **options: Any) -> DeltaSink | IcebergSink:
    return DeltaSink(table, **options) if lake == "delta" else IcebergSink(table, **options)


@contextmanager
def as_query(spark: SparkSession, query: str) -> Iterator[None]:
    """As if the sinks were called by this query."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type] # PySpark takes it


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.collect()), key=repr)


def events_of(spark: SparkSession, *lines: str) -> DataFrame:
    """``1 ann failed``: the second, the user and the kind."""
    rows = [line.split() for line in lines]
    return spark.createDataFrame(
        [(int(second), user, kind) for second, user, kind in rows], "s INT, user STRING, kind STRING"
    ).selectExpr("TIMESTAMP'2025-01-01 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, s) AS ts", "user", "kind")


def guesses(events: DataFrame, key_groups: int = 2) -> PatternStream:
    return CEP.pattern(KeyedStream(events, key="user", time="ts"), GUESSED, key_groups=key_groups)


def append(spark: SparkSession, lake: str, table: str, lines: list[str]) -> None:
    rows = events_of(spark, *lines).coalesce(1)
    if lake == "delta" and "`" in table:  # a path
        rows.write.format("delta").mode("append").save(table.split("`")[1])
    elif lake == "delta":
        rows.write.format("delta").mode("append").saveAsTable(table)
    elif spark.catalog.tableExists(table):
        rows.writeTo(table).append()
    else:
        rows.writeTo(table).using("iceberg").tableProperty("format-version", "2").create()


def rewrite(spark: SparkSession, lake: str, table: str) -> None:
    """Compact the files, which changes no row."""
    if lake == "delta":
        spark.sql(f"OPTIMIZE {table}")
    else:
        spark.sql(f"CALL ice.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
