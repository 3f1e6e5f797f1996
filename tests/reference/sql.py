"""The small SQL of the conformance cases: a recursive descent parser that yields evaluators.

Values are None, bool, int (wrapped to 64 bits), float and str. Logic is three-valued, None being the third value; a
condition holds only where its value is TRUE, and that is settled here, before anything negates it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .event import Accepted, Condition, Event, always

Value = bool | int | float | str | None
Expression = Callable[[Event, Accepted], Value]

COLUMNS = frozenset({"id", "ts", "name", "price", "volume"})

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+)
      | (?P<string>'(?:[^']|'')*')
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol><>|!=|<=|>=|[=<>+\-*(),.])
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_KEYWORDS = frozenset({"OR", "AND", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"})


class SqlError(ValueError):
    """The text is not an expression of this language, or applies an operator to the wrong type."""


Subsets = Mapping[str, Sequence[str]]
"""Names of several stages together."""
NO_SUBSETS: Subsets = {}


def parse_condition(text: str | None, subsets: Subsets = NO_SUBSETS) -> Condition:
    """Compile *text*; no text fits every event."""
    if text is None:
        return always
    expression = parse_expression(text, subsets)
    return lambda event, accepted: expression(event, accepted) is True


def parse_expression(text: str, subsets: Subsets = NO_SUBSETS) -> Expression:
    return _Parser(text, subsets).parse()


def wrap(number: int) -> int:
    """*number* as a 64 bit integer, overflowing as two's complement does."""
    return (number + 2**63) % 2**64 - 2**63


def calculate(symbol: str, left: Value, right: Value) -> Value:
    """Add, subtract or multiply; NULL if either side is."""
    if left is None or right is None:
        return None
    if isinstance(left, bool | str) or isinstance(right, bool | str):
        raise SqlError(f"{left!r} {symbol} {right!r}: arithmetic needs numbers")
    if isinstance(left, int) and isinstance(right, int):
        return wrap(int(_ARITHMETIC[symbol](left, right)))
    return _ARITHMETIC[symbol](float(left), float(right))


def compare(symbol: str, left: Value, right: Value) -> bool | None:
    """Compare two values of one type; NULL if either side is."""
    if left is None or right is None:
        return None
    if isinstance(left, str) != isinstance(right, str) or isinstance(left, bool) != isinstance(right, bool):
        raise SqlError(f"{left!r} {symbol} {right!r}: these types do not compare")
    if isinstance(left, float) or isinstance(right, float):
        # Python compares int and float exactly; here an int becomes a double first.
        left, right = float(left), float(right)
    return _COMPARISONS[symbol](left, right)


