"""Resolves the names and calls in an expression of a clause.

An expression, such as ``A.price > PREV(A.price) AND SUM(B.price) < 10``, becomes ordinary SQL over *leaves*, which are all that
depends on the match: the value of an expression in one row (:class:`RowValue`), and an aggregate over rows
(:class:`AggregateValue`). ``A.price`` is ``LAST(A.price)``, ``PREV(A.price)`` is ``PREV(LAST(A.price))``, ``CLASSIFIER(A)`` is a
column of the rows like others, and names without a variable mean all rows of the match.

In SQL a leaf is evaluated where it stands: RUNNING, for the rows up to the current one, or FINAL, for all rows of the match.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeGuard

import pyarrow as pa
from sqlglot import exp

from asterism.errors import (
    STRINGS_HAVE_QUOTES,
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    UnsupportedSyntaxError,
)
from asterism.expressions.aggregates import FUNCTIONS as AGGREGATES
from asterism.expressions.aggregates import Call, Calls, call_of, word_of_aggregates
from asterism.expressions.computed_columns import Names, is_computed, sql_of_column, visible
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import (
    MAX_OFFSET,
    Scope,
    columns_of,
    dotted,
    integer_literal,
    plain_column,
    with_optional_columns,
)
from asterism.expressions.parsing import parse, tokenize
from asterism.expressions.translation import position_of
from asterism.expressions.types import BIGINT, BOOLEAN, STRING
from asterism.row_patterns.clause.clause import Clause, ExpressionText
from asterism.row_patterns.clause.quick_trees import quick_tree
from asterism.row_patterns.clause.reading import misspelled
from asterism.row_patterns.clause.row_names import RowNames, renamed, table_prefix
from asterism.text.printable import quoted_name, shortened

MAX_LEAVES = 100  # of an expression
MAX_NAMES = 1_000  # characters of a list of names in an error
PLAIN_AGGREGATES = ("count", "sum", "avg", "min", "max")

_KEYS = ("PARTITION BY", "ORDER BY")
_LOGICAL, _PHYSICAL, _MODES = ("first", "last"), ("prev", "next"), ("running", "final")
_OF_MATCH = ("classifier", "match_number", "match_rowtime", "match_proctime", "match_timeout")
_ONLY_IN_MEASURES = {
    "match_proctime": (": matches would depend on when they are computed", "MATCH_ROWTIME()"),
    "match_timeout": (", where the end of the match is not known", None),
}
_ELSEWHERE = {
    "lag": ("LAG is Snowflake's synonym of PREV", "PREV(price), PREV(price, 2)"),
    "lead": ("LEAD is Snowflake's synonym of NEXT", "NEXT(price), NEXT(price, 2)"),
    "match_sequence_number": (
        "MATCH_SEQUENCE_NUMBER is Snowflake's function", "RUNNING COUNT(*) numbers the rows of a match",
    ),
    "arbitrary": ("ARBITRARY is Trino's function", "any_value(price)"),
}  # fmt: skip
"""Functions of other systems, and what to write instead."""
_VOCABULARY = tuple(dict.fromkeys((*_LOGICAL, *_PHYSICAL, *_OF_MATCH, *AGGREGATES, *_MODES, *_ELSEWHERE)))


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the match, or one near such a row.

    :ivar variable: a variable or a subset, among whose rows it is; None for all rows of the match
    :ivar last: whether *skip* counts from the last of these rows, backwards, and not from the first
    :ivar final: among all rows of the match, and not only those up to the current one
    :ivar steps: how many rows after that row in the partition; negative for PREV
    """

    variable: str | None = None
    last: bool = True
    skip: int = 0
    final: bool = False
    steps: int = 0


@dataclass(frozen=True, slots=True)
class RowValue:
    """The value of an expression in one row: number *number* of :attr:`RowExpressions.values`. NULL if there is no row.

    :ivar labelled: whether the expression uses CLASSIFIER, which is NULL in rows outside of the match, or MATCH_NUMBER
    """

    place: Place
    number: int
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """An aggregate over the rows of a variable, or of the whole match: number *number* of its :attr:`RowExpressions.calls`."""

    variable: str | None
    final: bool
    number: int


@dataclass(frozen=True, slots=True)
class MatchNumber:
    """The number of the match in its partition, from 1."""


@dataclass(frozen=True, slots=True)
class MatchProcessingTime:
    """The processing time at which the match is emitted; only in measures."""


@dataclass(frozen=True, slots=True)
class MatchTimeout:
    """Whether the match has timed out; only in measures."""


