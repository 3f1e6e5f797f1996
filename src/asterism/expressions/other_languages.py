"""Tells what is wrong with a text that is Python, C, or the SQL of DuckDB: after the parser has refused it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from asterism.expressions.functions import FUNCTIONS

MAX_CALL = 200
"""The length of a call that is translated for a hint."""


class Foreign(NamedTuple):
    """What another language has there, and what SQL has instead."""

    problem: str
    position: int
    hint: str


def foreign_syntax(tokens: Sequence[Token]) -> Foreign | None:
    """The first part of a text that is Python or C and not SQL; None if there is none.

    >>> from asterism.expressions.parsing import tokenize
    >>> foreign_syntax(tokenize("lambda row: row > 1"))
    Foreign(problem='a lambda of Python is no SQL expression', position=0, hint='what it returns, over columns: price > 1')
    """
    words = [token.text.lower() for token in tokens]
    is_name = [token.token_type not in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER) for token in tokens]
    for at, word in enumerate(words):
        start, following = tokens[at].start, words[at + 1 : at + 4]
        before = words[at - 1] if at else ""
        touches = at + 1 < len(tokens) and tokens[at + 1].start == tokens[at].end + 1
        if word == "lambda" and is_name[at] and ":" in words[at:]:
            return Foreign("a lambda of Python is no SQL expression", start, "what it returns, over columns: price > 1")
        if word == "&&" or (word == "&" and following[:1] == ["&"] and touches):
            return Foreign("&& is no operator of SQL", start, "AND; OR instead of ||")
        if word == "**" or (word == "*" and following[:1] == ["*"] and touches):
            return Foreign("** is no operator of SQL", start, "pow(price, 2)")
        if word == "if" and is_name[at] and following[:1] != ["("] and before and "else" in words[at:]:
            hint = "if(condition, a, b), or CASE WHEN condition THEN a ELSE b END"
            return Foreign("a conditional expression of Python is no SQL expression", start, hint)
        if word == "." and before and following[1:2] == ["("] and is_name[at - 1]:
            owner, method = tokens[at - 1].text, tokens[at + 1].text
            if method == "col":
                name = words[at + 3] if at + 3 < len(words) else "price"
                return Foreign(f"{owner:.100}.col(...) is Python", tokens[at - 1].start, f"the name alone: {name:.100}")
            hint = f"a function: {method:.100}({owner:.100}, ...)"
            return Foreign(f"SQL has no methods, such as .{method:.100}(...)", start, hint)
    return None


def call_in_spark(call: exp.Anonymous) -> str | None:
    """How Spark writes the call of a function of DuckDB; None: it is no such call, or has no function here.

    >>> call_in_spark(exp.func("strftime", exp.column("ts"), exp.Literal.string("%Y-%m")))
    "DATE_FORMAT(ts, 'yyyy-MM')"
    """
    try:
        text = call.sql("duckdb")
        if len(text) > MAX_CALL:
            return None
        tree = parse_one(text, read="duckdb")
        written = tree.sql("spark")
    except (SqlglotError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return None  # the parser has errors of its own
    function = written.partition("(")[0].lower()
    is_known = isinstance(tree, exp.RegexpLike) or (function in FUNCTIONS and function != call.name.lower())
    return written if is_known and not isinstance(tree, exp.UnixToTime) else None  # epoch_ms(ts) is read as its inverse
