"""A repeated micro-batch replaces its files of Parquet."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.sinks.test_file_sink import check_repeated


def test_a_repeated_micro_batch_replaces_its_files(spark: SparkSession, tmp_path: Path) -> None:
    check_repeated(spark, tmp_path, "parquet")
