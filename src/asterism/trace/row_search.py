"""Searches the matches of a clause in one partition, from one start after the other. Records the attempts and why they fail.

The search tries the edges of the automaton in the order of preference that the SQL standard defines. It also tries rows that
cannot lead to a match if they explain why there is none.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, islice, zip_longest

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.columns.arrays import Ints
from asterism.columns.groups import mask_of
from asterism.errors import InvalidEventError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.parsing import conjuncts, sql_of, tokenize
from asterism.row_patterns.automaton import ACCEPT, AT_DEADLINE, AT_END, AT_START
from asterism.row_patterns.clause.clause import NotNext, SkipTo
from asterism.row_patterns.ordered_rows import OrderedRows, Path
from asterism.row_patterns.resolution import ResolvedExpression, parsed
from asterism.row_patterns.wording import name_text
from asterism.text.printable import one_line
from asterism.trace.conditions import MAX_TEXT
from asterism.trace.late_rows import LateRows
from asterism.trace.steps import Check, Taken, TraceStoppedError

MAX_TRIED = 1_000
"""The maximum number of tried rows per start that cannot lead to a match, and of refusals that are kept."""
MAX_TESTS = 200_000
"""The maximum number of steps of a trace. A tested row is one step, or ASKED if its condition depends on the match."""
ASKED = 20


class Obstacle(enum.Enum):
    """Why a row could not be taken for a variable."""

    CONDITION = "condition"
    GREEDY = "greedy loop"
    """In the dialect of Flink: the row satisfies the condition of the loop before it."""
    NEGATED = "must not follow"
    """The row satisfies the variable of ``[^B]`` or ``A+{B}``."""
    WITHIN = "window"
    NO_MORE_ROWS = "no more rows"
    NOT_AT_START = "not at the start of the partition"
    NOT_AT_END = "not at the end of the partition"


class StartOutcome(enum.Enum):
    """The outcome of the search that could begin at a row."""

    MATCHED = "matched"
    TIMED_OUT = "timed out"
    NOT_MATCHED = "not matched"
    SKIPPED = "skipped after a match"


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A row that could not be taken for a variable.

    :ivar row: its number, from 1; one more than there are rows if there are no more
    :ivar variable: empty for the end of the match, which must be at the end of the partition
    :ivar took: the rows that the match had so far
    :ivar checks: the parts of the condition that are not true, with the values that they read; like *took*, it is only known of
        the row that the search reached last
    :ivar after: of a row that is too late, its time after the first row of the match
    """

    row: int
    variable: str
    why: Obstacle
    took: Taken = ()
    checks: tuple[Check, ...] = ()
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TracedStart:
    """The search that could begin at a row.

    :ivar row: the number of the row, from 1
    :ivar match: the number of the match, also of a timeout; of a skipped row, that of the match before
    :ivar took: the rows of the match, or the most that were taken
    :ivar tried: the rows that could not be taken, in the order of the attempts
    """

    row: int
    outcome: StartOutcome
    match: int | None = None
    took: Taken = ()
    tried: tuple[TriedRow, ...] = ()

    @property
    def reached(self) -> int:
        """The number of the last row that was tried."""
        return max((tried.row for tried in self.tried), default=self.row)


@dataclass(frozen=True, slots=True)
class _TakenRow:
    """The last row of a path: its state, and the path before it."""

    state: int
    before: _TakenRow | None

    def states(self) -> list[int]:
        path, at = [self.state], self.before
        while at is not None:
            path.append(at.state)
            at = at.before
        return path[::-1]


_Refused = dict[tuple[int, int, Obstacle], tuple[int, _TakenRow | None]]
"""The refusals: maps row, variable (-1 for none) and reason to the state and the path of the first attempt."""


