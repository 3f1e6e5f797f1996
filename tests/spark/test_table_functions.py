"""Operators as table functions in SQL: the same as ``connect``, over tables and streams; what is not ours is Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    BroadcastInput,
    BroadcastMapState,
    Input,
    Output,
    StreamOperator,
    ValueState,
    register_function,
    sql,
)
from asterism.errors import AsterismError, ExpressionSyntaxError
from asterism.row_patterns.statements import StatementTokens
from asterism.spark.api import table_functions
from asterism.spark.api.table_functions import TableArgument, calls_in
from tests.spark.streams import Collect, write_files


class Big(StreamOperator):
    """The sums of a user's clicks that reach a threshold, with the name of the user from a broadcast table."""

    clicks = Input("user STRING, value INT")
    rows = Output("User STRING, total INT, least INT")
    total = ValueState("INT")

    def __init__(self, least: int = 3, *, every: timedelta | None = None) -> None:
        self.least, self.every = least, every

    @clicks.process_element
    def click(self, click: Any, ctx: Any) -> None:
        total = (self.total.value() or 0) + click.value
        self.total.update(total)
        if total >= self.least:
            self.rows.collect(User=click.user, total=total, least=self.least)


class Paid(StreamOperator):
    """Orders and their payments, in order, with a rate for all."""

    orders = Input("id INT, amount INT")
    payments = Input("number INT, paid INT")
    rates = BroadcastInput("rate INT")
    matched = Output("id INT, amount INT, paid INT")
    open_orders = Output("id INT")
    amount = ValueState("INT")
    rate = BroadcastMapState("STRING", "INT")

    @rates.process_element
    def set_rate(self, rate: Any, ctx: Any) -> None:
        self.rate.put("rate", rate.rate)

    @orders.process_element
    def order(self, order: Any, ctx: Any) -> None:
        self.amount.update(order.amount)
        self.open_orders.collect(id=order.id)

    @payments.process_element
    def pay(self, payment: Any, ctx: Any) -> None:
        if self.amount.value() is not None:
            paid = payment.paid * (self.rate.get("rate") or 1)
            self.matched.collect(id=payment.number, amount=self.amount.value(), paid=paid)


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    register_function("big", Big)
    register_function("Paid", Paid)
    yield
    table_functions._functions.clear()


CALLS = {
    "SELECT * FROM TABLE(big(TABLE clicks PARTITION BY user))": "big(clicks[user])",
    "SELECT * FROM big(clicks => TABLE(SELECT 1) PARTITION BY (a, t.`b c`) ORDER BY ts, 5, least => x(1, 2))":
        "big(clicks=(SELECT 1)[a, b c] ORDER BY ts, '5', least='x(1, 2)')",
    "SELECT * FROM TABLE(Big(TABLE a.b.clicks PARTITION BY u, v, on_time => DESCRIPTOR(ts, `ts 2`), least => 1))":
        "Big(a.b.clicks[u, v], on_time=[ts, ts 2], least='1')",
    "SELECT * FROM TABLE(big(TABLE c WITH SINGLE PARTITION)), big(TABLE d PARTITION BY a, TABLE e)":
        "big(c[]); big(d[a], e)",
    "SELECT big(x), y FROM TABLE(other(TABLE t PARTITION BY k)) WHERE big(5) > 3": "",
    "SELECT * FROM TABLE(big(TABLE (SELECT * FROM TABLE(big(TABLE t PARTITION BY k))) PARTITION BY l))":
        "big((SELECT * FROM TABLE(big(TABLE t PARTITION BY k)))[l]); big(t[k])",
}  # fmt: skip


def text_of(source: str) -> str:
    def value(argument: Any) -> str:
        if isinstance(argument, TableArgument):
            keys = "" if argument.keys is None else f"[{', '.join(column.name for column in argument.keys)}]"
            time = "" if argument.time is None else f" ORDER BY {argument.time.name}"
            return source[argument.begin : argument.end] + keys + time
        return repr(argument) if isinstance(argument, str) else f"[{', '.join(column.name for column in argument)}]"

    return "; ".join(
        f"{call.name}({', '.join((f'{a.name}=' if a.name else '') + value(a.value) for a in call.arguments)})"
        for call in calls_in(source, StatementTokens.read(source), ["big"])
    )


@pytest.mark.parametrize("source", CALLS)
def test_calls_are_read(source: str) -> None:
    assert text_of(source) == CALLS[source]


# ---------------------------------------------------------------------- on Spark

ROWS = pa.table({
    "USER": ["ann", "bob", "ann", "ann", "bob"], "value": pa.array([1, 5, 2, 3, 1], pa.int32()),
    "ts": pa.array([1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000], pa.timestamp("us", "UTC")),
})  # fmt: skip
SUMS = [("ann", 3, 3), ("ann", 6, 3), ("bob", 5, 3), ("bob", 6, 3)]


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.collect())


