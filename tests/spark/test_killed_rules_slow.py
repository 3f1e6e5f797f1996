"""A query is started without a rule by its options."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.spark.test_killed_rules import check_rule_is_left_out

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("how", ["without"])
def test_a_query_that_a_rule_has_brought_down_starts_again_without_it(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    check_rule_is_left_out(spark, tmp_path, how)
