"""The event of the conformance cases, and what a condition may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event; equal events are different events, so nothing here compares events by value."""

    id: int
    ts: int
    name: str
    price: float | None = None
    volume: int | None = None
    previous: Event | None = None
    """the event of the key before it"""

    def __getitem__(self, column: str) -> Any:
        return getattr(self, column)


# The events of a partial match in the order of acceptance, each with the pattern that took it.
Accepted = tuple[tuple[str, Event], ...]

# Whether an event fits, given the events its partial match has accepted before it.
Condition = Callable[[Event, Accepted], bool]


def always(_event: Event, _accepted: Accepted) -> bool:
    """Hold for every event."""
    return True


def negation(condition: Condition) -> Condition:
    """Hold where *condition* does not."""
    return lambda event, accepted: not condition(event, accepted)


def conjunction(first: Condition, second: Condition) -> Condition:
    """Hold where both do."""
    return lambda event, accepted: first(event, accepted) and second(event, accepted)


def disjunction(first: Condition, second: Condition) -> Condition:
    """Hold where one does."""
    return lambda event, accepted: first(event, accepted) or second(event, accepted)