@dataclass(frozen=True, slots=True)
class MeasureValue:
    """The value of an earlier measure: number *number* of the clause; only in measures."""

    number: int


Leaf = RowValue | AggregateValue | MatchNumber | MatchProcessingTime | MatchTimeout | MeasureValue


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """An expression of the clause as SQL over its leaves.

    :ivar body: number 0 of it is the expression; leaf *n* is its column *n*
    :ivar tree: the expression as a syntax tree over these columns
    """

    source: ExpressionText
    leaves: tuple[Leaf, ...]
    body: Vectorized
    tree: exp.Expr = field(compare=False, repr=False)

    @property
    def type(self) -> pa.DataType:
        return self.body.types[0]

    def reach(self, variables: frozenset[str]) -> tuple[int, int] | None:
        """(rows before, rows after) the current row that a condition reads, if it depends only on rows near it, whatever the
        match is; otherwise None.

        :param variables: the names that certainly have the current row among their rows: the variable that the condition
            defines, and the subsets with it
        """
        before = after = 0
        for leaf in self.leaves:
            if not is_near(leaf, variables):
                return None
            before, after = max(before, -leaf.place.steps), max(after, leaf.place.steps)
        return before, after


def is_near(leaf: Leaf, variables: frozenset[str]) -> TypeGuard[RowValue]:
    """Whether a leaf is the value of a row at a fixed distance from the current one, see :meth:`ResolvedExpression.reach`."""
    if not isinstance(leaf, RowValue) or leaf.labelled or not leaf.place.last or leaf.place.skip:
        return False
    return leaf.place.variable is None or leaf.place.variable in variables


@dataclass(frozen=True, slots=True)
class PlainAggregate:
    """An aggregate that can be kept up row by row.

    :ivar function: count, sum, avg, min or max
    :ivar number: the argument, number *number* of :attr:`RowExpressions.values`; None for COUNT(*)
    """

    function: str
    number: int | None


@dataclass(slots=True)
class RowExpressions:
    """The expressions over single rows and over groups of rows, for all expressions of a clause.

    :ivar schema: the columns of the input, then the label and the number of the match of a row
    :ivar time_type: the type of a processing time, TIMESTAMP
    :ivar values: expressions over single rows
    :ivar calls: aggregates over the rows of each variable or subset, and of the whole match (None)
    :ivar plain_aggregates: those of these calls that can be kept up row by row, by (variable, number)
    """

    input: pa.Schema
    schema: pa.Schema = field(init=False)
    label: str = field(init=False)
    match_number: str = field(init=False)
    time_type: pa.DataType = field(init=False)
    values: Vectorized = field(init=False)
    calls: dict[str | None, Calls] = field(default_factory=dict, init=False)
    plain_aggregates: dict[tuple[str | None, int], PlainAggregate] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        taken = {name.lower() for name in self.input.names}
        self.label, self.match_number = (_free(name, taken) for name in ("__classifier", "__match_number"))
        self.schema = self.input.append(pa.field(self.label, STRING)).append(pa.field(self.match_number, BIGINT))
        self.values = Vectorized(self.schema)
        self.time_type = pa.timestamp("us", self.values.zone)

    def plain_name(self, number: int) -> str | None:
        """The column of the input that an expression over single rows is; None if it is something else."""
        plain = plain_column(self.values.texts[number])
        return None if plain is None or plain >= len(self.input) else str(self.input.names[plain])

    def columns_of(self, numbers: Iterable[int]) -> set[str]:
        """The columns that some of the expressions over single rows read."""
        texts = self.values.texts
        return {self.schema.names[column] for number in numbers for column in columns_of(texts[number])}

    def columns_of_leaves(self, leaves: Iterable[Leaf]) -> set[str]:
        """The columns that the leaves of an expression read. Of aggregates, those of all over the same rows."""
        names: set[str] = set()
        for leaf in leaves:
            if isinstance(leaf, RowValue):
                names |= self.columns_of([leaf.number])
            elif isinstance(leaf, AggregateValue):
                names |= set(self.calls[leaf.variable].read)
        return names

    @property
    def read(self) -> set[str]:
        """The columns that any of the expressions reads."""
        return self.columns_of(range(len(self.values.texts))).union(*(calls.read for calls in self.calls.values()))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


