"""Slow: further cases of test_outer_measures.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism import CEP, KeyedStream, Pattern, match_recognize, sql
from asterism.spark.session.settings import settings
from tests.spark.streams import DISORDER, Collect, events, ids, random_cuts, stream_of, write_file, write_files
from tests.spark.test_computed_columns import VALUES, of_stage
from tests.spark.test_outer_measures import ORDER, TRAVEL, of_session, rows, same_as_spark

pytestmark = pytest.mark.spark
__all__ = ["of_session", "rows"]


def test_impossible_travel_as_a_statement_over_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    places = {"Berlin": (52.5, 13.4), "Paris": (48.9, 2.4), "Tokyo": (35.7, 139.7)}
    logins = [
        ("ann", 0, "Berlin"), ("bob", 10, "Paris"), ("ann", 3600, "BERLIN"), ("bob", 4000, "Tokyo"), ("ann", 7200, "Paris"),
        ("ann", 7800, "Berlin"), ("bob", 90_000, "Paris"), ("eve", 90_001, "Paris"),
    ]  # fmt: skip
    columns = {
        "user": [user for user, _, _ in logins],
        "ts": pa.array([second * 1_000_000 for _, second, _ in logins], pa.timestamp("us", "UTC")),
        "city": [city for _, _, city in logins],
        "lat": [places[city.title()][0] for _, _, city in logins],
        "lon": [places[city.title()][1] for _, _, city in logins],
    }
    table = pa.table(columns)
    expected = sql(TRAVEL, spark, logins=spark.createDataFrame(table)).toArrow().to_pylist()
    assert sorted((row["user"], row["last_city"], row["km"]) for row in expected) == [
        ("ann", "Berlin", 871.0),
        ("bob", "Tokyo", 9705.0),
    ]
    for number in range(2):
        write_file(table.slice(4 * number, 4), tmp_path / "in", number)
    stream = spark.readStream.schema(spark.createDataFrame(table).schema).parquet(str(tmp_path / "in"))
    found, key = Collect(), lambda row: sorted(row.items())
    df = sql(TRAVEL, spark, key_groups=2, drain=True, logins=stream)
    asterism.run(df, found, checkpoint=str(tmp_path / "checkpoint"))
    assert sorted(found.rows, key=key) == sorted(expected, key=key)


def test_values_in_a_clause_are_those_of_spark(spark: SparkSession, rows: DataFrame) -> None:
    """Of every expression as an argument of navigation, in which each row is a match."""
    named = [f"LAST({of_stage(text, 'A')}) AS v{number}" for number, text in enumerate(VALUES)]
    with settings(spark, {"spark.sql.timeType.enabled": "true"}):
        found = match_recognize(rows, f"{ORDER} MEASURES A.n AS n, {', '.join(named)} PATTERN (A)").matches
        same_as_spark(
            found, rows.selectExpr("user", "n", *(f"({text}) AS v{number}" for number, text in enumerate(VALUES)))
        )


def test_a_clause_continues_and_is_the_input_of_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """Both have columns that Spark computes, and outer parts of measures; the pattern also a key and timed-out matches."""
    table = events(240, users=3)
    clause = """
        PARTITION BY concat(user, threshold) AS who ORDER BY ts
        MEASURES B.ts AS at, py_twice(FIRST(A.id)) + threshold AS first, B.id AS last
        PATTERN (A+ B) WITHIN INTERVAL '6' SECONDS
        DEFINE A AS kind COLLATE UTF8_LCASE = 'VIEW', B AS py_twice(id) > PREV(py_twice(id)) + threshold AND kind <> 'view'
    """
    pattern = Pattern.begin("a").where("py_twice(last) % 4 = 0").next("b").where("py_twice(last) % 4 = 2")
    pattern = pattern.within(timedelta(seconds=5))
    measures = {
        "matches": ["py_twice(a.first) AS a", "SUM(py_twice(b.first)) AS b"],
        "timed_out": ["py_twice(COUNT(a.*)) AS n", "LAST(py_twice(a.last)) AS last"],
    }

    def found_in(df: DataFrame) -> Any:
        of_clause = match_recognize(df, clause, max_out_of_orderness=DISORDER, key_groups=2).matches
        stream = KeyedStream(of_clause, "substr(who, 1, sql_next(1)) AS k", "at")
        return CEP.pattern(stream, pattern, key_groups=2)

    sinks = {"matches": Collect(), "timed_out": Collect()}
    for number in range(2):
        write_files(table.slice(number * 120, 120), tmp_path / "in", [], first=number)
        found_in(stream_of(spark, tmp_path / "in").df).run(
            sinks, checkpoint=str(tmp_path / "checkpoint"), select=measures, drain=number == 1
        )
    expected = found_in(spark.createDataFrame(table))
    for output, sink in sinks.items():
        assert ids(sink.rows) == ids(expected.select(*measures[output], output=output).toArrow().to_pylist())
        assert sink.rows


def test_outer_parts_in_several_sinks_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """The outer parts are no part of the operator: others continue its checkpoint."""
    table = events(200, users=3)
    pattern = Pattern.begin("a").where("kind = 'view'").next("b").where("sin(price) > 0").within(timedelta(seconds=9))
    cut = random_cuts(table.num_rows, 2, seed=3)[0]

    def measures(factor: int) -> dict[str, list[str]]:
        measure = f"hex(FIRST(a.id) * {factor} + threshold) AS h"
        return {"matches": [measure, "a.id AS id"], "timed_out": [f"py_twice({factor} * a.id) AS t"]}

    expected = CEP.pattern(KeyedStream(spark.createDataFrame(table), "user", "ts"), pattern)
    sinks = {"matches": Collect(), "timed_out": Collect()}
    for number, factor in enumerate((2, 5)):
        write_files(table.slice(number * cut, cut if number == 0 else None), tmp_path / "in", [], first=number)
        CEP.pattern(stream_of(spark, tmp_path / "in"), pattern, key_groups=2).run(
            sinks, checkpoint=str(tmp_path / "checkpoint"), select=measures(factor), drain=number == 1
        )
    of_table: dict[str, list[set[Any]]] = {}
    for output, names in {"matches": "h", "timed_out": "t"}.items():
        by_factor = [expected.select(*measures(factor)[output], output=output).collect() for factor in (2, 5)]
        of_table[output] = [{row[names] for row in result} for result in by_factor]
        found = {row[names] for row in sinks[output].rows}
        assert found <= of_table[output][0] | of_table[output][1]
        assert len(sinks[output].rows) == len(by_factor[0]) > 0
    assert {*sinks["matches"].rows[0]} == {"user", "h", "id"}
