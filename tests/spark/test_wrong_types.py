"""What Spark's side of the library says to values of wrong types: errors of Asterism's, before a query is planned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor, Semantics
from asterism.errors import AsterismError, PatternWarning

pytestmark = pytest.mark.spark

WRONG: list[Any] = [None, True, 5, -1, 2.5, "text", b"bytes", [5], {"a": 5}, timedelta(1), object(), PatternProcessor]


def keyed(spark: SparkSession, **options: Any) -> KeyedStream:
    df = spark.createDataFrame([], "user STRING, ts TIMESTAMP, kind STRING")
    return KeyedStream(**{"df": df, "key": "user", "time": "ts"} | options)


def found(spark: SparkSession) -> Any:
    return CEP.pattern(keyed(spark), Pattern.begin("a").where("kind = 'a'"))


CALLS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "KeyedStream": (keyed, ["df", "key", "time", "max_out_of_orderness", "idle_after"]),
    "CEP.pattern": (
        lambda spark, **wrong: CEP.pattern(**{"stream": keyed(spark), "pattern": Pattern.begin("a")} | wrong),
        ["stream", "pattern", "semantics", "key_groups", "pages", "drain", "max_partial_matches", "on_limit"],
    ),
    "CEP.pattern_processors": (
        lambda spark, **wrong: CEP.pattern_processors(
            **{"stream": keyed(spark), "factory": FilePatternProcessorDiscovererFactory("rules.json")} | wrong
        ),
        ["stream", "factory", "store", "functions", "on_error", "semantics", "key_groups", "drain"],
    ),
    "select": (
        lambda spark, measure="COUNT(a.*) AS n", **wrong: found(spark).select(measure, **wrong),
        ["measure", "output"],
    ),
    "process": (
        lambda spark, **wrong: found(spark).process(**{"function": len, "schema": "n BIGINT"} | wrong),
        ["function", "schema", "output"],
    ),
    "run": (
        lambda spark, **wrong: found(spark).run(**{"sinks": {}} | wrong),
        ["sinks", "checkpoint", "select", "trigger", "name"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_give_errors_of_asterism(spark: SparkSession, name: str) -> None:
    call, parameters = CALLS[name]
    raw = []
    for parameter in parameters:
        for value in WRONG:
            try:
                call(spark, **{parameter: value})
            except AsterismError:
                pass
            except Exception as error:
                raw.append(f"{parameter}={value!r:.60}: {type(error).__name__}: {error!s:.80}")
    assert raw == []


def test_a_surprise_is_told_where_the_query_is_described(spark: SparkSession) -> None:
    """Once, at the user's line; results that are made of it, and workers, are quiet."""
    pattern = Pattern.begin("a").next("b").where("kind > LAST(b.kind)").times(2)
    with pytest.warns(PatternWarning, match='stage "b" can take no event') as record:
        stream = CEP.pattern(keyed(spark), pattern, semantics=Semantics.DEFAULT)
    assert [warning.filename for warning in record.list] == [__file__]
    assert stream.matches.collect() == []
    assert stream.select("COUNT(a.*) AS n").collect() == []
