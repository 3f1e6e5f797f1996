"""SQL text over events: parsed by sqlglot, checked against a schema, and evaluated.

A text falls into two parts. What reads only the current event is *pure*: :class:`Vectorized` evaluates it by DuckDB for a
whole batch at once, each distinct expression once, in the words of :mod:`asterism.sql`. What reads earlier events of the match,
by an aggregate over a stage (``LAST(a.price)``), becomes a program for a small stack machine that the kernel runs
(:mod:`asterism.programs`); the pure parts inside it are hoisted into *slots*, columns computed in advance.

Expressions come from outside: only the node types listed here are accepted, and texts are bounded in length and depth.
"""

from __future__ import annotations

import atexit
import contextlib
import decimal
import difflib
import enum
import functools
import itertools
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import (
    ColumnNotFoundError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
)
from asterism.sql import routines
from asterism.sql.functions import FUNCTIONS, NOT_PURE, UNIT_FIRST
from asterism.sql.translation import DOCUMENTATION, Translator, position_of
from asterism.sql.types import MONTHS, NULL, TIME_ZONE, given_type, name_of, spark_type, stored_type
from asterism.sql.values import MAX_FIXED, MAX_GROWTH, MAX_PROGRAM, Cost, Sql

if TYPE_CHECKING:
    pass

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
    exp.Var, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Case, exp.If, exp.Extract, exp.Dot, exp.Bracket,
    exp.Anonymous, *_PREDICATES, *_BITWISE, *AGGREGATES,
)  # fmt: skip
_TYPED = {
    "dpipe": "||", "bitwiseand": "&", "bitwiseor": "|", "bitwisexor": "^", "intdiv": "DIV", "nullsafeeq": "<=>", "neg": "-",
    "eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "add": "+", "sub": "-", "mul": "*", "div": "/",
    "mod": "%", "bitwiseleftshift": "<<", "bitwiserightshift": ">>", "attimezone": "AT TIME ZONE", "bitwisenot": "~",
    "nullsafeneq": "IS DISTINCT FROM", "regexplike": "RLIKE", "hexstring": "X'...'",
}  # fmt: skip
"""What was typed, where the parser has another name for it."""
_BINARY = frozenset(("this", "expression"))
_AGGREGATED: tuple[type[exp.Expr], ...] = (exp.Sum, exp.Avg, exp.Min, exp.Max)
_PARTS_OF: dict[type[exp.Expr], str] = {
    **dict.fromkeys(_SUPPORTED, "this expression"), **dict.fromkeys(_AGGREGATED, "this"),
    exp.Literal: "this is_string", exp.Identifier: "this quoted", exp.Column: "this table db catalog", exp.Star: "",
    exp.Div: "this expression typed safe", exp.DPipe: "this expression safe", exp.Null: "", exp.Interval: "this unit",
    exp.Cast: "this to safe", exp.TryCast: "this to safe", exp.DataType: "this expressions", exp.DataTypeParam: "this",
    exp.Case: "this ifs default", exp.If: "this true", exp.Bracket: "this expressions", exp.Anonymous: "this expressions",
    exp.In: "this expressions", exp.Between: "this low high", exp.Like: "this expression negate",
    exp.ILike: "this expression negate", exp.Count: "this big_int",
}  # fmt: skip
_CONSUMED = {kind: frozenset(names.split()) for kind, names in _PARTS_OF.items()}
"""What of a node is translated. Whatever else it holds would be lost, such as the SYMMETRIC of a BETWEEN."""
_TYPE = re.compile(
    r"BOOLEAN|TINYINT|BYTE|SMALLINT|SHORT|INT|INTEGER|BIGINT|LONG|FLOAT|REAL|DOUBLE|STRING|BINARY|DATE|TIMESTAMP(_NTZ|_LTZ)?"
    r"|[LSYDF]|(DECIMAL|DEC|NUMERIC)(\(\d{1,3}(,\d{1,3})?\))?"
)
"""The types that a CAST may name, as Spark writes them, and the suffixes of numbers. The parser knows more types, and drops the
length of a VARCHAR."""


class _Tokenizer(Spark.Tokenizer):
    # A doubled quote inside a string is a quote, as in standard SQL and in Spark 4.
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]


def _with_unit(name: str, parser: SparkParser) -> exp.Expr:
    """A call whose first argument may be a unit of time, as in ``timestampdiff(HOUR, a, b)``."""
    arguments = parser._parse_csv(parser._parse_assignment)
    first = arguments[0] if len(arguments) == 3 else None
    if isinstance(first, exp.Column) and not first.table and not first.this.args.get("quoted"):
        unit = exp.Var(this=first.name)
        unit.meta.update(first.this.meta)
        arguments[0] = unit
    return exp.Anonymous(this=name, expressions=arguments)


