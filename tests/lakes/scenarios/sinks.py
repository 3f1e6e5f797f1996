"""The sinks for Delta and Iceberg, micro-batch by micro-batch."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism.errors import ColumnNotFoundError, SinkError
from asterism.sinks import DeltaSink, IcebergSink
from tests.lakes.kit import as_query, rows_of, sink_of


def names(spark: SparkSession, *values: str) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "name STRING")


def commits(spark: SparkSession, lake: str, table: str) -> int:
    return (spark.sql(f"DESCRIBE HISTORY {table}") if lake == "delta" else spark.table(f"{table}.snapshots")).count()


def test_micro_batches_are_appended_once(spark: SparkSession, lake: str, table: str) -> None:
    with as_query(spark, "q"):
        sink = sink_of(lake, table)
        sink(names(spark, "ann"), 0)
        sink(names(spark, "bob", "cat"), 1)
        for again in (sink, sink_of(lake, table)):  # also in another process
            again(names(spark, "bob", "cat"), 1)
            assert rows_of(spark.table(table)) == [("ann",), ("bob",), ("cat",)]
        count = commits(spark, lake, table)
        sink(names(spark), 2)
        assert commits(spark, lake, table) == count
        sink(names(spark, "dan"), 3)
        # The other writers of the table do not matter.
        spark.sql(f"INSERT INTO {table} VALUES ('eve')")
        sink_of(lake, table)(names(spark, "dan"), 3)
        assert rows_of(spark.table(table)) == [("ann",), ("bob",), ("cat",), ("dan",), ("eve",)]
        with pytest.raises(SinkError, match="later micro-batches of this query"):
            sink_of(lake, table)(names(spark, "fay"), 2)
    with as_query(spark, "another"):  # with another checkpoint
        sink(names(spark, "gil"), 0)
    assert spark.table(table).count() == 6
    with pytest.raises(SinkError, match="there is no id of the query"):
        sink(names(spark, "hal"), 0)


def test_outputs_of_a_query_in_one_table(spark: SparkSession, lake: str, table: str) -> None:
    sink = sink_of(lake, table)
    with as_query(spark, "q"):
        for output in ("matches", "late"):
            sink.for_output(output)(names(spark, output), 0)
        assert rows_of(spark.table(table)) == [("late",), ("matches",)]
        sink.for_output("late")(names(spark, "late"), 0)
        assert rows_of(spark.table(table)) == [("late",), ("matches",)]
    assert sink_of(lake, table, name="x").for_output("late").name == "x"


def test_the_table_is_rewritten_meanwhile(spark: SparkSession, lake: str, table: str) -> None:
    with as_query(spark, "q"):
        sink_of(lake, table)(names(spark, "ann"), 0)
        sink_of(lake, table)(names(spark, "bob"), 1)
        if lake == "delta":
            spark.sql(f"OPTIMIZE {table}")
            spark.sql(f"DELETE FROM {table} WHERE name = 'ann'")
        else:
            spark.sql(f"CALL ice.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))")
            spark.sql(f"DELETE FROM {table} WHERE name = 'ann'")
            spark.sql(f"CALL ice.system.rewrite_manifests('{table}')")
        sink_of(lake, table)(names(spark, "bob"), 1)
        assert rows_of(spark.table(table)) == [("bob",)]


def test_snapshots_are_expired(spark: SparkSession) -> None:
    """Only the last one of the query is needed; without it, the micro-batch is appended again, as documented."""
    table = "ice.db.expired"
    with as_query(spark, "q"):
        for batch, name in enumerate(["ann", "bob", "cat"]):
            IcebergSink(table)(names(spark, name), batch)
        spark.sql(
            f"CALL ice.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP'2100-01-01', retain_last => 1)"
        )
        IcebergSink(table)(names(spark, "cat"), 2)
        assert spark.table(table).count() == 3
        spark.sql(f"INSERT INTO {table} VALUES ('eve')")
        spark.sql(
            f"CALL ice.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP'2100-01-01', retain_last => 1)"
        )
        IcebergSink(table)(names(spark, "cat"), 2)
        assert spark.table(table).count() == 5


def test_a_table_that_is_rolled_back(spark: SparkSession) -> None:
    table = "ice.db.rolled_back"
    with as_query(spark, "q"):
        for batch, name in enumerate(["ann", "bob", "cat"]):
            IcebergSink(table)(names(spark, name), batch)
        [first] = spark.sql(
            f"SELECT snapshot_id FROM {table}.snapshots WHERE summary['asterism.batch'] = '0'"
        ).collect()
        spark.sql(f"CALL ice.system.rollback_to_snapshot('{table}', {first.snapshot_id})")
        IcebergSink(table)(names(spark, "dan"), 1)
        assert rows_of(spark.table(table)) == [("ann",), ("dan",)]


def test_paths_and_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "it's a `table`")
    with as_query(spark, "q"):
        for sink in (DeltaSink(path), DeltaSink(tmp_path / "it's a `table`")):
            sink(names(spark, "ann"), 0)
        assert rows_of(spark.read.format("delta").load(path)) == [("ann",)]
    DeltaSink(path, key="name")(names(spark, "ann", "bob"), 0)
    assert rows_of(spark.read.format("delta").load(path)) == [("ann",), ("bob",)]
    IcebergSink("ice.db.`my alarms`", key="name")(names(spark, "ann"), 0)
    assert spark.table("ice.db.`my alarms`").count() == 1
    for wrong in ("a b", "t; DROP TABLE t", "a..b", "t--", "`a"):
        for kind in (DeltaSink, IcebergSink):
            with pytest.raises(SinkError, match="is not the name of a table"):
                kind(wrong)


def test_tables_that_do_not_fit(spark: SparkSession, lake: str, table: str) -> None:
    with as_query(spark, "q"):
        sink_of(lake, table)(names(spark, "ann").selectExpr("name", "1 AS n"), 0)
        with pytest.raises(ColumnNotFoundError, match=f"in the table '{table}'"):
            sink_of(lake, table)(names(spark, "bob").selectExpr("name", "1 AS m"), 1)
        with pytest.raises(SinkError, match="the rows cannot be written to the table"):
            sink_of(lake, table)(names(spark, "bob").selectExpr("name", "TIMESTAMP_NTZ'2025-01-01 00:00:00' AS n"), 1)
        with pytest.raises(SinkError, match="the rows cannot be written to the table"):
            sink_of(lake, table, key="name")(names(spark, "bob").selectExpr("name", "array(1) AS n"), 1)
        sink_of(lake, table, key="name")(names(spark, "bob"), 1)  # the table has more columns
        assert rows_of(spark.table(table)) == [("ann", 1), ("bob", None)]
    with pytest.raises(SinkError, match="the rows have no column 'match_id'"):
        sink_of(lake, table, key="match_id")(names(spark, "ann"), 0)


def test_types(spark: SparkSession, lake: str, table: str) -> None:
    everything = spark.sql("""
        SELECT 1 AS id, TIMESTAMP'2025-01-01 12:00:00.123456' AS ts, TIMESTAMP_NTZ'2025-01-01 12:00:00.123456' AS ntz,
            DATE'2025-01-02' AS day, CAST(1.50 AS DECIMAL(20, 2)) AS amount, X'00ff' AS bytes, true AS yes,
            array(named_struct('ts', TIMESTAMP'2025-01-01 12:00:00', 'price', CAST(2.5 AS DECIMAL(10, 1)))) AS events,
            map('a', 1.5D) AS shares, named_struct('x', CAST(NULL AS STRING)) AS nothing
    """)
    with as_query(spark, "q"):
        sink_of(lake, table)(everything, 0)
    sink_of(lake, table, key="id")(everything.withColumn("yes", everything.yes & False), 0)
    sink_of(lake, table, key=["ts", "ntz", "day", "amount", "bytes"])(everything, 0)
    [row] = spark.table(table).collect()
    assert (row.ntz, row.day, row.amount) == (datetime(2025, 1, 1, 12, 0, 0, 123456), date(2025, 1, 2), Decimal("1.50"))
    assert row == everything.collect()[0]
    assert spark.table(table).dtypes == everything.dtypes


def test_rows_are_replaced_by_key(spark: SparkSession, lake: str, table: str) -> None:
    def rows(*values: tuple[str | None, int, int]) -> DataFrame:
        return spark.createDataFrame(values, "user STRING, firing INT, total INT")

    sink = sink_of(lake, table, key="user")
    sink(rows(("ann", 1, 10), ("ann", 2, 20), (None, 1, 5)), 0)
    assert rows_of(spark.table(table)) == [("ann", 2, 20), (None, 1, 5)]
    for _ in range(2):
        sink(rows(("ann", 3, 30), (None, 2, 6), ("bob", 1, 1)), 1)
        assert rows_of(spark.table(table)) == [("ann", 3, 30), ("bob", 1, 1), (None, 2, 6)]
    sink(rows(("ann", 2, 99)), 2)  # older than what the table has
    assert ("ann", 3, 30) in rows_of(spark.table(table))
    by_total = sink_of(lake, table, key=["user"], order_by="total")
    by_total(rows(("ann", 1, 40)), 3)
    assert ("ann", 1, 40) in rows_of(spark.table(table))
    for key in ("user", ["user", "firing"]):
        with pytest.raises(SinkError, match="2 rows of a micro-batch have the same key: user = 'eve'"):
            sink_of(lake, table, key=key)(rows(("eve", 1, 1), ("eve", 1, 2)), 4)
    assert spark.table(table).count() == 3
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("asterism")]


def test_replaced_sessions_are_deleted(spark: SparkSession, lake: str, table: str) -> None:
    def rows(*values: tuple[str, str, int, list[str]]) -> DataFrame:
        return spark.createDataFrame(values, "who STRING, session_id STRING, firing INT, replaces ARRAY<STRING>")

    def sessions() -> list[str]:
        return [row.session_id for row in spark.table(table).orderBy("session_id").collect()]

    for key in ("session_id", ["who", "session_id"]):
        sink = sink_of(lake, table, key=key)
        sink(rows(("ann", "a", 1, []), ("ann", "b", 1, []), ("ann", "c", 1, ["a"])), 0)
        assert sessions() == ["b", "c"]
        for _ in range(2):
            sink(rows(("ann", "d", 1, []), ("ann", "c", 2, ["b", "never written"])), 1)
            assert sessions() == ["c", "d"]
        spark.sql(f"DELETE FROM {table}")
