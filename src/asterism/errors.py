"""The exceptions that Asterism raises.

::

    AsterismError
    ├── PatternError               a pattern; if it was read from JSON, ``path`` is the position
    │   ├── MalformedPatternError      it has no meaning (Flink: MalformedPatternException)
    │   └── PatternFormatError         its JSON form is not well formed, or cannot express it
    ├── ExpressionError            SQL text of a condition, a measure or a row pattern
    │   ├── ExpressionSyntaxError      it cannot be parsed, or uses unsupported syntax
    │   ├── ColumnNotFoundError        it names a column or a variable that does not exist
    │   └── ExpressionTypeError        its types do not match, or a condition is not Boolean
    ├── StreamDefinitionError      a keyed stream or a query that cannot be built
    ├── InvalidEventError          an event that cannot be processed (a null event time, a failing condition)
    ├── PatternProcessorError      an invalid pattern processor, or a failure of discovery
    ├── OperatorError              a user function failed, or used something that is not available
    ├── SkipStrategyError          ``throw_on_miss``, and no event to skip to
    ├── LimitExceededError         more partial matches of a key than allowed
    ├── StateError                 a checkpoint that does not belong to this query
    └── SinkError                  a sink that cannot write each row once, or whose database failed

    UserWarning
    └── PatternWarning             a pattern that certainly does not mean what it says
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

PACKAGE_FOLDER = str(Path(__file__).parent)
"""The folder of this library; code outside of it is user code."""
MAX_MESSAGE = 2_000  # characters of a message or a hint, which may quote external input
MAX_DETAIL = 20_000
MAX_SHOWN = 200  # characters of a text or of a line in which a position is marked


def printable(text: str) -> str:
    """Return *text* with control characters and invisible characters as escapes; line breaks are kept.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."


class AsterismError(Exception):
    """Base of all errors: the problem (*message*), the object concerned (*detail*), and the remedy (*hint*).

    The text can always be printed and logged: control characters are escaped, and only the detail may have several lines,
    which are indented. The length of each part is bounded.
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
        # Names and SQL may be external input: they must not add log lines or control a terminal.
        lines = [_in_one_line(self.message)]
        if self.detail:
            lines += ["  " + line for line in printable(self.detail).splitlines()]
        if self.hint:
            lines.append("  Hint: " + _in_one_line(self.hint))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled from Spark's Python workers to the driver.
        return type(self), (self.message, self.detail, self.hint)


def _in_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


class PatternError(AsterismError):
    """A problem of a pattern.

    *path* is the position in the JSON that the pattern was read from, as a JSON pointer (RFC 6901): ``/nodes/1/condition``.
    The empty string is the whole document; None means that there is no position.
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
    """A pattern without a meaning."""


class PatternFormatError(PatternError):
    """The JSON form of a pattern is not well formed, or cannot express the pattern."""


class ExpressionError(AsterismError):
    """A problem of the SQL of a condition, a measure or a row pattern."""

    position: int | None = None
    """where the problem is in the text (from 0), if that is known; not kept when the error is pickled"""

    @classmethod
    def at(cls, problem: str, text: str, position: int | None = None, hint: str | None = None) -> Self:
        """Build the message and, if *position* (from 0) is known, mark it in the text. Of a text of several lines, or a long
        one, the line with the position is shown.
        """
        detail = shown = _shortened(text, MAX_SHOWN)
        if position is not None and 0 <= position <= len(text):
            if position > len(shown) or "\n" in text:
                begin = text.rfind("\n", 0, position) + 1
                line, column = text.count("\n", 0, position) + 1, position - begin
                end = text.find("\n", position)
                whole = text[begin : end if end >= 0 else len(text)]
                left = max(0, column - MAX_SHOWN // 2)
                shown = ("... " if left else "") + _shortened(whole[left:], MAX_SHOWN)
                column_shown = column - left + (4 if left else 0)
                detail = f"line {line}, column {column + 1}\n{shown}"
            else:
                column_shown = position
            detail += "\n" + " " * len(printable(shown[:column_shown])) + "^"
        error = cls(problem, detail, hint)
        error.position = position
        return error

    def moved(self, text: str, begin: int) -> Self:
        """This error of an expression that begins at *begin* of a larger text, for which *text* is shown."""
        return self.at(self.message, text, begin + (self.position or 0), self.hint)


class ExpressionSyntaxError(ExpressionError):
    """The text cannot be parsed, or uses unsupported syntax."""

    @classmethod
    @contextmanager
    def if_too_deep(cls, text: str) -> Iterator[None]:
        """Convert a RecursionError for *text* into this error."""
        try:
            yield
        except RecursionError:
            raise cls.at("the expression is nested too deeply", text) from None


class ColumnNotFoundError(ExpressionError):
    """The text refers to a column or a variable that does not exist."""

    @classmethod
    def from_missing_and_available(cls, missing: str, available: Iterable[str], context: str) -> Self:
        """Build the message, with similar column names as a hint."""
        names = list(available)
        close = [name for name in names if name.lower() == missing.lower()]
        close = close or difflib.get_close_matches(missing, names, n=3)
        hint = f"did you mean {' or '.join(repr(name) for name in close)}?" if close else None
        context = _shortened(context, 1000)
        return cls(f"unknown column {missing!r:.100}", f"{context}\nColumns: {', '.join(names) or '(none)'}", hint)


class ExpressionTypeError(ExpressionError):
    """The types do not match, or a condition is not Boolean."""


class StreamDefinitionError(AsterismError):
    """A keyed stream or a query that cannot be built."""


class InvalidEventError(AsterismError):
    """An event that cannot be processed."""


class PatternProcessorError(AsterismError):
    """An invalid pattern processor, or a failure of discovery."""


class OperatorError(AsterismError):
    """A user function failed, or used something that is not available."""


class SkipStrategyError(AsterismError):
    """A skip strategy with ``throw_on_miss`` found no event to skip to."""


class LimitExceededError(AsterismError):
    """A key has more partial matches than ``max_partial_matches`` allows."""


class StateError(AsterismError):
    """A checkpoint that does not belong to this query, or state that cannot be read."""


class SinkError(AsterismError):
    """A sink cannot write each row once, or its database failed."""


class PatternWarning(UserWarning):
    """A pattern has a part without effect, or can never match. Flink accepts such patterns, so their results are kept."""