class _Parser(SparkParser):
    """Leaves functions as they were typed: what they are is settled by :data:`asterism.sql.functions.FUNCTIONS`."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTIONS[name] for name in AGGREGATES.values() if name not in ("FIRST", "LAST")
    } | {"FIRST": exp.First.from_arg_list, "LAST": exp.Last.from_arg_list}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_called_cast(safe=None),
        "TRY_CAST": lambda self: self._parse_called_cast(safe=True),
        "EXTRACT": SparkParser.FUNCTION_PARSERS["EXTRACT"],
        **{name.upper(): functools.partial(_with_unit, name) for name in UNIT_FIRST},
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _parse_paren(self) -> exp.Expr | None:
        """Brackets that are in the text: the parser adds some of its own."""
        node: exp.Expr | None = super()._parse_paren()
        if isinstance(node, exp.Paren):
            node.meta["typed"] = True
        return node

    def _parse_called_cast(self, safe: bool | None) -> exp.Expr:
        """A cast that is spelled out: the parser takes 5L for one too, which to Spark is a number like any other."""
        node: exp.Expr = self._parse_cast(False, safe=safe)
        node.meta["called"] = True
        return node

    def _parse_types(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        """A type, with the words in which it is written."""
        begin = self._index
        node: exp.Expr | None = super()._parse_types(*arguments, **options)
        if node is not None:
            node.meta["written"] = "".join(token.text for token in self._tokens[begin : self._index]).upper()
        return node


class _Dialect(Spark):
    Tokenizer = _Tokenizer
    Parser = _Parser


# ---------------------------------------------------------------------------------------------------- parsing

_SETTING = re.compile(r"\$\{\S+?\}")


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
    half = re.search("[\ud800-\udfff]", text)
    if half is not None:
        raise ExpressionSyntaxError.at("the text holds half a character", text, half.start())
    setting = _SETTING.search(text)
    if setting is not None:
        raise ExpressionSyntaxError.at(
            "Spark replaces ${...} by a setting, before it reads the SQL", text, setting.start(), "'$' || '{...}'"
        )
    dialect = _Dialect()
    try:
        tokens = dialect.tokenize(text)
        _check_tokens(tokens, text)
        trees = dialect.parser().parse(tokens, text)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        problem = str(first.get("description") or "the expression does not parse").partition(" but got <Token")[0]
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
    except _PARSER_BUGS as error:
        raise ExpressionSyntaxError.at(f"the expression does not parse ({type(error).__name__})", text) from None
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Block):
        raise ExpressionSyntaxError.at("exactly one expression is expected", text)
    if tokens[-1].token_type is TokenType.SEMICOLON:  # Spark reads one expression, and nothing that ends it
        raise ExpressionSyntaxError.at("unexpected token", text, tokens[-1].start)
    tree: exp.Expr = trees[0]
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    if re.search(r"\bAS\s*$", text, flags=re.IGNORECASE):
        raise ExpressionSyntaxError.at("AS needs a name", text)
    for node in inner.walk():
        _check(node, text)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            end = node.this.meta.get("end")
            if end is None:
                raise ExpressionSyntaxError.at(
                    "the suffix BD is not supported here", text, hint="CAST(... AS DECIMAL(p,s))"
                )
            if not text[end].isalpha():  # 5::BIGINT, not 5L
                typed = node.this.is_string and "called" not in node.meta and not _CASTS.match(text, end + 1)
                if typed and not str(node.to.meta.get("written")).startswith(("DATE", "TIMESTAMP")):
                    raise ExpressionSyntaxError.at(
                        "only DATE and TIMESTAMP stand before a text",
                        text,
                        node.this.meta.get("start"),
                        "CAST('...' AS type)",
                    )
                node.meta["called"] = True
    if _height(inner) > MAX_OPERATIONS:
        raise ExpressionSyntaxError.at("the expression is too deeply nested", text)
    if isinstance(tree, exp.Alias) and not isinstance(tree.args.get("alias"), exp.Identifier):
        raise ExpressionSyntaxError.at("unexpected token", text, position_of(tree.args["alias"]))
    _account(tokens, tree, text)
    return tree


_CASTS = re.compile(r"\s*::")
_PARSER_BUGS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What sqlglot raises for some texts that are no SQL."""


