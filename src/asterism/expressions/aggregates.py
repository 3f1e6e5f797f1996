"""SQL aggregates over groups of elements, such as the panes of windows: ``sum(amount)``, ``max_by(item, price)``.

A measure is Spark SQL with aggregate functions in it: ``sum(a) / count(*) AS mean``. Each call of an aggregate function is
taken out of the text and becomes a column, from which the rest of the text is computed at the end. What is inside a call, and
what is around it, are expressions without aggregates (:mod:`asterism.expressions.parsing`).

Most functions are *incremental*: what is kept of a group is a row of *partials*, however many elements there were. Such a
function is a :class:`_Cell`. It lifts each element to a partial of that one element, and merges partials that stand in the order
in which their elements came; folding elements into a group is no more than that. The others (percentiles, lists, DISTINCT) need
the elements themselves, of which some columns are kept as rows. All of it works on columns: no Python object per element.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from asterism.columns.arrays import Ints, Mask
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
)
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.functions import FUNCTIONS as SCALAR_FUNCTIONS
from asterism.expressions.names import Scope, columns_of, plain_column
from asterism.expressions.operators import choose
from asterism.expressions.parsing import AGGREGATES, MAX_TEXT, parse
from asterism.expressions.translation import position_of
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    MAX_DIGITS,
    NULL,
    STRING,
    TIME_ZONE,
    duckdb_type,
    given_type,
    is_decimal,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import Sql, UnsupportedError, cast, strict

MAX_CALLS = 100  # in a measure; the text is parsed once for each


class Aggregates:
    """Measures over groups of elements, which are numbered from 0.

    :meth:`fold` makes partials of elements, :meth:`merge` makes one partial of several, :meth:`finish` makes the results. The
    types, the values and what is done with NULL are those of Spark in its ANSI mode; for an empty group too.

    How the elements are divided among calls makes no difference to counts, sums of integers and decimals, smallest and
    largest values, first and last ones, sketches, and whatever needs the rows. Sums, averages and variances of DOUBLE are
    computed in order of arrival. They do not depend on the calls either, to the last bit, if elements are folded *into* the
    partials of those before them; where :meth:`merge` adds partial sums instead, they may be rounded otherwise.

    Other than in Spark, where it depends on the order, a sum of integers or decimals fails only if it does not fit itself,
    not for what a part of it would be. Arguments are computed for each element that passes FILTER.

    :param measures: Spark SQL, each with a name after AS, or named as it is written
    :param schema: the columns of the elements; its metadata may hold the session's time zone, see
        :class:`~asterism.expressions.evaluation.Vectorized`
    :raises asterism.errors.ExpressionError: a measure that does not parse, that uses what is not known here, or whose types
        do not fit; with the place in the text

    >>> aggregates = Aggregates(["sum(price) AS total", "max_by(item, price)"], pa.schema({"item": "string", "price": "int32"}))
    >>> elements = pa.table({"item": ["tea", "cup", "pot"], "price": pa.array([2, 5, 9], "int32")})
    >>> partials = aggregates.fold(np.array([0, 0, 1]), 2, elements)
    >>> aggregates.finish(partials, None, None).to_pylist()
    [{'total': 7, 'max_by(item, price)': 'cup'}, {'total': 9, 'max_by(item, price)': 'pot'}]
    """

    def __init__(self, measures: Sequence[str], schema: pa.Schema) -> None:
        self._arguments, self._kept_arguments = _Arguments(schema), _Arguments(schema)
        self._slots: list[_Slot] = []
        self._calls: list[_Incremental | _OfRows] = []
        self._places: dict[str, int] = {}
        bodies = [self._read(text, Scope(schema)) for text in measures]
        if not self._slots:  # something must tell how many partials there are
            self._read("count(*)", Scope(schema))
        self.partial_schema = pa.schema(
            [(f"{n}_{m}", kind) for n, slot in enumerate(self._slots) for m, kind in enumerate(slot.cell.kept)]
        )
        self.carried = self._kept_arguments.columns
        if not self.carried and any(isinstance(call, _OfRows) for call in self._calls):
            self.carried = schema.names[:1]  # which tells how many rows there are
        zone = self._arguments.vectorized.zone
        self._results = pa.schema(
            [(str(n), call.type) for n, call in enumerate(self._calls)], metadata={TIME_ZONE: zone.encode()}
        )
        self._rest = Vectorized(self._results)
        self._plan: list[tuple[bool, int]] = []
        """(is it computed from the results of the calls, the number of the expression or of the call)"""
        self.fields: list[pa.Field] = []
        for text, (name, body) in zip(measures, bodies, strict=True):
            if isinstance(body, exp.Column):
                number, data_type = int(body.name), self._calls[int(body.name)].type
            else:
                with ExpressionSyntaxError.if_too_deep(text):
                    number = self._rest.add(body, text)
                data_type = self._rest.types[number]
            self._plan.append((not isinstance(body, exp.Column), number))
            self.fields.append(pa.field(name, data_type))

    @property
    def read(self) -> list[str]:
        """The columns of the elements that :meth:`fold` reads; it does not look for the others."""
        return self._arguments.columns

    def fold(self, segments: Ints, count: int, elements: pa.Table, into: pa.Table | None = None) -> pa.Table:
        """One partial per group, of *elements* in order of arrival.

        :param segments: for each element the number of its group, in any order
        :param count: how many groups there are
        :param elements: with the columns :attr:`read` at least
        :param into: the partials, one per group, of the elements that came before; by default there were none
        :raises asterism.errors.InvalidEventError: an argument could not be computed for an element
        """
        segments = np.asarray(segments, np.int64)
        arguments = _Selected(self._arguments.evaluate(elements, len(segments)), segments)
        columns: list[pa.Array] = []
        for slot in self._slots:
            groups, values = arguments.of(slot.arguments, slot.where)
            before = None if into is None else _columns(into, len(columns), len(slot.cell.kept))
            columns += slot.cell.fold(groups, count, values, before)
        return pa.table(columns, schema=self.partial_schema)

    def merge(self, partials: pa.Table, groups: Ints, count: int) -> pa.Table:
        """One partial per group, of the elements of all its *partials*, which stand in order of arrival.

        :param groups: for each partial the number of its group, in any order
        :param count: how many groups there are; one without partials gets that of no elements
        """
        groups = np.asarray(groups, np.int64)
        columns: list[pa.Array] = []
        for slot in self._slots:
            columns += slot.cell.merge(groups, count, _columns(partials, len(columns), len(slot.cell.kept)))
        return pa.table(columns, schema=self.partial_schema)

    def finish(self, partials: pa.Table, offsets: Ints | None = None, rows: pa.Table | None = None) -> pa.Table:
        """The results, one row per partial.

        :param offsets: where the kept elements of each partial begin in *rows*, and where the last ones end; used only
            if :attr:`carried` is not empty
        :param rows: the kept elements, in order of arrival, with the columns :attr:`carried` at least
        :raises asterism.errors.InvalidEventError: a result could not be computed, such as a sum that does not fit
        """
        count = partials.num_rows
        if self.carried:
            assert offsets is not None
            assert rows is not None
            segments = np.repeat(np.arange(count), np.diff(offsets))
            kept = rows.slice(int(offsets[0]), len(segments))
            arguments = _Selected(self._kept_arguments.evaluate(kept, len(segments)), segments)
        columns = []
        for call in self._calls:
            if isinstance(call, _Incremental):
                column = call.finish(*(column for slot in call.slots for column in self._of_slot(partials, slot)))
            else:
                column = call.compute(*arguments.of(call.arguments, call.where, distinct=call.distinct), count)
            columns.append(column.cast(call.type))
        results = pa.table(columns, schema=self._results)
        rest = self._rest.evaluate(results)
        return pa.table(
            [rest[number] if computed else results.column(number) for computed, number in self._plan],
            schema=pa.schema(self.fields),
        )

    def _of_slot(self, partials: pa.Table, number: int) -> list[pa.Array]:
        before = sum(len(slot.cell.kept) for slot in self._slots[:number])
        return _columns(partials, before, len(self._slots[number].cell.kept))

    # -- reading measures

    def _read(self, text: str, scope: Scope) -> tuple[str, exp.Expr]:
        """(name, the measure with columns in place of the calls of aggregates, which are named by their numbers)"""
        found = _calls(text)
        masked = text
        for call in found:
            # As long as the call, so that places in the text stay what they are. No line break, for the parser counts lines.
            hole = "`" + "_" * (call.end - call.start - 2) + "`"
            masked = masked[: call.start] + hole + masked[call.end :]
        with ExpressionSyntaxError.if_too_deep(text):
            tree = _parsed(masked, text, outside=True)
            name, body = (tree.alias, tree.this) if isinstance(tree, exp.Alias) else (text.strip(), tree)
            holder = exp.Paren(this=body)
            numbers = {call.start: self._add(call, text, scope) for call in found}
            used = set()
            for column in list(holder.find_all(exp.Column)):
                first = column.parts[0]
                start = position_of(first)
                if start not in numbers:
                    raise _outside(column, scope.schema, text)
                place: exp.Expr = exp.Column(this=exp.to_identifier(str(numbers[start]), quoted=True))
                for part in column.parts[1:]:
                    place = exp.Dot(this=place, expression=part.copy())
                column.replace(place)
                used.add(start)
            for call in found:
                if call.start not in used:  # it stands where a name does
                    raise ExpressionSyntaxError.at("unexpected token", text, call.start)
        return name, holder.this.unnest()

    def _add(self, call: _Call, text: str, scope: Scope) -> int:
        """The number of a call; what is written twice is computed once."""
        written = text[call.start : call.end]
        if written not in self._places:
            self._calls.append(self._build(call, text, scope))
            self._places[written] = len(self._calls) - 1
        return self._places[written]

    def _build(self, call: _Call, text: str, scope: Scope) -> _Incremental | _OfRows:
        function = FUNCTIONS[call.name.lower()]
        distinct = call.distinct or function.distinct
        rows = distinct or function.of_rows
        arguments = self._kept_arguments if rows else self._arguments
        given = [arguments.read(text, span, scope) for span in call.arguments]
        site = _Site(text[call.start : call.end], arguments, call.ignore_nulls)
        try:
            if call.ignore_nulls is not None and not function.takes_nulls:
                raise UnsupportedError("IGNORE NULLS is for FIRST, LAST and ANY_VALUE")
            made = function.make(site, call.star, given)
            where = None if call.where is None else arguments.read(text, call.where, scope)
            if where is not None and where.type not in (BOOLEAN, NULL):
                raise UnsupportedError(f"FILTER needs a condition, not {name_of(where.type)}")
            if distinct and call.star:
                raise UnsupportedError("DISTINCT needs columns", "count(DISTINCT a, b)")
            if distinct and any(is_nested(value.type) for value in made.values):
                raise UnsupportedError("DISTINCT does not take arrays, maps and structs", "name their parts")
            if where is not None:
                where = cast(where, BOOLEAN, arguments.vectorized.zone)
                values = [_guarded(value, where, arguments.vectorized.zone) for value in made.values]
            else:
                values = list(made.values)
        except UnsupportedError as problem:
            raise ExpressionTypeError.at(
                f"{call.name.upper()}: {problem.problem}", text, call.start, problem.hint
            ) from None
        numbers = tuple(arguments.add(value, text) for value in values)
        condition = None if where is None else arguments.add(where, text)
        if made.of_rows is not None:
            return _OfRows(made.type, numbers, condition, distinct, made.of_rows)
        if distinct:
            return _OfRows(made.type, numbers, condition, True, partial(_folded, made.cells, made.finish))
        slots = [_Slot(cell, numbers, condition) for cell in made.cells]
        self._slots += [slot for slot in slots if slot not in self._slots]
        return _Incremental(made.type, tuple(self._slots.index(slot) for slot in slots), made.finish)


def _outside(column: exp.Column, schema: pa.Schema, text: str) -> ExpressionError:
    """What is wrong with a column that stands outside of an aggregate."""
    name = column.parts[0].name
    if name.lower() in (known.lower() for known in schema.names):
        hint = f"first({name}), max({name}), or whichever is meant"
        return ExpressionSyntaxError.at(
            f"{name!r} is a column of the elements, and there are several", text, position_of(column), hint
        )
    return ColumnNotFoundError.from_missing_and_available(name, schema.names, f"in: {text}")


def _guarded(value: Sql, where: Sql, zone: str) -> Sql:
    """What passes FILTER; the rest, which is not looked at, must not fail."""
    return choose([(where, value)], None, zone) if value.raises else value


# ---------------------------------------------------------------------------------------------------- texts


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an aggregate function in a text, where its parts are."""

    name: str
    start: int
    end: int
    arguments: tuple[Span, ...]
    star: bool
    distinct: bool
    ignore_nulls: bool | None
    """None: nothing is said"""
    where: Span | None


