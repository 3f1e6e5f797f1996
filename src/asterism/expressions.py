"""SQL text over events: parsed by sqlglot, checked against a schema, and evaluated.

A text falls into two parts. What reads only the current event is *pure*: :class:`Vectorized` evaluates it by DuckDB for a
whole batch at once, each distinct expression once. What reads earlier events of the match, by an aggregate over a stage
(``LAST(a.price)``), becomes a :class:`Program` for a small stack machine that the kernel runs; the pure parts inside it are
hoisted into *slots*, columns computed in advance.

Expressions come from outside: only the node types listed here are accepted, and texts are bounded in length and depth.
"""

from __future__ import annotations

import atexit
import difflib
import enum
import functools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
)
from asterism.sql import routines
from asterism.sql.functions import FUNCTIONS, NOT_PURE
from asterism.sql.translation import DOCUMENTATION, Translator, position_of
from asterism.sql.types import MONTHS, NULL, TIME_ZONE, given_type, name_of, spark_type, stored_type
from asterism.sql.values import Sql

if TYPE_CHECKING:
    import duckdb

MAX_TEXT = 20_000  # characters; generous for a person, harmless for the parser
MAX_DEPTH = 50  # nesting; Python's own limit is near 1,000 frames and sqlglot takes several per level
MAX_OPERATIONS = 200  # on top of each other, as in a + b + c ...; but for AND and OR
STACK = 64  # values on the kernel's stack

AGGREGATES: dict[type[exp.Expr], str] = {
    exp.First: "FIRST",
    exp.Last: "LAST",
    exp.Sum: "SUM",
    exp.Count: "COUNT",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
}

_PREDICATES: tuple[type[exp.Expr], ...] = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like,
    exp.ILike, exp.RegexpLike, exp.Escape,
)  # fmt: skip
_BITWISE = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
_SUPPORTED: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.DPipe,
    exp.BitwiseNot, exp.Literal, exp.RawString, exp.Boolean, exp.Null, exp.Column, exp.Identifier, exp.Star, exp.Interval,
    exp.Var, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Case, exp.If, exp.Extract, exp.Dot, exp.Bracket, exp.Anonymous,
    *_PREDICATES, *_BITWISE, *AGGREGATES,
)  # fmt: skip
_TYPED = {
    "dpipe": "||", "bitwiseand": "&", "bitwiseor": "|", "bitwisexor": "^", "intdiv": "DIV", "nullsafeeq": "<=>", "neg": "-",
    "eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "add": "+", "sub": "-", "mul": "*", "div": "/",
    "mod": "%", "bitwiseleftshift": "<<", "bitwiserightshift": ">>", "attimezone": "AT TIME ZONE", "bitwisenot": "~",
    "nullsafeneq": "IS DISTINCT FROM", "regexplike": "RLIKE", "hexstring": "X'...'",
}  # fmt: skip
"""What was typed, where the parser has another name for it."""
_ARGUMENTS = frozenset(
    "this expression expressions low high ifs default true to safe typed negate is_string quoted table db catalog unit "
    "big_int".split()
)
"""What a node may hold. Anything else is a variety of it that has another meaning, such as BETWEEN SYMMETRIC."""


class _Tokenizer(Spark.Tokenizer):
    # A doubled quote inside a string is a quote, as in standard SQL and in Spark 4.
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]


