"""A query is restarted in another time zone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import StateError
from tests.spark import test_time_zone
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
zones = test_time_zone.zones


def test_a_restart_in_another_zone(spark: SparkSession, tmp_path: Path, zones: Any) -> None:
    source = tmp_path / "in"
    spark.sql("SELECT 'x' AS k, TIMESTAMP '2025-01-01 03:00:00Z' AS t, 1L AS v").write.parquet(str(source))

    def run(condition: str, checkpoint: str) -> None:
        events = spark.readStream.schema("k STRING, t TIMESTAMP, v BIGINT").parquet(str(source))
        pattern = Pattern.begin("a").where(condition).followed_by("b").where("v = 2")
        CEP.pattern(KeyedStream(events, "k", "t"), pattern, key_groups=2).run(
            {"matches": Collect()}, checkpoint=str(tmp_path / checkpoint), drain=False
        )

    asks, does_not = "hour(t) = 3", "v = 1"
    run(asks, "asks")
    run(does_not, "does not")
    zones("Asia/Tokyo")
    run(does_not, "does not")
    with pytest.raises(StateError, match="created in the time zone UTC, but this session uses Asia/Tokyo"):
        run(asks, "asks")
    zones("UTC")
    run(asks, "asks")
    forget_the_zone(tmp_path / "asks" / "offsets")
    zones("Asia/Tokyo")
    run(asks, "asks")  # as one that an earlier release made, which did not tell


def forget_the_zone(offsets: Path) -> None:
    for file in offsets.iterdir():
        if file.name.isdigit():
            text = file.read_text()
            file.write_text(text.replace(',"zone":"UTC"', "").replace(', "zone": "UTC"', ""))
            assert '"zone"' not in file.read_text().replace("timeZone", "")
            (offsets / f".{file.name}.crc").unlink(missing_ok=True)