class Resolver:
    """Resolves the expressions of one clause.

    :param schema: the columns of the input
    :param variables: the variables of the pattern and the subsets, each with its variables
    """

    def __init__(self, clause: Clause, schema: pa.Schema, variables: Mapping[str, frozenset[str]]) -> None:
        self._clause = clause
        self._variables = tuple(variables)
        self._names = row_names(clause, schema, variables)
        self.rows = RowExpressions(schema)
        self._scope = Scope(self.rows.schema)
        self._scope_of_input = Scope(schema)
        self._calls: dict[tuple[str | None, str], tuple[int, pa.DataType]] = {}
        self._columns: dict[tuple[tuple[str, bool], ...], tuple[Leaf, pa.DataType]] = {}
        """the values of columns, by the parts of their names and whether these are quoted"""
        self._measures: dict[str, pa.DataType] = {}
        """the measures so far, by their names in lower case"""

    def condition(self, source: ExpressionText, variable: str) -> ResolvedExpression:
        """The condition of a variable, which cannot know the end of the match."""
        return self._resolved(source, self._names.of_condition(variable), final_allowed=False)

    def measure(self, source: ExpressionText, name: str) -> ResolvedExpression:
        """A measure, which can name the measures before it, as in a SELECT of Spark; a column of the input comes first."""
        resolved = self._resolved(source, self._names.of_measures(), final_allowed=True)
        self._measures.setdefault(name.lower(), resolved.type)
        return resolved

    def key(self, source: ExpressionText, section: str) -> tuple[int, pa.DataType]:
        """(number in :attr:`RowExpressions.values`, type) of an expression of PARTITION BY or ORDER BY, over single rows."""
        with located(self._clause, source):
            return self._key(source, section)

    def without_tables(self, source: ExpressionText) -> ExpressionText:
        """The expression of a key without the names of tables, for Spark."""
        text, removed = source.text, []
        for column in parsed(source, self._names.of_keys()).find_all(exp.Column):
            if is_computed(column.name):
                place = column.this.meta
                removed.append((place["start"], place["end"] + 1, sql_of_column(column.name)))
                continue
            parts = list(column.parts)
            named = self._without_table(parts)
            if len(named) < len(parts):
                first = parts[-len(named)]
                renamed = quoted_name(named[0].name) if named[0].name != first.name else ""
                end = first.meta["end"] + 1 if renamed else first.meta["start"]
                removed.append((parts[0].meta["start"], end, renamed))
        for begin, end, renamed in sorted(removed, reverse=True):
            text = text[:begin] + renamed + text[end:]
        return replace(source, text=text)

    def _key(self, source: ExpressionText, section: str) -> tuple[int, pa.DataType]:
        tree = with_optional_columns(parsed(source, self._names.of_keys()), self._scope_of_input.schema, source.text)
        for node in tree.walk():
            call = call_of(node, source.text, _VOCABULARY)
            if call is not None:
                _fail(f"{call.name.upper()} cannot be used in {section}", source, call.start)
        variable, trees = self._of_one_variable([tree], section, source)
        if variable is not None:
            _fail(f"variables of the pattern cannot be used in {section}", source, position_of(tree))
        return self._value(trees[0], source)

    # ------------------------------------------------------------------------------------------------ expressions

    def _resolved(self, source: ExpressionText, names: Names, *, final_allowed: bool) -> ResolvedExpression:
        with located(self._clause, source):
            tree = with_optional_columns(parsed(source, names), self._scope_of_input.schema, source.text)
            holder = exp.Paren(this=tree)
            calls: dict[int, Call] = {}

            def is_leaf(node: exp.Expr) -> bool:
                call = call_of(node, source.text, _VOCABULARY)
                if call is not None:
                    calls[id(node)] = call
                return call is not None or isinstance(node, exp.Column)

            leaves: list[Leaf] = []
            fields: list[pa.Field] = []
            for node in list(holder.walk(prune=is_leaf)):
                call = calls.get(id(node))
                if call is None and not isinstance(node, exp.Column):
                    _check_stray(node, source)
                    continue
                measure = self._measure(node) if final_allowed else None
                if measure is not None:
                    leaf, data_type = measure
                elif call is None:
                    leaf, data_type = self._column_value(node, source)
                else:
                    leaf, data_type = self._call(call, source, final_allowed=final_allowed)
                if leaf not in leaves:
                    leaves.append(leaf)
                    fields.append(pa.field(f"leaf_{len(fields)}", data_type))
                if len(leaves) > MAX_LEAVES:
                    problem = f"an expression has more than {MAX_LEAVES:,} references to rows and aggregates"
                    _fail(problem, source, position_of(node) if call is None else call.start)
                start = position_of(node) if call is None else call.start
                node.replace(_quoted_column(f"leaf_{leaves.index(leaf)}", start))
            schema = pa.schema(fields, metadata=self.rows.schema.metadata)
            body = Vectorized(schema)
            tree = Scope(schema).resolve(holder.this, source.text)
            body.add(tree, source.text)
            return ResolvedExpression(source, tuple(leaves), body, tree)

    def _call(self, call: Call, source: ExpressionText, *, final_allowed: bool) -> tuple[Leaf, pa.DataType]:
        name, final = call.name.lower(), False
        if name in _MODES:
            final, call = _prefixed(call, source, final_allowed=final_allowed)
            name = call.name.lower()
            if name in (*_PHYSICAL, *_OF_MATCH):
                inside = f"{call.name.upper()}({'FINAL' if final else 'RUNNING'} LAST(...))"
                hint = inside if name in _PHYSICAL else f"{'FINAL' if final else 'RUNNING'} LAST(CLASSIFIER())"
                problem = f"RUNNING and FINAL belong before FIRST, LAST and aggregates, not {name.upper()}"
                _fail(problem, source, call.start, hint)
        _check_elsewhere(call, source)
        if name in AGGREGATES and name not in _LOGICAL:
            return self._aggregate(call, final, source)
        _check_plain(call, source)
        if name in _LOGICAL:
            return self._logical(call, replace(Place(), final=final), source)
        if name in _PHYSICAL:
            return self._physical(call, source, final_allowed=final_allowed)
        if name != "classifier":
            _check_count(call, 0, 0, source)
            if name in _ONLY_IN_MEASURES and not final_allowed:
                why, instead = _ONLY_IN_MEASURES[name]
                _fail(f"{name.upper()} cannot be used in DEFINE{why}", source, call.start, instead)
        if name == "match_proctime":
            return MatchProcessingTime(), self.rows.time_type
        if name == "match_timeout":
            return MatchTimeout(), BOOLEAN
        if name == "match_number":
            return MatchNumber(), BIGINT
        if name == "match_rowtime":
            if not self._clause.order_by:
                _fail("MATCH_ROWTIME needs ORDER BY with a time", source, call.start)
            number, data_type = self._key(self._clause.order_by[0].expression, "ORDER BY")
            return RowValue(Place(), number), data_type
        variable, column = self._inner_call(call, "", source)
        number, data_type = self._value(column, source)
        return RowValue(Place(variable), number, labelled=True), data_type

    def _logical(self, call: Call, place: Place, source: ExpressionText) -> tuple[Leaf, pa.DataType]:
        """FIRST or LAST."""
        _check_count(call, 1, 2, source)
        skip = _offset(call, source)
        place = replace(place, last=call.name.lower() == "last", skip=skip)
        return self._row_value(call.arguments[:1], place, source, call.name.upper(), call.start)

    def _physical(self, call: Call, source: ExpressionText, *, final_allowed: bool) -> tuple[Leaf, pa.DataType]:
        """PREV or NEXT, perhaps of FIRST or LAST."""
        _check_count(call, 1, 2, source)
        steps = _offset(call, source, default=1)
        place = Place(steps=-steps if call.name.lower() == "prev" else steps)
        inner = call_of(call.arguments[0], source.text, _VOCABULARY)
        if inner is not None and inner.name.lower() in _MODES:
            final, inner = _prefixed(inner, source, final_allowed=final_allowed)
            place = replace(place, final=final)
            if inner.name.lower() not in _LOGICAL:
                _fail(f"RUNNING and FINAL in {call.name.upper()} belong before FIRST or LAST", source, inner.start)
        if inner is not None and inner.name.lower() in _LOGICAL:
            _check_plain(inner, source)
            return self._logical(inner, place, source)
        return self._row_value(call.arguments[:1], place, source, call.name.upper(), call.start)

    def _column_value(self, node: exp.Expr, source: ExpressionText) -> tuple[Leaf, pa.DataType]:
        """A column outside of calls. Conditions name the same one many times."""
        parts = getattr(node, "parts", ())
        name = tuple((part.name, bool(part.args.get("quoted"))) for part in parts if isinstance(part, exp.Identifier))
        if len(name) < len(parts):  # there is a star
            return self._row_value([node], Place(), source, "")
        if name not in self._columns:
            self._columns[name] = self._row_value([node], Place(), source, "")
        return self._columns[name]

    def _row_value(
        self, trees: Sequence[exp.Expr], place: Place, source: ExpressionText, function: str, start: int | None = None
    ) -> tuple[Leaf, pa.DataType]:
        variable, stripped = self._of_one_variable(trees, function, source)
        used = {column.name for tree in stripped for column in tree.find_all(exp.Column)}
        if function and not used:
            text = trees[0].name if isinstance(trees[0], exp.Literal) and trees[0].is_string else ""
            hint = f"names are quoted with backquotes: `{text:.100}`" if text else None
            _fail(f"{function} needs a column or CLASSIFIER", source, start, hint)
        number, data_type = self._value(stripped[0], source)
        labelled = not used.isdisjoint((self.rows.label, self.rows.match_number))
        return RowValue(replace(place, variable=variable), number, labelled), data_type

    def _aggregate(self, call: Call, final: bool, source: ExpressionText) -> tuple[Leaf, pa.DataType]:
        variable, parts = self._of_one_variable(call.parts, call.name.upper(), source)
        # Calls of the same text over rows of the same variable are computed once.
        if (variable, call.source) not in self._calls:
            stripped = call.with_parts(parts)
            calls = self.rows.calls.setdefault(variable, Calls(self.rows.schema, whole=True))
            number, data_type = self._calls[variable, call.source] = calls.add(stripped, source.text)
            plain = self._plain_aggregate(stripped, source)
            if plain is not None:
                self.rows.plain_aggregates[variable, number] = plain
        number, data_type = self._calls[variable, call.source]
        return AggregateValue(variable, final, number), data_type

    def _plain_aggregate(self, call: Call, source: ExpressionText) -> PlainAggregate | None:
        function = {"mean": "avg"}.get(call.name.lower(), call.name.lower())
        if (
            function not in PLAIN_AGGREGATES
            or call.distinct
            or call.where is not None
            or call.order_by
            or len(call.arguments) != 1
        ):
            return None
        if call.star:
            return PlainAggregate(function, None)
        columns = {column.name for column in call.arguments[0].find_all(exp.Column)}
        if not columns or not columns.isdisjoint((self.rows.label, self.rows.match_number)):
            return None
        with tried_before():  # Calls tried it
            number, _ = self._value(call.arguments[0], source)
        return PlainAggregate(function, number)

    # ------------------------------------------------------------------------------------------------ names

    def _of_one_variable(
        self, trees: Sequence[exp.Expr], function: str, source: ExpressionText
    ) -> tuple[str | None, list[exp.Expr]]:
        """(the variable that all columns in *trees* name, None for no variable; copies of the trees without it)"""
        start_of: dict[str | None, int | None] = {}
        stripped = []
        for tree in trees:
            holder = exp.Paren(this=tree.copy())

            def is_leaf(node: exp.Expr) -> bool:
                return isinstance(node, exp.Column) or call_of(node, source.text, _VOCABULARY) is not None

            for node in list(holder.walk(prune=is_leaf)):
                call = call_of(node, source.text, _VOCABULARY)
                start = position_of(node) if call is None else call.start
                if call is not None:
                    variable, column = self._inner_call(call, function, source)
                elif isinstance(node, exp.Column):
                    variable, column = self._column(node, function, source)
                else:
                    if not (isinstance(node, exp.Star) and function == "COUNT"):
                        _check_stray(node, source)
                    continue
                node.replace(column)
                if call is None and isinstance(column, exp.Column) and column.name in self._clause.constants:
                    continue
                if call is None or call.name.lower() == "classifier":
                    start_of.setdefault(variable, start)
            whole: exp.Expr = holder.this
            stripped.append(whole)
        if len(start_of) > 1:
            names = sorted(name or "all rows" for name in start_of)
            where = f"{function} must read" if function else "it must read"
            problem = f"{where} the rows of one variable, not of {' and '.join(names)}"
            hint = (
                "SUBSET U = (A, B) names the rows of several variables; without a name, all rows of the match are read"
            )
            _fail(problem, source, max(start or 0 for start in start_of.values()), hint)
        return next(iter(start_of), None), stripped

    def _inner_call(self, call: Call, function: str, source: ExpressionText) -> tuple[str | None, exp.Expr]:
        """A call inside of the arguments of *function*: only CLASSIFIER and MATCH_NUMBER."""
        name = call.name.lower()
        _check_elsewhere(call, source)
        if name == "match_number":
            _check_count(call, 0, 0, source)
            return None, _quoted_column(self.rows.match_number, call.start)
        if name in ("match_rowtime", "match_proctime", "match_timeout"):
            _fail(f"{call.name.upper()} cannot be used inside {function}", source, call.start)
        if name != "classifier":
            _fail_nested(call, function, source)
        _check_plain(call, source)
        _check_count(call, 0, 1, source)
        variable = None
        if call.arguments:
            given = call.arguments[0]
            if not isinstance(given, exp.Column) or given.args.get("table") or isinstance(given.this, exp.Star):
                _fail("CLASSIFIER takes the name of a variable", source, call.start, "CLASSIFIER(A)")
            variable = self._variable(given.this)
            if variable is None:
                raise self._unknown(given.this, source)
        return variable, _quoted_column(self.rows.label, call.start)

    def _column(self, node: exp.Column, function: str, source: ExpressionText) -> tuple[str | None, exp.Expr]:
        """(variable, column without it)"""
        parts: list[exp.Expr] = list(node.parts)
        variable, named = self._without_prefix(parts, function, source)
        if any(isinstance(part, exp.Star) for part in named):
            self._check_star(node, variable, named, function, source)
            return variable, exp.Star()
        try:
            self._scope_of_input.column(exp.Column(this=named[0].copy()), source.text)
        except ColumnNotFoundError as error:
            if len(named) > 1 and variable is None:
                raise self._unknown(parts[0], source, parts[1], function) from None
            several = [table for table in self._clause.tables if renamed(table, named[0].name) is not None]
            if several and variable is None and named is parts:
                problem = f"several tables have a column {named[0].name!r:.100}"
                hint = " or ".join(f"{table}.{named[0].name:.100}" for table in several)
                raise ColumnNotFoundError.at(problem, source.text, position_of(named[0]), hint) from None
            likely = self._hint_for(named[0]) or error.hint
            if likely is None or likely.startswith(STRINGS_HAVE_QUOTES):
                columns = f"columns: {', '.join(visible(self.rows.input).names)}"
                likely = columns if likely is None else f"{likely}; {columns}"
            raise ColumnNotFoundError.at(error.message, source.text, position_of(named[0]), likely) from None
        return variable, dotted(named)

    def _without_prefix(
        self, parts: list[exp.Expr], function: str, source: ExpressionText
    ) -> tuple[str | None, list[exp.Expr]]:
        """(the variable before the column, the parts from the name of the column on); *parts* itself if there is no prefix."""
        named = self._without_table(parts) if function in _KEYS else parts  # keys cannot use variables
        if named is not parts:
            return None, named
        variable = self._variable(parts[0]) if len(parts) > 1 else None
        if variable is not None:
            return variable, parts[1:]
        named = self._without_table(parts)
        names = [part.name for part in parts]
        if named is parts and any(table.outer and table.is_called(names[:1]) for table in self._clause.tables):
            raise outer_row(".".join(names), source.text, position_of(parts[0]) or 0)
        return None, named

    def _check_star(
        self, node: exp.Column, variable: str | None, named: list[exp.Expr], function: str, source: ExpressionText
    ) -> None:
        """Reject a star, except in ``COUNT(*)`` and ``COUNT(variable.*)``."""
        is_all = isinstance(named[0], exp.Star)
        if variable is None and is_all and len(node.parts) > 1:
            name = node.parts[0].name
            _fail(f"{name:.100}.* is supported only for variables", source, position_of(node), "COUNT(*)")
        if variable is None and not is_all:
            raise self._unknown(node.parts[0], source)
        if not is_all or function != "COUNT":
            _fail("* is supported only in COUNT(*) and COUNT(variable.*)", source, position_of(node))

    def _measure(self, node: exp.Expr) -> tuple[Leaf, pa.DataType] | None:
        """The measure that a name outside of calls means, and its type."""
        name = node.name.lower()
        if name not in self._measures or len(getattr(node, "parts", ())) != 1 or self._is_column(node.this):
            return None
        return MeasureValue(list(self._measures).index(name)), self._measures[name]

    def _without_table(self, parts: list[exp.Expr]) -> list[exp.Expr]:
        """The parts of a column from the name of the column on. If there is no table of that name, *parts* itself."""
        names = ["*" if isinstance(part, exp.Star) else part.name for part in parts]
        prefix = table_prefix(self._clause.tables, names, lambda name: self._is_column(exp.to_identifier(name)))
        if prefix is None:
            return parts
        column = parts[prefix.length]
        if prefix.column is not None:
            column = exp.to_identifier(prefix.column, quoted=True)
            column.meta.update(parts[prefix.length].meta)
        return [column, *parts[prefix.length + 1 :]]

    def _is_column(self, identifier: exp.Expr) -> bool:
        try:
            self._scope_of_input.column(exp.Column(this=identifier.copy()), identifier.name)
        except ExpressionError:
            return False
        return True

    def _variable(self, identifier: exp.Expr) -> str | None:
        name = identifier.name if identifier.args.get("quoted") else identifier.name.upper()
        return name if name in self._variables else None

    def _hint_for(self, identifier: exp.Expr) -> str | None:
        """Suggestions for a name that is not that of a column."""
        name = identifier.name
        if name.lower() in (measure.name.lower() for measure in self._clause.measures):
            return f"{name} is a measure, which only measures after it can use, outside of aggregates and navigation"
        if self._variable(identifier) is not None:
            return f"{name} is a variable: {name}.{self.rows.input.names[0]}, COUNT({name}.*)"
        return f"{name.upper()}()" if name.lower() in _OF_MATCH else None

    def _unknown(
        self, identifier: exp.Expr, source: ExpressionText, column: exp.Expr | None = None, function: str = ""
    ) -> ColumnNotFoundError:
        """The error for a name before a dot that is neither a variable nor a table. In backticks, it is that of a column."""
        what, known = ("table", []) if function in _KEYS else ("variable", list(self._variables))
        tables = [str(table) for table in self._clause.tables if not table.outer]
        if known and identifier.args.get("quoted"):  # as EQL and Sigma write columns
            what, known = "column", self.rows.input.names
        close = difflib.get_close_matches(identifier.name.lower(), [name.lower() for name in known + tables], n=1)
        if close:
            hint = f"did you mean {next(name for name in known + tables if name.lower() == close[0])}?"
        else:
            hints = [f"{what}s: {shortened(', '.join(known), MAX_NAMES)}"] if known else []
            hints += [f"tables: {', '.join(tables)}"] if tables else []
            named = "" if column is None else column.name
            if not tables and named.lower() in (name.lower() for name in self.rows.input.names):
                hints.append(f"a column is written without the name of its table: {named:.100}")
            hint = "; ".join(hints)
        return ColumnNotFoundError.at(
            f"unknown {what} {identifier.name!r:.100}", source.text, position_of(identifier), hint or None
        )

    def _value(self, tree: exp.Expr, source: ExpressionText) -> tuple[int, pa.DataType]:
        number = self.rows.values.add(self._scope.resolve(tree, source.text), source.text)
        return number, self.rows.values.types[number]


