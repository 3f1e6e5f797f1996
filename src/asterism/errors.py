"""The exceptions that Asterism raises.

::

    AsterismError
    ├── PatternError               a pattern; if it was read from JSON, ``path`` is the position
    │   ├── MalformedPatternError      it has no meaning (Flink: MalformedPatternException)
    │   │   ├── UnboundedNotStageError     it waits without an end for an event that must not come
    │   │   └── PatternTooLargeError       it has too many stages, or is nested too deeply
    │   └── PatternFormatError         its JSON form is not well formed, or cannot express it
    ├── ExpressionError            SQL text of a condition, a measure or a row pattern
    │   ├── ExpressionSyntaxError      it cannot be parsed
    │   │   ├── UnknownFunctionError       it calls a function that does not exist here
    │   │   └── UnsupportedSyntaxError     it is Spark SQL that is not supported here
    │   ├── ColumnNotFoundError        it names a column or a variable that does not exist
    │   └── ExpressionTypeError        its types do not match, or a condition is not Boolean
    ├── StreamDefinitionError      a keyed stream or a query that cannot be built
    │   ├── UnknownOutputError         an output that the query does not have
    │   ├── ColumnTypeError            a column of a type that cannot be a key, an event time or an input
    │   └── CheckpointRequiredError    a stream without a checkpoint location
    ├── InvalidEventError          an event that cannot be processed
    │   ├── NullEventTimeError         its time is NULL
    │   └── EvaluationFailedError      a condition or a measure fails on it
    ├── PatternProcessorError      an invalid rule
    │   ├── RuleSourceError            the place of the rules cannot be read or written
    │   ├── RuleNotFoundError          there is no such rule
    │   └── VersionConflictError       a version of a rule already has another definition
    ├── OperatorError              an operator used something that is not available
    │   └── UserFunctionError          a function of the user failed, or returned something unsuitable
    ├── SkipStrategyError          ``throw_on_miss``, and no event to skip to
    ├── LimitExceededError         a limit of memory or work
    │   └── TooManyPartialMatchesError     more partial matches of a key than allowed
    ├── StateError                 a checkpoint, or state in it, that cannot be read
    │   ├── CheckpointMismatchError    the checkpoint belongs to another query
    │   └── NewerStateError            a later release wrote the state
    ├── OffsetsGoneError           records that a source of a query no longer has
    ├── SourceAccessError          a source of a query that refuses access, or does not respond
    ├── SinkError                  a sink that cannot write each row once, or whose database failed
    └── MissingPackageError        a package of an extra, or of Spark, is not installed; an ImportError, too

    UserWarning
    └── PatternWarning             a pattern that certainly does not mean what it says
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

PACKAGE_FOLDER = str(Path(__file__).parent)
"""The folder of this library; code outside of it is user code."""
MAX_MESSAGE = 2_000  # characters of a message or a hint, which may quote external input
MAX_DETAIL = 20_000
STRINGS_HAVE_QUOTES = "a string has quotes"
"""The beginning of a hint."""
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

    The text begins with the code of the class, which stays the same when a message changes:

    >>> print(StateError("the checkpoint cannot be read", hint="use a copy"))
    [STATE_ERROR] the checkpoint cannot be read
      Hint: use a copy
    """

    code: ClassVar[str] = "ASTERISM_ERROR"  # docs/decisions/0069
    """The code of the error; each class in ``asterism.errors`` has its own."""

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
        lines = [f"[{self.code}] {_in_one_line(self.message)}"]
        if self.detail:
            lines += ["  " + line for line in printable(self.detail).splitlines()]
        if self.hint:
            lines.append("  Hint: " + _in_one_line(self.hint))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled from Spark's Python workers to the driver.
        return type(self), (self.message, self.detail, self.hint)


@contextmanager
def located(place: object) -> Iterator[None]:
    """Begin the message of an error of a rule with its place. Errors of reading have it already."""
    try:
        yield
    except RuleSourceError:
        raise
    except AsterismError as error:
        raise PatternProcessorError(f"{place}: {error.message}", error.detail, error.hint) from None


_IN_A_TEXT = re.compile(r"\basterism\.errors\.(\w+): \[[A-Z_]+\] (.*(?:\n  .*)*)")


def error_in(error: BaseException | str) -> AsterismError | None:
    """The error of this library that an exception of Spark contains, or its text; None: there is none.

    Code of this library that runs in a process of Spark can only fail with an exception of Spark, which has the traceback as
    text: a ``StreamingQueryException`` or a ``PythonException``. If the text has several errors, the last one counts.

    >>> error = error_in("Traceback ...\\nasterism.errors.StateError: [STATE_ERROR] it is new\\n  Hint: wait\\n\\tat org...")
    >>> type(error).__name__, error.message, error.hint
    ('StateError', 'it is new', 'wait')
    """
    if isinstance(error, AsterismError):
        return error
    classes = _classes()
    for name, text in reversed(_IN_A_TEXT.findall(str(error))):
        if name in classes:
            return _parsed(classes[name], text)
    return None


