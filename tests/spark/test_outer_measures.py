"""Expressions of MATCH_RECOGNIZE that only Spark evaluates, and measures whose outer part Spark computes after the operator."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern, match_recognize, sql
from asterism.spark.session.settings import settings
from tests.spark.test_computed_columns import ROWS, VALUES, of_stage

pytestmark = pytest.mark.spark
ORDER = "PARTITION BY user ORDER BY ts "


@pytest.fixture(autouse=True, scope="module")
def of_session(spark: SparkSession) -> None:
    """Functions and variables of the session."""

    def km(lat: float, lon: float, to_lat: float, to_lon: float) -> float | None:
        if None in (lat, lon, to_lat, to_lon):
            return None
        a, b = math.radians(lat), math.radians(to_lat)
        half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(to_lon - lon) / 2) ** 2
        return 2 * 6371 * math.asin(math.sqrt(half))

    spark.udf.register("py_twice", lambda x: None if x is None else 2 * x, "bigint")
    spark.udf.register("km", km, "double")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION sql_next(n BIGINT) RETURNS BIGINT RETURN n + 1")
    spark.sql("DECLARE OR REPLACE VARIABLE threshold BIGINT DEFAULT 3")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS).coalesce(1).localCheckpoint()


def same_as_spark(found: DataFrame, expected: DataFrame) -> None:
    """Names, types and values, whether a column can be NULL apart."""
    for ours, of_spark in zip(found.schema, expected.schema, strict=True):
        assert (ours.name, ours.dataType.simpleString()) == (of_spark.name, of_spark.dataType.simpleString())
    of_spark_rows = expected.orderBy("n").collect()
    assert [row.asDict() for row in found.orderBy("n").collect()] == [row.asDict() for row in of_spark_rows]


def test_outer_parts_are_computed_by_spark(spark: SparkSession, rows: DataFrame) -> None:
    """Of every expression as a measure itself, of a pattern and of a clause: also over columns of types that Asterism does not
    compute with.
    """
    with settings(spark, {"spark.sql.timeType.enabled": "true"}):
        expected = rows.selectExpr("user", "n", *(f"({text}) AS v{number}" for number, text in enumerate(VALUES)))
        named = [f"{of_stage(text, 'a')} AS v{number}" for number, text in enumerate(VALUES)]
        stream = KeyedStream(rows, "user", "ts")
        same_as_spark(CEP.pattern(stream, Pattern.begin("a")).select("a.n AS n", *named), expected)
        measures = ", ".join(f"{text} AS v{number}" for number, text in enumerate(VALUES))
        of_clause = f"{ORDER} MEASURES A.n AS n, {measures} PATTERN (A)"
        same_as_spark(match_recognize(rows, of_clause).matches, expected)


def test_measures_and_their_outer_parts(rows: DataFrame) -> None:
    """Several aggregates, names of earlier measures, session variables, FILTER, and unmatched rows."""
    rows = rows.select("ts", "user", "n", "x", "kind")
    clause = (
        ORDER
        + "MEASURES COUNT(*) AS c, py_twice(FIRST(A.n)) + c AS t, t * t + threshold AS u, format_string('%s', A.kind) AS f,"
        " to_json(struct(FIRST(n) AS x, LAST(B.n) AS y)) AS j, hex(FINAL SUM(py_twice(B.n)) FILTER (WHERE B.n >"
        " session.threshold)) AS h"
        " {} PATTERN (A B) DEFINE A AS py_twice(A.n) IN (2, 8), B AS B.n > PREV(sql_next(n)) - 1"
    )
    found = match_recognize(rows, clause.format("")).matches
    assert found.columns == ["user", "c", "t", "u", "f", "j", "h"]
    assert [tuple(row) for row in found.orderBy("t").collect()] == [
        ("u", 2, 4, 19, "K1", '{"x":1,"y":2}', None),
        ("u", 2, 10, 103, "K4", '{"x":4,"y":5}', "A"),
    ]
    all_rows = match_recognize(rows, clause.format("ALL ROWS PER MATCH WITH UNMATCHED ROWS")).matches
    assert all_rows.columns == ["user", "ts", "c", "t", "u", "f", "j", "h", "n", "x", "kind"]
    assert [(row.n, row.t, row.f) for row in all_rows.orderBy("n").collect()] == [
        (1, 3, "K1"), (2, 4, "K1"), (3, None, None), (4, 9, "K4"), (5, 10, "K4"), (6, None, None), (7, None, None),
    ]  # fmt: skip


def test_conditions_keys_and_order(rows: DataFrame) -> None:
    """DEFINE, also with the name of the variable, PARTITION BY and ORDER BY, as if the values were columns."""
    computed = {
        "c0": "n <> 4 AND sin(1 / (n - 4)) > -1", "c1": "exists(xs, y -> y > 2)", "c2": "py_twice(n)", "c3": "v:price::int",
        "c4": "sql_next(n) % 2", "c5": "kind COLLATE UTF8_LCASE < 'k7'",
    }  # fmt: skip
    before = rows.withColumns({name: F.expr(text) for name, text in computed.items()})

    def clause(of: dict[str, str]) -> str:
        def of_variable(name: str) -> str:
            return of_stage(of[name], "B") if of[name] != name else f"B.{name}"

        return (
            f"PARTITION BY {of['c4']} AS parity ORDER BY ts, {of['c2']} DESC MEASURES FIRST(n) AS f, LAST(n) AS l,"
            f" SUM({of['c2']}) AS s PATTERN (A B+ C?) DEFINE A AS {of['c0']}, B AS {of_variable('c1')} AND"
            f" {of['c5']} AND {of['c2']} > LAST({of['c3']}, 1), C AS PREV({of['c2']}) < {of['c2']} AND n > threshold"
        )

    found = match_recognize(rows, clause(computed)).matches.collect()
    assert found == match_recognize(before, clause({name: name for name in computed})).matches.collect()
    assert found


def test_statements_read_tables_by_name(rows: DataFrame) -> None:
    text = """
        SELECT * FROM (SELECT * FROM given AS g JOIN (SELECT n AS m, kind FROM given) AS h ON g.n = h.m
            MATCH_RECOGNIZE (PARTITION BY reverse(h.kind) AS k ORDER BY ts
                MEASURES py_twice(g.n) + py_twice(LAST(h.m)) AS n, MAX(sha2(g.kind, 256)) AS d
                PATTERN (A) DEFINE A AS exists(g.xs, y -> y > 4) AND hex(A.n) <> '7')) AS m
    """
    found = sql(text, rows.sparkSession, given=rows.select("ts", "n", "xs", "kind")).orderBy("n").collect()
    assert [(row.k, row.n) for row in found] == [("5K", 20), ("6K", 24)]
    assert all(len(row.d) == 64 for row in found)


# ---------------------------------------------------------------------------------------------------- streams

TRAVEL = """
    SELECT user, first_city, last_city, round(km) AS km
    FROM logins MATCH_RECOGNIZE (
        PARTITION BY user ORDER BY ts
        MEASURES A.city AS first_city, B.city AS last_city, km(A.lat, A.lon, B.lat, B.lon) AS km,
            timestampdiff(SECOND, A.ts, B.ts) / 3600 AS hours
        AFTER MATCH SKIP TO LAST B
        PATTERN (A B)
        DEFINE B AS sha2(lower(B.city), 256) <> PREV(sha2(lower(city), 256))
    ) WHERE km / hours > 900
"""
