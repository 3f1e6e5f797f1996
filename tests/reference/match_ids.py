"""What the id of a match is, event by event: the slow twin of :mod:`asterism.matching.match_ids`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

_ALL = 2**64 - 1
_Event = TypeVar("_Event")


def match_id(words: list[str | int], key: str, events: Iterable[tuple[int, int, int]]) -> str:
    """*words* are what was looked for, *key* is the text of the key, an event is (microseconds, position, stage)."""
    seed = hashlib.sha256(json.dumps(words).encode()).digest()
    found = ""
    for half in (seed[:8], seed[8:16]):
        total = 0
        for parts in events:
            value = int.from_bytes(half, "big")
            for part in parts:
                value = _mixed(value ^ (part & _ALL))
            total = (total + value) & _ALL
        found += f"{_mixed(total ^ _hash(key)):016x}"
    return found


def positions(
    events: Iterable[_Event], key_and_time: Callable[[_Event], Hashable], sees: Callable[[_Event], bool]
) -> list[int | None]:
    """Of events in order of arrival: how many before it the pattern can see that have its key and time. None:
    it cannot see this one.
    """
    count: dict[Hashable, int] = {}
    found: list[int | None] = []
    for event in events:
        alike = key_and_time(event)
        found.append(count.get(alike, 0) if sees(event) else None)
        count[alike] = count.get(alike, 0) + sees(event)
    return found


def _hash(text: str) -> int:
    value = 0xCBF29CE484222325
    for octet in text.encode():
        value = ((value ^ octet) * 0x100000001B3) & _ALL
    return _mixed(value)


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _ALL
    return value ^ (value >> 31)
