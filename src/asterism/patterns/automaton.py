"""The automaton that a pattern is compiled to.

This file defines everything that a partial match can do. A partial match is in a *state* and processes one event at a time.
Each *edge* of the state whose *guard* is satisfied has an action:

=========  ================================================================================================
action     a partial match ...
=========  ================================================================================================
TAKE       accepts the event for the stage of the state it leaves, and moves to the target
IGNORE     skips the event and moves to the target (usually the same state)
PROCEED    moves to the target, whose edges process the same event (an epsilon transition)
=========  ================================================================================================

All edges with a satisfied guard are followed, so one partial match can become several; without such an edge, it ends.

=========  ================================================================================================
state      meaning
=========  ================================================================================================
START      always active: every event may start a match
NORMAL     waits for an event
PENDING    complete except for an absence: waits for the end of the window in which an event must *not* occur
STOP       a forbidden event occurred: the partial match ends, with all partial matches that this event made of it
FINAL      a match
LAST       a match if no further event of the key follows
=========  ================================================================================================

A guard is a Boolean combination of the pattern's conditions. Contiguity is defined by the guards of IGNORE edges: strict
has no IGNORE edge, relaxed ignores events that do not match, non-deterministic relaxed ignores all events.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
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


class NfaStateKind(enum.IntEnum):
    START = 0
    NORMAL = 1
    PENDING = 2
    STOP = 3
    FINAL = 4
    LAST = 5


@dataclass(frozen=True, slots=True)
class Guard:
    """Base of guards."""


@dataclass(frozen=True, slots=True)
class Always(Guard):
    def __str__(self) -> str:
        return "always"


@dataclass(frozen=True, slots=True)
class Test(Guard):
    """The condition with the index *condition* of the automaton is satisfied."""

    condition: int

    def __str__(self) -> str:
        return f"c{self.condition}"


@dataclass(frozen=True, slots=True)
class Not(Guard):
    """*until*, *greedy* or *reluctant*: the stage whose until condition or loop demands it; at most one is set."""

    guard: Guard
    until: str = field(default="", compare=False)
    greedy: str = field(default="", compare=False)
    reluctant: str = field(default="", compare=False)

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
    """The conjunction of *left* and *right*, without redundant ``always``."""
    if left == ALWAYS:
        return right
    return left if right == ALWAYS else Both(left, right)


def conditions_in(guard: Guard) -> Iterator[int]:
    """The numbers of the conditions in a guard, from left to right."""
    match guard:
        case Test(condition):
            yield condition
        case Not(inner):
            yield from conditions_in(inner)
        case Both(left, right) | Either(left, right):
            yield from (*conditions_in(left), *conditions_in(right))


@dataclass(slots=True)
class Edge:
    """An edge with a *gap* cannot be used once that much time has passed since the last accepted event."""

    action: Action
    target: NfaState
    guard: Guard
    gap: timedelta | None = None


@dataclass(slots=True, eq=False)
class NfaState:
    """TAKE edges accept events of *stage*. With a *gap*, a partial match times out so long after its last accepted event."""

    number: int
    name: str
    stage: str
    kind: NfaStateKind
    gap: timedelta | None = None
    edges: list[Edge] = field(default_factory=list)

    def add(self, action: Action, target: NfaState, guard: Guard) -> None:
        self.edges.append(Edge(action, target, guard))


@dataclass(frozen=True, slots=True)
class Absence:
    """No event may satisfy *guard* before a match; with a *window*, in this time before its first event."""

    stage: str
    guard: Guard
    window: timedelta | None


@dataclass(frozen=True, slots=True)
class Nfa:
    """A compiled pattern: its states (identified by index), conditions and stages, and the window of the whole match.

    :param subsets: names of several stages together
    :param preferred: the stages with greedy loops that give back: of the matches that begin with the same event, only the one
        with most events in these stages is a match, compared from the first stage on
    :param absences: what may not precede a match
    """

    states: tuple[NfaState, ...]
    start: NfaState
    conditions: tuple[Condition, ...]
    stages: tuple[str, ...]
    window: timedelta | None
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    preferred: tuple[str, ...] = ()
    absences: tuple[Absence, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would recurse from state to state along the edges and overflow Python's stack.
        states = [(state.name, state.stage, state.kind, state.gap) for state in self.states]
        edges = [[(e.action, e.target.number, e.guard, e.gap) for e in state.edges] for state in self.states]
        rest = self.stages, self.window, self.subsets, self.preferred, self.absences
        return _linked, (states, edges, self.start.number, self.conditions, *rest)

    def notes(self) -> list[str]:
        """Properties that no state shows: events that may not precede a match, and which of several matches is preferred."""
        notes = []
        for absence in self.absences:
            within = f" within {duration(absence.window)}" if absence.window is not None else ""
            notes.append(f"{printable(absence.stage)} before a match: not {absence.guard}{within}")
        if self.preferred:
            notes.append(
                f"of the matches with the same first event: most events of {printable(', '.join(self.preferred))}"
            )
        return notes

    def explain(self, limit: int | None = None) -> str:
        """The automaton as text: conditions, then states with their edges, in the order in which they are tried.

        :param limit: the maximum number of states, from the start state on; None: all

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
        lines += self.notes()
        shown = self.states[::-1][:limit]
        for state in shown:
            bound = f" gap < {duration(state.gap)}" if state.gap is not None else ""
            lines.append(f"{printable(state.name)} {state.kind.name}{bound}")
            for edge in state.edges:
                within = f" within {duration(edge.gap)}" if edge.gap is not None else ""
                lines.append(f"  {edge.action.name} -> {printable(edge.target.name)} if {edge.guard}{within}")
        if len(shown) < len(self.states):
            lines.append(f"... and {len(self.states) - len(shown):,} more states")
        return "\n".join(lines)


