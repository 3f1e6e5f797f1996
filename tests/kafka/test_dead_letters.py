"""Records without an event: they stop no query, and are written with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampType

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import AsterismError, ColumnNotFoundError, ColumnTypeError, StreamDefinitionError
from asterism.sources import dead_letters, kafka_events
from tests.servers.kafka import Broker

SCHEMA = "ts TIMESTAMP, user STRING, amount INT, tags ARRAY<INT>"
RECORDS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
GOOD = b'{"ts": "2025-01-01T12:00:00Z", "user": "ann", "amount": 1, "tags": [1], "more": {}}'
REASONS: dict[bytes | None, str | None] = {
    b'{"ts": "2025-01-01T12:00:00Z", "user": 7}': None,
    b' {"ts": "2025-01-01T12:00:00Z", "user": "}]", "tags": [2], "more": [{"x": {}}]}\r\n': None,
    b'{"ts": "2025-01-01T12:00:00Z", "user": "ann", "amount": 1.5}': "wrong type: amount",
    b'{"ts": "yesterday", "user": "ann", "amount": "1"}': "wrong type: ts, amount",
    b'{"ts": "2025-01-01T12:00:00Z", "tags": ["x"]}': "wrong type: tags",
    b'{"user": "ann"}': "there is no event time 'ts'",
    b'{"ts": null}': "there is no event time 'ts'",
    b'{"ts": "2025-01-01T12:00:00Z", "us': "the value is not a JSON object",
    b'{"ts": "2025-01-01T12:00:00Z", "user": "\xff"}': "the value is not UTF-8",
    b"[1]": "the value is not a JSON object",
    b"null": "the value is not a JSON object",
    b"17": "the value is not a JSON object",
    b"": "the value is not a JSON object",
    b"\x00\x01\x02": "the value is not a JSON object",
    **{
        b'{"ts": "2025-01-01T12:00:00Z"%s' % rest: "there is text after the JSON object"
        for rest in (
            b"} garbage",
            b"}}",
            b'}{"user": "bob"}',
            b'},{"user": "bob"}',
            b"}]",
            b"},{}]}",
            b"}\x00",
            b"} // }",
        )
    },
    None: "the value is NULL (a tombstone)",
}


def stored(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"k", value, "logins", 0, offset) for offset, value in enumerate(values)]
    frame = spark.createDataFrame(rows, RECORDS.removesuffix(", timestamp TIMESTAMP"))
    return frame.selectExpr("*", "TIMESTAMP'2025-01-01 12:01:00' AS timestamp")


def test_the_reasons(spark: SparkSession) -> None:
    parsed = kafka_events(stored(spark, GOOD, *REASONS), SCHEMA, time="ts")
    rows = parsed.all.collect()
    assert [row.user for row in rows] == ["ann", "7", "}]", *[None] * (len(REASONS) - 2)]
    assert [row.dead_letter and row.dead_letter.reason for row in rows] == [None, *REASONS.values()]
    assert [bytes(row.value) if row.value is not None else None for row in parsed.dead_letters.collect()] == [*REASONS][
        2:
    ]
    assert parsed.events.columns == ["ts", "user", "amount", "tags", "topic", "partition", "offset"]
    letters = ["topic", "partition", "offset", "timestamp", "key", "value", "reason"]
    assert parsed.dead_letters.columns == letters

    # Also behind a filter, each value is parsed once.
    plan = parsed.events.where("user = 'ann' OR amount > 1")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(StructField(ts") == 1

    # Another format: a column that is NULL, or a struct of NULLs, if it cannot be parsed; the time is that of the record.
    kind = StructType().add("ts", TimestampType()).add("user", StringType())
    column = "from_json(CAST(value AS STRING), 'user STRING')"
    other = kafka_events(stored(spark, GOOD, b"[", None), F.expr(column), time="timestamp")
    assert [str(row.timestamp) for row in other.events.collect()] == ["2025-01-01 12:01:00"]
    assert [row.reason for row in other.dead_letters.collect()] == [
        "the value cannot be parsed", "the value is NULL (a tombstone)",
    ]  # fmt: skip
    assert kafka_events(stored(spark, GOOD), kind, time="ts").events.count() == 1


def test_headers_are_columns(spark: SparkSession) -> None:
    headers = """from_json(CASE offset WHEN 0 THEN '[{"key": "tenant", "value": "YQ=="}, {"key": "other", "value": "Yg=="},
        {"key": "tenant", "value": "w6k="}]' WHEN 1 THEN '[{"key": "tenant", "value": "/w=="}]' END,
        'ARRAY<STRUCT<key STRING, value BINARY>>') AS headers"""
    records = stored(spark, GOOD, GOOD, GOOD).selectExpr("*", headers)
    parsed = kafka_events(records, SCHEMA, time="ts", headers=["tenant", "trace"])
    assert parsed.events.columns == ["ts", "user", "amount", "tags", "tenant", "trace", "topic", "partition", "offset"]
    assert [(row.tenant, row.trace) for row in parsed.events.collect()] == [("é", None), (None, None)]
    assert [row.reason for row in parsed.dead_letters.collect()] == ["the header 'tenant' is not UTF-8"]
    with pytest.raises(StreamDefinitionError, match="the records were read without headers"):
        kafka_events(stored(spark, GOOD), SCHEMA, time="ts", headers=["tenant"])
    with pytest.raises(StreamDefinitionError, match="the events have a column 'user', like the records"):
        kafka_events(records, SCHEMA, time="ts", headers=["user"])
    with pytest.raises(StreamDefinitionError, match="the header 'offset' cannot be a column"):
        kafka_events(records, SCHEMA, time="ts", headers=["offset"])
    with pytest.raises(StreamDefinitionError, match="the headers must be a list of names, not 'tenant'"):
        kafka_events(records, SCHEMA, time="ts", headers="tenant")


@pytest.mark.parametrize(
    ("error", "change", "text"),
    [
        (StreamDefinitionError, {"event": "ts TIMESTAMP,, user"}, "the events cannot be parsed"),
        (
            StreamDefinitionError,
            {"event": "ts TIMESTAMP, Offset INT"},
            "the events have a column 'offset', like the records",
        ),
        (ColumnNotFoundError, {"time": "tz"}, "unknown column 'tz'"),
        (StreamDefinitionError, {"records": None}, "the records must be a DataFrame, not None"),
    ],
)
def test_what_is_refused(spark: SparkSession, error: type[AsterismError], change: dict[str, Any], text: str) -> None:
    arguments = {"records": stored(spark, GOOD), "event": SCHEMA, "time": "ts"} | change
    with pytest.raises(error, match=text):
        kafka_events(arguments["records"], arguments["event"], time=arguments["time"])


def test_other_frames_are_refused(spark: SparkSession) -> None:
    with pytest.raises(StreamDefinitionError, match="the records have no column 'key'"):
        kafka_events(spark.range(1), SCHEMA, time="ts")
    with pytest.raises(ColumnTypeError, match="the event must be a struct, not binary"):
        kafka_events(stored(spark, GOOD), F.col("value"), time="ts")
    with pytest.raises(StreamDefinitionError, match="the rows have no column 'topic'"):
        dead_letters(spark.range(1))


def test_dead_letters_of_the_query_that_writes_the_results(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("poisoned", 2)

    def send(*values: bytes | None) -> None:
        broker.send("poisoned", [(index % 2, b"k", value) for index, value in enumerate(values)])

    def event(second: int, kind: str) -> bytes:
        return json.dumps({"ts": f"2025-01-01T12:00:0{second}Z", "user": "ann", "kind": kind}).encode()

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", "poisoned")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    parsed = kafka_events(records, "ts TIMESTAMP, user STRING, kind STRING", time="ts")
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    found = CEP.pattern(KeyedStream(parsed.all, key="user", time="ts"), pattern, key_groups=2)
    matches: list[int] = []
    letters: list[tuple[Any, ...]] = []

    def late(rows: DataFrame, batch_id: int) -> None:
        letters.extend(
            (row.partition, row.offset, row.value and bytes(row.value), row.reason)
            for row in dead_letters(rows).collect()
        )

    for values, drain in (((event(1, "a"), b"{", None), False), ((b"x", event(2, "b")), True)):
        send(*values)
        found.run(
            {"matches": lambda df, batch_id: matches.extend(row.b for row in df.collect()), "late": late},
            select={"matches": ["b.offset AS b"]},
            checkpoint=str(tmp_path),
            drain=drain,
        )
    assert matches == [1]
    assert sorted(letters, key=str) == [
        (0, 1, None, "the value is NULL (a tombstone)"),
        (0, 2, b"x", "the value is not a JSON object"),
        (1, 0, b"{", "the value is not a JSON object"),
    ]
