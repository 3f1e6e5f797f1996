"""Spark objects whose exceptions are replaced by the error of this library that they contain."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from asterism.errors import unwrapped

_ACTIONS = (
    "collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "show", "tail", "take", "toArrow", "toPandas",
)  # fmt: skip
_WAITING = ("awaitTermination", "processAllAvailable")
_Object = TypeVar("_Object")


def unwrapping(result: _Object) -> _Object:
    """A DataFrame or a query of Spark, whose methods that wait for an answer raise errors of this library. DataFrames that are
    derived from it are Spark's.

    Its class becomes a new subclass, since the class of Spark belongs to the user's other code.
    """
    kind: Any = type(result)
    result.__class__ = _subclass(kind)
    return result


@cache
def _subclass(kind: Any) -> Any:
    methods = {name: _unwrapped(getattr(kind, name)) for name in (*_ACTIONS, *_WAITING) if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        with unwrapped():
            return method(*arguments, **options)

    return call
