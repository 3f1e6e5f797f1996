"""What Spark's side of the library says to values of wrong types: errors of Asterism's, before a query is planned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from asterism import (
    CEP,
    BroadcastStream,
    CountTrigger,
    DataStream,
    FilePatternProcessorDiscovererFactory,
    Input,
    KeyedStream,
    Output,
    Pattern,
    PatternProcessor,
    SavepointWriter,
    Semantics,
    Side,
    StreamOperator,
    TumblingWindows,
    as_of_join,
    bootstrap_savepoint,
    change_checkpoint,
    change_savepoint,
    connect,
    create_savepoint,
    diff_savepoints,
    forget_keys,
    interval_join,
    match_recognize,
    multi_broadcast_join,
    multi_join,
    plan_savepoint,
    read_savepoint,
    read_state,
    remove_former_state,
    rescale_checkpoint,
    restore_savepoint,
    run,
    sql,
    undo_change,
    window,
    window_join,
)
from asterism.errors import AsterismError, PatternWarning

pytestmark = pytest.mark.spark

WRONG: list[Any] = [None, True, 5, -1, 2.5, "text", b"bytes", [5], {"a": 5}, timedelta(1), object(), PatternProcessor]


@cache
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], "user STRING, ts TIMESTAMP, kind STRING")


def keyed(spark: SparkSession, **options: Any) -> KeyedStream:
    return KeyedStream(**{"df": frame(spark), "key": "user", "time": "ts"} | options)


@cache
def events(spark: SparkSession) -> KeyedStream:
    """The same for all calls in which another argument is wrong: to make one asks Spark for its columns."""
    return keyed(spark)


@cache
def found(spark: SparkSession) -> Any:
    return CEP.pattern(events(spark), Pattern.begin("a").where("kind = 'a'"))


class Kinds(StreamOperator):
    """Gives the kinds."""

    events = Input("user STRING, kind STRING")
    kinds = Output("kind STRING")

    @events.process_element
    def event(self, event: Any, ctx: Any) -> None:
        self.kinds.collect(kind=event.kind)


def windowed(spark: SparkSession, **options: Any) -> Any:
    return window(**{"stream": events(spark), "windows": TumblingWindows.of(timedelta(seconds=1))} | options)


def connected(spark: SparkSession, **options: Any) -> Any:
    return connect(**{"operator": Kinds(), "inputs": {"events": events(spark)}} | options)


def side(spark: SparkSession, **options: Any) -> Side:
    return Side(**{"df": frame(spark).withColumnRenamed("kind", "sort"), "on": "user", "select": ["sort"]} | options)


def sides(spark: SparkSession, **options: Any) -> dict[str, Any]:
    return {"left": events(spark), "right": events(spark), "prefix": "other_"} | options


def joined(spark: SparkSession, **wrong: Any) -> Any:
    return interval_join(**{"between": (timedelta(0), timedelta(1))} | sides(spark) | wrong)


def many_joined(spark: SparkSession, **wrong: Any) -> Any:
    streams = {"logins": events(spark), "clicks": events(spark)}
    between = {("logins", "clicks"): (timedelta(0), timedelta(1))}
    return multi_join(**{"inputs": streams, "between": between, "prefix": {"clicks": "other_"}} | wrong)


@cache
def plain(make: Callable[[SparkSession], Any], spark: SparkSession) -> Any:
    """What *make* makes of right arguments."""
    return make(spark)


RISE = "ORDER BY ts MEASURES A.ts AS t PATTERN (A B+) DEFINE B AS kind > PREV(kind)"
CALLS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "KeyedStream": (keyed, ["df", "key", "time", "max_out_of_orderness", "idle_after"]),
    "CEP.pattern": (
        lambda spark, **wrong: CEP.pattern(**{"stream": events(spark), "pattern": Pattern.begin("a")} | wrong),
        ["stream", "pattern", "semantics", "key_groups", "pages", "drain", "max_partial_matches", "on_limit"],
    ),
    "CEP.pattern_processors": (
        lambda spark, **wrong: CEP.pattern_processors(
            **{"stream": events(spark), "factory": FilePatternProcessorDiscovererFactory("rules.json")} | wrong
        ),
        [
            "stream",
            "factory",
            "store",
            "functions",
            "conditions",
            "lookups",
            "on_error",
            "semantics",
            "key_groups",
            "drain",
        ],
    ),
    "CEP.backtest": (
        lambda spark, **wrong: CEP.backtest(
            **{"stream": KeyedStream(spark.readStream.format("rate").load()), "rules": []}
            | wrong  # a stream is refused last
        ),
        [
            "rules",
            "against",
            "functions",
            "conditions",
            "lookups",
            "semantics",
            "key_groups",
            "max_partial_matches",
            "examples",
        ],
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
    "match_recognize": (
        lambda spark, **wrong: match_recognize(**{"df": frame(spark), "clause": RISE} | wrong),
        ["df", "clause", "max_out_of_orderness", "idle_after", "key_groups", "pages", "drain", "max_rows", "on_limit"],
    ),
    "match_recognize, run": (
        lambda spark, **wrong: match_recognize(frame(spark), RISE).run(**{"sinks": {}} | wrong),
        ["sinks", "checkpoint", "drain", "trigger", "name", "from_savepoint"],
    ),
    "sql": (
        lambda spark, **wrong: sql(
            **{"text": f"SELECT * FROM rows MATCH_RECOGNIZE ({RISE})", "spark": spark, "rows": frame(spark)} | wrong
        ),
        ["rows", "max_out_of_orderness", "key_groups", "drain", "max_rows", "on_limit"],
    ),
    "asterism.run": (
        lambda spark, **wrong: run(**{"df": frame(spark), "sink": []} | wrong),
        ["df", "checkpoint", "drain", "trigger", "name"],
    ),
    "DataStream": (
        lambda spark, **wrong: DataStream(**{"df": frame(spark), "time": "ts"} | wrong),
        ["df", "time", "max_out_of_orderness", "idle_after", "time_unit"],
    ),
    "BroadcastStream": (
        lambda spark, **wrong: BroadcastStream(**{"df": frame(spark), "time": "ts"} | wrong),
        ["df", "time", "max_out_of_orderness", "idle_after", "time_unit"],
    ),
    "window": (
        lambda spark, **wrong: windowed(spark, trigger=CountTrigger.at_least(2), **wrong),
        [
            "stream",
            "windows",
            "allowed_lateness",
            "evictor",
            "in_order",
            "key_groups",
            "pages",
            "drain",
            "closing",
            "on_time",
            "session_ids",
        ],
    ),
    "window, trigger": (windowed, ["trigger"]),
    "window.aggregate": (lambda spark, measure: plain(windowed, spark).aggregate(measure), ["measure"]),
    "window.process": (
        lambda spark, **wrong: plain(windowed, spark).process(**{"function": len, "schema": "n BIGINT"} | wrong),
        ["function", "schema", "aggregate", "fold"],
    ),
    "window.fold": (lambda spark, fold: plain(windowed, spark).fold(fold), ["fold"]),
    "window.reduce": (lambda spark, function: plain(windowed, spark).reduce(function), ["function"]),
    "window.run": (
        lambda spark, **wrong: plain(windowed, spark).run(**{"sinks": {}} | wrong),
        [
            "sinks",
            "aggregate",
            "process",
            "schema",
            "reduce",
            "fold",
            "checkpoint",
            "drain",
            "trigger",
            "name",
            "from_savepoint",
        ],
    ),
    "connect": (connected, ["operator", "inputs", "key_groups", "pages", "drain", "co_partitioned", "events"]),
    "connect.output": (lambda spark, name: plain(connected, spark).output(name), ["name"]),
    "connect.run": (
        lambda spark, **wrong: plain(connected, spark).run(**{"sinks": {}} | wrong),
        ["sinks", "checkpoint", "drain", "trigger", "name", "from_savepoint"],
    ),
    "interval_join": (
        joined,
        [
            "left",
            "right",
            "between",
            "lower_exclusive",
            "upper_exclusive",
            "how",
            "on",
            "prefix",
            "key_groups",
            "drain",
        ],
    ),
    "as_of_join": (
        lambda spark, **wrong: as_of_join(**sides(spark) | wrong),
        ["left", "right", "tolerance", "how", "on", "prefix", "key_groups", "drain"],
    ),
    "window_join": (
        lambda spark, **wrong: window_join(**{"windows": TumblingWindows.of(timedelta(1))} | sides(spark) | wrong),
        ["left", "right", "windows", "how", "on", "prefix", "key_groups", "drain"],
    ),
    "multi_join": (
        many_joined,
        ["inputs", "between", "how", "on", "prefix", "max_rows", "key_groups", "drain"],
    ),
    "multi_join.late": (lambda spark, input: plain(many_joined, spark).late(input), ["input"]),
    "interval_join.run": (
        lambda spark, **wrong: plain(joined, spark).run(**{"sinks": {}} | wrong),
        ["sinks", "checkpoint", "drain", "trigger", "name", "from_savepoint"],
    ),
    "read_state": (
        lambda spark, **wrong: read_state(**{"spark": spark, "checkpoint": "there/is/none"} | wrong),
        ["checkpoint", "operator", "operator_id", "batch_id"],
    ),
    "create_savepoint": (
        lambda spark, **wrong: create_savepoint(
            **{"spark": spark, "checkpoint": "there/is", "target": "/none"} | wrong
        ),
        ["checkpoint", "target", "store"],
    ),
    "restore_savepoint": (
        lambda spark, **wrong: restore_savepoint(
            **{"spark": spark, "savepoint": "there/is", "checkpoint": "/none", "tasks": 1} | wrong
        ),
        ["savepoint", "checkpoint", "key_groups", "tasks", "store"],
    ),
    "plan_savepoint": (
        lambda spark, **wrong: plan_savepoint(
            **{"spark": spark, "savepoint": "none", "definition": Pattern.begin("a")} | wrong
        ),
        ["savepoint", "renamed", "measures"],
    ),
    "change_checkpoint": (
        lambda spark, **wrong: change_checkpoint(
            **{"spark": spark, "checkpoint": "there/is/none", "definition": Pattern.begin("a")} | wrong
        ),
        ["checkpoint"],
    ),
    "change_savepoint": (
        lambda spark, **wrong: change_savepoint(
            **{"spark": spark, "savepoint": "none", "target": "/none", "definition": Pattern.begin("a")} | wrong
        ),
        ["savepoint", "target", "renamed", "measures", "allow_dropped"],
    ),
    "forget_keys": (
        lambda spark, **wrong: forget_keys(**{"spark": spark, "checkpoint": "there/is", "keys": [{"a": 1}]} | wrong),
        ["checkpoint"],
    ),
    "remove_former_state": (
        lambda spark, **wrong: remove_former_state(**{"spark": spark, "checkpoint": "there/is"} | wrong),
        ["checkpoint"],
    ),
    "bootstrap_savepoint": (
        lambda spark, **wrong: bootstrap_savepoint(
            **{"stream": found(spark), "history": spark.range(1), "target": "/none", "sinks": {"x": 1}, "until": None}
            | wrong
        ),
        ["stream", "history", "target", "sinks", "until"],
    ),
    "undo_change": (
        lambda spark, **wrong: undo_change(**{"spark": spark, "checkpoint": "there/is"} | wrong),
        ["checkpoint"],
    ),
    "SavepointWriter": (
        lambda spark, **wrong: SavepointWriter.from_existing_savepoint(**{"spark": spark, "savepoint": "none"} | wrong),
        ["savepoint"],
    ),
    "read_savepoint": (
        lambda spark, **wrong: read_savepoint(**{"spark": spark, "savepoint": "none"} | wrong),
        ["savepoint", "operator_id"],
    ),
    "diff_savepoints": (
        lambda spark, **wrong: diff_savepoints(**{"spark": spark, "before": "none", "after": "none"} | wrong),
        ["before", "after"],
    ),
    "rescale_checkpoint": (
        lambda spark, **wrong: rescale_checkpoint(
            **{"spark": spark, "checkpoint": "there/is/none", "tasks": 1} | wrong
        ),
        ["checkpoint", "tasks", "key_groups"],
    ),
    "Side": (side, ["df", "on", "how", "select", "prefix"]),
    "multi_broadcast_join": (
        lambda spark, **wrong: multi_broadcast_join(**{"probe": frame(spark), "sides": {"sorts": side(spark)}} | wrong),
        ["probe", "sides", "sorts"],
    ),
}


def test_wrong_types_give_errors_of_asterism(spark: SparkSession) -> None:
    raw = []
    for name, (call, parameters) in CALLS.items():
        for parameter in parameters:
            for value in WRONG:
                try:
                    call(spark, **{parameter: value})
                except AsterismError:
                    pass
                except Exception as error:
                    raw.append(f"{name}: {parameter}={value!r:.60}: {type(error).__name__}: {error!s:.80}")
    assert raw == []
    assert not any(Path(folder).exists() for folder in ("text", "there", "none"))


def test_a_column_is_no_option(spark: SparkSession) -> None:
    """It refuses to be compared: that is not asked of it."""
    column = col("kind")
    discovered = FilePatternProcessorDiscovererFactory("rules.json")
    calls: list[Callable[[], Any]] = [
        lambda: windowed(spark, in_order=column),
        lambda: connected(spark, co_partitioned=column),
        lambda: CEP.pattern(keyed(spark), Pattern.begin("a"), on_limit=column),
        lambda: CEP.pattern_processors(keyed(spark), discovered, on_limit=column),
        lambda: CEP.pattern_processors(keyed(spark), discovered, on_error=column),
        lambda: CEP.pattern_processors(keyed(spark), discovered, functions=column),
        lambda: CEP.pattern_processors(keyed(spark), discovered, conditions=column),
        lambda: CEP.pattern_processors(keyed(spark), discovered, lookups=column),
        lambda: match_recognize(frame(spark), RISE, on_limit=column),
        lambda: side(spark, how=column),
    ]
    for call in calls:
        with pytest.raises(AsterismError):
            call()


def test_a_surprise_is_told_where_the_query_is_described(spark: SparkSession) -> None:
    """Once, at the user's line; results that are made of it, and workers, are quiet."""
    pattern = Pattern.begin("a").next("b").where("kind > LAST(b.kind)").times(2)
    with pytest.warns(PatternWarning, match='stage "b" cannot take any event') as record:
        stream = CEP.pattern(keyed(spark), pattern, semantics=Semantics.DEFAULT)
    assert [warning.filename for warning in record.list] == [__file__]
    assert stream.matches.collect() == []
    assert stream.select("COUNT(a.*) AS n").collect() == []
