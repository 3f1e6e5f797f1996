"""Calls of aggregate functions, parsed from SQL and computed for groups of elements.

A measure is a Spark SQL expression with aggregate functions, such as ``sum(a) / count(*) AS mean``. Each call is replaced by
a column in its syntax tree (:class:`Measures`), from which the rest is computed at the end. The arguments of a call and the
expression around it are expressions without aggregates (:mod:`asterism.expressions.parsing`). :class:`Calls` computes the
calls.

See docs/decisions/0094.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.columns.arrays import Ints, filled, from_numpy, one_chunk
from asterism.columns.internal import internal
from asterism.errors import ColumnNotFoundError, ExpressionError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions.aggregates.accumulators import Cell, Count, distinct_places, sorted_places
from asterism.expressions.aggregates.functions import FUNCTIONS, Site, SqlAggregate, folded, orderable
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import COLUMN, Scope, columns_of, dotted, plain_column
from asterism.expressions.operators import choose
from asterism.expressions.parsing import parse
from asterism.expressions.translation import position_of
from asterism.expressions.types import BOOLEAN, FLOATS, NULL, TIME_ZONE, given_type, is_nested, name_of
from asterism.expressions.values import Sql, UnsupportedError, cast
from asterism.text.printable import quoted_name

MAX_CALLS = 100  # in a measure


# ---------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class SortOrder:
    """An expression of ORDER BY in a call. As in Spark, NULL comes first unless it is descending."""

    tree: exp.Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate function.

    :ivar name: the name of the function, as written
    :ivar source: the whole call as written, for messages
    :ivar start: the position of the call in the measure
    :ivar ignore_nulls: None if neither IGNORE NULLS nor RESPECT NULLS is specified
    :ivar where: the condition of FILTER
    :ivar order_by: the order of the elements; empty for the order in which they come
    """

    name: str
    source: str
    start: int
    arguments: tuple[exp.Expr, ...]
    distinct: bool = False
    ignore_nulls: bool | None = None
    where: exp.Expr | None = None
    order_by: tuple[SortOrder, ...] = ()

    @property
    def star(self) -> bool:
        return len(self.arguments) == 1 and isinstance(self.arguments[0], exp.Star)

    @property
    def parts(self) -> list[exp.Expr]:
        """The arguments, the expressions of ORDER BY, and the condition of FILTER."""
        order = [item.tree for item in self.order_by]
        return [*self.arguments, *order, *([] if self.where is None else [self.where])]

    def with_parts(self, parts: Sequence[exp.Expr]) -> Call:
        """The call with others in place of its :attr:`parts`."""
        given = iter(parts)
        arguments = tuple(next(given) for _ in self.arguments)
        order = tuple(replace(item, tree=next(given)) for item in self.order_by)
        return replace(self, arguments=arguments, order_by=order, where=next(given, None))

    def of_events(self) -> Call:
        """The call without the name of the stage, which prefixes all its columns."""
        return self.with_parts([_without_stage(part) for part in self.parts])


def _without_stage(tree: exp.Expr) -> exp.Expr:
    holder = exp.Paren(this=tree.copy())
    for column in list(holder.find_all(exp.Column)):
        names = column.parts[1:]
        column.replace(names[0] if isinstance(names[0], exp.Star) else dotted(names))
    whole: exp.Expr = holder.this
    return whole


