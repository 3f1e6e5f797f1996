"""Each kind of query from a topic of three partitions to a topic, with a restart: the records are the rows of the same query over
a table, with the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism import (
    CEP,
    EventTimeTrigger,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    TumblingWindows,
)
from asterism.sinks import KafkaSink
from asterism.sources import kafka_events
from tests.kafka.test_offsets import records_of
from tests.servers.kafka import Broker

SCHEMA = "ts TIMESTAMP, user STRING, kind STRING"
EVENTS = [
    {"ts": f"2025-01-01T12:{minute:02}:{second:02}Z", "user": f"user{minute % 6}", "kind": kind}
    for minute in range(24)
    for second, kind in ((1, "a"), (2, "b"), (3, "x"))
]
RESTART = 3 * 11 + 1  # between the two events of a match
PATTERN = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
A_THEN_B = "PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
RULES = [{"id": "a then b", "version": 1, "sql": f"MEASURES A.ts AS at {A_THEN_B}"}]
Run = Callable[..., Any]
"""Takes a sink and the options of ``run``."""


def keyed(events: DataFrame, **options: Any) -> KeyedStream:
    return KeyedStream(events, key="user", time="ts", watermark_by=["topic", "partition"], **options)


def ordered(events: DataFrame) -> KeyedStream:
    return keyed(events, order_by=["partition", "offset"])


def pattern(events: DataFrame, folder: Path) -> Run:
    found = CEP.pattern(ordered(events), PATTERN, key_groups=2)
    select = {"matches": ["match_id", "a.ts AS at", "b.offset AS b"]}
    return lambda sink, **options: found.run({"matches": sink}, select=select, **options)


def rules(events: DataFrame, folder: Path) -> Run:
    (folder / "rules.json").write_text(json.dumps(RULES))
    factory = FilePatternProcessorDiscovererFactory(folder / "rules.json")
    found = CEP.pattern_processors(ordered(events), factory, key_groups=2)
    return lambda sink, **options: found.run({"matches": sink}, **options)


def statement(events: DataFrame, folder: Path) -> Run:
    text = f"SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts MEASURES A.ts AS at {A_THEN_B})"
    found = asterism.sql(text, events.sparkSession, events=events, watermark_by=["topic", "partition"], key_groups=2)
    return lambda sink, **options: asterism.run(found, sink, **options)


def windows(events: DataFrame, folder: Path) -> Run:
    found = asterism.window(
        keyed(events),
        TumblingWindows.of(timedelta(minutes=5)),
        trigger=EventTimeTrigger.after_end_of_window(),
        key_groups=2,
    ).aggregate("COUNT(*) AS n", "MIN(ts) AS at")
    return lambda sink, **options: asterism.run(found, sink, **options)


def of_kind(events: DataFrame, kind: str) -> KeyedStream:
    return keyed(events.where(f"kind = '{kind}'").select("user", "ts", "topic", "partition", "offset"))


def interval_join(events: DataFrame, folder: Path) -> Run:
    between = (timedelta(0), timedelta(minutes=7))
    found = asterism.interval_join(of_kind(events, "a"), of_kind(events, "b"), between, prefix="b_", key_groups=2)
    return lambda sink, **options: found.run({"results": sink}, **options)


def as_of_join(events: DataFrame, folder: Path) -> Run:
    found = asterism.as_of_join(of_kind(events, "x"), of_kind(events, "a"), prefix="a_", key_groups=2)
    return lambda sink, **options: found.run({"results": sink}, **options)


@pytest.mark.parametrize(
    ("kind", "key", "rows"),
    [
        (pattern, "match_id", 24),
        (rules, "match_id", 24),
        (statement, ["user", "at"], 24),
        (windows, ["user", "window_start"], 24),
        (interval_join, ["partition", "offset", "b_offset"], 42),
        (as_of_join, ["partition", "offset"], 24),
    ],
)
def test_from_topic_to_topic(
    kind: Callable[[DataFrame, Path], Run],
    key: str | list[str],
    rows: int,
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
) -> None:
    source, target = f"kinds_{kind.__name__}_in", f"kinds_{kind.__name__}_out"
    broker.create_topic(source, 3)
    broker.create_topic(target, 2)
    sink = KafkaSink(broker.address, target, key=key)
    for events, drain in ((EVENTS[:RESTART], False), (EVENTS[RESTART:], True)):
        broker.send(source, [(int(event["user"][-1]) % 3, None, json.dumps(event).encode()) for event in events])
        records = records_of(spark, broker, source, maxOffsetsPerTrigger=20)
        run = kind(kafka_events(records, SCHEMA, time="ts").events, tmp_path)
        run(sink, checkpoint=str(tmp_path / "checkpoint"), drain=drain)

    stored = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    table = kafka_events(stored.option("subscribe", source).load(), SCHEMA, time="ts").events
    expected: list[tuple[bytes, bytes]] = []
    kind(table, tmp_path)(
        lambda df, batch_id: expected.extend(
            (row.key.encode(), row.value.encode()) for row in sink.records(df).collect()
        )
    )
    assert len({row_key for row_key, _ in expected}) == len(expected) == rows
    assert sorted((row_key, value) for _, row_key, value in broker.records(target)) == sorted(expected)
