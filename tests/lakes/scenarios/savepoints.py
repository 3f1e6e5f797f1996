"""Savepoints with this version of Spark: the positions of tables, and a query that another version has begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import create_savepoint, restore_savepoint
from tests.lakes.kit import guesses
from tests.lakes.scenarios.sources import FIRST, SECOND, THIRD, append
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts


def test_positions_of_tables(spark: SparkSession, lake: str, table: str, folder: Path) -> None:
    users: list[str] = []
    for number, lines in enumerate((FIRST, SECOND, THIRD)):
        append(spark, lake, table, lines)
        if number:
            savepoint = str(folder / f"savepoint-{number}")
            create_savepoint(spark, str(folder / str(number - 1)), savepoint)
            restore_savepoint(spark, savepoint, str(folder / str(number)), key_groups=number + 1)
        events = spark.readStream.table(table)
        guesses(events, key_groups=number + 1).run(
            {"matches": lambda df, batch_id: users.extend(row.user for row in df.collect())},
            checkpoint=str(folder / str(number)),
            drain=number == 2,
        )
    assert users == ["ann", "bob"]


@pytest.mark.skipif(
    "ASTERISM_MOVED" not in os.environ, reason="tests/savepoints/test_versions_slow.py begins the query"
)
def test_a_query_of_another_version_continues(spark: SparkSession) -> None:
    query = Query(spark, Path(os.environ["ASTERISM_MOVED"]), of_pattern)
    restore_savepoint(spark, str(query.folder / "savepoint-1"), str(query.folder / "second"), key_groups=5, tasks=2)
    for number in (2, 3):
        query.write(number, parts()[number])
    query.run("second", drain=False)
    create_savepoint(spark, str(query.folder / "second"), str(query.folder / "savepoint-2"))
