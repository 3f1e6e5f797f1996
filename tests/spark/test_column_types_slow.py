"""Slow: further cases of test_column_types.py."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    PatternProcessor,
    interval_join,
    match_recognize,
    window,
)
from tests.spark.test_column_types import AB, CHAR, COLUMNS, WINDOWS, events, types_of, values_of, with_every_type

pytestmark = pytest.mark.spark


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

    (tmp_path / "events").mkdir()
    pq.write_table(events(spark).toArrow(), tmp_path / "events" / "1.parquet")
    arriving = spark.readStream.schema("ts TIMESTAMP, user STRING, kind STRING").parquet(str(tmp_path / "events"))
    kept: list[Any] = []

    def keep(found: DataFrame, _: int) -> None:
        assert types_of(of_stages(found).schema) == types
        kept.extend(of_stages(found).orderBy("ts").collect())

    pattern = CEP.pattern(KeyedStream(with_every_type(arriving), "user", "ts"), AB, key_groups=1)
    pattern.run({"matches": keep}, checkpoint=str(tmp_path / "checkpoint"))
    assert values_of(kept) == values


def test_a_text_means_the_same_for_char_whoever_evaluates_it(spark: SparkSession) -> None:
    df = spark.sql("SELECT timestamp_seconds(id) AS ts, 'u' AS user, 'x  ' AS c, struct('x  ' AS c) AS s FROM range(2)")
    df = df.withColumns({"c": F.col("c").alias("c", metadata=CHAR)})
    assert df.where("c = 'x'").count() == 2  # Spark pads the literal
    stream = KeyedStream(df, "user", "ts")
    for literal, expected in (("x", 0), ("x  ", 2)):
        condition = f"c = '{literal}'"
        pattern = Pattern.begin("a").where(condition)
        python = pattern.where(lambda rows: [True] * rows.num_rows)
        assert CEP.pattern(stream, pattern).matches.count() == expected
        assert CEP.pattern(stream, python).matches.count() == expected
        assert (
            match_recognize(df, f"ORDER BY ts MEASURES A.ts AS t PATTERN (A) DEFINE A AS {condition}").matches.count()
            == expected
        )
        (row,) = window(stream, WINDOWS).aggregate(f"count_if({condition}) AS n").collect()
        assert row.n == expected
