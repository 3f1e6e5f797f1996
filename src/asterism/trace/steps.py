"""The data of a trace: partial matches, steps and their reasons."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from asterism.columns.time import time_text
from asterism.errors import printable
from asterism.patterns.automaton import Edge, NfaState
from asterism.text.printable import one_line
from asterism.text.view import View


class TraceStoppedError(Exception):
    """The reason why a trace stops."""


class TraceLines(View, ABC):
    """A trace as text."""

    __slots__ = ()

    @abstractmethod
    def lines(self, *, limit: int | None = None, only_dropped: bool = False) -> Iterator[tuple[Any, str]]:
        """The lines of :meth:`text`, each with its kind, or None for a headline or the summary."""

    def text(self, *, limit: int | None = 200, only_dropped: bool = False) -> str:
        """The trace as text: first the numbers of events and matches and the partial match that was closest to a match, then
        the steps.

        :param limit: the maximum number of lines for steps, or of rows; further ones are counted. None: no maximum
        :param only_dropped: leave out the events that dropped no partial match and completed no match, or the rows that were
            skipped or could not be the first of a match
        """
        return "\n".join(line for _, line in self.lines(limit=limit, only_dropped=only_dropped))

    def __str__(self) -> str:
        return self.text()


class What(enum.Enum):
    """The kind of a step."""

    BEGAN = "began"
    ADVANCED = "advanced"
    WAITED = "waited"
    """The partial match did not take the event and continues to wait."""
    NARROWED = "narrowed"
    """The partial match no longer waits for some of its stages."""
    DROPPED = "dropped"
    HELD = "held"
    """The match is complete, but a partial match that began earlier could still discard it, or one that began with the same
    event could become preferred.
    """
    DISCARDED = "discarded"
    """The match was complete, but another one that began with the same event is preferred."""
    MATCHED = "matched"
    NOTHING = "nothing"
    """No partial match took the event, and none began with it."""
    LATE = "late"


class Why(enum.Enum):
    """The reason why a partial match ended or did not advance."""

    CONDITION = "condition"
    STRICT = "strict contiguity"
    GREEDY = "greedy"
    RELUCTANT = "reluctant"
    UNTIL = "until"
    FORBIDDEN = "forbidden event"
    BEFORE = "forbidden event before the match"
    NOT_FIRST = "not the first event of the key"
    NOT_LAST = "not the last event of the key"
    PREFERRED = "another match is preferred"
    GAP = "window between neighbouring events"
    WINDOW = "window"
    SKIPPED = "skipped after a match"
    END = "end of input"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Check:
    """An evaluated condition: whether it holds (None: evaluation failed), and the values that it has read."""

    condition: str
    holds: bool | None
    values: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        if self.holds is None:
            result = "cannot be computed"
        elif self.holds:
            result = "is true"
        else:
            result = "is not true" if any(value is None for _, value in self.values) else "is false"
        values = ", ".join(f"{printable(name)}={shown(value)}" for name, value in self.values)
        return f"{self.condition} {result}" + (f" ({values})" if values else "")


def shown(value: Any) -> str:
    """A value in SQL syntax, shortened to a few characters."""
    return "NULL" if value is None else one_line(repr(value) if isinstance(value, str) else time_text(value), 40)


Taken = tuple[tuple[str, tuple[int, ...]], ...]
"""The stages, each with the numbers of the events that it took."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a trace.

    :ivar event: the number of the event, from 1 in arrival order; None: time passed, or the input ended
    :ivar time: the time of the step, as in the time column; None: at the end of the input, or in processing time
    :ivar partial: the number of the partial match; None: the step concerns the event only
    :ivar parent: the number of the partial match that advanced
    :ivar took: the events of the partial match after the step
    :ivar waits_for: the stages that the partial match waits for
    :ivar reason: the reason as text; of a step that took the event, why further alternatives or a loop did not take it
    :ivar checks: the conditions that led to the step
    :ivar others: further partial matches that wait for the same reason; *more* is how many others are not listed
    """

    what: What
    event: int | None
    time: Any
    partial: int | None = None
    parent: int | None = None
    took: Taken = ()
    waits_for: tuple[str, ...] = ()
    why: Why | None = None
    reason: str = ""
    checks: tuple[Check, ...] = ()
    others: tuple[int, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class TraceMatch:
    """A match, or a timed-out partial match: its time, and the events that each stage took."""

    time: Any
    took: Taken


NO_EVENT = 2**62
"""The first event of the empty partial match, in processing order."""


class Partial:
    """A partial match, stored as its last event and the partial match without that event (*parent*).

    :ivar number: numbered from 1 in order of creation; 0: no event was taken yet
    :ivar row: the row of the last event
    :ivar order: the position of the last event in processing order
    :ivar origin: the partial match that took the first event
    """

    __slots__ = ("complete", "number", "order", "origin", "parent", "row", "stage")

    def __init__(self, number: int, parent: Partial | None, row: int, stage: str, order: int) -> None:
        self.number, self.parent, self.row, self.stage, self.order = number, parent, row, stage, order
        self.origin: Partial = parent.origin if parent else self
        self.complete = False

    @classmethod
    def none(cls) -> Partial:
        """The empty partial match of the start state. It sorts last by first event."""
        return cls(0, None, -1, "", NO_EVENT)

    def __bool__(self) -> bool:
        return self.parent is not None

    def __lt__(self, other: Partial) -> bool:
        return self.number < other.number

    def path(self) -> list[Partial]:
        """This partial match and its ancestors, from the first event on."""
        partials, at = [], self
        while at.parent is not None:
            partials.append(at)
            at = at.parent
        return partials[::-1]

    def rows(self, *stages: str) -> list[int]:
        """The events that *stages* took, in order."""
        return [partial.row for partial in self.path() if partial.stage in stages]


class Run(NamedTuple):
    """A partial match in a state. A partial match that waits for several stages has several runs. *time* is when it was
    completed, and *why* what completed it: CONDITION (an event), WINDOW, GAP or END.
    """

    partial: Partial
    state: NfaState
    time: int = 0
    why: Why = Why.CONDITION

    @property
    def first(self) -> int:
        """The position of the first event, by which runs are ordered."""
        return self.partial.origin.order


class Expired(NamedTuple):
    """An expired run: the bound that it exceeded, the event from which the bound counts, and the deadline."""

    run: Run
    why: Why
    row: int
    deadline: int


@dataclass(slots=True)
class StateEvaluation:
    """The effect of an event on a state and the states that its PROCEED edges lead to. Each edge is paired with its state."""

    state: NfaState
    followed: list[tuple[NfaState, Edge]] = field(default_factory=list)
    refused: list[tuple[NfaState, Edge]] = field(default_factory=list)
    too_late: list[tuple[NfaState, Edge]] = field(default_factory=list)
    stops: list[Edge] = field(default_factory=list)
    """PROCEED edges to a STOP state"""
    is_final: bool = False
    """Whether PROCEED edges lead to the end of the pattern."""
