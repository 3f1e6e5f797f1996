"""Backtests: the matches of rules in a table of history, compared with the matches of other rules.

The rules of both sides run as one set in a bounded job, in which rules of the old side get new ids if necessary. So the history
is read and copied once, and the positions of events with equal times are the same for both sides.
A rule that is the same on both sides runs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from asterism.arguments import expect_number
from asterism.columns.time import DAY, EPOCH
from asterism.discovery.sources.sources import discovered, factory_of
from asterism.errors import StreamDefinitionError
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.checking.backtest import (
    ADDED,
    KEPT,
    MAX_EVENTS,
    MAX_EXAMPLES,
    REMOVED,
    BacktestMatch,
    BacktestReport,
    BacktestRule,
    BacktestRun,
)
from asterism.rules.definition.processor import MAX_ID, PatternProcessor
from asterism.rules.matching.operator import DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, TIMED_OUT
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, fixed_versions
from asterism.rules.sets.discovery_status import REFUSED
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.set_store import SingleSetStore
from asterism.rules.sets.sets import ProcessorSet
from asterism.spark.host.column_types import arrow_schema
from asterism.spark.host.stateful import Use, unpacked
from asterism.spark.host.times import event_micros
from asterism.spark.rules.rules import bounded_results, check_functions
from asterism.spark.session.settings import DEFAULT_KEY_GROUPS
from asterism.streams.keyed_stream import KeyedStream

ALONE, SHARED, PAIRED, MIXED = "alone", "shared", "paired", "mixed"
"""How the matches of a run are compared: its rule exists on one side only, or is the same on both; or with the run of the other
side: by match ids, or, between a graph and SQL, by times."""
_RUNS = "run STRING, id STRING, is_new BOOLEAN, pairing STRING"
_ID = "processor_id"


@dataclass(frozen=True)
class Backtest(BacktestReport):
    """The result of a backtest; see :class:`~asterism.rules.checking.backtest.BacktestReport` for the numbers.

    :ivar matches: all matches: the ``id`` of the rule, ``difference`` ("added", "removed" or "kept"; without a comparison,
        "added"), and the columns of the output ``matches`` from ``processor_version`` on, except ``match_id``. It is computed
        again each time it is used.
    """

    matches: DataFrame = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _UsableRules:
    """The usable rules of one side by id, and why the others cannot be used."""

    processors: Mapping[str, PatternProcessor]
    refused: Mapping[str, str]

    @classmethod
    def of(
        cls, factory: PatternProcessorDiscovererFactory, compiler: ProcessorCompiler, *, shadows: bool
    ) -> _UsableRules:
        """:param shadows: whether a shadow takes the place of its rule; otherwise, shadows are left out"""
        store = SingleSetStore()
        coordinator = Coordinator(compiler, store)
        coordinator.on_pattern_processors_updated(discovered(factory))
        every = [
            processor
            for processor_set in store.retained()
            for processor in processor_set.processors
            if shadows or not processor.shadow
        ]
        # A timestamp is mostly in the future; a backtest shows what the rule would have matched in the past.
        timeless = {
            processor.id: replace(processor, timestamp=None, expires=None, shadow=False)
            if processor.timestamp or processor.expires or processor.shadow
            else processor
            for processor in sorted(every, key=lambda processor: processor.shadow)
        }
        refused = [rule for rule in coordinator.status.rules if rule.state == REFUSED and (shadows or not rule.shadow)]
        reasons = {rule.id: rule.reason or "" for rule in sorted(refused, key=lambda rule: rule.shadow)}
        return cls(timeless, reasons)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Which processors run, and for which rules."""

    processors: Sequence[PatternProcessor]
    rows: Sequence[tuple[str, str, bool, str]]

    @classmethod
    def of(cls, new: _UsableRules, old: _UsableRules | None) -> _Runs:
        """The runs of the new side have the ids of their rules."""
        before = {} if old is None else old.processors
        processors, taken = list(new.processors.values()), set(new.processors)
        rows = [
            (processor.id, processor.id, True, _pairing(processor, before.get(processor.id)))
            for processor in processors
        ]
        for processor in before.values():
            other = new.processors.get(processor.id)
            pairing = _pairing(processor, other)
            if pairing == SHARED:
                continue
            name = _free_name(processor.id, taken)
            taken.add(name)
            processors.append(replace(processor, id=name))
            rows.append((name, processor.id, False, pairing))
        return cls(processors, rows)