def _calls(text: str) -> list[_Call]:
    """The calls of aggregates in a text. What they hold is not looked at but for other calls, which are refused."""
    if len(text) > MAX_TEXT:
        parse(text)  # says that it is too long
    try:
        # Strings begin and end where they do for the parser of expressions, though a doubled quote makes two of one.
        tokens = Spark().tokenize(text)
    except TokenError:
        parse(text)
        raise
    found: list[_Call] = []
    at = 0
    while at < len(tokens):
        if _is_call(tokens, at):
            if len(found) == MAX_CALLS:
                raise ExpressionSyntaxError.at(
                    f"a measure may have {MAX_CALLS} aggregates at most", text, tokens[at].start
                )
            call, at = _read_call(tokens, at, text)
            found.append(call)
        else:
            at += 1
    return found


def _is_call(tokens: Sequence[Token], at: int) -> bool:
    return (
        tokens[at].text.lower() in FUNCTIONS
        and tokens[at].token_type is not TokenType.STRING
        and at + 1 < len(tokens)
        and tokens[at + 1].token_type is TokenType.L_PAREN
    )


def _word(token: Token) -> str:
    """The keyword or sign that it is; nothing for what is quoted."""
    return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()


def _follows(tokens: Sequence[Token], at: int, *words: str) -> bool:
    return [_word(token) for token in tokens[at : at + len(words)]] == list(words)


