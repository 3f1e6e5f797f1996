"""Spark computes the parts of expressions that read one event: their results are those of columns computed before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot.tokenizer_core import TokenType

from asterism import (
    CEP,
    AfterMatchSkipStrategy,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    GlobalWindows,
    KeyedStream,
    Pattern,
    SessionWindows,
    window,
)
from asterism.expressions.parsing import tokenize
from asterism.spark.session.settings import settings

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def of_session(spark: SparkSession) -> None:
    """Functions and a variable of the session."""
    spark.udf.register("py_twice", lambda x: None if x is None else 2 * x, "bigint")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION sql_next(n BIGINT) RETURNS BIGINT RETURN n + 1")
    spark.sql("DECLARE OR REPLACE VARIABLE threshold BIGINT DEFAULT 3")


ROWS = """
    SELECT timestamp_seconds(id) AS ts, 'u' AS user, id AS n, IF(id = 4, NULL, id) AS x, concat('K', id) AS kind,
        IF(id = 3, NULL, concat('a/', repeat('b/', int(id)))) AS path, map('k', id / 2D) AS m, sequence(0, id) AS xs,
        parse_json(concat('{"price": ', id, ', "items": [{"id": "i', id, '"}]}')) AS v, 'é' COLLATE UTF8_LCASE AS lower_case,
        named_struct('x', id) AS s, id AS `a.b`, id AS `it's "q"`, id AS `Größe`, make_interval(0, int(id)) AS long
    FROM range(1, 8)
