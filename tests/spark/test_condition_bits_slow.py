"""Conditions that Spark evaluates, in UTC."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_condition_bits import check_agreement

pytestmark = pytest.mark.spark


def test_spark_and_the_operator_agree(spark: SparkSession, tmp_path: Path) -> None:
    check_agreement(spark, tmp_path, "UTC")
