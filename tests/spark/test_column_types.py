"""Columns of every type: those that nobody reads pass through, and one text of a condition has one meaning."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    PatternProcessor,
    TumblingWindows,
    interval_join,
    match_recognize,
    window,
)
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


def test_a_column_that_nobody_reads_passes_through_with_its_type(spark: SparkSession, tmp_path: Path) -> None:
    df = with_every_type(events(spark))
    types, values = types_of(df.schema), values_of(df.orderBy("ts").collect())
    stream = KeyedStream(df, "user", "ts")

    def of_stages(matches: DataFrame) -> DataFrame:
        return matches.selectExpr("inline(concat(a, b))")

    apart = timedelta(0)
    results = {
        "pattern": of_stages(CEP.pattern(stream, AB).matches),
        "window": window(stream, WINDOWS).process(
            lambda rows, _: rows.select(["ts", *COLUMNS]), df.select("ts", *COLUMNS).schema
        ),
        "match_recognize": match_recognize(
            df, "PARTITION BY user ORDER BY ts ALL ROWS PER MATCH PATTERN (A B)"
        ).matches,
        "join": interval_join(stream, stream, (apart, apart), how="left", prefix="r_").results,
    }
    for name, found in results.items():
        assert types_of(found.schema) == types, name
        assert values_of(found.orderBy("ts").collect()) == values, name

    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([PatternProcessor("ab", 1, AB).to_dict()]))
    rows = CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(rules)).output("matches")
    assert types_of(rows.schema["events"].dataType.elementType["event"].dataType) == types
    assert values_of([event["event"] for event in rows.collect()[0]["events"]]) == values

    pq.write_table(df.select("ts", "user", "kind").toArrow(), tmp_path / "events.parquet")
    streamed = with_every_type(spark.readStream.schema("ts TIMESTAMP, user STRING, kind STRING").parquet(str(tmp_path)))
    kept: list[Any] = []

    def keep(found: DataFrame, _: int) -> None:
        found = of_stages(found)
        assert types_of(found.schema) == types
        kept.extend(found.collect())

    CEP.pattern(KeyedStream(streamed, "user", "ts"), AB, key_groups=1).run(
        {"matches": keep}, checkpoint=str(tmp_path / "c")
    )
    assert values_of(kept) == values
