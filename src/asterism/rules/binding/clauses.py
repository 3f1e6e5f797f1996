"""Matches the MATCH_RECOGNIZE clause of one pattern processor.

The clause is matched as over any stream (:mod:`asterism.row_patterns.operator`), with extra columns: the key text of the copies
(:mod:`asterism.rules.binding.replication`) is the partition, and the time of an event and its position among the events of its
key and time identify it, for match ids. The state of a processor is one page of that operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.columns.arrays import Ints, Mask, cast_table, cast_to, one_chunk
from asterism.columns.failures import failure_of, first_failure
from asterism.columns.ids import ids_of_numbers, seed_of
from asterism.columns.keys import KEY
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, MILLISECONDS, TIME, TimeColumn
from asterism.errors import ExpressionError, ExpressionSyntaxError, LimitExceededError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import plain_column
from asterism.expressions.parsing import conjuncts
from asterism.expressions.ranges import Alternative, Ranges, ranges_of
from asterism.matching.spec import PROCESSING_TIME
from asterism.operators.key_group import Group
from asterism.operators.operator import EVENTS
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import MemoryStore
from asterism.row_patterns.automaton import ACCEPT, AT_START, RowAutomaton
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.clause.clause import (
    Clause,
    ExpressionText,
    Measure,
    OrderKey,
    PartitionKey,
    RowsPerMatch,
    SkipTo,
)
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.operator import LARGEST_LIMIT, MATCHES, RowPatternOperator
from asterism.row_patterns.resolution import MatchProcessingTime, RowValue
from asterism.rules.definition.processor import PatternProcessor
from asterism.text.printable import quoted_name

MAX_WORK = 10**8
"""The largest product of the edges of a pattern and the rows of a key with which its search waits, and also the new rows that are
searched together. It limits the memory of a search, and its time to some tenths of a second for the waiting rows of a key.
"""
MAX_HELD = 1_000_000
"""The maximum number of result rows that are buffered until the search has succeeded. Beyond it, they are computed again."""
ANY_TIME = TimeColumn("", PROCESSING_TIME.type)
"""Stands for the event-time column if the stream is not known."""


def clause_of(processor: PatternProcessor, time: str | None = None) -> MatchRecognize:
    """The clause of a rule in SQL. Without an ORDER BY, its rows are in the order of the event time *time*."""
    assert processor.sql is not None
    match_recognize = MatchRecognize(processor.sql)
    if not match_recognize.clause.order_by and time is not None:
        order = (OrderKey(ExpressionText(quoted_name(time))),)
        match_recognize.clause = replace(match_recognize.clause, order_by=order)
    return match_recognize


def traced_clause_of(processor: PatternProcessor, time: str | None = None) -> MatchRecognize:
    """:func:`clause_of` for a trace. A rule needs neither a key nor measures, and a statement has at least one column."""
    match_recognize = clause_of(processor, time)
    clause = match_recognize.clause
    if clause.rows is RowsPerMatch.ONE and not clause.partition_by and not clause.measures:
        match_recognize.clause = replace(clause, measures=(Measure(ExpressionText("MATCH_NUMBER()"), "match_number"),))
    return match_recognize


class ClauseOutcome(NamedTuple):
    """The state after a search and its next deadline; or the time and the reason of its failure."""

    state: bytes | None
    deadline: int
    failed_at: int = 0
    error: Exception | None = None


class ClauseOfRule:
    """A clause over the events of a stream with the event-time column *time*.

    :param limit: the maximum number of rows of a key with which the search waits for more
    :param id_names: the part of match ids that distinguishes this clause from others
    :ivar starts: ranges of columns that contain every event with which a match can begin; None if they are not known, or if
        events before the first one of a match matter, too
    :raises asterism.errors.ExpressionError: the clause cannot be used over this stream; with the position in the text
    """

    def __init__(
        self, written: Clause, schema: pa.Schema, time: TimeColumn, limit: int | None, *id_names: str | int
    ) -> None:
        self.schema, self.time = schema, time
        self.one_row = written.rows is RowsPerMatch.ONE
        self.measures = [measure.name for measure in written.measures]
        self._seed = seed_of(MATCHES, *id_names)
        _check_times(written, time)
        taken = [name.lower() for name in (*schema.names, *self.measures)]
        prefix = "__"
        while any(name.startswith(prefix) for name in taken):
            prefix += "_"
        self._key, self._time, self._position, self._label, self._labels, *self._ends = (
            prefix + name
            for name in ("key", "time", "position", "label", "labels", "start", "start_position", "end", "end_position")
        )
        self._all_ways = written.skip.to is SkipTo.NO_SKIP
        known = time.name in schema.names and time != PROCESSING_TIME
        internal_fields = [
            pa.field(self._key, pa.string()),
            pa.field(self._time, pa.int64() if known else PROCESSING_TIME.type),
            pa.field(self._position, pa.int64()),
        ]
        rows = pa.schema([*schema, *internal_fields], metadata=schema.metadata)
        self._fields = internal_fields
        checked = self._with_own_columns(written, rows, time.name if known else self._time)
        for measure, resolved in zip(
            written.measures, checked.measures, strict=False
        ):  # followed by the internal columns
            if MatchProcessingTime() in resolved.leaves:
                problem = "MATCH_PROCTIME cannot be used in rules"
                hint = "MATCH_ROWTIME(); or current_timestamp() in a column of the query that writes the matches"
                raise ExpressionSyntaxError.at(problem, written.text, measure.expression.start, hint)
        self._at_once = max(MAX_WORK // len(checked.automaton.edges), 1)
        most = min(limit or LARGEST_LIMIT, self._at_once)
        self.operator = RowPatternOperator(checked, rows, pages=1, max_rows=most)
        self.starts = _starts(checked, checked.automaton, schema)
        if written.order_by and time != ANY_TIME and self.operator.time.name != time.name:
            problem = f"ORDER BY must begin with the event time of the stream, {time.name!r:.100}"
            start = written.order_by[0].expression.start
            raise ExpressionSyntaxError.at(problem, written.text, start, f"ORDER BY {quoted_name(time.name)}")

    def _with_own_columns(self, written: Clause, rows: pa.Schema, time: str) -> CheckedClause:
        columns = (self._time, self._position)
        texts = [f"{call}({quoted_name(name)})" for call in ("FIRST", "FINAL LAST") for name in columns]
        measures = [Measure(ExpressionText(text), name) for text, name in zip(texts, self._ends, strict=True)]
        if not self.one_row:
            measures.append(Measure(ExpressionText("CLASSIFIER()"), self._label))
        if self._all_ways:  # several matches can have the same rows
            measures.append(Measure(ExpressionText("FINAL array_agg(CLASSIFIER())"), self._labels))
        clause = replace(
            written,
            partition_by=(PartitionKey(ExpressionText(quoted_name(self._key))),),
            order_by=written.order_by or (OrderKey(ExpressionText(quoted_name(time))),),
            measures=(*written.measures, *measures),
        )
        try:
            checked = check(clause, rows)
        except ExpressionError:
            # Messages must name only columns of the events.
            known = time in self.schema.names
            check(replace(written, order_by=clause.order_by) if known else replace(written, within=None), self.schema)
            raise
        # For messages, which show the key as it is in the output.
        key = PartitionKey(ExpressionText("key"))
        shown = replace(clause, partition_by=(key,), order_by=written.order_by or (OrderKey(ExpressionText(time)),))
        types = [measure.type for measure in checked.measures]
        output = [pa.field(measure.name, of) for measure, of in zip(clause.measures, types, strict=True)]
        events = [] if self.one_row else list(self.schema)
        return replace(
            checked, clause=shown, output=pa.schema([*self._fields[:1], *output, *self._fields[1:], *events])
        )

    @property
    def expressions(self) -> list[Vectorized]:
        """All computed expressions except the aggregates."""
        clause = self.operator.clause
        bodies = [condition.resolved.body for condition in clause.conditions.values()]
        bodies += [measure.body for measure in clause.measures]
        return [clause.rows.values, *(calls.arguments for calls in clause.rows.calls.values()), *bodies]

    def rows_of(self, copies: pa.Table, positions: pa.Array, needed: Mask | None) -> pa.Table:
        """The rows of the operator for the *copies* that the processor sees, in arrival order.

        :param positions: of each event among those of its key and time
        :param needed: some of the copies; None: all
        """
        schema = self.operator.inputs[EVENTS].schema
        internal_columns = {self._key: copies.column(KEY), self._time: copies.column(TIME), self._position: positions}
        columns = [
            internal_columns[name] if name in internal_columns else copies.column(f"e:{name}") for name in schema.names
        ]
        rows = pa.table(columns, names=schema.names)
        if needed is not None and not needed.all():
            rows = rows.filter(pa.array(needed))
        return self.operator.prepare(EVENTS, cast_table(rows, schema))

    def definition_named_as(self, other: ClauseOfRule) -> StateDefinition:
        """The definition of the state, in which the columns that are not those of events have their names in *other*."""
        names = {f"e:{mine.name}": f"e:{theirs.name}" for mine, theirs in zip(self._fields, other._fields, strict=True)}
        definition = self.operator.definition
        tables = {
            name: pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])
            for name, schema in definition.tables.items()
        }
        return replace(definition, tables=tables)

    def waiting_keys(self, state: bytes) -> pa.Array:
        return one_chunk(self.operator.keys_in(state).column(0))

    def waiting_rows(self, state: bytes) -> int:
        """The number of rows of undecided matches in the state."""
        return self.operator.count_waiting(state)

    def search(
        self, state: bytes | None, rows: pa.Table, until: int, horizon: int, *, over: bool
    ) -> Generator[pa.Table, None, ClauseOutcome]:
        """Search *rows* and those of *state* up to *horizon*, or to the end of the input if it is *over*. Yields results.

        If the search fails, it counts up to the time at which it first fails, wherever the micro-batch ends.

        :param until: rows from this time on do not count
        """
        error = None
        while True:
            call = _ClauseCall(self, state, rows, horizon, over)
            try:
                held, outcome = _held(call.results(until))
                break
            except MemoryError:
                raise
            except Exception as reason:
                until, error = call.first_time_that_fails(until, reason)
                error = _as_limit_of_rules(error)
        yield from call.results(until) if held is None else held
        return outcome if error is None else ClauseOutcome(None, END_OF_TIME, until, error)

    def advance(
        self, state: bytes | None, rows: pa.Table, horizon: int, *, over: bool
    ) -> Generator[pa.Table, None, ClauseOutcome]:
        """Search all rows in parts whose sizes do not depend on how many rows arrive together."""
        parts, ends = self._by_time(rows)
        for part, end in zip(parts[:-1], ends, strict=True):
            state = (yield from self._advance(state, part, end, over=False)).state
        return (yield from self._advance(state, parts[-1], horizon, over=over))

    def _by_time(self, rows: pa.Table) -> tuple[list[pa.Table], list[int]]:
        """Parts of the rows, and the last time of each part but the last."""
        if rows.num_rows <= self._at_once:
            return [rows], []
        times = rows.column(TIME).to_numpy()
        order = np.argsort(times, kind="stable")
        rows, times = rows.take(pa.array(order)), times[order]
        bounds = [0]
        while bounds[-1] + self._at_once < len(times):
            begin = bounds[-1]
            end = int(np.searchsorted(times, times[begin + self._at_once]))
            # Rows of one time cannot be divided.
            bounds.append(end if end > begin else int(np.searchsorted(times, times[begin], "right")))
        bounds = [bound for bound in bounds if bound < len(times)]
        parts = [rows.slice(begin, end - begin) for begin, end in pairwise([*bounds, len(times)])]
        return parts, [int(times[bound - 1]) for bound in bounds[1:]]

    def _advance(
        self, state: bytes | None, rows: pa.Table, horizon: int, *, over: bool
    ) -> Generator[pa.Table, None, ClauseOutcome]:
        """One call of the operator."""
        store, header = MemoryStore(), GroupHeader.new(b"", 1, 0, 0)
        if state is not None:
            store.write_page(0, state)
            header.next_event_times[0] = horizon
        group = Group(store, header, horizon, horizon, before=horizon, over=over)
        for _ in self.operator.advance(group, {EVENTS: rows}, horizon):
            yield from group.taken().values()
        return ClauseOutcome(store.read_page(0), int(header.next_event_times[0]))

    def keys_of(self, results: pa.Table) -> pa.Array:
        return one_chunk(results.column(self._key))

    def ids_of(self, results: pa.Table) -> pa.Array:
        """The match id of each row. With ALL ROWS PER MATCH, each row of a match has a separate id."""
        row = [_integers(results.column(name)) for name in (self._time, self._position)]
        keys = self.keys_of(results)
        if self._all_ways:
            labels = pc.coalesce(pc.binary_join(one_chunk(results.column(self._labels)), " "), "")
            keys = pc.binary_join_element_wise(keys, labels, "\n")
        return ids_of_numbers(self._seed, keys, [*self.ends_of(results), *row])

    def ends_of(self, results: pa.Table) -> list[Ints]:
        """The time and position of the first row of the match of each row, and those of its last row."""
        row = [_integers(results.column(name)) for name in (self._time, self._position)]
        return [_integers(results.column(name), of_row) for name, of_row in zip(self._ends, [*row, *row], strict=True)]

    def times_of(self, results: pa.Table) -> list[pa.Array]:
        """The times of the first and of the last row of the match, and the time at which it is complete, that of the last row."""
        row = _integers(results.column(self._time))
        first, last = (_integers(results.column(name), row) for name in self._ends[::2])
        start, end = (self.time.from_micros(micros, last) for micros in (first, last))
        return [start, end, end]

    def events_of(self, results: pa.Table, type_: pa.DataType) -> pa.Array:
        """With ALL ROWS PER MATCH the event of each row with its variable, otherwise NULL."""
        if self.one_row:
            return pa.nulls(results.num_rows, type_)
        fields = list(type_.value_type.field("event").type)  # without lookups
        columns = [one_chunk(results.column(field.name)) for field in fields]
        events = pa.StructArray.from_arrays(columns, fields=fields)
        pairs = pa.StructArray.from_arrays([one_chunk(results.column(self._label)), events], names=["stage", "event"])
        offsets = pa.array(np.arange(results.num_rows + 1, dtype=np.int32))
        return cast_to(pa.ListArray.from_arrays(offsets, pairs), type_)


@dataclass(frozen=True, slots=True)
class _ClauseCall:
    """A search whose end can be moved to an earlier time."""

    clause: ClauseOfRule
    state: bytes | None
    rows: pa.Table
    horizon: int
    over: bool

    def results(self, until: int) -> Generator[pa.Table, None, ClauseOutcome]:
        if until > self.horizon or until == END_OF_TIME:
            return (yield from self.clause.advance(self.state, self.rows, self.horizon, over=self.over))
        rows = self.rows.filter(pc.less(self.rows.column(TIME), until))
        return (yield from self.clause.advance(self.state, rows, until - 1, over=False))

    def first_time_that_fails(self, until: int, error: Exception) -> tuple[int, Exception]:
        """The first time at which the search fails, and why. It fails before *until*, with *error* at the latest."""
        times = np.unique(self.rows.column(TIME).to_numpy())
        times = times[times < until]
        # The number of the row with which it fails.
        first, error = first_failure(lambda number: self._failure(int(times[number])), 0, len(times), error)
        last = int(times[first]) if first < len(times) else min(until - 1, self.horizon)
        reason = self._failure(last - 1)
        if reason is None:
            return last, error
        # It fails between two rows, when WITHIN has passed.
        good = int(times[first - 1]) if first else BEFORE_TIME
        return first_failure(self._failure, good + 1, last - 1, reason)

    def _failure(self, time: int) -> Exception | None:
        """Why the search up to and including *time* fails."""
        return failure_of(lambda: deque(self.results(time + 1), maxlen=0))


def _check_times(written: Clause, time: TimeColumn) -> None:
    if written.within is not None and pa.types.is_integer(time.type) and time.unit != MILLISECONDS:
        problem = f"WITHIN needs a TIMESTAMP, or a BIGINT of milliseconds; {time.name!r:.100} counts {time.unit}"
        raise ExpressionSyntaxError.at(problem, written.text, written.within.start)
    if written.order_by and time == PROCESSING_TIME:
        problem = "the stream has no event time, so its events are in the order of their arrival"
        start = written.order_by[0].expression.start
        raise ExpressionSyntaxError.at(problem, written.text, start, "leave out ORDER BY")


def _as_limit_of_rules(error: Exception) -> Exception:
    """The error with the limit of rows named as the limit of partial matches: rules have only the latter."""
    if not isinstance(error, LimitExceededError) or "max_rows" not in error.message:
        return error
    hint = "WITHIN, a pattern whose matches end, or a larger maxPartialMatches; see docs/limits.md"
    return LimitExceededError(error.message.replace("max_rows", "maxPartialMatches"), error.detail, hint)


def _held(results: Generator[pa.Table, None, ClauseOutcome]) -> tuple[list[pa.Table] | None, ClauseOutcome]:
    """The results, unless they are too many, and the outcome."""
    held: list[pa.Table] | None = []
    rows = 0
    while True:
        try:
            part = next(results)
        except StopIteration as end:
            return held, end.value
        rows += part.num_rows
        if held is not None and rows <= MAX_HELD:
            held.append(part)
        else:
            held = None


def _starts(clause: CheckedClause, automaton: RowAutomaton, events: pa.Schema) -> Ranges | None:
    """Ranges of columns that contain every event with which a match can begin; None: unknown, or earlier events matter, too."""
    earlier = clause.reach_of_conditions[0] or clause.reach_of_measures[0]
    if earlier or (automaton.edges[:, 1] & AT_START).any() or clause.clause.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
        return None
    alternatives: dict[Alternative, None] = {}
    for target, _, _ in automaton.edges_of(automaton.start):
        if target == ACCEPT:
            return None
        ranges = _ranges_of(clause, automaton.names[automaton.variables[target]], events)
        if ranges is None:
            return None
        alternatives |= dict.fromkeys(ranges)
    return tuple(alternatives)


def _ranges_of(clause: CheckedClause, variable: str, events: pa.Schema) -> Ranges | None:
    """Ranges that contain every event that satisfies a condition. None if they are not known, or if the condition can fail: then
    the choice of evaluated events must not matter.
    """
    condition = clause.conditions.get(variable)
    if condition is None or condition.reach is None:
        return None
    resolved, values = condition.resolved, clause.rows.values
    if resolved.body.translate(resolved.tree, resolved.source.text).raises:
        return None
    columns: dict[str, str] = {}
    for number, leaf in enumerate(resolved.leaves):
        assert isinstance(leaf, RowValue)
        column = plain_column(values.texts[leaf.number])
        if column is None:
            return None
        if leaf.place.steps == 0 and column < len(events):
            columns[f"leaf_{number}"] = events.names[column]
    able = []
    whole = Vectorized(events)
    for part in conjuncts(resolved.tree):
        read = [column.name for column in part.find_all(exp.Column)]
        if all(name in columns for name in read):
            parenthesized = exp.Paren(this=part.copy())
            for node in list(parenthesized.find_all(exp.Column)):
                node.set("this", exp.to_identifier(columns[node.name], quoted=True))
            if ranges_of(whole.translate(parenthesized.this, resolved.source.text)) is not None:
                able.append(parenthesized.this)
    return ranges_of(whole.translate(exp.and_(*able), resolved.source.text)) if able else None


def _integers(column: pa.ChunkedArray, instead: Ints | None = None) -> Ints:
    """The values, and those of *instead* where they are NULL: an empty match, or an unmatched row, has no first row."""
    integers = one_chunk(column).cast(pa.int64())
    if instead is not None:
        integers = pc.coalesce(integers, pa.array(instead))
    values: Ints = integers.to_numpy(zero_copy_only=False)
    return values