def _check_tokens(tokens: Sequence[Token], text: str) -> None:
    """Refuse what would take the parser too deep, and what it reads although Spark does not."""
    depth = cases = run = end = 0
    before = None
    for token in tokens:
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        cases += (kind is TokenType.CASE) - (kind is TokenType.END)
        run = run + 1 if kind in _PREFIXES else 0
        if max(depth, cases, run) > MAX_DEPTH:
            raise ExpressionSyntaxError.at(
                f"an expression may be nested {MAX_DEPTH} levels deep at most", text, token.start
            )
        if kind is TokenType.L_BRACE:
            raise ExpressionSyntaxError.at("unexpected token", text, token.start)
        if before in _ARROWS and kind in _NAMES[1:]:  # the parser reads it as a path, and logs what is wrong with that
            raise ExpressionSyntaxError.at("-> is not supported here", text, token.start, DOCUMENTATION)
        before = kind
        if token.start > end:
            _check_between(text, end, token.start)
        end = max(end, token.end + 1)
    _check_between(text, end, len(text))


def _check_between(text: str, begin: int, end: int) -> None:
    """What the tokenizer leaves out must be what Spark leaves out."""
    if not _BETWEEN.fullmatch(text, begin, end):
        found = re.compile(r"/\*\+|\{[#%]|/\*|--|[^ \t\r\n]").search(text, begin, end)
        at = found.start() if found is not None else begin
        what = "a hint" if text.startswith("/*+", at) else "such a comment" if text[at] in "/-{" else f"{text[at]!r}"
        raise ExpressionSyntaxError.at(f"{what} is not supported here", text, at)


_BETWEEN = re.compile(r"(?:[ \t\r\n]|--[^\n]*+(?<!\\)(?:\n|\Z)|/\*(?!\+)(?:(?!/\*|\*/).)*+\*/)*+", re.DOTALL)
"""Spaces and comments; of a line comment that ends with a backslash, and of nested ones, the parser has another idea."""
_ARROWS = (TokenType.ARROW, TokenType.DARROW, TokenType.HASH_ARROW, TokenType.DHASH_ARROW)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING)


def _account(tokens: Sequence[Token], tree: exp.Expr, text: str) -> None:
    """Each name and each literal of the text must be in the tree: what the parser leaves out would be lost without a word."""
    there: Counter[str] = Counter()
    commas = tests = 0
    for node in tree.walk():
        commas += max(len(node.expressions) - 1, 0)
        if isinstance(node, exp.First | exp.Last):
            commas += node.args.get("expression") is not None
        tests += isinstance(node, exp.Is)
        there.update(_words(node))
    for number, token in enumerate(tokens):
        kind = token.token_type
        commas -= kind is TokenType.COMMA
        tests -= kind is TokenType.IS
        if kind not in _NAMES:
            continue
        word = token.text
        if kind is TokenType.NUMBER:
            dot = (
                number
                and tokens[number - 1].token_type is TokenType.DOT
                and tokens[number - 1].start == token.start - 1
            )
            word = "0." + word if dot else _digits(word)
        word = word.lower() if kind is TokenType.VAR else word
        if not there[word]:
            raise ExpressionSyntaxError.at(f"{token.text!r:.60} has no meaning here", text, token.start, DOCUMENTATION)
        there[word] -= 1
    if commas < 0:
        raise ExpressionSyntaxError.at("a comma too many", text)
    if tests > 0:
        raise ExpressionSyntaxError.at("a test for NULL is written IS NULL or IS NOT NULL", text)


def _words(node: exp.Expr) -> Iterator[str]:
    """The words of a text that a node stands for; names in lower case too."""
    match node:
        case exp.Identifier() | exp.Anonymous() | exp.Var():
            name = str(node.this)
            yield name
            if name != name.lower():
                yield name.lower()
        case exp.Literal() if isinstance(node.parent, exp.Interval):
            unit = node.parent.args.get("unit")
            yield from (str(node.this), str(node.this).lstrip("-+"), str(node.meta.get("typed", "")))
            if isinstance(unit, exp.Var):
                yield f"{node.this} {unit.name}"
                yield f"{node.this} {unit.name}".lower()
        case exp.Literal():
            yield str(node.this) if node.is_string else _digits(str(node.this))
        case exp.RawString():
            yield str(node.this)
        case exp.Cast():
            yield from ("cast", "try_cast")
            yield from _WORD.findall(str(node.to.meta.get("written", "")).lower())
        case exp.Extract():
            yield "extract"
        case _ if type(node) in AGGREGATES:
            yield AGGREGATES[type(node)].lower()


_WORD = re.compile(r"\w+")


