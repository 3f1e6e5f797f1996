"""Folds, which aggregate the elements of a window with functions and a user-defined accumulator: immutable values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from asterism.arguments import expect, function_name, shown
from asterism.columns.arrays import Ints
from asterism.columns.schemas import schema_of
from asterism.errors import OperatorError, StreamDefinitionError, UserFunctionError
from asterism.expressions.aggregates import Aggregates
from asterism.windows.user_functions import called, check_names, check_values, may_lose, rows_of

Row = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Fold:
    """Aggregates the elements of a window, one after the other, with an accumulator: a row of which the state keeps one per
    window. Flink's AggregateFunction; for its ``getResult``, use ``process(function, schema, fold=...)``.

    Accumulators and elements are dicts. Functions may change their accumulator and return it.

    :param accumulator: its columns, as Spark SQL or an Arrow schema. These are the result columns, unless a function follows.
    :param initial: the accumulator of a window without elements
    :param add: takes the accumulator and an element; returns the new accumulator
    :param merge: takes two accumulators, that of the earlier session first; returns that of both. Required for session windows,
        and only there.
    :raises StreamDefinitionError: an argument is invalid, or *initial* does not fit the columns

    >>> from datetime import timedelta
    >>> from asterism import TumblingWindows
    >>> from asterism.testing import WindowHarness
    >>> def longest(run, element):
    ...     now = run["now"] + 1 if element["kind"] == "a" else 0
    ...     return {"now": now, "longest": max(run["longest"], now)}
    >>> fold = Fold("now INT, longest INT", {"now": 0, "longest": 0}, longest)
    >>> WindowHarness(TumblingWindows.of(timedelta(seconds=10)), fold=fold).send("a@1s a@2s b@3s a@4s |10s").firings
    ['[0s,10s) #1 on_time!: now=1 longest=2']

    Source: Flink's ``AggregateFunction``.
    """

    accumulator: str | pa.Schema
    initial: Mapping[str, Any]
    add: Callable[[Row, Row], Mapping[str, Any]]
    merge: Callable[[Row, Row], Mapping[str, Any]] | None = None
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        hint = 'Fold("total DOUBLE, n INT", {"total": 0.0, "n": 0}, add)'
        expect(
            StreamDefinitionError, self.accumulator, str | pa.Schema, "the columns of an accumulator must be a string", hint
        )  # fmt: skip
        schema = schema_of(self.accumulator)
        object.__setattr__(self, "schema", schema)
        if not len(schema):
            raise StreamDefinitionError(
                "the accumulator of a Fold has no columns", hint='Fold("total DOUBLE, n INT", ...)'
            )
        rounded = [column.name for column in schema if _rounds(column.type)]
        if rounded:
            raise StreamDefinitionError(
                f'the column "{rounded[0]}" of an accumulator is a FLOAT',
                "It would be rounded whenever state is written, so results would depend on micro-batches.",
                "declare it as DOUBLE",
            )
        if not isinstance(self.initial, Mapping):
            raise StreamDefinitionError(
                f"the initial accumulator must be a dict, not {shown(self.initial)}", hint='{"total": 0.0, "n": 0}'
            )
        try:
            check_names("the initial accumulator", self.initial, schema)
            rows_of("the initial accumulator", [self.initial], schema)
        except OperatorError as error:
            raise StreamDefinitionError(
                "the initial accumulator does not match its columns",
                f"Columns: {', '.join(schema.names)}\nInitial: {shown(dict(self.initial))}\n{error.detail}",
                'Fold("total DOUBLE, n INT", {"total": 0.0, "n": 0}, ...)',
            ) from None
        for name, function in (("add", self.add), ("merge", self.merge)):
            if not callable(function) and (name == "add" or function is not None):
                raise StreamDefinitionError(
                    f"{name} of a Fold must be a function of two dicts, not {shown(function)}",
                    hint='lambda total, element: {"n": total["n"] + 1}',
                )

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.schema)
        merge = "" if self.merge is None else f", {function_name(self.merge)}"
        return f"Fold({columns!r}, {dict(self.initial)!r}, {function_name(self.add)}{merge})"


def _rounds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_rounds(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


class RowComputation:
    """A computation by a Python function of two rows, applied in order; state keeps one row.

    :param read: the columns of the elements
    """

    kind: str
    returns: str
    """what the function must return"""

    def __init__(self, schema: pa.Schema, read: list[str]) -> None:
        self.partial_schema, self.partial_names = schema, list(schema.names)
        self.fields, self.read = list(schema), read
        self.kept_columns: list[str] = []
        # Each return value is checked, not only those that are kept: which ones are kept depends on micro-batches.
        self._checked = [field for field in schema if may_lose(field.type)]

    def finish(self, partials: pa.Table, offsets: Ints | None = None, rows: pa.Table | None = None) -> pa.Table:
        return partials

    def _called(self, function: Callable[[Row, Row], Mapping[str, Any]], former: Row, new: Row, hint: str) -> Row:
        what = f"the {self.kind} function {function_name(function)}"
        answer = called(what, function, former, new)
        if not isinstance(answer, Mapping):
            raise UserFunctionError(f"{what} must return {self.returns}, not {answer!r}", hint=hint)
        check_names(what, answer, self.partial_schema)
        for column in self._checked:
            check_values(what, [answer[column.name]], column)
        return dict(answer)


class Reduction(RowComputation):
    """A reduce function."""

    kind, returns = "reduce", "an element"

    def __init__(self, function: Callable[[Row, Row], Mapping[str, Any]], schema: pa.Schema) -> None:
        super().__init__(schema, list(schema.names))
        self.function = function

    def fold(self, segments: Ints, count: int, elements: pa.Table, into: pa.Table | None = None) -> pa.Table:
        rows = elements.select(self.partial_schema.names).to_pylist()
        return self._reduced([] if into is None else into.to_pylist(), segments, count, rows)

    def merge(self, partials: pa.Table, groups: Ints, count: int) -> pa.Table:
        return self._reduced([], groups, count, partials.to_pylist())

    def _reduced(self, before: list[Any], groups: Ints, count: int, rows: list[Row]) -> pa.Table:
        values: list[Any] = before or [None] * count
        hint = 'a mapping with the columns of the elements: {**former, "amount": former["amount"] + new["amount"]}'
        for group, row in zip(groups.tolist(), rows, strict=True):
            former = values[group]
            values[group] = row if former is None else self._called(self.function, former, row, hint)
        nothing = dict.fromkeys(self.partial_schema.names)  # a window without elements
        what = f"the reduce function {function_name(self.function)}"
        return rows_of(what, [nothing if value is None else value for value in values], self.partial_schema)


class Folding(RowComputation):
    """A :class:`Fold`."""

    kind, returns = "fold", "an accumulator"

    def __init__(self, fold: Fold, read: list[str]) -> None:
        super().__init__(fold.schema, read)
        self.function = fold
        self._hint = f"a dict with its columns: {', '.join(fold.schema.names)}"

    def fold(self, segments: Ints, count: int, elements: pa.Table, into: pa.Table | None = None) -> pa.Table:
        accumulators = self._initial(count) if into is None else into.to_pylist()
        for group, element in zip(segments.tolist(), elements.select(self.read).to_pylist(), strict=True):
            accumulators[group] = self._called(self.function.add, accumulators[group], element, self._hint)
        return self._table(accumulators)

    def merge(self, partials: pa.Table, groups: Ints, count: int) -> pa.Table:
        merged: list[Row | None] = [None] * count
        for group, partial in zip(groups.tolist(), partials.to_pylist(), strict=True):
            former = merged[group]
            if former is None:
                merged[group] = partial
            else:
                assert self.function.merge is not None
                merged[group] = self._called(self.function.merge, former, partial, self._hint)
        return self._table(
            [accumulator or initial for accumulator, initial in zip(merged, self._initial(count), strict=True)]
        )

    def _initial(self, count: int) -> list[Row]:
        return [copy.deepcopy(dict(self.function.initial)) for _ in range(count)]

    def _table(self, rows: list[Row]) -> pa.Table:
        return rows_of(f"the fold function {function_name(self.function.add)}", rows, self.partial_schema)


Computation = Aggregates | Reduction | Folding
"""What a firing contains: its *partials* are rows that are folded from elements, merged, and finished."""
