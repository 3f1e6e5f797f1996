"""How good the matches of rules are: which of them have an event with a label, and which labelled events have a match.

A match has the events of its key from its first to its last one. So the meaning is the same for clauses, whose matches may
have no list of events. See docs/decisions/0150.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect_string
from asterism.columns.keys import key_strings, key_values
from asterism.columns.time import EPOCH, TimeColumn
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import name_of
from asterism.row_patterns.clause.reading import read
from asterism.rules.binding.binding import selector_of
from asterism.rules.checking.backtest import ADDED, KEPT, REMOVED, BacktestRun
from asterism.rules.definition.processor import PatternProcessor

MAX_LABELLED = 1_000_000
"""Labelled events of a history."""
MAX_SPANS = 10_000_000
"""Matches that are compared with labels, and counted by day."""
Micros = npt.NDArray[np.int64]
Key = tuple[str | None, ...]
Daily = Mapping[tuple[str, str], Mapping[int, int]]
"""The numbers of matches by rule and difference, and by day since 1970."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The matches of a backtest.

    :ivar start, end: the times of the first and the last event in microseconds
    """

    id: Sequence[str]
    difference: Sequence[str]
    key: Sequence[Key]
    start: Micros
    end: Micros

    def taken(self, rows: Sequence[int]) -> Spans:
        return Spans(
            [self.id[n] for n in rows],
            [self.difference[n] for n in rows],
            [self.key[n] for n in rows],
            self.start[rows],
            self.end[rows],
        )

    def by_rule(self, differences: tuple[str, str]) -> dict[str, Spans]:
        """Those of one side by their rules: a match of both sides has the same events on both."""
        rows: dict[str, list[int]] = {}
        for number, (id, what) in enumerate(zip(self.id, self.difference, strict=True)):
            if what in differences:
                rows.setdefault(id, []).append(number)
        return {id: self.taken(numbers) for id, numbers in rows.items()}


@dataclass(frozen=True, slots=True)
class LabelledEvents:
    """The events of a history that have the label.

    :ivar times: in microseconds
    :ivar keys: the key columns of the stream
    """

    events: pa.Table
    times: Micros
    keys: Sequence[str]

    def by_key(self, rule: PatternProcessor) -> dict[Key, Micros]:
        """The times of the events in order, by their keys for a rule."""
        rows: dict[str, list[int]] = {}
        for number, key in enumerate(keys_of_events(rule, self.events, self.keys).to_pylist()):
            rows.setdefault(key, []).append(number)
        return {tuple(key_values(key)): np.sort(self.times[numbers]) for key, numbers in rows.items()}


def check_label(label: str, schema: pa.Schema, time: str | None) -> None:
    """
    :raises StreamDefinitionError: the column cannot be a label, or there is no event time
    :raises ColumnNotFoundError: there is no such column
    """
    expect_string(StreamDefinitionError, label, "the label must be the name of a column", 'label="is_fraud"')
    if label not in schema.names:
        raise ColumnNotFoundError.from_missing_and_available(label, schema.names, "as the label")
    kind = schema.field(label).type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise StreamDefinitionError(
            f"the label {label!r:.100} must be a BOOLEAN or a number, not {name_of(kind)}",
            hint="add a column that is true, or 1, for the events that a rule is to find",
        )
    if time is None:
        raise StreamDefinitionError(
            "a label needs an event time", "A match has the events between its times.", 'KeyedStream(df, time="ts")'
        )


def is_labelled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each event whether it has the label: true, or a number that is not 0."""
    truth = column if pa.types.is_boolean(column.type) else pc.not_equal(column, pa.scalar(0, column.type))
    return pc.fill_null(truth, False)


def spans_of(matches: pa.Table, time: str, schema: pa.Schema) -> Spans:
    """The matches of a backtest over a table.

    :param time: the event-time column of the events with this *schema*
    """
    column = TimeColumn.of(time, schema)
    start, end = (column.to_micros(matches.column(name)).to_numpy() for name in ("start_time", "end_time"))
    keys = [tuple(key) for key in matches.column("key").to_pylist()]
    return Spans(matches.column("id").to_pylist(), matches.column("difference").to_pylist(), keys, start, end)


