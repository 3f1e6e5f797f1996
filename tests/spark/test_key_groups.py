"""Key groups are spread evenly, because Spark hashes as assumed; and how many there are changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import CEP
from asterism.spark.host.evolution import control_offsets
from asterism.spark.host.partitioning import label
from asterism.spark.session.settings import stateful_tasks
from tests.contracts.ledger import FEES, MOVES, data, expected, ledger, ledger_sinks, utc, write
from tests.spark.streams import (
    ASKED,
    FUNNEL,
    Collect,
    batch_matches,
    events,
    ids,
    shuffle_partitions,
    stream_of,
    write_files,
)

pytestmark = pytest.mark.spark


def test_sparks_hash_of_a_label_is_the_key_group(spark: SparkSession) -> None:
    labels = [(group, label(group)) for group in (*range(300), 2**15 - 1)]
    rows = spark.createDataFrame(labels, "key_group int, label int").select("key_group", F.hash("label")).collect()
    assert [row[0] for row in rows] == [row[1] for row in rows]


def test_they_do_not_matter_to_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    check_pattern(spark, tmp_path, key_groups=7, pages=3, partitions=3)


def check_pattern(spark: SparkSession, tmp_path: Path, key_groups: int, pages: int, partitions: int) -> None:
    """Whatever evaluates its conditions."""
    table, found = events(800), Collect()
    write_files(table, tmp_path / "in", [300])
    with shuffle_partitions(spark, partitions):
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), ASKED, key_groups=key_groups, pages=pages)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


def check_operator(spark: SparkSession, tmp_path: Path, key_groups: int, pages: int, partitions: int) -> None:
    moves, fees = data(300)
    write(moves, MOVES, tmp_path / "moves", 3)
    write(fees, FEES, tmp_path / "fees", 2)
    sinks = ledger_sinks()
    with shuffle_partitions(spark, partitions):
        stream = ledger(spark, tmp_path, key_groups=key_groups, pages=pages)
        stream.run(sinks, checkpoint=str(tmp_path / "checkpoint"))
    assert {name: utc(sink.rows) for name, sink in sinks.items()} == expected(moves, fees)


@pytest.mark.parametrize(("partitions", "key_groups", "tasks"), [(200, 32, 2), (200, 1, 1), (8, 4, 4), (3, 32, 3)])
def test_there_are_no_more_tasks_than_a_query_can_use(
    spark: SparkSession, partitions: int, key_groups: int, tasks: int
) -> None:
    """200 is Spark's default; the session of the tests has two cores."""
    with shuffle_partitions(spark, partitions):
        assert stateful_tasks(spark, key_groups) == tasks


def key_groups_of(spark: SparkSession, checkpoint: Path) -> list[int]:
    return [offset["keyGroups"] for offset in control_offsets(spark, str(checkpoint))]


def check_number(spark: SparkSession, tmp_path: Path, partitions: int, key_groups: int) -> None:
    table, found = events(50), Collect()
    write_files(table, tmp_path / "in", [])
    with shuffle_partitions(spark, partitions):
        CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL).run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert key_groups_of(spark, tmp_path / "cp") == [key_groups]
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)
