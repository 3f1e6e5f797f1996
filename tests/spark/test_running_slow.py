"""Slow: further cases of test_running.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import asterism
from asterism import CEP
from tests.spark.streams import FUNNEL, Collect, batch, batch_matches, events, ids, stream_of, write_files
from tests.spark.test_running import COUNTS, frame_of, tasks_of

pytestmark = pytest.mark.spark


def test_a_trigger_that_reads_all_data_at_once_can_drain(spark: SparkSession, tmp_path: Path) -> None:
    """Also if all data has been read before."""
    table, rows = events(400), Collect()
    write_files(table, tmp_path / "in", [200])
    timed_out = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL).timed_out
    for drain in (False, True):
        query = asterism.run(
            timed_out, rows, checkpoint=str(tmp_path / "cp"), trigger={"availableNow": True}, drain=drain
        )
        assert query is not None
        query.awaitTermination()
    assert ids(rows.rows) == ids(batch(spark, table, FUNNEL).timed_out.toArrow().to_pylist())


def test_a_run_of_an_output_drains_its_operator(spark: SparkSession, tmp_path: Path) -> None:
    table, matches = events(400), Collect()
    write_files(table, tmp_path / "in", [200])
    asterism.run(
        CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL).matches, matches, checkpoint=str(tmp_path / "cp")
    )
    assert ids(matches.rows) == batch_matches(spark, table, FUNNEL)


def test_with_a_trigger_it_returns_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(100), tmp_path / "in", [])
    rows, matches = asterism.sql(COUNTS, spark, events=frame_of(spark, tmp_path / "in")), Collect()
    query = asterism.run(
        rows, matches, checkpoint=str(tmp_path / "cp"), trigger={"processingTime": "1 second"}, name="counts"
    )
    assert query is not None
    query.processAllAvailable()
    query.stop()
    assert (query.name, tasks_of(query)) == ("counts", {2})