class RowSearch:
    """The search in one partition. As many starts as *explained* show the values that conditions read."""

    def __init__(self, ordered: OrderedRows, explained: int) -> None:
        from asterism.row_patterns import kernels as k
        from asterism.row_patterns.match_conditions import ClauseConditions
        from asterism.row_patterns.search import pattern_tables

        clause, automaton = ordered.clause, ordered.clause.automaton
        self._clause, self._automaton, self._ordered, self._explained = clause, automaton, ordered, explained
        self._count: int = ordered.rows.num_rows
        self._edges = [automaton.edges_of(state) for state in range(automaton.start + 1)]
        self._state_of: list[int] = automaton.state_of.tolist()
        self._late = LateRows(ordered, self._edges)
        bound = ClauseConditions(clause).bound(ordered)
        self._bits, self._near = bound.bits, bound.near
        self._ends: Ints = np.empty((self._count, automaton.start), np.int32)
        times = ordered.times()
        self._times: list[int] = times.tolist()
        tables = k.RowTables(ordered.offsets, self._bits, False, bound.values, times)
        k.fill_ends(pattern_tables(clause), tables, 0, self._count, 0, self._count, self._ends)
        self._parts = _ConditionParts(ordered)
        self._implied = {
            node.name for node in clause.clause.pattern.walk() if isinstance(node, NotNext) and node.implied
        }
        self._tests = self._until = self._furthest = 0
        self.starts: list[TracedStart] = []
        self.stopped = ""

    def run(self) -> None:
        """Search at one row after the other. If the trace cannot continue, *stopped* says why.

        :raises asterism.errors.InvalidEventError: a condition that matters cannot be computed
        """
        start, number = 0, 0
        while start < self._count:
            refused: _Refused = {}
            try:
                matches = self._matches_from(start, number + 1, refused)
                all_matches = self._clause.clause.skip.to is SkipTo.NO_SKIP
                matches_of_start = self._distinct(matches) if all_matches else [*islice(matches, 1)]
                outcome = StartOutcome.MATCHED
                if not matches_of_start and self._clause.clause.timeouts:
                    matches_of_start = [*islice(self._matches_from(start, number + 1, {}, partial=True), 1)]
                    outcome = StartOutcome.TIMED_OUT
                if not matches_of_start:
                    self.starts.append(self._explained_start(start, StartOutcome.NOT_MATCHED, [], number + 1, refused))
                    start += 1
                    continue
                for states in matches_of_start:
                    number += 1
                    self.starts.append(self._explained_start(start, outcome, states, number, refused))
                following = start + 1 if outcome is StartOutcome.TIMED_OUT else self._next_start(start, states)
            except TraceStoppedError as stopped:
                self.stopped = str(stopped)
                return
            self.starts += [
                TracedStart(row + 1, StartOutcome.SKIPPED, number)
                for row in range(start + 1, min(following, self._count))
            ]
            start = following

    # ------------------------------------------------------------------------------------------------ one start

    def _matches_from(
        self, start: int, number: int, refused: _Refused, *, partial: bool = False
    ) -> Iterator[list[int]]:
        """The states of the rows of each match from *start* on, the preferred first. *partial*: those that time out instead."""
        until = self._until = self._end_of_time(start)
        failed: set[tuple[int, int]] = set()
        path: list[_TakenRow] = []
        open_edges = [iter(self._edges[self._automaton.start])]
        hopeless, matched = 0, -1
        went_on = False
        while open_edges:
            row, last = start + len(path), path[-1] if path else None
            if partial and went_on and row < until and self._late.limits:
                self._tests += ASKED
                if self._late.times_out(start, number, [taken.state for taken in path], self._times[row]):
                    yield self._shortened(path)
            went_on = False
            for target, guards, unless in open_edges[-1]:
                if guards & AT_START and row != 0:
                    self._refuse(refused, row, target, Obstacle.NOT_AT_START, last)
                elif guards & AT_END and row != self._count:
                    self._refuse(refused, row, target, Obstacle.NOT_AT_END, last)
                elif partial and (target == ACCEPT or guards & AT_END):
                    continue
                elif target == ACCEPT:
                    if guards & AT_DEADLINE and row < until:
                        continue
                    if row < until and self._negates(start, number, last, target, unless, row, refused, True):
                        continue
                    matched = len(path)
                    yield self._shortened(path) if guards & AT_DEADLINE else [taken.state for taken in path]
                elif partial and row >= until:
                    yield self._shortened(path)
                elif row >= until:
                    late = Obstacle.NO_MORE_ROWS if row == self._count else Obstacle.WITHIN
                    self._refuse(refused, row, target, late, last)
                elif (target, row) not in failed:
                    matters = bool(self._ends[row, target] <= until)
                    hopeless += not matters
                    if not matters and hopeless > MAX_TRIED:
                        continue
                    if self._negates(start, number, last, target, unless, row, refused, matters):
                        continue
                    if self._holds(start, number, last, target, row, matters=matters):
                        path.append(_TakenRow(target, last))
                        open_edges.append(iter(self._edges[target]))
                        went_on = True
                        break
                    else:
                        self._refuse(refused, row, target, Obstacle.CONDITION, last)
            if not went_on:
                open_edges.pop()
                # Nothing that follows this row matches, whatever precedes it.
                if path and self._near and len(path) > matched:
                    failed.add((path[-1].state, row - 1))
                matched = min(matched, len(path) - 1)
                if path:
                    path.pop()

    def _end_of_time(self, start: int) -> int:
        """The first row that is too late for a match that begins at *start*."""
        until, within = max(start, self._until), self._clause.within
        while until < self._count and (within is None or abs(self._times[until] - self._times[start]) <= within):
            until += 1
        return until

    def _distinct(self, matches: Iterator[list[int]]) -> list[list[int]]:
        """All matches; of those with the same variables the first."""
        by_variables: dict[tuple[int, ...], list[int]] = {}
        for states in matches:
            by_variables.setdefault(tuple(self._automaton.variables[states].tolist()), states)
        return [*by_variables.values()]

    def _shortened(self, path: Sequence[_TakenRow]) -> list[int]:
        """The states of a path without the rows at its end that are not in the output, except for the first row."""
        states = [taken.state for taken in path]
        while len(states) > 1 and self._automaton.excluded[states[-1]]:
            states.pop()
        return states

    def _negates(
        self, start: int, number: int, last: _TakenRow | None, target: int, unless: Sequence[int], row: int,
        refused: _Refused, matters: bool,
    ) -> bool:  # fmt: skip
        """Whether a row satisfies a variable that it must not satisfy."""
        for variable in unless:
            state = self._state_of[variable]
            if self._holds(start, number, last, state, row, matters=matters):
                implied = self._automaton.names[variable] in self._implied
                why, refused_state = (Obstacle.GREEDY, target) if implied else (Obstacle.NEGATED, state)
                self._refuse(refused, row, refused_state, why, last)
                return True
        return False

    def _refuse(self, refused: _Refused, row: int, state: int, why: Obstacle, last: _TakenRow | None) -> None:
        variable = int(self._automaton.variables[state]) if state != ACCEPT else -1
        if (row, variable, why) in refused:
            return
        if len(refused) >= MAX_TRIED:
            if row < self._furthest:
                return
            del refused[next(iter(refused))]
        self._furthest = row if not refused else max(row, self._furthest)
        refused[row, variable, why] = state, last

    def _holds(self, start: int, number: int, last: _TakenRow | None, state: int, row: int, *, matters: bool) -> bool:
        """Whether a row satisfies the condition of a state after a path. An error is FALSE, and is raised if it *matters*."""
        from asterism.row_patterns import kernels as k
        from asterism.row_patterns.search import decided

        self._tests += 1
        if self._tests > MAX_TESTS:
            raise TraceStoppedError(f"more than {MAX_TESTS:,} steps")
        variable = self._automaton.variables[state]
        condition = self._clause.conditions.get(self._automaton.names[variable])
        bit = self._bits[row, variable]
        if condition is None or bit == k.FAILS or (bit == k.HOLDS and condition.reach is not None):
            return bool(bit != k.FAILS)
        self._tests += ASKED
        try:
            return decided(self._ordered, _path(start, number, last, state))
        except InvalidEventError:
            if matters:
                raise
            return False

    def _next_start(self, start: int, states: Sequence[int]) -> int:
        skip = self._clause.clause.skip
        if skip.to in (SkipTo.FIRST, SkipTo.LAST):
            meant = self._clause.meant_by(skip.variable)[self._automaton.variables[states]] if states else np.zeros(0)
            places = np.flatnonzero(meant)
            words = f"AFTER MATCH SKIP {skip.to.value} {name_text(skip.variable or '')}: the query fails, because"
            if not len(places):
                raise TraceStoppedError(f"{words} the match has no such row")
            place = int(places[0 if skip.to is SkipTo.FIRST else -1])
            if place == 0:
                raise TraceStoppedError(f"{words} that is the first row of the match")
            return start + place
        return start + (1 if skip.to in (SkipTo.NEXT_ROW, SkipTo.NO_SKIP) or not states else len(states))

    # ------------------------------------------------------------------------------------------------ records

    def _explained_start(
        self, start: int, outcome: StartOutcome, states: Sequence[int], number: int, refused: _Refused
    ) -> TracedStart:
        furthest = max((row for row, _, _ in refused), default=start)
        with_values = len(self.starts) < self._explained
        most: Taken = ()
        tried_rows = []
        for (row, variable, why), (state, last) in refused.items():
            took: Taken = ()
            checks: tuple[Check, ...] = ()
            if row == furthest:
                took = most = self._taken(start, last.states() if last is not None else [])
                if with_values and why is Obstacle.CONDITION:
                    checks = self._parts.checks(_path(start, number, last, state))
            name = self._automaton.names[variable] if variable >= 0 else ""
            tried_rows.append(TriedRow(row + 1, name, why, took, checks, self._after(start, row, why)))
        tried = tuple(tried_rows)
        if outcome is StartOutcome.NOT_MATCHED:
            return TracedStart(start + 1, outcome, None, most, tried)
        return TracedStart(start + 1, outcome, number, self._taken(start, states), tried)

    def _after(self, start: int, row: int, why: Obstacle) -> timedelta | None:
        if why is not Obstacle.WITHIN:
            return None
        return timedelta(microseconds=abs(self._times[row] - self._times[start]))

    def _taken(self, start: int, states: Sequence[int]) -> Taken:
        labels = [
            (self._automaton.names[self._automaton.variables[state]], start + n + 1) for n, state in enumerate(states)
        ]
        return tuple(
            (name, tuple(row for _, row in group)) for name, group in groupby(labels, key=lambda label: label[0])
        )


