"""Tables of Delta and Iceberg as streams of events: rows that are appended, changes, a start, and tables that are rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lakes.kit import events_of, guesses

FIRST = ["1 ann failed", "2 ann failed", "3 bob failed"]
SECOND = ["4 ann accepted", "5 bob failed"]
THIRD = ["6 bob accepted", "7 cat failed"]

CHANGED = "DELTA_SOURCE_TABLE_IGNORE_CHANGES|[Cc]annot process overwrite snapshot"
DELETED = f"{CHANGED}|DELTA_SOURCE_IGNORE_DELETE|[Cc]annot process delete snapshot"


def append(spark: SparkSession, lake: str, table: str, lines: list[str]) -> None:
    rows = events_of(spark, *lines).coalesce(1)
    if lake == "delta":
        rows.write.format("delta").mode("append").saveAsTable(table)
    elif spark.catalog.tableExists(table):
        rows.writeTo(table).append()
    else:
        rows.writeTo(table).using("iceberg").tableProperty("format-version", "2").create()


def found(events: DataFrame, folder: Path, drain: bool = False) -> list[str]:
    """The users of the matches that this run finds."""
    users: list[str] = []

    def collect(df: DataFrame, batch_id: int) -> None:
        users.extend(row.user for row in df.collect())

    guesses(events).run({"matches": collect}, checkpoint=str(folder / "checkpoint"), drain=drain)
    return sorted(users)


def rewrite(spark: SparkSession, lake: str, table: str) -> None:
    """Compact the files, which changes no row."""
    if lake == "delta":
        spark.sql(f"OPTIMIZE {table}")
    else:
        spark.sql(f"CALL ice.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")


def test_rows_that_are_appended(spark: SparkSession, lake: str, table: str, folder: Path) -> None:
    """In several micro-batches and runs; the table is compacted meanwhile, and its rows are updated, deleted and overwritten."""
    limit = {"delta": "maxFilesPerTrigger", "iceberg": "streaming-max-files-per-micro-batch"}[lake]
    skip = {
        "delta": {"skipChangeCommits": "true"},
        "iceberg": {"streaming-skip-overwrite-snapshots": "true", "streaming-skip-delete-snapshots": "true"},
    }[lake]

    def stream(**options: str) -> DataFrame:
        return spark.readStream.format(lake).option(limit, 1).options(**options).table(table)

    append(spark, lake, table, FIRST)
    append(spark, lake, table, SECOND)
    assert found(stream(), folder) == ["ann"]
    rewrite(spark, lake, table)
    append(spark, lake, table, THIRD)
    assert found(stream(), folder) == ["bob"]
    for change, error in {
        f"UPDATE {table} SET kind = 'failed' WHERE user = 'ann'": CHANGED,
        f"DELETE FROM {table} WHERE user IN ('ann', 'bob')": DELETED,
        f"INSERT OVERWRITE {table} SELECT ts + INTERVAL 1 DAY AS ts, 'eve' AS user, kind FROM {table}": CHANGED,
    }.items():
        spark.sql(change)
        with pytest.raises(Exception, match=error):
            found(stream(), folder)
        assert found(stream(**skip), folder) == []
    append(spark, lake, table, ["8 cat failed", "9 cat accepted"])
    assert found(stream(**skip), folder, drain=True) == ["cat"]


def test_a_start_at_a_version(spark: SparkSession, lake: str, table: str, folder: Path) -> None:
    append(spark, lake, table, FIRST)
    append(spark, lake, table, ["10 cat failed", "11 cat failed"])
    append(spark, lake, table, ["12 cat accepted", "13 ann accepted"])
    if lake == "delta":
        options: dict[str, Any] = {"startingVersion": 1}
    else:
        [_, second, _] = spark.sql(f"SELECT committed_at FROM {table}.snapshots ORDER BY committed_at").collect()
        options = {"stream-from-timestamp": round(second.committed_at.timestamp() * 1000)}
    assert found(spark.readStream.format(lake).options(**options).table(table), folder, drain=True) == ["cat"]
