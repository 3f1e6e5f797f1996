"""The same text means the same to Spark, in patterns, measures, clauses, windows, rules, tests without Spark and traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    PatternProcessor,
    TumblingWindows,
    match_recognize,
    window,
)
from asterism.errors import ExpressionError
from asterism.testing import match
from asterism.trace.report import trace

pytestmark = pytest.mark.spark

ROWS = """
    SELECT * FROM VALUES
        (1L, '/shop/cart', 40.5D, -3.7D, 7, array('a', 'b'), '{"kind": "buy", "n": 3}', TIMESTAMP '2024-03-31 01:30:00', 'Ann'),
        (2L, '', -0.0D, 180D, -2147483648, array(), '{}', TIMESTAMP '1999-12-31 23:59:59.999999', ''),
        (3L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4L, '/a/ß/𝄞', double('NaN'), double('Infinity'), 0, array('b', NULL), '{"kind": null}', TIMESTAMP '2024-02-29 12:00:00',
            'ANN'),
        (5L, 'cart,shop;cart', 1e308D, -1e-308D, 2147483647, array('x'), 'no json', TIMESTAMP '0001-01-01 00:00:00',
            'añn')
    AS t(id, path, lat, lon, n, tags, js, at, name)
"""
OF_ALL = [
    "n % 2 = 1",
    "lower(name) = 'ann'",
    "path LIKE '/%/%'",
    "n BETWEEN -5 AND 10 AND path IS NOT NULL",
    "CASE WHEN n = 0 THEN FALSE ELSE 10 / n > 1 END",
    "n <> 0 AND 100 / n > 10",
    "coalesce(length(path), 0) > 3",
    "sin(radians(lat)) > 0",
    "get(split(path, '/'), 1) = 'shop'",
    "size(split(path, '[,;]')) = 3",
    "regexp_extract(path, '^/([a-z]+)', 1) IN ('shop', 'a')",
    "md5(coalesce(path, '')) LIKE 'd%'",
    "array_contains(tags, 'b')",
    "date_format(at, 'yyyy-MM') = '2024-03'",
    "get_json_object(js, '$.kind') = 'buy'",
    "try_add(n, 1) IS NULL",
    "concat_ws('-', name, path) RLIKE 'n+-/'",
    "levenshtein(lower(name), 'ann') <= 1",
    "exists(tags, tag -> tag = 'b')",
    "(n >>> 1) = 3",
]
"""Conditions that every evaluator knows."""


def upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def part_of_tags(tags: list[str] | None, at: int | None) -> str | None:
    return None if not tags or at is None else tags[at % len(tags)]


UDFS = {"upper_of_session": (upper, "string"), "tag_of_session": (part_of_tags, "string")}
"""Functions in Python: the session has registered them, and where Spark does not evaluate expressions, they are handed over."""
OF_UDFS = [
    "upper_of_session(name) = 'ANN'",
    "tag_of_session(tags, n) = 'b' OR tag_of_session(tags, n) = 'x'",
    "lower(upper_of_session(path)) LIKE '%shop%'",
]
"""Conditions that every evaluator knows that has these functions."""
OF_SPARK = [
    "exists(tags, t -> t = lower(name) OR t = 'x')",
    "lower(name) COLLATE UNICODE_CI = 'AÑN'",
    "try_variant_get(parse_json(CASE WHEN js LIKE '{%' THEN js END), '$.n', 'int') = 3",
    "doubled_here(n) = 14",
    "n = limit_of_session",
    "map_contains_key(map('a', 1, 'b', 2), try_element_at(tags, 1))",
]
"""Conditions that only Spark knows, with functions and a variable of the session."""
ALL, KNOWN = [*OF_ALL, *OF_UDFS, *OF_SPARK], len(OF_ALL) + len(OF_UDFS)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> Iterator[DataFrame]:
    """Each row once for each condition, with the number of the condition."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Madrid")
        for name, (function, kind) in UDFS.items():
            spark.udf.register(name, function, kind)
        spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION doubled_here(x INT) RETURNS BIGINT RETURN 2L * x")
        spark.sql("DECLARE OR REPLACE VARIABLE limit_of_session INT DEFAULT 7")
        numbers = spark.range(len(ALL)).withColumnRenamed("id", "c")
        yield spark.sql(ROWS).crossJoin(numbers).withColumn("ts", F.col("c") * 1000 + F.col("id")).localCheckpoint()
    finally:
        for statement in (
            *(f"FUNCTION IF EXISTS {name}" for name in UDFS),
            "FUNCTION IF EXISTS doubled_here",
            "VARIABLE IF EXISTS limit_of_session",
        ):
            spark.sql(f"DROP TEMPORARY {statement}")
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@cache
def expected(spark: SparkSession) -> dict[int, list[int]]:
    """The ids of the rows for which Spark finds each condition true."""
    texts = ALL
    values = spark.sql(ROWS).select("id", *(F.expr(text).alias(f"c{c}") for c, text in enumerate(texts))).collect()
    return {c: sorted(row.id for row in values if row[f"c{c}"]) for c in range(len(texts))}


