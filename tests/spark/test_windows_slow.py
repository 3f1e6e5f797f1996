"""Spark gives what the other transcripts say, as far as these need no clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_windows import RUNNABLE, SAMPLE, check_transcript

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name not in SAMPLE])
def test_what_a_transcript_says_with_a_restart_in_the_middle(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check_transcript(spark, tmp_path, name)
