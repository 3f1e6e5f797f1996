"""Sinks that are interrupted because their query is stopped.

Spark looks for the interruption in the text of the error, with a regular expression that recurses for each character. The Java
stack trace in a ``Py4JJavaError`` is long enough for a ``StackOverflowError``, of which the JVM prints a thousand lines. So sinks
raise an interruption without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

_NAMES = (
    "java.lang.InterruptedException", "java.io.InterruptedIOException", "java.nio.channels.ClosedByInterruptException",
    "[SPARK_JOB_CANCELLED]",
)  # fmt: skip
_MAX_TEXT = 200
_MAX_CAUSES = 10


class SinkInterruptedError(Exception):
    """What Spark takes for the interruption of a sink."""


def without_stack_traces(sink: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
    """The sink, whose interruptions have no Java stack trace."""

    def write(rows: DataFrame, batch_id: int) -> None:
        try:
            sink(rows, batch_id)
        except Exception as error:
            text = interruption_in(error)
            if text is None:
                raise
            raise SinkInterruptedError(text).with_traceback(error.__traceback__) from None

    return write


def interruption_in(error: BaseException) -> str | None:
    """The text of an error by which Spark recognizes that the thread was interrupted; None: it was not."""
    for of_java in _errors_of_java(error):
        with suppress(Exception):  # of a JVM that does not answer any more
            cause = of_java.java_exception
            for _ in range(_MAX_CAUSES):
                if cause is None:
                    break
                text = cause.toString()
                if any(name in text for name in _NAMES):
                    problem = of_java.errmsg.strip()
                    return f"py4j.protocol.Py4JJavaError: {problem:.{_MAX_TEXT}}: {text:.{_MAX_TEXT}}"
                cause = cause.getCause()
    return None


def _errors_of_java(error: BaseException | None) -> Iterator[Py4JJavaError]:
    for _ in range(_MAX_CAUSES):
        if error is None:
            return
        if isinstance(error, Py4JJavaError):
            yield error
        error = error.__cause__ or error.__context__
