"""Each row once in Delta and Iceberg, when a micro-batch is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism.sinks import DeltaSink, IcebergSink
from tests.lakes.kit import EVENTS, SELECT, events_of, guesses


def test_a_repeated_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The query fails when both tables have been written; the next run repeats the micro-batch, and its state is complete."""
    failures = [RuntimeError("after the lakes")]

    def fail(df: DataFrame, batch_id: int) -> None:
        df.collect()
        if failures and batch_id == 1:
            raise failures.pop()

    def run() -> None:
        stream = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "events"))
        sinks = {"matches": DeltaSink(tmp_path / "delta"), "timed_out": IcebergSink("ice.db.core"), "late": fail}
        guesses(stream).run(sinks, select={"matches": SELECT}, checkpoint=str(tmp_path / "checkpoint"))

    files = [
        ["1 ann failed", "2 ann failed", "3 ann accepted", "4 bob failed"],
        ["100 ann failed", "101 ann failed", "102 ann accepted", "103 cat failed", "104 cat failed"],
        ["105 cat accepted", "300 dan failed"],
    ]
    for lines in files[:2]:
        events_of(spark, *lines).coalesce(1).write.mode("append").json(str(tmp_path / "events"))
    with pytest.raises(Exception, match="after the lakes"):
        run()
    events_of(spark, *files[2]).coalesce(1).write.mode("append").json(str(tmp_path / "events"))
    run()
    matches = spark.read.format("delta").load(str(tmp_path / "delta"))
    assert sorted(row.user for row in matches.collect()) == ["ann", "ann", "cat"]
    assert matches.select("match_id").distinct().count() == 3
    assert sorted(row.user for row in spark.table("ice.db.core").collect()) == ["bob", "dan"]
