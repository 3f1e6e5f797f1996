"""Everything that Asterism raises on purpose.

::

    AsterismError
    ├── PatternError               a pattern; where it was read from JSON, ``path`` says where in it
    │   ├── MalformedPatternError      it cannot mean anything (Flink: MalformedPatternException)
    │   └── PatternFormatError         its JSON form is not well formed, or cannot say it
    ├── ExpressionError            SQL text of a condition or a measure
    │   ├── ExpressionSyntaxError      it does not parse, or uses what is not supported
    │   ├── ColumnNotFoundError        it names a column that the events do not have
    │   └── ExpressionTypeError        its types do not fit, or a condition is not Boolean
    ├── StreamDefinitionError      a keyed stream or a query that cannot be built
    ├── InvalidEventError          an event that cannot be processed (a null event time, a failing condition)
    ├── PatternProcessorError      a pattern processor that cannot be used, or found
    ├── OperatorError              a function of a user's operator failed, or asked for what is not there
    ├── SkipStrategyError          ``throw_on_miss`` and nothing to skip to
    ├── LimitExceededError         more partial matches of a key than allowed
    └── StateError                 a checkpoint that does not belong to this query

    UserWarning
    └── PatternWarning             a pattern that surely does not mean what it says
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

PACKAGE_FOLDER = str(Path(__file__).parent)
"""The code of this library: what is outside of it is a user's."""
MAX_MESSAGE = 2_000  # characters of a message or a hint, which may quote what came from outside
MAX_DETAIL = 20_000


def printable(text: str) -> str:
    """*text* with what a terminal would obey, and what cannot be seen, as escapes; line breaks stay.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."


class AsterismError(Exception):
    """What went wrong (*message*), about which thing (*detail*), and what to do (*hint*).

    Whatever it quotes, its text can be printed and logged: control characters stand in it as escapes, and only the detail has
    several lines, each of them indented. Each part is bounded in length.
    """

    def __init__(self, message: str, detail: str | None = None, hint: str | None = None) -> None:
        message = _shortened(message, MAX_MESSAGE)
        detail = None if detail is None else _shortened(detail, MAX_DETAIL)
        hint = None if hint is None else _shortened(hint, MAX_MESSAGE)
        super().__init__(message, detail, hint)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        # Names and SQL texts may come from outside: they are not to write lines of their own, or to be obeyed by a terminal.
        lines = [_in_one_line(self.message)]
        if self.detail:
            lines += ["  " + line for line in printable(self.detail).splitlines()]
        if self.hint:
            lines.append("  Hint: " + _in_one_line(self.hint))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel from Spark's Python workers to the driver.
        return type(self), (self.message, self.detail, self.hint)


def _in_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


class PatternError(AsterismError):
    """What is wrong with a pattern.

    *path* is the place in the JSON that it was read from, as a JSON pointer (RFC 6901): ``/nodes/1/condition``; the empty
    text is the whole, None is no place.
    """

    def __init__(
        self, message: str, detail: str | None = None, hint: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message, detail, hint)
        self.path = path

    def __str__(self) -> str:
        return super().__str__() + (f"\n  At: {printable(self.path)}" if self.path else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.detail, self.hint, self.path)


class MalformedPatternError(PatternError):
    """A pattern that cannot mean anything."""


class PatternFormatError(PatternError):
    """The JSON form of a pattern is not well formed, or cannot say what the pattern says."""


class ExpressionError(AsterismError):
    """SQL text of a condition or a measure."""

    @classmethod
    def at(cls, problem: str, text: str, position: int | None = None, hint: str | None = None) -> Self:
        """Name the problem and, where *position* (0-based) is known, point at the place in the text."""
        shown = _shortened(text, 200)
        detail = shown
        if position is not None and 0 <= position <= len(shown) and "\n" not in shown:
            detail += "\n" + " " * len(printable(shown[:position])) + "^"
        return cls(problem, detail, hint)


class ExpressionSyntaxError(ExpressionError):
    """The text does not parse, or uses what is not supported."""

    @classmethod
    @contextmanager
    def if_too_deep(cls, text: str) -> Iterator[None]:
        """Where Python's stack does not suffice for *text*, say so in these words."""
        try:
            yield
        except RecursionError:
            raise cls.at("the expression is too deeply nested", text) from None


class ColumnNotFoundError(ExpressionError):
    """The text names a column that the events do not have."""

    @classmethod
    def from_missing_and_available(cls, missing: str, available: Iterable[str], context: str) -> Self:
        """Build the message, with the columns whose names come close as a hint."""
        names = list(available)
        close = [name for name in names if name.lower() == missing.lower()]
        close = close or difflib.get_close_matches(missing, names, n=3)
        hint = f"did you mean {' or '.join(repr(name) for name in close)}?" if close else None
        context = _shortened(context, 1000)
        return cls(f"unknown column {missing!r:.100}", f"{context}\nColumns: {', '.join(names) or '(none)'}", hint)


class ExpressionTypeError(ExpressionError):
    """The types do not fit, or a condition is not Boolean."""


class StreamDefinitionError(AsterismError):
    """A keyed stream or a query that cannot be built."""


class InvalidEventError(AsterismError):
    """An event that cannot be processed."""


class PatternProcessorError(AsterismError):
    """A pattern processor, or a place where they are found."""


class OperatorError(AsterismError):
    """A function of a user's operator failed, or asked for what it may not have."""


class SkipStrategyError(AsterismError):
    """A skip strategy with ``throw_on_miss`` found no event to skip to."""


class LimitExceededError(AsterismError):
    """A key has more partial matches than ``max_partial_matches`` allows."""


class StateError(AsterismError):
    """A checkpoint that does not belong to this query, or state that cannot be read."""


class PatternWarning(UserWarning):
    """A pattern has a part without effect, or can never match. Flink keeps silent about it, and so its answers stay."""