def _classes(base: type[AsterismError] | None = None) -> dict[str, type[AsterismError]]:
    """The classes of this module by name."""
    base = AsterismError if base is None else base
    classes = {base.__name__: base} if base.__module__ == __name__ else {}
    for subclass in base.__subclasses__():
        classes |= _classes(subclass)
    return classes


def _parsed(kind: type[AsterismError], text: str) -> AsterismError:
    """An error from its text without the code."""
    message, *lines = text.split("\n")
    lines = [line.removeprefix("  ") for line in lines]
    is_placed = issubclass(kind, PatternError) and bool(lines) and lines[-1].startswith("At: ")
    path = lines.pop().removeprefix("At: ") if is_placed else None
    hint = lines.pop().removeprefix("Hint: ") if lines and lines[-1].startswith("Hint: ") else None
    error = kind(message, "\n".join(lines) or None, hint)
    if path is not None and isinstance(error, PatternError):
        error.path = path
    return error


@contextmanager
def unwrapped() -> Iterator[None]:
    """Inside the block, exceptions of Spark that contain an error of this library are raised as that error.

    ``run`` and the DataFrames of results do this automatically. A DataFrame that is derived from them, and a query that
    ``writeStream`` starts, are Spark's::

        with unwrapped():
            found.matches.where("user = 'ann'").show()

    The exception of Spark is the ``__cause__`` of the error.
    """
    try:
        yield
    except AsterismError:
        raise
    except Exception as error:
        # Only exceptions of Spark contain the traceback of another process.
        known = error_in(error) if type(error).__module__.partition(".")[0] in ("pyspark", "py4j") else None
        if known is None:
            raise
        raise known from error


def _in_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


class PatternError(AsterismError):
    """A problem of a pattern.

    *path* is the position in the JSON that the pattern was read from, as a JSON pointer (RFC 6901): ``/nodes/1/condition``.
    The empty string is the whole document; None means that there is no position.
    """

    code = "PATTERN_ERROR"

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
    """A pattern has no meaning."""

    code = "MALFORMED_PATTERN"


class UnboundedNotStageError(MalformedPatternError):
    """A pattern ends with a NOT stage, and no time bounds the wait for its event."""

    code = "UNBOUNDED_NOT_STAGE"


class PatternTooLargeError(MalformedPatternError):
    """A pattern has too many stages or states, or is nested too deeply."""

    code = "PATTERN_TOO_LARGE"


class PatternFormatError(PatternError):
    """The JSON form of a pattern is not well formed, or cannot express the pattern."""

    code = "PATTERN_FORMAT"


class ExpressionError(AsterismError):
    """A problem of the SQL of a condition, a measure or a row pattern."""

    code = "EXPRESSION_ERROR"

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
    """The text cannot be parsed, or does not mean anything here."""

    code = "EXPRESSION_SYNTAX"

    @classmethod
    @contextmanager
    def if_too_deep(cls, text: str) -> Iterator[None]:
        """Convert a RecursionError for *text* into this error."""
        try:
            yield
        except RecursionError:
            raise cls.at("the expression is nested too deeply", text) from None


class UnknownFunctionError(ExpressionSyntaxError):
    """The text calls a function that does not exist or is not supported."""

    code = "UNKNOWN_FUNCTION"


class UnsupportedSyntaxError(ExpressionSyntaxError):
    """The text is SQL of Spark that Asterism does not support."""

    code = "UNSUPPORTED_SYNTAX"


class ColumnNotFoundError(ExpressionError):
    """The text refers to a column or a variable that does not exist."""

    code = "COLUMN_NOT_FOUND"

    @classmethod
    def from_missing_and_available(cls, missing: str, available: Iterable[str], context: str, quote: str = "'") -> Self:
        """Build the message, with similar column names as a hint. *quote* is that of a text."""
        names = list(available)
        close = [name for name in names if name.lower() == missing.lower()]
        close = close or difflib.get_close_matches(missing, names, n=3)
        hint = (
            f"did you mean {' or '.join(repr(name) for name in close)}?"
            if close
            else _hint_at_quotes(missing, context, quote)
        )
        context = _shortened(context, 1000)
        return cls(f"unknown column {missing!r:.100}", f"{context}\nColumns: {', '.join(names) or '(none)'}", hint)


def _hint_at_quotes(missing: str, context: str, quote: str) -> str | None:
    """A hint for a text without quotes, such as ``kind = purchase``."""
    if re.fullmatch(r"\w{1,60}", missing) is None:
        return None
    compared = re.search(rf"(?:[=<>]|\bIN\s*\([^()]*)\s*\b{missing}(?![\w.(])", context, re.IGNORECASE)
    return None if compared is None else f"{STRINGS_HAVE_QUOTES}: {quote}{missing}{quote}"


