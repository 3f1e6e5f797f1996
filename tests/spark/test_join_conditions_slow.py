"""Slow: test_join_conditions.py with the other types of joins."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from asterism.joins.types import STREAM_JOIN_TYPES
from tests.spark.test_join_conditions import FAST, check_tables, of_session

pytestmark = pytest.mark.spark
__all__ = ["of_session"]


@pytest.mark.parametrize("how", [how for how in STREAM_JOIN_TYPES if how not in FAST])
def test_tables(spark: SparkSession, how: str) -> None:
    check_tables(spark, how)
