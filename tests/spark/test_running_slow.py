"""Slow: further cases of test_running.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import asterism
from asterism import CEP
from tests.spark.streams import FUNNEL, Collect, batch, events, ids, stream_of, write_files

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
