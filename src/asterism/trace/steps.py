"""What a trace is made of: partial matches, what happened to them, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from asterism.errors import printable
from asterism.patterns.automaton import Action, Edge, NfaState
from asterism.text.printable import one_line


class What(enum.Enum):
    """What happened."""

    BEGAN = "began"
    ADVANCED = "advanced"
    WAITED = "waited"
    """The event was not for it, and it waits on."""
    NARROWED = "narrowed"
    """It no longer waits for all that it waited for."""
    DROPPED = "dropped"
    HELD = "held"
    """Complete, but a partial match that began earlier could still discard it."""
    MATCHED = "matched"
    NOTHING = "nothing"
    """The event is of no use to any partial match, and begins none."""
    LATE = "late"


class Why(enum.Enum):
    """What ended, or held up, a partial match."""

    CONDITION = "condition"
    STRICT = "strict contiguity"
    GREEDY = "greedy"
    UNTIL = "until"
    FORBIDDEN = "forbidden event"
    GAP = "window between neighbouring events"
    WINDOW = "window"
    SKIPPED = "skipped after a match"
    END = "end of input"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that was evaluated: does it hold (None: it cannot be computed), and the values that it has read."""

    condition: str
    holds: bool | None
    values: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        if self.holds is None:
            said = "cannot be computed"
        elif self.holds:
            said = "is true"
        else:
            said = "is not true" if any(value is None for _, value in self.values) else "is false"
        values = ", ".join(f"{printable(name)}={shown(value)}" for name, value in self.values)
        return f"{self.condition} {said}" + (f" ({values})" if values else "")


def shown(value: Any) -> str:
    """A value as SQL would write it, in a few characters."""
    return "NULL" if value is None else one_line(repr(value) if isinstance(value, str) else str(value), 40)


Taken = tuple[tuple[str, tuple[int, ...]], ...]
"""Stages, each with the numbers of the events that it took."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that happened.

    :ivar event: number of the event, from 1 in order of arrival; None: time passed, or the input ended
    :ivar time: when, as in the time column; None: at the end of the input, or in processing time
    :ivar partial: number of the partial match; None: it is about the event only
    :ivar parent: the partial match that advanced
    :ivar took: the events of the partial match after the step
    :ivar waits_for: the stages that it waits for
    :ivar reason: why, in words
    :ivar checks: the conditions that decided
    :ivar others: further partial matches that wait on for the same reason; *more* of them are not named
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


class Partial:
    """A partial match: the events taken so far, as the partial match before the last event (*parent*) and that event.

    :ivar number: from 1 in order of creation; 0: nothing is taken yet
    :ivar row: the last event, as a row of the events
    :ivar order: its place in the order in which events are processed
    :ivar origin: the partial match that took the first event
    """

    __slots__ = ("complete", "number", "order", "origin", "parent", "row", "stage")

    def __init__(self, number: int, parent: Partial | None, row: int, stage: str, order: int) -> None:
        self.number, self.parent, self.row, self.stage, self.order = number, parent, row, stage, order
        self.origin: Partial = parent.origin if parent else self
        self.complete = False

    @classmethod
    def none(cls) -> Partial:
        """That of the start state. In the order of first events it is the last."""
        return cls(0, None, -1, "", 2**62)

    def __bool__(self) -> bool:
        return self.parent is not None

    def __lt__(self, other: Partial) -> bool:
        return self.number < other.number

    def path(self) -> list[Partial]:
        """It and those before, from the first event on."""
        found, at = [], self
        while at.parent is not None:
            found.append(at)
            at = at.parent
        return found[::-1]

    def rows(self, stage: str) -> list[int]:
        """The events that *stage* took, in order."""
        return [one.row for one in self.path() if one.stage == stage]


class Run(NamedTuple):
    """A partial match in a state: one that waits for several stages is in several. *time* is when it was complete, if it is."""

    partial: Partial
    state: NfaState
    time: int = 0

    @property
    def first(self) -> int:
        """The place of the first event; runs are ordered by it."""
        return self.partial.origin.order


class Expired(NamedTuple):
    """The end of a run's time: by which bound, the event from which it counts, and when."""

    run: Run
    why: Why
    row: int
    deadline: int


@dataclass(slots=True)
class Look:
    """What the edges of a state, and of the states that PROCEED edges lead to, do with an event; edges with their states."""

    state: NfaState
    followed: list[tuple[NfaState, Edge]] = field(default_factory=list)
    refused: list[tuple[NfaState, Edge]] = field(default_factory=list)
    too_late: list[tuple[NfaState, Edge]] = field(default_factory=list)
    stops: list[Edge] = field(default_factory=list)
    """PROCEED edges to a STOP state"""
    is_final: bool = False
    """Does PROCEED lead to the end of the pattern?"""


def proceeding(state: NfaState) -> list[NfaState]:
    """The state, and all that PROCEED edges lead to from it."""
    reached, todo = {state}, [state]
    for at in todo:
        found = {edge.target: None for edge in at.edges if edge.action is Action.PROCEED}
        todo += [target for target in found if target not in reached]
        reached |= found.keys()
    return todo
