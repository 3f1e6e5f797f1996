"""Backtests on Spark: a bounded job, whose results are compared by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from asterism.columns.internal import internal
from asterism.columns.time import DAY
from asterism.errors import StreamDefinitionError
from asterism.rules.checking.backtest import ADDED, KEPT, MAX_EVENTS, REMOVED, BacktestMatch
from asterism.rules.matching.operator import DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, TIMED_OUT
from asterism.rules.publishing.lookup_watch import DefinedLookup
from asterism.rules.sets.set_store import SingleSetStore
from asterism.spark.host.column_types import arrow_schema
from asterism.spark.host.stateful import Use, unpacked
from asterism.spark.host.times import event_micros
from asterism.spark.rules.rules import bounded_results
from asterism.spark.session.settings import DEFAULT_KEY_GROUPS
from asterism.streams import backtests
from asterism.streams.backtests import ID, MIXED, PAIRED, SHARED, Backtest, CountedMatches, match_of
from asterism.streams.evidence import MAX_LABELLED, MAX_SPANS, Daily, LabelledEvents, Spans
from asterism.streams.keyed_stream import KeyedStream
from asterism.text.printable import quoted_name

_RUNS = "run STRING, id STRING, is_new BOOLEAN, pairing STRING"


def backtest(
    stream: KeyedStream,
    rules: Any,
    against: Any,
    options: RuleOptions,
    lookups: Sequence[DefinedLookup],
    *,
    key_groups: int | None,
    examples: int,
    label: str | None,
) -> Backtest:
    """See :meth:`asterism.CEP.backtest`."""
    if stream.df.isStreaming:
        raise StreamDefinitionError(
            "a backtest needs a table, and this is a stream", hint="spark.read instead of spark.readStream"
        )
    spark = stream.df.sparkSession
    use = Use(drain=True, key_groups=key_groups or DEFAULT_KEY_GROUPS)

    def run(
        operator: DynamicCepOperator, store: SingleSetStore, rows: Sequence[tuple[str, str, bool, str]]
    ) -> _SparkResults:
        # The results are read several times, and more partitions than key groups would be empty.
        results = bounded_results(stream, operator, store, use, partitions=use.key_groups)
        return _SparkResults(stream, operator, results, spark.createDataFrame(list(rows), _RUNS))

    schema = arrow_schema(spark, stream.df.schema, stream.time_unit)
    return backtests.backtest(schema, rules, against, options, lookups, run, examples=examples, label=label)


class _SparkResults:
    """The results of a backtest.

    :param results: the packed outputs of the operator
    :param runs: the rows of :class:`~asterism.streams.backtests.Runs`
    """

    def __init__(self, stream: KeyedStream, operator: DynamicCepOperator, results: DataFrame, runs: DataFrame) -> None:
        self._stream, self._results = stream, results
        self._outputs = {name: unpacked(results, name, schema) for name, schema in operator.output_schemas.items()}
        self.matches = _differences(self._outputs[MATCHES], runs)

    def history(self) -> tuple[int, int | None, int | None]:
        stream = self._stream
        if stream.time is None:
            return stream.df.count(), None, None
        time = event_micros(stream.df, stream.time, stream.time_unit)
        summary = stream.df.agg(F.count("*"), F.min(time), F.max(time)).first()
        assert summary is not None
        return summary[0], summary[1], summary[2]

    @contextmanager
    def computed(self) -> Iterator[None]:
        with _persisted(self._results), _persisted(self._outputs[MATCHES]):
            yield

    def counted_matches(self) -> Mapping[str, CountedMatches]:
        matches = self._outputs[MATCHES]
        most: dict[str, int] = {}
        if self._stream.time is not None:
            day = F.floor(event_micros(matches, "end_time", self._stream.time_unit) / F.lit(DAY))
            daily = matches.groupBy(ID, day.alias("day")).agg(F.count("*").alias("n"))
            most = {row[ID]: row["n"] for row in daily.groupBy(ID).agg(F.max("n").alias("n")).collect()}
        counted = matches.groupBy(ID).agg(F.count("*").alias("n"), F.count_distinct("key").alias("keys")).collect()
        return {row[ID]: CountedMatches(row["n"], row["keys"], most.get(row[ID])) for row in counted}

    def timed_out(self) -> Mapping[str, int]:
        return {row[ID]: row["count"] for row in self._outputs[TIMED_OUT].groupBy(ID).count().collect()}

    def errors(self) -> Mapping[str, tuple[int, str]]:
        first = F.min_by("error", F.struct("time", "error")).alias("error")
        errors = self._outputs[ERRORS].groupBy(ID).agg(F.count("*").alias("n"), first).collect()
        return {row[ID]: (row["n"], row["error"]) for row in errors}

    def late(self) -> int:
        return self._outputs[LATE].count()

    def differences(self) -> Mapping[tuple[str, str], int]:
        counted = self.matches.groupBy("id", "difference").agg(F.count("*").alias("n")).collect()
        return {(row["id"], row["difference"]): row["n"] for row in counted}

    def daily(self) -> Daily:
        if self._stream.time is None:
            return {}
        day = F.floor(event_micros(self.matches, "end_time", self._stream.time_unit) / F.lit(DAY)).alias("day")
        daily: dict[tuple[str, str], dict[int, int]] = {}
        for row in self.matches.groupBy("id", "difference", day).agg(F.count("*").alias("n")).collect():
            daily.setdefault((row["id"], row["difference"]), {})[row["day"]] = row["n"]
        return daily

    def spans(self) -> Spans:
        unit = self._stream.time_unit
        rows = self.matches.select(
            "id", "difference", "key", event_micros(self.matches, "start_time", unit).alias("start"),
            event_micros(self.matches, "end_time", unit).alias("end"),
        ).limit(MAX_SPANS + 1).toArrow()  # fmt: skip
        if rows.num_rows > MAX_SPANS:
            raise StreamDefinitionError(f"the rules have more than {MAX_SPANS:,} matches", hint="a shorter history")
        start, end = (rows.column(name).to_numpy() for name in ("start", "end"))
        keys = [tuple(key) for key in rows.column("key").to_pylist()]
        return Spans(rows.column("id").to_pylist(), rows.column("difference").to_pylist(), keys, start, end)

    def labelled(self, label: str) -> LabelledEvents:
        stream = self._stream
        assert stream.time is not None
        events = stream.df.where(F.col(quoted_name(label)).cast("boolean"))
        times = internal("micros")
        with_times = events.withColumn(times, event_micros(events, stream.time, stream.time_unit))
        rows = with_times.where(F.col(times).isNotNull()).limit(MAX_LABELLED + 1).toArrow()
        if rows.num_rows > MAX_LABELLED:
            problem = f"the history has more than {MAX_LABELLED:,} events with the label"
            raise StreamDefinitionError(problem, hint="a shorter history")
        return LabelledEvents(rows.drop_columns([times]), rows.column(times).to_numpy(), stream.keys)

    def examples(self, most: int, *, compared: bool) -> Mapping[str, tuple[BacktestMatch, ...]]:
        rows = self.matches.where(F.col("difference") != KEPT) if compared else self.matches
        order = Window.partitionBy("id", "difference").orderBy("start_time", "end_time", "key")
        few = rows.withColumn("number", F.row_number().over(order)).where(F.col("number") <= most)
        few = few.withColumn("n_events", F.size("events")).withColumn("events", F.slice("events", 1, MAX_EVENTS))
        matches: dict[str, list[BacktestMatch]] = {}
        # collect() would convert times to the time zone of this process.
        for row in few.orderBy("id", "difference", "number").toArrow().to_pylist():
            matches.setdefault(row["id"], []).append(match_of(row, row["n_events"]))
        return {id: tuple(some) for id, some in matches.items()}


@contextmanager
def _persisted(df: DataFrame) -> Iterator[None]:
    df.persist()
    try:
        yield
    finally:
        df.unpersist()


def _differences(matches: DataFrame, runs: DataFrame) -> DataFrame:
    """The matches with their rule and their difference. For a match of both sides, the row of the new side."""
    known = matches.withColumnRenamed(ID, "run").join(F.broadcast(runs), "run")
    alone = F.when(F.col("pairing") == SHARED, KEPT).when(F.col("is_new"), ADDED).otherwise(REMOVED)
    paired = F.col("pairing").isin(PAIRED, MIXED)
    times = F.to_json(F.struct("key", "start_time", "end_time"))
    same = ["id", "identity"]
    # Several matches of a rule may have the same events, in other stages.
    numbered = known.where(paired).withColumn(
        "identity", F.when(F.col("pairing") == MIXED, times).otherwise(F.col("match_id"))
    )
    numbered = numbered.withColumn(
        "number", F.row_number().over(Window.partitionBy(*same, "is_new").orderBy("match_time", "match_id"))
    )
    on_both = F.count("*").over(Window.partitionBy(*same, "number")) == 2
    compared = numbered.withColumn("on_both", on_both).where(F.col("is_new") | ~F.col("on_both"))
    what = F.when(F.col("on_both"), KEPT).when(F.col("is_new"), ADDED).otherwise(REMOVED)
    columns = [name for name in matches.columns if name not in (ID, "match_id")]
    return (
        known.where(~paired)
        .withColumn("difference", alone)
        .select("id", "difference", *columns)
        .union(compared.withColumn("difference", what).select("id", "difference", *columns))
    )
