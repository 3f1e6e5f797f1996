"""Evaluates the conditions of an automaton over the events of one key: whether they hold, and which values they read.

A condition that reads only the event is computed for all events at once. In a condition that reads the partial match, each
aggregate becomes a column next to those of the event. DuckDB computes the rest for all partial matches of an event together. If
that fails, it is computed for each partial match for which the result matters.
"""

from __future__ import annotations

import contextlib
import decimal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.arguments import described, function_name
from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import mask_of
from asterism.columns.time import micros
from asterism.errors import AsterismError, EvaluationFailedError, ExpressionSyntaxError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import EVERY_STAGE, PREVIOUS, Scope, aggregate_of, columns_of, has_aggregate
from asterism.expressions.parsing import AGGREGATES, conjuncts, sql_of
from asterism.expressions.templates import is_long_condition, quick_condition
from asterism.expressions.types import BIGINT, MAX_DIGITS, aggregate_type, is_decimal, spark_type
from asterism.matching.binding import python_mask, unregistered
from asterism.matching.python_conditions import moment_of, unknown_stage
from asterism.operators.rich_functions import ready
from asterism.patterns.automaton import Both, Either, Guard, Nfa, Not, Test, conditions_in
from asterism.patterns.conditions import (
    AbsentBeforeCondition,
    Condition,
    Event,
    FirstEventCondition,
    IterativeCondition,
    NamedCondition,
    PythonCondition,
    SqlCondition,
)
from asterism.patterns.wording import condition_text
from asterism.text.printable import one_line
from asterism.trace.steps import Check, Partial

MAX_TEXT = 200
"""The maximum length of a condition in an explanation."""
AT_ONCE = 2**26
"""The maximum bytes of the copies of an event, one for each partial match, in one call of DuckDB."""


@dataclass(frozen=True, slots=True, eq=False)
class _StageAggregate:
    """An aggregate over the events of *stages*, or of the key before the current one if there are none; *values* is its argument
    for all events, None for ``COUNT(a.*)``.
    """

    label: str
    function: str
    stages: tuple[str, ...]
    values: pa.ChunkedArray | None
    offset: int
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class _ConditionQuestion:
    """A condition of the automaton, or one of its conjuncts: a mask of the events, an expression over the event and its
    aggregates (by index), or both, which must both hold; or a function; or a condition on the earlier events of the key.
    """

    text: str
    mask: Mask | None = None
    of_match: int | None = None
    function: IterativeCondition | None = None
    of_key: FirstEventCondition | AbsentBeforeCondition | None = None
    columns: tuple[str, ...] = ()
    aggregates: tuple[_StageAggregate, ...] = ()


