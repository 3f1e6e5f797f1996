"""Finds MATCH_RECOGNIZE clauses in statements. Only tokens and parentheses are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import ExpressionError, ExpressionSyntaxError
from asterism.expressions.parsing import tokenize
from asterism.row_patterns.clause import DialectName
from asterism.row_patterns.match_recognize import MatchRecognize

MAX_STATEMENT = 1_000_000  # characters
MAX_CLAUSES = 100
CLAUSE, DYNAMIC_CLAUSE = "MATCH_RECOGNIZE", "MATCH_RECOGNIZE_DYNAMIC"

_BEFORE_A_NAME = (".", "AS", "EXISTS", "INTO", "OVERWRITE", "TABLE", "VIEW", "WITH")
"""Words before the name of a table or its alias, which can have a list of columns behind it."""


@dataclass(frozen=True, slots=True)
class FoundClause:
    """A clause from *begin* to *end* in the text; *keyword* is the index of its first token, which is *word*."""

    keyword: int
    word: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StatementTokens:
    """
    :ivar opened_by: for each token, the index of the parenthesis that is open before it, -1 if there is none
    :ivar closed_at: for each opening parenthesis, the index of the closing one
    """

    tokens: list[Token]
    opened_by: Sequence[int]
    closed_at: Mapping[int, int]
    clauses: Sequence[FoundClause]

    @classmethod
    def read(cls, source: str) -> StatementTokens:
        """:raises ExpressionSyntaxError: the text has no tokens, or a clause does not end"""
        tokens = tokenize(source, "statement", MAX_STATEMENT)
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        opened_by, closed_at, stack = [], {}, [-1]
        for at, token in enumerate(tokens):
            if token.token_type is TokenType.R_PAREN and len(stack) > 1:
                closed_at[stack.pop()] = at
            opened_by.append(stack[-1])
            if token.token_type is TokenType.L_PAREN:
                stack.append(at)
        clauses = []
        for at, token in enumerate(tokens):
            if at and word_of(tokens[at - 1]) in _BEFORE_A_NAME:
                continue
            word, following = word_of(token), tokens[at + 1].token_type if at + 1 < len(tokens) else None
            if word in (CLAUSE, DYNAMIC_CLAUSE) and following is TokenType.L_PAREN:
                if at + 1 not in closed_at:
                    problem = f"the parenthesis after {word} is not closed"
                    raise ExpressionSyntaxError.at(problem, source, tokens[at + 1].start)
                clauses.append(FoundClause(at, word, token.start, tokens[closed_at[at + 1]].end + 1))
        return cls(tokens, opened_by, closed_at, clauses)


def word_of(token: Token) -> str:
    """A token in upper case; an empty string for quoted names and strings."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING):
        return ""
    return token.text.upper()


def clauses_in(text: str, dialect: DialectName = "standard") -> list[tuple[int, MatchRecognize]]:
    """The clauses of a text, each with its place: those of a statement, or the text itself.

    :raises ExpressionError: a clause is invalid; with the position in the text

    >>> clauses_in("SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A B+))")
    [(16, MatchRecognize('A B+'))]
    >>> clauses_in("PATTERN (A B+)")
    [(0, MatchRecognize('A B+'))]
    """
    found = StatementTokens.read(text).clauses
    if not found:
        return [(0, MatchRecognize(text, dialect))]
    if len(found) > MAX_CLAUSES:
        raise ExpressionSyntaxError.at(f"more than {MAX_CLAUSES:,} clauses", text, found[MAX_CLAUSES].begin)
    clauses = []
    for one in found:
        if one.word == DYNAMIC_CLAUSE:
            raise ExpressionSyntaxError.at(f"the patterns of {DYNAMIC_CLAUSE} are in rules", text, one.begin)
        try:
            clauses.append((one.begin, MatchRecognize(text[one.begin : one.end], dialect)))
        except ExpressionError as error:
            raise error.moved(text, one.begin) from None
    return clauses
