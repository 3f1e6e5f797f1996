"""Spark objects whose exceptions are replaced by the error of this library that they contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeVar

from asterism.errors import AsterismError, UserFunctionError, unwrapped
from asterism.spark.session.kafka_errors import offsets_gone, source_access
from asterism.text.printable import one_line

_ACTIONS = (
    "collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "show", "tail", "take", "toArrow", "toPandas",
)  # fmt: skip
_WAITING = ("awaitTermination", "processAllAvailable")
_PARTS, _UNWRAPS = "_asterism_parts", "_asterism_unwraps"
_IN_WORKER = "An exception was thrown from the Python worker"
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)$', re.MULTILINE)
_REASON = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt|Iteration|Warning)\b.*$", re.MULTILINE)
_MAX_PARTS = 5
_Object = TypeVar("_Object")


@contextmanager
def explained(parts: Sequence[str]) -> Iterator[None]:
    """Inside of the block, exceptions of Spark are raised as errors of this library: those that contain one, that of a
    function in Python of the session, which Spark has called for one of *parts*, and of a source whose records are gone, or that
    cannot be read.

    :param parts: the SQL that Spark computes for expressions of an operator
    """
    try:
        with unwrapped():
            yield
    except Exception as error:
        failed = failed_function(error, parts) or _of_a_source(error)
        if failed is None:
            raise
        raise failed from error


def _of_a_source(error: Exception) -> AsterismError | None:
    is_of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    return offsets_gone(str(error)) or source_access(str(error)) if is_of_spark else None


def failed_function(error: Exception, parts: Sequence[str]) -> UserFunctionError | None:
    """The error for a function of the session that has failed; None: *error* is something else."""
    text = str(error)
    if not parts or type(error).__module__.partition(".")[0] not in ("pyspark", "py4j") or _IN_WORKER not in text:
        return None
    trace = text[text.rindex(_IN_WORKER) :]
    frames, reasons = list(_FRAME.finditer(trace)), _REASON.findall(trace)
    if not frames or not reasons or any(re.search(r"[/\\]asterism[/\\]", frame["file"]) for frame in frames):
        return None
    last = frames[-1]
    place = f"{last['file']}, line {last['line']}, in {last['function']}"
    shown = [one_line(part, 300) for part in parts[:_MAX_PARTS]]
    shown += [f"and {len(parts) - _MAX_PARTS:,} more"] if len(parts) > _MAX_PARTS else []
    return UserFunctionError(
        f"a function of the session has failed: {one_line(reasons[0], 500)}",
        "\n".join([one_line(place, 500), f"Spark computes: {'; '.join(shown)}"]),
        "Spark calls a function in Python for every event, also where a guard excludes it: return None for such values, or filter"
        " the events before",
    )


def unwrapping(result: _Object, parts: Sequence[str] = ()) -> _Object:
    """A DataFrame or a query of Spark, whose methods that wait for an answer raise errors of this library. DataFrames that are
    derived from it are Spark's.

    :param parts: as for :func:`explained`

    Its class becomes a new subclass, since the class of Spark belongs to the user's other code.
    """
    kind: Any = type(result)
    if not getattr(kind, _UNWRAPS, False):
        result.__class__ = _subclass(kind)
    if parts:
        result.__dict__[_PARTS] = tuple(parts)
    return result


@cache
def _subclass(kind: Any) -> Any:
    methods = {name: _unwrapped(getattr(kind, name)) for name in (*_ACTIONS, *_WAITING) if hasattr(kind, name)}
    return type(
        kind.__name__, (kind,), {**methods, _UNWRAPS: True, "__module__": kind.__module__, "__doc__": kind.__doc__}
    )


def _unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        with explained(arguments[0].__dict__.get(_PARTS, ())):
            return method(*arguments, **options)

    return call
