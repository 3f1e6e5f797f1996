"""Finds the parts of expressions that only Spark can evaluate: see :mod:`asterism.expressions.computed_columns`.

>>> # depth_of is a function of the user
>>> events = pa.schema([("path", pa.string()), ("x", pa.int64())])
>>> [part.sql for part in Expression("x > 1 AND LAST(a.x) > depth_of(path)", ("a",)).parts_for_spark(events)]
['depth_of(path)']
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    UnknownFunctionError,
    UnsupportedSyntaxError,
)
from asterism.expressions.computed_columns import PREFIX, EventPart, Names, PartFinder
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.functions import NOT_PURE, WITHOUT_PARENTHESES
from asterism.expressions.names import Scope
from asterism.expressions.parsing import not_pure, subquery, tokenize, window_function
from asterism.expressions.structure import NOT_WORDS, is_name, structure

STORED = "store the value with the events; or in a session variable, whose value when the query starts is used"
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
_NOW = ("now", "today", "tomorrow", "yesterday")


class PartForSpark(NamedTuple):
    """A part of an expression that Spark computes.

    :param sql: its text for Spark, without names of stages
    :param text: the whole expression
    :param starts: for each character of *sql* its position in *text*
    :param refusal: why it cannot be evaluated here
    :param input: if the columns are of several inputs, the one of which this part reads columns
    """

    sql: str
    text: str
    starts: tuple[int, ...]
    refusal: ExpressionError
    input: str | None = None

    @property
    def column(self) -> str:
        """The name of the computed column."""
        return PREFIX + self.sql

    def position(self, index: int | None) -> int | None:
        """The position in *text* of the character *index* of *sql*; None: that of the part."""
        index = 0 if index is None or not 0 <= index < len(self.starts) else index
        return self.starts[index] if self.starts else None

    def moved(self, text: str, begin: int) -> PartForSpark:
        """This part of an expression that begins at *begin* of a larger text."""
        starts = tuple(start + begin for start in self.starts)
        return self._replace(text=text, starts=starts, refusal=self.refusal.moved(text, begin))


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of an operator.

    :param stages: the names of stages, and of subsets of them
    :param aggregates: the calls, in lower case, that read several events. Default: those in conditions of patterns
    """

    text: str
    stages: Collection[str] = ()
    aggregates: Collection[str] = ()

    def parts_for_spark(self, schema: pa.Schema) -> list[PartForSpark]:
        """The parts that Spark must compute; empty if there are none, or if the text is no expression.

        :param schema: the columns of the events
        :raises UnsupportedSyntaxError: there is a subquery or a window function; or the value of such a part does not depend on
            the event alone
        """
        return parts_for_spark(self.text, schema, Scope(schema, tuple(self.stages)).names(self.aggregates))


def parts_for_spark(text: str, schema: pa.Schema, names: Names) -> list[PartForSpark]:
    """See :meth:`Expression.parts_for_spark`."""
    try:
        tokens = tokenize(text)
    except ExpressionSyntaxError:
        return []  # the expression itself is refused with this error
    whole = structure(tokens)
    if whole is None:
        return []
    check_queries(tokens, text)
    finder, refusals = PartFinder(tokens, text, names), _Refusals(schema)

    def refusal_of(run: EventPart) -> ExpressionError | None:
        """Of the last operand; those before it are read here or there."""
        sql, _ = finder.sql(run._replace(parts=run.parts[-1:]))
        return refusals.of(sql)

    found = []
    for run in finder.runs(whole, lambda run: refusal_of(run) is not None):
        refusal = refusal_of(run)
        assert refusal is not None
        for part in run.parts:
            check_of_event(tokens, part.begin, part.end, text, names)
        sql, starts = finder.sql(run)
        inputs = {name for part in run.parts for name in finder.inputs(part)}
        found.append(PartForSpark(sql, text, starts, refusal, next(iter(inputs), None)))
    return found


def may_be_for_spark(text: str, refusal: ExpressionSyntaxError) -> bool:
    """Whether Spark may evaluate an expression that cannot be parsed here."""
    if isinstance(refusal, UnsupportedSyntaxError | UnknownFunctionError):
        return True
    tokens = tokenize(text)
    calls = zip(tokens, tokens[2:], strict=False)
    has_path = any(token.token_type in (TokenType.COLON, TokenType.L_BRACE) for token in tokens)
    return has_path or any(
        dot.token_type is TokenType.DOT and bracket.token_type is TokenType.L_PAREN for dot, bracket in calls
    )


def check_queries(tokens: list[Token], text: str) -> None:
    for at, token in enumerate(tokens):
        word = "" if token.token_type in NOT_WORDS or is_name(tokens, at) else token.text.upper()
        if word == "SELECT":
            raise subquery(text, token.start)
        if word == "OVER" and at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.L_PAREN:
            raise window_function(text, token.start)


class _Refusals:
    """Why SQL over the columns of an event cannot be evaluated here."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema, self.scope = schema, Scope(schema)
        self.known: dict[str, ExpressionError | None] = {}

    def of(self, sql: str) -> ExpressionError | None:
        if sql not in self.known:
            self.known[sql] = self._of(sql)
        return self.known[sql]

    def _of(self, sql: str) -> ExpressionError | None:
        try:
            with ExpressionSyntaxError.if_too_deep(sql):
                Vectorized(self.schema).add(self.scope.resolve(self.scope.parse(sql), sql), sql)
        except ExpressionError as error:
            return error
        return None


def check_of_event(tokens: list[Token], begin: int, end: int, text: str, names: Names) -> None:
    """
    :raises UnsupportedSyntaxError: the part calls a function whose result does not depend on the event alone, or has a literal
        such as ``DATE 'today'``
    :raises ColumnNotFoundError: there is no column ``user``
    """
    for at in range(begin, end):
        token, following = tokens[at], tokens[at + 1 : at + 3]
        if token.token_type in NOT_WORDS or is_name(tokens, at):
            continue
        word = token.text.lower()
        is_call = bool(following) and following[0].token_type is TokenType.L_PAREN
        if word in NOT_PURE if is_call else word in WITHOUT_PARENTHESES and not names.has_column(word):
            raise _with_hint(not_pure(token.text, text, token.start), text)
        if word == "user" and not is_call and not names.has_column(word):  # Spark would return the name of its user
            raise ColumnNotFoundError.from_missing_and_available(token.text, sorted(names.columns), f"in: {text}")
        empty = is_call and len(following) > 1 and following[1].token_type is TokenType.R_PAREN
        if word == "unix_timestamp" and empty:
            raise _with_hint(not_pure("unix_timestamp()", text, token.start), text)
        if word.upper() in _TIMES and following and following[0].token_type is TokenType.STRING:
            literal = following[0].text.strip().lower()
            if any(literal.startswith(word) for word in _NOW):
                problem = f"{word.upper()} {literal!r} is not supported: it does not depend on the events"
                raise UnsupportedSyntaxError.at(problem, text, token.start, STORED)


def _with_hint(error: ExpressionError, text: str) -> ExpressionError:
    return type(error).at(error.message, text, error.position, STORED)