def _read_call(tokens: Sequence[Token], at: int, text: str) -> tuple[_Call, int]:
    """(the call that begins with a token, the number of the token after it)"""
    name, start = tokens[at].text, tokens[at].start
    close = _closing(tokens, at + 1, text)
    inside = range(at + 2, close)
    for number in inside:
        if _is_call(tokens, number):
            inner = tokens[number].text.upper()
            raise ExpressionSyntaxError.at(
                f"{inner} inside {name.upper()}: aggregates cannot be nested", text, tokens[number].start
            )
    first, last = at + 2, close
    distinct = _follows(tokens, first, "DISTINCT")
    first += distinct or _follows(tokens, first, "ALL")
    ignore_nulls: bool | None = None
    if last - first > 2 and _follows(tokens, last - 1, "NULLS") and _word(tokens[last - 2]) in _NULLS:
        ignore_nulls = _NULLS[_word(tokens[last - 2])]
        last -= 2
    star = last - first == 1 and tokens[first].token_type is TokenType.STAR
    arguments = () if star else tuple(_arguments(tokens, first, last))
    after, where = close + 1, None
    if _follows(tokens, after, "FILTER", "(", "WHERE"):
        end = _closing(tokens, after + 1, text)
        for number in range(after + 3, end):
            if _is_call(tokens, number):
                raise ExpressionSyntaxError.at("FILTER cannot hold an aggregate", text, tokens[number].start)
        where = (tokens[after + 2].end + 1, tokens[end].start)
        after = end + 1
    if _follows(tokens, after + 1, "NULLS") and _word(tokens[after]) in _NULLS:
        ignore_nulls = _NULLS[_word(tokens[after])]
        after += 2
    for problem, *words in _REFUSED:
        if _follows(tokens, after, *words):
            raise ExpressionSyntaxError.at(problem, text, tokens[after].start)
    end = tokens[after - 1].end + 1
    return _Call(name, start, end, arguments, star, distinct, ignore_nulls, where), after


_NULLS = {"IGNORE": True, "RESPECT": False}
_REFUSED = (
    ("windows of SQL (OVER) are not supported here", "OVER"),
    ("WITHIN GROUP is not supported here", "WITHIN", "GROUP"),
    ("FILTER is followed by (WHERE condition)", "FILTER", "("),
)
"""What may come after a call in Spark, but not here."""


def _closing(tokens: Sequence[Token], at: int, text: str) -> int:
    """The number of the bracket that closes the one at a token."""
    depth = 0
    for number in range(at, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if not depth:
            return number
    raise ExpressionSyntaxError.at("a bracket is not closed", text, tokens[at].start)


def _arguments(tokens: Sequence[Token], first: int, last: int) -> Iterable[Span]:
    """Where the arguments are in the text, of which tokens *first* to *last* are between the brackets."""
    if first == last:
        return
    depth, start = 0, tokens[first - 1].end + 1
    for token in tokens[first:last]:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if token.token_type is TokenType.COMMA and not depth:
            yield start, token.start
            start = token.end + 1
    yield start, tokens[last].start


def _parsed(masked: str, text: str, *, outside: bool = False) -> exp.Expr:
    """The syntax tree of a text of which parts are masked; errors show the text itself. *outside*: of aggregates"""
    try:
        return parse(masked)
    except ExpressionError as error:
        shown = ExpressionError.at("", text).detail or ""
        rest = "" if "\n" in text else (error.detail or "")[len(shown) :]
        raise type(error)(error.message, shown + rest, _suggestion(error) if outside else error.hint) from None


def _suggestion(error: ExpressionError) -> str | None:
    """The hint, which for an unknown function must know the aggregates too."""
    unknown = error.message.removeprefix("unknown function ")
    if unknown == error.message:
        return error.hint
    close = difflib.get_close_matches(unknown.lower(), [*FUNCTIONS, *SCALAR_FUNCTIONS], n=1, cutoff=0.8)
    return (
        f"did you mean {close[0]}?" if close else f"docs/sql.md has all functions; aggregates: {', '.join(FUNCTIONS)}"
    )


class _Arguments:
    """Expressions over the elements, in the types that they have in Spark."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.vectorized = Vectorized(schema)
        self.types: list[pa.DataType] = []
        zones = (kind.tz for kind in schema.types if pa.types.is_timestamp(kind) and kind.tz is not None)
        self._label = next(zones, self.vectorized.zone)

    @property
    def columns(self) -> list[str]:
        """The columns of the elements that are read."""
        read = {number for text in self.vectorized.texts for number in columns_of(text)}
        return [name for number, name in enumerate(self.schema.names) if number in read]

    def read(self, text: str, span: Span, scope: Scope) -> Sql:
        """What stands at *span* of a text."""
        start, end = span
        tree = _parsed(" " * start + text[start:end] + " " * (len(text) - end), text)
        if isinstance(tree, exp.Alias):
            raise ExpressionSyntaxError.at("AS belongs at the end of the measure", text, position_of(tree))
        inner = tree.find(*AGGREGATES, exp.Star)
        if inner is not None:
            problem = "* stands inside COUNT(*) only" if isinstance(inner, exp.Star) else "aggregates cannot be nested"
            raise ExpressionSyntaxError.at(problem, text, position_of(inner))
        for column in tree.find_all(exp.Column):
            scope.column(exp.Column(this=column.parts[0].copy()), text)  # here are no stages that it could name
        return self.vectorized.translate(scope.resolve(tree, text), text)

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
        return [_one_chunk(column).cast(kind, safe=False) for column, kind in zip(columns, self.types, strict=True)]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _columns(partials: pa.Table, first: int, count: int) -> list[pa.Array]:
    return [_one_chunk(partials.column(number)) for number in range(first, first + count)]


class _Selected:
    """Arguments and groups of the elements that a call looks at."""

    def __init__(self, columns: list[pa.Array], groups: Ints) -> None:
        self.columns, self.groups = columns, groups
        self._passing: dict[int, Ints] = {}

    def of(self, arguments: Sequence[int], where: int | None, *, distinct: bool = False) -> tuple[Ints, list[pa.Array]]:
        """(group of each element, the arguments); *distinct*: only the first of several that are equal in a group"""
        groups, columns = self.groups, [self.columns[number] for number in arguments]
        if where is not None:
            if where not in self._passing:
                self._passing[where] = np.flatnonzero(_array(self.columns[where]))
            groups, columns = _those(self._passing[where], groups, columns)
        if distinct:
            groups, columns = _those(_distinct(groups, columns), groups, columns)
            # As in Spark -0.0, which is equal to 0.0, becomes that.
            columns = [
                pc.add(column, pa.scalar(0, column.type)) if column.type in FLOATS else column for column in columns
            ]
        return groups, columns


def _those(rows: Ints, groups: Ints, columns: list[pa.Array]) -> tuple[Ints, list[pa.Array]]:
    return groups[rows], [column.take(pa.array(rows)) for column in columns]


# ---------------------------------------------------------------------------------------------------- columns


def _valid(*columns: pa.Array) -> Mask:
    """Where no column is NULL; all have the same length."""
    found = columns[0].is_valid()
    for column in columns[1:]:
        found = pc.and_(found, column.is_valid())
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _array(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers and truth values, with 0 and FALSE for NULL."""
    if column.null_count:
        column = column.fill_null(False if column.type == BOOLEAN else 0)
    array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _nullable(values: npt.NDArray[Any], valid: Mask, data_type: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, data_type, mask=~valid)


def _words(column: pa.Array) -> Ints:
    """The two halves of each decimal, the lower one first; anything for NULL."""
    words = np.frombuffer(column.buffers()[1] or b"", np.int64)
    return words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)


