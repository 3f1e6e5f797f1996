"""The two joins of FLIP-92: a large table with many small ones, and tables that lie together already. Neither shuffles."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import (
    CEP,
    Input,
    InputSelection,
    KeyedStream,
    ListState,
    Output,
    Pattern,
    Side,
    StreamOperator,
    connect,
    multi_broadcast_join,
)
from asterism.errors import AsterismError, ColumnNotFoundError, StreamDefinitionError

pytestmark = pytest.mark.spark

Explain = Callable[[Any], str]


@pytest.fixture
def explain(capfd: pytest.CaptureFixture[str]) -> Explain:
    """The plan of a DataFrame, or the last one of a streaming query, as Spark prints it."""

    def explained(query: Any) -> str:
        capfd.readouterr()
        query.explain()
        plan = capfd.readouterr().out
        assert "Physical Plan" in plan
        return plan

    return explained


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    names = {name: "spark.sql." + name.replace("_", ".") for name in settings}
    before = {name: spark.conf.get(full, None) for name, full in names.items()}
    for name, full in names.items():
        spark.conf.set(full, settings[name])
    try:
        yield
    finally:
        for name, full in names.items():
            value = before[name]
            spark.conf.unset(full) if value is None else spark.conf.set(full, value)


def never_broadcast(spark: SparkSession) -> Any:
    """So that only explicit joins broadcast."""
    return conf(spark, autoBroadcastJoinThreshold="-1")


def shuffles(plan: str) -> int:
    """Of the initial plan, if there is a final one too: it prints every exchange once."""
    initial = plan.rpartition("Initial Plan")[2]
    return initial.count("Exchange ") - initial.count("BroadcastExchange ")


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return tuples(df.toArrow().to_pylist())


def tuples(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found), key=repr)


# ---------------------------------------------------------------------- one large table, many small ones


def orders_file(spark: SparkSession, folder: Path) -> DataFrame:
    orders = spark.range(500).select(
        F.col("id").alias("order_id"),
        F.when(F.col("id") % 11 == 0, F.lit(None)).otherwise(F.col("id") % 40).alias("customer_id"),
        (F.col("id") % 7).alias("item"),
        F.timestamp_seconds("id").alias("ts"),
    )
    orders.repartition(4).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


@pytest.fixture
def small(spark: SparkSession) -> dict[str, DataFrame]:
    return {
        # Customer 3 is there twice, 30 to 39 are not, and a null equals no null.
        "customers": spark.createDataFrame(
            [*[(n, f"name {n}", n % 3) for n in range(30)], (3, "again", 1), (None, "nobody", 0)],
            "customer_id BIGINT, name STRING, region BIGINT",
        ),
        "regions": spark.createDataFrame([(0, "north"), (1, "south")], "id BIGINT, name STRING"),
        "sold": spark.createDataFrame([(n,) for n in (0, 1, 2, 3, 4)], "item BIGINT"),
        "recalled": spark.createDataFrame([(4, "broken"), (None, "unknown")], "item_id BIGINT, item STRING"),
    }


def star(probe: DataFrame, small: dict[str, DataFrame]) -> DataFrame:
    return multi_broadcast_join(
        probe,
        customers=Side(small["customers"], on="customer_id", how="left"),
        regions=Side(small["regions"], on={"region": "id"}, prefix="region_"),
        sold=Side(small["sold"], on=["item"], how="left_semi"),
        recalled=Side(small["recalled"], on={"item": "item_id"}, how="left_anti"),
    )


def plainly(probe: DataFrame, small: dict[str, DataFrame]) -> DataFrame:
    """The same in SQL."""
    for name, table in {"probe": probe, **small}.items():
        table.createOrReplaceTempView(name)
    return probe.sparkSession.sql("""
        SELECT p.*, c.name, c.region, r.name AS region_name
        FROM probe p LEFT JOIN customers c ON p.customer_id = c.customer_id JOIN regions r ON c.region = r.id
        WHERE item IN (SELECT item FROM sold) AND NOT EXISTS (SELECT 1 FROM recalled WHERE item_id = p.item)
    """)


def test_a_star_join_answers_as_plain_joins_do(
    spark: SparkSession, small: dict[str, DataFrame], tmp_path: Path
) -> None:
    probe = orders_file(spark, tmp_path / "orders")
    joined, expected = star(probe, small), plainly(probe, small)
    assert joined.columns == expected.columns
    assert len(rows(joined)) > 100
    assert rows(joined) == rows(expected)


def test_the_probe_is_not_shuffled(
    spark: SparkSession, small: dict[str, DataFrame], tmp_path: Path, explain: Explain
) -> None:
    probe = orders_file(spark, tmp_path / "orders")
    with never_broadcast(spark):
        assert shuffles(explain(plainly(probe, small))) > 4
        joined = star(probe, small)
        joined.collect()
        plan = explain(joined)
    assert shuffles(plan) == 0
    assert plan.rpartition("Initial Plan")[2].count("BroadcastExchange ") == 4
    assert "BuildLeft" not in plan
    assert "Shuffle" not in plan


def test_a_table_may_be_joined_with_itself(spark: SparkSession) -> None:
    people = spark.createDataFrame([(1, "ann", None), (2, "bob", 1), (3, "cid", 2)], "id INT, name STRING, boss INT")
    joined = multi_broadcast_join(
        people,
        boss=Side(people, on={"boss": "id"}, how="left", prefix="boss_"),
        above=Side(people, on={"boss_boss": "id"}, how="left", select=["name"], prefix="above_"),
    )
    assert joined.columns == ["id", "name", "boss", "boss_name", "boss_boss", "above_name"]
    assert rows(joined) == [
        (1, "ann", None, None, None, None),
        (2, "bob", 1, "ann", None, None),
        (3, "cid", 2, "bob", 1, "ann"),
    ]


def test_names_with_dots_and_several_columns_to_join_on(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, "x", 5), (1, "y", 6)], "`a.b` INT, `c``d` STRING, v INT")
    right = spark.createDataFrame([(1, "y", 7)], "`a.b` INT, other STRING, `w.x` INT")
    joined = multi_broadcast_join(left, {"other side": Side(right, on={"a.b": "a.b", "c`d": "other"})})
    assert joined.columns == ["a.b", "c`d", "v", "w.x"]
    assert rows(joined) == [(1, "y", 6, 7)]


def refused(provoke: Callable[[], Any]) -> str:
    with pytest.raises(AsterismError) as caught:
        provoke()
    assert isinstance(caught.value, StreamDefinitionError | ColumnNotFoundError)
    return str(caught.value).removeprefix(f"[{caught.value.code}] ")


def test_what_cannot_be_joined_is_refused_with_the_reason(spark: SparkSession) -> None:
    probe = spark.createDataFrame([(1, 2, "x")], "id INT, item INT, name STRING")
    side = spark.createDataFrame([(1, "y")], "id INT, Name STRING")
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS INT) AS id", "timestamp")
    assert refused(lambda: Side(side, on="id", how="right")) == (
        "a broadcast table cannot be joined as 'right'\n"
        "  Only a task that reads the whole probe side could find the rows without a match.\n"
        "  Hint: use one of inner, left, left_semi, left_anti"
    )
    assert refused(lambda: Side(side, on=[])) == (
        'a broadcast table needs join columns\n  Hint: Side(customers, on="customer_id")'
    )
    assert refused(lambda: Side(side, on="id", how="left_anti", select=["Name"])) == (
        "a table that is joined as left_anti adds no columns"
    )
    assert refused(lambda: Side(side, on="idd")) == (
        "unknown column 'idd'\n  of the broadcast table\n  Columns: id, Name\n  Hint: did you mean 'id'?"
    )
    assert refused(lambda: multi_broadcast_join(probe)) == (
        "a join needs at least one table\n"
        '  Hint: multi_broadcast_join(orders, customers=Side(customers, on="customer_id"))'
    )
    assert refused(lambda: multi_broadcast_join(probe, {"a": Side(side, on="id")}, a=Side(side, on="id"))) == (
        'the table "a" is joined twice'
    )
    assert refused(lambda: multi_broadcast_join(probe, people=side)) == (
        '"people" is a DataFrame\n  Hint: people=Side(people, on="a column of both")'
    )
    assert refused(lambda: multi_broadcast_join(probe, rates=Side(stream, on="id"))) == (
        '"rates" is a stream, and only a static table can be broadcast\n'
        "  Hint: read it as a batch; or, if it changes while the query runs, make it a BroadcastInput of an operator"
    )
    assert refused(lambda: multi_broadcast_join(probe, people=Side(side, on={"item_id": "id"}))) == (
        "unknown column 'item_id'\n"
        '  in the join columns of the table "people"\n'
        "  Columns: id, item, name\n"
        "  Hint: did you mean 'item'?"
    )
    assert refused(lambda: multi_broadcast_join(probe, people=Side(side, on="id"))) == (
        'two columns would be named "Name"\n'
        '  One is of the probe, one of "people".\n'
        '  Hint: Side(..., prefix="people_"), or select=[...] the columns that are needed'
    )
    good = Side(side, on="id", prefix="a_")
    assert 'One is of "first", one of "second".' in refused(
        lambda: multi_broadcast_join(probe, first=good, second=good)
    )


# ---------------------------------------------------------------------- tables that lie together already


class Journey(StreamOperator):
    """What became of each order, from three inputs."""

    orders = Input("id BIGINT, ts TIMESTAMP, amount DOUBLE")
    payments = Input("order_id BIGINT, ts TIMESTAMP")
    shipments = Input("id BIGINT, ts TIMESTAMP")
    seen = ListState("STRING")
    out = Output("id BIGINT, seen STRING, last STRING")

    def saw(self, what: str, ctx: Any) -> None:
        self.seen.add(what)
        ctx.register_event_time_timer("deadline", ctx.timestamp + timedelta(seconds=60))
        ctx.register_processing_time_timer("end", ctx.processing_time + timedelta(hours=1))

    @orders.process_element
    def order(self, order: Any, ctx: Any) -> None:
        self.saw(f"o{order.amount:.0f}", ctx)

    @payments.process_element
    def payment(self, payment: Any, ctx: Any) -> None:
        self.saw("p", ctx)

    @shipments.process_element
    def shipment(self, shipment: Any, ctx: Any) -> None:
        self.saw("s", ctx)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(id=ctx.key, seen=" ".join(self.seen.get()), last=f"{timer.time:%H:%M:%S}")
        self.seen.clear()

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(id=ctx.key, seen=" ".join(self.seen.get()), last="end")


class OrdersFirst(StreamOperator):
    """A join whose build side is read before everything else, whatever its times."""

    shipments = Input("id BIGINT, ts TIMESTAMP")
    orders = Input("id BIGINT, amount DOUBLE")
    amounts = ListState("DOUBLE")
    out = Output("id BIGINT, ts TIMESTAMP, amount DOUBLE")

    def select_inputs(self, ctx: Any) -> InputSelection:
        return InputSelection.ALL if ctx.has_ended("orders") else InputSelection.of("orders")

    @orders.process_element
    def order(self, order: Any, ctx: Any) -> None:
        self.amounts.add(order.amount)

    @shipments.process_element
    def shipment(self, shipment: Any, ctx: Any) -> None:
        for amount in self.amounts.get():
            self.out.collect(id=ctx.key, ts=shipment.ts, amount=amount)


TABLES = {"orders": "id", "payments": "order_id", "shipments": "id"}


def tables(spark: SparkSession) -> dict[str, DataFrame]:
    """Some keys are in one table only, some are null; all times differ."""
    rng = random.Random(5)
    times = iter(rng.sample(range(20_000), 4500))
    data = {
        "orders": [(key(n, 150), next(times), float(n)) for n in range(2000)],
        "payments": [(key(n, 180), next(times), 0.0) for n in range(1500)],
        "shipments": [(key(n, 210), next(times), 0.0) for n in range(1000)],
    }
    return {
        name: spark.createDataFrame(rows, f"{TABLES[name]} BIGINT, t BIGINT, amount DOUBLE").withColumn(
            "ts", F.timestamp_seconds("t")
        )
        for name, rows in data.items()
    }


def key(number: int, keys: int) -> int | None:
    return None if number % 37 == 0 else number % keys


@contextmanager
def bucketed(spark: SparkSession, folder: Path, buckets: dict[str, int]) -> Iterator[dict[str, DataFrame]]:
    """Tables in buckets, each of several files, which are read by several tasks."""
    small_parts = conf(spark, files_maxPartitionBytes="4096", files_openCostInBytes="1")
    try:
        with never_broadcast(spark), small_parts:
            every = tables(spark)
            for name, count in buckets.items():
                writer = every[name].repartition(3).write.bucketBy(count, TABLES[name])
                writer.option("path", str(folder / name)).saveAsTable(name)
            yield {name: spark.table(name) for name in buckets}
    finally:
        for name in buckets:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def journeys(inputs: dict[str, DataFrame], **options: Any) -> DataFrame:
    streams = {name: KeyedStream(df, key=TABLES[name], time="ts") for name, df in inputs.items()}
    return connect(Journey(), streams, **options).output("out")


def test_bucketed_tables_meet_without_an_exchange(spark: SparkSession, tmp_path: Path, explain: Explain) -> None:
    expected = rows(journeys(tables(spark)))
    assert {row[2] for row in expected} > {"end"}
    assert any(row[0] is None for row in expected)
    with bucketed(spark, tmp_path, dict.fromkeys(TABLES, 4)) as inputs:
        together = journeys(inputs, co_partitioned=True)
        assert rows(together) == expected
        plan = explain(together)
        assert "Exchange" not in plan
        assert plan.rpartition("Initial Plan")[2].count("SelectedBucketsCount: 4 out of 4") == 3
        assert shuffles(explain(journeys(inputs))) == 1
        assert rows(journeys(inputs)) == expected


def test_tables_that_do_not_lie_together_are_shuffled_once(
    spark: SparkSession, tmp_path: Path, explain: Explain
) -> None:
    check_one_shuffle(spark, tmp_path, explain, {})


def check_one_shuffle(spark: SparkSession, tmp_path: Path, explain: Explain, buckets: dict[str, int]) -> None:
    expected = rows(journeys(tables(spark)))
    with bucketed(spark, tmp_path, buckets) as inputs:
        with pytest.warns(UserWarning, match="are not partitioned by their keys: Spark shuffles them"):
            together = journeys(inputs or tables(spark), co_partitioned=True)
        assert rows(together) == expected
        assert shuffles(explain(together)) == 1


def test_a_pattern_over_a_table_with_as_many_buckets_as_shuffle_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Spark leaves out a repartition that such a table seems not to need, and then does not read it by its buckets."""
    pattern = Pattern.begin("a").where("amount % 3 = 0").next("b").where("amount % 3 > 0")

    def matches(df: DataFrame) -> list[tuple[Any, ...]]:
        return rows(CEP.pattern(KeyedStream(df, key="id", time="ts"), pattern).select("a.ts AS a", "b.ts AS b"))

    expected = matches(tables(spark)["orders"])
    with bucketed(spark, tmp_path, {"orders": int(spark.conf.get("spark.sql.shuffle.partitions") or 0)}) as inputs:
        assert matches(inputs["orders"]) == expected


def test_inputs_that_are_not_partitioned_by_a_key_are_refused(spark: SparkSession) -> None:
    class Both(StreamOperator):
        left = Input("id BIGINT")
        out = Output("id BIGINT")

        @left.process_element
        def element(self, element: Any, ctx: Any) -> None:
            self.out.collect(element)

    keyless = KeyedStream(spark.range(3))
    assert refused(lambda: connect(Both(), left=keyless, co_partitioned=True).output("out")) == (
        'the input "left" has no key by which it can be partitioned'
    )
    stream = KeyedStream(spark.readStream.format("rate").load().selectExpr("value AS id"), key="id")
    assert refused(lambda: connect(Both(), left=stream, co_partitioned=True)) == (
        "co_partitioned is supported only for bounded, keyed inputs\n  Hint: join broadcast tables first: multi_broadcast_join"
    )
