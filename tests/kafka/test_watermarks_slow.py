"""Streams of which each partition has a watermark, in rules that change meanwhile and in a join."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, interval_join, monitor
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from tests.kit import until
from tests.spark.test_partition_watermarks import DAY, HOUR, PAIR, Topic

pytestmark = pytest.mark.spark


def test_rules_that_change_while_a_partition_is_behind_or_idle(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path)
    rules, checkpoint = tmp_path / "rules.json", str(tmp_path / "checkpoint")
    matches: dict[int, list[tuple[str, int]]] = {}  # by micro-batch, because one that was stopped is repeated
    late: dict[int, list[str]] = {}

    def write_matches(df: DataFrame, batch_id: int) -> None:
        matches[batch_id] = [(row.key[0], row.processor_version) for row in df.collect()]

    def write_late(df: DataFrame, batch_id: int) -> None:
        late[batch_id] = [row.user for row in df.collect()]

    def matched() -> list[tuple[str, int]]:
        return [row for batch_id in sorted(matches) for row in matches[batch_id]]

    sinks = {"matches": write_matches, "late": write_late}

    def publish(version: int) -> None:
        new = tmp_path / "new_rules"
        new.write_text(json.dumps([PatternProcessor("pair", version, PAIR).to_dict()]))
        new.replace(rules)

    def stream() -> Any:
        factory = FilePatternProcessorDiscovererFactory(rules, interval=timedelta(milliseconds=50))
        return CEP.pattern_processors(topic.stream(idle_after=timedelta(seconds=6)), factory, key_groups=2)

    trigger = {"processingTime": "100 milliseconds"}
    publish(1)
    topic.add((0, "ann", "a", DAY + 3 * HOUR), (1, "bob", "a", DAY), (1, "bob", "b", DAY + 0.1 * HOUR))
    topic.add((0, "ann", "b", DAY + 3.2 * HOUR), (0, "ann", "x", DAY + 9 * HOUR), (1, "bob", "x", DAY + HOUR))
    running = stream()
    query = running.run(sinks, checkpoint=checkpoint, trigger=trigger)
    try:
        until(lambda: matched() == [("bob", 1)], query)
        held_back = "held back    by partition=1 of events, 8 h behind the fastest partition"
        until(lambda: held_back in str(monitor(query)).splitlines(), query)
        publish(2)
        running.wait_for({"pair": 2}, checkpoint)
        # The events of ann wait for partition 1, and meet the rules that are in force when it has passed them; or it is idle.
        topic.add((1, "bob", "x", DAY + 4 * HOUR))
        until(lambda: matched() == [("bob", 1), ("ann", 2)], query)
        topic.add(
            (0, "cid", "a", DAY + 9.1 * HOUR), (0, "cid", "b", DAY + 9.2 * HOUR), (0, "cid", "x", DAY + 10 * HOUR)
        )
        until(lambda: len(matched()) == 3, query)  # partition 1 is idle
        assert matched()[2] == ("cid", 2)
    finally:
        query.stop()
    assert not any(late.values())
    # What is idle stays idle after a restart, and its next events are late; then it holds back the watermark again.
    topic.add((1, "eve", "a", DAY + 5 * HOUR))
    topic.add((0, "dan", "a", DAY + 11 * HOUR), (0, "dan", "b", DAY + 11.1 * HOUR), (0, "dan", "x", DAY + 12 * HOUR))
    query = stream().run(sinks, checkpoint=checkpoint, trigger=trigger)
    try:
        until(lambda: ["eve"] in late.values(), query)
        until(lambda: len(matched()) == 4, query)  # idle again, in this run
        assert matched()[3] == ("dan", 2)
    finally:
        query.stop()
    stream().run(sinks, checkpoint=checkpoint, drain=True)
    assert (len(matched()), [user for users in late.values() for user in users]) == (4, ["eve"])


def test_a_join_of_streams_with_partitions_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    (tmp_path / "right").mkdir()
    left, right = Topic(spark, tmp_path / "left"), Topic(spark, tmp_path / "right")
    left.add((0, "ann", "order", DAY + 5 * HOUR), (1, "bob", "order", DAY + 0.5 * HOUR))
    left.add((0, "ann", "x", DAY + 9 * HOUR), (1, "bob", "x", DAY + 2 * HOUR))
    right.add((7, "ann", "pay", DAY + 5.1 * HOUR), (8, "bob", "pay", DAY + 0.6 * HOUR), (8, "bob", "x", DAY + HOUR))
    right.add((7, "ann", "x", DAY + 8 * HOUR), (8, "bob", "x", DAY + 6.2 * HOUR))
    joined: list[tuple[str, str, str]] = []
    late: list[str] = []

    def join(drain: bool) -> None:
        joining = interval_join(
            left.stream(), right.stream(), (timedelta(0), HOUR), how="left", prefix="paid_", key_groups=2
        )

        def collect(df: DataFrame, batch_id: int) -> None:
            joined.extend((row.user, row.kind, row.paid_kind) for row in df.collect())

        sinks = {"results": collect, "late_left": lambda df, batch_id: late.extend(row.user for row in df.collect())}
        joining.run(sinks, checkpoint=str(tmp_path / "checkpoint"), drain=drain)

    join(drain=False)
    assert sorted(joined) == [("bob", "order", "pay"), ("bob", "order", "x")]
    left.add((1, "bob", "order", DAY + 5.5 * HOUR), (1, "eve", "order", DAY + HOUR))
    join(drain=True)
    assert late == ["eve"]
    assert sorted(joined, key=str) == [
        ("ann", "order", "pay"),
        ("ann", "x", None),
        ("bob", "order", "pay"),
        ("bob", "order", "x"),
        ("bob", "order", "x"),
        ("bob", "x", None),
    ]
