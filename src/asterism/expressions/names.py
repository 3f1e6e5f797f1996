"""Resolves the names of an expression: columns of the events, stages of the pattern, and aggregates over the events of a
stage.

:class:`Scope` resolves a syntax tree, :func:`aggregate_of` interprets an aggregate of a resolved tree, and :func:`columns_of`
determines which columns a translated expression reads. Optional columns: see docs/decisions/0168.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

import pyarrow as pa
from sqlglot import exp

from asterism.errors import ColumnNotFoundError, ExpressionSyntaxError
from asterism.expressions import computed_columns
from asterism.expressions.computed_columns import computed_sql, is_computed, sql_of_column
from asterism.expressions.functions import WITHOUT_PARENTHESES
from asterism.expressions.parsing import AGGREGATES, Previous, not_pure, parse
from asterism.expressions.routines.user_functions import UserFunctions, listed, listed_functions
from asterism.expressions.translation import position_of

MAX_OFFSET = 10_000
"""The maximum offset of FIRST and LAST; the kept events are searched one by one."""
MAX_PREVIOUS = 100
"""The maximum offset of PREV; this many events are kept for each key."""
EVERY_STAGE, PREVIOUS = ":match", ":previous"
"""In place of the stage of an aggregate: all events of the match, and the events of the key before the current one. (Names of
stages have no colon.)
"""

OPTIONAL = "?"
"""What the name of an optional column begins with, see :func:`optional_column`."""
_ELEMENT = "GET"
"""The function of an element of an array. Its first argument and ARRAY_CONTAINS's cannot be a NULL without a type."""