def by_condition(pairs: Any, count: int) -> dict[int, list[int]]:
    seen: dict[int, list[int]] = {c: [] for c in range(count)}
    for c, number in pairs:
        seen[c].append(number)
    return {c: sorted(ids) for c, ids in seen.items()}


def whole(spark: SparkSession) -> dict[int, list[int]]:
    return expected(spark)


def known(spark: SparkSession) -> dict[int, list[int]]:
    return {c: ids for c, ids in expected(spark).items() if c < KNOWN}


def pattern(texts: list[str]) -> Pattern:
    first, *others = (f"c = {c} AND ({text})" for c, text in enumerate(texts))
    made = Pattern.begin("a").where(first)
    for other in others:
        made = made.or_(other)
    return made


def test_each_condition_distinguishes_rows(spark: SparkSession, events: DataFrame) -> None:
    assert all(0 < len(ids) < 5 for ids in whole(spark).values()), whole(spark)


def test_patterns(spark: SparkSession, events: DataFrame) -> None:
    rows = CEP.pattern(KeyedStream(events, key="id", time="ts"), pattern(ALL)).select("a.c AS c", "a.id AS i")
    assert by_condition(((row.c, row.i) for row in rows.collect()), len(ALL)) == whole(spark)


def test_measures(spark: SparkSession, events: DataFrame) -> None:
    """The argument of an aggregate over the single event of a match."""
    texts = ALL
    measures = [f"LAST({of_stage(text)}) AS c{c}" for c, text in enumerate(texts)]
    stream = KeyedStream(events.where("c = 0"), key="id", time="ts")
    rows = CEP.pattern(stream, Pattern.begin("a")).select("a.id AS i", *measures).collect()
    pairs = [(c, row.i) for row in rows for c in range(len(texts)) if row[f"c{c}"]]
    assert by_condition(pairs, len(texts)) == whole(spark)


def of_stage(text: str) -> str:
    """The condition over columns of stage a."""
    words = re.split(r"('[^']*'|\b\w+\b)", text)
    return "".join(f"a.{word}" if word in ("path", "lat", "n", "tags", "js", "at", "name") else word for word in words)


def test_clauses(spark: SparkSession, events: DataFrame) -> None:
    texts = ALL
    names = [f"v{c}" for c in range(len(texts))]
    defined = ", ".join(
        f"{name} AS c = {c} AND ({text})" for c, (name, text) in enumerate(zip(names, texts, strict=True))
    )
    clause = (
        f"PARTITION BY id ORDER BY ts MEASURES c AS found, id AS i AFTER MATCH SKIP TO NEXT ROW PATTERN ({' | '.join(names)})"
        f" DEFINE {defined}"
    )
    rows = match_recognize(events, clause).matches.select("found", "i").collect()
    assert by_condition(((row.found, row.i) for row in rows), len(texts)) == whole(spark)


def test_windows(spark: SparkSession, events: DataFrame) -> None:
    texts = ALL
    stream = KeyedStream(events.where("c = 0"), key="id", time="ts")
    measures = [f"MAX(CASE WHEN {text} THEN 1 ELSE 0 END) AS c{c}" for c, text in enumerate(texts)]
    rows = window(stream, TumblingWindows.of(timedelta(days=1))).aggregate(*measures).collect()
    pairs = [(c, row.id) for row in rows for c in range(len(texts)) if row[f"c{c}"]]
    assert by_condition(pairs, len(texts)) == whole(spark)


def test_rules(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    rules = [
        PatternProcessor(f"{c}", 1, Pattern.begin("a").where(f"c = {c} AND ({text})"), select=("a.id AS i",)).to_dict()
        for c, text in enumerate(ALL[:KNOWN])
    ]
    (tmp_path / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    stream = KeyedStream(events, key="id", time="ts")
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    rows = CEP.pattern_processors(stream, factory, udfs=UDFS).output("matches")
    pairs = ((int(row.processor_id), int(row.measures["i"])) for row in rows.collect())
    assert by_condition(pairs, KNOWN) == known(spark)


def table_of(events: DataFrame) -> pa.Table:
    return events.where(f"c < {KNOWN}").orderBy("ts").toArrow()


def test_the_kit_and_the_trace(spark: SparkSession, events: DataFrame) -> None:
    table = table_of(events)
    harness = match(pattern(ALL[:KNOWN]), table, time="ts", select=("a.c AS c", "a.id AS i"), udfs=UDFS)
    assert by_condition(((row["c"], row["i"]) for row in harness.selected), KNOWN) == known(spark)
    traced = trace(pattern(ALL[:KNOWN]), table, time="ts", udfs=UDFS)
    assert len(traced.matches) == len(harness.selected)


@pytest.mark.parametrize("text", ["upper_of_session(name) = 'ANN'", "doubled_here(n) = 14"])
def test_what_only_spark_knows_is_refused_elsewhere_with_the_way_out(
    spark: SparkSession, events: DataFrame, text: str
) -> None:
    with pytest.raises(ExpressionError) as refused:
        match(pattern([text]), table_of(events), time="ts")
    assert refused.value.hint