class _Parser(Spark.Parser):
    """Leaves functions as they were typed: what they are is settled by :data:`asterism.sql.functions.FUNCTIONS`."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {
        name: Spark.Parser.FUNCTIONS[name] for name in AGGREGATES.values()
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_called_cast(safe=None),
        "TRY_CAST": lambda self: self._parse_called_cast(safe=True),
        "EXTRACT": Spark.Parser.FUNCTION_PARSERS["EXTRACT"],
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": Spark.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _parse_called_cast(self, safe: bool | None) -> exp.Expr:
        """A cast that is spelled out: the parser takes 5L for one too, which to Spark is a number like any other."""
        node: exp.Expr = self._parse_cast(False, safe=safe)
        node.meta["called"] = True
        return node


class _Dialect(Spark):
    Tokenizer = _Tokenizer
    Parser = _Parser


# ---------------------------------------------------------------------------------------------------- parsing


def parse(text: str) -> exp.Expr:
    """The syntax tree of one expression, made of supported parts only.

    >>> parse("price > 1 2")
    Traceback (most recent call last):
    ...
    asterism.errors.ExpressionSyntaxError: unexpected token
      price > 1 2
                ^
    """
    if len(text) > MAX_TEXT:
        raise ExpressionSyntaxError.at(f"an expression of {len(text)} characters is too long (limit {MAX_TEXT})", text)
    if _nesting(text) > MAX_DEPTH:
        raise ExpressionSyntaxError.at(f"an expression may be nested {MAX_DEPTH} levels deep at most", text)
    try:
        trees = sqlglot.parse(text, dialect=_Dialect)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        problem = str(first.get("description") or "the expression does not parse")
        position = None if first.get("line") != 1 else int(first.get("col", 0)) - 1
        if problem.startswith("Required keyword"):
            problem, position = "the expression is incomplete", None
        elif problem.startswith("Invalid expression"):
            problem = "unexpected token"
        raise ExpressionSyntaxError.at(problem[0].lower() + problem[1:].rstrip("."), text, position) from None
    except RecursionError:
        raise ExpressionSyntaxError.at("the expression is too deeply nested", text) from None
    except TokenError:
        raise ExpressionSyntaxError.at("the expression does not parse", text, hint="is every string closed?") from None
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Block):
        raise ExpressionSyntaxError.at("exactly one expression is expected", text)
    tree: exp.Expr = trees[0]
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    if re.search(r"\bAS\s*$", text, flags=re.IGNORECASE):
        raise ExpressionSyntaxError.at("AS needs a name", text)
    for node in inner.walk():
        _check(node, text)
    if _height(inner) > MAX_OPERATIONS:
        raise ExpressionSyntaxError.at("the expression is too deeply nested", text)
    return tree


def _check(node: exp.Expr, text: str) -> None:
    """Refuse what is not known to mean here what it means to Spark."""
    if isinstance(node, exp.Query | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query") is not None):
        raise ExpressionSyntaxError.at("subqueries are not supported", text, text.upper().find("SELECT"))
    if isinstance(node, exp.Anonymous) and str(node.this).lower() not in FUNCTIONS:
        name = str(node.this)
        if name.lower() in NOT_PURE:
            raise _not_pure(name, text, position_of(node))
        close = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.8)
        hint = f"did you mean {close[0]}?" if close else DOCUMENTATION
        raise ExpressionSyntaxError.at(f"unknown function {name}", text, position_of(node), hint)
    others = [name for name, value in node.args.items() if name not in _ARGUMENTS and value]
    if not isinstance(node, _SUPPORTED) or others:
        word = _TYPED.get(node.key, node.key.upper())
        word = " ".join([word, *(name.upper() for name in others)])
        raise ExpressionSyntaxError.at(f"{word} is not supported here", text, _place(node, word, text), DOCUMENTATION)
    if isinstance(node, exp.Bracket) and len(node.expressions) != 1:
        raise ExpressionSyntaxError.at("[ ] takes one index", text, position_of(node))
    for part in _operands(node):
        if (isinstance(part, _LOOSER.get(type(node), ())) and type(part) is not type(node)) or (
            isinstance(node, _PREDICATES) and isinstance(part, (*_PREDICATES, exp.Not, exp.And, exp.Or))
        ):
            word, inner = (_TYPED.get(n.key, n.key.upper()) for n in (node, part))
            raise ExpressionSyntaxError.at(
                f"{inner} next to {word} needs brackets", text, position_of(part), "they bind differently in SQL dialects"
            )


_LOOSER: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = dict.fromkeys(_BITWISE, (*_BITWISE, exp.DPipe)) | {
    exp.DPipe: (*_BITWISE, exp.Add, exp.Sub)
}
"""Operators whose order of binding the parser does not share with Spark."""


def _place(node: exp.Expr, word: str, text: str) -> int | None:
    """Where *word* is, if it is there once; otherwise where the node begins."""
    return text.upper().find(word) if text.upper().count(word) == 1 else position_of(node)


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """What stands left and right of an operator."""
    if isinstance(node, exp.Escape):
        return
    for name in ("this", "expression", "low", "high"):
        part = node.args.get(name)
        if isinstance(part, exp.Expr):
            yield part


def _not_pure(name: str, text: str, position: int | None) -> ExpressionSyntaxError:
    return ExpressionSyntaxError.at(
        f"{name} is not supported: its answer does not depend on the events alone", text, position
    )


def _height(tree: exp.Expr) -> int:
    """How many operations are on top of each other; ANDs and ORs side by side are one."""
    deepest, stack = 0, [(tree, 0)]
    while stack:
        node, height = stack.pop()
        deepest = max(deepest, height)
        for part in node.iter_expressions():
            same = isinstance(node, exp.And | exp.Or) and type(part) is type(node)
            stack.append((part, height + (not same)))
    return deepest


def _nesting(text: str) -> int:
    """How deep a recursive parser may have to go: open brackets, and runs of NOT and minus."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    chain = max((len(run.split()) for run in re.findall(r"(?:\bNOT\s+)+", text, flags=re.IGNORECASE)), default=0)
    minus = max((len(run.replace(" ", "")) for run in re.findall(r"(?:[-+~!]\s*)+", text)), default=0)
    case = len(re.findall(r"\bCASE\b", text, flags=re.IGNORECASE))
    return max(deepest, chain, minus, case)


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts that AND joins at the top."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return [part for side in node.flatten() for part in conjuncts(side)]
    return [node]


