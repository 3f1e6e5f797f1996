"""Columns of every type: those that nobody reads pass through, and one text of a condition has one meaning."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
    TumblingWindows,
    match_recognize,
    window,
)
from asterism.spark.host.column_types import plain_type
from tests.every_type import TYPES

pytestmark = pytest.mark.spark

AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
WINDOWS = TumblingWindows.of(timedelta(minutes=1))
EXPRESSIONS = {
    **{name: sql for name, (sql, _, _) in TYPES.items()},
    "a collation": "'é' COLLATE UTF8_LCASE",
    "ARRAY of a collation": "array('a' COLLATE UNICODE_CI)",
    "MAP of a collation": "map('a', 'b' COLLATE UNICODE)",
    "STRUCT of a collation": "struct('a' COLLATE UTF8_LCASE AS c, 1 AS n)",
    "ARRAY of VARIANT": "array(parse_json('1'))",
}
"""Of columns ``v0``, ``v1``, ...; each is NULL where the kind is b."""
COLUMNS = [f"v{number}" for number in range(len(EXPRESSIONS))]


def with_every_type(df: DataFrame) -> DataFrame:
    values = [f"IF(kind = 'a', {sql}, NULL) AS {name}" for name, sql in zip(COLUMNS, EXPRESSIONS.values(), strict=True)]
    return df.selectExpr("ts", "user", "kind", *values)


def events(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT timestamp_seconds(id) AS ts, 'u' AS user, substring('ab', int(id), 1) AS kind FROM range(1, 3)"
    ).coalesce(1)


def types_of(kind: T.StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in kind if field.name in COLUMNS}


def values_of(rows: list[Any]) -> list[dict[str, str]]:
    """By column, as text: NaN is equal to itself."""
    return [{name: repr(row[name]) for name in COLUMNS} for row in rows]


CHAR = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
"""The metadata with which Spark marks a column of CHAR(3)."""


def test_char_as_a_type(spark: SparkSession) -> None:
    """As with ``spark.sql.preserveCharVarcharTypeInfo``."""
    kind = T.StructType([T.StructField("c", T.CharType(3)), T.StructField("v", T.VarcharType(3))])
    assert plain_type(T.ArrayType(kind, False)).simpleString() == "array<struct<c:string,v:string>>"
    df = spark.createDataFrame([], "c STRING").select(F.col("c").alias("c", metadata={"x": 1} | CHAR))
    assert KeyedStream(df).df.schema["c"].metadata == {"x": 1}


# ---------------------------------------------------------------------------------------------------- what is refused


def test_what_nobody_reads_is_left_out(spark: SparkSession) -> None:
    """Also columns that Spark does not pass to Python. IS NULL reads every column that it does pass."""
    df = spark.sql("""
        SELECT timestamp_seconds(id) AS ts, 'u' AS user, id AS n, INTERVAL '1' YEAR AS months, make_interval(1) AS calendar,
            map() AS nothing, IF(id = 0, NULL, 'a' COLLATE UTF8_LCASE) AS k, IF(id = 0, parse_json('1'), NULL) AS v
        FROM range(2)
    """)
    stream = KeyedStream(df, "user", "ts")
    pattern = (
        Pattern.begin("a").where("k IS NULL AND v IS NOT NULL").followed_by("b").where("n > a.n AND k IS NOT NULL")
    )
    assert CEP.pattern(stream, pattern).select("b.n AS n").collect()[0].n == 1
    (row,) = window(stream, WINDOWS).aggregate("count_if(k IS NULL) AS n").collect()
    assert row.n == 1
    clause = "ORDER BY ts MEASURES B.n AS n PATTERN (A B)"
    assert match_recognize(df, clause).matches.collect()[0].n == 1
