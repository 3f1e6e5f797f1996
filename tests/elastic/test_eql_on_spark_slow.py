"""Queries over DataFrames of Spark: the answers are those over tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, eql
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


RULES = {
    "both ends": 'sequence with maxspan=2s ![any where kind == "x"] [any where kind == "a"] ![any where kind == "b"]',
    "both ends by key": 'sequence by pid with maxspan=6s ![any where kind == "x"] [any where kind == "a"] '
    '![any where kind == "c"]',
    "optional": 'sequence by pid, ?session with maxspan=9s [any where kind == "a" and ?source.port == null] '
    '[any where ?text[0].name == "q" or ?source.ip : "2001:*"]',
    "optional keys that differ": 'sequence with maxspan=9s [any where kind == "a"] by pid, ?session '
    '[any where kind == "b"] by pid, ?user.name',
}


def test_rules_continue_after_a_restart_and_drop_late_events(spark: SparkSession, tmp_path: Path) -> None:
    """Each part of the events is another run of the query. The last one has an event that is late."""
    rules = [
        {"id": name, "version": 1, "eql": query, "select": ["LAST(event_1.n) AS n"]} for name, query in RULES.items()
    ]
    (tmp_path / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    late = EVENTS[3] | {"n": 99, "kind": "x"}
    collected: dict[str, list[Any]] = {"matches": [], "late": []}
    for number in range(3):
        part = [*EVENTS[number * 6 : number * 6 + 6], *([late] if number == 2 else [])]
        spark.createDataFrame(part, SCHEMA).coalesce(1).write.mode("append").parquet(f"{tmp_path}/events")
        stream = spark.readStream.schema(SCHEMA).parquet(f"{tmp_path}/events")
        CEP.pattern_processors(KeyedStream(stream, time="@timestamp"), factory, key_groups=2).run(
            {name: lambda rows, _, to=to: to.extend(rows.collect()) for name, to in collected.items()},
            checkpoint=f"{tmp_path}/checkpoint",
            drain=number == 2,
        )
    assert [row.n for row in collected["late"]] == [99]
    expected = CEP.pattern_processors(KeyedStream(pa.Table.from_pylist(EVENTS), time="@timestamp"), factory)
    rows = [(row["processor_id"], dict(row["measures"])["n"]) for row in expected.output("matches").to_pylist()]
    assert sorted((row.processor_id, row.measures["n"]) for row in collected["matches"]) == sorted(rows)
    assert {name for name, _ in rows} == set(RULES)
