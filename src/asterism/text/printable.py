"""Strings for messages: printable, of bounded length, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from asterism.errors import printable as printable

MAX_VALUE, MAX_EVENT = 120, 2000
"""Maximum length of a value, and of an event, in a message."""
_UNITS = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
    (timedelta(seconds=1), "s"),
    (timedelta(milliseconds=1), "ms"),
    (timedelta(microseconds=1), "µs"),
)


def one_line(text: str, limit: int) -> str:
    """Return *text* in one line of at most *limit* characters, truncated with an ellipsis.

    >>> one_line("price > 10\\n  AND volume > 3", 16)
    'price > 10 AND …'
    """
    return shortened(printable(" ".join(text.split())), limit)


def shortened(text: str, limit: int) -> str:
    """
    >>> shortened("price > 10", 8), shortened("price", 8)
    ('price >…', 'price')
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quoted_name(name: str) -> str:
    """The name of a column as an identifier in SQL.

    >>> quoted_name("a `b`")
    '`a ``b```'
    """
    return "`" + name.replace("`", "``") + "`"


def event_text(event: Mapping[str, Any]) -> str:
    """An event in one line: its columns, of bounded length each and in total.

    >>> event_text({"user": "eve", "at": datetime(2026, 1, 31, 12), "note": "x" * 200, "none": None})[:55]
    "user='eve', at=2026-01-31T12:00:00, note='xxxxxxxxxxxxx"
    """
    texts = [
        f"{name}={one_line(value.isoformat() if isinstance(value, datetime) else repr(value), MAX_VALUE)}"
        for name, value in event.items()
    ]
    return one_line(", ".join(texts), MAX_EVENT)


def duration(value: timedelta) -> str:
    """
    >>> duration(timedelta(hours=1, minutes=30)), duration(timedelta(milliseconds=1500)), duration(timedelta(0))
    ('1 h 30 min', '1 s 500 ms', '0 s')
    """
    if value < timedelta(0):
        return "-" + duration(-value)
    parts = []
    for unit, name in _UNITS:
        number, value = divmod(value, unit)
        if number:
            parts.append(f"{number} {name}")
    return " ".join(parts) or "0 s"


def either(names: Sequence[str]) -> str:
    """
    >>> either(["a", "b"])
    'a or b'
    """
    return " or ".join(printable(name) for name in names)