class TraceConditions:
    """
    :param times: the times of the events, in microseconds
    :param zone: the time zone of the times that per-event conditions get
    :param allows_unknown_stages: an unknown stage has taken no events, as in Flink, instead of being an error
    """

    def __init__(
        self, nfa: Nfa, events: pa.Table, times: Ints, zone: str | None = "UTC", *, allows_unknown_stages: bool
    ) -> None:
        self.events, self.times, self.zone, self.allows_unknown_stages = events, times, zone, allows_unknown_stages
        self.stages = nfa.stages
        self._scope = Scope(events.schema, nfa.stages, nfa.subsets)
        self._absences = {absence.stage: absence for absence in nfa.absences}
        self._last_forbidden: dict[str, int] = {}
        """for the stage of an absence the last event before the current one that satisfies its condition"""
        self._earlier: list[int] = []
        """the events before the current one, in processing order"""
        self.now = datetime.now(UTC)
        self._aggregates: dict[str, _StageAggregate] = {}
        """by their SQL"""
        parts = [self._conjuncts(condition) for condition in nfa.conditions]
        prefix = "_" * (1 + max(map(len, events.column_names), default=0))  # a prefix that no column of the events has
        self._column_of = {written: prefix + str(number) for number, written in enumerate(self._aggregates)}
        fields = [pa.field(self._column_of[written], aggregate.type) for written, aggregate in self._aggregates.items()]
        self._of_match = Vectorized(pa.schema([*events.schema, *fields], events.schema.metadata))
        self._whole = [self._question(*of) for of in zip(nfa.conditions, parts, strict=True)]
        self._parts = [self._in_parts(*of) for of in zip(nfa.conditions, parts, strict=True)]
        self._row = -1
        self._known: dict[tuple[int | _ConditionQuestion, Partial], bool] = {}
        """cached results for the current event"""
        read = {name for question in self._whole for name in question.columns}
        is_any = any(isinstance(condition, PythonCondition | IterativeCondition) for condition in nfa.conditions)
        self.columns = [name for name in events.column_names if name in read or is_any]
        """the columns that conditions read; a function may read any"""

    # ------------------------------------------------------------------ binding

    def _conjuncts(self, condition: Condition) -> list[tuple[str, exp.Expr]]:
        """The conjuncts of a SQL condition, as text and resolved."""
        if not isinstance(condition, SqlCondition) or is_long_condition(condition.text):
            return []
        tree = self._scope.parse(condition.text)
        texts = [sql_of(part) for part in conjuncts(tree)]
        resolved = self._scope.resolve(tree, condition.text)
        for node in resolved.find_all(*AGGREGATES):
            if sql_of(node) not in self._aggregates:
                self._aggregates[sql_of(node)] = self._aggregate(node, condition.text)
        return list(zip(texts, conjuncts(resolved), strict=True))

    def _aggregate(self, node: exp.Expr, text: str) -> _StageAggregate:
        function, stage, argument, offset = aggregate_of(node)
        of_stage = stage not in (EVERY_STAGE, PREVIOUS)
        stages = dict(self._scope.subsets).get(stage, (stage,))
        if stage == EVERY_STAGE:
            stages = self.stages
        elif stage == PREVIOUS:
            stages = ()
        if argument is None:
            return _StageAggregate(
                f"COUNT({stage}.*)" if of_stage else "COUNT(*)", function, stages, None, 0, pa.int64()
            )
        name, shown_offset = ("PREV", offset + 1 if offset else 0) if stage == PREVIOUS else (function, offset)
        inner = sql_of(argument).replace("`", "")
        inner += f", {shown_offset}" if shown_offset else ""
        if of_stage and isinstance(argument, exp.Column):
            label = f"{name}({stage}.{inner})"
        else:
            label = f"{name}({inner})" + (f" over {stage}" if of_stage else "")
        values = self._values(argument, text)
        return _StageAggregate(
            label, function, stages, values, offset, aggregate_type(function, values.type) or values.type
        )

    def _question(
        self, condition: Condition, parts: Sequence[tuple[str, exp.Expr]], text: str = ""
    ) -> _ConditionQuestion:
        text = one_line(text or condition_text(condition), MAX_TEXT)
        if isinstance(condition, PythonCondition):
            return _ConditionQuestion(text, python_mask(condition, self.events))
        if isinstance(condition, IterativeCondition):
            return _ConditionQuestion(text, function=condition)
        if isinstance(condition, FirstEventCondition | AbsentBeforeCondition):
            return _ConditionQuestion(text, of_key=condition)
        if isinstance(condition, NamedCondition):
            raise unregistered(condition)
        assert isinstance(condition, SqlCondition)
        if is_long_condition(condition.text):
            return self._long_question(condition.text, text)
        pure = [tree for _, tree in parts if not has_aggregate(tree)]
        iterative = [self._with_columns(tree) for _, tree in parts if has_aggregate(tree)]
        columns = [column.name for _, tree in parts for column in tree.find_all(exp.Column) if not column.table]
        aggregates = [self._aggregates[sql_of(node)] for _, tree in parts for node in tree.find_all(*AGGREGATES)]
        return _ConditionQuestion(
            text,
            mask_of(self._values(exp.and_(*pure), condition.text)) if pure else None,
            self._of_match.add(exp.and_(*iterative), condition.text) if iterative else None,
            columns=tuple(dict.fromkeys(columns)),
            aggregates=tuple(dict.fromkeys(aggregates)),
        )

    def _long_question(self, condition: str, text: str) -> _ConditionQuestion:
        """The question of a condition on texts that the parser does not read."""
        expression = Vectorized(self.events.schema)
        value = quick_condition(self._scope, expression.zone, condition)
        if value is None:
            raise ExpressionSyntaxError.at(
                f"a condition of {len(condition):,} characters needs columns of texts", condition
            )
        expression.add_value(value, condition, is_harmless=True)
        [values] = expression.evaluate(self.events)
        names = self.events.column_names
        return _ConditionQuestion(
            text, mask_of(values), columns=tuple(names[at] for at in sorted(columns_of(value.text)))
        )

    def _in_parts(self, condition: Condition, parts: Sequence[tuple[str, exp.Expr]]) -> list[_ConditionQuestion]:
        """The conjuncts; none if one cannot be computed alone, as in ``x <> 0 AND 1 / x > 2``: it is then shown whole."""
        with contextlib.suppress(AsterismError):
            return [self._question(condition, [part], part[0]) for part in parts if len(parts) > 1]
        return []

    def _values(self, tree: exp.Expr, text: str) -> pa.ChunkedArray:
        """The values of an expression over the event, for all events, in a type of Spark."""
        expression = Vectorized(self.events.schema)
        expression.add(tree, text)
        [values] = expression.evaluate(self.events)
        return values.cast(spark_type(values.type, expression.zone) or values.type, safe=False)

    def _with_columns(self, tree: exp.Expr) -> exp.Expr:
        """The expression with columns instead of aggregates."""
        holder = exp.Paren(this=tree.copy())
        for node in list(holder.find_all(*AGGREGATES)):
            node.replace(exp.Column(this=exp.to_identifier(self._column_of[sql_of(node)], quoted=True)))
        return holder

    # ------------------------------------------------------------------ answers

    def meet(self, row: int, partials: Sequence[Partial]) -> None:
        """Set the current event. Compute the conditions for all *partials* together if that succeeds."""
        if self._row >= 0:
            self._earlier.append(self._row)
            for stage, absence in self._absences.items():
                if self.holds(absence.guard, Partial.none()):
                    self._last_forbidden[stage] = self._row
        self._row, self._known = row, {}
        at_once = 1 + AT_ONCE // (1 + self.events.slice(row, 1).nbytes)
        for begin in range(0, len(partials) if self._of_match.texts else 0, at_once):
            batch = partials[begin : begin + at_once]
            with contextlib.suppress(InvalidEventError):
                for number, column in enumerate(self._of_match.evaluate(self._beside_aggregates(batch))):
                    self._known |= {
                        (number, partial): answer
                        for partial, answer in zip(batch, mask_of(column).tolist(), strict=True)
                    }

    def holds(self, guard: Guard, partial: Partial) -> bool:
        """Whether a guard holds. Conditions are evaluated in order, as far as they matter; such an error is raised."""
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
        """Whether the result may depend on the partial match."""
        questions = [self._whole[condition] for condition in conditions_in(guard)]
        return any(question.of_match is not None or question.function is not None for question in questions)

    def _answer(self, question: _ConditionQuestion, partial: Partial) -> bool:
        if question.of_key is not None:
            return self.blocking(question.of_key) is None
        if question.mask is not None and not question.mask[self._row]:
            return False
        if question.function is None and question.of_match is None:
            return True
        key = question if question.of_match is None else question.of_match, partial
        if key not in self._known:
            if question.function is not None:
                self._known[key] = self._call_condition(question.function, partial)
            else:
                assert question.of_match is not None
                [column] = self._of_match.alone(question.of_match).evaluate(self._beside_aggregates([partial]))
                self._known[key] = bool(mask_of(column)[0])
        return self._known[key]

    def blocking(self, condition: FirstEventCondition | AbsentBeforeCondition) -> int | None:
        """The earlier event because of which a condition on the earlier events of the key does not hold; None: it holds."""
        if isinstance(condition, FirstEventCondition):
            return self._earlier[0] if self._earlier else None
        row, window = self._last_forbidden.get(condition.stage), self._absences[condition.stage].window
        if row is None or (window is not None and self.times[self._row] - self.times[row] >= micros(window)):
            return None
        return row

    def of_key(self, guard: Guard) -> FirstEventCondition | AbsentBeforeCondition | None:
        """The condition on the earlier events of the key that a guard is, if it is one."""
        return self._whole[guard.condition].of_key if isinstance(guard, Test) else None

    def _call_condition(self, condition: IterativeCondition, partial: Partial) -> bool:
        name = function_name(condition.function)
        chosen = self.events.column_names if condition.columns is None else condition.columns
        columns = {column: self.events.column(column) for column in chosen}
        function = ready(condition.function)
        try:
            answer: Any = function(Event(columns, self._row), _RecordedContext(self, columns, self._row, partial))
        except Exception as error:
            raise EvaluationFailedError(f"condition {name} failed", described(error)) from error
        if not isinstance(answer, bool | np.bool_):
            raise EvaluationFailedError(f"condition {name} did not return True or False", hint="wrap it in bool(...)")
        return bool(answer)

    # ------------------------------------------------------------------ aggregates

    def _beside_aggregates(self, partials: Sequence[Partial]) -> pa.Table:
        """A row for each partial match: the event, and the aggregates over the partial match."""
        event = self.events.take(pa.array([self._row] * len(partials)))
        aggregates = [self._values_of(aggregate, partials) for aggregate in self._aggregates.values()]
        return pa.table([*event.columns, *aggregates], schema=self._of_match.schema)

    # ------------------------------------------------------------------ explanations

    def tried(self, what: Guard | _ConditionQuestion, partial: Partial) -> bool | None:
        """Whether a guard or condition holds; None: it cannot be computed, and did not matter."""
        try:
            return self._answer(what, partial) if isinstance(what, _ConditionQuestion) else self.holds(what, partial)
        except InvalidEventError:
            return None

    def checks(self, guards: Iterable[Guard], partial: Partial) -> tuple[Check, ...]:
        """The conditions that determine the results of guards; for one that does not hold, its conjuncts that do not."""
        reported: dict[_ConditionQuestion, None] = {}
        for condition in dict.fromkeys(test for guard in guards for test in self._deciding(guard, partial)):
            whole = self._whole[condition]
            failed = [part for part in self._parts[condition] if not self.tried(part, partial)]
            reported |= dict.fromkeys([whole] if self.tried(whole, partial) or not failed else failed)
        return tuple(self._check(question, partial) for question in reported)

    def _deciding(self, guard: Guard, partial: Partial) -> list[int]:
        match guard:
            case Test(condition):
                return [condition]
            case Not(inner):
                return self._deciding(inner, partial)
            case Both(left, right) | Either(left, right):
                value = self.tried(guard, partial)
                sides = [side for side in (left, right) if self.tried(side, partial) is value]
                return [condition for side in sides for condition in self._deciding(side, partial)]
        return []

    def _check(self, question: _ConditionQuestion, partial: Partial) -> Check:
        values = [(name, self.events.column(name)[self._row].as_py()) for name in question.columns]
        values += [
            (aggregate.label, self._values_of(aggregate, [partial])[0].as_py()) for aggregate in question.aggregates
        ]
        if question.of_key is not None and (row := self.blocking(question.of_key)) is not None:
            values.append(("event", row + 1))
        return Check(question.text, self.tried(question, partial), tuple(values))

    def _values_of(self, aggregate: _StageAggregate, partials: Sequence[Partial]) -> Any:
        """The value of an aggregate over the events of each partial match."""
        if aggregate.stages:
            return _aggregated(aggregate, [partial.rows(*aggregate.stages) for partial in partials])
        return _aggregated(aggregate, [self._earlier] * len(partials))


