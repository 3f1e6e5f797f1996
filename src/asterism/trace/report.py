"""Explains why a pattern matched or did not: the events of one key, and the effect of each on the partial matches.

:func:`trace` is the entry point. :mod:`asterism.trace.interpreter` runs the automaton of the pattern over the events,
:mod:`asterism.trace.recorder` records each step, and this module presents the result as data and as text.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect_options, expect_strings
from asterism.columns.arrays import Ints
from asterism.columns.sort_keys import SortKey, check_order, order_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TimeColumn, micros
from asterism.errors import ColumnNotFoundError, StreamDefinitionError, printable
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.expressions.types import name_of
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.text.printable import duration, either
from asterism.trace.conditions import TraceConditions
from asterism.trace.interpreter import Interpreter
from asterism.trace.recorder import MAX_NAMED, MAX_STEPS, Recorder
from asterism.trace.steps import TraceLines, TraceMatch, TraceStep, What, shown

MAX_SHOWN = 8
"""The maximum number of columns of an event, runs of event numbers, waiting partial matches, and keys in an error that are
shown.
"""
MAX_COMPARED = 1_000
"""The maximum number of keys that are searched for one similar to an unknown key."""
ENDS = {What.DROPPED, What.MATCHED, What.HELD, What.DISCARDED, What.LATE}


@dataclass(frozen=True, slots=True)
class Trace(TraceLines):
    """The steps of a trace; ``str`` formats them as text.

    :ivar key: the key, value by column
    :ivar events: the events of the key, in arrival order; event number 1 is row 0
    :ivar times: the times of the events, as in the time column
    :ivar columns: the columns that are shown
    :ivar steps: the steps in order; steps beyond the limit are only counted, in *omitted*
    :ivar matches: the matches in order; *timeouts* has the timed-out partial matches
    :ivar late: the numbers of the events that were late or had no time
    :ivar waiting: the partial matches that remain at the end, with the stages that they wait for, and the matches held back
    :ivar closest: the last step of the partial match that got farthest without becoming a match; *progress* says how far
    :ivar stopped: why the trace ended early; empty if it did not
    """

    key: Mapping[str, Any]
    events: pa.Table
    times: tuple[Any, ...]
    columns: tuple[str, ...]
    steps: tuple[TraceStep, ...]
    omitted: Mapping[What, int]
    matches: tuple[TraceMatch, ...]
    timeouts: tuple[TraceMatch, ...]
    late: tuple[int, ...]
    waiting: tuple[TraceStep, ...]
    closest: TraceStep | None
    progress: str
    stopped: str

    def lines(self, *, limit: int | None = None, only_dropped: bool = False) -> Iterator[tuple[What | None, str]]:
        """The lines of :meth:`text`, each with its kind of step, or None for a headline or the summary."""
        key = f"key {key_text(self.key)}: " if self.key else ""
        yield None, f"{key}{counted(self.events.num_rows, 'event')}"
        yield from ((None, line) for line in self._summary())
        printed = left_out = 0
        for headline, steps in self._moments(only_dropped):
            lines = list(_lines(steps))
            if limit is not None and printed + len(lines) > limit:
                lines, left_out = lines[: max(0, limit - printed)], left_out + len(lines) - max(0, limit - printed)
            printed += len(lines)
            if lines:
                yield None, ""
                yield None, headline
                yield from ((what, "  " + line) for what, line in lines)
        left_out += sum(number for what, number in self.omitted.items() if what in ENDS or not only_dropped)
        if left_out:
            yield None, f"\n... and {counted(left_out, 'more step')}"

    def _moments(self, only_dropped: bool) -> Iterator[tuple[str, Sequence[TraceStep]]]:
        for _, group in groupby(self.steps, key=lambda step: (step.event, step.time)):
            steps = [step for step in group if step.what in ENDS or not only_dropped]
            if steps:
                yield self._headline(steps[0]), steps

    def _headline(self, step: TraceStep) -> str:
        if step.event is None:
            return f"time passes  {_time_text(step.time)}" if step.time is not None else "the input ends"
        time = self.times[step.event - 1]
        values = values_text(self.events, self.columns, step.event)
        return "  ".join([f"event {step.event}", *([] if time is None else [_time_text(time)]), *values])

    def _place(self, step: TraceStep) -> str:
        if step.event is not None:
            return f"event {step.event}"
        return "at the end" if step.time is None else f"at {_time_text(step.time)}"

    def _summary(self) -> Iterator[str]:
        if self.stopped:
            yield f"The trace stops here: {self.stopped}"
        counts = [counted(len(self.matches), "match", "matches")]
        if self.timeouts:
            counts.append(counted(len(self.timeouts), "timed-out partial match", "timed-out partial matches"))
        if self.late:
            counts.append(counted(len(self.late), "late event"))
        yield ", ".join(counts)
        if self.waiting:
            for step in self.waiting[:MAX_SHOWN]:
                held = step.what is What.HELD
                yield f"  {_partial(step)} {'is held back' if held else f'still waits for {either(step.waits_for)}'}"
            if len(self.waiting) > MAX_SHOWN:
                yield f"  ... and {counted(len(self.waiting) - MAX_SHOWN, 'more partial match', 'more partial matches')}"
        if self.closest is not None:
            where = self._place(self.closest)
            end = self.closest.reason or f"it still waits for {either(self.closest.waits_for)}"
            yield f"closest to {'another' if self.matches else 'a'} match: {_partial(self.closest)} {self.progress};"
            yield f"  {where}: {end}"


# ---------------------------------------------------------------------------------------------------- text


def _lines(steps: Sequence[TraceStep]) -> Iterator[tuple[What, str]]:
    """One line for each step; steps with the same text for several partial matches share a line."""
    alike: dict[tuple[Any, ...], list[TraceStep]] = {}
    for number, step in enumerate(steps):
        same = step.what in (What.NARROWED, What.DROPPED)
        alike.setdefault((step.what, step.waits_for, step.reason) if same else (number,), []).append(step)
    for group in alike.values():
        yield group[0].what, _line(group)


def _line(group: Sequence[TraceStep]) -> str:
    step = group[0]
    waits = f"; waits for {either(step.waits_for)}" if step.waits_for else ""
    others = f"; {step.reason}" if step.reason else ""
    match step.what:
        case What.BEGAN:
            return f"{_partial(step)} begins{waits}{others}"
        case What.ADVANCED:
            return f"#{step.parent} becomes {_partial(step)}{waits}{others}"
        case What.MATCHED:
            return f"{step.reason}: {_partial(step)}" + "".join(f"; {check}" for check in step.checks)
        case What.HELD:
            return f"{_partial(step)} is complete, but {step.reason}"
        case What.DISCARDED:
            return f"{_partial(step)} is complete, but no match: {step.reason}"
        case What.NOTHING:
            return f"begins no match: {step.reason}"
        case What.LATE:
            return step.reason
    partials = [number for member in group for number in (member.partial, *member.others)]
    more = len(partials[MAX_NAMED:]) + step.more
    who = ", ".join(f"#{number}" for number in partials[:MAX_NAMED]) + (f" and {more:,} more" if more else "")
    is_single = len(partials) == 1
    match step.what:
        case What.WAITED:
            return f"{who} keep{'s' if is_single else ''} waiting for {either(step.waits_for)}: {step.reason}"
        case What.NARROWED:
            return f"{who} now wait{'s' if is_single else ''} for {either(step.waits_for)} only: {step.reason}"
    return f"{who} {'is' if is_single else 'are'} dropped: {step.reason}"


def _partial(step: TraceStep) -> str:
    return f"#{step.partial} {took_text(step.took)}"


def took_text(took: Iterable[tuple[str, Sequence[int]]], name_text: Callable[[str], str] = printable) -> str:
    return " ".join(f"{name_text(name)}=[{numbers(events)}]" for name, events in took)


def values_text(events: pa.Table, columns: Sequence[str], number: int) -> list[str]:
    """The first of these columns of an event, with their values."""
    shown_columns = [
        f"{printable(name)}={shown(events.column(name)[number - 1].as_py())}" for name in columns[:MAX_SHOWN]
    ]
    return shown_columns + ["..."] * (len(columns) > MAX_SHOWN)


def numbers(events: Sequence[int]) -> str:
    """
    >>> numbers([1, 2, 3, 7]), numbers([5, 4])
    ('1..3 7', '5 4')
    """
    runs: list[list[int]] = []
    for event in events:
        if runs and event == runs[-1][-1] + 1:
            runs[-1].append(event)
        else:
            runs.append([event])
    texts = [f"{run[0]}..{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs]
    return " ".join(texts if len(texts) <= MAX_SHOWN else [*texts[: MAX_SHOWN - 1], "...", texts[-1]])


def counted(number: int, singular: str, plural: str = "") -> str:
    return f"{number or 'no'} {singular if number == 1 else plural or singular + 's'}"


def _time_text(time: Any) -> str:
    return str(time.replace(tzinfo=None) if isinstance(time, datetime) and not time.utcoffset() else time)


# ---------------------------------------------------------------------------------------------------- entry point


class ArrivalOptions(TypedDict, total=False):
    """How the events of a trace arrive.

    :param order_by: the secondary order of events with equal times: columns, descending with a leading ``-``. Default: none
    :param max_out_of_orderness: as in a streaming query in which each event is a separate micro-batch; events with a larger
        delay are late. Default: as in a batch query, which sorts all events by time
    :param watermark_by: with *max_out_of_orderness*, the columns that distinguish partitions, each of which has a watermark.
        Default: one watermark
    :param drain: the input ends and all deadlines fire, which is the default; False: more events may follow
    """

    order_by: Sequence[str]
    max_out_of_orderness: timedelta | None
    watermark_by: Sequence[str]
    drain: bool


@dataclass(frozen=True, slots=True)
class _ArrivalValues:
    """The values of :class:`ArrivalOptions`."""

    order_by: Sequence[str] = ()
    max_out_of_orderness: timedelta | None = None
    watermark_by: Sequence[str] = ()
    drain: bool = True

    def check(self, table: pa.Table, columns: Iterable[str]) -> None:
        """:raises ColumnNotFoundError, StreamDefinitionError: as :func:`trace`; *columns* are those of the key and the time"""
        order = [SortKey.of(text) for text in self.order_by]
        for name in sorted({*columns, *(key.name for key in order)}):
            if name not in table.column_names:
                raise ColumnNotFoundError.from_missing_and_available(
                    name, table.column_names, "in the key, time and order columns"
                )
        check_order(table.schema, order)
        delay = self.max_out_of_orderness
        if delay is not None and delay < timedelta(0):
            raise StreamDefinitionError(f"max_out_of_orderness cannot be negative ({duration(delay)})")
        hint = 'max_out_of_orderness=timedelta(0), watermark_by=["topic", "partition"]'
        expect_strings(StreamDefinitionError, self.watermark_by, "watermark_by must be a list of columns", hint)
        if self.watermark_by and delay is None:
            raise StreamDefinitionError(
                "watermark_by requires max_out_of_orderness: otherwise, no event is late", hint=hint
            )
        for name in self.watermark_by:
            if name not in table.column_names:
                raise ColumnNotFoundError.from_missing_and_available(name, table.column_names, "in watermark_by")

    def deliver(
        self, interpreter: Interpreter, events: Mapping[int, int], rank: Ints, table: pa.Table, time: TimeColumn | None
    ) -> None:
        """Pass the events of the key, by their rows in *table* with those of all keys, and the watermarks between them."""
        if self.max_out_of_orderness is None or time is None:
            interpreter.arrive(list(events.values()))
            last = max((interpreter.times[event] for event in events.values()), default=BEFORE_TIME)
            interpreter.watermark(END_OF_TIME if self.drain else last, rank)
            return
        every, _ = _micros(table, time)
        delay = micros(self.max_out_of_orderness) + 1000
        partitions = [tuple(row.values()) for row in table.select(list(self.watermark_by)).to_pylist()]
        latest, watermark = dict[tuple[Any, ...], int](), BEFORE_TIME
        for row, moment in enumerate(every.tolist()):
            interpreter.arrive([events[row]] if row in events else [])
            partition = partitions[row] if self.watermark_by else ()
            if moment > latest.get(partition, NO_TIME):
                latest[partition] = moment
                watermark = min(latest.values()) - delay
            interpreter.watermark(max(interpreter.now, watermark), rank)
        if self.drain:
            interpreter.watermark(END_OF_TIME, rank)


def trace(
    pattern: Pattern,
    events: pa.Table | Sequence[Mapping[str, Any]],
    *,
    time: str | None,
    key: Mapping[str, Any] | None = None,
    semantics: Semantics = Semantics.DEFAULT,
    limit: int = MAX_STEPS,
    udfs: Mapping[str, Any] | None = None,
    **arrival: Unpack[ArrivalOptions],
) -> Trace:
    """Explain the effect of each event of one key on the partial matches of *pattern*: which began, advanced, were dropped,
    and why.

    :param events: all events, in arrival order: a table, or rows
    :param time: the event-time column, a timestamp or epoch milliseconds; None: processing time, all events have the same
        time
    :param key: the key whose events are traced, value by key column; None: all events have one key
    :param semantics: the default semantics, or those of Flink
    :param limit: the maximum number of steps that are kept
    :param udfs: the functions in Python that SQL can call, by name, as for :meth:`asterism.CEP.pattern_processors`
    :param arrival: the order of the events, which of them are late, and whether the input ends: see :class:`ArrivalOptions`
    :raises StreamDefinitionError: no event has that key, or the time column has an unsupported type
    :raises ColumnNotFoundError: a column of the key, the time, the order or a condition does not exist
    :raises MalformedPatternError, ExpressionError, InvalidEventError: as for a query

    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    >>> print(trace(pattern, [{"t": 1, "kind": "a"}, {"t": 2, "kind": "x"}], time="t"))
    2 events
    no matches
    closest to a match: #1 a=[1] reached a, stage 1 of 2;
      event 2: strict contiguity: the very next event had to be b: kind = 'b' is false (kind='x')
    <BLANKLINE>
    event 1  1  kind='a'
      #1 a=[1] begins; waits for b
    <BLANKLINE>
    event 2  2  kind='x'
      #1 is dropped: strict contiguity: the very next event had to be b: kind = 'b' is false (kind='x')
      begins no match: kind = 'a' is false (kind='x')
    """
    expect_options("trace", arrival, ArrivalOptions)
    with listed(checked(udfs), Purpose.WITHOUT_SPARK):
        return _traced(pattern, events, time, key, semantics, limit, _ArrivalValues(**arrival))


def _traced(
    pattern: Pattern,
    events: pa.Table | Sequence[Mapping[str, Any]],
    time: str | None,
    key: Mapping[str, Any] | None,
    semantics: Semantics,
    limit: int,
    arrives: _ArrivalValues,
) -> Trace:
    key = dict(key or {})
    table = events if isinstance(events, pa.Table) else pa.Table.from_pylist([dict(row) for row in events])
    arrives.check(table, [*key, *([time] if time is not None else [])])
    rows = rows_of_key(table, key)
    of_key = table.take(pa.array(rows))
    # The operator raises the same errors as a query, and opens the functions of conditions.
    outputs = {"late": OutputSpec(OutputKind.LATE)}
    operator = CepOperator(pattern, table.schema, time=time, outputs=outputs, semantics=semantics)
    time_column = TimeColumn(time, table.schema.field(time).type) if time is not None else None
    times, timeless = _micros(of_key, time_column)
    bound = operator.pattern
    nfa = replace(bound.nfa, conditions=tuple(bound.conditions))
    with closing(operator):
        conditions = TraceConditions(
            nfa, of_key, times, bound.plan.zone, allows_unknown_stages=semantics is Semantics.FLINK
        )
        recorder = Recorder(pattern, nfa, times, time_column, conditions, limit)
        interpreter = Interpreter(nfa, pattern.skip, times, conditions, semantics, recorder)
        for event in np.flatnonzero(timeless).tolist():
            recorder.late(event, None)
        timed = {row: event for event, row in enumerate(rows.tolist()) if not timeless[event]}
        arrives.deliver(interpreter, timed, ranks(of_key, arrives.order_by), table, time_column)
        recorder.finish(interpreter.runs, interpreter.complete)
    hidden = {time, *key}
    return Trace(
        key=key,
        events=of_key,
        times=tuple(recorder.shown_time(moment) for moment in times.tolist()),
        columns=tuple(name for name in conditions.columns if name not in hidden),
        steps=tuple(recorder.steps),
        omitted=dict(recorder.omitted),
        matches=tuple(recorder.matches),
        timeouts=tuple(recorder.timeouts),
        late=tuple(recorder.late_events),
        waiting=tuple(recorder.waiting),
        closest=recorder.closest,
        progress=recorder.progress,
        stopped=interpreter.stopped,
    )


def rows_of_key(table: pa.Table, key: Mapping[str, Any]) -> Ints:
    mask = np.ones(table.num_rows, np.bool_)
    for name, value in key.items():
        column = table.column(name)
        if value is None:
            mask &= column.is_null().to_numpy()
            continue
        if pa.types.is_null(column.type):  # no event has a value there, as in a file without rows
            mask[:] = False
            continue
        try:
            # A string from the command line may denote a value of any type.
            wanted = pa.scalar(value).cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise StreamDefinitionError(
                f"{value!r} cannot be a value of the key column {name!r}, which is of type {name_of(column.type)}"
            ) from None
        mask &= pc.fill_null(pc.equal(column, wanted), False).to_numpy()
    if not mask.any():
        raise _no_such_key(table, key)
    return np.flatnonzero(mask)


def _no_such_key(table: pa.Table, key: Mapping[str, Any]) -> StreamDefinitionError:
    if not table.num_rows:
        return StreamDefinitionError("there are no events")
    existing = table.select(list(key)).group_by(list(key), use_threads=False).aggregate([])
    texts = [key_text(values) for values in existing.slice(0, MAX_COMPARED).to_pylist()]
    close = difflib.get_close_matches(key_text(key), texts, n=3)
    few = texts[:MAX_SHOWN]
    if existing.num_rows > len(few):
        few.append(f"... ({existing.num_rows:,} in all)")
    return StreamDefinitionError(
        f"no event has the key {key_text(key)}",
        "\n".join(["Existing keys:", *few]),
        f"did you mean {(' or ' if len(key) == 1 else '; or ').join(close)}?" if close else None,
    )


def key_text(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{printable(name)}={shown(value)}" for name, value in key.items())


def _micros(events: pa.Table, time_column: TimeColumn | None) -> tuple[Ints, Any]:
    """The event times in microseconds, and a mask of the events without a time."""
    if time_column is None:
        return np.zeros(events.num_rows, np.int64), np.zeros(events.num_rows, np.bool_)
    column = time_column.to_micros(events.column(time_column.name))
    return pc.fill_null(column, BEFORE_TIME).to_numpy(), column.is_null().to_numpy()


def ranks(events: pa.Table, order_by: Sequence[str]) -> Ints:
    """The rank of each event in the secondary order; ties are broken by arrival order."""
    order = order_of(events, [SortKey.of(text) for text in order_by])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank
