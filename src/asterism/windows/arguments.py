"""Checks of the arguments of windows and triggers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any as Value

from asterism.arguments import function_name, hint_of_duration
from asterism.errors import StreamDefinitionError


def check_delta(threshold: object, delta: object, where: str) -> None:
    """Refuse an invalid threshold or distance function."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or math.isnan(threshold) or threshold < 0:
        raise StreamDefinitionError(f"{where}: the threshold must be a number, 0 or more, not {threshold!r}")
    if not isinstance(delta, str) and not callable(delta):
        raise StreamDefinitionError(
            f"{where}: the delta must be an expression or a function, not {delta!r}",
            hint='use an expression such as "price", or a function of two elements that returns a number',
        )
    returned = getattr(delta, "__annotations__", {}).get("return")
    if returned not in (None, Value, int, float, "Any", "int", "float"):
        shown = returned if isinstance(returned, str) else getattr(returned, "__name__", repr(returned))
        raise StreamDefinitionError(
            f"{where}: the delta function {name_of(delta)} returns {shown}, not a number",
            "The distance between two elements is compared with the threshold.",
            "return a float",
        )


def duration(value: object, where: str, *, zero: bool = False) -> timedelta:
    """Return *value* if it is a positive timedelta; otherwise, raise StreamDefinitionError."""
    if not isinstance(value, timedelta):
        hint = hint_of_duration(value, "timedelta(seconds=10)")
        raise StreamDefinitionError(f"{where} takes a timedelta, not {value!r}", hint=hint)
    if value < timedelta(0) or (not value and not zero):
        raise StreamDefinitionError(
            f"{where}: the time must {'be 0 or more' if zero else 'be positive'}, not {code(value)}"
        )
    if value > timedelta(days=1_000_000):
        raise StreamDefinitionError(f"{where}: {value} is out of range")
    return value


def code(value: timedelta) -> str:
    """The Python code of a timedelta.

    >>> code(timedelta(minutes=90)), code(timedelta(milliseconds=1500)), code(timedelta(0))
    ('timedelta(minutes=90)', 'timedelta(milliseconds=1500)', 'timedelta(seconds=0)')
    """
    if not value:
        return "timedelta(seconds=0)"
    for unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds"):
        number, rest = divmod(value, timedelta(**{unit: 1}))
        if not rest:
            return f"timedelta({unit}={number})"
    raise AssertionError(value)


def name_of(delta: object) -> str:
    """The code of a string, or the name of a function."""
    return repr(delta) if isinstance(delta, str) else function_name(delta)
