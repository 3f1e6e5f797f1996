"""Windows on Spark: more policies, the clock, and what the other transcripts say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import (
    ProcessingTimeTrigger,
    TumblingWindows,
    window,
)
from asterism.errors import StreamDefinitionError
from tests.spark.streams import Collect, events, stream_of, write_files
from tests.spark.test_windows import (
    DAY,
    EARLY,
    HOUR,
    MEASURES,
    POLICIES,
    RUNNABLE,
    SAMPLE,
    check_policy,
    check_transcript,
    of_table,
    texts,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name not in SAMPLE])
def test_what_a_transcript_says_with_a_restart_in_the_middle(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check_transcript(spark, tmp_path, name)


def test_windows_in_processing_time_end_with_the_drain(spark: SparkSession, tmp_path: Path) -> None:
    table = events(60)
    write_files(table, tmp_path / "in", [])
    found = Collect()
    stream = stream_of(spark, tmp_path / "in", time=None, max_out_of_orderness=timedelta(0), key=())
    windowed = window(stream, TumblingWindows.of(DAY), key_groups=2)
    windowed.run({"results": found}, aggregate=["count(*) AS n"], checkpoint=str(tmp_path / "cp"))
    assert [(row["n"], row["kind"], row["is_last"]) for row in found.rows] == [(60, "on_time", True)]
    with pytest.raises(StreamDefinitionError, match="does not end by itself"):
        windowed.run({"late": found}, checkpoint=str(tmp_path / "cp"), drain=False)


IN_PROCESSING_TIME = ProcessingTimeTrigger.after_end_of_window()


def test_a_trigger_by_the_clock_gives_the_same_whatever_the_key_groups_and_the_cuts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The windows have ended by the clock, so each element fires: those at the end of a key group, too."""
    table = events(60, users=5)
    found = [
        texts(
            of_table(spark, table, trigger=IN_PROCESSING_TIME, key_groups=n).aggregate(*MEASURES).toArrow().to_pylist()
        )
        for n in (1, 2, 32)
    ]
    assert len(found[0]) == 60
    assert found[1:] == found[:1] * 2

    write_files(table, tmp_path / "in", [20, 40])
    drained = Collect()
    stream = stream_of(spark, tmp_path / "in")
    windowed = window(stream, TumblingWindows.of(HOUR), trigger=IN_PROCESSING_TIME, in_order=True, key_groups=2)
    windowed.run({"results": drained}, aggregate=MEASURES, checkpoint=str(tmp_path / "cp"))
    assert texts(drained.rows) == found[0]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != EARLY])
def test_any_micro_batches_give_what_a_batch_run_and_the_operator_give(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    check_policy(spark, tmp_path, POLICIES[name])