class ExpressionTypeError(ExpressionError):
    """The types do not match, or a condition is not Boolean."""

    code = "EXPRESSION_TYPE"


class StreamDefinitionError(AsterismError):
    """A keyed stream, a window or a query cannot be built."""

    code = "STREAM_DEFINITION"


class UnknownOutputError(StreamDefinitionError):
    """The query has no output of this name."""

    code = "UNKNOWN_OUTPUT"


class ColumnTypeError(StreamDefinitionError):
    """A column has a type that a key, an event time or an input cannot have."""

    code = "COLUMN_TYPE"


class CheckpointRequiredError(StreamDefinitionError):
    """A query over a stream needs a checkpoint location."""

    code = "CHECKPOINT_REQUIRED"


class InvalidEventError(AsterismError):
    """An event cannot be processed."""

    code = "INVALID_EVENT"


class NullEventTimeError(InvalidEventError):
    """The time of an event is NULL."""

    code = "NULL_EVENT_TIME"


class EvaluationFailedError(InvalidEventError):
    """A condition or a measure fails on an event."""

    code = "EVALUATION_FAILED"


class PatternProcessorError(AsterismError):
    """A rule (a pattern processor) is invalid."""

    code = "PATTERN_PROCESSOR"


class RuleSourceError(PatternProcessorError):
    """The place of the rules cannot be read or written: a file, a database, an endpoint."""

    code = "RULE_SOURCE"


class RuleNotFoundError(PatternProcessorError):
    """There is no such rule, or no such version of it."""

    code = "RULE_NOT_FOUND"


class VersionConflictError(PatternProcessorError):
    """A version of a rule already has another definition."""

    code = "VERSION_CONFLICT"


class OperatorError(AsterismError):
    """An operator used something that is not available."""

    code = "OPERATOR_ERROR"


class UserFunctionError(OperatorError):
    """A function of the user failed, or returned something unsuitable."""

    code = "USER_FUNCTION"


class SkipStrategyError(AsterismError):
    """A skip strategy with ``throw_on_miss`` found no event to skip to."""

    code = "SKIP_STRATEGY"


class LimitExceededError(AsterismError):
    """A limit of memory or work is exceeded."""

    code = "LIMIT_EXCEEDED"


class TooManyPartialMatchesError(LimitExceededError):
    """A key has more partial matches than ``max_partial_matches`` allows."""

    code = "TOO_MANY_PARTIAL_MATCHES"


class StateError(AsterismError):
    """A checkpoint, or state in it, cannot be read."""

    code = "STATE_ERROR"


class CheckpointMismatchError(StateError):
    """The checkpoint belongs to another query."""

    code = "CHECKPOINT_MISMATCH"

    remedy: str = "undo this change"
    """what can be done in the program; the hint also has what its host can do. Not kept when the error is pickled."""
    by_savepoint: bool = False
    """whether the state can continue with a changed savepoint; not kept when the error is pickled, either"""


class CheckpointInUseError(StateError):
    """Another process uses the checkpoint, or writes a savepoint to the same folder."""

    code = "CHECKPOINT_IN_USE"


class LeaseLostError(StateError):
    """Another process has taken over the checkpoint from this one, which was paused."""

    code = "LEASE_LOST"


class NewerStateError(StateError):
    """The state was written by a later release."""

    code = "NEWER_STATE"


class OffsetsGoneError(AsterismError):
    """A source no longer has the records that a query has not read yet."""

    code = "OFFSETS_GONE"


class SourceAccessError(AsterismError):
    """The brokers of a source refuse the credentials of a query, or do not respond."""

    code = "SOURCE_ACCESS"


class SinkError(AsterismError):
    """A sink cannot write each row once, or its database failed."""

    code = "SINK_ERROR"


class MissingPackageError(AsterismError, ImportError):
    """A package that this part of Asterism needs is not installed."""

    code = "MISSING_PACKAGE"


OF_SPARK = ("pyspark", "pandas", "protobuf")
"""The dependencies that only Spark needs. See docs/decisions/0188."""


@contextmanager
def explain_missing_spark(what: str) -> Iterator[None]:
    """Inside the block, the error for a package of Spark that is not installed names *what* needs it, and says what to do.

    :raises MissingPackageError: there is none
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (*OF_SPARK, "google"):  # the module of protobuf
            raise
        from importlib.metadata import requires

        named = ((re.match(r"[\w-]+", text), text) for text in requires("asterism") or ())
        packages = " ".join(f"'{text}'" for name, text in named if name and name[0] in OF_SPARK)
        raise MissingPackageError(
            f"{what} needs Spark, and its packages are not installed",
            str(error),
            f"pip install {packages}; docs/install.md says what works without them",
        ) from error


class PatternWarning(UserWarning):
    """A pattern has a part without effect, or can never match. Flink accepts such patterns, so their results are kept."""
