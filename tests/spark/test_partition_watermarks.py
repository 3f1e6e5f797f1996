"""Streams of which each partition has a watermark: ``watermark_by``."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, read_state, run, sql
from asterism.errors import ColumnNotFoundError, ColumnTypeError, StreamDefinitionError

DAY = datetime(2025, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAIR = (
    Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(minutes=30))
)  # fmt: skip


class Topic:
    """A folder with one file for each micro-batch; each event has a partition."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.files = spark, folder / "events", 0
        self.folder.mkdir()

    def add(self, *events: tuple[int, str, str, datetime]) -> None:
        """(partition, user, kind, time)"""
        rows = [
            {"partition": partition, "user": user, "kind": kind, "ts": time.isoformat()}
            for partition, user, kind, time in events
        ]
        written = self.folder.parent / "new"
        written.write_text("\n".join(map(json.dumps, rows)))
        self.files += 1
        os.utime(written, (self.files, self.files))  # Spark reads files in the order of their times
        written.rename(self.folder / f"{self.files:03}.json")

    @property
    def df(self) -> DataFrame:
        schema = "partition INT, user STRING, kind STRING, ts TIMESTAMP"
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def stream(self, **options: Any) -> KeyedStream:
        return KeyedStream(self.df, key="user", time="ts", watermark_by=["partition"], **options)


def test_a_partition_that_is_hours_behind_is_not_late(spark: SparkSession, tmp_path: Path) -> None:
    """Also after a restart. The state shows which partition holds back the watermark."""
    topic = Topic(spark, tmp_path)
    topic.add((0, "ann", "a", DAY + 3 * HOUR), (1, "bob", "a", DAY), (1, "bob", "x", DAY))
    topic.add((0, "ann", "b", DAY + 3.2 * HOUR), (0, "ann", "x", DAY + 9 * HOUR))
    topic.add((1, "bob", "b", DAY + 0.2 * HOUR), (1, "bob", "x", DAY + HOUR))
    matched: list[str] = []
    late: list[str] = []

    def continue_query() -> None:
        sinks = {
            "matches": lambda df, batch_id: matched.extend(row.user for row in df.collect()),
            "late": lambda df, batch_id: late.extend(row.user for row in df.collect()),
        }
        CEP.pattern(topic.stream(), PAIR, key_groups=2).run(sinks, checkpoint=checkpoint, drain=False)

    checkpoint = str(tmp_path / "checkpoint")
    continue_query()
    assert (matched, late) == (["bob"], [])  # partition 1 has passed it, and holds back those of ann
    assert {
        (row.partition["partition"], row.watermark.hour, row.holds_back)
        for row in read_state(spark, checkpoint).partitions().collect()
    } == {("0", 8, False), ("1", 0, True)}
    topic.add((1, "bob", "a", DAY + 4 * HOUR), (1, "eve", "x", DAY + 0.5 * HOUR))
    topic.add((0, "zoe", "x", DAY + 3.5 * HOUR))
    continue_query()
    assert (matched, late) == (["bob", "ann"], ["eve", "zoe"])


def test_a_statement_with_a_clause_behind_a_clause(spark: SparkSession, tmp_path: Path) -> None:
    """Only the first one reads partitions. The view of a stream has them, too."""
    topic = Topic(spark, tmp_path)
    topic.add((0, "ann", "a", DAY + HOUR), (0, "ann", "b", DAY + 1.1 * HOUR), (1, "bob", "a", DAY))
    topic.add((0, "ann", "x", DAY + 5 * HOUR), (1, "bob", "b", DAY + 0.1 * HOUR))
    topic.add((1, "bob", "a", DAY + 0.2 * HOUR), (1, "bob", "b", DAY + 0.3 * HOUR), (1, "bob", "x", DAY + 4 * HOUR))
    topic.df.createOrReplaceTempView("partitioned_logins")
    result = sql(
        """
        SELECT * FROM (SELECT * FROM partitioned_logins MATCH_RECOGNIZE (
            PARTITION BY user ORDER BY ts MEASURES B.ts AS ts PATTERN (A B) WITHIN INTERVAL '30' MINUTE
            DEFINE A AS kind = 'a', B AS kind = 'b')
        ) MATCH_RECOGNIZE (
            PARTITION BY user ORDER BY ts MEASURES COUNT(*) AS n PATTERN (P+) WITHIN INTERVAL '1' HOUR DEFINE P AS TRUE)
        """,
        spark,
        watermark_by=["partition"],
        key_groups=2,
        drain=True,
    )
    rows: list[tuple[Any, ...]] = []
    run(result, lambda df, batch_id: rows.extend(map(tuple, df.collect())), checkpoint=str(tmp_path / "checkpoint"))
    spark.catalog.dropTempView("partitioned_logins")
    assert sorted(rows) == [("ann", 1), ("bob", 2)]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"watermark_by": "partition"},
            StreamDefinitionError,
            "watermark_by must be a list of columns, not 'partition'",
        ),
        ({"watermark_by": ["shard"]}, ColumnNotFoundError, "shard"),
        ({"watermark_by": ["price"]}, ColumnTypeError, 'the column "price" of watermark_by is of type double'),
        ({"watermark_by": ["partition"], "time": None}, StreamDefinitionError, "requires an event time"),
    ],
)
def test_what_is_refused(spark: SparkSession, options: Any, error: type[Exception], text: str) -> None:
    df = spark.createDataFrame([], "partition INT, user STRING, price DOUBLE, ts TIMESTAMP")
    with pytest.raises(error, match=text):
        KeyedStream(df, key="user", **{"time": "ts", **options})


def test_a_stream_with_a_watermark_cannot_have_one_for_each_partition(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.raises(StreamDefinitionError, match="already has a watermark"):
        KeyedStream(rate, time="timestamp", watermark_by=["value"])
