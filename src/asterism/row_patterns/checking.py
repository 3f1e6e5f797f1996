"""Checks a clause against the columns of its input, and determines the columns and types of its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.columns.arrays import Mask
from asterism.errors import ColumnNotFoundError, ExpressionError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions.computed_columns import visible
from asterism.expressions.parsing import parse
from asterism.expressions.parts_for_spark import PartForSpark, may_be_for_spark, parts_for_spark
from asterism.expressions.translation import interval_of
from asterism.expressions.types import BIGINT, BOOLEAN, MONTHS, NULL, is_nested, is_numeric, is_temporal, name_of
from asterism.expressions.values import UnsupportedError
from asterism.row_patterns.automaton import RowAutomaton, compiled_pattern, copies_of_parts, simplified, takes_no_row
from asterism.row_patterns.clause import clause as syntax
from asterism.row_patterns.clause.clause import Clause, ExpressionText, quoted
from asterism.row_patterns.resolution import (
    MatchProcessingTime,
    ResolvedExpression,
    Resolver,
    RowExpressions,
    RowValue,
    located,
    parsed,
    row_names,
)

MAX_ELEMENTS = 10_000
"""Maximum size of a pattern with its repetitions and permutations written out. Its automaton has at least as many states."""

MAX_VARIABLES = 200
MAX_MEASURES = 500  # as many columns as a wide table has; each takes milliseconds to check


@dataclass(frozen=True, slots=True)
class VariableCondition:
    """The condition of a variable.

    :ivar reach: (rows before, rows after) the current row that it reads, if it depends only on rows near it; None if it depends
        on the match so far
    :ivar names: the variable and the subsets that contain it: the current row is among their rows
    """

    resolved: ResolvedExpression
    reach: tuple[int, int] | None
    names: frozenset[str]


@dataclass(frozen=True)
class CheckedClause:
    """A clause over an input with known columns.

    :ivar variables: the variables, in the order of the pattern
    :ivar names: the variables and the subsets, each with its variables
    :ivar rows: the expressions over rows
    :ivar partition_by: numbers of expressions of :attr:`RowExpressions.values`
    :ivar order_by: likewise
    :ivar conditions: by variable; a variable without a condition takes every row
    :ivar within: the largest difference of the first expression of ORDER BY between the first and the last row of a match, in
        microseconds
    :ivar output: the columns of the result: for ONE ROW PER MATCH those of PARTITION BY and the measures; for ALL ROWS PER
        MATCH those of PARTITION BY, those of ORDER BY, the measures, and the other columns of the input
    """

    clause: Clause
    variables: tuple[str, ...]
    names: Mapping[str, frozenset[str]]
    rows: RowExpressions
    partition_by: tuple[int, ...]
    order_by: tuple[int, ...]
    measures: tuple[ResolvedExpression, ...]
    conditions: Mapping[str, VariableCondition]
    within: int | None
    output: pa.Schema

    @property
    def uses_processing_time(self) -> bool:
        return any(MatchProcessingTime() in measure.leaves for measure in self.measures)

    @cached_property
    def automaton(self) -> RowAutomaton:
        """:raises asterism.errors.ExpressionSyntaxError: it has too many edges"""
        return compiled_pattern(self.clause)

    def meant_by(self, name: str | None) -> Mask:
        """A mask of the variables whose rows *name* means: a variable, a subset, or None for all rows of the match."""
        return np.array([name is None or variable in self.names[name] for variable in self.variables], np.bool_)

    @property
    def reach_of_conditions(self) -> tuple[int, int]:
        """(rows before, rows after) a row that its conditions read, at most."""
        return _reach(condition.resolved for condition in self.conditions.values())

    @property
    def reach_of_measures(self) -> tuple[int, int]:
        """(rows before the first, rows after the last) row of a match that its measures read, at most."""
        return _reach(self.measures)


def _reach(expressions: Iterable[ResolvedExpression]) -> tuple[int, int]:
    steps = [leaf.place.steps for expression in expressions for leaf in expression.leaves if isinstance(leaf, RowValue)]
    return max(0, -min(steps, default=0)), max(0, max(steps, default=0))


def check(clause: Clause, schema: pa.Schema) -> CheckedClause:
    """Check a clause over rows with the columns of *schema*; the metadata of the schema may contain the session time zone.

    :raises asterism.errors.ExpressionError: a name is unknown, an expression has no type, or a part of the clause is not allowed
        at its place; with the position in the text

    >>> from asterism.row_patterns.clause.reading import read
    >>> rows = pa.schema({"ts": "int64", "price": "int32"})
    >>> checked = check(read("ORDER BY ts MEASURES SUM(B.price) AS s PATTERN (A B+) DEFINE B AS price > PREV(price)"), rows)
    >>> checked.output.field("s").type, checked.conditions["B"].reach
    (DataType(int64), (1, 0))
    """
    names = checked_names(clause)
    resolver = Resolver(clause, schema, names)
    partition = [resolver.key(key.expression, "PARTITION BY") for key in clause.partition_by]
    order = [resolver.key(key.expression, "ORDER BY") for key in clause.order_by]
    sources = [key.expression for key in clause.partition_by] + [key.expression for key in clause.order_by]
    for source, (_, data_type) in zip(sources, partition + order, strict=True):
        if is_nested(data_type):
            raise _type_error(clause, source, f"rows cannot be ordered or partitioned by {name_of(data_type)}")
    conditions = {
        definition.variable: _condition(clause, resolver, definition.condition, definition.variable, names)
        for definition in clause.definitions
    }
    measures = tuple(resolver.measure(measure.expression, measure.name) for measure in clause.measures)
    within = None if clause.within is None else _within(clause, clause.within, order[0][1] if order else None)
    clause = replace(
        clause,
        partition_by=tuple(
            replace(key, expression=resolver.without_tables(key.expression)) for key in clause.partition_by
        ),
        order_by=tuple(replace(key, expression=resolver.without_tables(key.expression)) for key in clause.order_by),
    )
    partition_by, order_by = (tuple(number for number, _ in keys) for keys in (partition, order))
    output = _output(clause, resolver.rows, partition_by, order_by, measures)
    return CheckedClause(
        clause, clause.variables, names, resolver.rows, partition_by, order_by, measures, conditions, within, output
    )


def check_without_columns(clause: Clause, *, with_spark: bool = False) -> None:
    """Check what does not depend on the columns of the input: the names, the size of the pattern, the syntax of expressions.

    :param with_spark: whether Spark may evaluate what is not supported here
    :raises asterism.errors.ExpressionError: with the position in the text

    >>> from asterism.row_patterns.clause.reading import read
    >>> check_without_columns(read("PATTERN (A B) DEFINE B AS price > PREV(price)"))
    """
    checked_names(clause)
    expressions = [key.expression for key in clause.partition_by] + [key.expression for key in clause.order_by]
    expressions += [measure.expression for measure in clause.measures]
    for expression in expressions + [definition.condition for definition in clause.definitions]:
        try:
            with located(clause, expression):
                parsed(expression)
        except ExpressionSyntaxError as error:
            if not (with_spark and may_be_for_spark(expression.text, error)):
                raise


@dataclass(frozen=True, slots=True)
class ClauseExpressions:
    """The expressions of a clause, for :class:`asterism.spark.host.computed_columns.ComputedColumns`."""

    clause: Clause

    def parts_for_spark(self, schema: pa.Schema) -> list[PartForSpark]:
        """The parts that Spark must compute, with positions in the text of the clause.

        :param schema: the columns of the rows
        :raises UnsupportedSyntaxError: the value of such a part does not depend on the row alone
        """
        clause = self.clause
        names = row_names(clause, schema, _names(clause))
        keys = [key.expression for key in clause.partition_by] + [key.expression for key in clause.order_by]
        sources = [(key, names.of_keys()) for key in keys]
        sources += [(item.condition, names.of_condition(item.variable)) for item in clause.definitions]
        sources += [(measure.expression, names.of_measures()) for measure in clause.measures]
        parts: list[PartForSpark] = []
        for source, names_of_source in sources:
            with located(clause, source):
                found = parts_for_spark(source.text, schema, names_of_source)
            parts += [part.moved(clause.text, source.start) for part in found]
        return parts


def checked_names(clause: Clause) -> dict[str, frozenset[str]]:
    """The variables and the subsets, each with its variables.

    :raises ExpressionSyntaxError: the names, the pattern or its size are invalid
    """
    names = _names(clause)
    _check_size(clause)
    _check_pattern(clause)
    return names


def _fail(clause: Clause, problem: str, position: int, hint: str | None = None) -> NoReturn:
    raise ExpressionSyntaxError.at(problem, clause.text, position, hint)


def _type_error(clause: Clause, source: ExpressionText, problem: str, hint: str | None = None) -> ExpressionTypeError:
    return ExpressionTypeError.at(problem, clause.text, source.start, hint)


# ---------------------------------------------------------------------------------------------------- names


def _names(clause: Clause) -> dict[str, frozenset[str]]:
    """The variables and the subsets, each with its variables."""
    names = {name: frozenset((name,)) for name in clause.variables}
    if len(names) + len(clause.subsets) > MAX_VARIABLES:
        _fail(clause, f"more than {MAX_VARIABLES:,} variables and subsets", clause.pattern.start)
    if len(clause.measures) > MAX_MEASURES:
        _fail(clause, f"more than {MAX_MEASURES:,} measures", clause.measures[MAX_MEASURES].start)
    for subset in clause.subsets:
        if subset.name in names:
            _fail(clause, f"{quoted(subset.name)} is already the name of a variable or a subset", subset.start)
        for member, start in zip(subset.members, subset.member_starts, strict=True):
            if member not in clause.variables:
                what = "a subset" if member in names else "not a variable of the pattern"
                _fail(clause, f"{quoted(member)} is {what}; a subset consists of variables of the pattern", start)
        names[subset.name] = frozenset(subset.members)
    defined: set[str] = set()
    for definition in clause.definitions:
        name = definition.variable
        if name in defined:
            _fail(clause, f"{quoted(name)} is defined twice", definition.start)
        if name not in clause.variables:
            what = "a subset, which has no condition" if name in names else "not a variable of the pattern"
            _fail(clause, f"{quoted(name)} is {what}", definition.start, f"variables: {', '.join(clause.variables)}")
        defined.add(name)
    skip = clause.skip
    if skip.variable is not None and skip.variable not in names:
        problem = f"AFTER MATCH SKIP: {quoted(skip.variable)} is not a variable of the pattern"
        raise ColumnNotFoundError.at(problem, clause.text, skip.start, f"variables: {', '.join(names)}")
    if skip.variable is not None and names[skip.variable].isdisjoint(clause.taking):
        problem = f"AFTER MATCH SKIP: {quoted(skip.variable)} takes no row of a match"
        _fail(clause, problem, skip.start, f"variables with rows: {', '.join(sorted(clause.taking))}")
    return names


# ---------------------------------------------------------------------------------------------------- the pattern


def _check_size(clause: Clause) -> None:
    def size(node: syntax.PatternNode) -> int:
        node = simplified(node) if isinstance(node, syntax.Quantified) else node
        if isinstance(node, syntax.Permutation):
            total = sum(copies * size(part) for part, copies in zip(node.of, copies_of_parts(node), strict=True))
        else:
            total = sum(size(part) for part in node.parts) or 1
        if isinstance(node, syntax.Quantified):
            # Each repetition of an unbounded loop takes a row; repetitions that need not are written out before it.
            total *= max(node.least + (node.most is None and takes_no_row(node.of)), node.most or 0, 1)
        if total > MAX_ELEMENTS:
            problem = f"with its repetitions and permutations written out, this has more than {MAX_ELEMENTS:,} elements"
            _fail(clause, problem, node.start, "count in a condition instead, as in DEFINE B AS COUNT(A.*) >= 100000")
        return total

    size(clause.pattern)


def _check_pattern(clause: Clause) -> None:
    for node in clause.pattern.walk():
        if isinstance(node, syntax.Exclusion) and clause.rows is syntax.RowsPerMatch.ALL_WITH_UNMATCHED:
            problem = "{- -} is not allowed with ALL ROWS PER MATCH WITH UNMATCHED ROWS"
            _fail(clause, problem, node.start, "an excluded row would be neither matched nor unmatched")
    first = _negation_first_in(clause.pattern)
    if first is not None:
        problem = f"{first} must follow a row of the match"
        _fail(clause, problem, first.start, "NOT in the condition of the first variable; PREV reads the row before")
    if clause.timeouts and clause.within is None:
        problem = "SHOW TIMEOUT MATCHES needs WITHIN: without it, no match times out"
        _fail(clause, problem, clause.pattern.start, "PATTERN (A B) WITHIN INTERVAL '1' HOUR")


def _negation_first_in(node: syntax.PatternNode) -> syntax.NotNext | None:
    """The first ``[^B]`` before which a match may have no row."""
    if isinstance(node, syntax.NotNext):
        return None if node.implied else node
    for part in node.parts:
        negation = _negation_first_in(part)
        if negation is not None:
            return negation
        if isinstance(node, syntax.Concatenation) and not takes_no_row(part):
            return None
    return None


def _condition(
    clause: Clause,
    resolver: Resolver,
    source: ExpressionText,
    variable: str,
    names: Mapping[str, frozenset[str]],
) -> VariableCondition:
    resolved = resolver.condition(source, variable)
    if resolved.type not in (BOOLEAN, NULL):
        hint = f"{source.text.strip():.100} <> 0" if is_numeric(resolved.type) else None
        raise _type_error(clause, source, f"a condition must be a BOOLEAN, not {name_of(resolved.type)}", hint)
    names_of_row = frozenset(name for name, variables in names.items() if variable in variables)
    return VariableCondition(resolved, resolved.reach(names_of_row), names_of_row)


def _within(clause: Clause, source: ExpressionText, time: pa.DataType | None) -> int:
    """The length of WITHIN in microseconds."""
    if time is None or not (is_temporal(time) or time == BIGINT):
        problem = "WITHIN needs ORDER BY with a time as its first expression: a TIMESTAMP, a DATE, or a BIGINT of milliseconds"
        _fail(clause, problem, source.start)
    try:
        tree = parse(source.text)
    except ExpressionError as error:
        raise error.moved(clause.text, source.start) from None
    usage = "WITHIN INTERVAL '90' MINUTE"
    if not isinstance(tree, exp.Interval):
        _fail(clause, "WITHIN must be followed by an interval", source.start, usage)
    try:
        length, data_type = interval_of(tree)
    except UnsupportedError as error:
        _fail(clause, error.problem, source.start, error.hint)
    if data_type == MONTHS:
        _fail(clause, "an interval of months or years has no fixed length", source.start, usage)
    if length <= 0:
        _fail(clause, "the interval of WITHIN must be positive", source.start, usage)
    return length - (clause.dialect is syntax.ClauseDialect.FLINK)  # Flink excludes the bound


# ---------------------------------------------------------------------------------------------------- the output


def _output(
    clause: Clause,
    rows: RowExpressions,
    partition_by: tuple[int, ...],
    order_by: tuple[int, ...],
    measures: tuple[ResolvedExpression, ...],
) -> pa.Schema:
    fields: list[tuple[pa.Field, int]] = []
    taken: set[str] = set()

    input_columns = visible(rows.input)

    def column(number: int) -> str | None:
        name = rows.plain_name(number)
        return name if name in input_columns.names else None

    def keys() -> Iterator[tuple[pa.Field, int]]:
        for key, number in zip(clause.partition_by, partition_by, strict=True):
            name = key.name or column(number) or key.expression.text
            taken.add(column(number) or "")
            yield pa.field(name, rows.values.types[number]), key.expression.start
        if clause.rows is not syntax.RowsPerMatch.ONE:
            for order_key, number in zip(clause.order_by, order_by, strict=True):
                name = column(number) or ""
                if name and name not in taken:
                    taken.add(name)
                    yield rows.input.field(name), order_key.expression.start

    fields.extend(keys())
    for measure, resolved in zip(clause.measures, measures, strict=True):
        fields.append((pa.field(measure.name, resolved.type), measure.start))
    if clause.rows is not syntax.RowsPerMatch.ONE:
        fields += [(field, 0) for field in input_columns if field.name not in taken]
    if not fields:
        hint = "add MEASURES, PARTITION BY or ALL ROWS PER MATCH"
        _fail(clause, "the result has no columns", clause.pattern.start, hint)
    seen: dict[str, int] = {}
    for field, start in fields:
        name = field.name.lower()
        if name in seen:
            problem = f"two columns of the result have the name {field.name!r:.100}"
            hint = "choose another name after AS"
            if not start:
                hint += ": ALL ROWS PER MATCH returns the columns of the input, too"
            _fail(clause, problem, max(start, seen[name]), hint)
        seen[name] = start
    return pa.schema([field for field, _ in fields], metadata=rows.input.metadata)