# ---------------------------------------------------------------------------------------------------- checks


@contextmanager
def located(clause: Clause, source: ExpressionText) -> Iterator[None]:
    """Errors of an expression point into the text of the clause."""
    try:
        with ExpressionSyntaxError.if_too_deep(source.text):
            yield
    except ExpressionError as error:
        raise error.moved(clause.text, source.start) from None


def _fail(problem: str, source: ExpressionText, position: int | None, hint: str | None = None) -> NoReturn:
    raise ExpressionSyntaxError.at(problem, source.text, position, hint)


def row_names(clause: Clause, schema: pa.Schema, variables: Mapping[str, frozenset[str]]) -> RowNames:
    """The names of a clause, for its parts that Spark computes."""
    return RowNames(clause, schema, variables, _VOCABULARY)


def parsed(source: ExpressionText, names: Names | None = None) -> exp.Expr:
    """The syntax tree of an expression of a clause.

    :param names: the columns that Spark computes, if there are any
    """
    names = names if names is not None and names.computed else None
    quick = quick_tree(source.text) if names is None else None
    if quick is not None:
        return quick
    try:
        tree = parse(source.text, _VOCABULARY, _MODES, unlisted=(*_MODES, *_ELSEWHERE), names=names)
    except ExpressionSyntaxError:
        _check_spelling(source)
        raise
    if isinstance(tree, exp.Alias):
        _check_spelling(source)
        name = tree.args["alias"]
        _fail("unexpected text after an expression", source, position_of(name), "a comma or AS may be missing")
    return tree