def _pairing(processor: PatternProcessor, other: PatternProcessor | None) -> str:
    if other is None:
        return ALONE
    if replace(processor, version=other.version).text == other.text:
        return SHARED
    return PAIRED if (processor.sql is None) == (other.sql is None) else MIXED


def _free_name(id: str, taken: set[str]) -> str:
    """A name for a run that shows the id, because messages contain it."""
    number = 0
    while True:
        end = " (other)" if number == 0 else f" (other {number})"
        name = id[: MAX_ID - len(end)] + end
        if name not in taken:
            return name
        number += 1


def backtest(
    stream: KeyedStream,
    rules: Any,
    against: Any,
    options: RuleOptions,
    lookups: Sequence[DefinedLookup],
    *,
    key_groups: int | None,
    examples: int,
) -> Backtest:
    """See :meth:`asterism.CEP.backtest`."""
    expect_number(StreamDefinitionError, examples, "examples", least=0, most=MAX_EXAMPLES)
    check_functions(options.functions)
    factories = [factory_of(rules), *([] if against is None else [factory_of(against)])]
    spark, store = stream.df.sparkSession, SingleSetStore()
    operator = DynamicCepOperator(
        arrow_schema(spark, stream.df.schema, stream.time_unit),
        store,
        replace(options, disable_on_error=True, wants_late=True, ids_by_events=True, waiting_time=0),
    )
    if stream.df.isStreaming:
        raise StreamDefinitionError(
            "a backtest needs a table, and this is a stream", hint="spark.read instead of spark.readStream"
        )
    new = _UsableRules.of(factories[0], operator.compiler, shadows=True)
    old = None if against is None else _UsableRules.of(factories[1], operator.compiler, shadows=False)
    runs = _Runs.of(new, old)
    store.put(ProcessorSet(1, tuple(runs.processors), lookups=fixed_versions(lookups, store)))
    use = Use(drain=True, key_groups=key_groups or DEFAULT_KEY_GROUPS)
    # The results are read several times, and more partitions than key groups would be empty.
    results = bounded_results(stream, operator, store, use, partitions=use.key_groups)
    table = spark.createDataFrame(list(runs.rows), _RUNS)
    matches = _differences(unpacked(results, MATCHES, operator.output_schemas[MATCHES]), table)
    history = _history(stream)
    report = Backtest((), old is not None, *history, matches=matches)
    with _persisted(results):
        outputs = {name: unpacked(results, name, schema) for name, schema in operator.output_schemas.items()}
        with _persisted(outputs[MATCHES]):
            nothing = _nothing(report.days)
            run_results = _results_by_run(outputs, nothing, report.days, stream)
            differences = _differences(outputs[MATCHES], table)
            counts = {} if old is None else _counts(differences)
            chosen = _examples(differences, examples, compared=old is not None) if examples else {}
        late = outputs[LATE].count()
    names = {(id, is_new): run for run, id, is_new, _ in runs.rows}
    ids = dict.fromkeys([*new.processors, *new.refused, *(() if old is None else (*old.processors, *old.refused))])
    rules_of_report = []
    for id in ids:
        run = names.get((id, True), "")
        rule = BacktestRule(id, _run(id, new, run_results.get(run, nothing)), examples=chosen.get(id, ()))
        if old is not None:
            # A rule that is the same on both sides has one run.
            before = _run(id, old, run_results.get(names.get((id, False), run), nothing))
            rule = replace(rule, old=before)
            if all(side is None or side.matches is not None for side in (rule.new, before)):
                added, removed, kept = (counts.get((id, what), 0) for what in (ADDED, REMOVED, KEPT))
                rule = replace(rule, added=added, removed=removed, kept=kept)
        rules_of_report.append(rule)
    return replace(report, rules=tuple(rules_of_report), late=late)


def _nothing(days: float | None) -> BacktestRun:
    """The run of a rule without matches in a history of so many days."""
    daily: dict[str, Any] = {} if days is None else {"matches_per_day": 0.0, "most_in_a_day": 0}
    return BacktestRun(matches=0, keys=0, timed_out=0, errors=0, **daily)


def _counts(differences: DataFrame) -> dict[tuple[str, str], int]:
    """The number of matches by rule and difference."""
    counted = differences.groupBy("id", "difference").agg(F.count("*").alias("n")).collect()
    return {(row["id"], row["difference"]): row["n"] for row in counted}


@contextmanager
def _persisted(df: DataFrame) -> Iterator[None]:
    df.persist()
    try:
        yield
    finally:
        df.unpersist()