def _path(start: int, number: int, last: _TakenRow | None, state: int) -> Path:
    return start, 0, number, np.array([*(last.states() if last is not None else []), state], np.int64)


class _ConditionParts:
    """The conjuncts of conditions, to show which of them are not true, and which values they read."""

    def __init__(self, ordered: OrderedRows) -> None:
        self._clause, self._automaton, self._ordered = ordered.clause, ordered.clause.automaton, ordered
        self._known: dict[str, list[tuple[str, Vectorized, list[tuple[int, str]]]]] = {}

    def checks(self, path: Path) -> tuple[Check, ...]:
        """The conjuncts of the condition of the last row of a path that are not true; the whole condition if all are."""
        from asterism.row_patterns.search import leaves_of_path

        name = self._automaton.names[self._automaton.variables[path[3][-1]]]
        resolved = self._clause.conditions[name].resolved
        if name not in self._known:
            self._known[name] = _parts_of(resolved)
        try:
            leaves = leaves_of_path(self._ordered, path)
        except InvalidEventError:
            return (Check(_text_of(resolved.source.text), None),)
        row = pa.table(leaves, schema=resolved.body.schema) if leaves else pa.table({"rows": pa.nulls(1)})
        checks_ = []
        for text, part, read in self._known[name]:
            values = tuple((label, leaves[number][0].as_py()) for number, label in read)
            try:
                holds: bool | None = bool(mask_of(part.evaluate(row)[0])[0])
            except InvalidEventError:
                holds = None
            if not holds:
                checks_.append(Check(text, holds, values))
        return tuple(checks_)


