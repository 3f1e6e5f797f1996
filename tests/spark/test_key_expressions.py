"""Keys that are expressions: results are those of a key that is a column computed before."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import (
    CEP,
    BroadcastInput,
    BroadcastStream,
    BroadcastValueState,
    FilePatternProcessorDiscovererFactory,
    Input,
    KeyedStream,
    Output,
    Pattern,
    PatternProcessor,
    StreamOperator,
    TumblingWindows,
    connect,
    interval_join,
    read_state,
    window,
)
from asterism.errors import CheckpointMismatchError
from asterism.spark.session.settings import settings
from tests.spark.streams import DISORDER, Collect, events, ids, stream_of, write_files

pytestmark = pytest.mark.spark
PATTERN = (
    Pattern.begin("a").where("kind = 'view'").next("b").where("price > LAST(a.price)").within(timedelta(seconds=9))
)
SECOND = timedelta(seconds=1)
KEYS = {
    "key_half(user)": "key_half(user)",
    "concat_ws('-', upper(user), date_format(ts, 'EEE')) AS `day of user`": "concat_ws('-', upper(user), date_format(ts, 'EEE'))",
    "IF(user = 'u1', NULL, s.`x y`) AS k": "IF(user = 'u1', NULL, s.`x y`)",
    "abs(id) % modulus": "id % 2",
}
"""Keys, and the same without names."""


@pytest.fixture(autouse=True, scope="module")
def of_session(spark: SparkSession) -> None:
    spark.udf.register("key_half", lambda user: int(user[1:]) // 2, "int")
    spark.sql("DECLARE OR REPLACE VARIABLE modulus INT DEFAULT 2")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    df = spark.createDataFrame(events(120, users=5)).withColumn("s", F.struct(F.col("user").alias("x y")))
    return df.coalesce(1).localCheckpoint()


def name_of(key: str) -> str:
    return key.rpartition(" AS ")[2].strip("`") if " AS " in key else key


def both(df: DataFrame, *keys: str) -> list[KeyedStream]:
    """With keys that are expressions, and with columns of the same names."""
    computed = df.withColumns({name_of(key): F.expr(KEYS[key]) for key in keys})
    return [KeyedStream(df, list(keys), "ts"), KeyedStream(computed, [name_of(key) for key in keys], "ts")]


@pytest.mark.parametrize("keys", [list(KEYS)[:2], list(KEYS)[2:]])
def test_results_are_those_of_a_column(rows: DataFrame, keys: list[str]) -> None:
    """The key is a column of the events: in results, in whole events, and in conditions."""
    stream, expected = both(rows, *keys)
    assert stream.keys == [name_of(key) for key in keys]
    assert stream.df.schema.names == [*rows.columns, *stream.keys]
    condition = PATTERN.next("c").where(f"`{stream.keys[0]}` IS NOT NULL")
    for of in (PATTERN, condition):
        found = CEP.pattern(stream, of).matches
        assert found.columns[:2] == stream.keys
        matches = ids(found.toArrow().to_pylist())
        assert matches == ids(CEP.pattern(expected, of).matches.toArrow().to_pylist())
        assert matches
    counts = [
        sorted(window(of, TumblingWindows.of(4 * SECOND)).aggregate("count(*) AS n", "max(id) AS m").collect(), key=str)
        for of in (stream, expected)
    ]
    assert counts[0] == counts[1]


def test_a_column_with_the_name_of_the_text_is_the_key(rows: DataFrame) -> None:
    named = rows.withColumn("lower(user)", F.col("id") % 3)
    assert KeyedStream(named, "lower(user)", "ts").df.columns == named.columns
    found = CEP.pattern(KeyedStream(named, "lower(user)", "ts"), PATTERN).select("a.id AS id")
    assert {row[0] for row in found.collect()} == {0, 1, 2}
    assert KeyedStream(rows, "lower(user)", "ts").df.columns == [*rows.columns, "lower(user)"]


class Discounts(StreamOperator):
    """The price of each event, reduced by what was broadcast before."""

    given = Input("id BIGINT, price DOUBLE")
    discounts = BroadcastInput("percent DOUBLE")
    percent = BroadcastValueState("DOUBLE")
    reduced = Output("id BIGINT, key STRING, price DOUBLE")

    @discounts.process_element
    def discount(self, row: Any, ctx: Any) -> None:
        self.percent.update(row.percent)

    @given.process_element
    def see(self, row: Any, ctx: Any) -> None:
        self.reduced.collect(id=row.id, key=str(ctx.key), price=row.price * (1 - self.percent.value() / 100))


def test_joins_operators_and_rules(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """Each side of a join has a key of its own, of which the result has the left one."""
    other = rows.where("kind = 'buy'").selectExpr("ts AS at", "upper(user) AS who", "id AS other_id")
    left, right = KeyedStream(rows.select("id", "ts", "user"), "substr(user, 2) AS k", "ts"), KeyedStream(
        other, "substr(who, 2)", "at"
    )  # fmt: skip
    joined = interval_join(
        left, right, (-SECOND, SECOND), how="full", prefix="r_", on="k <> '1' AND r_who <> 'U2'"
    ).results
    assert joined.columns == ["id", "ts", "user", "k", "r_at", "r_who", "r_other_id"]
    expected = spark.sql(
        """SELECT id, ts, user, coalesce(k, j) AS k, at, who, other_id FROM (SELECT *, substr(user, 2) AS k FROM {rows}) FULL JOIN
        (SELECT *, substr(who, 2) AS j FROM {other}) ON k = j AND at BETWEEN ts - INTERVAL 1 SECOND AND ts + INTERVAL 1 SECOND
        AND k <> '1' AND who <> 'U2'""",
        rows=rows, other=other,
    )  # fmt: skip
    assert sorted(map(str, map(tuple, joined.collect()))) == sorted(map(str, map(tuple, expected.collect())))

    discounts = BroadcastStream(spark.createDataFrame([(50.0,)], "percent DOUBLE"))
    reduced = connect(Discounts(), given=KeyedStream(rows, "key_half(user)", "ts"), discounts=discounts).output(
        "reduced"
    )
    assert sorted(map(tuple, reduced.collect())) == sorted(
        (row.id, str(int(row.user[1:]) // 2), row.price / 2) for row in rows.collect()
    )

    rules = [
        PatternProcessor("of the stream", 1, PATTERN, select=("a.id AS id",)),
        PatternProcessor("of a column", 1, PATTERN, key=("kind", "`key_half(user)`"), select=("a.id AS id",)),
    ]
    (tmp_path / "rules.json").write_text(json.dumps([rule.to_dict() for rule in rules]))
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    found = CEP.pattern_processors(KeyedStream(rows.drop("s"), "key_half(user)", "ts"), factory, key_groups=2)
    by_rule: dict[str, set[Any]] = {}
    for row in found.output("matches").collect():
        by_rule.setdefault(row.processor_id, set()).add((tuple(row.key), str(row.measures)))
    stream = both(rows, "key_half(user)")[1]
    expected_keys = {str(row[0]) for row in CEP.pattern(stream, PATTERN).select("a.id AS id").collect()}
    assert {key for (key,), _ in by_rule["of the stream"]} == expected_keys
    assert {key for key, _ in by_rule["of a column"]} <= {(kind, half) for kind in ("view",) for half in "012"}


def test_streams_restarts_and_time_zones(spark: SparkSession, tmp_path: Path) -> None:
    """A key that depends on the time zone is refused in another one; the state has the key by its name."""
    table = events(200, users=6)
    keys, sinks = ["key_half(user)", "date_format(ts, 'mm') AS minute"], {"matches": Collect()}

    def run(drain: bool) -> None:
        stream = stream_of(spark, tmp_path / "in", key=keys)
        CEP.pattern(stream, PATTERN, key_groups=2).run(
            sinks, checkpoint=str(tmp_path / "checkpoint"), select={"matches": ["a.id AS a", "b.id AS b"]}, drain=drain
        )

    write_files(table.slice(0, 90), tmp_path / "in", [])
    run(drain=False)
    state = read_state(spark, str(tmp_path / "checkpoint"))
    assert {name for row in state.partial_matches().collect() for name in row.key.asDict()} == {
        "key_half(user)",
        "minute",
    }
    write_files(table.slice(90), tmp_path / "in", [], first=1)
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}), pytest.raises(CheckpointMismatchError):
        run(drain=False)
    run(drain=True)
    expected = CEP.pattern(
        KeyedStream(spark.createDataFrame(table), keys, "ts", max_out_of_orderness=DISORDER), PATTERN
    ).select("a.id AS a", "b.id AS b")
    assert ids(sinks["matches"].rows) == ids(expected.toArrow().to_pylist())
    assert sinks["matches"].rows
