"""Backtests: the matches of rules in a table of history, compared with the matches of other rules, on every host.

The rules of both sides run as one set in a bounded job, in which rules of the old side get new ids if necessary. So the history
is read and copied once, and the positions of events with equal times are the same for both sides.
A rule that is the same on both sides runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Generic, Protocol

import pyarrow as pa

from asterism.arguments import expect_number
from asterism.columns.time import EPOCH
from asterism.discovery.sources.sources import discovered, factory_of
from asterism.errors import StreamDefinitionError
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.checking.backtest import (
    ADDED,
    KEPT,
    MAX_EXAMPLES,
    REMOVED,
    BacktestMatch,
    BacktestReport,
    BacktestRule,
    BacktestRun,
)
from asterism.rules.definition.processor import MAX_ID, PatternProcessor, as_in_force
from asterism.rules.matching.operator import DynamicCepOperator, RuleOptions
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, fixed_versions
from asterism.rules.sets.discovery_status import REFUSED
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.set_store import SingleSetStore
from asterism.rules.sets.sets import ProcessorSet
from asterism.streams.evidence import (
    NEW_SIDE,
    OLD_SIDE,
    Daily,
    LabelledEvents,
    Spans,
    check_label,
    with_days,
    with_evidence,
)
from asterism.streams.pattern_processors import check_functions
from asterism.streams.pattern_stream import Rows

ALONE, SHARED, PAIRED, MIXED = "alone", "shared", "paired", "mixed"
"""How the matches of a run are compared: its rule exists on one side only, or is the same on both; or with the run of the other
side: by match ids, or, between a graph and SQL, by times."""
ID = "processor_id"
"""The column with the id of a rule, or of its run."""


@dataclass(frozen=True)
class Backtest(BacktestReport, Generic[Rows]):
    """The result of a backtest; see :class:`~asterism.rules.checking.backtest.BacktestReport` for the numbers.

    :ivar matches: all matches: the ``id`` of the rule, ``difference`` ("added", "removed" or "kept"; without a comparison,
        "added"), and the columns of the output ``matches`` from ``processor_version`` on, except ``match_id``. As a DataFrame of
        Spark, it is computed again each time it is used.
    """

    matches: Rows = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CountedMatches:
    """The matches of one run.

    :ivar most_in_a_day: the largest number of matches whose last event is on the same day; None without an event time
    """

    matches: int
    keys: int
    most_in_a_day: int | None = None


class BacktestResults(Protocol[Rows]):
    """What a host computes of the results of a backtest. A run is named by the ``processor_id`` of its rows."""

    matches: Rows
    """see :class:`Backtest`"""

    def history(self) -> tuple[int, int | None, int | None]:
        """The number of events, and the times of the first and the last one in microseconds."""

    def computed(self) -> AbstractContextManager[object]:
        """Inside of the block, the results are kept."""

    def counted_matches(self) -> Mapping[str, CountedMatches]:
        """The runs with matches."""

    def timed_out(self) -> Mapping[str, int]:
        """The numbers of timed-out partial matches."""

    def errors(self) -> Mapping[str, tuple[int, str]]:
        """The numbers of errors, and the first error of each run: that of the earliest time, or else the least text."""

    def late(self) -> int:
        """The number of events without a time."""

    def differences(self) -> Mapping[tuple[str, str], int]:
        """The numbers of matches by rule and difference."""

    def daily(self) -> Daily:
        """The numbers of matches by the day of their last event; empty without an event time."""

    def spans(self) -> Spans:
        """All matches, with their times."""

    def labelled(self, label: str) -> LabelledEvents:
        """The events that have the label, and a time."""

    def examples(self, most: int, *, compared: bool) -> Mapping[str, tuple[BacktestMatch, ...]]:
        """The first matches of each rule and difference; of a comparison, without those that both sides have."""


@dataclass(frozen=True, slots=True)
class UsableRules:
    """The usable rules of one side by id, and why the others cannot be used."""

    processors: Mapping[str, PatternProcessor]
    refused: Mapping[str, str]

    @classmethod
    def of(
        cls, factory: PatternProcessorDiscovererFactory, compiler: ProcessorCompiler, *, shadows: bool
    ) -> UsableRules:
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
            processor.id: as_in_force(processor) for processor in sorted(every, key=lambda processor: processor.shadow)
        }
        refused = [rule for rule in coordinator.status.rules if rule.state == REFUSED and (shadows or not rule.shadow)]
        reasons = {rule.id: rule.reason or "" for rule in sorted(refused, key=lambda rule: rule.shadow)}
        return cls(timeless, reasons)


@dataclass(frozen=True, slots=True)
class Runs:
    """Which processors run, and for which rules."""

    processors: Sequence[PatternProcessor]
    rows: Sequence[tuple[str, str, bool, str]]

    @classmethod
    def of(cls, new: UsableRules, old: UsableRules | None) -> Runs:
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


RunBacktest = Callable[
    [DynamicCepOperator, SingleSetStore, Sequence[tuple[str, str, bool, str]]], BacktestResults[Rows]
]
"""Runs the rules of a store: makes the results from the operator, the store, and the rows of :class:`Runs`."""


def backtest(
    schema: pa.Schema,
    rules: Any,
    against: Any,
    options: RuleOptions,
    lookups: Sequence[DefinedLookup],
    run: RunBacktest[Rows],
    *,
    examples: int,
    label: str | None = None,
) -> Backtest[Rows]:
    """See :meth:`asterism.CEP.backtest`.

    :param schema: the columns of the events
    """
    expect_number(StreamDefinitionError, examples, "examples", least=0, most=MAX_EXAMPLES)
    if label is not None:
        check_label(label, schema, options.time)
    check_functions(options.functions)
    store, factories = SingleSetStore(), [factory_of(rules), *([] if against is None else [factory_of(against)])]
    operator = DynamicCepOperator(
        schema, store, replace(options, disable_on_error=True, wants_late=True, ids_by_events=True, waiting_time=0)
    )
    new = UsableRules.of(factories[0], operator.compiler, shadows=True)
    old = None if against is None else UsableRules.of(factories[1], operator.compiler, shadows=False)
    runs = Runs.of(new, old)
    store.put(ProcessorSet(1, tuple(runs.processors), lookups=fixed_versions(lookups, store)))
    results = run(operator, store, runs.rows)
    events, *times = results.history()
    first, last = (None if micros is None else EPOCH + timedelta(microseconds=micros) for micros in times)
    report = Backtest((), old is not None, events, 0, first, last, label, matches=results.matches)
    nothing = _nothing(report.days)
    with results.computed():
        daily = results.daily()
        labelled = None if label is None else results.labelled(label)
        spans = None if label is None else results.spans()
        by_run = _results_by_run(results, nothing, report.days)
        differences = {} if old is None else results.differences()
        chosen = results.examples(examples, compared=old is not None) if examples else {}
        total = None if labelled is None else labelled.events.num_rows
        report = replace(report, late=results.late(), labelled=total)
    names = {(id, is_new): name for name, id, is_new, _ in runs.rows}
    ids = dict.fromkeys([*new.processors, *new.refused, *(() if old is None else (*old.processors, *old.refused))])
    rules_of_report = []
    matched = {side: {} if spans is None else spans.by_rule(side) for side in (NEW_SIDE, OLD_SIDE)}

    def found(id: str, side: UsableRules, counts: BacktestRun, differences: tuple[str, str]) -> BacktestRun | None:
        result, rule = with_days(_run(id, side, counts), id, daily, differences), side.processors.get(id)
        if result is None or rule is None or labelled is None or result.matches is None:
            return result
        return with_evidence(result, matched[differences].get(id), rule, labelled)

    for id in ids:
        run_name = names.get((id, True), "")
        rule = BacktestRule(id, found(id, new, by_run.get(run_name, nothing), NEW_SIDE), examples=chosen.get(id, ()))
        if old is not None:
            # A rule that is the same on both sides has one run.
            before = found(id, old, by_run.get(names.get((id, False), run_name), nothing), OLD_SIDE)
            rule = replace(rule, old=before)
            if all(side is None or side.matches is not None for side in (rule.new, before)):
                added, removed, kept = (differences.get((id, what), 0) for what in (ADDED, REMOVED, KEPT))
                rule = replace(rule, added=added, removed=removed, kept=kept)
        rules_of_report.append(rule)
    return replace(report, rules=tuple(rules_of_report))


def _nothing(days: float | None) -> BacktestRun:
    """The run of a rule without matches in a history of so many days."""
    daily: dict[str, Any] = {} if days is None else {"matches_per_day": 0.0, "most_in_a_day": 0}
    return BacktestRun(matches=0, keys=0, timed_out=0, errors=0, **daily)


def _run(id: str, side: UsableRules, counts: BacktestRun) -> BacktestRun | None:
    """The run of a rule on one side; None if the rule does not exist there."""
    processor, refused = side.processors.get(id), side.refused.get(id)
    if processor is None:
        return None if refused is None else BacktestRun(refused=refused)
    timed_out = counts.timed_out if processor.timed_out else None
    return replace(counts, version=processor.version, refused=refused, timed_out=timed_out)


def _results_by_run(results: BacktestResults[Any], nothing: BacktestRun, days: int | None) -> dict[str, BacktestRun]:
    """The results of the runs with matches, timeouts or errors."""
    matches, timed_out, errors = results.counted_matches(), results.timed_out(), results.errors()
    runs: dict[str, BacktestRun] = {}
    for run in {*matches, *timed_out, *errors}:
        result = replace(nothing, timed_out=timed_out.get(run, 0))
        if run in matches:
            counted = matches[run]
            result = replace(
                result,
                matches=counted.matches,
                keys=counted.keys,
                matches_per_day=None if days is None else counted.matches / days,
                most_in_a_day=counted.most_in_a_day,
            )
        if run in errors:
            count, first = errors[run]
            result = replace(result, errors=count, error=first)
        runs[run] = result
    return runs


def match_of(row: Mapping[str, Any], n_events: int | None) -> BacktestMatch:
    """An example.

    :param row: a row of the matches, with its first events
    :param n_events: the number of all its events
    """
    events = tuple((event["stage"], event["event"]) for event in row["events"] or ())
    return BacktestMatch(
        row["difference"],
        row["processor_version"],
        tuple(row["key"]),
        row["start_time"],
        row["end_time"],
        events,
        max(n_events or 0, 0) - len(events) if events else 0,
        None if row["measures"] is None else dict(row["measures"]),
        row["result"],
    )
