"""Spark and the embedded host give the same rows, of the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, sql
from asterism.columns.schemas import small_type
from tests.embedded.cases import CASES, CLAUSES, JOINS, QUOTES, TRADES, WINDOWS
from tests.embedded.rule_cases import EVENTS, RULE_CASES, compared
from tests.embedded.statement_cases import STATEMENTS, rows_of
from tests.matching.pattern_strategies import cases
from tests.matching.test_pattern_property import SCHEMA, SELECT

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")
AT_ONCE = (
    "pairs",
    "matches",
    "all of timed_out",
    "measures",
    "late",
    "dates",
    "a key that is an expression",
    "equal times",
)
"""The cases of the fast test; the others are in the slow one."""


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def types_of(table: pa.Table) -> dict[str, Any]:
    return {field.name: str(small_type(field.type)).replace("element", "item") for field in table.schema}


def check(spark: SparkSession, name: str) -> None:
    case = CASES[name]
    events = spark.createDataFrame(case.table, verifySchema=False)
    on_spark = case.rows(case.results(events)).toArrow()
    embedded = case.rows(case.results(case.table))
    assert in_order(embedded) == in_order(on_spark)
    assert types_of(embedded) == types_of(on_spark)


@pytest.mark.parametrize("name", AT_ONCE)
def test_cases(spark: SparkSession, name: str) -> None:
    check(spark, name)


@pytest.mark.parametrize("of_96_bits", [False, True])
def test_timestamps_of_parquet(spark: SparkSession, tmp_path: Path, *, of_96_bits: bool) -> None:
    """With and without a time zone, and as Spark writes them by default: the types are those in Spark."""
    micros = pa.array([1_000_001, 2_000_000])
    columns = {
        f"{unit} {zone}": micros.cast(pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone), safe=False)
        for unit in ("us", "ms")
        for zone in (None, "UTC")
    }
    path = str(tmp_path / "events.parquet")
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=of_96_bits)
    in_spark = KeyedStream(spark.read.parquet(path), time="us UTC").df.toArrow()
    here = KeyedStream(path, time="us UTC").df
    assert here.select(list(columns)).equals(in_spark)


@pytest.mark.parametrize("name", ["all rows", "an expression as a key"])
def test_clauses(spark: SparkSession, name: str) -> None:
    check_clause(spark, name)


def check_clause(spark: SparkSession, name: str) -> None:
    on_spark = CLAUSES[name].matches(spark.createDataFrame(TRADES)).toArrow()
    embedded = CLAUSES[name].matches(TRADES)
    assert in_order(embedded) == in_order(on_spark)
    assert types_of(embedded) == types_of(on_spark)


@pytest.mark.parametrize("name", ["sessions", "a window function"])
def test_windows(spark: SparkSession, name: str) -> None:
    check_window(spark, name)


def check_window(spark: SparkSession, name: str) -> None:
    case = WINDOWS[name]
    on_spark = case.rows(case.results(spark.createDataFrame(TRADES))).toArrow()
    embedded = case.rows(case.results(TRADES))
    assert in_order(embedded) == in_order(on_spark)
    assert types_of(embedded) == types_of(on_spark)


@pytest.mark.parametrize("name", ["left, with a condition", "as of"])
def test_joins(spark: SparkSession, name: str) -> None:
    check_join(spark, name)


def check_join(spark: SparkSession, name: str) -> None:
    on_spark = JOINS[name](spark.createDataFrame(TRADES), spark.createDataFrame(QUOTES)).toArrow()
    embedded = JOINS[name](TRADES, QUOTES)
    assert in_order(embedded) == in_order(on_spark)
    assert types_of(embedded) == types_of(on_spark)


def check_rules(spark: SparkSession, name: str) -> None:
    case = RULE_CASES[name]
    on_spark = case.rows(spark.createDataFrame(case.table, verifySchema=False)).toArrow()
    embedded = case.rows(case.table)
    assert in_order(embedded) == in_order(on_spark)
    assert types_of(embedded) == types_of(on_spark)


def test_rules(spark: SparkSession) -> None:
    check_rules(spark, "errors")


def test_backtests(spark: SparkSession) -> None:
    on_spark, embedded = compared(spark.createDataFrame(EVENTS)), compared(EVENTS)
    assert embedded == on_spark
    assert in_order(embedded.matches) == in_order(on_spark.matches.toArrow())
    assert types_of(embedded.matches) == types_of(on_spark.matches.toArrow())


def check_statement(spark: SparkSession, name: str) -> None:
    statement, _ = STATEMENTS[name]
    on_spark = sql(statement, spark, trades=spark.createDataFrame(TRADES)).toArrow()
    embedded = sql(statement, trades=TRADES)
    assert embedded.column_names == on_spark.column_names
    assert rows_of(embedded) == rows_of(on_spark)


@pytest.mark.parametrize("name", ["a subquery, and an aggregate", "a subquery of a clause"])
def test_statements(spark: SparkSession, name: str) -> None:
    check_statement(spark, name)


def compare(spark: SparkSession, examples: int) -> None:
    """Random patterns over random tables, three in each example, of which the first is the simplest."""

    @settings(max_examples=examples, deadline=None, phases=[Phase.generate])
    @given(case=st.lists(cases(), min_size=3, max_size=3))
    def run(case: list[Any]) -> None:
        for pattern, rows in case:
            table = pa.Table.from_pylist(rows, SCHEMA)
            embedded, on_spark = (
                CEP.pattern(KeyedStream(events, key="key", time="ts"), pattern, max_partial_matches=None)
                for events in (table, spark.createDataFrame(table))
            )
            for output in ("matches", "timed_out"):
                expected = getattr(on_spark, output).toArrow()
                assert in_order(getattr(embedded, output)) == in_order(expected)
            assert in_order(embedded.select(*SELECT)) == in_order(on_spark.select(*SELECT).toArrow())

    run()


def test_random_patterns(spark: SparkSession) -> None:
    compare(spark, 2)
