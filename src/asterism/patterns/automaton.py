"""The automaton that a pattern is compiled to.

Everything that a partial match can do is in this file. A partial match sits in a *state* and looks at one event at a time;
the state's *edges* say what happens, each if its *guard* holds:

=========  ================================================================================================
action     a partial match ...
=========  ================================================================================================
TAKE       accepts the event for the stage of the state it leaves, and moves to the target
IGNORE     leaves the event alone and moves to the target (most often: stays)
PROCEED    moves on at once, and the target's edges look at the same event (an epsilon transition)
=========  ================================================================================================

All edges whose guards hold are followed, so one partial match can become several; if none holds, it ends.

=========  ================================================================================================
state      meaning
=========  ================================================================================================
START      always there, never used up: every event may begin a match
NORMAL     waits for an event
PENDING    has everything it needs, and waits for the end of its window in which an event must *not* come
STOP       an event came that must not come: the partial match ends, with all that this event made of it
FINAL      a match
=========  ================================================================================================

A guard is a Boolean combination of the pattern's conditions. Contiguity is nothing but the guard of IGNORE edges: strict
has no IGNORE edge, relaxed ignores what does not fit, non-deterministic relaxed ignores everything.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from asterism.errors import printable
from asterism.patterns.conditions import Condition
from asterism.patterns.wording import condition_text
from asterism.text.printable import duration


class Action(enum.IntEnum):
    TAKE = 0
    IGNORE = 1
    PROCEED = 2


class StateKind(enum.IntEnum):
    START = 0
    NORMAL = 1
    PENDING = 2
    STOP = 3
    FINAL = 4


@dataclass(frozen=True, slots=True)
class Guard:
    """Base of guards."""


@dataclass(frozen=True, slots=True)
class Always(Guard):
    def __str__(self) -> str:
        return "always"


@dataclass(frozen=True, slots=True)
class Test(Guard):
    """Condition number *condition* of the automaton holds."""

    condition: int

    def __str__(self) -> str:
        return f"c{self.condition}"


@dataclass(frozen=True, slots=True)
class Not(Guard):
    """*until* or *greedy*: the stage whose until condition, or whose greedy loop, demands it; otherwise neither."""

    guard: Guard
    until: str = field(default="", compare=False)
    greedy: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"not {self.guard}"


@dataclass(frozen=True, slots=True)
class Both(Guard):
    left: Guard
    right: Guard

    def __str__(self) -> str:
        return f"({self.left} and {self.right})"


@dataclass(frozen=True, slots=True)
class Either(Guard):
    left: Guard
    right: Guard

    def __str__(self) -> str:
        return f"({self.left} or {self.right})"


ALWAYS = Always()


def both(left: Guard, right: Guard) -> Guard:
    """*left* and *right*, without an ``always`` that says nothing."""
    if left == ALWAYS:
        return right
    return left if right == ALWAYS else Both(left, right)


@dataclass(slots=True)
class Edge:
    """An edge with a *gap* is closed once that much time has passed since the last accepted event."""

    action: Action
    target: State
    guard: Guard
    gap: timedelta | None = None


@dataclass(slots=True, eq=False)
class State:
    """*stage* is the stage whose events its TAKE edges accept.

    With a *gap*, a partial match may stay for less than that after its last accepted event; then it is out of time.
    """

    number: int
    name: str
    stage: str
    kind: StateKind
    gap: timedelta | None = None
    edges: list[Edge] = field(default_factory=list)

    def add(self, action: Action, target: State, guard: Guard) -> None:
        self.edges.append(Edge(action, target, guard))


@dataclass(frozen=True, slots=True)
class Nfa:
    """A compiled pattern: its states (numbered by position), conditions and stages, and the window of the whole match."""

    states: tuple[State, ...]
    start: State
    conditions: tuple[Condition, ...]
    stages: tuple[str, ...]
    window: timedelta | None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would follow the edges from state to state, deeper than Python's stack.
        states = [(state.name, state.stage, state.kind, state.gap) for state in self.states]
        edges = [[(e.action, e.target.number, e.guard, e.gap) for e in state.edges] for state in self.states]
        return _linked, (states, edges, self.start.number, self.conditions, self.stages, self.window)

    def explain(self, limit: int | None = None) -> str:
        """The automaton as text: conditions, then states with their edges, in the order in which they are tried.

        :param limit: how many states are told, from the start state on; None: all

        >>> from asterism import Pattern
        >>> from asterism.patterns.compiler import compile_pattern
        >>> print(compile_pattern(Pattern.begin("a").where("x > 1").next("b")).explain())
        c0: x > 1
        a START
          TAKE -> b if c0
        b NORMAL
          TAKE -> $end if always
        $end FINAL
        """
        lines = [f"c{number}: {condition_text(condition)}" for number, condition in enumerate(self.conditions)]
        if self.window is not None:
            lines.append(f"within {duration(self.window)}")
        told = self.states[::-1][:limit]
        for state in told:
            bound = f" gap < {duration(state.gap)}" if state.gap is not None else ""
            lines.append(f"{printable(state.name)} {state.kind.name}{bound}")
            for edge in state.edges:
                within = f" within {duration(edge.gap)}" if edge.gap is not None else ""
                lines.append(f"  {edge.action.name} -> {printable(edge.target.name)} if {edge.guard}{within}")
        if len(told) < len(self.states):
            lines.append(f"... and {len(self.states) - len(told)} more states")
        return "\n".join(lines)


def _linked(states: list[Any], edges: list[Any], start: int, *rest: Any) -> Nfa:
    """The automaton that was taken apart to be pickled."""
    made = [State(number, *fields) for number, fields in enumerate(states)]
    for state, leaving in zip(made, edges, strict=True):
        state.edges = [Edge(action, made[target], guard, gap) for action, target, guard, gap in leaving]
    return Nfa(tuple(made), made[start], *rest)