def _check_spelling(source: ExpressionText) -> None:
    """Fail at a word of an expression that cannot be parsed, if it may be meant to be a keyword of the clause."""
    depth = 0
    for number, token in enumerate(tokenize(source.text)):
        depth += (token.text == "(") - (token.text == ")")
        meant = misspelled(token.text) if number and not depth else None
        if meant is not None:
            _fail(f"unexpected text {token.text!r:.60}", source, token.start, f"did you mean {meant}?")


def _check_stray(node: exp.Expr, source: ExpressionText) -> None:
    """Reject parts of calls outside of calls, and names in double quotes."""
    word = word_of_aggregates(node)
    if word is not None:
        _fail(f"{word} belongs to aggregates", source, position_of(node))
    if isinstance(node, exp.Star):
        _fail("* is supported only in COUNT(*) and COUNT(variable.*)", source, position_of(node))
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Literal) and node.this.is_string:
        problem = "names are quoted with backquotes, as in Spark SQL; double quotes make a string"
        _fail(problem, source, position_of(node), f"`{node.this.name:.100}`.{node.expression.name:.100}")


def _check_elsewhere(call: Call, source: ExpressionText) -> None:
    if call.name.lower() in _ELSEWHERE:
        theirs, ours = _ELSEWHERE[call.name.lower()]
        _fail(theirs, source, call.start, ours)