class PreviousColumn(NamedTuple):
    """A column of the event that is *before* places before an event of the same key: ``PREV(name, before)`` in a measure."""

    name: str
    before: int

    def __str__(self) -> str:
        name = sql_of_column(self.name)
        return f"PREV({name})" if self.before == 1 else f"PREV({name}, {self.before})"

    @property
    def column(self) -> str:
        """The column of an event with this value. (A colon, so that it is not a name of the events.)"""
        return f":previous:{self.before}:{self.name}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The names in scope: columns of the events, and stages of the pattern."""

    schema: pa.Schema = field(hash=False)  # before pyarrow 22, a schema with metadata has no hash
    stages: tuple[str, ...] = ()
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """names of several stages together"""
    functions: UserFunctions = field(default_factory=listed_functions)
    """the functions that are listed where it is made"""

    @property
    def all_names(self) -> tuple[str, ...]:
        """The stages and subsets."""
        return self.stages + tuple(name for name, _ in self.subsets)

    def names(self, aggregates: Collection[str] = ()) -> computed_columns.Names:
        """The names with which :mod:`asterism.expressions.computed_columns` divides an expression.

        :param aggregates: as for :meth:`parse`; those of measures, which read single events only in their arguments
        """
        return computed_columns.Names(
            columns=frozenset(name for name in self.schema.names if not name.startswith(":")),
            computed=computed_sql(self.schema),
            stages=frozenset(self.all_names),
            aggregates=aggregates or computed_columns.AGGREGATES,
            only_in_aggregates=bool(aggregates),
            opaque=computed_columns.opaque_columns(self.schema) if aggregates and self.all_names else frozenset(),
        )

    def parse(
        self,
        text: str,
        aggregates: Collection[str] = (),
        prefixes: Collection[str] = (),
        unlisted: Collection[str] = (),
    ) -> exp.Expr:
        """:func:`asterism.expressions.parsing.parse`, in which a part that the schema has as a computed column is this column."""
        names = self.names(aggregates) if any(map(is_computed, self.schema.names)) else None
        with listed(self.functions):
            return parse(text, aggregates, prefixes, unlisted, names=names)

    def column(self, node: exp.Column, text: str) -> str:
        """The event column that *node* names: an exact match, or the only match that differs in case."""
        names = [name for name in self.schema.names if not name.startswith(":")]  # not those that stand for functions
        field = self._find(node.this)
        if field is not None:
            return field
        if node.name.lower() in WITHOUT_PARENTHESES and not node.this.quoted:
            raise not_pure(node.name, text, position_of(node))
        raise ColumnNotFoundError.from_missing_and_available(node.name, names, f"in: {text}")

    def _find(self, identifier: exp.Expr) -> str | None:
        names, name = self.schema.names, identifier.name
        if name in names:
            return name
        alike = [candidate for candidate in names if candidate.lower() == name.lower()]
        return str(alike[0]) if len(alike) == 1 and not identifier.args.get("quoted") else None

    def resolve(self, tree: exp.Expr, text: str) -> exp.Expr:
        """A copy of *tree* in which every event column is spelled as in the schema, and a bare ``a.x`` is ``LAST(a.x)``.

        ``a.b`` is column ``b`` of stage ``a`` or, if there is no such stage, field ``b`` of column ``a``.
        """

        def visit(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Filter):
                node = self._without_filter(node, text)
            kind = AGGREGATES.get(type(node))
            if kind is not None:
                return self._aggregate(node, kind, text)
            if isinstance(node, exp.Column):
                stage, names = self._split(node)
                if isinstance(names[0], exp.Star):
                    raise ExpressionSyntaxError.at("* is supported only in COUNT(stage.*)", text, position_of(node))
                if stage:
                    self._stage(stage, text, is_quoted=bool(node.parts[0].args.get("quoted")))
                argument = self._named(stage, names, text)
                return exp.Last(this=argument) if stage else argument
            if isinstance(node, exp.And | exp.Or):
                return _balanced(type(node), [visit(part) for part in node.flatten(unnest=False)])
            copied = _shallow(node)
            for key, value in node.args.items():
                if isinstance(value, exp.Expr):
                    copied.set(key, visit(value))
                elif isinstance(value, list):
                    copied.set(key, [visit(item) if isinstance(item, exp.Expr) else item for item in value])
            return copied

        return visit(with_optional_columns(tree, self.schema, text))

    def _split(self, column: exp.Column) -> tuple[str, list[exp.Expr]]:
        """Split a dotted name into (stage or empty, column and fields)."""
        parts: list[exp.Expr] = list(column.parts)
        stage = parts[0].name
        if len(parts) > 1 and (stage in self.all_names or self._find(parts[0]) is None):
            return stage, parts[1:]
        return "", parts

    def _named(self, stage: str, names: list[exp.Expr], text: str) -> exp.Expr:
        first = exp.to_identifier(self.column(exp.Column(this=names[0].copy()), text), quoted=True)
        first.meta.update(names[0].meta)
        named: exp.Expr = exp.Column(this=first, table=exp.to_identifier(stage, quoted=True) if stage else None)
        for name in names[1:]:
            if isinstance(name, exp.Star):
                raise ExpressionSyntaxError.at("* is supported only in COUNT(stage.*)", text, position_of(name))
            named = exp.Dot(this=named, expression=name.copy())
        return named

    def _aggregate(self, node: exp.Expr, kind: str, text: str) -> exp.Expr:
        argument = node.this
        position = position_of(node)
        if node.expressions:
            raise ExpressionSyntaxError.at(f"{kind} takes one argument", text, position)
        offset = _offset(node, kind, text)
        stage = self.stage_of([argument] if isinstance(argument, exp.Expr) else [], kind, text, position)
        if any(argument.find_all(*AGGREGATES)):
            raise ExpressionSyntaxError.at(f"{kind} must use the events of a single stage", text, position)
        if kind == "PREV":
            if stage != EVERY_STAGE:
                problem = "PREV reads the event of the key before the current one, not those of a stage"
                raise ExpressionSyntaxError.at(problem, text, position, "PREV(column), or LAST(stage.column)")
            stage, offset = PREVIOUS, offset - 1
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star)):
            if kind != "COUNT":
                raise ExpressionSyntaxError.at(f"{kind} needs a column", text, position)
            return exp.Count(this=exp.Column(this=exp.Star(), table=exp.to_identifier(stage, quoted=True)))
        holder = exp.Paren(this=argument.copy())
        columns = list(holder.find_all(exp.Column))
        if not columns:
            hint = "COUNT(*)" if kind == "COUNT" else f"{kind}(column)"
            raise ExpressionSyntaxError.at(f"{kind} needs a column", text, position, hint)
        for column in columns:
            column.replace(self._named(stage, self._split(column)[1], text))
        made = exp.Last if kind == "PREV" else type(node)
        return made(this=holder.this, **({"expression": exp.Literal.number(offset)} if offset else {}))

    def _without_filter(self, node: exp.Filter, text: str) -> exp.Expr:
        """``SUM(x) FILTER (WHERE c)`` as ``SUM(CASE WHEN c THEN x END)``: these aggregates ignore NULL."""
        aggregate, condition = node.this, node.expression.this
        if not isinstance(aggregate, exp.Sum | exp.Count | exp.Avg | exp.Min | exp.Max):
            problem = "in a condition, FILTER belongs to SUM, COUNT, AVG, MIN or MAX"
            raise ExpressionSyntaxError.at(problem, text, position_of(aggregate))
        argument = aggregate.this
        self.stage_of([argument, condition], AGGREGATES[type(aggregate)], text, position_of(aggregate))
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star)):
            argument = exp.Literal.number(1)
        chosen = exp.If(this=condition.copy(), true=argument.copy())
        made = type(aggregate)(this=exp.Case(ifs=[chosen]), expressions=aggregate.expressions)
        made.meta.update(aggregate.meta)
        return made

    def without_previous(self, tree: exp.Expr, text: str) -> tuple[exp.Expr, set[PreviousColumn]]:
        """Replace each ``PREV`` in a measure by a column of its event, or by a call of such a column. Returns these columns, too.

        :param tree: a measure in which calls of PREV, FIRST and LAST are ``Anonymous`` nodes
        """
        columns: set[PreviousColumn] = set()
        holder = exp.Paren(this=tree)
        for node in list(holder.find_all(exp.Anonymous)):
            if node.name.upper() != "PREV":
                continue
            position, arguments = position_of(node), node.expressions
            given = arguments[0] if arguments else None
            call = given if isinstance(given, exp.Anonymous) and given.name.upper() in ("FIRST", "LAST") else None
            column = given if call is None else call.expressions[0] if len(call.expressions) == 1 else None
            if len(arguments) > 2 or not isinstance(column, exp.Column) or not _names_column(column):
                hint = "PREV(a.price) * 2 instead of PREV(a.price * 2)"
                problem = "PREV takes a column, or FIRST or LAST of a column, and the number of events before"
                raise ExpressionSyntaxError.at(problem, text, position, hint)
            offset = arguments[1].copy() if len(arguments) > 1 else None
            before = _offset(Previous(this=column.copy(), expression=offset), "PREV", text)
            stage, names = self._split(column)
            previous = PreviousColumn(self.column(exp.Column(this=names[0].copy()), text), before)
            columns.add(previous)
            first = exp.to_identifier(previous.column, quoted=True)
            first.meta.update(names[0].meta)
            parts = [*([exp.to_identifier(stage, quoted=True)] if stage else []), first, *names[1:]]
            column.replace(dotted(parts))
            made = node.expressions[0]
            if call is not None:
                made.meta.update({name: node.meta[name] for name in ("start", "call_end")})
            node.replace(made)
        whole: exp.Expr = holder.this
        return whole, columns

    def stage_of(self, parts: Sequence[exp.Expr], function: str, text: str, position: int | None) -> str:
        """The stage whose events an aggregate ranges over, which all columns in its *parts* must name; EVERY_STAGE if they name
        none.
        """
        stages = {self._split(column)[0] for part in parts for column in part.find_all(exp.Column)}
        if stages <= {""}:
            return EVERY_STAGE
        if len(stages) != 1:
            raise ExpressionSyntaxError.at(f"{function} must use the events of a single stage", text, position)
        stage = stages.pop()
        self._stage(stage, text)
        return stage

    def _stage(self, stage: str, text: str, *, is_quoted: bool = False) -> None:
        if stage not in self.all_names:
            if is_quoted and not self.all_names:  # as EQL and Sigma write columns
                names = [name for name in self.schema.names if not name.startswith(":")]
                raise ColumnNotFoundError.from_missing_and_available(stage, names, f"in: {text}")
            raise ColumnNotFoundError(
                f"unknown stage {stage!r:.100}",
                f"in: {text:.1000}\nStages: {', '.join(self.all_names) or '(none)'}",
                "stage names are case-sensitive"
                if self.all_names
                else "columns are written without the name of a table",
            )


