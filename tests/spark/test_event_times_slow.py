"""The event times of streams beyond the covering set of ``test_event_times.py``."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern
from tests.spark import test_event_times
from tests.spark.streams import Collect
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


def test_a_time_out_of_range_goes_to_the_late_output(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x", 1, 1), ("x", 2**62, 2), ("x", -(2**63), 3), ("x", 4, 4)]
    spark.createDataFrame(rows, "k STRING, t BIGINT, v BIGINT").repartition(1).write.parquet(str(tmp_path / "in"))
    for df in (
        spark.read.parquet(str(tmp_path / "in")),
        spark.readStream.schema("k STRING, t BIGINT, v BIGINT").parquet(str(tmp_path / "in")),
    ):
        late, matches = Collect(), Collect()
        ab = Pattern.begin("a").where("v > 0").followed_by("b").where("v = 4")
        CEP.pattern(KeyedStream(df, "k", "t"), ab, key_groups=2).run(
            {"late": late, "matches": matches}, checkpoint=str(tmp_path / "checkpoint")
        )
        assert sorted(row["v"] for row in late.rows) == [2, 3]
        assert len(matches.rows) == 1
