"""Java's spellings of the public names: an AttributeError that says what to write in Python.

>>> python_name("timesOrMore")
'times_or_more'
"""

from __future__ import annotations

import difflib
import re
from abc import ABCMeta
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ELSEWHERE = {
    "afterEndOfWindow": "after_end_of_window",
    "allowedLateness": "window(..., allowed_lateness=...)",
    "apply": "aggregate, reduce or process",
    "assignTimestampsAndWatermarks": "KeyedStream(df, time=..., max_out_of_orderness=...)",
    "dynamicPatterns": "pattern_processors",
    "flatSelect": "select, which has one row for each match, or flat_map of the result",
    "getSideOutput": "run({...}), with a sink for each output",
    "inEventTime": "time= of the KeyedStream",
    "inProcessingTime": "time=None of the KeyedStream",
    "keyBy": "KeyedStream(df, key=...)",
    "noSkip": "no_skip",
    "sideOutputLateData": "run({'late': ...})",
    "timerService": "register_event_time_timer and current_watermark of the context",
    "withinTime": "within",
}
"""Names of Flink that are no spellings of a name in Python."""


def python_name(name: str) -> str:
    """A name of Java in snake_case."""
    return _WORD.sub("_", name).lower()


def suggestion(name: str, names: Iterable[str], special: str | None = None) -> str:
    """What to write instead of *name*, as the end of an error; empty if nothing is like it."""
    public = [known for known in names if not known.startswith("_")]
    spelled = python_name(name)
    for prefix in ("", "get_", "is_", "with_"):
        if special is None and spelled.startswith(prefix) and spelled.removeprefix(prefix) in public:
            special = spelled.removeprefix(prefix)
    special = special or _ELSEWHERE.get(name)
    if special is None:
        close = difflib.get_close_matches(spelled, public, n=1, cutoff=0.8)
        special = close[0] if close else None
    return "" if special is None else f": write {special}"


def _refuse(owner: type, name: str, subject: str, instance: object = None) -> NoReturn:
    special = None if name.startswith("_") else getattr(owner, "_IN_FLINK", {}).get(name)
    hint = "" if name.startswith("_") else suggestion(name, dir(owner), special)
    raise AttributeError(f"{subject} has no attribute {name!r}{hint}", name=name, obj=instance)


class PythonNames(ABCMeta):
    """Metaclass of public classes that have names of Flink in snake_case. A missing attribute of the class, or of an instance, is
    an AttributeError that suggests the name. ``_IN_FLINK`` of a class maps further names to what to write.
    """

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __init__(cls, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            if not any("__getattr__" in vars(base) for base in cls.__mro__):
                cls.__getattr__ = _missing

        def __getattr__(cls, name):
            """
            :raises AttributeError: always
            """
            _refuse(cls, name, f"type object {cls.__name__!r}", cls)


def _missing(self: object, name: str) -> Any:
    """
    :raises AttributeError: always
    """
    owner = type(self)
    if any(name in vars(base) for base in owner.__mro__):  # a property that has failed
        return object.__getattribute__(self, name)
    _refuse(owner, name, f"{owner.__name__!r} object", self)