def _check_plain(call: Call, source: ExpressionText) -> None:
    """Reject what only aggregates have."""
    words = {
        "DISTINCT": call.distinct, "FILTER": call.where is not None, "IGNORE NULLS": call.ignore_nulls is not None,
        "ORDER BY": bool(call.order_by),
    }  # fmt: skip
    word = next((word for word, is_there in words.items() if is_there), None)
    if word is not None:
        hint = None
        if call.name.lower() in _LOGICAL:
            hint = f"{call.name.lower()}_value is the aggregate, {call.name.upper()} chooses a row of the match"
        _fail(f"{word} belongs to aggregates", source, call.start, hint)


def _fail_nested(call: Call, outer: str, source: ExpressionText) -> NoReturn:
    """Fail at a call inside of the arguments of another one."""
    inner, hint = call.name.upper(), None
    navigating = [name.lower() in (*_LOGICAL, *_PHYSICAL) for name in (inner, outer)]
    if all(navigating):
        problem, hint = "navigation cannot be nested in this way", "an offset, as in LAST(price, 2) or PREV(price, 2)"
        if inner.lower() in _PHYSICAL and outer.lower() in _LOGICAL:
            hint = f"{inner}({outer}(...)): FIRST and LAST choose a row of the match, PREV and NEXT go from there"
    else:
        what = "aggregates and navigation" if any(navigating) else "aggregates"
        problem = f"{what} cannot be nested"
    _fail(f"{inner} inside {outer}: {problem}", source, call.start, hint)