def _names_column(column: exp.Column) -> bool:
    """Whether it is a column of the events, not ``*`` and not what stands for a function."""
    return not isinstance(column.this, exp.Star) and (not column.name.startswith(":") or is_computed(column.name))


def _shallow(node: exp.Expr) -> exp.Expr:
    """The node without its children."""
    copied = type(node)(**{key: value for key, value in node.args.items() if not isinstance(value, exp.Expr | list)})
    copied.meta.update(node.meta)
    return copied


def _balanced(kind: type[exp.Expr], parts: list[exp.Expr]) -> exp.Expr:
    """Join all parts, in order, in a tree of minimal depth."""
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [kind(this=pair[0], expression=pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def check_names(tree: exp.Expr, stages: Sequence[str], text: str) -> None:
    """Check the names in *text* if only the stages are known: any name that may be a column is accepted.

    :raises ExpressionError: a function or a stage is unknown, or is not allowed at its position
    """
    columns: dict[str, pa.DataType] = {}
    for column in tree.find_all(exp.Column):
        # The first of several names must be a stage only in an aggregate; elsewhere it may be a struct column.
        of_stage = len(column.parts) > 1 and column.find_ancestor(*AGGREGATES) is not None
        parts = column.parts[of_stage:]
        columns |= {part.name: pa.null() for part in parts if not isinstance(part, exp.Star)}
    Scope(pa.schema(columns), tuple(stages)).resolve(tree, text)


# ---------------------------------------------------------------------------------------------------- optional columns


def dotted(parts: Sequence[exp.Expr]) -> exp.Expr:
    """The column whose name has these parts, in their order.

    >>> dotted([exp.to_identifier(name) for name in "abcdef"]).sql()
    'a.b.c.d.e.f'
    """
    arguments = zip(("this", "table", "db", "catalog"), (part.copy() for part in reversed(parts[:4])), strict=False)
    named: exp.Expr = exp.Column(**dict(arguments))
    for part in parts[4:]:
        named = exp.Dot(this=named, expression=part.copy())
    return named


def optional_column(column: exp.Column, schema: pa.Schema, further: Sequence[str | int] = ()) -> exp.Expr | None:
    """What an optional column means, such as ``?user.name`` in backquotes, perhaps after the name of a stage: the column
    ``user.name``, or the field ``name`` of the column ``user``, or else NULL. None: *column* is not optional.

    :param further: the elements and fields of it that are meant

    >>> rows = pa.schema({"user": pa.struct({"name": "string"}), "tags": pa.list_(pa.string())})
    >>> chosen = [optional_column(exp.column(name, quoted=True), rows) for name in ("?user.name", "?user.id", "user")]
    >>> [column and column.sql() for column in chosen]
    ['"user"."name"', 'NULL', None]
    >>> [optional_column(exp.column("?tags"), rows, parts).sql() for parts in ([0], [0, "name"])]
    ['GET("tags", 0)', 'NULL']
    """
    *stages, last = column.parts
    if isinstance(last, exp.Star) or not last.name.startswith(OPTIONAL) or last.name in schema.names:
        return None
    path = path_in(schema, [*last.name.removeprefix(OPTIONAL).split("."), *further])
    if path is None:
        return exp.null()
    place = next((place for place, part in enumerate(path) if isinstance(part, int)), len(path))
    named = dotted([*stages, *(_quoted(str(part), last) for part in path[:place])])
    for part in path[place:]:
        if isinstance(part, int):
            named = exp.Anonymous(this=_ELEMENT, expressions=[named, exp.Literal.number(part)])
            named.meta.update(last.meta)
        else:
            named = exp.Dot(this=named, expression=_quoted(part, last))
    return named


def _quoted(name: str, like: exp.Expr) -> exp.Identifier:
    identifier = exp.to_identifier(name, quoted=True)
    identifier.meta.update(like.meta)
    return identifier


def with_optional_columns(tree: exp.Expr, schema: pa.Schema, text: str) -> exp.Expr:
    """The *tree* of a *text*, or a copy of it with what its optional columns mean."""
    if OPTIONAL not in text or not any(column.name.startswith(OPTIONAL) for column in tree.find_all(exp.Column)):
        return tree
    holder = exp.Paren(this=tree.copy())
    for column in list(holder.find_all(exp.Column)):
        node, further = _with_elements(column)
        chosen = optional_column(column, schema, further)
        if chosen is None:
            continue
        call = node.parent
        if (
            isinstance(chosen, exp.Null)
            and _is_call(call, _ELEMENT, "ARRAY_CONTAINS")
            and node.arg_key == "expressions"
        ):
            node = call if call.expressions[0] is node else node
        node.replace(chosen)
    whole: exp.Expr = holder.this
    return whole


def _with_elements(column: exp.Expr) -> tuple[exp.Expr, list[str | int]]:
    """The largest expression that is an element of the *column*, or a field of one, and so on; and its path from the column."""
    node, path = column, list[str | int]()
    while (above := node.parent) is not None:
        if isinstance(above, exp.Dot) and above.this is node:
            path.append(above.expression.name)
        elif _is_call(above, _ELEMENT) and len(above.expressions) == 2 and above.expressions[0] is node:
            place = integer_literal(above.expressions[1])
            if place is None:
                break
            path.append(place)
        else:
            break
        node = above
    return node, path


def _is_call(node: exp.Expr | None, *names: str) -> TypeGuard[exp.Anonymous]:
    return isinstance(node, exp.Anonymous) and node.name.upper() in names


def path_in(schema: pa.Schema, parts: Sequence[str | int]) -> list[str | int] | None:
    """The name of the column and the fields in it. None: there is no such field."""
    # The longest name of a column with dots, such as `process.name`, comes before the field of a STRUCT.
    for length in range(len(parts), 0, -1):
        name = ".".join(map(str, parts[:length]))
        if name in schema.names and _has_fields(schema.field(name).type, parts[length:]):
            return [name, *parts[length:]]
    return None


def _has_fields(of: pa.DataType, parts: Sequence[str | int]) -> bool:
    """Whether a value of this type may have these fields, one in the other."""
    for part in parts:
        if isinstance(part, int):
            if not (pa.types.is_list(of) or pa.types.is_large_list(of)):
                return False
            of = of.value_type
        elif pa.types.is_struct(of):
            if of.get_field_index(part) < 0:
                return False
            of = of.field(part).type
        elif pa.types.is_map(of):
            of = of.item_type
        else:
            return False
    return True


# ---------------------------------------------------------------------------------------------------- aggregates


def has_aggregate(node: exp.Expr) -> bool:
    return node.find(*AGGREGATES) is not None


def integer_literal(node: exp.Expr) -> int | None:
    """The value of a literal of decimal digits."""
    digits = "" if not isinstance(node, exp.Literal) or node.is_string else str(node.this)
    return int(digits) if re.fullmatch("[0-9]{1,100}", digits) else None


def _offset(node: exp.Expr, kind: str, text: str) -> int:
    """The offset of an aggregate; ``LAST(a.x, 1)`` is the event before the last, ``PREV(x, 1)`` the previous event."""
    given = node.args.get("expression") if isinstance(node, exp.First | exp.Last) else None
    least, most = (1, MAX_PREVIOUS) if kind == "PREV" else (0, MAX_OFFSET)
    if given is None:
        return least
    offset = integer_literal(given)
    if offset is None:
        raise ExpressionSyntaxError.at(
            f"the second argument of {kind} must be an integer literal",
            text,
            position_of(given) or position_of(node),
            f"{kind}(column, 1)" if kind == "PREV" else f"{kind}(stage.column, 1)",
        )
    if not least <= offset <= most:
        problem = (
            f"the offset of {kind} must be at most {most:,}"
            if least == 0
            else f"the offset of {kind} must be {least} to {most}"
        )
        raise ExpressionSyntaxError.at(problem, text, position_of(given))
    return offset


class Aggregate(NamedTuple):
    """A resolved aggregate over the events of a stage, of EVERY_STAGE, or of PREVIOUS."""

    function: str
    stage: str
    argument: exp.Expr | None
    """without the name of the stage; None for ``COUNT(a.*)``"""
    offset: int
    """for FIRST and LAST: how many events after the first, or before the last"""


def aggregate_of(node: exp.Expr) -> Aggregate:
    column = node.this.find(exp.Column)
    assert column is not None
    function, stage = AGGREGATES[type(node)], column.table
    if isinstance(column.this, exp.Star):
        return Aggregate(function, stage, None, 0)
    argument = node.this.copy()
    for inner in list(argument.find_all(exp.Column)):
        inner.set("table", None)
    return Aggregate(function, stage, argument, _offset(node, function, ""))


# ---------------------------------------------------------------------------------------------------- translated texts

COLUMN = re.compile(r"'(?:[^']|'')*'|\bc(\d+)\b")
"""A column in SQL for DuckDB, with its number as group; or a string literal, without a group."""


def columns_of(text: str) -> set[int]:
    """The numbers of the columns that an expression of :class:`Vectorized` reads.

    >>> columns_of("(c3 = 'it''s c4')")
    {3}
    """
    return {int(number) for number in COLUMN.findall(text) if number}


def plain_column(text: str) -> int | None:
    """The number of the column if an expression of :class:`Vectorized` is a plain column, otherwise None."""
    return int(text[1:]) if re.fullmatch(r"c\d+", text) else None