# ---------------------------------------------------------------------------------------------------- names


@dataclass(frozen=True, slots=True)
class Scope:
    """What names can mean: columns of the events, and stages of the pattern."""

    schema: pa.Schema
    stages: tuple[str, ...] = ()

    def column(self, node: exp.Column, text: str) -> str:
        """The event column that *node* names: exactly, or, if only one does, apart from case."""
        names = self.schema.names
        found = self._find(node.this)
        if found is not None:
            return found
        if node.name.lower() in NOT_PURE and not node.this.quoted:
            raise _not_pure(node.name, text, position_of(node))
        raise ColumnNotFoundError.from_missing_and_available(node.name, names, f"in: {text}")

    def _find(self, identifier: exp.Expr) -> str | None:
        names, name = self.schema.names, identifier.name
        if name in names:
            return name
        alike = [candidate for candidate in names if candidate.lower() == name.lower()]
        return str(alike[0]) if len(alike) == 1 and not identifier.args.get("quoted") else None

    def resolve(self, tree: exp.Expr, text: str) -> exp.Expr:
        """A copy of *tree* in which every event column is spelled as in the schema, and ``a.x`` alone is ``LAST(a.x)``.

        ``a.b`` is column ``b`` of stage ``a`` or, if there is no such stage, field ``b`` of column ``a``.
        """

        def visit(node: exp.Expr) -> exp.Expr:
            kind = AGGREGATES.get(type(node))
            if kind is not None:
                return self._aggregate(node, kind, text)
            if isinstance(node, exp.Column):
                stage, names = self._split(node)
                if isinstance(names[0], exp.Star):
                    raise ExpressionSyntaxError.at("* stands inside COUNT(stage.*) only", text, position_of(node))
                if stage:
                    self._stage(stage, text)
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

        return visit(tree)

    def _split(self, column: exp.Column) -> tuple[str, list[exp.Expr]]:
        """(stage or nothing, column and fields in it) of a name with dots."""
        parts: list[exp.Expr] = list(column.parts)
        stage = parts[0].name
        if len(parts) > 1 and (stage in self.stages or self._find(parts[0]) is None):
            return stage, parts[1:]
        return "", parts

    def _named(self, stage: str, names: list[exp.Expr], text: str) -> exp.Expr:
        first = exp.to_identifier(self.column(exp.Column(this=names[0].copy()), text), quoted=True)
        first.meta.update(names[0].meta)
        named: exp.Expr = exp.Column(this=first, table=exp.to_identifier(stage, quoted=True) if stage else None)
        for name in names[1:]:
            if isinstance(name, exp.Star):
                raise ExpressionSyntaxError.at("* stands inside COUNT(stage.*) only", text, position_of(name))
            named = exp.Dot(this=named, expression=name.copy())
        return named

    def _aggregate(self, node: exp.Expr, kind: str, text: str) -> exp.Expr:
        argument = node.this
        position = position_of(node)
        if node.expressions:
            raise ExpressionSyntaxError.at(f"{kind} takes one argument", text, position)
        columns = list(argument.find_all(exp.Column)) if isinstance(argument, exp.Expr) else []
        stages = {self._split(column)[0] for column in columns}
        if isinstance(argument, exp.Star) or stages in (set(), {""}):
            raise ExpressionSyntaxError.at(
                f"{kind} ranges over the events of a stage, and names none",
                text,
                position,
                hint=f"{kind}(stage.column), or COUNT(stage.*)",
            )
        if len(stages) != 1 or any(argument.find_all(*AGGREGATES)):
            raise ExpressionSyntaxError.at(f"{kind} ranges over the events of one stage", text, position)
        stage = next(iter(stages))
        self._stage(stage, text)
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            if kind != "COUNT":
                raise ExpressionSyntaxError.at(f"{kind} needs a column", text, position)
            return exp.Count(this=exp.Column(this=exp.Star(), table=exp.to_identifier(stage, quoted=True)))
        holder = exp.Paren(this=argument.copy())
        for column in list(holder.find_all(exp.Column)):
            column.replace(self._named(stage, self._split(column)[1], text))
        return type(node)(this=holder.this)

    def _stage(self, stage: str, text: str) -> None:
        if stage not in self.stages:
            raise ColumnNotFoundError(
                f"unknown stage {stage!r}",
                f"in: {text}\nStages: {', '.join(self.stages) or '(none)'}",
                "stage names are case-sensitive",
            )


