"""Over Spark Connect, each query is restarted; the matches of one go into windows; another one continues from its savepoint.

A test starts a client of its own, so that each can run alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import KeyedStream
from asterism.savepoints.manifest import ROWS
from tests.cluster.connect_results import Connect, check_results, rows
from tests.cluster.over_connect import (
    CONTINUED,
    ERROR,
    FORGOTTEN,
    FOUND,
    HISTORY,
    LEASE,
    LEASES,
    OUTPUTS,
    RESCALED,
    SAVEPOINT,
    TABLES,
    clause_of,
    joined_of,
)
from tests.spark.streams import events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    with Connect.started(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_are_those_of_a_classic_session(
    spark: SparkSession, connect: Connect, tmp_path: Path, name: str
) -> None:
    check_results(spark, connect.run(name), tmp_path, name)


def test_keys_and_sides_that_spark_computes(spark: SparkSession, connect: Connect) -> None:
    """Also a clause, over tables."""
    folder = connect.run(TABLES)
    df = spark.createDataFrame(events(99))
    for name, of_table in {"joined": joined_of(df), "matches": clause_of(KeyedStream(df, time="ts")).matches}.items():
        found = rows(spark.read.parquet(str(folder / name)))
        assert found == rows(of_table)
        assert found


def test_the_error_of_a_query_has_the_message_of_the_library(connect: Connect) -> None:
    message = (connect.run(ERROR) / ERROR).read_text()
    assert message.startswith("StreamingQueryException: ")
    assert "CheckpointMismatchError: [CHECKPOINT_MISMATCH] the checkpoint was created with " in message
    assert "\n  The number of key groups of a checkpoint cannot change.\n  Hint: set key_groups=" in message


def test_a_query_begins_with_a_history(spark: SparkSession, connect: Connect, tmp_path: Path) -> None:
    folder = connect.run(HISTORY) / HISTORY
    (tmp_path / "pattern").symlink_to(folder)
    check_results(spark, tmp_path, tmp_path, "pattern")
    assert rows(spark.read.parquet(str(folder / "matches" / "batch=0")))


def test_a_savepoint(connect: Connect) -> None:
    """A client that creates one holds the lease of the checkpoint meanwhile."""
    folder = connect.run(SAVEPOINT) / SAVEPOINT
    found = json.loads((folder / FOUND).read_text())
    assert found["refusal"] == f"the checkpoint {folder / 'checkpoint'} is in use"
    assert len(found["keys"]) > 3


def test_a_query_continues_from_a_savepoint(spark: SparkSession, connect: Connect, tmp_path: Path) -> None:
    folder = connect.run(CONTINUED)
    for output in OUTPUTS["pattern"]:
        for name in (SAVEPOINT, CONTINUED):
            for batch in (folder / name / output).glob("batch=*"):
                (tmp_path / "pattern" / output).mkdir(parents=True, exist_ok=True)
                (tmp_path / "pattern" / output / batch.name).symlink_to(batch)
    check_results(spark, tmp_path, tmp_path, "pattern")


def test_a_checkpoint_is_restored_and_rescaled(connect: Connect) -> None:
    found = json.loads((connect.run(RESCALED) / RESCALED / FOUND).read_text())
    assert [table["table"] for table in found["tables"]][:1] == [ROWS]
    assert [table for table in found["tables"] if table["added"] or table["removed"] or table["changed"]] == []


def test_a_key_is_forgotten(connect: Connect) -> None:
    found = json.loads((connect.run(FORGOTTEN) / FORGOTTEN / FOUND).read_text())
    assert found["answer"]["keys"] == 1
    [of_keys] = [table for table in found["tables"] if table["table"] == ROWS]
    assert (of_keys["added"], of_keys["removed"], of_keys["changed"]) == (0, 1, 0)


@pytest.mark.parametrize("kind", LEASES)
def test_a_checkpoint_of_another_process_is_refused(connect: Connect, kind: str) -> None:
    """Before anything is written; and a query that has ended has released its lease."""
    folder = connect.run(kind) / LEASE / kind
    found = json.loads((folder / FOUND).read_text())
    assert f"[CHECKPOINT_IN_USE] the checkpoint {folder / 'checkpoint'} is in use" in found.pop("error")
    assert found == {"began": False, "claims": "released", "ended": ""}
