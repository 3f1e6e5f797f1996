"""What a user reads when an expression reads a column of a type that it does not support."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
    as_of_join,
    interval_join,
    match_recognize,
    window,
)
from tests.kit import Golden
from tests.spark.test_column_types import WINDOWS

pytestmark = pytest.mark.spark


def provocations(spark: SparkSession) -> dict[str, Callable[[], object]]:
    df = spark.sql("""
        SELECT current_timestamp() AS ts, 'u' AS user, 'a' COLLATE UTF8_LCASE AS k, parse_json('1') AS v, struct(1 AS x) AS s,
            INTERVAL '1' YEAR AS months, make_interval(1) AS calendar, map() AS nothing, 1 AS n, 'u' COLLATE UNICODE_CI AS user2
    """)
    stream = KeyedStream(df, "user", "ts")
    every = Pattern.begin("a")
    twice = df.select("ts", "user", "n", df.n)
    return {
        "key_with_a_collation": lambda: KeyedStream(df, "k", "ts"),
        "order_with_a_collation": lambda: KeyedStream(df, "user", "ts", order_by=["-k"]),
        "order_by_a_struct": lambda: KeyedStream(df, "user", "ts", order_by=["s NULLS LAST"]),
        "versions_by_a_variant": lambda: as_of_join(stream, KeyedStream(df, "user", "ts", order_by=["v"])),
        "condition_of_a_stage": lambda: CEP.pattern(stream, every.followed_by("b").where("k = LAST(a.k)")),
        "measure_of_a_variant": lambda: CEP.pattern(stream, every).select("a.v AS v"),
        "aggregate_with_a_collation": lambda: window(stream, WINDOWS).aggregate("count(DISTINCT k)"),
        "aggregate_of_a_variant": lambda: window(stream, WINDOWS).aggregate("first(v)"),
        "partition_with_a_collation": lambda: match_recognize(
            df, "PARTITION BY k ORDER BY ts MEASURES A.n AS n PATTERN (A)"
        ),
        "rows_ordered_by_a_collation": lambda: match_recognize(df, "ORDER BY ts, k MEASURES A.n AS n PATTERN (A)"),
        "join_with_a_collation": lambda: interval_join(
            stream, stream, (timedelta(0), timedelta(0)), on="k = r_k", prefix="r_"
        ),
        "matches_with_months": lambda: CEP.pattern(stream, every).matches,
        "rows_with_a_calendar_interval": lambda: (
            match_recognize(df.drop("months"), "ORDER BY ts ALL ROWS PER MATCH PATTERN (A)").matches
        ),
        "join_with_an_empty_map": lambda: (
            interval_join(
                stream,
                KeyedStream(df.drop("months", "calendar"), "user", "ts"),
                (timedelta(0), timedelta(0)),
                prefix="r_",
            ).results
        ),
        "two_columns_of_one_name": lambda: KeyedStream(twice, "user", "ts"),
        "rows_with_two_columns_of_one_name": lambda: match_recognize(
            twice, "ORDER BY ts MEASURES A.n AS n PATTERN (A)"
        ),
        "no_columns": lambda: KeyedStream(spark.range(3).select()),
    }


def test_texts(spark: SparkSession, golden: Golden) -> None:
    found = provocations(spark)
    for name, provocation in found.items():
        golden.error(name, provocation)
    assert golden.names() == set(found)
