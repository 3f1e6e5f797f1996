"""Asks the kernel about single conditions: which of them holds for an event and a partial match, and what it has read.

Nothing is evaluated a second time in another way: each condition becomes a stage of a pattern made for the purpose, a partial
match is put in front of that stage, and the matcher shows it the event. If it is still there afterwards, the condition holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.columns.arrays import Ints
from asterism.columns.time import END_OF_TIME, TIME
from asterism.errors import AsterismError, printable
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, aggregate_of, has_aggregate
from asterism.expressions.parsing import AGGREGATES, conjuncts, parse
from asterism.matching.binding import BoundPattern
from asterism.matching.matcher import NO_SLICES, KeyedEvents, Matcher
from asterism.matching.page import Page
from asterism.patterns.automaton import Nfa
from asterism.patterns.conditions import Condition, PythonCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.wording import condition_text
from asterism.text.printable import one_line

MAX_TEXT = 200
"""Characters of a condition in an explanation."""
AT_ONCE = 200_000
"""Questions in one call of the matcher."""
_KEY = pa.schema([("question", pa.int64())])


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that was looked at: does it hold (None: it cannot be computed), and what it has read."""

    condition: str
    holds: bool | None
    values: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        if self.holds is None:
            said = "cannot be computed"
        elif self.holds:
            said = "is true"
        else:
            said = "is not true" if any(value is None for _, value in self.values) else "is false"
        values = ", ".join(f"{printable(name)}={shown(value)}" for name, value in self.values)
        return f"{self.condition} {said}" + (f" ({values})" if values else "")


def shown(value: Any) -> str:
    """A value as SQL would write it, in a few characters."""
    return "NULL" if value is None else one_line(repr(value) if isinstance(value, str) else str(value), 40)


@dataclass(frozen=True, slots=True)
class Question:
    """A condition of the automaton, or one of the parts that AND joins in it."""

    condition: Condition
    text: str
    iterative: bool
    """Does it look at the events of the partial match?"""
    columns: tuple[str, ...] = ()
    aggregates: tuple[tuple[str, str, str, int, int], ...] = ()
    """(as it is written, function, stage, number of the argument or -1, offset of FIRST and LAST)"""


def _parts(condition: SqlCondition) -> list[SqlCondition]:
    """What AND joins, if there are several and each is the same when it is written and read again."""
    trees = conjuncts(parse(condition.text))
    texts = [tree.sql(dialect="spark", comments=False) for tree in trees]
    if len(trees) == 1 or any(parse(text) != tree for text, tree in zip(texts, trees, strict=True)):
        return []
    return [SqlCondition(text) for text in texts]


