"""Tables of Delta and Iceberg as streams of events: rows that are appended, changes, a start, and tables that are rewritten."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, CountTrigger, EventTimeTrigger, KeyedStream, Pattern, SessionWindows, window
from tests.lakes.kit import append, events_of, guesses, rewrite, rows_of, sink_of

FIRST = ["1 ann failed", "2 ann failed", "3 bob failed"]
SECOND = ["4 ann accepted", "5 bob failed"]
THIRD = ["6 bob accepted", "7 cat failed"]

CHANGED = "DELTA_SOURCE_TABLE_IGNORE_CHANGES|[Cc]annot process overwrite snapshot"
DELETED = f"{CHANGED}|DELTA_SOURCE_IGNORE_DELETE|[Cc]annot process delete snapshot"


def found(events: DataFrame, folder: Path, drain: bool = False) -> list[str]:
    """The users of the matches that this run finds."""
    users: list[str] = []

    def collect(df: DataFrame, batch_id: int) -> None:
        users.extend(row.user for row in df.collect())

    guesses(events).run({"matches": collect}, checkpoint=str(folder / "checkpoint"), drain=drain)
    return sorted(users)


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


def test_changes_as_events(spark: SparkSession, folder: Path) -> None:
    """Delta's change data feed: a balance that is updated twice, with the time of the commit."""
    spark.sql(
        "CREATE TABLE accounts (id INT, balance DECIMAL(10, 2)) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    try:
        spark.sql("INSERT INTO accounts VALUES (1, 10), (2, 20)")
        changes = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        events = changes.table("accounts").where("_change_type != 'update_preimage'")
        drop = (
            Pattern.begin("a")
            .where("_change_type = 'insert'")
            .next("b")
            .where("_change_type = 'update_postimage' AND balance < a.balance")
            .next("c")
            .where("_change_type = 'delete'")
            .within(timedelta(days=1))
        )
        rows: list[Any] = []
        late: list[Any] = []

        def run(drain: bool) -> None:
            stream = KeyedStream(events, key="id", time="_commit_timestamp", order_by=["_commit_version"])
            CEP.pattern(stream, drop, key_groups=2).run(
                {"matches": lambda df, _: rows.extend(df.collect()), "late": lambda df, _: late.extend(df.collect())},
                select={"matches": ["b.balance AS balance", "c._commit_version AS version"]},
                checkpoint=str(folder / "checkpoint"),
                drain=drain,
            )

        run(drain=False)
        spark.sql("UPDATE accounts SET balance = balance - 5 WHERE id = 1")
        spark.sql("UPDATE accounts SET balance = balance + 5 WHERE id = 2")
        spark.sql("OPTIMIZE accounts")
        spark.sql("DELETE FROM accounts")
        run(drain=True)
        assert late == []
        assert [(row.id, float(row.balance)) for row in rows] == [(1, 5.0)]
    finally:
        spark.sql("DROP TABLE accounts")


def test_types_of_columns(spark: SparkSession, lake: str, table: str, folder: Path) -> None:
    """Times without a zone, decimals, dates and structs; in Delta also column mapping, with a column that was renamed."""
    if lake == "delta":
        spark.sql(
            f"CREATE TABLE {table} (old TIMESTAMP_NTZ, who STRING, price DECIMAL(20, 2), day DATE, item STRUCT<no: INT>)"
            " USING delta TBLPROPERTIES (delta.columnMapping.mode = 'name')"
        )
    else:
        spark.sql(
            f"CREATE TABLE {table} (old TIMESTAMP_NTZ, who STRING, price DECIMAL(20, 2), day DATE, item STRUCT<no: INT>)"
            " USING iceberg"
        )
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN old TO ts")
    spark.sql(f"""
        INSERT INTO {table} SELECT TIMESTAMP_NTZ'2025-01-01 12:00:00.25' + make_interval(0, 0, 0, 0, 0, 0, n) AS ts, 'ann' AS who,
            CAST(n + 0.25 AS DECIMAL(20, 2)) AS price, DATE'2025-01-01' AS day, named_struct('no', n) AS item
        FROM VALUES (1), (2), (3) AS v(n)
    """)
    rising = Pattern.begin("a").where("item.no = 1").next("b").where("price > a.price AND day = DATE'2025-01-01'")
    stream = KeyedStream(spark.readStream.format(lake).table(table), key="who", time="ts")
    rows: list[Any] = []
    CEP.pattern(stream, rising, key_groups=2).run(
        {"matches": lambda df, _: rows.extend(df.collect())},
        select={"matches": ["b.ts AS ts", "b.price AS price", "b.item AS item"]},
        checkpoint=str(folder / "checkpoint"),
    )
    assert [(row.ts, float(row.price), row.item.no) for row in rows] == [
        (datetime(2025, 1, 1, 12, 0, 2, 250000), 2.25, 2)
    ]


def test_sessions_that_merge(spark: SparkSession, lake: str, table: str, folder: Path) -> None:
    """Early firings of sessions, in a table with one row per session; each micro-batch is written twice."""
    sink = sink_of(lake, table, key="session_id")

    def run(drain: bool) -> None:
        arriving = KeyedStream(
            spark.readStream.schema("ts TIMESTAMP, user STRING, kind STRING").json(str(folder / "events")),
            key="user", time="ts", max_out_of_orderness=timedelta(minutes=1),
        )  # fmt: skip
        visits = window(
            arriving,
            SessionWindows.with_gap(timedelta(seconds=5)),
            trigger=EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(1)),
            in_order=False,
            session_ids=True,
            key_groups=2,
        )

        def twice(df: DataFrame, batch_id: int) -> None:
            sink(df, batch_id)
            sink(df, batch_id)

        visits.run({"results": twice}, aggregate="count(*) AS n", checkpoint=str(folder / "checkpoint"), drain=drain)

    events_of(spark, "1 ann x", "12 ann x").coalesce(1).write.json(str(folder / "events"))
    run(drain=False)
    assert rows_of(spark.table(table).select("user", "n")) == [("ann", 1), ("ann", 1)]
    events_of(spark, "4 ann x", "8 ann x").coalesce(1).write.mode("append").json(str(folder / "events"))
    run(drain=True)
    spark.catalog.refreshTable(table)  # a query has a session of its own, and each session of Iceberg remembers tables
    assert rows_of(spark.table(table).select("user", "n")) == [("ann", 4)]
