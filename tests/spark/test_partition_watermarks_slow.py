"""Streams of which each partition has a watermark: partitions that are idle."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, TumblingWindows, window
from tests.kit import until
from tests.spark.test_partition_watermarks import DAY, HOUR, PAIR, Topic

pytestmark = pytest.mark.spark


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
