"""Explains why a MATCH_RECOGNIZE clause matched or did not: the rows of one partition, and the search that begins at each.

:func:`trace_rows` is the entry point; :mod:`asterism.trace.row_search` searches and records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

from asterism.arguments import expect
from asterism.errors import ColumnNotFoundError, StreamDefinitionError, printable
from asterism.expressions.names import columns_of
from asterism.expressions.routines.user_functions import Purpose, listed
from asterism.expressions.routines.user_functions import checked as functions_of
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.ordered_rows import OrderedRows
from asterism.row_patterns.resolution import AggregateValue, RowValue
from asterism.row_patterns.wording import VariableWords, name_text
from asterism.text.printable import duration, either
from asterism.trace.report import counted, key_text, numbers, rows_of_key, took_text, values_text
from asterism.trace.row_search import Obstacle, RowSearch, StartOutcome, TracedStart, TriedRow
from asterism.trace.steps import Taken, TraceLines

EXPLAINED = 200
"""How many starts are explained with the values that conditions read, by default."""


@dataclass(frozen=True, slots=True)
class RowPatternTrace(TraceLines):
    """The search of a clause in one partition; ``str`` formats it as text.

    :ivar clause: what was searched
    :ivar key: the values by which the rows were chosen
    :ivar rows: the rows of the partition, in order; row number 1 is the first
    :ivar columns: the columns that are shown
    :ivar starts: for each row the search that begins at it, or why there is none
    :ivar stopped: why the trace ended early; empty if it did not
    :ivar words: the words for the variables
    """

    clause: MatchRecognize
    key: Mapping[str, Any]
    rows: pa.Table
    columns: tuple[str, ...]
    starts: tuple[TracedStart, ...]
    stopped: str
    words: VariableWords = field(default_factory=VariableWords)

    @property
    def matches(self) -> tuple[TracedStart, ...]:
        return tuple(start for start in self.starts if start.outcome is StartOutcome.MATCHED)

    @property
    def timeouts(self) -> tuple[TracedStart, ...]:
        """The lines for SHOW TIMEOUT MATCHES."""
        return tuple(start for start in self.starts if start.outcome is StartOutcome.TIMED_OUT)

    @property
    def closest(self) -> TracedStart | None:
        """The start without a match that took most rows; None if no row was taken."""
        failed = [start for start in self.starts if start.outcome is StartOutcome.NOT_MATCHED and start.took]
        return max(failed, key=lambda start: sum(len(rows) for _, rows in start.took), default=None)

    def lines(
        self, *, limit: int | None = None, only_dropped: bool = False
    ) -> Iterator[tuple[StartOutcome | None, str]]:
        """The lines of :meth:`text`, each with the outcome of the row, or None for a headline or the summary."""
        key = f"key {key_text(self.key)}: " if self.key else ""
        yield None, f"{key}{counted(self.rows.num_rows, 'row')}"
        yield from ((None, line) for line in self._summary())
        starts = [
            start
            for start in self.starts
            if not only_dropped or start.took or start.outcome in (StartOutcome.MATCHED, StartOutcome.TIMED_OUT)
            if not only_dropped or start.outcome is not StartOutcome.SKIPPED
        ]
        few = starts[:limit]
        for skipped, group in groupby(
            few, key=lambda start: start.match if start.outcome is StartOutcome.SKIPPED else None
        ):
            if skipped is not None:
                rows = [start.row for start in group]
                yield None, ""
                skip = self.clause.clause.skip
                to = f"{skip.to.value}{f' {name_text(skip.variable)}' if skip.variable is not None else ''}"
                what = f"row {rows[0]}" if len(rows) == 1 else f"rows {numbers(rows)}"
                yield StartOutcome.SKIPPED, f"{what}: skipped after match {skipped} (SKIP {to})"
                continue
            for start in group:
                yield None, ""
                yield None, self._headline(start.row)
                yield from ((start.outcome, "  " + line) for line in _lines_of(start, self.words))
        if len(few) < len(starts):
            yield None, f"\n... and {counted(len(starts) - len(few), 'more row')}"

    def _headline(self, number: int) -> str:
        return "  ".join([f"row {number}", *values_text(self.rows, self.columns, number)])

    def _summary(self) -> Iterator[str]:
        if self.stopped:
            yield f"The trace stops here: {self.stopped}"
        timeouts = f", {counted(len(self.timeouts), 'timeout')}" if self.clause.clause.timeouts else ""
        yield counted(len(self.matches), "match", "matches") + timeouts
        closest = self.closest
        if closest is not None:
            yield f"closest to {'another' if self.matches else 'a'} match: {_took_text(closest.took, self.words)};"
            yield from (f"  {line}" for line in _last_lines(closest, self.words))


# ---------------------------------------------------------------------------------------------------- text


def _took_text(took: Taken, words: VariableWords) -> str:
    return took_text([(name, rows) for variable, rows in took if (name := words.name(variable))], str)


def _lines_of(start: TracedStart, words: VariableWords) -> Iterator[str]:
    took = _took_text(start.took, words)
    if start.outcome is StartOutcome.MATCHED:
        yield f"match {start.match}: {took or 'empty'}"
    elif start.outcome is StartOutcome.TIMED_OUT:
        yield f"timed out as match {start.match}: {took}"
    else:
        yield f"no match: {took}" if took else "no match"
    yield from _last_lines(start, words)
    others: dict[tuple[str, Obstacle], set[int]] = {}
    for tried in start.tried:
        name = words.name(tried.variable)
        if name and tried.row < start.reached and tried.why in (Obstacle.CONDITION, Obstacle.GREEDY, Obstacle.NEGATED):
            others.setdefault((name, tried.why), set()).add(tried.row)
    for (name, why), rows in others.items():
        several = f"row{'s' if len(rows) > 1 else ''} {numbers(sorted(rows))}"
        if why is Obstacle.NEGATED:
            yield f"{several} satisf{'y' if len(rows) > 1 else 'ies'} {name}, which must not come there"
            continue
        reason = ", but the condition of the greedy loop before is true" if why is Obstacle.GREEDY else ""
        yield f"also tried: {several} as {name}{reason}"


def _last_lines(start: TracedStart, words: VariableWords) -> Iterator[str]:
    """Why the row that the search reached last could not be taken."""
    for why in Obstacle:
        last = [tried for tried in start.tried if tried.row == start.reached and tried.why is why]
        if why is Obstacle.CONDITION:
            yield from dict.fromkeys(line for tried in last for line in _condition_lines(tried, words))
        elif last:
            names = words.of_all([tried.variable for tried in last if tried.variable])
            if names or not last[0].variable:
                yield _obstacle_text(last[0], either(names))


def _condition_lines(tried: TriedRow, words: VariableWords) -> Iterator[str]:
    name = words.name(tried.variable)
    if name:
        checks = "; ".join(map(str, tried.checks)) or "its condition is not true"
        yield f"row {tried.row} as {name}: {checks}"
        return
    reasons = (words.reasons.get(failed.condition) for failed in tried.checks)
    yield from (f"row {tried.row} {reason}" for reason in reasons if reason is not None)


def _obstacle_text(tried: TriedRow, names: str) -> str:
    match tried.why:
        case Obstacle.NO_MORE_ROWS:
            return f"no more rows: the next one could have been {names}"
        case Obstacle.WITHIN:
            after = "" if tried.after is None else f": {duration(tried.after)} after the first row"
            return f"row {tried.row} is too late for {names} (WITHIN){after}"
        case Obstacle.GREEDY:
            return f"row {tried.row} as {names}: the condition of the greedy loop before is true"
        case Obstacle.NEGATED:
            return f"row {tried.row} satisfies {names}, which must not come there"
        case Obstacle.NOT_AT_START:
            return f"row {tried.row} is not the first row of the partition (^)"
    return f"row {tried.row} follows, so this is not the end of the partition ($)"


# ---------------------------------------------------------------------------------------------------- entry point


def trace_rows(
    clause: MatchRecognize | str,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    key: Mapping[str, Any] | None = None,
    explained: int = EXPLAINED,
    udfs: Mapping[str, Any] | None = None,
    words: VariableWords | None = None,
) -> RowPatternTrace:
    """Explain the matches of a clause in one partition: for each row whether a match begins at it, which rows were tried for
    which variables, and why they could not be taken.

    :param rows: a table, or rows, in any order
    :param key: values of columns, by which the rows are chosen; they must be rows of one partition
    :param explained: for how many starts the values that conditions read are shown
    :param udfs: the functions in Python that SQL can call, by name, as for :meth:`asterism.CEP.pattern_processors`
    :param words: the words for the variables; None: their names
    :raises StreamDefinitionError: no row has that key, or the rows are of several partitions
    :raises ColumnNotFoundError: a column of the key does not exist
    :raises ExpressionError, InvalidEventError: as for a query

    >>> rows = [{"ts": n, "price": price} for n, price in enumerate([5, 4, 3, 6])]
    >>> clause = "ORDER BY ts MEASURES A.ts AS t PATTERN (A D{2} U) DEFINE D AS price < PREV(price), U AS price > 6"
    >>> print(trace_rows(clause, rows).text(only_dropped=True, limit=1))
    4 rows
    no matches
    closest to a match: A=[1] D=[2 3];
      row 4 as U: price > 6 is false (price=6)
    <BLANKLINE>
    row 1  ts=0  price=5
      no match: A=[1] D=[2 3]
      row 4 as U: price > 6 is false (price=6)
    <BLANKLINE>
    ... and 3 more rows
    """
    if not isinstance(clause, MatchRecognize):
        clause = MatchRecognize(clause)
    expect(StreamDefinitionError, explained, int, "explained must be a number")
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    for name in key or {}:
        if name not in table.column_names:
            raise ColumnNotFoundError.from_missing_and_available(name, table.column_names, "in the key")
    with listed(functions_of(udfs), Purpose.WITHOUT_SPARK):
        checked = check(clause.clause, table.schema)
    of_key = table.take(pa.array(rows_of_key(table, key or {})))
    ordered = OrderedRows.of(checked, of_key)
    if len(ordered.offsets) > 2:
        keys = ", ".join(printable(key_column.expression.text.strip()) for key_column in clause.clause.partition_by)
        raise StreamDefinitionError(
            f"the rows are of {len(ordered.offsets) - 1:,} partitions",
            f"PARTITION BY {keys}",
            "give a key to choose one",
        )
    search = RowSearch(ordered, explained)
    search.run()
    return RowPatternTrace(
        clause=clause,
        key=dict(key or {}),
        rows=ordered.rows,
        columns=_columns_read(checked, hidden=set(key or {})),
        starts=tuple(search.starts),
        stopped=search.stopped,
        words=words or VariableWords(),
    )


def _columns_read(clause: CheckedClause, hidden: set[str]) -> tuple[str, ...]:
    """The columns of ORDER BY, then those that conditions read."""
    values = clause.rows.values
    leaves = [leaf for condition in clause.conditions.values() for leaf in condition.resolved.leaves]
    numbers_read = [*clause.order_by, *(leaf.number for leaf in leaves if isinstance(leaf, RowValue))]
    columns = [
        values.schema.names[column] for number in numbers_read for column in sorted(columns_of(values.texts[number]))
    ]
    for leaf in leaves:
        if isinstance(leaf, AggregateValue):
            columns += clause.rows.calls[leaf.variable].read
    known = set(clause.rows.input.names) - hidden
    return tuple(name for name in dict.fromkeys(columns) if name in known)
