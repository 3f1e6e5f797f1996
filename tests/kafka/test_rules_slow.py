"""Rules in a topic, over events in a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import PatternProcessorStream
from asterism.discovery import KafkaPatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import INTERRUPTED
from tests.servers.kafka import Broker
from tests.spark.rules import INTERVAL, Event, Watch, at, e, rule

SCHEMA = "ts TIMESTAMP, user STRING, item BIGINT, kind STRING, x DOUBLE"


class WatchOfTopics(Watch):
    """The topic of events has two partitions, by user."""

    def __init__(self, spark: SparkSession, folder: Path, broker: Broker, name: str, **options: Any) -> None:
        self.broker, self.topic, self.rule_topic = broker, f"{name}_events", f"{name}_rules"
        broker.create_topic(self.topic, 2)
        self.create_rule_topic()
        factory = KafkaPatternProcessorDiscovererFactory(broker.address, self.rule_topic, interval=INTERVAL)
        super().__init__(spark, folder, factory=factory, key_groups=2, **options)

    def create_rule_topic(self) -> None:
        self.broker.create_topic(self.rule_topic, 2, {"cleanup.policy": "compact"})

    def rules(self, *rules: PatternProcessor | Mapping[str, Any]) -> None:
        items = [each.to_dict() if isinstance(each, PatternProcessor) else each for each in rules]
        self.broker.send(self.rule_topic, [(0, item["id"].encode(), json.dumps(item).encode()) for item in items])

    def remove(self, id: str) -> None:
        self.broker.send(self.rule_topic, [(0, id.encode(), None)])

    def events(self, *events: Event | tuple[None, str, str, int, float]) -> None:
        rows = [
            {"ts": at(second or 0).isoformat(), "kind": kind, "user": user, "item": item, "x": x}
            for second, kind, user, item, x in events
        ]
        self.broker.send(self.topic, [(row["user"] == "bob", None, json.dumps(row).encode()) for row in rows])

    @property
    def stream(self) -> PatternProcessorStream:
        records = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.address)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        event = F.from_json(F.col("value").cast("string"), SCHEMA)
        return self.stream_of(records.select(event.alias("event")).select("event.*"))


def test_rules_change_while_the_query_runs_and_while_it_does_not(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    query = WatchOfTopics(spark, tmp_path, broker, "changing")
    query.rules(rule("ab", 1, "a", "b"))
    with query.running():
        query.wait_for({"ab": 1})
        query.send(e(1, "a"), e(2, "b"))
        query.rules(rule("ab", 2, "b", "a"), rule("c", 1, "c"))
        query.wait_for({"ab": 2, "c": 1})
        query.settle().send(e(3, "b"), e(4, "a"), e(5, "c", "bob"))
        query.rules({"id": "c", "version": 2, "pattern": "{"})
        query.wait_for({"ab": 2, "c": 1})
        query.remove("ab")
        query.wait_for({"c": 1})
        query.settle().send(e(6, "b"), e(7, "a"), e(8, "c"))
        broker.delete_topic(query.rule_topic)
        error = str(query.wait_for({"c": 1}, INTERRUPTED).error)
        assert f"there is no topic 'changing_rules' at {broker.address}" in error
    found = [
        ("ab", 1, ("ann",), "a1 b2"),
        ("ab", 2, ("ann",), "b3 a4"),
        ("c", 1, ("ann",), "c8"),
        ("c", 1, ("bob",), "c5"),
    ]
    assert query.found == found
    query.events(e(9, "c"), e(9.5, "tick"))
    query.once()  # without the topic: the set of the checkpoint is in force
    assert query.found == sorted([*found, ("c", 1, ("ann",), "c9")])
    query.create_rule_topic()
    query.rules(rule("ab", 3, "a", "b"))
    query.events(e(10, "c"), e(11, "a"), e(12, "b"), e(13, "tick"))
    query.once()
    assert query.found == sorted([*found, ("c", 1, ("ann",), "c9"), ("ab", 3, ("ann",), "a11 b12")])