def _check_count(call: Call, least: int, most: int, source: ExpressionText) -> None:
    if not least <= len(call.arguments) <= most:
        usage = {"classifier": "CLASSIFIER(), CLASSIFIER(A)"}.get(call.name.lower())
        usage = usage or (
            f"{call.name.upper()}(price), {call.name.upper()}(price, 2)" if least else f"{call.name.upper()}()"
        )
        _fail(f"{call.name.upper()}: wrong number of arguments: {len(call.arguments):,}", source, call.start, usage)


def _offset(call: Call, source: ExpressionText, default: int = 0) -> int:
    """The second argument of a call that navigates."""
    if len(call.arguments) < 2:
        return default
    given, name = call.arguments[1], call.name.upper()
    position = position_of(given)
    position = call.start if position is None else position
    if isinstance(given, exp.Null):
        _fail(f"the offset of {name} must not be NULL", source, position)
    if isinstance(given, exp.Neg) and isinstance(given.this, exp.Literal) and not given.this.is_string:
        opposite = {"prev": "NEXT", "next": "PREV"}.get(call.name.lower())
        hint = f"{opposite} goes in the other direction" if opposite else None
        _fail(f"the offset of {name} must not be negative", source, position, hint)
    offset = integer_literal(given)
    if offset is None:
        _fail(f"the offset of {name} must be an integer literal", source, position)
    if offset > MAX_OFFSET:
        _fail(f"the offset of {name} must be at most {MAX_OFFSET:,}", source, position)
    return offset


