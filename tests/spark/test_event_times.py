"""Event times of every type that Spark has, over streams and tables, with and without a filter before the exchange."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern
from asterism.columns.time import TIME_UNIT, TIME_UNITS, TimeColumn
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.spark.host.column_types import arrow_schema
from asterism.spark.host.times import event_micros
from asterism.streams.operators import connect
from asterism.streams.windows import window
from asterism.windows.assigners import TumblingWindows
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])

EDGES = """
    TIMESTAMP_NTZ '0001-01-01 00:00:00', TIMESTAMP_NTZ '1582-10-15 12:00:00.5', TIMESTAMP_NTZ '1677-09-20 23:59:59.999999',
    TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', TIMESTAMP_NTZ '1970-01-01 00:00:00', TIMESTAMP_NTZ '2025-03-09 01:59:59.123456',
    TIMESTAMP_NTZ '2025-03-09 02:30:00', TIMESTAMP_NTZ '2025-11-02 01:30:00', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', NULL
"""
"""In New York one of these does not exist, and one comes twice."""
LONGS = "-9223372036854775808, -1001, -1000, -1, 0, 1, 999, 1000, 1700000000123456789, 9223372036854775807, NULL"


@pytest.fixture
def new_york(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_spark_and_the_operators_agree_on_times(spark: SparkSession, new_york: None, kind: str) -> None:
    agree(spark.sql(f"SELECT CAST(t AS {kind}) AS t FROM (SELECT explode(array({EDGES})) AS t)"), "milliseconds")


@pytest.mark.parametrize("unit", TIME_UNITS)
def test_spark_and_the_operators_agree_on_integers(spark: SparkSession, unit: str) -> None:
    agree(spark.sql(f"SELECT CAST(t AS BIGINT) AS t FROM (SELECT explode(array({LONGS})) AS t)"), unit)


def agree(df: DataFrame, unit: str) -> None:
    both = df.select("t", event_micros(df, "t", unit).alias("micros")).toArrow()
    schema = arrow_schema(df.sparkSession, df.schema, unit)
    assert schema.metadata[TIME_UNIT].decode() == unit
    found = TimeColumn.of("t", schema).to_micros(both.column("t").cast(schema.field("t").type), lenient=True)
    assert both.column("micros").to_pylist() == found.to_pylist()
    assert len(found.drop_null()) > 3


class Seen(StreamOperator):
    """Every time that there is comes as the time of an element."""

    events = Input("k STRING, v BIGINT")
    seen = Output("v BIGINT, t TIMESTAMP")

    @events.process_element
    def see(self, e: Any, ctx: Any) -> None:
        self.seen.collect(v=e.v, t=ctx.timestamp)


DAY = 86_400
TIMES: dict[str, tuple[Callable[[Column], Column], str]] = {
    "TIMESTAMP": (F.timestamp_seconds, "milliseconds"),
    "TIMESTAMP_NTZ": (
        lambda seconds: F.expr("TIMESTAMP_NTZ '1970-01-01'") + F.make_dt_interval(secs=seconds),
        "milliseconds",
    ),
    "DATE": (lambda seconds: F.date_from_unix_date((seconds / DAY).cast("int")), "milliseconds"),
    "BIGINT": (lambda seconds: seconds * 1000, "milliseconds"),
    "seconds": (lambda seconds: seconds, "seconds"),
    "microseconds": (lambda seconds: seconds * 10**6, "microseconds"),
    "nanoseconds": (lambda seconds: seconds * 10**9, "nanoseconds"),
}
"""From a count of seconds, which are whole days."""
PATTERNS = {
    "filtered": Pattern.begin("a").where("v % 10 < 5").followed_by("b").where("v % 10 = 4"),
    "strict": Pattern.begin("a").where("v % 10 < 5").next("b").where("v % 10 = 4"),
}


QUERIES = [*PATTERNS, "windows", "seen"]
"""A pattern with a filter, one without, windows, and an operator of one's own."""