def _digits(number: str) -> str:
    return "0" + number if number.startswith(".") else number


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
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in UNIT_FIRST and len(node.expressions) == 3:
        unit = node.expressions[0]
        if isinstance(unit, exp.Literal) and unit.is_string:
            name = str(node.this)
            raise ExpressionSyntaxError.at(
                f"the unit of {name} is a word, without quotes",
                text,
                position_of(unit),
                f"{name}({unit.name}, ..., ...)",
            )
    # A CAST; with it the parser makes other nodes of some.
    if "called" in node.meta and node.args.get("format") is not None:
        raise ExpressionSyntaxError.at(
            "FORMAT is not supported here", text, _place(node, "FORMAT", text), DOCUMENTATION
        )
    consumed = _CONSUMED.get(type(node))
    others = [name for name, value in node.args.items() if value and name not in (consumed or ())]
    if isinstance(node, exp.DataType) or consumed is None or others:
        if isinstance(node, exp.DataType):
            written = str(node.meta.get("written", ""))
            if _TYPE.fullmatch(written) and not others:
                return
            hint = "CAST(... AS STRING)" if re.match("(VAR)?CHAR|TEXT", written) else DOCUMENTATION
            raise ExpressionSyntaxError.at(
                f"the type {written or node.sql()!s:.60} is not supported here", text, None, hint
            )
        word = _TYPED.get(node.key, node.key.upper())
        if consumed is not None:
            word = " ".join([word, *(name.upper().rstrip("_") for name in others)])
        raise ExpressionSyntaxError.at(f"{word} is not supported here", text, _place(node, word, text), DOCUMENTATION)
    if isinstance(node, exp.Is) and not isinstance(node.expression, exp.Boolean | exp.Null):
        raise ExpressionSyntaxError.at(
            "IS is followed by NULL, TRUE, FALSE or UNKNOWN", text, position_of(node.expression)
        )
    for name, kinds in _PARTS.get(type(node), {}).items():
        part = node.args.get(name)
        if part is not None and not isinstance(part, kinds):
            raise ExpressionSyntaxError.at(
                "unexpected token", text, position_of(part if isinstance(part, exp.Expr) else node)
            )
    if isinstance(node, exp.In) and not node.expressions:
        raise ExpressionSyntaxError.at("IN needs a list", text, position_of(node))
    number = isinstance(node, exp.Literal) and not node.is_string and not isinstance(node.parent, exp.Interval)
    if number and not _NUMBER.fullmatch(str(node.this)):
        raise ExpressionSyntaxError.at(f"{str(node.this)!r:.60} is not a number", text, position_of(node))
    if isinstance(node, exp.Bracket) and len(node.expressions) != 1:
        raise ExpressionSyntaxError.at("[ ] takes one index", text, position_of(node))
    for part in _operands(node):
        if (isinstance(part, _LOOSER.get(type(node), ())) and type(part) is not type(node)) or (
            isinstance(node, _PREDICATES) and isinstance(part, (*_PREDICATES, exp.Not, exp.And, exp.Or))
        ):
            word, inner = (_TYPED.get(n.key, n.key.upper()) for n in (node, part))
            raise ExpressionSyntaxError.at(
                f"{inner} next to {word} needs brackets",
                text,
                position_of(part),
                "they bind differently in SQL dialects",
            )


