"""Other numbers of key groups, pages and tasks, and checkpoints that keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern
from tests.spark.streams import (
    FUNNEL,
    Collect,
    batch_matches,
    events,
    ids,
    shuffle_partitions,
    stream_of,
    write_files,
)
from tests.spark.test_key_groups import check_number, check_operator, check_pattern, key_groups_of

pytestmark = pytest.mark.spark


def test_one_of_each_for_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    check_pattern(spark, tmp_path, key_groups=1, pages=1, partitions=1)


def test_one_of_each_for_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    check_operator(spark, tmp_path, key_groups=1, pages=1, partitions=1)


def test_a_run_sets_the_number_of_its_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table, found = events(50), Collect()
    write_files(table, tmp_path / "in", [])
    with shuffle_partitions(spark, 200):
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
        assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
    assert len(list((tmp_path / "cp" / "state" / "0").glob("[0-9]*"))) == 2
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


def test_a_checkpoint_keeps_its_number_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table, found = events(800), Collect()
    for number, partitions in enumerate([3, 200]):
        write_files(table.slice(400 * number, 400), tmp_path / "in", [], first=number)
        with shuffle_partitions(spark, partitions):
            stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=4)
            stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=bool(number))
    assert len(list((tmp_path / "cp" / "state" / "0").glob("[0-9]*"))) == 3
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


@pytest.mark.parametrize("marked", [True, False])
def test_a_run_behind_another_operator_keeps_its_own(spark: SparkSession, tmp_path: Path, marked: bool) -> None:
    found = Collect()
    table = events(800)
    for number, options in enumerate([{"key_groups": 5}, {}]):
        write_files(table.slice(400 * number, 400), tmp_path / "in", [], first=number)
        first = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=3)
        rows = first.select("b.price AS price", "end_time")
        if not marked:  # the schema that a function returns has no mark
            rows = rows.mapInArrow(lambda batches: batches, rows.schema)
        stream = CEP.pattern(KeyedStream(rows, "user", "end_time"), Pattern.begin("c").where("price > 50"), **options)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=marked and bool(number))
    assert key_groups_of(spark, tmp_path / "cp") == [3, 5]
    assert found.rows


@pytest.mark.parametrize(("partitions", "key_groups"), [(3, 12), (16, 32), (200, 8)])
def test_a_run_chooses_their_number(spark: SparkSession, tmp_path: Path, partitions: int, key_groups: int) -> None:
    check_number(spark, tmp_path, partitions, key_groups)


def test_they_do_not_matter_to_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    check_operator(spark, tmp_path, key_groups=7, pages=3, partitions=3)


def test_a_run_keeps_that_of_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """As when a release that has another default has created it."""
    table, found = events(800), Collect()
    for number, options in enumerate([{"key_groups": 5}, {}]):
        write_files(table.slice(400 * number, 400), tmp_path / "in", [], first=number)
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **options)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=bool(number))
    assert key_groups_of(spark, tmp_path / "cp") == [5]
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)
