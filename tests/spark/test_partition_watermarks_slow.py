"""Streams of which each partition has a watermark: windows behind a pattern, and partitions that are idle."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, TumblingWindows, window
from tests.kit import until
from tests.spark.test_partition_watermarks import DAY, HOUR, PAIR, Topic

pytestmark = pytest.mark.spark


def test_windows_behind_a_pattern_have_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path)
    topic.add((0, "ann", "a", DAY), (0, "ann", "b", DAY + 0.1 * HOUR), (1, "bob", "x", DAY))
    topic.add((1, "bob", "x", DAY + 2 * HOUR), (0, "ann", "x", DAY + 5 * HOUR))
    topic.add((1, "bob", "a", DAY + 2.1 * HOUR), (1, "bob", "b", DAY + 2.2 * HOUR))
    matches = CEP.pattern(topic.stream(), PAIR, key_groups=2).matches
    hourly = window(KeyedStream(matches, key="user", time="match_time"), TumblingWindows.of(HOUR), key_groups=2)
    rows: list[tuple[Any, ...]] = []

    def collect(df: DataFrame, batch_id: int) -> None:
        rows.extend((row.user, row.window_end, row.n) for row in df.collect())

    hourly.run({"results": collect}, aggregate="count(*) AS n", checkpoint=str(tmp_path / "checkpoint"), drain=False)
    assert rows == [("ann", (DAY + HOUR).replace(tzinfo=None), 1)]


def test_an_idle_partition_does_not_hold_back_the_next_operator(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path)
    topic.add((0, "ann", "a", DAY), (0, "ann", "b", DAY + 0.1 * HOUR), (1, "bob", "x", DAY))
    topic.add((0, "ann", "x", DAY + 5 * HOUR))
    matches = CEP.pattern(topic.stream(idle_after=timedelta(seconds=2)), PAIR, key_groups=2).matches
    hourly = window(KeyedStream(matches, key="user", time="match_time"), TumblingWindows.of(HOUR), key_groups=2)
    counts: list[tuple[str, int]] = []
    query = hourly.run(
        {"results": lambda df, batch_id: counts.extend((row.user, row.n) for row in df.collect())},
        aggregate="count(*) AS n",
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"processingTime": "100 milliseconds"},
    )
    assert query is not None
    try:
        until(lambda: counts == [("ann", 1)], query)
    finally:
        query.stop()
