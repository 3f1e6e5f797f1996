"""Errors of expressions that Spark would evaluate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asterism.errors import UnknownFunctionError, UnsupportedSyntaxError

_HINT = "in a query, Spark evaluates what reads a single event; without Spark, give its value as a column of the events"


@contextmanager
def hint_of_spark() -> Iterator[None]:
    """Add to the error of an expression that is not supported without Spark what to do."""
    try:
        yield
    except (UnknownFunctionError, UnsupportedSyntaxError) as error:
        hint = _HINT if error.hint is None else f"{error.hint}; {_HINT}"
        raise type(error)(error.message, error.detail, hint) from None