@pytest.mark.spark
def test_over_tables(spark: SparkSession) -> None:
    clicks = spark.createDataFrame(ROWS)
    given: dict[str, Any] = {"clicks": clicks, "key_groups": 2}
    call = "big(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(TS))"
    assert rows(sql(f"SELECT * FROM TABLE({call})", spark, **given)) == SUMS
    assert sql(f"SELECT * FROM {call} AS t", spark, **given).columns == ["User", "total", "least"]
    statement = f"""
        WITH some AS (SELECT * FROM clicks WHERE value > 1)
        SELECT b.user, max(total) AS most, count(*) AS n
        FROM TABLE(big(1 + 1, clicks => TABLE some PARTITION BY some.user ORDER BY ts)) AS b
        JOIN (SELECT user, least FROM TABLE({call})) AS other ON other.user = b.user AND other.least = b.least + 1
        GROUP BY b.user
    """
    assert rows(sql(statement, spark, **given)) == [("ann", 5, 4), ("bob", 5, 2)]
    nested = """SELECT * FROM TABLE(big(TABLE (
        SELECT user, total AS value, ts FROM clicks MATCH_RECOGNIZE (
            PARTITION BY user ORDER BY ts MEASURES A.value AS total, A.ts AS ts PATTERN (A) DEFINE A AS value > 1)
    ) PARTITION BY user ORDER BY ts, every => INTERVAL '5' SECOND))"""
    assert rows(sql(nested, spark, **given)) == [("ann", 5, 3), ("bob", 5, 3)]
    of_spark = "big(TABLE(clicks) WITH SINGLE PARTITION ORDER BY ts, least => 12)"  # a sum of all rows
    assert rows(sql(f"SELECT * FROM {of_spark}", spark, **given)) == [("bob", 12, 12)]
    behind = f"""SELECT * FROM TABLE({call}) MATCH_RECOGNIZE (
        PARTITION BY user ORDER BY total MEASURES A.total AS a, B.total AS b PATTERN (A B) DEFINE B AS total > A.total + 2)"""
    assert rows(sql(behind, spark, **given)) == [("ann", 3, 6)]

    class Big2(Big):
        pass

    given["own"] = Big2
    assert len(rows(sql("SELECT * FROM TABLE(own(TABLE clicks PARTITION BY user, least => 6))", spark, **given))) == 2

    orders = spark.sql("SELECT int(id) AS id, int(id * 10) AS amount, timestamp_seconds(id) AS at FROM range(4)")
    payments = spark.sql("SELECT int(id) AS number, int(id) AS paid, timestamp_seconds(id * 2) AS sent FROM range(4)")
    rates = spark.sql("SELECT 100 AS rate")
    call = """paid(TABLE orders PARTITION BY id, payments => TABLE payments PARTITION BY number, rates => TABLE rates,
              on_time => DESCRIPTOR(at, sent), output => 'matched')"""
    more: dict[str, Any] = {"orders": orders, "payments": payments, "rates": rates, "key_groups": 2}
    assert rows(sql(f"SELECT * FROM TABLE({call})", spark, **more)) == [(n, n * 10, n * 100) for n in range(4)]


@pytest.mark.spark
def test_over_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    write_files(ROWS, tmp_path / "clicks", [2, 4])
    schema = spark.createDataFrame(ROWS).schema
    clicks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "clicks"))
    statement = (
        "SELECT upper(user), total, least FROM TABLE(big(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(ts)))"
    )
    result = sql(statement, spark, clicks=clicks, max_out_of_orderness=timedelta(seconds=1), key_groups=2, drain=True)
    found = Collect()
    writer = result.writeStream.foreachBatch(found).option("checkpointLocation", str(tmp_path / "cp"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(tuple(row.values()) for row in found.rows) == [(user.upper(), *rest) for user, *rest in SUMS]


@pytest.mark.spark
def test_what_is_not_registered_is_spark_s(spark: SparkSession) -> None:
    assert rows(sql("SELECT * FROM range(2) AS big(id)", spark)) == [(0,), (1,)]
    with pytest.raises(AnalysisException, match="elsewhere"):
        sql("SELECT * FROM TABLE(elsewhere(TABLE (SELECT 1 AS k) PARTITION BY k))", spark)


def test_wrong_functions() -> None:
    for name, operator, message in (
        ("my operator", Big, "must be an identifier"),
        (5, Big, "must be an identifier"),
        ("big", Big(), "must be a subclass of StreamOperator"),
        ("big", int, "must be a subclass of StreamOperator"),
        ("big", lambda output: Big(), "has a parameter 'output'"),
    ):
        with pytest.raises(AsterismError, match=message):
            register_function(name, operator)  # type: ignore[arg-type]
    with pytest.raises(ExpressionSyntaxError, match="more than 100 arguments"):
        text_of(f"SELECT * FROM TABLE(big({', '.join(['1'] * 200)}))")
