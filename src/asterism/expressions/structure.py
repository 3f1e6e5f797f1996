"""The structure of an SQL expression as nested runs of tokens, also of one that only Spark can parse.

:func:`structure` divides the tokens of an expression by the precedence of operators, parentheses, calls and CASE. It does not
interpret functions, types or lambdas, so the text of every run is a part that Spark can evaluate on its own.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

MAX_DEPTH = 50  # of brackets, as in ``parsing``; the scanner takes some frames per level


class FragmentKind(enum.Enum):
    """What a part of an expression is."""

    OR = "or"
    AND = "and"
    OPERATION = "operation"
    """NOT, a comparison, or arithmetic"""
    OPERAND = "operand"
    """a name, a literal, a group, a call, CASE, with its suffixes: ``f(x).y[1] :: INT``"""
    WORDS = "words"
    """what is no expression itself, but contains some: ``x AS INT``, ``YEAR FROM x``, ``v -> v > 1``"""


@dataclass(frozen=True, slots=True)
class FragmentCall:
    """A call, or FILTER after it."""

    name: str
    """in lower case"""
    position: int
    """the number of the token of its name"""
    arguments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A run of tokens.

    :param begin, end: the numbers of its first token and of the one after its last
    :param parts: the parts that it consists of, without those in calls
    """

    kind: FragmentKind
    begin: int
    end: int
    parts: tuple[Fragment, ...] = ()
    calls: tuple[FragmentCall, ...] = ()

    @property
    def is_expression(self) -> bool:
        """Whether it has a value of its own."""
        return self.kind is not FragmentKind.WORDS


def structure(tokens: Sequence[Token]) -> Fragment | None:
    """The structure of an expression, without the ``AS name`` that may follow it. None: there is no expression, its brackets do
    not match, or they are nested too deeply.

    >>> from asterism.expressions.parsing import tokenize
    >>> part = structure(tokenize("a AND f(x + 1) > 2 AND b"))
    >>> part.kind.value, [(operand.begin, operand.end) for operand in part.parts]
    ('and', [(0, 1), (2, 10), (11, 12)])
    """
    matching = _matching(tokens)
    if matching is None:
        return None
    scanner = _Scanner(tokens, matching)
    end = len(tokens)
    for at in scanner.top(0, end):
        if scanner.word(at) == "AS":
            end = at
            break
    return scanner.expression(0, end) if end else None


