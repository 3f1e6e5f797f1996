"""The watermark of windows is exported."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from asterism import TumblingWindows, export_metrics, monitor, window
from tests.kit import until
from tests.spark.streams import DISORDER, Collect, events, stream_of, write_files
from tests.spark.test_metrics_export import samples


@pytest.mark.spark
def test_the_watermark_of_windows_is_exported(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has no watermark for them, so that it is not in ``eventTime`` of the progress."""
    table = events(60)
    write_files(table, tmp_path / "in", [30])
    exporter = export_metrics(spark)
    try:
        minutes = window(stream_of(spark, tmp_path / "in"), TumblingWindows.of(timedelta(minutes=1)), key_groups=2)
        query = minutes.run(
            {"results": Collect()},
            aggregate="count(*) AS n",
            checkpoint=str(tmp_path / "cp"),
            trigger={"processingTime": "0 seconds"},
            name="minutes",
        )
        assert query is not None
        try:
            query.processAllAvailable()
            reached = pc.max(table["ts"]).as_py().replace(tzinfo=UTC) - DISORDER - timedelta(milliseconds=1)
            expected = pytest.approx(reached.timestamp(), rel=0, abs=0.001)
            name = "query_watermark_timestamp_seconds query=minutes"
            until(lambda: samples(exporter.text()).get(name) == expected, query)
            assert "watermark" not in query.recentProgress[-1].eventTime
            assert f"watermark    {reached:%Y-%m-%d %H:%M:%S} UTC" in str(monitor(query))
        finally:
            query.stop()
    finally:
        exporter.close()
