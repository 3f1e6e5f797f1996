"""The conditions of an automaton over the events of one key: which hold, and which values they have read.

What reads the event alone is computed for all events at once. In a condition that reads the partial match each aggregate becomes
a column beside those of the event, and DuckDB computes the rest: for all partial matches that an event meets together or, where
that fails, for each alone and only if its answer matters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.arguments import described
from asterism.columns.arrays import Ints
from asterism.columns.groups import mask_of
from asterism.errors import AsterismError, ColumnNotFoundError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, aggregate_of, has_aggregate
from asterism.expressions.parsing import AGGREGATES, conjuncts, parse
from asterism.expressions.types import INTEGERS
from asterism.patterns.automaton import Both, Either, Guard, Nfa, Not, Test
from asterism.patterns.conditions import Condition, Event, IterativeCondition, PythonCondition, SqlCondition
from asterism.patterns.wording import condition_text
from asterism.text.printable import one_line
from asterism.trace.steps import Check, Partial

MAX_TEXT = 200
"""Characters of a condition in an explanation."""


@dataclass(frozen=True, slots=True)
class _Aggregate:
    """An aggregate over the events of a stage; *argument* is the number of an expression over the event, or None."""

    label: str
    function: str
    stage: str
    argument: int | None
    offset: int
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A condition of the automaton, or one of the parts that AND joins in it: a function, or the numbers of expressions over the
    event, and over the event and its aggregates, that must both hold.
    """

    text: str
    of_event: int | None = None
    of_match: int | None = None
    columns: tuple[str, ...] = ()
    aggregates: tuple[_Aggregate, ...] = ()
    function: PythonCondition | IterativeCondition | None = None


class _Argument:
    """The values of an expression over the event, as aggregates need them."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self.values = values

    @cached_property
    def valid(self) -> list[bool]:
        valid: list[bool] = self.values.is_valid().to_pylist()
        return valid

    @cached_property
    def order(self) -> list[int]:
        """The place of each value in Spark's order: NaN is larger than all other numbers."""
        order: list[int] = np.argsort(pc.sort_indices(self.values).to_numpy()).tolist()
        return order

    def numbers(self, kind: pa.DataType) -> npt.NDArray[Any]:
        if kind not in self._numbers:
            self._numbers[kind] = pc.fill_null(self.values.cast(kind, safe=False), 0).to_numpy()
        return self._numbers[kind]

    @cached_property
    def _numbers(self) -> dict[pa.DataType, npt.NDArray[Any]]:
        return {}


