"""Errors of expressions that Spark would evaluate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asterism.errors import UnknownFunctionError, UnsupportedSyntaxError
from asterism.expressions.routines.user_functions import Purpose, UserFunctions, listed


@contextmanager
def without_spark(functions: UserFunctions) -> Iterator[None]:
    """Inside of the block, expressions can call *functions*. The error of one that only Spark can evaluate says what to do."""
    try:
        with listed(functions, Purpose.WITHOUT_SPARK):
            yield
    except UnknownFunctionError:
        raise  # it has the hint
    except UnsupportedSyntaxError as error:
        hint = str(Purpose.WITHOUT_SPARK)
        hint = hint if error.hint is None else f"{error.hint}; {hint}"
        raise type(error)(error.message, error.detail, hint) from None