class Probe:
    """The conditions of *nfa* over *events*, which all have one key. Partial matches are those of a page of state."""

    def __init__(self, nfa: Nfa, events: pa.Table, times: Ints) -> None:
        self.events = events
        self._scope = Scope(events.schema, nfa.stages)
        self._arguments = Vectorized(events.schema)
        self._values: list[list[Any]] | None = None
        try:
            self._ask_about(nfa, times, in_parts=True)
        except AsterismError:
            # What AND joins need not be computable alone: x <> 0 AND 1 / x > 2.
            self._ask_about(nfa, times, in_parts=False)
        self._at_once = self._independent()

    def _ask_about(self, nfa: Nfa, times: Ints, *, in_parts: bool) -> None:
        self.questions: list[Question] = []
        self.whole: list[int] = []
        """number of the condition to number of the question"""
        self.parts: list[range] = []
        for condition in nfa.conditions:
            self.whole.append(len(self.questions))
            self.questions.append(self._question(condition))
            begin = len(self.questions)
            if in_parts and isinstance(condition, SqlCondition):
                self.questions += [self._question(part) for part in _parts(condition)]
            self.parts.append(range(begin, len(self.questions)))
        prefix = "?"
        while any(name.startswith(prefix) for name in nfa.stages):
            prefix += "?"
        # The stages come first, so that they have the numbers that they have in the pattern.
        pattern = Pattern.begin(nfa.stages[0])
        for stage in nfa.stages[1:]:
            pattern = pattern.next(stage)
        for number, question in enumerate(self.questions):
            pattern = pattern.next(f"{prefix}{number}").where(question.condition)
        self._bound = bound = BoundPattern.of_pattern(pattern.next(prefix), self.events.schema)
        self._matcher = Matcher([bound])
        number_of = {state.name: state.number for state in bound.nfa.states}
        self._states = [number_of[f"{prefix}{number}"] for number in range(len(self.questions))]
        fields = [*bound.bit_fields, *bound.event_schema]
        columns = bound.prepare(self.events)
        self._prepared = pa.table([pa.array(times), *columns], schema=pa.schema([pa.field(TIME, pa.int64()), *fields]))

    def _question(self, condition: Condition) -> Question:
        text = one_line(condition_text(condition), MAX_TEXT)
        if not isinstance(condition, SqlCondition):
            return Question(condition, text, iterative=type(condition) is not PythonCondition)
        tree = self._scope.resolve(parse(condition.text), condition.text)
        columns = [column.name for column in tree.find_all(exp.Column) if not column.table]
        aggregates = []
        for node in tree.find_all(*AGGREGATES):
            function, stage, argument, offset = aggregate_of(node)
            number = -1 if argument is None else self._arguments.add(argument, condition.text)
            inner = "*" if argument is None else argument.sql(dialect="spark", identify=False).replace("`", "")
            inner += f", {offset}" if offset else ""
            label = f"{function}({stage}.{inner})" if argument is None or isinstance(argument, exp.Column) else None
            aggregates.append((label or f"{function}({inner}) over {stage}", function, stage, number, offset))
        return Question(condition, text, has_aggregate(tree), tuple(dict.fromkeys(columns)), tuple(aggregates))

    # ------------------------------------------------------------------ answers

    def _independent(self) -> list[list[bool]]:
        """For each question the answers for all events, where it looks at nothing but the event."""
        rows = self.events.num_rows
        empty = Page.empty(_KEY, self._matcher.event_schema)
        answers = []
        for question in range(len(self.questions)):
            held: list[bool] = [False] * rows
            if not self.questions[question].iterative:
                for begin in range(0, rows, AT_ONCE):
                    some = np.arange(begin, min(rows, begin + AT_ONCE))
                    for row in self._run(empty, np.full(len(some), question), some, None):
                        held[begin + row] = True
            answers.append(held)
        return answers

    def holds(
        self, row: int, page: Page, page_rows: Ints, wanted: Iterable[tuple[int, int, tuple[int, int] | None]]
    ) -> dict[tuple[int, int], bool | None]:
        """The answers to those of *wanted* that look at a partial match, by condition and partial match.

        *wanted* are (condition, partial match, its first event and node in *page*); *page_rows* are the numbers of the page's
        events. Keys of the result are (question, partial match).
        """
        asked: list[tuple[int, int]] = []
        places: list[tuple[int, int] | None] = []
        for condition, partial, place in wanted:
            for question in (self.whole[condition], *self.parts[condition]):
                if self.questions[question].iterative:
                    asked.append((question, partial))
                    places.append(place)
        if not asked:
            return {}
        state = Page.empty(_KEY, self._matcher.event_schema)
        state.events = self._prepared.select(self._matcher.event_schema.names).take(pa.array(page_rows))
        state.times, state.positions, state.nodes = page.times, page.positions, page.nodes
        numbers = np.array([question for question, _ in asked])
        try:
            held = self._run(state, numbers, np.full(len(asked), row), places)
            return {question: number in held for number, question in enumerate(asked)}
        except AsterismError:
            return {
                question: self._alone(state, question[0], row, place)
                for question, place in zip(asked, places, strict=True)
            }

    def _alone(self, state: Page, question: int, row: int, place: tuple[int, int] | None) -> bool | None:
        try:
            return bool(self._run(state, np.array([question]), np.array([row]), [place]))
        except AsterismError:
            return None

    def _run(
        self, state: Page, questions: Ints, rows: Ints, places: Sequence[tuple[int, int] | None] | None
    ) -> set[int]:
        """Which of the questions, each about one event and one partial match of *state*, are answered by yes."""
        from asterism.matching.kernels import NO_EVENT

        count = len(questions)
        keys = pa.table([pa.array(np.arange(count))], schema=_KEY)
        runs = np.empty((count, 3), np.int64)
        runs[:, 0], runs[:, 1] = NO_EVENT, -1
        runs[:, 2] = np.array(self._states)[questions]
        for number, place in enumerate(places or ()):
            if place is not None:
                runs[number, :2] = place
        at, none = np.arange(count + 1), np.zeros(count + 1, np.int64)
        page = Page(
            keys=keys, events=state.events, times=state.times, positions=state.positions, nodes=state.nodes,
            run_at=at, run_rows=runs, waiting_at=none, waiting_rows=np.empty((0, 3), np.int64),
            timer_at=none, timer_rows=np.empty((0, 1), np.int64),
        )  # fmt: skip
        events = self._prepared.take(pa.array(rows))
        shown = KeyedEvents.of_one(self._bound, page, keys, events, END_OF_TIME - 1)
        (step,) = self._matcher.advance_one(page, shown, most=NO_SLICES)
        assert step.page is not None
        return set(step.page.keys.column(0).to_pylist())

    # ------------------------------------------------------------------ what was read

    def check(
        self,
        question: int,
        row: int,
        partial: int,
        taken: Sequence[tuple[int, str]],
        answers: dict[tuple[int, int], bool | None],
    ) -> Check:
        """The answer to a question, with the values that it looked at; *taken* are the events (row, stage) of the match."""
        asked = self.questions[question]
        values = [(name, self._value(name, row)) for name in asked.columns]
        for label, function, stage, argument, offset in asked.aggregates:
            mine = [taken_row for taken_row, taken_for in taken if taken_for == stage]
            values.append((label, self._aggregate(function, argument, mine, offset)))
        return Check(asked.text, self.answer(question, row, partial, answers), tuple(values))

    def answer(self, question: int, row: int, partial: int, answers: dict[tuple[int, int], bool | None]) -> bool | None:
        if self.questions[question].iterative:
            return answers.get((question, partial))
        return self._at_once[question][row]

    def _value(self, name: str, row: int) -> Any:
        return self.events.column(name)[row].as_py()

    def _aggregate(self, function: str, argument: int, rows: Sequence[int], offset: int) -> Any:
        """For the eye only: what the kernel has computed is not kept."""
        if argument < 0:
            return len(rows)
        if self._values is None:
            self._values = [column.to_pylist() for column in self._arguments.evaluate(self.events)]
        values = [self._values[argument][row] for row in rows]
        if function in ("FIRST", "LAST"):
            return values[offset if function == "FIRST" else -1 - offset] if offset < len(values) else None
        values = [value for value in values if value is not None]
        if function == "COUNT":
            return len(values)
        if not values:
            return None
        if function == "SUM":
            return sum(values)
        if function == "AVG":
            return sum(values) / len(values)
        return min(values) if function == "MIN" else max(values)