def _shallow(node: exp.Expr) -> exp.Expr:
    """The node without its children."""
    copied = type(node)(**{key: value for key, value in node.args.items() if not isinstance(value, exp.Expr | list)})
    copied.meta.update(node.meta)
    return copied


def _balanced(kind: type[exp.Expr], parts: list[exp.Expr]) -> exp.Expr:
    """All parts joined, in their order, by a tree that is no deeper than it must be."""
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [kind(this=pair[0], expression=pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def has_aggregate(node: exp.Expr) -> bool:
    return node.find(*AGGREGATES) is not None


def aggregate_of(node: exp.Expr) -> tuple[str, str, exp.Expr | None]:
    """(function, stage, argument without the stage's name; None for ``COUNT(a.*)``) of a resolved aggregate."""
    column = node.find(exp.Column)
    assert column is not None
    stage = column.table
    if isinstance(column.this, exp.Star):
        return AGGREGATES[type(node)], stage, None
    argument = node.this.copy()
    for inner in list(argument.find_all(exp.Column)):
        inner.set("table", None)
    return AGGREGATES[type(node)], stage, argument


# ---------------------------------------------------------------------------------------------------- pure expressions


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One in-memory database per process; it sees the Arrow tables handed to it and nothing else."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET enable_external_access = false")
    # What its optimizer moves about can fail where Spark does not, or the other way round; there is little to gain.
    names = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
    connection.execute(f"SET disabled_optimizers = '{','.join(names)}'")
    routines.register(connection)
    connection.execute("SET lock_configuration = true")
    # Left to the interpreter's end it would be cleaned up after the modules that it needs.
    atexit.register(_connection.cache_clear)
    return connection


_TRY = "filter such events out; try_divide(a, b) gives NULL where b is 0"


class _DuckDBError(Exception):
    """What DuckDB said, without its decoration."""


@dataclass(slots=True)
class Vectorized:
    """Distinct pure expressions over one schema, evaluated together. Holds text only, so that it can travel.

    The session's time zone, in which times without a zone are read, is in the metadata of the schema; otherwise it is that
    of the first TIMESTAMP column, or UTC.
    """

    schema: pa.Schema
    texts: list[str] = field(default_factory=list)
    types: list[pa.DataType] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """what the user wrote, for messages"""

    @property
    def zone(self) -> str:
        metadata = self.schema.metadata or {}
        return str(metadata[TIME_ZONE].decode()) if TIME_ZONE in metadata else self._label or "UTC"

    @property
    def _label(self) -> str | None:
        """The zone of the first TIMESTAMP column."""
        return next((str(t.tz) for t in self.schema.types if pa.types.is_timestamp(t) and t.tz is not None), None)

    def add(self, node: exp.Expr, text: str) -> int:
        """The number of the expression; *text* is what the user wrote, for messages."""
        value = self.translate(node, text)
        if value.text not in self.texts:
            self.types.append(self._type(value, text))
            self.texts.append(value.text)
            self.sources.append(text)
        return self.texts.index(value.text)

    def translate(self, node: exp.Expr, text: str) -> Sql:
        """A resolved expression in DuckDB's words."""
        return Translator(self.schema, self.zone, text).translate(node)

    def type_of(self, node: exp.Expr, text: str) -> pa.DataType:
        """The type of an expression; :class:`~asterism.errors.ExpressionTypeError` if it has none."""
        return self._type(self.translate(node, text), text)

    def _type(self, value: Sql, text: str) -> pa.DataType:
        plain = plain_column(value.text)
        if plain is not None:
            return self.schema.field(plain).type
        if value.type == MONTHS:
            raise ExpressionTypeError.at(f"an expression cannot be of type {name_of(value.type)}", text)
        given = given_type(value.type, self._label or self.zone)
        try:
            self._run([value.text], [given], self.schema.empty_table())
        except _DuckDBError as error:
            raise ExpressionTypeError.at(str(error), text) from None
        return given

    def evaluate(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """One column per expression, in the order in which they were added."""
        plain = {number: plain_column(text) for number, text in enumerate(self.texts)}
        computed = [number for number in plain if plain[number] is None]
        texts, types = [self.texts[number] for number in computed], [self.types[number] for number in computed]
        try:
            results = iter(self._run(texts, types, table) if computed else [])
        except _DuckDBError as error:
            raise InvalidEventError(
                f"an expression could not be computed: {error}", self._culprit(table), _TRY
            ) from None
        return [next(results) if at is None else table.column(at) for at in plain.values()]

    def _culprit(self, table: pa.Table) -> str | None:
        """What the user wrote, of the expression that fails on these rows."""
        for text, data_type, source in zip(self.texts, self.types, self.sources, strict=True):
            try:
                self._run([text], [data_type], table)
            except _DuckDBError:
                return source
        return None

    def _run(self, texts: list[str], types: list[pa.DataType], table: pa.Table) -> list[pa.ChunkedArray]:
        import duckdb

        needed = sorted({number for text in texts for number in columns_of(text) if number < table.num_columns})
        view = pa.table([self._as_duckdb_sees(table.column(n)) for n in needed], names=[f"c{n}" for n in needed])
        if not needed:  # constants only: something must tell the number of rows
            view = pa.table({"rows": pa.nulls(table.num_rows, pa.int8())})
        connection = _connection()
        columns = ", ".join(f"{text} AS r{number}" for number, text in enumerate(texts))
        connection.register("events", view)
        try:
            result: pa.Table = connection.sql(f"SELECT {columns} FROM events").to_arrow_table()
        except duckdb.Error as error:
            raise _DuckDBError(_undecorated(str(error))) from None
        finally:
            connection.unregister("events")
        return [_as_spark_sees(column, kind) for column, kind in zip(result.columns, types, strict=True)]

    def _as_duckdb_sees(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Points in time as those of UTC without a zone, intervals as numbers, other types by their nearest in Spark."""
        known = spark_type(column.type, self.zone)
        if known is None:  # nothing can be done with it but to ask whether it is NULL
            return column
        return column.cast(known, safe=False).cast(stored_type(known))


def _undecorated(message: str) -> str:
    """What happened, of what DuckDB says about it."""
    first = message.split("\n")[0] if "Error: " in message.split("\n")[0] else message
    return re.sub(r"^[A-Z][A-Za-z ]*Error: ", "", first)


def columns_of(text: str) -> set[int]:
    """The numbers of the columns that an expression of :class:`Vectorized` reads."""
    return {int(number) for number in re.findall(r"\bc(\d+)\b", text)}


def plain_column(text: str) -> int | None:
    """The number of the column, if an expression of :class:`Vectorized` is nothing but that."""
    return int(text[1:]) if re.fullmatch(r"c\d+", text) else None


def _as_spark_sees(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """What DuckDB answered, in the type that the value has in Spark."""
    if column.type == data_type:
        return column
    if data_type == NULL:
        return pa.chunked_array([pa.nulls(len(column))])
    return column.cast(data_type)


# ---------------------------------------------------------------------------------------------------- programs


class Kind(enum.Enum):
    """Types of the stack machine, where every value is 64 bits."""

    INT = "number"
    FLOAT = "floating point number"
    BOOL = "Boolean"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    INTERVAL = "interval"
    NULL = "NULL"


class Op(enum.IntEnum):
    """Operations of the stack machine; ``_F``: on doubles, which it keeps as their 64 bits."""

    CONST = 0
    NULL = 1
    STRING = 2
    SLOT = 3
    AGG = 4
    TO_FLOAT = 5
    TO_FLOAT_BELOW = 6
    ADD = 7
    SUB = 8
    MUL = 9
    NEG = 10
    ABS = 11
    ADD_F = 12
    SUB_F = 13
    MUL_F = 14
    DIV_F = 15
    NEG_F = 16
    ABS_F = 17
    EQ = 18
    LT = 19
    LE = 20
    EQ_F = 21
    LT_F = 22
    LE_F = 23
    SWAP = 24
    NOT = 25
    AND = 26
    OR = 27
    IS_NULL = 28
    COALESCE = 29
    SELECT = 30
    PYTHON = 31


class Func(enum.IntEnum):
    FIRST = 0
    LAST = 1
    SUM = 2
    COUNT = 3
    AVG = 4
    MIN = 5
    MAX = 6


def kind_of(data_type: pa.DataType) -> Kind | None:
    """How the stack machine holds values of an Arrow type; None: it cannot."""
    if pa.types.is_boolean(data_type):
        return Kind.BOOL
    if pa.types.is_uint64(data_type):
        return None
    if pa.types.is_integer(data_type):
        return Kind.INT
    if pa.types.is_floating(data_type):
        return Kind.FLOAT
    if pa.types.is_decimal(data_type):
        return Kind.FLOAT
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type):
        return Kind.STRING
    if pa.types.is_timestamp(data_type):
        return Kind.TIMESTAMP
    if pa.types.is_date(data_type):
        return Kind.DATE
    if pa.types.is_null(data_type):
        return Kind.NULL
    return None


_UNIT_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 10**3,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
    "DAY": 86_400 * 10**6,
    "WEEK": 7 * 86_400 * 10**6,
}


@dataclass(slots=True)
class Programs:
    """Programs of all conditions of a pattern, their constants, aggregates and slots; plain data."""

    scope: Scope
    vectorized: Vectorized
    ops: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    """(operation, constant or slot; for aggregates: function, stage, slot or -1, is the slot floating)"""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    """constants, which STRING operations name by number"""
    slots: list[int] = field(default_factory=list)
    """slot number to number of the pure expression that fills it"""

    def add(self, node: exp.Expr, text: str) -> int:
        """Compile a resolved Boolean expression; the number of its program."""
        begin = len(self.ops)
        compiler = _ProgramCompiler(self, text)
        kind = compiler.visit(node)
        if kind not in (Kind.BOOL, Kind.NULL):
            raise ExpressionTypeError.at(f"a condition must be Boolean, this one is a {kind.value}", text)
        if compiler.deepest > STACK:
            raise ExpressionSyntaxError.at("the expression is too deeply nested", text)
        self.starts.append(begin)
        self.ends.append(len(self.ops))
        self.texts.append(text)
        return len(self.starts) - 1

    def add_call(self, condition: int) -> int:
        """A program that asks per-event Python condition number *condition*; the number of the program."""
        self.starts.append(len(self.ops))
        self.ops.append((int(Op.PYTHON), condition, 0, 0, 0, 0))
        self.ends.append(len(self.ops))
        return len(self.starts) - 1

    def slot(self, node: exp.Expr, text: str) -> tuple[int, Kind]:
        number = self.vectorized.add(node, text)
        kind = kind_of(self.vectorized.types[number])
        if kind is None:
            raise ExpressionTypeError.at(
                f"values of type {self.vectorized.types[number]} cannot be compared with earlier events",
                text,
                hint="CAST it to double",
            )
        if number not in self.slots:
            self.slots.append(number)
        return self.slots.index(number), kind


class _ProgramCompiler:
    def __init__(self, programs: Programs, text: str) -> None:
        self.programs = programs
        self.text = text
        self.depth = self.deepest = 0

    def emit(
        self, op: Op, argument: int = 0, *, grows: int = 0, aggregate: tuple[int, int, int, int] = (0, 0, 0, 0)
    ) -> None:
        self.programs.ops.append((int(op), argument, *aggregate))
        self.depth += grows
        self.deepest = max(self.deepest, self.depth)

    def fail(self, problem: str) -> ExpressionError:
        return ExpressionTypeError.at(problem, self.text)

    def visit(self, node: exp.Expr) -> Kind:
        node = node.unnest()
        if not has_aggregate(node):
            return self.pure(node)
        if type(node) in AGGREGATES:
            return self.aggregate(node)
        match node:
            case exp.And() | exp.Or():
                self.boolean(node.left)
                self.boolean(node.right)
                self.emit(Op.AND if isinstance(node, exp.And) else Op.OR, grows=-1)
                return Kind.BOOL
            case exp.Not():
                self.boolean(node.this)
                self.emit(Op.NOT)
                return Kind.BOOL
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self.compare(type(node), node.left, node.right)
            case exp.Between():
                self.compare(exp.GTE, node.this, node.args["low"])
                self.compare(exp.LTE, node.this, node.args["high"])
                self.emit(Op.AND, grows=-1)
                return Kind.BOOL
            case exp.In():
                for number, choice in enumerate(node.expressions):
                    self.compare(exp.EQ, node.this, choice)
                    if number:
                        self.emit(Op.OR, grows=-1)
                return Kind.BOOL
            case exp.Is() if isinstance(node.expression, exp.Null):
                self.visit(node.this)
                self.emit(Op.IS_NULL)
                return Kind.BOOL
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.SafeDivide():
                return self.arithmetic(node)
            case exp.Neg() | exp.Abs():
                kind = self.visit(node.this)
                if kind not in (Kind.INT, Kind.FLOAT, Kind.INTERVAL):
                    raise self.fail(f"{node.key.upper()} needs a number, not a {kind.value}")
                plain, floating = (Op.NEG, Op.NEG_F) if isinstance(node, exp.Neg) else (Op.ABS, Op.ABS_F)
                self.emit(floating if kind is Kind.FLOAT else plain)
                return kind
            case exp.Coalesce():
                kind = self.visit(node.this)
                for choice in node.expressions:
                    kind = self.unify(kind, self.visit(choice), "COALESCE")
                    self.emit(Op.COALESCE, grows=-1)
                return kind
            case exp.If():
                return self.select(node.this, node.args["true"], node.args.get("false"))
            case exp.Case() if node.this is None:
                return self.case(list(node.args["ifs"]), node.args.get("default"))
        raise ExpressionSyntaxError.at(f"{node.key.upper()} is not supported over events of a stage", self.text)

    def pure(self, node: exp.Expr) -> Kind:
        programs = self.programs
        if isinstance(node, exp.Interval):
            unit = str(node.args["unit"]).upper().rstrip("S")
            if not isinstance(node.this, exp.Literal):
                raise self.fail("the length of an interval must be a number")
            if unit not in _UNIT_MICROS:
                raise self.fail(f"an interval in {unit}S has no fixed length")
            self.emit(Op.CONST, round(float(node.this.name) * _UNIT_MICROS[unit]), grows=1)
            return Kind.INTERVAL
        if isinstance(node, exp.Null):
            self.emit(Op.NULL, grows=1)
            return Kind.NULL
        if isinstance(node, exp.Boolean):
            self.emit(Op.CONST, int(node.this), grows=1)
            return Kind.BOOL
        if isinstance(node, exp.Literal) and node.is_string:
            programs.strings.append(node.this)
            self.emit(Op.STRING, len(programs.strings) - 1, grows=1)
            return Kind.STRING
        if isinstance(node, exp.Literal):
            if re.fullmatch(r"\d+", node.this) and int(node.this) < 2**63:
                self.emit(Op.CONST, int(node.this), grows=1)
                return Kind.INT
            (bits,) = struct.unpack("<q", struct.pack("<d", float(node.this)))
            self.emit(Op.CONST, bits, grows=1)
            return Kind.FLOAT
        slot, kind = programs.slot(node, self.text)
        self.emit(Op.SLOT, slot, grows=1)
        return kind

    def aggregate(self, node: exp.Expr) -> Kind:
        name, stage, argument = aggregate_of(node)
        stage_number = self.programs.scope.stages.index(stage)
        func = Func[name]
        if argument is None:
            slot, kind = -1, Kind.INT
        else:
            slot, kind = self.programs.slot(argument, self.text)
        if func in (Func.SUM, Func.AVG) and kind not in (Kind.INT, Kind.FLOAT, Kind.NULL):
            raise self.fail(f"{name} needs numbers, not a {kind.value}")
        entry = (int(func), stage_number, slot, int(kind is Kind.FLOAT))
        self.emit(Op.AGG, grows=1, aggregate=entry)
        return {Func.COUNT: Kind.INT, Func.AVG: Kind.FLOAT}.get(func, kind)

    def boolean(self, node: exp.Expr) -> None:
        kind = self.visit(node)
        if kind not in (Kind.BOOL, Kind.NULL):
            raise self.fail(f"AND, OR and NOT need Booleans, not a {kind.value}")

    def unify(self, below: Kind, top: Kind, where: str) -> Kind:
        """Bring the two topmost values to one kind; integers next to floating point numbers become such."""
        if below is top or top is Kind.NULL:
            return below
        if below is Kind.NULL:
            return top
        if {below, top} == {Kind.INT, Kind.FLOAT}:
            self.emit(Op.TO_FLOAT if top is Kind.INT else Op.TO_FLOAT_BELOW)
            return Kind.FLOAT
        raise self.fail(f"{where} cannot take a {below.value} together with a {top.value}")

    def compare(self, operator: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Kind:
        kind = self.unify(self.visit(left), self.visit(right), _TYPED[operator.key])
        floating = kind is Kind.FLOAT
        if operator in (exp.GT, exp.GTE):
            self.emit(Op.SWAP)
        if operator in (exp.EQ, exp.NEQ):
            self.emit(Op.EQ_F if floating else Op.EQ, grows=-1)
        elif operator in (exp.LT, exp.GT):
            self.emit(Op.LT_F if floating else Op.LT, grows=-1)
        else:
            self.emit(Op.LE_F if floating else Op.LE, grows=-1)
        if operator is exp.NEQ:
            self.emit(Op.NOT)
        return Kind.BOOL

    def arithmetic(self, node: exp.Expr) -> Kind:
        assert isinstance(node, exp.Binary | exp.SafeDivide)
        below, top = self.visit(node.this), self.visit(node.expression)
        times = {Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL}
        if below in times or top in times:
            return self.time_arithmetic(node, below, top)
        word = _TYPED.get(node.key, node.key.upper())
        kind = self.unify(below, top, word)
        if kind not in (Kind.INT, Kind.FLOAT, Kind.NULL):
            raise self.fail(f"{word} needs numbers, not a {kind.value}")
        if isinstance(node, exp.Div | exp.SafeDivide):
            if kind is not Kind.FLOAT:
                self.emit(Op.TO_FLOAT)
                self.emit(Op.TO_FLOAT_BELOW)
            self.emit(Op.DIV_F, int(isinstance(node, exp.SafeDivide)), grows=-1)
            return Kind.FLOAT
        plain, floating = {exp.Add: (Op.ADD, Op.ADD_F), exp.Sub: (Op.SUB, Op.SUB_F), exp.Mul: (Op.MUL, Op.MUL_F)}[
            type(node)
        ]
        self.emit(floating if kind is Kind.FLOAT else plain, grows=-1)
        return kind

    def time_arithmetic(self, node: exp.Expr, below: Kind, top: Kind) -> Kind:
        result: dict[tuple[type[exp.Expr], Kind, Kind], Kind] = {
            (exp.Add, Kind.TIMESTAMP, Kind.INTERVAL): Kind.TIMESTAMP,
            (exp.Add, Kind.INTERVAL, Kind.TIMESTAMP): Kind.TIMESTAMP,
            (exp.Sub, Kind.TIMESTAMP, Kind.INTERVAL): Kind.TIMESTAMP,
            (exp.Sub, Kind.TIMESTAMP, Kind.TIMESTAMP): Kind.INTERVAL,
            (exp.Add, Kind.INTERVAL, Kind.INTERVAL): Kind.INTERVAL,
            (exp.Sub, Kind.INTERVAL, Kind.INTERVAL): Kind.INTERVAL,
        }
        kind = result.get((type(node), below, top))
        if kind is None:
            raise self.fail(f"{_TYPED.get(node.key, node.key)} cannot take a {below.value} together with a {top.value}")
        self.emit(Op.ADD if isinstance(node, exp.Add) else Op.SUB, grows=-1)
        return kind

    def select(self, condition: exp.Expr, then: exp.Expr, otherwise: exp.Expr | None) -> Kind:
        self.boolean(condition)
        kind = self.visit(then)
        kind = self.unify(kind, self.visit(otherwise) if otherwise is not None else self.pure(exp.Null()), "CASE")
        self.emit(Op.SELECT, grows=-2)
        return kind

    def case(self, branches: list[exp.Expr], default: exp.Expr | None) -> Kind:
        first, rest = branches[0], branches[1:]
        otherwise: exp.Expr | None = exp.Case(ifs=rest, default=default) if rest else default
        return self.select(first.this, first.args["true"], otherwise)