def labelled_events(events: pa.Table, label: str, keys: Sequence[str], time: str) -> LabelledEvents:
    """The events of a table that have the label, and a time."""
    chosen = events.filter(is_labelled(events.column(label)))
    times = TimeColumn.of(time, events.schema).to_micros(chosen.column(time), lenient=True)
    return LabelledEvents(chosen.filter(pc.is_valid(times)), pc.drop_null(times).to_numpy(), keys)


def key_texts(rule: PatternProcessor, keys: Sequence[str]) -> Sequence[str]:
    """The key of a rule as expressions.

    :param keys: the key columns of the stream
    """
    partition = [] if rule.sql is None else [column.expression.text for column in read(rule.sql).partition_by]
    return partition or selector_of(rule, keys).expressions


def keys_of_events(rule: PatternProcessor, events: pa.Table, keys: Sequence[str]) -> pa.Array:
    """For each event its key for a rule, as a string."""
    vectorized, scope = Vectorized(events.schema), Scope(events.schema)
    numbers = [vectorized.add(scope.resolve(parse(text), text), text) for text in key_texts(rule, keys)]
    values = vectorized.evaluate(events) if numbers else []
    return key_strings([values[number] for number in numbers], events.num_rows)


def covered(spans: Spans, labelled: Mapping[Key, Micros]) -> tuple[npt.NDArray[np.bool_], int]:
    """For each match whether it has a labelled event, and the number of labelled events that some match has.

    >>> spans = Spans(["a", "a"], ["added"] * 2, [("ann",), ("bob",)], np.array([0, 0]), np.array([5, 5]))
    >>> covered(spans, {("ann",): np.array([2, 5, 9])})
    (array([ True, False]), 2)
    """
    holds = np.zeros(len(spans.key), np.bool_)
    by_key: dict[Key, list[int]] = {}
    for number, key in enumerate(spans.key):
        if key in labelled:
            by_key.setdefault(key, []).append(number)
    found = 0
    for key, numbers in by_key.items():
        times = labelled[key]
        first = np.searchsorted(times, spans.start[numbers], "left")
        after = np.searchsorted(times, spans.end[numbers], "right")
        holds[numbers] = after > first
        changes = np.zeros(len(times) + 1, np.int64)
        np.add.at(changes, first, 1)
        np.add.at(changes, after, -1)
        found += int(np.count_nonzero(np.cumsum(changes[:-1]) > 0))
    return holds, found


def with_days(run: BacktestRun | None, id: str, daily: Daily, differences: tuple[str, str]) -> BacktestRun | None:
    """The result of a version with its matches by day."""
    if run is None or run.matches is None:
        return run
    days = sum((Counter(daily.get((id, what), {})) for what in differences), Counter[int]())
    return replace(run, daily={_day(number): days[number] for number in sorted(days)})


def with_evidence(
    run: BacktestRun, spans: Spans | None, rule: PatternProcessor, labelled: LabelledEvents
) -> BacktestRun:
    """The result of a version with how good its matches are.

    :param spans: its matches; None: it has none
    """
    holds, found = (np.zeros(0, np.bool_), 0) if spans is None else covered(spans, labelled.by_key(rule))
    right, total = int(holds.sum()), labelled.events.num_rows
    return replace(
        run,
        true_matches=right,
        found=found,
        precision=right / len(holds) if len(holds) else None,
        recall=found / total if total else None,
    )


def marked(
    spans: Spans, new: PatternProcessor, old: PatternProcessor | None, labelled: LabelledEvents
) -> npt.NDArray[np.bool_]:
    """For each match of one rule whether it has a labelled event."""
    holds, _ = covered(spans, labelled.by_key(new))
    if old is not None:
        removed = np.array([what == REMOVED for what in spans.difference], np.bool_)
        holds = np.where(removed, covered(spans, labelled.by_key(old))[0], holds)
    return holds


NEW_SIDE, OLD_SIDE = (ADDED, KEPT), (REMOVED, KEPT)


def _day(number: Any) -> date:
    return (EPOCH + timedelta(days=int(number))).date()
