"""Conditions in Python: what a function of an event and a context may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .event import Accepted, Condition, Event

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Context:
    """The partial match as it was before the event under test, and the time."""

    accepted: Accepted
    timestamp: datetime
    current_processing_time: datetime

    def events_for_pattern(self, name: str) -> list[Event]:
        """The events that a pattern has accepted, in order; none if there is no such pattern."""
        return [event for pattern, event in self.accepted if pattern == name]


def asking(function: Callable[[Any, Any], bool], now: Callable[[], datetime] = lambda: EPOCH) -> Condition:
    """The condition that calls *function*; *clock* returns the processing time."""

    def condition(event: Event, accepted: Accepted) -> bool:
        context = Context(accepted, EPOCH + timedelta(milliseconds=event.ts), now())
        return bool(function(event, context))

    return condition