def _taken(column: pa.Array, at: Ints) -> pa.Array:
    """The elements at places, NULL where the place is -1."""
    if not len(column):
        return pa.nulls(len(at), column.type)
    return column.take(pa.array(np.maximum(at, 0), mask=at < 0))


def _keys(column: pa.Array) -> Ints:
    """Numbers in the order of the values, equal where those are; anything for NULL."""
    kind = column.type
    if kind == BOOLEAN or kind in INTEGERS:
        return _array(column).astype(np.int64)
    if kind in FLOATS:
        values = _array(column).astype(np.float64) + 0.0  # of -0.0 makes 0.0
        values[np.isnan(values)] = np.nan  # which has bits of its own otherwise
        bits = values.view(np.int64)
        return bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    if is_temporal(kind) or pa.types.is_duration(kind):
        return _array(column.cast(pa.int32()) if pa.types.is_date(kind) else column.cast(BIGINT)).astype(np.int64)
    if is_decimal(kind) and kind.precision <= _LONG_DIGITS:
        return _words(column)[:, 0].copy()
    if kind == NULL:
        return np.zeros(len(column), np.int64)
    return _array(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)


_LONG_DIGITS = 18  # that fit into 64 bits


# ---------------------------------------------------------------------------------------------------- groups


def _totals(groups: Ints, count: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum of the values of each group, added one after the other."""
    totals = np.zeros(count, values.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(totals, groups, values)
    return totals


def _first(groups: Ints, count: int, *, last: bool = False) -> Ints:
    """The place of the first or last row of each group, -1 where there is none."""
    at = np.full(count, -1, np.int64)
    places = np.arange(len(groups))
    # Of several assignments to one place the last one stays.
    at[groups if last else groups[::-1]] = places if last else places[::-1]
    return at


def _through(rows: Ints, at: Ints) -> Ints:
    """Places among *rows* as places among all."""
    return np.where(at < 0, -1, rows[np.maximum(at, 0)]) if len(rows) else at


def _winners(groups: Ints, count: int, column: pa.Array, *, largest: bool, last: bool = False) -> Ints:
    """The place of the largest or smallest value of each group that is not NULL; of equals the first or the last."""
    rows = np.flatnonzero(_valid(column))
    keys, groups = _keys(column)[rows], groups[rows]
    limits = np.iinfo(np.int64)
    best = np.full(count, limits.min if largest else limits.max)
    (np.maximum if largest else np.minimum).at(best, groups, keys)
    hits = np.flatnonzero(keys == best[groups])
    return _through(rows, _through(hits, _first(groups[hits], count, last=last)))


def _distinct(groups: Ints, columns: Sequence[pa.Array]) -> Ints:
    """The places of the rows that are the first of their kind in their group."""
    keys = [_nullable(_keys(column), _valid(column)) for column in columns]
    names = [str(number) for number in range(len(keys))]
    table = pa.table([pa.array(groups), *keys, pa.array(np.arange(len(groups)))], names=["group", *names, "row"])
    firsts = table.group_by(["group", *names], use_threads=False).aggregate([("row", "min")])
    return np.sort(firsts.column("row_min").to_numpy())


# ---------------------------------------------------------------------------------------------------- incremental functions


class _Cell:
    """Something that is kept of a group, in some columns."""

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        """The types of the columns."""
        raise NotImplementedError

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        """The partial of each of *count* elements."""
        raise NotImplementedError

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """One partial per group of several, which are in order."""
        raise NotImplementedError

    def fold(
        self, groups: Ints, count: int, arguments: Sequence[pa.Array], into: Sequence[pa.Array] | None
    ) -> list[pa.Array]:
        """One partial per group, of elements, and of the partials *into* before them."""
        lifted = self.lift(arguments, len(groups))
        if into is not None:
            groups = np.concatenate([np.arange(count), groups])
            lifted = [pa.concat_arrays([before, after]) for before, after in zip(into, lifted, strict=True)]
        return self.merge(groups, count, lifted)


@dataclass(frozen=True)
class _Count(_Cell):
    """How many elements there are of which no argument is NULL; with *true*, of which the argument is TRUE."""

    true: bool = False

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (BIGINT,)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        if not arguments:
            return [pa.array(np.ones(count, np.int64))]
        return [pa.array((_array(arguments[0]) if self.true else _valid(*arguments)).astype(np.int64))]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        return [pa.array(_totals(groups, count, _array(columns[0])))]


@dataclass(frozen=True)
class _FloatingSum(_Cell):
    """The sum of numbers as DOUBLE, NULL if there is none."""

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (DOUBLE,)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return [arguments[0].cast(DOUBLE, safe=False)]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        valid = _valid(columns[0])
        groups, values = groups[valid], _array(columns[0])[valid]
        return [_nullable(_totals(groups, count, values), _totals(groups, count, np.ones(len(groups), np.int64)) > 0)]


@dataclass(frozen=True)
class _ExactSum(_Cell):
    """The sum of integers, or of the digits of decimals, however large; NULL if there is no number.

    It is kept in pieces of 32 bits, the lowest first. The highest has 64 and the sign: of 32 bits there is room for the sums
    of four billion pieces.
    """

    pieces: int

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (*[pa.uint32()] * (self.pieces - 1), BIGINT)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        column = arguments[0]
        words = _words(column) if is_decimal(column.type) else _array(column).astype(np.int64).reshape(-1, 1)
        halves = [half for n in range((self.pieces + 1) // 2) for half in (words[:, n] & _LOW, words[:, n] >> 32)]
        if self.pieces == 1:
            halves = [words[:, 0]]
        else:
            halves[1:-1] = [half & _LOW for half in halves[1:-1]]
        return self._columns(halves, _valid(column))

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        valid = _valid(columns[-1])
        groups = groups[valid]
        sums = [_totals(groups, count, _array(column)[valid].astype(np.int64)) for column in columns]
        for number in range(self.pieces - 1):
            sums[number + 1] += sums[number] >> 32
            sums[number] &= _LOW
        return self._columns(sums, _totals(groups, count, np.ones(len(groups), np.int64)) > 0)

    def _columns(self, pieces: Sequence[Ints], valid: Mask) -> list[pa.Array]:
        lower = [pa.array(piece.astype(np.uint32)) for piece in pieces[:-1]]
        return [*lower, _nullable(pieces[-1], valid)]


_LOW = np.int64(2**32 - 1)


@dataclass(frozen=True)
class _Extreme(_Cell):
    """The smallest or largest value, the first of equals."""

    type: pa.DataType
    largest: bool

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (self.type,)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return list(arguments)

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        return [_taken(columns[0], _winners(groups, count, columns[0], largest=self.largest))]


@dataclass(frozen=True)
class _ExtremeBy(_Cell):
    """What stands beside the smallest or largest value, the last of equals, and that value."""

    type: pa.DataType
    by: pa.DataType
    largest: bool

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (self.type, self.by)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return list(arguments)

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        at = _winners(groups, count, columns[1], largest=self.largest, last=True)
        return [_taken(column, at) for column in columns]


@dataclass(frozen=True)
class _FirstOrLast(_Cell):
    """The first or last value, and whether there is one, for it may be NULL; or of those that are not NULL."""

    type: pa.DataType
    last: bool
    known: bool
    """skip NULL"""

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (self.type,) if self.known else (self.type, BOOLEAN)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return [arguments[0]] if self.known else [arguments[0], pa.array(np.ones(count, np.bool_))]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        rows = np.flatnonzero(_valid(columns[0]) if self.known else _array(columns[1]))
        at = _through(rows, _first(groups[rows], count, last=self.last))
        found = _taken(columns[0], at)
        return [found] if self.known else [found, pa.array(at >= 0)]


@dataclass(frozen=True)
class _Moments(_Cell):
    """How many numbers, the first of them, and the sums of the differences from it and of their squares.

    The first number stays what it is as more come, so that the sums do not depend on when they came. It is one of the
    numbers whose variance is asked for, so that the variance cannot be small if it is far from the others. The relative
    error is about n times that of a DOUBLE; n squared times in the worst case, a first number that is like no other.
    """

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (BIGINT, DOUBLE, DOUBLE, DOUBLE)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        numbers, zeros = arguments[0].cast(DOUBLE, safe=False), pa.array(np.zeros(count))
        return [pa.array(_valid(numbers).astype(np.int64)), numbers, zeros, zeros]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        rows = np.flatnonzero(_array(columns[0]))
        groups = groups[rows]
        n, origins, sums, squares = (_array(column)[rows] for column in columns)
        at = _first(groups, count)
        origin = np.where(at < 0, 0.0, origins[np.maximum(at, 0)]) if len(rows) else np.zeros(count)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = origins - origin[groups]
            squares = squares + np.where(sums == 0, 0.0, 2 * moved * sums) + n * moved * moved
            sums = sums + n * moved
        totals = [_totals(groups, count, values) for values in (n, sums, squares)]
        return [pa.array(totals[0]), _nullable(origin, at >= 0), pa.array(totals[1]), pa.array(totals[2])]


@dataclass(frozen=True)
class _Sketch(_Cell):
    """HyperLogLog with 2^bits registers of one byte, for integers that name the values.

    The standard error is 1.04 / sqrt(2^bits). The estimate is Ertl's (New cardinality estimation algorithms for HyperLogLog
    sketches, 2017), which needs no tables and holds for small numbers too.
    """

    bits: int

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (pa.binary(2**self.bits),)

    def fold(
        self, groups: Ints, count: int, arguments: Sequence[pa.Array], into: Sequence[pa.Array] | None
    ) -> list[pa.Array]:
        size = 2**self.bits
        registers = np.zeros((count, size), np.uint8) if into is None else self.registers(into[0]).copy()
        valid = _valid(arguments[0])
        hashes = _mixed(_keys(arguments[0])[valid])
        place = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        rest = (hashes << np.uint64(self.bits)) >> np.uint64(64 - _RANKS)
        # A double holds these bits exactly, and its exponent is the place of the highest one.
        rank = (_RANKS + 1 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)
        np.maximum.at(registers.reshape(-1), groups[valid] * size + place, rank)
        return [self._column(registers)]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        registers = np.zeros((count, 2**self.bits), np.uint8)
        if len(groups):
            order = np.argsort(groups, kind="stable")
            there, starts = np.unique(groups[order], return_index=True)
            registers[there] = np.maximum.reduceat(self.registers(columns[0])[order], starts, axis=0)
        return [self._column(registers)]

    def registers(self, column: pa.Array) -> npt.NDArray[np.uint8]:
        size = 2**self.bits
        array = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        return array[size * column.offset : size * (column.offset + len(column))].reshape(-1, size)

    def _column(self, registers: npt.NDArray[np.uint8]) -> pa.Array:
        return pa.Array.from_buffers(self.kept[0], len(registers), [None, pa.py_buffer(registers.tobytes())])


_RANKS = 46
"""Bits of a hash, after those for the register, in which the first 1 is looked for."""


def _mixed(numbers: Ints) -> npt.NDArray[np.uint64]:
    """64 bits that look random, always the same for a number (the last step of SplitMix64)."""
    mixed = numbers.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# ---------------------------------------------------------------------------------------------------- results


def _same(*columns: pa.Array) -> pa.Array:
    """The first column is the result."""
    return columns[0]


def _integer(source: str, *pieces: pa.Array) -> pa.Array:
    """What :class:`_ExactSum` kept of integers."""
    if len(pieces) == 1:
        return pieces[0]
    low, high = (_array(piece).astype(np.int64) for piece in pieces)
    if np.any(high != high.astype(np.int32)):
        raise InvalidEventError(
            f"{source}: the sum does not fit into BIGINT", None, "CAST what is added AS DECIMAL(20,0)"
        )
    return _nullable((high << 32) | low, _valid(pieces[1]))


def _decimal(source: str, data_type: pa.DataType, *pieces: pa.Array) -> pa.Array:
    """What :class:`_ExactSum` kept of decimals."""
    valid, parts = _valid(pieces[-1]), [_array(piece).astype(np.int64) for piece in pieces]
    if len(parts) == 2:
        words = [parts[0] | (parts[1] << 32), parts[1] >> 32]
        fits = True
    else:
        words = [parts[0] | (parts[1] << 32), parts[2] | (parts[3] << 32)]
        fits = bool(np.all(parts[3] == parts[3].astype(np.int32)))
    data = np.stack(words, axis=1).tobytes()
    widest = pa.decimal128(MAX_DIGITS, data_type.scale)
    sums = pa.Array.from_buffers(widest, len(valid), [None, pa.py_buffer(data)])
    nines = (9,) * data_type.precision
    smallest, largest = (pa.scalar(Decimal((sign, nines, -data_type.scale)), widest) for sign in (1, 0))
    fits = fits and not pc.any(pc.or_(pc.greater(sums, largest), pc.less(sums, smallest))).as_py()
    if not fits:
        raise InvalidEventError(f"{source}: the sum does not fit into {name_of(data_type)}")
    return pc.if_else(pa.array(valid), sums, pa.scalar(None, widest)).cast(data_type)


def _mean(total: pa.Array, n: pa.Array) -> pa.Array:
    divisors = np.maximum(_array(n), 1)
    return _nullable(_array(total) / divisors, _valid(total))


def _decimal_mean(source: str, total_type: pa.DataType, data_type: pa.DataType, *columns: pa.Array) -> pa.Array:
    total, n = _decimal(source, total_type, *columns[:-1]), columns[-1]
    sides = "'/', CAST(c0 AS VARCHAR), CAST(c1 AS VARCHAR)"
    quotient = f"decimal_result({sides}, {data_type.precision}, {data_type.scale})"
    value = Sql(f"CAST({quotient} AS {duckdb_type(data_type)})", data_type)
    table = pa.table({"total": total, "n": n})
    division = Vectorized(table.schema)
    division.add_value(value, source)
    return _one_chunk(division.evaluate(table)[0])


def _variance(sample: bool, root: bool, n: pa.Array, origin: pa.Array, total: pa.Array, squares: pa.Array) -> pa.Array:
    count, sums, spread = (_array(column) for column in (n, total, squares))
    divisors = count - sample
    with np.errstate(all="ignore"):
        # Where the squares are too large for a DOUBLE, so is what is to be taken away from them.
        around = np.where(np.isinf(spread) & np.isfinite(sums), spread, spread - sums * (sums / np.maximum(count, 1)))
        variance = np.where(around < 0, 0.0, around) / np.maximum(divisors, 1)
        return _nullable(np.sqrt(variance) if root else variance, divisors > 0)


def _estimate(bits: int, column: pa.Array) -> pa.Array:
    """How many different values a :class:`_Sketch` has seen."""
    registers = _Sketch(bits).registers(column)
    size, count = 2**bits, len(registers)
    cells = np.arange(count).repeat(size) * (_RANKS + 2) + registers.reshape(-1)
    histogram = np.bincount(cells, minlength=count * (_RANKS + 2)).reshape(count, _RANKS + 2)
    total = size * _high_ranks(1 - histogram[:, -1] / size) * 2.0**-_RANKS
    total += histogram[:, 1:-1] @ 0.5 ** np.arange(1, _RANKS + 1)
    empty = histogram[:, 0] / size
    with np.errstate(divide="ignore"):
        total += size * _low_ranks(empty)
        return pa.array(np.rint(size * size / (2 * math.log(2) * total)).astype(np.int64))


def _low_ranks(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ertl's sigma: what registers without a value stand for."""
    total, power, weight = x.copy(), x.copy(), 1.0
    for _ in range(30):  # of 2^18 registers one is full: the terms vanish after 24
        power = power * power
        total, weight = total + power * weight, weight * 2
    return np.where(x == 1, np.inf, total)


