"""Partitions of a topic that are behind, idle or new: each has a watermark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern
from tests.kit import until
from tests.servers.kafka import Broker

DAY = datetime(2025, 1, 1, tzinfo=UTC)
PAIR = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(minutes=30))
TOPIC = "partitions_behind"


def test_partitions_that_are_behind_idle_or_new(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic(TOPIC, 2)

    def send(*events: tuple[int, str, str, float]) -> None:
        """(partition, user, kind, hour)"""
        broker.send(
            TOPIC,
            [
                (
                    partition,
                    user.encode(),
                    json.dumps({"user": user, "kind": kind, "ts": (DAY + timedelta(hours=hour)).isoformat()}).encode(),
                )
                for partition, user, kind, hour in events
            ],
        )

    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": broker.address, "kafka.metadata.max.age.ms": "500"})
        .options(subscribe=TOPIC, startingOffsets="earliest")
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), "ts TIMESTAMP, user STRING, kind STRING")
    events = records.select("topic", "partition", value.alias("event")).select("topic", "partition", "event.*")
    stream = KeyedStream(
        events,
        key="user",
        time="ts",
        watermark_by=["topic", "partition"],
        idle_after=timedelta(seconds=3),
    )
    matched: list[str] = []
    late: list[str] = []
    sinks = {
        "matches": lambda df, batch_id: matched.extend(row.user for row in df.collect()),
        "late": lambda df, batch_id: late.extend(row.user for row in df.collect()),
    }
    # Partition 1 is three hours behind partition 0.
    send((0, "ann", "a", 3), (0, "ann", "b", 3.1), (0, "ann", "x", 5))
    send((1, "bob", "a", 0), (1, "bob", "b", 0.2), (1, "bob", "x", 1))
    query = CEP.pattern(stream, PAIR, key_groups=2).run(
        sinks, checkpoint=str(tmp_path), trigger={"processingTime": "100 milliseconds"}
    )
    assert query is not None
    try:
        until(lambda: matched == ["bob"], query)
        until(lambda: matched == ["bob", "ann"], query)  # partition 1 is idle
        send((1, "eve", "x", 2))
        until(lambda: late == ["eve"], query)
        broker.add_partitions(TOPIC, 3)
        send((2, "zoe", "a", 6), (2, "zoe", "b", 6.2), (2, "zoe", "x", 7))
        until(lambda: any('"2": 3' in (source.endOffset or "") for source in query.lastProgress.sources), query)
        send((0, "ann", "x", 8), (1, "bob", "x", 8))
        until(lambda: matched == ["bob", "ann", "zoe"], query)
        assert late == ["eve"]
    finally:
        query.stop()
