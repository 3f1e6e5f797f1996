"""Key groups are spread evenly, because Spark hashes as assumed; and how many there are changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import CEP
from asterism.spark.partitioning import label
from tests.contracts.ledger import FEES, MOVES, data, expected, ledger, ledger_sinks, utc, write
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

pytestmark = pytest.mark.spark

SPREADS = [(1, 1, 1), (7, 3, 3)]
"""Key groups, pages, partitions."""


def test_sparks_hash_of_a_label_is_the_key_group(spark: SparkSession) -> None:
    labels = [(group, label(group)) for group in (*range(300), 2**15 - 1)]
    rows = spark.createDataFrame(labels, "key_group int, label int").select("key_group", F.hash("label")).collect()
    assert [row[0] for row in rows] == [row[1] for row in rows]


@pytest.mark.parametrize(("key_groups", "pages", "partitions"), SPREADS)
def test_they_do_not_matter_to_a_pattern(
    spark: SparkSession, tmp_path: Path, key_groups: int, pages: int, partitions: int
) -> None:
    table, found = events(800), Collect()
    write_files(table, tmp_path / "in", [300])
    with shuffle_partitions(spark, partitions):
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=key_groups, pages=pages)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


@pytest.mark.parametrize(("key_groups", "pages", "partitions"), SPREADS)
def test_they_do_not_matter_to_an_operator(
    spark: SparkSession, tmp_path: Path, key_groups: int, pages: int, partitions: int
) -> None:
    moves, fees = data(300)
    write(moves, MOVES, tmp_path / "moves", 3)
    write(fees, FEES, tmp_path / "fees", 2)
    sinks = ledger_sinks()
    with shuffle_partitions(spark, partitions):
        stream = ledger(spark, tmp_path, key_groups=key_groups, pages=pages)
        stream.run(sinks, checkpoint=str(tmp_path / "checkpoint"))
    assert {name: utc(sink.rows) for name, sink in sinks.items()} == expected(moves, fees)
