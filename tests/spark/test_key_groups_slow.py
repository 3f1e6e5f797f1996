"""A single key group, page and partition gives the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_key_groups import check_operator, check_pattern

pytestmark = pytest.mark.spark


def test_one_of_each_for_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    check_pattern(spark, tmp_path, key_groups=1, pages=1, partitions=1)


def test_one_of_each_for_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    check_operator(spark, tmp_path, key_groups=1, pages=1, partitions=1)