def _high_ranks(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ertl's tau: what registers with the highest rank stand for."""
    total, power, weight = 1 - x, x.copy(), 1.0
    for _ in range(60):
        power, weight = np.sqrt(power), weight / 2
        total = total - (1 - power) ** 2 * weight
    return total / 3


# ---------------------------------------------------------------------------------------------------- functions of rows


def _folded(
    cells: Sequence[_Cell],
    finish: Callable[..., pa.Array],
    groups: Ints,
    arguments: Sequence[pa.Array],
    count: int,
) -> pa.Array:
    """An incremental function, of rows that were kept."""
    return finish(*(column for cell in cells for column in cell.fold(groups, count, arguments, None)))


def _listed(groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    rows = np.flatnonzero(_valid(arguments[0]))
    rows = rows[np.argsort(groups[rows], kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(groups[rows], minlength=count))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), arguments[0].take(pa.array(rows)))


def _sorted(groups: Ints, column: pa.Array, count: int) -> tuple[pa.Array, Ints, Ints]:
    """(values that are not NULL in order, group by group; where each group begins; how many it has)"""
    rows = np.flatnonzero(_valid(column))
    order = rows[np.lexsort((_keys(column)[rows], groups[rows]))]
    sizes = np.bincount(groups[rows], minlength=count)
    return column.take(pa.array(order)), np.cumsum(sizes) - sizes, sizes


def _percentile(share: float, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """Between the two nearest values, in proportion."""
    column, starts, sizes = _sorted(groups, arguments[0].cast(DOUBLE, safe=False), count)
    values = np.append(_array(column), 0.0)  # so that there is something where a group has nothing
    place = share * np.maximum(sizes - 1, 0)
    low, high = np.floor(place), np.ceil(place)
    at = [np.where(sizes > 0, starts + side.astype(np.int64), -1) for side in (low, high)]
    below, above = values[at[0]], values[at[1]]
    with np.errstate(invalid="ignore"):
        between = np.where(below == above, below, below + (place - low) * (above - below))
        return _nullable(np.where(low == high, below, between), sizes > 0)


def _nearest(share: float, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """The smallest value that is not below so large a share of all."""
    column, starts, sizes = _sorted(groups, arguments[0], count)
    rank = np.maximum(np.ceil(share * sizes).astype(np.int64), 1)
    return _taken(column, np.where(sizes > 0, starts + rank - 1, -1))


# ---------------------------------------------------------------------------------------------------- calls


@dataclass(frozen=True, slots=True)
class _Slot:
    """A cell, over arguments of the elements that pass a condition."""

    cell: _Cell
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
    """A call that is computed from kept elements."""

    type: pa.DataType
    arguments: tuple[int, ...]
    where: int | None
    distinct: bool
    compute: Callable[..., pa.Array]


@dataclass(frozen=True, slots=True)
class _Made:
    """What a function makes of its arguments."""

    type: pa.DataType
    values: tuple[Sql, ...]
    cells: tuple[_Cell, ...] = ()
    finish: Callable[..., pa.Array] = _same
    of_rows: Callable[..., pa.Array] | None = None


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a function is called."""

    source: str
    arguments: _Arguments
    ignore_nulls: bool | None

    @property
    def zone(self) -> str:
        return self.arguments.vectorized.zone

    def type_of(self, value: Sql) -> pa.DataType:
        return self.arguments.type_of(value)

    def constant(self, value: Sql, what: str) -> Any:
        if columns_of(value.text):
            raise UnsupportedError(f"{what} cannot depend on the elements")
        return self.arguments.vectorized.constant(value).as_py()

    def share(self, value: Sql) -> float:
        if not is_numeric(value.type):
            raise UnsupportedError(f"the percentage is one number, not {name_of(value.type)}")
        share = self.constant(value, "the percentage")
        if share is None or not 0 <= share <= 1:
            raise UnsupportedError("the percentage is from 0 to 1")
        return float(share)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """How it is called, what is to be known about it, and what it makes of the arguments."""

    usage: str
    note: str
    build: Callable[..., _Made]
    of_rows: bool = False
    """does it need the elements themselves"""
    distinct: bool = False
    """does it look at each value once anyway"""
    takes_nulls: bool = False
    """can IGNORE NULLS be said"""

    def make(self, site: _Site, star: bool, values: Sequence[Sql]) -> _Made:
        name = self.usage.partition("(")[0]
        if star and name != "count":
            raise UnsupportedError("* is for COUNT")
        try:
            inspect.signature(self.build).bind(site, *values)
        except TypeError:
            raise UnsupportedError(f"it does not take {len(values)} arguments", self.usage) from None
        if name == "count" and not star and not values:
            raise UnsupportedError("it does not take 0 arguments", self.usage)
        return self.build(site, *values)


def _count(site: _Site, *values: Sql) -> _Made:
    return _Made(BIGINT, values, (_Count(),))


def _count_if(site: _Site, condition: Sql) -> _Made:
    return _Made(BIGINT, (_truth(condition, site),), (_Count(true=True),))


def _truth(value: Sql, site: _Site) -> Sql:
    if value.type not in (BOOLEAN, NULL):
        raise UnsupportedError(f"a condition is needed, not {name_of(value.type)}")
    return cast(value, BOOLEAN, site.zone)


def _number(value: Sql, site: _Site) -> Sql:
    if not is_numeric(value.type) and value.type != NULL:
        raise UnsupportedError(f"a number is needed, not {name_of(value.type)}", "CAST it")
    return cast(value, DOUBLE, site.zone) if value.type == NULL else value


def _double(value: Sql, site: _Site) -> Sql:
    """A number that is to be a DOUBLE. What Arrow converts as Spark does is left to it, for columns are taken as they are."""
    value = _number(value, site)
    return cast(value, DOUBLE, site.zone) if is_decimal(value.type) else value


def _exact_sum(data_type: pa.DataType) -> _ExactSum:
    if is_decimal(data_type):
        return _ExactSum(2 if data_type.precision <= _LONG_DIGITS else 4)
    return _ExactSum(2 if data_type == BIGINT else 1)


def _wider(data_type: pa.DataType, whole: int, scale: int) -> pa.DataType:
    """A decimal type with more digits, as far as there are."""
    return pa.decimal128(min(data_type.precision + whole, MAX_DIGITS), min(data_type.scale + scale, MAX_DIGITS))


def _sum(site: _Site, value: Sql) -> _Made:
    value = _number(value, site)
    if value.type in FLOATS:
        return _Made(DOUBLE, (value,), (_FloatingSum(),))
    cell = _exact_sum(value.type)
    if is_decimal(value.type):
        kind = _wider(value.type, 10, 0)
        return _Made(kind, (value,), (cell,), partial(_decimal, site.source, kind))
    return _Made(BIGINT, (value,), (cell,), partial(_integer, site.source))


def _avg(site: _Site, value: Sql) -> _Made:
    value = _number(value, site)
    if not is_decimal(value.type):
        return _Made(DOUBLE, (value,), (_FloatingSum(), _Count()), _mean)
    total, kind = _wider(value.type, 10, 0), _wider(value.type, 4, 4)
    finish = partial(_decimal_mean, site.source, total, kind)
    return _Made(kind, (value,), (_exact_sum(value.type), _Count()), finish)


def _orderable(value: Sql) -> Sql:
    if is_nested(value.type):
        raise UnsupportedError(f"it does not take {name_of(value.type)}", "compare its parts")
    return value


def _extreme(largest: bool, site: _Site, value: Sql) -> _Made:
    kind = site.type_of(_orderable(value))
    return _Made(kind, (value,), (_Extreme(kind, largest),))


def _truths(largest: bool, site: _Site, condition: Sql) -> _Made:
    """All of them is the smallest, any of them the largest: FALSE is less than TRUE."""
    return _Made(BOOLEAN, (_truth(condition, site),), (_Extreme(BOOLEAN, largest),))


def _extreme_by(largest: bool, site: _Site, value: Sql, by: Sql) -> _Made:
    kind, order = site.type_of(value), site.type_of(_orderable(by))
    return _Made(kind, (value, by), (_ExtremeBy(kind, order, largest),))


def _first_or_last(last: bool, site: _Site, value: Sql, ignore_nulls: Sql | None = None) -> _Made:
    known = bool(site.ignore_nulls)
    if ignore_nulls is not None:
        if ignore_nulls.type != BOOLEAN or site.ignore_nulls is not None:
            raise UnsupportedError("whether NULL is ignored is said once, by IGNORE NULLS or by TRUE")
        known = bool(site.constant(ignore_nulls, "whether NULL is ignored"))
    kind = site.type_of(value)
    return _Made(kind, (value,), (_FirstOrLast(kind, last, known),))


def _spread(sample: bool, root: bool, site: _Site, value: Sql) -> _Made:
    return _Made(DOUBLE, (_double(value, site),), (_Moments(),), partial(_variance, sample, root))


def _approx_count_distinct(site: _Site, value: Sql, error: Sql | None = None) -> _Made:
    deviation = 0.05
    if error is not None:
        if not is_numeric(error.type):
            raise UnsupportedError(f"the error is a number, not {name_of(error.type)}")
        deviation = float(site.constant(error, "the error") or 0)
    # As many registers as Spark takes for it.
    bits = math.ceil(2 * math.log2(1.106 / deviation)) if 0 < deviation < 1 else 0
    if not 4 <= bits <= 18:
        raise UnsupportedError("the error is from 0.0022 to 0.39")
    value = _orderable(value)
    if value.type in (STRING, BINARY) or (is_decimal(value.type) and value.type.precision > _LONG_DIGITS):
        text = value if value.type in (STRING, BINARY) else cast(value, STRING, site.zone)
        value = strict("CAST((md5_number_lower({0}) >> 1) AS BIGINT)", BIGINT, text)
    return _Made(BIGINT, (value,), (_Sketch(bits),), partial(_estimate, bits))


def _collected(site: _Site, value: Sql) -> _Made:
    return _Made(pa.list_(site.type_of(value)), (value,), of_rows=_listed)


def _exact_percentile(site: _Site, value: Sql, share: Sql) -> _Made:
    return _Made(DOUBLE, (_double(value, site),), of_rows=partial(_percentile, site.share(share)))


def _median(site: _Site, value: Sql) -> _Made:
    return _Made(DOUBLE, (_double(value, site),), of_rows=partial(_percentile, 0.5))


def _approx_percentile(site: _Site, value: Sql, share: Sql, accuracy: Sql | None = None) -> _Made:
    if not (is_numeric(value.type) or is_temporal(value.type)):
        raise UnsupportedError(f"a number, a date or a time is needed, not {name_of(value.type)}", "CAST it")
    if accuracy is not None and (
        accuracy.type not in INTEGERS or not 0 < (site.constant(accuracy, "the accuracy") or 0) < 2**31
    ):
        raise UnsupportedError("the accuracy is an integer above 0")
    return _Made(site.type_of(value), (value,), of_rows=partial(_nearest, site.share(share)))


_ORDER = "in order of arrival"
_ROWS = "the elements are kept"

FUNCTIONS: Mapping[str, AggregateFunction] = {
    name: function
    for names, function in (
        (("count",), AggregateFunction("count(*), count(a, ...)", "elements of which no argument is NULL", _count)),
        (("count_if",), AggregateFunction("count_if(condition)", "elements for which it is TRUE", _count_if)),
        (("sum",), AggregateFunction("sum(x)", "fails if it does not fit; of FLOAT and DOUBLE " + _ORDER, _sum)),
        (("avg", "mean"), AggregateFunction("avg(x)", "a DOUBLE, or a DECIMAL for a DECIMAL", _avg)),
        (("min",), AggregateFunction("min(a)", "not for arrays, maps and structs", partial(_extreme, False))),
        (("max",), AggregateFunction("max(a)", "likewise; NaN is the largest number", partial(_extreme, True))),
        (("min_by",), AggregateFunction("min_by(a, b)", "the last of equals", partial(_extreme_by, False))),
        (("max_by",), AggregateFunction("max_by(a, b)", "likewise", partial(_extreme_by, True))),
        (
            ("first", "first_value", "any_value"),
            AggregateFunction("first(a) [IGNORE NULLS]", _ORDER, partial(_first_or_last, False), takes_nulls=True),
        ),
        (
            ("last", "last_value"),
            AggregateFunction("last(a) [IGNORE NULLS]", _ORDER, partial(_first_or_last, True), takes_nulls=True),
        ),
        (("bool_and", "every"), AggregateFunction("bool_and(condition)", "", partial(_truths, False))),
        (("bool_or", "some", "any"), AggregateFunction("bool_or(condition)", "", partial(_truths, True))),
        (
            ("stddev", "stddev_samp", "std"),
            AggregateFunction("stddev(x)", "of a sample; NULL of one number", partial(_spread, True, True)),
        ),
        (("stddev_pop",), AggregateFunction("stddev_pop(x)", "", partial(_spread, False, True))),
        (
            ("variance", "var_samp"),
            AggregateFunction("variance(x)", "of a sample; NULL of one number", partial(_spread, True, False)),
        ),
        (("var_pop",), AggregateFunction("var_pop(x)", "", partial(_spread, False, False))),
        (
            ("approx_count_distinct",),
            AggregateFunction(
                "approx_count_distinct(a[, error])",
                "by a HyperLogLog sketch, with a standard error of 5 % unless another is given (of 0.22 % to 39 %); other "
                "than Spark's by as much",
                _approx_count_distinct,
            ),
        ),
        (("collect_list",), AggregateFunction("collect_list(a)", f"{_ORDER}; {_ROWS}", _collected, of_rows=True)),
        (
            ("collect_set",),
            AggregateFunction("collect_set(a)", f"{_ORDER}; {_ROWS}", _collected, of_rows=True, distinct=True),
        ),
        (("percentile",), AggregateFunction("percentile(x, p)", f"exact; {_ROWS}", _exact_percentile, of_rows=True)),
        (
            ("percentile_approx", "approx_percentile"),
            AggregateFunction(
                "percentile_approx(x, p[, accuracy])",
                f"one of the values, exact whatever the accuracy; NaN is the largest number, unlike Spark's; {_ROWS}",
                _approx_percentile,
                of_rows=True,
            ),
        ),
        (("median",), AggregateFunction("median(x)", f"as percentile(x, 0.5); {_ROWS}", _median, of_rows=True)),
    )
    for name in names
}
"""By name, in lower case; names that mean the same share an entry. All take DISTINCT, for which the elements are kept, and FILTER
(WHERE ...)."""