def call_of(node: exp.Expr, text: str, functions: Collection[str] = FUNCTIONS) -> Call | None:
    """The call that a node represents, if it is one of *functions*."""
    ignore_nulls, where, inner = None, None, node
    if isinstance(inner, _NULLS):
        ignore_nulls, inner = isinstance(inner, exp.IgnoreNulls), inner.this
    if isinstance(inner, exp.Filter):
        where, inner = inner.expression.this, inner.this
    if not isinstance(inner, exp.Anonymous) or inner.name.lower() not in functions:
        return None
    arguments = list(inner.expressions)
    order_by: tuple[SortOrder, ...] = ()
    if arguments and isinstance(arguments[-1], exp.Order):
        order_by = tuple(
            SortOrder(item.this, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
            for item in arguments[-1].expressions
        )
        arguments[-1] = arguments[-1].this
    if arguments and isinstance(arguments[-1], _NULLS):
        ignore_nulls = isinstance(arguments[-1], exp.IgnoreNulls) if ignore_nulls is None else ignore_nulls
        arguments[-1] = arguments[-1].this
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    arguments = arguments[0].expressions if distinct else arguments
    start = inner.meta["start"]
    source = text[start : node.meta["call_end"]]
    return Call(inner.name, source, start, tuple(arguments), distinct, ignore_nulls, where, order_by)


_NULLS = (exp.IgnoreNulls, exp.RespectNulls)


def _found(tree: exp.Expr, text: str) -> list[tuple[exp.Expr, Call | None]]:
    """The calls in a measure, and the columns outside of them, from left to right."""
    calls: dict[int, Call] = {}

    def is_leaf(node: exp.Expr) -> bool:
        call = call_of(node, text)
        if call is not None:
            calls[id(node)] = call
        return call is not None or isinstance(node, exp.Column)

    nodes = list(tree.walk(prune=is_leaf))
    for node in nodes:
        _check(node, calls.get(id(node)), text)
    leaves = [(node, calls.get(id(node))) for node in nodes if id(node) in calls or isinstance(node, exp.Column)]
    leaves.sort(key=lambda pair: position_of(pair[0]) or 0)
    if len(calls) > MAX_CALLS:
        start = sorted(call.start for call in calls.values())[MAX_CALLS]
        raise ExpressionSyntaxError.at(f"a measure has more than {MAX_CALLS:,} aggregates", text, start)
    return leaves


def _check(node: exp.Expr, call: Call | None, text: str) -> None:
    """Reject nested calls, and parts of calls outside of a call."""
    if call is None:
        word = word_of_aggregates(node)
        if word is not None:
            raise ExpressionSyntaxError.at(f"{word} belongs to aggregates", text, position_of(node))
        return
    for part in call.parts:
        for inside in part.walk():
            inner, whole = call_of(inside, text), inside.parent if isinstance(inside.parent, exp.Column) else inside
            if inner is not None:
                nested = f"{inner.name.upper()} inside {call.name.upper()}: aggregates cannot be nested"
                problem = "FILTER cannot contain an aggregate" if part is call.where else nested
                raise ExpressionSyntaxError.at(problem, text, inner.start)
            if isinstance(inside, exp.Star) and not (len(call.arguments) == 1 and whole is call.arguments[0]):
                raise ExpressionSyntaxError.at("* is supported only in COUNT(*)", text, position_of(inside))
            _check(inside, None, text)


def word_of_aggregates(node: exp.Expr) -> str | None:
    """The keyword of a node that only calls of aggregates can have."""
    if isinstance(node, exp.Distinct | exp.Filter):
        return node.key.upper()
    if isinstance(node, _NULLS):
        return "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "RESPECT NULLS"
    return "ORDER BY" if isinstance(node, exp.Order) else None


def check_measure(tree: exp.Expr, stages: Sequence[str], text: str) -> None:
    """Check a measure of matches if only the stages are known: any name that may be a column is accepted.

    :param tree: the result of :func:`~asterism.expressions.parsing.parse` for *text*, with :data:`FUNCTIONS` as the
        aggregates
    :raises ExpressionError: a stage is unknown, or an aggregate is not allowed at its position
    """
    previous = next((node for node in tree.find_all(exp.Anonymous) if node.name.lower() == PREV), None)
    if previous is not None:
        hint = 'write the rule as SQL ("sql": "MEASURES ... PATTERN ... DEFINE ..."), whose measures support PREV'
        raise ExpressionSyntaxError.at("the measures of a rule do not support PREV", text, position_of(previous), hint)
    for node, call in _found(tree, text):
        columns = [column.parts for column in node.find_all(exp.Column)]
        # The first of several names must be a stage only in an aggregate; elsewhere it may be a struct column.
        names = {part.name: pa.null() for parts in columns for part in parts[call is not None and len(parts) > 1 :]}
        scope = Scope(pa.schema(names), tuple(stages))
        if call is None:
            scope.resolve(node, text)
        else:
            scope.stage_of(call.parts, call.name.upper(), text, call.start)


OF_MATCH = {"classifier": ":classifier", "match_number": ":match_number"}
"""Functions of a match without arguments, and the columns in their place."""
PREV = "prev"


CALLS_OF_MATCHES = (*FUNCTIONS, *OF_MATCH, PREV)
"""The calls in measures of matches that read several events, or the match."""


def parse_measure(text: str, scope: Scope | None = None) -> exp.Expr:
    """Parse a measure of matches, with columns in place of the functions in :data:`OF_MATCH`. Calls of PREV are ``Anonymous``
    nodes.

    :param scope: the scope whose computed columns the measure may read
    :raises ExpressionSyntaxError: it cannot be parsed
    """
    tree = parse(text, CALLS_OF_MATCHES) if scope is None else scope.parse(text, CALLS_OF_MATCHES)
    holder = exp.Paren(this=tree)
    for node in list(holder.find_all(exp.Anonymous)):
        name = node.name.lower()
        if name in OF_MATCH:
            if node.expressions:
                problem = f"{name.upper()} takes no arguments"
                raise ExpressionSyntaxError.at(problem, text, position_of(node), f"{name.upper()}()")
            column = exp.column(OF_MATCH[name], quoted=True)
            column.this.meta["start"] = position_of(node) or 0
            node.replace(column)
    whole: exp.Expr = holder.this
    return whole


class Measures:
    """SQL over the results of calls and over given columns.

    :param base: the given columns
    :param add: gets a call and its measure; returns an identifier of the call, for :attr:`calls`, and its type
    :param outside: resolves a column outside of calls: to a call, or to the name of a column of *base*
    :param read: parses a measure
    """

    def __init__(
        self,
        texts: Sequence[str],
        base: pa.Schema,
        add: Callable[[Call, str], tuple[Any, pa.DataType]],
        outside: Callable[[exp.Column, str], Call | str],
        read: Callable[[str], exp.Expr] = lambda text: parse(text, FUNCTIONS),
    ) -> None:
        self.calls: list[Any] = []
        """the calls whose results are needed, after the columns of *base*"""
        self.base_read: set[str] = set()
        fields, names = list(base), {}
        bodies = []

        def name_of_call(call: Call, text: str) -> str:
            """Identical calls are computed once."""
            if call.source not in names:
                computed_by, data_type = add(call, text)
                names[call.source] = internal(f"call_{len(self.calls)}")
                self.calls.append(computed_by)
                fields.append(pa.field(names[call.source], data_type))
            return names[call.source]

        for text in texts:
            with ExpressionSyntaxError.if_too_deep(text):
                tree = read(text)
                name, body = (tree.alias, tree.this) if isinstance(tree, exp.Alias) else (text.strip(), tree)
                holder = exp.Paren(this=body)
                for node, call in _found(body, text):
                    call_or_leaf = outside(node, text) if call is None and isinstance(node, exp.Column) else call
                    if isinstance(call_or_leaf, str):
                        self.base_read.add(call_or_leaf)
                    else:
                        assert call_or_leaf is not None
                        call_or_leaf = name_of_call(call_or_leaf, text)
                    column = exp.column(call_or_leaf, quoted=True)
                    column.this.meta["start"] = position_of(node) or 0
                    node.replace(column)
                bodies.append((name, holder.this.unnest(), text))
        self._schema = pa.schema(fields, metadata=base.metadata)  # the metadata has the time zone
        self.rest = Vectorized(self._schema)
        self.fields: list[pa.Field] = []
        self._plan: list[tuple[bool, int]] = []
        """(whether it is computed, the number of the expression or of the column)"""
        for name, body, text in bodies:
            if isinstance(body, exp.Column):
                number = self._schema.names.index(body.name)
                self.fields.append(self._schema.field(number).with_name(name))
            else:
                with ExpressionSyntaxError.if_too_deep(text):
                    number = self.rest.add(body, text)
                self.fields.append(pa.field(name, self.rest.types[number]))
            self._plan.append((not isinstance(body, exp.Column), number))

    def build(self, columns: Sequence[Any]) -> list[pa.ChunkedArray]:
        """One column per measure, from the columns of *base* and the results of :attr:`calls`."""
        table = pa.table(columns, schema=self._schema)
        rest = self.rest.evaluate(table)
        return [rest[number] if computed else table.column(number) for computed, number in self._plan]


# ---------------------------------------------------------------------------------------------------- arguments


class _Arguments:
    """Expressions over the elements, with their types in Spark."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.scope = Scope(schema)
        self.vectorized = Vectorized(schema)
        self.types: list[pa.DataType] = []
        zones = (kind.tz for kind in schema.types if pa.types.is_timestamp(kind) and kind.tz is not None)
        self._label = next(zones, self.vectorized.zone)

    @property
    def columns(self) -> list[str]:
        """The columns of the elements that are read."""
        read = {number for text in self.vectorized.texts for number in columns_of(text)}
        return [name for number, name in enumerate(self.schema.names) if number in read]

    def read(self, tree: exp.Expr, text: str) -> Sql:
        for column in tree.find_all(exp.Column):
            self.scope.column(exp.Column(this=column.parts[0].copy()), text)  # no stages here that it could name
        return self.vectorized.translate(self.scope.resolve(tree, text), text)

    def type_of(self, value: Sql) -> pa.DataType:
        """The Arrow type of an argument; a TIMESTAMP column keeps its zone."""
        plain = plain_column(value.text)
        zone = None if plain is None else getattr(self.schema.field(plain).type, "tz", None)
        return given_type(value.type, zone or self._label)

    def add(self, value: Sql, text: str) -> int:
        number = self.vectorized.add_value(value, text)
        if number == len(self.types):
            self.types.append(self.type_of(value))
        return number

    def evaluate(self, elements: pa.Table, count: int) -> list[pa.Array]:
        """One column per expression. Columns that are not read may be missing."""
        read, missing = set(self.columns), pa.nulls(count)
        names = self.schema.names
        view = pa.table([elements.column(name) if name in read else missing for name in names], names=names)
        columns = self.vectorized.evaluate(view)
        return [one_chunk(column).cast(kind, safe=False) for column, kind in zip(columns, self.types, strict=True)]


class _Selected:
    """The arguments and groups of the elements that a call reads.

    :param at: for each of *groups* the index of its element; by default elements and groups are aligned
    """

    def __init__(self, columns: list[pa.Array], groups: Ints, at: Ints | None = None) -> None:
        self.columns, self.groups, self.at = columns, groups, at
        self._known: dict[int | None, tuple[Ints, Ints | None, dict[int, pa.Array]]] = {}

    def of(
        self,
        arguments: Sequence[int],
        where: int | None,
        *,
        distinct: bool = False,
        order_by: Sequence[tuple[int, bool, bool]] = (),
    ) -> tuple[Ints, list[pa.Array]]:
        """(the group of each element, the arguments); *distinct*: only the first of equal elements in a group"""
        if where not in self._known:
            groups, at = self.groups, self.at
            if where is not None:
                passing = filled(self.columns[where])
                rows = np.flatnonzero(passing if at is None else passing[at])
                groups, at = groups[rows], rows if at is None else at[rows]
            self._known[where] = groups, at, {}
        groups, at, taken = self._known[where]
        for number in (*arguments, *(number for number, *_ in order_by)):
            if number not in taken:
                taken[number] = self.columns[number] if at is None else self.columns[number].take(from_numpy(at))
        columns = [taken[number] for number in arguments]
        if order_by:
            rows = sorted_places([(taken[number], *how) for number, *how in order_by])
            groups, columns = groups[rows], [column.take(from_numpy(rows)) for column in columns]
        if distinct:
            rows = distinct_places(groups, columns)
            groups, columns = groups[rows], [column.take(from_numpy(rows)) for column in columns]
            # As in Spark, -0.0 becomes 0.0, to which it is equal.
            columns = [
                pc.add(column, pa.scalar(0, column.type)) if column.type in FLOATS else column for column in columns
            ]
        return groups, columns


# ---------------------------------------------------------------------------------------------------- computing


@dataclass(frozen=True, slots=True)
class _Slot:
    """A cell over arguments of the elements that satisfy a condition."""

    cell: Cell
    arguments: tuple[int, ...]
    where: int | None


@dataclass(frozen=True, slots=True)
class _Incremental:
    """A call that is computed from partials."""

    type: pa.DataType
    slots: tuple[int, ...]
    finish: Callable[..., pa.Array]


@dataclass(frozen=True, slots=True)
class _OfRows:
    """A call that is computed from elements."""

    type: pa.DataType
    arguments: tuple[int, ...]
    where: int | None
    distinct: bool
    order_by: tuple[tuple[int, bool, bool], ...]
    """the arguments, each with whether it is descending, and whether NULL is first"""
    compute: Callable[..., pa.Array]


def _order_of(call: Call, function: SqlAggregate, arguments: _Arguments, text: str, *, distinct: bool) -> list[Sql]:
    """The expressions of ORDER BY in a call."""
    if not function.ordered:
        raise UnsupportedError("the result does not depend on an ORDER BY", "array_agg(name ORDER BY price DESC)")
    if distinct and any(item.tree not in call.arguments for item in call.order_by):
        raise UnsupportedError(
            "with DISTINCT, ORDER BY must name the argument", "array_agg(DISTINCT name ORDER BY name)"
        )
    return [orderable(arguments.read(item.tree, text)) for item in call.order_by]


_Partials = list[list[pa.Array]]
"""By slot."""


class Calls:
    """Calls over elements with one schema, in groups that are numbered from 0.

    :param whole: all elements of a group are available at once, as the events of a match are
    """

    def __init__(self, schema: pa.Schema, *, whole: bool = False) -> None:
        self._whole = whole
        self._arguments = _Arguments(schema)
        self._kept_arguments = self._arguments if whole else _Arguments(schema)
        self._slots: list[_Slot] = []
        self._calls: list[_Incremental | _OfRows] = []

    @property
    def read(self) -> list[str]:
        """The columns that are read of each element when it is added; the others may be missing."""
        return self._arguments.columns

    @property
    def arguments(self) -> Vectorized:
        return self._arguments.vectorized

    def add(self, call: Call, text: str) -> tuple[int, pa.DataType]:
        """Add a call. Returns the number of the call and its type.

        :param text: the measure with the call, for messages
        :raises ExpressionError: an argument is invalid for these elements, or the function does not accept it
        """
        function = FUNCTIONS[call.name.lower()]
        distinct = call.distinct or function.distinct
        of_rows = distinct or function.of_rows or bool(call.order_by)
        arguments = self._kept_arguments if of_rows else self._arguments
        zone = arguments.vectorized.zone
        given = [] if call.star else [arguments.read(tree, text) for tree in call.arguments]
        site = Site(call.source, arguments.vectorized, arguments.type_of, call.ignore_nulls, self._whole)
        try:
            if call.ignore_nulls is not None and not function.takes_nulls:
                raise UnsupportedError("IGNORE NULLS is supported only for FIRST, LAST and ANY_VALUE")
            made = function.make(site, call.star, given)
            where = None if call.where is None else arguments.read(call.where, text)
            if where is not None and where.type not in (BOOLEAN, NULL):
                raise UnsupportedError(f"FILTER needs a condition, not {name_of(where.type)}")
            if distinct and call.star:
                raise UnsupportedError("DISTINCT needs columns", "count(DISTINCT a, b)")
            if distinct and any(is_nested(value.type) for value in made.values):
                raise UnsupportedError(
                    "DISTINCT does not support arrays, maps and structs", "use their elements or fields"
                )
            order = [] if not call.order_by else _order_of(call, function, arguments, text, distinct=distinct)
            values = [*made.values, *order]
            if where is not None:
                where = cast(where, BOOLEAN, zone)
                # Evaluate the arguments only for elements that pass FILTER, so that others cannot raise an error.
                values = [choose([(where, value)], None, zone) if value.raises else value for value in values]
        except UnsupportedError as problem:
            raise ExpressionTypeError.at(
                f"{call.name.upper()}: {problem.problem}", text, call.start, problem.hint
            ) from None
        numbers = tuple(arguments.add(value, text) for value in values)
        order_by = tuple(
            (number, item.descending, item.nulls_first)
            for number, item in zip(numbers[len(made.values) :], call.order_by, strict=True)
        )
        numbers = numbers[: len(made.values)]
        condition = None if where is None else arguments.add(where, text)
        if made.of_rows is not None or of_rows:
            compute = made.of_rows or partial(folded, made.cells, made.finish)
            self._calls.append(_OfRows(made.type, numbers, condition, distinct, order_by, compute))
        else:
            slots = [_Slot(cell, numbers, condition) for cell in made.cells]
            self._slots += [slot for slot in slots if slot not in self._slots]
            self._calls.append(_Incremental(made.type, tuple(self._slots.index(slot) for slot in slots), made.finish))
        return len(self._calls) - 1, made.type

    def compute(self, groups: Ints, count: int, elements: pa.Table, at: Ints) -> list[pa.Array]:
        """The results of the calls for complete groups.

        :param groups: the group of each member, in any order
        :param count: the number of groups
        :param elements: the elements, with at least the columns :attr:`read`
        :param at: for each member the index of its element; an element may occur several times
        :raises asterism.errors.InvalidEventError: an argument or a result could not be computed
        """
        selected = _Selected(self._arguments.evaluate(elements, len(elements)), groups, at)
        return self._finished(self._folded(selected, count, None), selected, count)

    def _folded(self, selected: _Selected, count: int, into: _Partials | None) -> _Partials:
        folded = []
        for number, slot in enumerate(self._slots):
            groups, arguments = selected.of(slot.arguments, slot.where)
            folded.append(slot.cell.fold(groups, count, arguments, None if into is None else into[number]))
        return folded

    def _finished(self, partials: _Partials, selected: _Selected | None, count: int) -> list[pa.Array]:
        results = []
        for call in self._calls:
            if isinstance(call, _Incremental):
                column = call.finish(*(column for slot in call.slots for column in partials[slot]))
            else:
                assert selected is not None
                given = selected.of(call.arguments, call.where, distinct=call.distinct, order_by=call.order_by)
                column = call.compute(*given, count)
            results.append(column.cast(call.type))
        return results


class Aggregates(Calls):
    """Measures over groups of elements, which are numbered from 0.

    :meth:`fold` makes partials of elements, :meth:`merge` combines several partials, and :meth:`finish` computes the results.
    The types, the values and the treatment of NULL are those of Spark in ANSI mode, also for an empty group.

    How the elements are divided among calls does not affect counts, sums of integers and decimals, smallest and largest
    values, first and last values, sketches, and functions that need the rows. Sums, averages and variances of DOUBLE are
    computed in arrival order. They do not depend on the division either, to the last bit, if elements are folded *into* the
    partials of the elements before them; if :meth:`merge` adds partial sums instead, rounding may differ.

    A sum of integers or decimals fails only if the sum itself does not fit, not if an intermediate sum does not fit. In Spark
    this depends on the order. Arguments are evaluated for each element that passes FILTER.

    :param measures: Spark SQL expressions, each with a name after AS, or else named by their text
    :param schema: the columns of the elements; its metadata may contain the session time zone, see
        :class:`~asterism.expressions.evaluation.Vectorized`
    :raises asterism.errors.ExpressionError: a measure does not parse, uses something unsupported, or has mismatching
        types; with the position in the text

    >>> aggregates = Aggregates(["sum(price) AS total", "max_by(item, price)"], pa.schema({"item": "string", "price": "int32"}))
    >>> elements = pa.table({"item": ["tea", "cup", "pot"], "price": pa.array([2, 5, 9], "int32")})
    >>> partials = aggregates.fold(np.array([0, 0, 1]), 2, elements)
    >>> aggregates.finish(partials, None, None).to_pylist()
    [{'total': 7, 'max_by(item, price)': 'cup'}, {'total': 9, 'max_by(item, price)': 'pot'}]
    """

    def __init__(self, measures: Sequence[str], schema: pa.Schema) -> None:
        super().__init__(schema)
        zone = {TIME_ZONE: self.arguments.zone.encode()}
        # This column provides the number of results.
        rows, scope = pa.schema([("rows", NULL)], metadata=zone), Scope(schema)
        self._measures = Measures(
            measures, rows, self.add, self._outside, read=lambda text: scope.parse(text, FUNCTIONS)
        )
        self.fields = self._measures.fields
        if not self._slots:  # a slot must provide the number of partials
            self._slots.append(_Slot(Count(), (), None))
        self.partial_schema = pa.schema(
            [(f"{n}_{m}", kind) for n, slot in enumerate(self._slots) for m, kind in enumerate(slot.cell.kept)]
        )
        self.kept_columns = self._kept_arguments.columns
        if not self.kept_columns and any(isinstance(call, _OfRows) for call in self._calls):
            self.kept_columns = schema.names[:1]  # provides the number of rows

    @property
    def partial_names(self) -> list[str]:
        """The definition of each column of partials, by the columns of the elements and independent of other measures."""

        def text(number: int) -> str:
            names = self.arguments.schema.names
            return COLUMN.sub(
                lambda pair: pair[0] if pair[1] is None else quoted_name(names[int(pair[1])]),
                self.arguments.texts[number],
            )

        texts = []
        for slot in self._slots:
            where = "" if slot.where is None else f" where {text(slot.where)}"
            of = f"{slot.cell!r} of ({', '.join(map(text, slot.arguments))}){where}"
            texts += [f"{of}, {number}" for number in range(len(slot.cell.kept))]
        return texts

    def fold(self, segments: Ints, count: int, elements: pa.Table, into: pa.Table | None = None) -> pa.Table:
        """One partial per group, for *elements* in arrival order.

        :param segments: for each element the number of its group, in any order
        :param count: the number of groups
        :param elements: the elements, with at least the columns :attr:`read`
        :param into: the partials of the earlier elements, one per group; by default there are none
        :raises asterism.errors.InvalidEventError: an argument could not be computed for an element
        """
        segments = np.asarray(segments, np.int64)
        selected = _Selected(self._arguments.evaluate(elements, len(segments)), segments)
        return self._table(self._folded(selected, count, None if into is None else self._by_slot(into)))

    def merge(self, partials: pa.Table, groups: Ints, count: int) -> pa.Table:
        """One partial per group, for the elements of all its *partials*, which are in arrival order.

        :param groups: for each partial the number of its group, in any order
        :param count: the number of groups; a group without partials gets the partial of no elements
        """
        groups, by_slot = np.asarray(groups, np.int64), self._by_slot(partials)
        return self._table(
            [slot.cell.merge(groups, count, columns) for slot, columns in zip(self._slots, by_slot, strict=True)]
        )

    def finish(self, partials: pa.Table, offsets: Ints | None = None, rows: pa.Table | None = None) -> pa.Table:
        """The results, one row per partial.

        :param offsets: where the kept elements of each partial begin in *rows*, followed by the end of the last one; used
            only if :attr:`kept_columns` is not empty
        :param rows: the kept elements, in arrival order, with at least the columns :attr:`kept_columns`
        :raises asterism.errors.InvalidEventError: a result could not be computed, such as a sum that does not fit
        """
        count, selected = partials.num_rows, None
        if self.kept_columns:
            assert offsets is not None
            assert rows is not None
            segments = np.repeat(np.arange(count), np.diff(offsets))
            kept = rows.slice(int(offsets[0]), len(segments))
            selected = _Selected(self._kept_arguments.evaluate(kept, len(segments)), segments)
        results = self._finished(self._by_slot(partials), selected, count)
        return pa.table(self._measures.build([pa.nulls(count), *results]), schema=pa.schema(self.fields))

    def _table(self, by_slot: _Partials) -> pa.Table:
        return pa.table([column for columns in by_slot for column in columns], schema=self.partial_schema)

    def _by_slot(self, partials: pa.Table) -> _Partials:
        columns = iter(partials.columns)
        return [[one_chunk(next(columns)) for _ in slot.cell.kept] for slot in self._slots]

    def _outside(self, column: exp.Column, text: str) -> str:
        """Raise the error for a column outside of an aggregate."""
        raise _outside(column, self._arguments.schema, text)


def _outside(column: exp.Column, schema: pa.Schema, text: str) -> ExpressionError:
    name = column.parts[0].name
    if name.lower() in (known.lower() for known in schema.names):
        hint = f"aggregate it, as in first({name}) or max({name})"
        return ExpressionSyntaxError.at(
            f"{name!r} is a column of the elements and must be aggregated", text, position_of(column), hint
        )
    return ColumnNotFoundError.from_missing_and_available(name, schema.names, f"in: {text}")