class Conditions:
    """
    :param times: of the events, in microseconds
    :param zone: of the times that per-event conditions see
    :param forgiving: a stage that does not exist has taken nothing, as in Flink
    """

    def __init__(self, nfa: Nfa, events: pa.Table, times: Ints, zone: str | None = "UTC", *, forgiving: bool) -> None:
        self.events, self.times, self.zone, self.forgiving = events, times, zone, forgiving
        self.stages = nfa.stages
        self.now = datetime.now(UTC)
        self._scope = Scope(events.schema, nfa.stages)
        self._of_event = Vectorized(events.schema)
        self._aggregates: dict[str, _Aggregate] = {}
        """by the SQL that they are written in"""
        trees = [self._conjuncts(condition) for condition in nfa.conditions]
        prefix = "_" * (1 + max(map(len, events.column_names), default=0))  # such columns no event has
        self._column_of = {text: prefix + str(number) for number, text in enumerate(self._aggregates)}
        fields = [pa.field(self._column_of[text], one.type) for text, one in self._aggregates.items()]
        self._of_match = Vectorized(pa.schema([*events.schema, *fields], events.schema.metadata))
        self._whole = [self._question(c, parts) for c, parts in zip(nfa.conditions, trees, strict=True)]
        needed = len(self._of_event.texts)
        parts = [self._in_parts(c, parts) for c, parts in zip(nfa.conditions, trees, strict=True)]
        columns = self._computed(needed)
        failed = {number for number, column in enumerate(columns) if column is None}
        self._parts = [own if failed.isdisjoint(part.of_event for part in own) else [] for own in parts]
        self._arguments = [_Argument(column) for column in columns]
        self._masks = [mask_of(column) if column is not None else None for column in columns]
        self._python = {
            question: self._python_mask(question.function)
            for question in self._whole
            if isinstance(question.function, PythonCondition)
        }
        self._row = -1
        self._known: dict[tuple[int | _Question | None, Partial], bool] = {}
        """answers about the event at hand"""

    @property
    def columns(self) -> list[str]:
        """The columns that conditions read."""
        if any(question.function is not None for question in self._whole):
            return list(self.events.column_names)
        names = {name for question in self._whole for name in question.columns}
        return [name for name in self.events.column_names if name in names]

    # ------------------------------------------------------------------ binding

    def _conjuncts(self, condition: Condition) -> list[tuple[str, exp.Expr]]:
        """What AND joins in SQL, as text and resolved."""
        if not isinstance(condition, SqlCondition):
            return []
        tree = parse(condition.text)
        texts = [part.sql(dialect="spark", comments=False) for part in conjuncts(tree)]
        parts = conjuncts(self._scope.resolve(tree, condition.text))
        for node in (node for part in parts for node in part.find_all(*AGGREGATES)):
            if node.sql() not in self._aggregates:
                self._aggregates[node.sql()] = self._aggregate(node, condition.text)
        return list(zip(texts, parts, strict=True))

    def _aggregate(self, node: exp.Expr, text: str) -> _Aggregate:
        function, stage, argument, offset = aggregate_of(node)
        if argument is None:
            return _Aggregate(f"COUNT({stage}.*)", function, stage, None, 0, pa.int64())
        inner = argument.sql(dialect="spark", identify=False).replace("`", "") + (f", {offset}" if offset else "")
        label = (
            f"{function}({stage}.{inner})" if isinstance(argument, exp.Column) else f"{function}({inner}) over {stage}"
        )
        number = self._of_event.add(argument, text)
        kind = self._of_event.types[number]
        if function == "COUNT" or (function == "SUM" and self._of_event.translate(argument, text).type in INTEGERS):
            kind = pa.int64()
        elif function in ("SUM", "AVG"):
            kind = pa.float64()
        return _Aggregate(label, function, stage, number, offset, kind)

    def _question(self, condition: Condition, parts: Sequence[tuple[str, exp.Expr]], text: str = "") -> _Question:
        text = one_line(text or condition_text(condition), MAX_TEXT)
        if isinstance(condition, PythonCondition | IterativeCondition):
            return _Question(text, function=condition)
        assert isinstance(condition, SqlCondition)
        trees = [tree for _, tree in parts]
        pure = [tree for tree in trees if not has_aggregate(tree)]
        iterative = [self._with_columns(tree) for tree in trees if has_aggregate(tree)]
        columns = [column.name for tree in trees for column in tree.find_all(exp.Column) if not column.table]
        aggregates = [node.sql() for tree in trees for node in tree.find_all(*AGGREGATES)]
        return _Question(
            text,
            self._of_event.add(exp.and_(*pure), condition.text) if pure else None,
            self._of_match.add(exp.and_(*iterative), condition.text) if iterative else None,
            tuple(dict.fromkeys(columns)),
            tuple(self._aggregates[written] for written in dict.fromkeys(aggregates)),
        )

    def _in_parts(self, condition: Condition, parts: Sequence[tuple[str, exp.Expr]]) -> list[_Question]:
        with contextlib.suppress(AsterismError):  # all expressions together have a limit, and the parts come on top
            return [self._question(condition, [part], part[0]) for part in parts if len(parts) > 1]
        return []

    def _with_columns(self, tree: exp.Expr) -> exp.Expr:
        """The expression over columns in place of aggregates."""
        holder = exp.Paren(this=tree.copy())
        for node in list(holder.find_all(*AGGREGATES)):
            node.replace(exp.Column(this=exp.to_identifier(self._column_of[node.sql()], quoted=True)))
        return holder.unnest()

    def _computed(self, needed: int) -> list[Any]:
        """The values of the expressions over the event. The first *needed* must not fail; others are None then, as what AND joins
        need not be computable alone: ``x <> 0 AND 1 / x > 2``.
        """
        with contextlib.suppress(InvalidEventError):
            return self._of_event.evaluate(self.events)
        columns: list[Any] = []
        for number in range(len(self._of_event.texts)):
            try:
                columns += self._of_event.alone(number).evaluate(self.events)
            except InvalidEventError:
                if number < needed:
                    raise
                columns.append(None)
        return columns

    # ------------------------------------------------------------------ answers

    def meet(self, row: int, partials: Collection[Partial]) -> None:
        """What is asked from now on is about the event *row*. About *partials* all is computed together, if that succeeds."""
        self._row, self._known = row, {}
        if partials and self._of_match.texts:
            with contextlib.suppress(InvalidEventError):
                for number, column in enumerate(self._of_match.evaluate(self._beside_aggregates(list(partials)))):
                    answers = zip(partials, mask_of(column).tolist(), strict=True)
                    self._known |= {(number, partial): answer for partial, answer in answers}

    def holds(self, guard: Guard, partial: Partial) -> bool:
        """Does a guard hold for the event and a partial match? Conditions are asked in their order, as far as they matter.

        :raises InvalidEventError: a condition that matters cannot be computed
        """
        match guard:
            case Test(condition):
                return self._answer(self._whole[condition], partial)
            case Not(inner):
                return not self.holds(inner, partial)
            case Both(left, right):
                return self.holds(left, partial) and self.holds(right, partial)
            case Either(left, right):
                return self.holds(left, partial) or self.holds(right, partial)
        return True

    def reads_match(self, guard: Guard) -> bool:
        """May the answer depend on the partial match?"""
        match guard:
            case Test(condition):
                question = self._whole[condition]
                return question.of_match is not None or isinstance(question.function, IterativeCondition)
            case Not(inner):
                return self.reads_match(inner)
            case Both(left, right) | Either(left, right):
                return self.reads_match(left) or self.reads_match(right)
        return False

    def _answer(self, question: _Question, partial: Partial) -> bool:
        if question in self._python:
            return bool(self._python[question][self._row])
        if question.of_event is not None and not self._masks[question.of_event][self._row]:
            return False
        if question.function is None and question.of_match is None:
            return True
        key = question.of_match if question.function is None else question, partial
        if key not in self._known:
            if isinstance(question.function, IterativeCondition):
                self._known[key] = self._asked(question.function, partial)
            else:
                assert question.of_match is not None
                [column] = self._of_match.alone(question.of_match).evaluate(self._beside_aggregates([partial]))
                self._known[key] = bool(mask_of(column)[0])
        return self._known[key]

    def _python_mask(self, condition: PythonCondition) -> npt.NDArray[np.bool_]:
        name = getattr(condition.function, "__qualname__", repr(condition.function))
        try:
            answer = condition.function(self.events)
        except Exception as error:
            raise InvalidEventError(f"condition {name} failed", described(error)) from error
        if isinstance(answer, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(answer.type):
            answer = pc.fill_null(answer, False)
        mask = np.asarray(answer)
        if mask.dtype != np.bool_ or mask.shape != (self.events.num_rows,):
            raise InvalidEventError(f"condition {name} did not return one Boolean per event")
        return mask

    def _asked(self, condition: IterativeCondition, partial: Partial) -> bool:
        name = getattr(condition.function, "__qualname__", repr(condition.function))
        chosen = self.events.column_names if condition.columns is None else condition.columns
        columns = {column: self.events.column(column) for column in chosen}
        try:
            answer: Any = condition.function(Event(columns, self._row), _Context(self, columns, self._row, partial))
        except Exception as error:
            raise InvalidEventError(f"condition {name} failed", described(error)) from error
        if not isinstance(answer, bool | np.bool_):
            raise InvalidEventError(f"condition {name} did not return True or False", hint="wrap it in bool(...)")
        return bool(answer)

    # ------------------------------------------------------------------ aggregates

    def _beside_aggregates(self, partials: Sequence[Partial]) -> pa.Table:
        """The event once for each partial match, and the aggregates there."""
        event = self.events.take(pa.array([self._row] * len(partials)))
        aggregates = [self._values(aggregate, partials) for aggregate in self._aggregates.values()]
        return pa.table([*event.columns, *aggregates], schema=self._of_match.schema)

    def _values(self, aggregate: _Aggregate, partials: Sequence[Partial]) -> Any:
        taken = [partial.rows(aggregate.stage) for partial in partials]
        if aggregate.argument is None:
            return pa.array([len(rows) for rows in taken], pa.int64())
        argument = self._arguments[aggregate.argument]
        if aggregate.function in ("FIRST", "LAST"):
            offset = aggregate.offset
            at = offset if aggregate.function == "FIRST" else -1 - offset
            picked = [rows[at] if offset < len(rows) else None for rows in taken]
            return argument.values.take(pa.array(picked, pa.int64()))
        taken = [[row for row in rows if argument.valid[row]] for rows in taken]
        if aggregate.function == "COUNT":
            return pa.array([len(rows) for rows in taken], pa.int64())
        if aggregate.function in ("MIN", "MAX"):
            best: Any = min if aggregate.function == "MIN" else max
            picked = [best(rows, key=argument.order.__getitem__, default=None) for rows in taken]
            return argument.values.take(pa.array(picked, pa.int64()))
        # One number after the other: sums of doubles depend on the order of addition.
        numbers = argument.numbers(aggregate.type)
        sums = [np.add.accumulate(numbers[rows])[-1] if rows else None for rows in taken]
        if aggregate.function == "AVG":
            sums = [total / len(rows) if rows else None for total, rows in zip(sums, taken, strict=True)]
        return pa.array(sums, aggregate.type)

    # ------------------------------------------------------------------ explanations

    def checks(self, guards: Iterable[Guard], partial: Partial) -> tuple[Check, ...]:
        """The conditions that make guards what they are; of one that does not hold, the parts that do not."""
        told: dict[_Question, None] = {}
        for condition in dict.fromkeys(test for guard in guards for test in self._deciding(guard, partial)):
            whole, parts = self._whole[condition], self._parts[condition]
            failed = [part for part in parts if not _tried(self._answer, part, partial)]
            told |= dict.fromkeys([whole] if _tried(self._answer, whole, partial) or not failed else failed)
        return tuple(self._check(question, partial) for question in told)

    def _deciding(self, guard: Guard, partial: Partial) -> list[int]:
        match guard:
            case Test(condition):
                return [condition]
            case Not(inner):
                return self._deciding(inner, partial)
            case Both(left, right) | Either(left, right):
                value = self.holds(guard, partial)
                sides = [side for side in (left, right) if _tried(self.holds, side, partial) is value]
                return [condition for side in sides for condition in self._deciding(side, partial)]
        return []

    def _check(self, question: _Question, partial: Partial) -> Check:
        values = [(name, self.events.column(name)[self._row].as_py()) for name in question.columns]
        values += [(one.label, self._values(one, [partial])[0].as_py()) for one in question.aggregates]
        return Check(question.text, _tried(self._answer, question, partial), tuple(values))


def _tried(ask: Callable[[Any, Partial], bool], what: _Question | Guard, partial: Partial) -> bool | None:
    """The answer; None if it cannot be computed."""
    try:
        return ask(what, partial)
    except InvalidEventError:
        return None


class _Context:
    """What an iterative condition may know beside the event."""

    def __init__(self, conditions: Conditions, columns: dict[str, Any], row: int, partial: Partial) -> None:
        self._conditions, self._columns, self._row, self._partial = conditions, columns, row, partial

    @property
    def timestamp(self) -> datetime:
        moment: datetime = pa.scalar(
            int(self._conditions.times[self._row]), pa.timestamp("us", self._conditions.zone)
        ).as_py()
        return moment

    @property
    def current_processing_time(self) -> datetime:
        return self._conditions.now

    def events_for_pattern(self, name: str) -> list[Event]:
        if name not in self._conditions.stages and not self._conditions.forgiving:
            stages = ", ".join(self._conditions.stages)
            raise ColumnNotFoundError(f"unknown stage {name!r}", f"Stages: {stages}", "stage names are case-sensitive")
        return [Event(self._columns, row) for row in self._partial.rows(name)]