def _prefixed(call: Call, source: ExpressionText, *, final_allowed: bool) -> tuple[bool, Call]:
    """(whether it is FINAL and not RUNNING, the call after it)"""
    word = call.name.upper()
    if word == "FINAL" and not final_allowed:
        _fail("FINAL cannot be used in DEFINE, where the end of the match is not known yet", source, call.start)
    inner = call_of(call.arguments[0], source.text, _VOCABULARY) if len(call.arguments) == 1 else None
    if re.match(r"\s*\(", source.text[call.start + len(word) :]) or inner is None:
        _fail(
            f"{word} is a word before a call of FIRST, LAST or an aggregate", source, call.start, f"{word} LAST(price)"
        )
    return word == "FINAL", inner


def outer_row(name: str, text: str, position: int) -> UnsupportedSyntaxError:
    """The error for a column of the query around a clause."""
    problem = f"MATCH_RECOGNIZE cannot read {name:.100}, a column of the query around it"
    hint = (
        "an equality after the clause: MATCH_RECOGNIZE (PARTITION BY k ...) AS m WHERE m.k = o.k; or join the tables before: FROM"
        " (SELECT ... FROM a JOIN b ON ...) MATCH_RECOGNIZE (PARTITION BY the columns of a ...)"
    )
    return UnsupportedSyntaxError.at(problem, text, position, hint)


def _quoted_column(name: str, start: int | None) -> exp.Expr:
    column: exp.Expr = exp.column(name, quoted=True)
    column.this.meta["start"] = start
    return column