_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAME = (exp.Identifier, exp.Star)
_PARTS: dict[type[exp.Expr], dict[str, Any]] = {
    exp.Column: dict.fromkeys(("this", "table", "db", "catalog"), _NAME),
    exp.Dot: {"expression": _NAME},
    exp.Extract: {"this": exp.Var},
}
"""What the parts of a node may be: the parser also takes a number, or a text, for a name."""
_LOOSER: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = dict.fromkeys(_BITWISE, (*_BITWISE, exp.DPipe)) | {
    exp.DPipe: (*_BITWISE, exp.Add, exp.Sub, *_PREDICATES, exp.Not)
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
        while isinstance(part, exp.Paren) and "typed" not in part.meta:
            part = part.this
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
        offset = _offset(node, kind, text)
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
        return type(node)(this=holder.this, **({"expression": exp.Literal.number(offset)} if offset else {}))

    def _stage(self, stage: str, text: str) -> None:
        if stage not in self.stages:
            raise ColumnNotFoundError(
                f"unknown stage {stage!r:.100}",
                f"in: {text:.1000}\nStages: {', '.join(self.stages) or '(none)'}",
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


MAX_OFFSET = 10_000
"""How far FIRST and LAST may look; kept events are looked through one by one."""


def _offset(node: exp.Expr, kind: str, text: str) -> int:
    """Of ``LAST(a.x, 1)``, the event before the last: 1."""
    given = node.args.get("expression") if isinstance(node, exp.First | exp.Last) else None
    if given is None:
        return 0
    if not isinstance(given, exp.Literal) or given.is_string or not re.fullmatch(r"\d{1,9}", str(given.this)):
        raise ExpressionSyntaxError.at(
            f"the second argument of {kind} is a number that stands literally in the expression",
            text,
            position_of(given) or position_of(node),
            f"{kind}(stage.column, 1)",
        )
    if int(given.this) > MAX_OFFSET:
        raise ExpressionSyntaxError.at(f"the offset of {kind} can be {MAX_OFFSET:,} at most", text, position_of(given))
    return int(given.this)


class Aggregate(NamedTuple):
    """A resolved aggregate over the events of a stage."""

    function: str
    stage: str
    argument: exp.Expr | None
    """without the stage's name; None for ``COUNT(a.*)``"""
    offset: int
    """of FIRST and LAST: so many events after the first, or before the last"""


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


# ---------------------------------------------------------------------------------------------------- pure expressions


AT_ONCE = 64 * 1024 * 1024  # bytes of texts that are made at a time; of one event more is an error
MAX_RULE_GROWTH = 10 * MAX_GROWTH  # of all expressions of a pattern together
_VECTOR = 2048  # rows that DuckDB computes at a time
_PREPARED = 16  # statements that a thread keeps
_SMALL = 65_536  # rows of a batch for which they are used


class _Source:
    """The rows of a statement: they change, the statement does not."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.rows.__arrow_c_stream__(requested_schema)


class _Database:
    """An in-memory database; it sees the Arrow tables handed to it and nothing else.

    To parse a statement, to find the columns and functions in it and to plan it takes longer than to run it on a small batch,
    so statements are prepared and kept.
    """

    def __init__(self) -> None:
        import duckdb

        config = {"threads": 1, "memory_limit": "4GB"}
        self.connection = connection = duckdb.connect(":memory:", config=config)  # type: ignore[arg-type]
        connection.execute("SET temp_directory = ''")
        connection.execute("SET enable_external_access = false")
        # What its optimizer moves about can fail where Spark does not, or the other way round; there is little to gain.
        names = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
        connection.execute(f"SET disabled_optimizers = '{','.join(names)}'")
        routines.register(connection)
        connection.execute("SET lock_configuration = true")
        self.prepared: OrderedDict[Any, tuple[str, _Source]] = OrderedDict()
        self.count = 0

    def once(self, texts: Sequence[str], rows: pa.Table) -> pa.Table:
        """The values of expressions over some rows."""
        self.connection.register("events", rows)
        try:
            found: pa.Table = self.connection.sql(_query(texts, "events")).to_arrow_table()
        finally:
            self.connection.unregister("events")
        return found

    def again(self, texts: tuple[str, ...], rows: pa.Table) -> pa.Table:
        """As :meth:`once`, by a statement that is kept."""
        key = texts, tuple(zip(rows.schema.names, rows.schema.types, strict=True))
        if key not in self.prepared:
            while len(self.prepared) >= _PREPARED:
                name, _ = self.prepared.popitem(last=False)[1]
                self.connection.execute(f"DEALLOCATE {name}")
                self.connection.unregister(f"of_{name}")
            self.count += 1
            name, source = f"statement_{self.count}", _Source(rows)
            self.connection.register(f"of_{name}", source)
            try:
                self.connection.execute(f"PREPARE {name} AS {_query(texts, f'of_{name}')}")
            except BaseException:
                self.connection.unregister(f"of_{name}")
                raise
            self.prepared[key] = name, source
        self.prepared.move_to_end(key)
        name, source = self.prepared[key]
        source.rows = rows
        try:
            found: pa.Table = self.connection.sql(f"EXECUTE {name}").to_arrow_table()
        finally:
            source.rows = rows.slice(0, 0)
        return found


def _query(texts: Sequence[str], name: str) -> str:
    columns = ", ".join(f"{text} AS r{number}" for number, text in enumerate(texts))
    return f"SELECT {columns} FROM {name}"


_databases: dict[tuple[int, int], _Database] = {}
"""One per process and thread: a connection does one thing at a time. They are not kept as thread-local data, which a forked
process deletes for the threads that it does not have: DuckDB does not survive that.
"""


def _database() -> _Database:
    """That of this thread; a process that was forked begins with none."""
    process, thread = key = os.getpid(), threading.get_ident()
    found = _databases.get(key)
    if found is None:
        if not _databases:
            # Left to the interpreter's end they would be cleaned up after the modules that they need.
            atexit.register(_databases.clear)
        ended = {own for owner, own in list(_databases) if owner == process} - {
            one.ident for one in threading.enumerate()
        }
        for other in ended - {thread}:
            _databases.pop((process, other), None)
        found = _databases[key] = _Database()
    return found


TRIAL = 5.0
"""Seconds of CPU time that the expressions of a rule may take for a few made-up events. It is a net below the limits that are
known in advance, so it is generous: an expression takes some milliseconds, most of them to be planned."""


def sample(schema: pa.Schema) -> pa.Table:
    """A few made-up events: NULLs, zeros, ones, and long texts."""
    count = 8
    columns = [pa.array([_example(field.type, number) for number in range(count)], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _example(kind: pa.DataType, number: int) -> Any:
    types = pa.types
    if number == 0 or types.is_null(kind):
        return None
    if types.is_dictionary(kind):
        return _example(kind.value_type, number)
    if types.is_struct(kind):
        return {field.name: _example(field.type, number) for field in kind}
    if types.is_map(kind):
        return [(_example(kind.key_type, number), _example(kind.item_type, number))]
    if types.is_nested(kind):
        return [_example(kind.value_type, number)] * (kind.list_size if types.is_fixed_size_list(kind) else number)
    if types.is_boolean(kind):
        return number % 2 == 0
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return b"a" * number
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "".join(chr(ord("a") + at % 26) for at in range(4**number % 1021))
    if types.is_floating(kind):
        return float(number)
    if types.is_decimal(kind):
        return decimal.Decimal(number).scaleb(-kind.scale)
    return number if types.is_integer(kind) or types.is_temporal(kind) else None


_TRY = "filter such events out; try_divide(a, b) and TRY_CAST(a AS type) give NULL instead"


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
    costs: list[Cost] = field(default_factory=list)

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
        return self.add_value(self.translate(node, text), text)

    def add_value(self, value: Sql, text: str) -> int:
        """As :meth:`add`, of what is in DuckDB's words already."""
        if value.text not in self.texts:
            data_type = self._type(value, text)
            self._check_cost(value, text)
            if plain_column(value.text) is None:
                self._try_out(value, data_type, text)
            self.costs.append(value.cost)
            self.types.append(data_type)
            self.texts.append(value.text)
            self.sources.append(text)
        return self.texts.index(value.text)

    def adopt(self, other: Vectorized, number: int) -> int:
        """The number here of an expression of *other*, which is over the same schema and has tried it out."""
        text = other.texts[number]
        if text not in self.texts:
            self.texts.append(text)
            self.types.append(other.types[number])
            self.sources.append(other.sources[number])
            self.costs.append(other.costs[number])
        return self.texts.index(text)

    def alone(self, number: int) -> Vectorized:
        """One of the expressions without the others."""
        found = Vectorized(self.schema)
        found.adopt(self, number)
        return found

    def translate(self, node: exp.Expr, text: str) -> Sql:
        """A resolved expression in DuckDB's words."""
        return Translator(self.schema, self.zone, text).translate(node)

    def constant(self, value: Sql) -> pa.Scalar:
        """What a value that reads no column is; :class:`~asterism.errors.ExpressionTypeError` if it fails."""
        if isinstance(value.constant, str):
            return pa.scalar(value.constant)
        row = pa.table([pa.nulls(1, field.type) for field in self.schema], schema=self.schema)
        try:
            return self._run([value.text], [given_type(value.type, self.zone)], row, keep=False)[0][0]
        except _DuckDBError as error:
            raise ExpressionTypeError.at(str(error), value.text) from None

    def try_out(self, limit: float) -> float:
        """Compute everything once, for a few made-up events; the CPU time that it took, in seconds.

        :raises ExpressionSyntaxError: more than *limit*, so that each batch of events would take as long
        """
        rows = sample(self.schema)
        taken = 0.0
        for number, text in enumerate(self.texts):
            if plain_column(text) is not None:
                continue
            begin = time.thread_time()
            with contextlib.suppress(_DuckDBError):  # it may fail for what is made up
                self._computed([number], rows, keep=False)
            taken += time.thread_time() - begin
            if taken > limit:
                raise ExpressionSyntaxError.at(
                    f"the expressions took {taken:.1f} s of CPU time for {rows.num_rows} events (limit {TRIAL:.1f} s)",
                    self.sources[number],
                    hint="use simpler patterns and fewer functions",
                )
        return taken

    def type_of(self, node: exp.Expr, text: str) -> pa.DataType:
        """The type of an expression; :class:`~asterism.errors.ExpressionTypeError` if it has none."""
        return self._type(self.translate(node, text), text)

    def _type(self, value: Sql, text: str) -> pa.DataType:
        plain = plain_column(value.text)
        if plain is not None:
            return self.schema.field(plain).type
        if value.type == MONTHS:
            raise ExpressionTypeError.at(f"an expression cannot be of type {name_of(value.type)}", text)
        return given_type(value.type, self._label or self.zone)

    def _check_cost(self, value: Sql, text: str) -> None:
        """All expressions together have a limit too."""
        cost = sum(self.costs, value.cost)
        hint = "split it into several patterns"
        if cost.growth > MAX_RULE_GROWTH or cost.fixed > 10 * MAX_FIXED:
            raise ExpressionSyntaxError.at(
                "with the texts that this one makes all expressions make too many", text, hint=hint
            )
        if cost.program > MAX_PROGRAM:
            raise ExpressionSyntaxError.at(
                f"with this one the regular expressions are too large: {cost.program:,} characters and classes"
                f" (limit {MAX_PROGRAM:,})",
                text,
                hint=hint,
            )

    def _try_out(self, value: Sql, data_type: pa.DataType, text: str) -> None:
        """On no rows: what DuckDB does not take must not be found out by the first event."""
        try:
            self._run([value.text], [data_type], self.schema.empty_table(), keep=False)
        except _DuckDBError as error:
            if "expression depth" in str(error):
                raise ExpressionSyntaxError.at("the expression is too deeply nested", text) from None
            raise ExpressionTypeError.at(str(error), text) from None

    def evaluate(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """One column per expression, in the order in which they were added."""
        plain = {number: plain_column(text) for number, text in enumerate(self.texts)}
        computed = [number for number in plain if plain[number] is None]
        try:
            results = iter(self._computed(computed, table) if computed else [])
        except _DuckDBError as error:
            raise InvalidEventError(
                f"an expression could not be computed: {error}", self._culprit(table), _TRY
            ) from None
        return [next(results) if at is None else table.column(at) for at in plain.values()]

    def _culprit(self, table: pa.Table) -> str | None:
        """What the user wrote, of the expression that fails on these rows."""
        for number, text in enumerate(self.texts):
            if plain_column(text) is not None:
                continue
            try:
                self._computed([number], table, keep=False)
            except _DuckDBError:
                return self.sources[number]
        return None

    def _computed(self, numbers: list[int], table: pa.Table, *, keep: bool = True) -> list[pa.ChunkedArray]:
        """Expressions by their numbers: together, but for those that make too many texts of these rows to do so at once."""
        rows = min(table.num_rows, _VECTOR)
        making = [number for number in numbers if self.costs[number].room(1)]
        read = {number: [n for n in columns_of(self.texts[number]) if n < table.num_columns] for number in making}
        lengths = {n: _longest(table.column(n)) for n in set().union(*read.values())}
        longest = {number: max((lengths[n] for n in read[number]), default=0) for number in making}
        needed = {number: self.costs[number].room(longest[number]) for number in making}
        heavy = set(making) if rows * sum(needed.values()) > AT_ONCE else set()
        together = [number for number in numbers if number not in heavy]
        found = dict(zip(together, self._run_all(together, table, keep), strict=True))
        for number in heavy:
            grown = self.costs[number].bytes(longest[number])
            if grown > AT_ONCE and table.num_rows:
                raise _DuckDBError(
                    f"of a text of {longest[number]:,} bytes it can make {int(grown):,} bytes (limit {AT_ONCE:,})"
                )
            size = max(1, int(AT_ONCE / needed[number]))
            slices = [
                self._run_all([number], table.slice(begin, size), keep)[0]
                for begin in range(0, max(table.num_rows, 1), size)
            ]
            found[number] = pa.chunked_array([chunk for part in slices for chunk in part.chunks], slices[0].type)
        return [found[number] for number in numbers]

    def _run_all(self, numbers: list[int], table: pa.Table, keep: bool) -> list[pa.ChunkedArray]:
        texts, types = [self.texts[number] for number in numbers], [self.types[number] for number in numbers]
        # What is kept is written down before it is handed over: that is worth it for a small result only.
        return self._run(texts, types, table, keep=keep and table.num_rows <= _SMALL) if numbers else []

    def _run(self, texts: list[str], types: list[pa.DataType], table: pa.Table, *, keep: bool) -> list[pa.ChunkedArray]:
        import duckdb

        needed = sorted({number for text in texts for number in columns_of(text) if number < table.num_columns})
        view = pa.table([self._as_duckdb_sees(table.column(n)) for n in needed], names=[f"c{n}" for n in needed])
        if not needed:  # constants only: something must tell the number of rows
            view = pa.table({"rows": pa.nulls(table.num_rows, pa.int8())})
        database = _database()
        try:
            result = database.again(tuple(texts), view) if keep else database.once(texts, view)
        except duckdb.Error as error:
            raise _DuckDBError(_undecorated(str(error))) from None
        return [_as_spark_sees(column, kind) for column, kind in zip(result.columns, types, strict=True)]

    def _as_duckdb_sees(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Points in time as those of UTC without a zone, intervals as numbers, other types by their nearest in Spark."""
        known = spark_type(column.type, self.zone)
        if known is None:  # nothing can be done with it but to ask whether it is NULL
            return column
        return column.cast(known, safe=False).cast(stored_type(known))


def _longest(column: pa.ChunkedArray) -> int:
    """The bytes of the longest text in a column."""
    return max((_longest_in(chunk) for chunk in column.chunks), default=0)


def _longest_in(array: pa.Array) -> int:
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return _longest_in(array.dictionary)
    if types.is_struct(kind):
        return max((_longest_in(part) for part in array.flatten()), default=0)
    if types.is_map(kind):
        return max(_longest_in(array.keys), _longest_in(array.items))
    if types.is_list(kind) or types.is_large_list(kind):
        return _longest_in(array.flatten())
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _longest_in(array.cast(pa.large_binary()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return int(pc.max(pc.binary_length(array)).as_py() or 0)
    return 0


def _undecorated(message: str) -> str:
    """What happened, of what DuckDB says about it."""
    first = message.split("\n")[0] if "Error: " in message.split("\n")[0] else message
    told = re.sub(r"^[A-Z][A-Za-z ]*Error: (Python exception occurred while executing the UDF: \w+: )?", "", first)
    return told if len(told) <= 500 else told[:500] + " ..."


def columns_of(text: str) -> set[int]:
    """The numbers of the columns that an expression of :class:`Vectorized` reads."""
    return {int(number) for number in re.findall(r"\bc(\d+)\b", text)}


def check_names(tree: exp.Expr, stages: Sequence[str], text: str) -> None:
    """What can be said of the names in *text* where only the stages are known: whatever may be a column is one.

    :raises ExpressionError: a function or a stage is unknown, or cannot stand where it does
    """
    columns: dict[str, pa.DataType] = {}
    for column in tree.find_all(exp.Column):
        # Only in an aggregate must the first of several names be a stage: elsewhere it may be a struct column.
        of_stage = len(column.parts) > 1 and column.find_ancestor(*AGGREGATES) is not None
        parts = column.parts[of_stage:]
        columns |= {part.name: pa.null() for part in parts if not isinstance(part, exp.Star)}
    Scope(pa.schema(columns), tuple(stages)).resolve(tree, text)


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
    IN = 32


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


Instruction = tuple[int, int, int, int, int, int]


@dataclass(slots=True)
class Programs:
    """Programs of all conditions of a pattern, their constants, aggregates and slots; plain data."""

    scope: Scope
    vectorized: Vectorized
    ops: list[Instruction] = field(default_factory=list)
    """(operation, constant or slot; for aggregates: offset, function, stage, slot or -1, is the slot floating; for IN: -, how
    many rows its table has, holds it a NULL, is it floating, how many rows on the table begins)"""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    """constants, which STRING operations name by number"""
    slots: list[int] = field(default_factory=list)
    """slot number to number of the pure expression that fills it"""
    tables: list[tuple[Instruction, ...]] = field(default_factory=list)
    """what IN searches: constants in their order, as the operations that would put them on the stack"""
    _strings: dict[str, int] = field(default_factory=dict)

    def add(self, node: exp.Expr, text: str) -> int:
        """Compile a resolved Boolean expression; the number of its program."""
        from asterism.programs import compile_condition

        self.tables = []
        code = compile_condition(self, node, text)
        self.starts.append(len(self.ops))
        self.ends.append(len(self.ops) + len(code))
        self.texts.append(text)
        # Tables stand behind the program that searches them, and are found by their distance, wherever both are moved.
        at = [len(code)]
        for table in self.tables:
            at.append(at[-1] + len(table))
        self.ops += [(*op[:5], at[op[5]] - number) if op[0] == Op.IN else op for number, op in enumerate(code)]
        self.ops += itertools.chain.from_iterable(self.tables)
        return len(self.starts) - 1

    def string(self, value: str) -> int:
        """The number of a constant."""
        if value not in self._strings:
            self._strings[value] = len(self.strings)
            self.strings.append(value)
        return self._strings[value]

    def table(self, rows: tuple[Instruction, ...]) -> int:
        """The number of a table that the program at hand searches."""
        if rows not in self.tables:
            self.tables.append(rows)
        return self.tables.index(rows)

    def add_call(self, condition: int) -> int:
        """A program that asks per-event Python condition number *condition*; the number of the program."""
        self.starts.append(len(self.ops))
        self.ops.append((int(Op.PYTHON), condition, 0, 0, 0, 0))
        self.ends.append(len(self.ops))
        return len(self.starts) - 1

    def slot(self, value: Sql, text: str) -> int:
        """The number of the slot that *value* of each event fills."""
        number = self.vectorized.add_value(value, text)
        if number not in self.slots:
            self.slots.append(number)
        return self.slots.index(number)
