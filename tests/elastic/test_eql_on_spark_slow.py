"""Queries over DataFrames of Spark: the answers are those over tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import eql
from asterism.errors import UnsupportedSyntaxError

pytestmark = pytest.mark.spark
KINDS = "abcxabaabbxcabcaxb"
EVENTS = [
    {
        "@timestamp": datetime(2026, 1, 31, tzinfo=UTC) + timedelta(seconds=number),
        "n": number,
        "kind": kind,
        "pid": number % 3,
        "ppid": float(number % 2),
        "source": {"ip": f"2001:db8:{number:x}::1" if number % 2 else None},
        "text": "cmd\n" if number % 4 else "cmd",
    }
    for number, kind in enumerate(KINDS)
]
QUERIES = [
    'any where cidrMatch(source.ip, "2001:db8::/44")',
    'any where text regex~ "CMD" and ?source.port == null',
    'sequence by pid with maxspan=9s [any where kind == "a"] ![any where kind == "x"] [any where kind == "b"]',
    'sequence with maxspan=4s ![any where kind == "x"] [any where kind == "a"] [any where kind == "b"]',
    'sequence with maxspan=3s [any where kind == "a"] ![any where kind == "b"]',
    'sequence [any where kind == "a"] by pid [any where kind == "b"] by ppid',
    'sequence [any where kind == "a"] [any where kind == "b"] | unique pid',
    'sample by pid [any where kind == "a"] [any where kind in ("a", "b")]',
    'sample [any where kind == "a"] by pid [any where true] by ppid',
    'sample by pid [any where kind == "a"] [any where true] | count',
]
SCHEMA = "`@timestamp` TIMESTAMP, n INT, kind STRING, pid INT, ppid DOUBLE, source STRUCT<ip: STRING>, text STRING"


@pytest.mark.parametrize("query", QUERIES)
def test_the_answers_are_those_over_a_table(spark: SparkSession, query: str) -> None:
    found = eql(query, spark.createDataFrame(EVENTS, SCHEMA)).drop("@timestamp", "source").toArrow()
    expected = eql(query, pa.Table.from_pylist(EVENTS))
    expected = expected.select([name for name in expected.column_names if name not in ("@timestamp", "source")])
    rows = [{name: row[name] for name in expected.column_names} for row in found.to_pylist()]
    assert rows == expected.to_pylist()


def test_a_stream_has_the_absent_events_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    query = 'sequence with maxspan=4s ![any where kind == "x"] [any where kind == "a"] [any where kind == "b"]'
    for number in range(3):
        part = EVENTS[number * 6 : number * 6 + 6]
        spark.createDataFrame(part, SCHEMA).coalesce(1).write.mode("append").parquet(f"{tmp_path}/events")
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/events")
    with pytest.raises(UnsupportedSyntaxError, match="cannot be searched for samples"):
        eql("sample by pid [any where true] [any where true]", stream)
    writer = eql(query, stream, key_groups=2).writeStream.format("memory").queryName("absent_events")
    query_of_spark = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
    query_of_spark.awaitTermination()
    found = [row.n for row in spark.table("absent_events").orderBy("sequence", "event_number").collect()]
    expected = eql(query, pa.Table.from_pylist(EVENTS))["n"].to_pylist()
    assert sorted(found) == sorted(expected[: len(found)])
    assert len(found) >= 4