def proceeding(state: NfaState) -> list[NfaState]:
    """The state and all states that PROCEED edges lead to from it."""
    reached = {state: None}
    todo = [state]
    for at in todo:
        targets = {edge.target: None for edge in at.edges if edge.action is Action.PROCEED}
        todo += [target for target in targets if target not in reached]
        reached |= targets
    return todo


MAX_COMPARED = 100
"""Limit of the edges that :func:`ignored_edges` compares for a state. With more, a partial match becomes several, as in Flink."""


def ignored_edges(state: NfaState) -> int:
    """The number of IGNORE edges that a partial match in *state* follows at an event that it can only ignore, if it can do
    after the event exactly what it could do before; otherwise 0.

    In the default semantics such an event changes nothing. In Flink, a partial match in a loop becomes two: one that waits for
    the next repetition, and one that waits for the next stage. See docs/decisions/0079.
    """
    ways, stops = _ways(state)
    targets = [edge.target for _, edge in ways if edge.action is Action.IGNORE]
    if not targets or targets == [state]:
        return len(targets)
    if any(target.kind is not NfaStateKind.NORMAL or target.gap != state.gap for target in (state, *targets)):
        return 0
    after = [_ways(target) for target in targets]
    alike = [each for followed, _ in after for each in followed] == ways and all(
        followed == stops for _, followed in after
    )
    return len(targets) if alike else 0


def _ways(state: NfaState) -> tuple[list[tuple[str, Edge]], set[Guard]]:
    """The TAKE and IGNORE edges that can be followed from a state, with the stages of their sources, and the guards of STOP.

    PROCEED edges are followed, the last one first. A guard is the conjunction of all guards on the way.
    """
    ways: list[tuple[str, Edge]] = []
    stops: set[Guard] = set()
    todo: list[tuple[NfaState, Guard]] = [(state, ALWAYS)]
    while todo and len(ways) + len(todo) <= MAX_COMPARED:
        source, guard = todo.pop()
        if source.kind is NfaStateKind.STOP:
            stops.add(guard)
            continue
        for edge in source.edges:
            whole = both(guard, edge.guard)
            if edge.action is Action.PROCEED:
                todo.append((edge.target, whole))
            else:
                ways.append((source.stage, Edge(edge.action, edge.target, whole, edge.gap)))
    return ([], set()) if todo else (ways, stops)


def _linked(states: list[Any], edges: list[Any], start: int, *rest: Any) -> Nfa:
    """Rebuild a pickled automaton."""
    made = [NfaState(number, *fields) for number, fields in enumerate(states)]
    for state, leaving in zip(made, edges, strict=True):
        state.edges = [Edge(action, made[target], guard, gap) for action, target, guard, gap in leaving]
    return Nfa(tuple(made), made[start], *rest)