"""
VALUES = [
    "sin(n)", "py_twice(x)", "sql_next(x) * 2", "py_twice(n) + sql_next(n)", "n > threshold", "exists(xs, y -> y = 4)",
    "transform(xs, y -> y * n)", "aggregate(xs, 0L, (total, y) -> total + y)", "filter(xs, y -> y % 2 = 0)", "v:price::int",
    "v:items[0].id::string", "variant_get(v, '$.price', 'double') / 2", "lower_case = 'É'", "kind COLLATE UTF8_LCASE = 'k3'",
    "m['k']", "map_keys(m)", "map_filter(m, (k, w) -> w > 1)", "sha2(kind, 256)", "hash(kind, n)", "format_string('%03d', n)",
    "TIME '10:00:00' + INTERVAL 1 HOUR > TIME '10:30:00'", "CASE WHEN x IS NULL THEN 'none' ELSE soundex(kind) END", "to_json(s)",
    "from_json('{\"a\": 1}', 'a INT').a + n", "`a.b` + sin(0)", "`it's \"q\"` + sin(0)", "`Größe` + sin(0)",
    "n <> 4 AND 1 / (n - 4) > sin(0)", "if(n = 4, 0, 1 DIV (n - 4)) + sin(0)", "date_format(ts, 'EEEE')",
    "extract(MONTH FROM long)",    "n << 2", "try_to_number(kind, '999')", "kind LIKE ANY ('K1', '%2')",
    "'it''s' || initcap(kind)", "typeof(v)",
]  # fmt: skip
"""Of columns of ROWS."""
COLUMNS = (
    "ts", "user", "n", "x", "kind", "path", "m", "xs", "v", "lower_case", "s", "`a.b`", "`it's \"q\"`", "`Größe`", "long"
)  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS).coalesce(1).localCheckpoint()


def of_stage(sql: str, stage: str) -> str:
    """The SQL with the name of a stage before its columns."""
    written, end, tokens = "", 0, tokenize(sql)
    for at, token in enumerate(tokens):
        if token.start < end:
            continue
        written += sql[end : token.start]
        raw = sql[token.start : token.end + 1]
        after_dot = at and tokens[at - 1].token_type in (TokenType.DOT, TokenType.COLON)
        written += f"{stage}.{raw}" if raw in COLUMNS and not after_dot else raw
        end = token.end + 1
    return written


def test_values_are_those_of_spark(spark: SparkSession, rows: DataFrame) -> None:
    """Of every expression as an argument of a measure, which each row is a match for."""
    named = [f"LAST({of_stage(sql, 'a')}) AS v{number}" for number, sql in enumerate(VALUES)]
    with settings(spark, {"spark.sql.timeType.enabled": "true"}):
        found = CEP.pattern(KeyedStream(rows, "user", "ts"), Pattern.begin("a")).select("a.n AS n", *named)
        expected = rows.selectExpr("user", "n", *(f"({sql}) AS v{number}" for number, sql in enumerate(VALUES)))
        for ours, of_spark in zip(found.schema, expected.schema, strict=True):
            assert (ours.name, ours.dataType.simpleString()) == (of_spark.name, of_spark.dataType.simpleString())
        for row, row_of_spark in zip(found.orderBy("n").collect(), expected.orderBy("n").collect(), strict=True):
            assert row.asDict() == row_of_spark.asDict()


def test_conditions_are_those_over_columns(rows: DataFrame) -> None:
    """``where``, ``or_`` and ``until``, in a group that repeats, with PREV and an absence, without a key, and with NULLs."""
    computed = {
        "c0": "n <> 4 AND exists(xs, y -> y > 1 DIV (n - 4) - 9)", "c1": "exists(xs, y -> y > 2)", "c2": "py_twice(n)",
        "c3": "sql_next(x) > threshold", "c4": "v:price::int", "c5": "aggregate(xs, 0L, (t, y) -> t + y)",
        "c6": "kind COLLATE UTF8_LCASE = 'k7'",
    }  # fmt: skip
    before = rows.withColumns({name: F.expr(sql) for name, sql in computed.items()})

    def pattern(of: dict[str, str]) -> Pattern:
        inner = Pattern.begin("a").where(of["c0"]).or_(f"{of['c1']} AND n > 5")
        return (
            Pattern.begin(inner, AfterMatchSkipStrategy.no_skip()).one_or_more().until(of["c6"])
            .followed_by("b").where(f"{of['c2']} > LAST({of_stage(of['c2'], 'a')}) AND PREV({of['c4']}) < {of['c4']}")
            .not_next("c").where(f"NOT {of['c3']} AND SUM({of_stage(of['c5'], 'a')}) > {of['c5']} - 1")
            .followed_by("d")
        )  # fmt: skip

    measures = ("COUNT(a.*) AS a", "LAST(b.n) AS b", "d.n AS d")
    plain = {name: name for name in computed}
    for key in ("user", None):
        found = CEP.pattern(KeyedStream(rows, key, "ts"), pattern(computed)).select(*measures).collect()
        expected = CEP.pattern(KeyedStream(before, key, "ts"), pattern(plain)).select(*measures).collect()
        assert found == expected
        assert found


def test_a_branch_that_is_not_reached_does_not_fail(rows: DataFrame) -> None:
    stream = KeyedStream(rows, "user", "ts")
    fails = "exists(xs, y -> y > 1 DIV (n - 4) + 100)"
    for text in [f"n <> 4 AND {fails}", f"CASE WHEN n = 4 THEN FALSE ELSE {fails} END"]:
        assert CEP.pattern(stream, Pattern.begin("a").where(text)).select("a.n AS n").collect() == []
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        CEP.pattern(stream, Pattern.begin("a").where(fails)).select("a.n AS n").collect()


def test_only_columns_that_are_read_are_transferred(rows: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    second = "py_twice(n) > LAST(py_twice(a.n)) AND py_twice(n) > 1"
    pattern = Pattern.begin("a").where("py_twice(length(path)) > 4").followed_by("b").where(second)
    CEP.pattern(KeyedStream(rows, "user", "ts"), pattern).select("a.kind AS kind").explain()
    plan = capsys.readouterr().out
    assert plan.count("BatchEvalPython") == 1  # also for the filter
    transferred = plan.partition("MapInArrow ")[2].partition("#")[2].partition("__asterism")[0]
    columns = [column.partition("#")[0].strip() for column in transferred.split("L, ") for column in column.split(", ")]
    assert ":sql:py_twice(n)" in columns
    assert "kind" in columns
    assert not {"path", "xs", ":sql:py_twice(length(path)) > 4"} & set(columns)


def test_the_input_may_be_the_output_of_an_operator(rows: DataFrame) -> None:
    found = CEP.pattern(KeyedStream(rows, "user", "ts"), Pattern.begin("a").where("py_twice(n) < 99")).select(
        "a.ts AS at", "LAST(py_twice(a.n)) AS twice"
    )
    again = CEP.pattern(KeyedStream(found, "user", "at"), Pattern.begin("b").where("py_twice(twice) > 3"))
    assert again.select("b.twice AS twice").count() == 7


def test_windows(rows: DataFrame) -> None:
    """Arguments of aggregates, FILTER, ORDER BY, a trigger and a gap; window functions get the columns of the events."""
    computed = {
        "c0": "py_twice(n)", "c1": "exists(xs, y -> y > 3)", "c2": "sha2(kind, 256)", "c3": "v:price::double",
        "c4": "size(filter(xs, y -> y < 3)) + 1",
    }  # fmt: skip
    rows = rows.drop("long")
    before = rows.withColumns({name: F.expr(sql) for name, sql in computed.items()})

    def result(df: DataFrame, of: dict[str, str]) -> list[Any]:
        windows = SessionWindows.with_dynamic_gap(of["c4"])
        trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
        measures = [
            f"sum({of['c0']}) AS a", f"count(*) FILTER (WHERE {of['c1']}) AS b", f"array_agg(n ORDER BY {of['c2']}) AS c",
            f"max({of['c3']}) - min({of['c3']}) AS d",
        ]  # fmt: skip
        sessions = window(KeyedStream(df, "user", "ts"), windows, trigger=trigger).aggregate(*measures)
        deltas = window(KeyedStream(df, None, "ts"), GlobalWindows(), trigger=DeltaTrigger.of(1.5, of["c3"]))
        fired = deltas.process(lambda elements, _: elements.select(["n"]), "n BIGINT")
        return [sessions.collect(), fired.collect()]

    found = result(rows, computed)
    assert found == result(before, {name: name for name in computed})
    assert all(found)
    deltas = window(KeyedStream(rows, None, "ts"), GlobalWindows(), trigger=DeltaTrigger.of(1.5, computed["c3"]))
    names = deltas.process(lambda elements, _: {"names": elements.column_names}, "names ARRAY<STRING>").first()
    assert names is not None
    assert names["names"] == rows.columns


# ---------------------------------------------------------------------------------------------------- streams

VIEWS = "exists(array(kind), k -> k LIKE 'v%')"
PRICES = "py_twice(CAST(price AS BIGINT)) > LAST(py_twice(CAST(a.price AS BIGINT)))"


def streamed(condition: str, other: str) -> Pattern:
    return Pattern.begin("a").where(condition).followed_by("b").where(other).within(timedelta(seconds=30))