def results(query: str, df: DataFrame, unit: str, checkpoint: Path | None = None) -> list[str]:
    stream, found = KeyedStream(df, "k", "t", time_unit=unit), Collect()
    how: dict[str, Any] = {"checkpoint": checkpoint}
    match query:
        case "windows":
            windows = window(stream, TumblingWindows.of(timedelta(days=7)), key_groups=2)
            windows.run({"results": found}, aggregate="sum(v) AS s", **how)
        case "seen":
            connect(Seen(), events=stream, key_groups=2).run({"seen": found}, **how)
        case _:
            output = "timed_out" if query == "filtered" else "matches"
            pattern = PATTERNS[query].within(timedelta(days=3))
            CEP.pattern(stream, pattern, key_groups=2).run({output: found}, **how)
    return sorted(map(str, found.rows))


@pytest.fixture(scope="module")
def of_table(spark: SparkSession) -> Callable[[str, str], list[str]]:
    """What a query finds in a table with times of a kind."""
    return cache(lambda query, kind: results(query, events(spark, kind), TIMES[kind][1]))


Tables = Callable[[str, str], list[str]]
COVERING = {("TIMESTAMP_NTZ", "seen"), ("DATE", "windows"), ("nanoseconds", "filtered")}
"""Each kind; a filter before the exchange and none."""


@pytest.mark.parametrize(("kind", "query"), sorted(COVERING))
def test_streams(spark: SparkSession, tmp_path: Path, new_york: None, of_table: Tables, kind: str, query: str) -> None:
    check_stream(spark, tmp_path, of_table, kind, query)


def check_stream(spark: SparkSession, tmp_path: Path, of_table: Tables, kind: str, query: str) -> None:
    table = events(spark, kind)
    table.repartition(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(table.schema).parquet(str(tmp_path / "in"))
    assert results(query, stream, TIMES[kind][1], tmp_path / "checkpoint") == of_table(query, kind)


def events(spark: SparkSession, kind: str) -> DataFrame:
    """One a day, from 1969-12-12 on; the clocks of New York play no part."""
    seconds = (F.col("id") - 20) * DAY
    return spark.range(60).select(F.lit("x").alias("k"), TIMES[kind][0](seconds).alias("t"), F.col("id").alias("v"))


def test_schemas_keep_types(spark: SparkSession) -> None:
    for kind, (_, unit) in TIMES.items():
        df = events(spark, kind)
        found = CEP.pattern(KeyedStream(df, "k", "t", time_unit=unit), PATTERNS["strict"]).matches
        assert {found.schema[name].dataType for name in ("start_time", "match_time")} == {df.schema["t"].dataType}


def test_a_table_is_read_in_order_of_time_whatever_the_times(spark: SparkSession) -> None:
    """Also of events that are few microseconds apart, and of times that Spark's order of tables does not distinguish."""
    near = [1_700_000_000_000_000 + micros for micros in (16, 3, 15, 0, 17, 2, 1)]
    ancient, distant = (
        [-50_000_000_000_000_000, -50_000_000_000_000_002],
        [200_000_000_000_000_000, 199_999_999_999_999_999],
    )
    times = [*near, *distant, *ancient, -1, 0]
    rows = [(f"k{key}", micros) for key in range(40) for micros in times]
    events = spark.createDataFrame(rows, "k STRING, n BIGINT").withColumn("t", F.timestamp_micros("n")).repartition(4)
    pattern = Pattern.begin("a").followed_by("b")
    found = CEP.pattern(KeyedStream(events, key="k", time="t"), pattern).select("a.n AS a", "b.n AS b").collect()
    ordered = sorted(times)
    assert sorted((row.k, row.a, row.b) for row in found) == sorted(
        (f"k{key}", a, b) for key in range(40) for a, b in pairwise(ordered)
    )
