"""An event that fails, fails a stream of matches alone, too: Spark could leave it out before the exchange."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark import test_two_evaluators
from tests.spark.test_two_evaluators import check_failure

pytestmark = pytest.mark.spark
df = test_two_evaluators.df


def test_an_event_that_fails_fails_a_stream(spark: SparkSession, df: DataFrame, tmp_path: Path) -> None:
    check_failure(spark, df, tmp_path, ["matches"])