def _aggregated(aggregate: _StageAggregate, rows: Sequence[Sequence[int]]) -> Any:
    """The value of an aggregate over each of some lists of events."""
    function, values, offset = aggregate.function, aggregate.values, aggregate.offset
    if values is None:
        return pa.array([len(taken) for taken in rows], pa.int64())
    if function in ("FIRST", "LAST"):
        at = offset if function == "FIRST" else -1 - offset
        picked = [taken[at] if offset < len(taken) else None for taken in rows]
        return values.take(pa.array(picked, pa.int64()))
    numbers: list[Any] = []
    for taken in rows:
        known = values.take(pa.array(taken, pa.int64())).drop_null()
        if function == "COUNT":
            numbers.append(len(known))
        elif not len(known):
            numbers.append(None)
        elif function in ("MIN", "MAX"):
            order = pc.sort_indices(known)  # NaN is larger than every other value
            numbers.append(known[order[0 if function == "MIN" else -1].as_py()].as_py())
        else:
            numbers.append(_sum_or_mean(function, known, aggregate.type))
    try:
        return pa.array(numbers, aggregate.type)
    except (OverflowError, pa.ArrowInvalid) as error:
        raise EvaluationFailedError(f"the sum of {aggregate.label} does not fit into its type") from error


def _sum_or_mean(function: str, values: pa.ChunkedArray, data_type: pa.DataType) -> Any:
    if is_decimal(data_type):
        with decimal.localcontext(prec=2 * MAX_DIGITS, rounding=decimal.ROUND_HALF_UP):
            total = sum(values.to_pylist(), decimal.Decimal())
            mean = total if function == "SUM" else total / len(values)
            return mean.quantize(decimal.Decimal(1).scaleb(-data_type.scale))
    if data_type == BIGINT:
        return sum(values.to_pylist())
    # Sums of doubles depend on the order of addition.
    total = np.add.accumulate(values.cast(data_type, safe=False).to_numpy())[-1]
    return total if function == "SUM" else total / len(values)


class _RecordedContext:
    """The context of an iterative condition."""

    def __init__(self, conditions: TraceConditions, columns: dict[str, Any], row: int, partial: Partial) -> None:
        self._conditions, self._columns, self._row, self._partial = conditions, columns, row, partial

    @property
    def timestamp(self) -> datetime:
        return moment_of(int(self._conditions.times[self._row]), self._conditions.zone)

    @property
    def current_processing_time(self) -> datetime:
        return self._conditions.now

    def events_for_pattern(self, name: str) -> list[Event]:
        if name not in self._conditions.stages and not self._conditions.allows_unknown_stages:
            raise unknown_stage(name, self._conditions.stages)
        return [Event(self._columns, row) for row in self._partial.rows(name)]