def _run(id: str, side: _UsableRules, counts: BacktestRun) -> BacktestRun | None:
    """The run of a rule on one side; None if the rule does not exist there."""
    processor, refused = side.processors.get(id), side.refused.get(id)
    if processor is None:
        return None if refused is None else BacktestRun(refused=refused)
    timed_out = counts.timed_out if processor.timed_out else None
    return replace(counts, version=processor.version, refused=refused, timed_out=timed_out)


def _history(stream: KeyedStream) -> tuple[int, int, Any, Any]:
    """The number of events, 0, and the times of the first and the last one."""
    if stream.time is None:
        return stream.df.count(), 0, None, None
    time = event_micros(stream.df, stream.time, stream.time_unit)
    summary = stream.df.agg(F.count("*"), F.min(time), F.max(time)).first()
    assert summary is not None
    first, last = (None if micros is None else EPOCH + timedelta(microseconds=micros) for micros in summary[1:])
    return summary[0], 0, first, last


def _results_by_run(
    outputs: Mapping[str, DataFrame], nothing: BacktestRun, days: int | None, stream: KeyedStream
) -> dict[str, BacktestRun]:
    """The results of the runs with matches, timeouts or errors."""
    by_run = outputs[MATCHES].groupBy(_ID)
    matches = {
        row[_ID]: row for row in by_run.agg(F.count("*").alias("n"), F.count_distinct("key").alias("keys")).collect()
    }
    most: dict[str, int] = {}
    if stream.time is not None:
        day = F.floor(event_micros(outputs[MATCHES], "end_time", stream.time_unit) / F.lit(DAY))
        daily = outputs[MATCHES].groupBy(_ID, day.alias("day")).agg(F.count("*").alias("n"))
        most = {row[_ID]: row["n"] for row in daily.groupBy(_ID).agg(F.max("n").alias("n")).collect()}
    timed_out = {row[_ID]: row["count"] for row in outputs[TIMED_OUT].groupBy(_ID).count().collect()}
    first = F.min_by("error", F.struct("time", "error")).alias("error")
    errors = {row[_ID]: row for row in outputs[ERRORS].groupBy(_ID).agg(F.count("*").alias("n"), first).collect()}
    runs: dict[str, BacktestRun] = {}
    for run in {*matches, *timed_out, *errors}:
        result = replace(nothing, timed_out=timed_out.get(run, 0))
        if run in matches:
            count = matches[run]["n"]
            a_day = None if days is None else count / days
            result = replace(
                result, matches=count, keys=matches[run]["keys"], matches_per_day=a_day, most_in_a_day=most.get(run)
            )
        if run in errors:
            result = replace(result, errors=errors[run]["n"], error=errors[run]["error"])
        runs[run] = result
    return runs


def _differences(matches: DataFrame, runs: DataFrame) -> DataFrame:
    """The matches with their rule and their difference. For a match of both sides, the row of the new side."""
    known = matches.withColumnRenamed(_ID, "run").join(F.broadcast(runs), "run")
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
    columns = [name for name in matches.columns if name not in (_ID, "match_id")]
    return (
        known.where(~paired)
        .withColumn("difference", alone)
        .select("id", "difference", *columns)
        .union(compared.withColumn("difference", what).select("id", "difference", *columns))
    )


def _examples(differences: DataFrame, most: int, *, compared: bool) -> dict[str, tuple[BacktestMatch, ...]]:
    """The first matches of each rule and difference."""
    if compared:
        differences = differences.where(F.col("difference") != KEPT)
    order = Window.partitionBy("id", "difference").orderBy("start_time", "end_time", "key")
    few = differences.withColumn("number", F.row_number().over(order)).where(F.col("number") <= most)
    few = few.withColumn("n_events", F.size("events")).withColumn("events", F.slice("events", 1, MAX_EVENTS))
    matches: dict[str, list[BacktestMatch]] = {}
    # collect() would convert times to the time zone of this process.
    for row in few.orderBy("id", "difference", "number").toArrow().to_pylist():
        events = tuple((event["stage"], event["event"]) for event in row["events"] or ())
        match = BacktestMatch(
            row["difference"],
            row["processor_version"],
            tuple(row["key"]),
            row["start_time"],
            row["end_time"],
            events,
            max(row["n_events"] or 0, 0) - len(events) if events else 0,
            None if row["measures"] is None else dict(row["measures"]),
            row["result"],
        )
        matches.setdefault(row["id"], []).append(match)
    return {id: tuple(some) for id, some in matches.items()}
