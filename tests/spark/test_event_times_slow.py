"""The event times of streams beyond the covering set of ``test_event_times.py``."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import test_event_times
from tests.spark.test_event_times import COVERING, QUERIES, TIMES, Tables, check_stream

pytestmark = pytest.mark.spark
new_york, of_table = test_event_times.new_york, test_event_times.of_table
STREAMS = {*product(["TIMESTAMP_NTZ", "DATE", "nanoseconds"], QUERIES)} - COVERING


@pytest.mark.parametrize(("kind", "query"), sorted(STREAMS))
def test_streams(spark: SparkSession, tmp_path: Path, new_york: None, of_table: Tables, kind: str, query: str) -> None:
    check_stream(spark, tmp_path, of_table, kind, query)


@pytest.mark.parametrize("kind", TIMES)
def test_tables(new_york: None, of_table: Tables, kind: str) -> None:
    for query in QUERIES:
        assert len(of_table(query, kind)) == len(of_table(query, "TIMESTAMP")) > 3, query