def _parts_of(resolved: ResolvedExpression) -> list[tuple[str, Vectorized, list[tuple[int, str]]]]:
    """For each conjunct its text, its expression over the leaves, and the leaves that it reads with their texts."""
    text = resolved.source.text
    trees, sources = conjuncts(resolved.tree), conjuncts(parsed(resolved.source))
    if len(trees) != len(sources):
        trees, sources = [resolved.tree], [parsed(resolved.source)]
    parts = []
    with tried_before():
        for tree, source in zip(trees, sources, strict=True):
            expression = Vectorized(resolved.body.schema)
            expression.add(tree, text)
            shown = sql_of(source) if len(trees) > 1 else text
            columns = sorted(tree.find_all(exp.Column), key=lambda column: column.this.meta["start"])
            read = {
                int(column.name.removeprefix("leaf_")): _reference_at(text, column.this.meta["start"])
                for column in columns
            }
            parts.append((_text_of(shown), expression, list(read.items())))
    return parts


def _text_of(text: str) -> str:
    return one_line(text.strip(), MAX_TEXT)


def _reference_at(text: str, start: int) -> str:
    """The column or the call that begins at a place of an expression.

    >>> _reference_at("x > RUNNING SUM(A.x + (1)) + B.y", 4), _reference_at("x > B.y", 4)
    ('RUNNING SUM(A.x + (1))', 'B.y')
    """
    tokens = [token for token in tokenize(text) if token.start >= start]
    depth, end = 0, start
    for token, following in zip_longest(tokens, tokens[1:]):
        depth += (token.text == "(") - (token.text == ")")
        end = token.end + 1
        goes_on = following is not None and (following.text in (".", "(") or token.text == ".")
        if not depth and not goes_on and token.text.upper() not in ("RUNNING", "FINAL"):
            break
    return _text_of(text[start:end])
