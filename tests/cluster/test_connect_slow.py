"""Over Spark Connect, each query is restarted; the matches of one go into windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import KeyedStream
from tests.cluster.connect_results import check_results, outputs_of, rows
from tests.cluster.over_connect import ERROR, HISTORY, LEASE, LEASES, OUTPUTS, TABLES, clause_of, joined_of
from tests.spark.streams import events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return outputs_of(
        dict.fromkeys(OUTPUTS, 2) | {ERROR: 1, TABLES: 1, LEASE: 1, HISTORY: 1}, tmp_path_factory.mktemp("connect")
    )


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_are_those_of_a_classic_session(spark: SparkSession, folder: Path, tmp_path: Path, name: str) -> None:
    check_results(spark, folder, tmp_path, name)


def test_keys_and_sides_that_spark_computes(spark: SparkSession, folder: Path) -> None:
    """Also a clause, over tables."""
    df = spark.createDataFrame(events(99))
    for name, of_table in {"joined": joined_of(df), "matches": clause_of(KeyedStream(df, time="ts")).matches}.items():
        found = rows(spark.read.parquet(str(folder / name)))
        assert found == rows(of_table)
        assert found


def test_the_error_of_a_query_has_the_message_of_the_library(folder: Path) -> None:
    message = (folder / ERROR).read_text()
    assert message.startswith("StreamingQueryException: ")
    assert "CheckpointMismatchError: [CHECKPOINT_MISMATCH] the checkpoint was created with " in message
    assert "\n  The number of key groups of a checkpoint cannot change.\n  Hint: set key_groups=" in message


def test_a_query_begins_with_a_history(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pattern").symlink_to(folder / HISTORY)
    check_results(spark, tmp_path, tmp_path, "pattern")
    assert rows(spark.read.parquet(str(folder / HISTORY / "matches" / "batch=0")))


@pytest.mark.parametrize("kind", LEASES)
def test_a_checkpoint_of_another_process_is_refused(folder: Path, kind: str) -> None:
    """Before anything is written; and a query that has ended has released its lease."""
    found = json.loads((folder / LEASE / "leases.json").read_text())[kind]
    assert f"[CHECKPOINT_IN_USE] the checkpoint {folder / LEASE / kind / 'checkpoint'} is in use" in found.pop("error")
    assert found == {"began": False, "claims": "released", "ended": ""}