def both(left: bool | None, right: bool | None) -> bool | None:
    """Three-valued AND."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def invert(value: bool | None) -> bool | None:
    """Three-valued NOT."""
    return None if value is None else not value


def truth(value: Value) -> bool | None:
    """*value* as an operand of AND, OR, NOT."""
    if value is None or isinstance(value, bool):
        return value
    raise SqlError(f"{value!r} is not a truth value")


def aggregate(function: str, values: Sequence[Value], offset: int = 0) -> Value:
    """Apply an aggregate to the values of one column, NULLs included, in order of acceptance."""
    if function in ("FIRST", "LAST"):
        return values[offset if function == "FIRST" else -1 - offset] if offset < len(values) else None
    known = [value for value in values if value is not None]
    if function == "COUNT":
        return len(known)
    if not known:
        return None
    if function in ("MIN", "MAX"):
        better = "<" if function == "MIN" else ">"
        best = known[0]
        for value in known[1:]:
            best = value if compare(better, value, best) else best
        return best
    total: Value = 0 if isinstance(known[0], int) else 0.0
    for value in known:
        total = calculate("+", total, value)
    if function == "SUM" or not isinstance(total, int | float):
        return total
    return float(total) / len(known)


_AGGREGATES = frozenset({"FIRST", "LAST", "SUM", "COUNT", "AVG", "MIN", "MAX"})


class _Parser:
    """One method per rule of the grammar."""

    def __init__(self, text: str, subsets: Subsets) -> None:
        self._text = text
        self._subsets = subsets
        self._tokens: list[tuple[str, str]] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise self._error(f"unexpected text at {place}")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()
        self._next = 0

    def parse(self) -> Expression:
        expression = self._or()
        if self._next < len(self._tokens):
            raise self._error(f"unexpected {self._tokens[self._next][1]!r}")
        return expression

    def _error(self, reason: str) -> SqlError:
        return SqlError(f"{self._text!r}: {reason}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._next += 1
        return token

    def _accept_symbol(self, *symbols: str) -> str | None:
        kind, text = self._peek()
        if kind == "symbol" and text in symbols:
            self._next += 1
            return text
        return None

    def _accept_word(self, *words: str) -> bool:
        """Take these keywords if they come next, all of them or none."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if [("word", text.upper()) for kind, text in ahead if kind == "word"] != [("word", word) for word in words]:
            return False
        self._next += len(words)
        return True

    def _expect_symbol(self, symbol: str) -> None:
        if self._accept_symbol(symbol) is None:
            raise self._error(f"expected {symbol!r} before {self._peek()[1]!r}")

    def _or(self) -> Expression:
        left = self._and()
        while self._accept_word("OR"):
            left = _disjunction(left, self._and())
        return left

    def _and(self) -> Expression:
        left = self._not()
        while self._accept_word("AND"):
            left = _conjunction(left, self._not())
        return left

    def _not(self) -> Expression:
        if self._accept_word("NOT"):
            return _inversion(self._not())
        return self._predicate()

    def _predicate(self) -> Expression:
        left = self._sum()
        symbol = self._accept_symbol(*_COMPARISONS)
        if symbol is not None:
            return _comparison(symbol, left, self._sum())
        if self._accept_word("IS", "NOT", "NULL"):
            return lambda event, accepted: left(event, accepted) is not None
        if self._accept_word("IS", "NULL"):
            return lambda event, accepted: left(event, accepted) is None
        if self._accept_word("NOT", "IN"):
            return _inversion(self._membership(left))
        if self._accept_word("IN"):
            return self._membership(left)
        if self._accept_word("NOT", "BETWEEN"):
            return _inversion(self._range(left))
        if self._accept_word("BETWEEN"):
            return self._range(left)
        return left

    def _membership(self, left: Expression) -> Expression:
        self._expect_symbol("(")
        choices = [self._sum()]
        while self._accept_symbol(","):
            choices.append(self._sum())
        self._expect_symbol(")")

        def member(event: Event, accepted: Accepted) -> Value:
            value = left(event, accepted)
            answers = [truth(compare("=", value, choice(event, accepted))) for choice in choices]
            return True if True in answers else None if None in answers else False

        return member

    def _range(self, left: Expression) -> Expression:
        low = self._sum()
        if not self._accept_word("AND"):
            raise self._error("BETWEEN without AND")
        return _conjunction(_comparison(">=", left, low), _comparison("<=", left, self._sum()))

    def _sum(self) -> Expression:
        left = self._term()
        while symbol := self._accept_symbol("+", "-"):
            left = _calculation(symbol, left, self._term())
        return left

    def _term(self) -> Expression:
        left = self._factor()
        while symbol := self._accept_symbol("*"):
            left = _calculation(symbol, left, self._factor())
        return left

    def _factor(self) -> Expression:
        if self._accept_symbol("-"):
            # -0.0 is lost by 0 - x, hence the multiplication.
            return _calculation("*", _constant(-1), self._factor())
        if self._accept_symbol("("):
            inner = self._or()
            self._expect_symbol(")")
            return inner
        kind, text = self._take()
        if kind == "number":
            return _constant(wrap(int(text)) if text.isdigit() else float(text))
        if kind == "string":
            return _constant(text[1:-1].replace("''", "'"))
        if kind != "word":
            raise self._error(f"unexpected {text!r}")
        if text.upper() in _AGGREGATES and self._accept_symbol("("):
            return self._aggregate(text.upper())
        if text.upper() == "PREV" and self._accept_symbol("("):
            return self._previous()
        if text.upper() in _KEYWORDS:
            literals: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
            if text.upper() not in literals:
                raise self._error(f"unexpected {text!r}")
            return _constant(literals[text.upper()])
        return _column(self._known_column(text))

    def _aggregate(self, function: str) -> Expression:
        """Of ``stage.column``, ``subset.column``, or, without a stage, of all events of the match; COUNT also of ``*``."""
        stages: Sequence[str] | None = None
        (_, column) = self._take()
        if self._accept_symbol("."):
            stages, (_, column) = self._subsets.get(column, [column]), self._take()
        offset = int(self._take()[1]) if function in ("FIRST", "LAST") and self._accept_symbol(",") else 0
        self._expect_symbol(")")
        if column == "*" and function != "COUNT":
            raise self._error(f"{function} needs a column")
        read = _constant(1) if column == "*" else _column(self._known_column(column))
        return lambda _event, accepted: aggregate(
            function, [read(event, ()) for stage, event in accepted if stages is None or stage in stages], offset
        )

    def _previous(self) -> Expression:
        (_, column) = self._take()
        before = int(self._take()[1]) if self._accept_symbol(",") else 1
        self._expect_symbol(")")
        read = _column(self._known_column(column))

        def value(event: Event, accepted: Accepted) -> Value:
            found: Event | None = event
            for _ in range(before):
                found = None if found is None else found.previous
            return None if found is None else read(found, accepted)

        return value

    def _known_column(self, column: str) -> str:
        if column not in COLUMNS:
            raise self._error(f"no column {column!r}")
        return column


def _constant(value: Value) -> Expression:
    return lambda _event, _accepted: value


def _column(name: str) -> Expression:
    def value(event: Event, _accepted: Accepted) -> Value:
        found: Value = getattr(event, name)
        return found

    return value


def _calculation(symbol: str, left: Expression, right: Expression) -> Expression:
    return lambda event, accepted: calculate(symbol, left(event, accepted), right(event, accepted))


def _comparison(symbol: str, left: Expression, right: Expression) -> Expression:
    return lambda event, accepted: compare(symbol, left(event, accepted), right(event, accepted))


def _conjunction(left: Expression, right: Expression) -> Expression:
    return lambda event, accepted: both(truth(left(event, accepted)), truth(right(event, accepted)))


def _disjunction(left: Expression, right: Expression) -> Expression:
    # a OR b is NOT (NOT a AND NOT b), in three values too.
    return _inversion(_conjunction(_inversion(left), _inversion(right)))


def _inversion(operand: Expression) -> Expression:
    return lambda event, accepted: invert(truth(operand(event, accepted)))
