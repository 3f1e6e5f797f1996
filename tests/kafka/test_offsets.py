"""Records that are gone before they were read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import OffsetsGoneError
from asterism.sources import kafka_events
from tests.servers.kafka import Broker

PATTERN = Pattern.begin("a").where("kind = 'a'")


def records_of(spark: SparkSession, broker: Broker, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def send(broker: Broker, topic: str, *seconds: int) -> None:
    broker.send(
        topic,
        [
            (0, None, json.dumps({"ts": f"2025-01-01T12:00:{second:02}Z", "user": "ann", "kind": "a"}).encode())
            for second in seconds
        ],
    )


def test_records_that_are_gone(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("gone", 2)
    seen: list[int] = []

    def run(**options: object) -> None:
        events = kafka_events(
            records_of(spark, broker, "gone", **options), "ts TIMESTAMP, user STRING, kind STRING", time="ts"
        ).events
        CEP.pattern(KeyedStream(events, key="user", time="ts"), PATTERN, key_groups=1).run(
            {"matches": lambda df, batch_id: seen.extend(row.n for row in df.collect())},
            select={"matches": ["a.offset AS n"]},
            checkpoint=str(tmp_path),
            drain=False,
        )

    send(broker, "gone", 0, 1)
    run()
    send(broker, "gone", *range(2, 10))
    admin = broker.admin()
    for future in admin.delete_records([TopicPartition("gone", 0, 7)]).values():
        future.result(60)
    with pytest.raises(OffsetsGoneError, match="records of the topic partition gone-0 are gone: offsets from 2 to 10"):
        run()
    run(failOnDataLoss=False)
    assert seen == [0, 1, 7, 8]