def is_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether a token is a name after a dot or a colon: a field, also if it is spelled like a keyword."""
    return at > 0 and tokens[at - 1].token_type in (TokenType.DOT, TokenType.COLON)


_OPENING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
_CLOSING = frozenset(_OPENING.values())
_COMPARISONS = frozenset(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP",
    "BETWEEN", "ESCAPE", "NOT", "!", "AND", "DISTINCT", "FROM"))  # fmt: skip
"""Words and signs between the operands of comparisons. An AND here is that of BETWEEN, FROM that of IS DISTINCT FROM."""
_SUMS = frozenset(("+", "-", "||", "&", "|", "^", "<<", ">>", ">>>"))
_PRODUCTS = frozenset(("*", "/", "%", "DIV"))
_SIGNS = frozenset(("+", "-", "~"))
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING)
QUOTED = frozenset((*_STRINGS, TokenType.IDENTIFIER))
LITERALS = frozenset((*_STRINGS, TokenType.NUMBER))
NOT_WORDS = LITERALS | QUOTED
"""What is no keyword, however it is spelled."""


def _matching(tokens: Sequence[Token]) -> dict[int, int] | None:
    """The closing token of each opening one; of CASE, its END."""
    matching: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        kind = token.token_type
        if is_name(tokens, at):
            continue
        if kind in _OPENING or kind is TokenType.CASE:
            opened.append(at)
            if len(opened) > MAX_DEPTH:
                return None
        elif kind is TokenType.END and opened and tokens[opened[-1]].token_type is TokenType.CASE:
            matching[opened.pop()] = at
        elif kind in _CLOSING:
            while opened and tokens[opened[-1]].token_type is TokenType.CASE:
                opened.pop()  # a column with that name
            if not opened or _OPENING[tokens[opened[-1]].token_type] is not kind:
                return None
            matching[opened.pop()] = at
    if any(tokens[at].token_type is not TokenType.CASE for at in opened):
        return None
    return matching


class _Scanner:
    def __init__(self, tokens: Sequence[Token], matching: dict[int, int]) -> None:
        self.tokens, self.matching = tokens, matching

    def word(self, at: int) -> str:
        """A keyword or sign, in upper case; empty for names after a dot and what is quoted."""
        token = self.tokens[at]
        if token.token_type in QUOTED or is_name(self.tokens, at):
            return ""
        return token.text.upper()

    def top(self, begin: int, end: int) -> list[int]:
        """The tokens that are in no bracket and no CASE, with the opening and the closing ones."""
        places, at = [], begin
        while at < end:
            places.append(at)
            if at in self.matching:
                at = self.matching[at]
                places.append(at)
            at += 1
        return places

    # ------------------------------------------------------------------ by precedence

    def expression(self, begin: int, end: int) -> Fragment:
        cuts = [at for at in self.top(begin, end) if self.word(at) == "OR"]
        if cuts:
            return Fragment(FragmentKind.OR, begin, end, self._divided(begin, end, cuts, self._conjunction))
        return self._conjunction(begin, end)

    def _conjunction(self, begin: int, end: int) -> Fragment:
        cuts, between = [], 0
        for at in self.top(begin, end):
            word = self.word(at)
            if word == "BETWEEN":
                between += 1
            elif word == "AND":
                if between:
                    between -= 1
                else:
                    cuts.append(at)
        if cuts:
            return Fragment(FragmentKind.AND, begin, end, self._divided(begin, end, cuts, self._negation))
        return self._negation(begin, end)

    def _negation(self, begin: int, end: int) -> Fragment:
        operand = begin
        while operand < end and self.word(operand) in ("NOT", "!"):
            operand += 1
        part = self._comparison(operand, end)
        return part if operand == begin else Fragment(FragmentKind.OPERATION, begin, end, (part,))

    def _comparison(self, begin: int, end: int) -> Fragment:
        cuts = [at for at in self.top(begin, end) if self.word(at) in _COMPARISONS]
        if not cuts:
            return self._sum(begin, end)
        parts: list[Fragment] = []
        for first, last in zip([begin - 1, *cuts], [*cuts, end], strict=True):
            if first + 1 >= last:
                continue
            before = self.word(first) if first >= begin else ""
            if before == "IS":  # NULL, TRUE, ...
                continue
            operand = self._sum(first + 1, last)
            is_list = before == "IN" or self.word(first + 1) in ("ANY", "ALL", "SOME")
            if is_list:
                items = (*operand.parts, *_arguments(operand))
                operand = Fragment(FragmentKind.WORDS, operand.begin, operand.end, items)
            parts.append(operand)
        return Fragment(FragmentKind.OPERATION, begin, end, tuple(parts))

    def _sum(self, begin: int, end: int) -> Fragment:
        cuts = [at for at in self._binary(begin, end) if self.word(at) in _SUMS]
        if cuts:
            return Fragment(FragmentKind.OPERATION, begin, end, self._divided(begin, end, cuts, self._product))
        return self._product(begin, end)

    def _product(self, begin: int, end: int) -> Fragment:
        cuts = [at for at in self._binary(begin, end) if self.word(at) in _PRODUCTS]
        if cuts:
            return Fragment(FragmentKind.OPERATION, begin, end, self._divided(begin, end, cuts, self._signed))
        return self._signed(begin, end)

    def _signed(self, begin: int, end: int) -> Fragment:
        operand = begin
        while operand < end - 1 and self.word(operand) in _SIGNS:
            operand += 1
        part = self._operand(operand, end)
        return part if operand == begin else Fragment(FragmentKind.OPERATION, begin, end, (part,))

    def _binary(self, begin: int, end: int) -> list[int]:
        """The tokens that may be operators between two operands."""
        operators = _SUMS | _PRODUCTS
        return [
            at for at in self.top(begin, end) if begin < at < end - 1 and self.word(at - 1) not in operators | _SIGNS
        ]

    def _divided(self, begin: int, end: int, cuts: Sequence[int], part: Any) -> tuple[Fragment, ...]:
        bounds = zip([begin - 1, *cuts], [*cuts, end], strict=True)
        return tuple(part(first + 1, last) for first, last in bounds)

    # ------------------------------------------------------------------ operands

    def _operand(self, begin: int, end: int) -> Fragment:
        parts: list[Fragment] = []
        calls: list[FragmentCall] = []
        at = begin
        while at < end:
            close = self.matching.get(at)
            if close is None or close >= end:
                at += 1
                continue
            if self.tokens[at].token_type is TokenType.CASE:
                parts += self._branches(at + 1, close)
            else:
                items = self._items(at + 1, close)
                name = at - 1
                if self.tokens[at].token_type is TokenType.L_PAREN and name >= begin and self._may_be_called(name):
                    calls.append(FragmentCall(self.tokens[name].text.lower(), name, items))
                else:
                    parts += items
            at = close + 1
        return Fragment(FragmentKind.OPERAND, begin, end, tuple(parts), tuple(calls))

    def _may_be_called(self, at: int) -> bool:
        token = self.tokens[at]
        return token.token_type not in LITERALS and (
            token.token_type is TokenType.IDENTIFIER or token.text[:1].isidentifier()
        )

    def _branches(self, begin: int, end: int) -> list[Fragment]:
        """The expressions of a CASE."""
        cuts = [at for at in self.top(begin, end) if self.word(at) in ("WHEN", "THEN", "ELSE")]
        bounds = zip([begin - 1, *cuts], [*cuts, end], strict=True)
        return [self.expression(first + 1, last) for first, last in bounds if first + 1 < last]

    def _items(self, begin: int, end: int) -> tuple[Fragment, ...]:
        """What is in a pair of brackets, separated by commas."""
        cuts = [at for at in self.top(begin, end) if self.tokens[at].token_type is TokenType.COMMA]
        bounds = zip([begin - 1, *cuts], [*cuts, end], strict=True)
        return tuple(self._item(first + 1, last) for first, last in bounds if first + 1 < last)

    def _item(self, begin: int, end: int) -> Fragment:
        words = {at: self.word(at) for at in self.top(begin, end)}
        if any(self.tokens[at].token_type is TokenType.ARROW for at in words) or words[begin] in _QUERIES:
            return Fragment(FragmentKind.WORDS, begin, end)
        if words[begin] in ("DISTINCT", "WHERE") and end - begin > 1:
            return Fragment(FragmentKind.WORDS, begin, end, (self._item(begin + 1, end),))
        for at, word in words.items():
            if self.tokens[at].token_type is TokenType.ORDER_BY and at > begin:
                last = end
                while last > at + 1 and self.word(last - 1) in ("ASC", "DESC", "NULLS", "FIRST", "LAST"):
                    last -= 1
                return Fragment(FragmentKind.WORDS, begin, end, (self._item(begin, at), self.expression(at + 1, last)))
            if word == "AS" or (word in ("IGNORE", "RESPECT") and words.get(at + 1) == "NULLS"):
                return Fragment(FragmentKind.WORDS, begin, end, (self.expression(begin, at),) if at > begin else ())
            if word == "=>":
                return Fragment(FragmentKind.WORDS, begin, end, (self.expression(at + 1, end),))
            if word == "FROM" and words.get(at - 1) != "DISTINCT":
                last = next((place for place, word in words.items() if word == "FOR" and place > at), end)
                return Fragment(FragmentKind.WORDS, begin, end, (self.expression(at + 1, last),))
        return self.expression(begin, end)


_QUERIES = frozenset(("SELECT", "WITH", "TABLE", "VALUES", "FROM"))


def _arguments(part: Fragment) -> tuple[Fragment, ...]:
    return tuple(argument for call in part.calls for argument in call.arguments)
