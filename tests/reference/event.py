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


@dataclass(frozen=True, slots=True)
class _Negation:
    condition: Condition

    def __call__(self, event: Event, accepted: Accepted) -> bool:
        return not self.condition(event, accepted)


@dataclass(frozen=True, slots=True)
class _Conjunction:
    first: Condition
    second: Condition

    def __call__(self, event: Event, accepted: Accepted) -> bool:
        return self.first(event, accepted) and self.second(event, accepted)


def negation(condition: Condition) -> Condition:
    """Hold where *condition* does not. Two negations of the same condition are equal."""
    return _Negation(condition)


def conjunction(first: Condition, second: Condition) -> Condition:
    """Hold where both do. Two conjunctions of the same conditions are equal."""
    if first is always:
        return second
    return first if second is always else _Conjunction(first, second)


def disjunction(first: Condition, second: Condition) -> Condition:
    """Hold where one does."""
    return lambda event, accepted: first(event, accepted) or second(event, accepted)
