"""Partial matches, one event after the other, and time.

Every partial match is an object of its own with the full list of its events: nothing is shared, nothing is indexed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .automaton import Action, Automaton, Edge, Kind, State, build, stays
from .event import Accepted, Event
from .heap import PriorityQueue
from .pattern import read_pattern

END_OF_INPUT = 2**63 - 1
CORRECTIONS = ("deadlines", "stamps", "gaps", "held", "forbidden", "ignored")
"""The corrections of Flink that make the default semantics, in the order of docs/differences_from_flink.md."""

Match = dict[str, list[int]]
Semantics = str | Collection[str]
"""``flink``, ``default``, or the names of corrections"""

# Event time first, then the order in which events of equal time were processed.
Position = tuple[int, int]
_AFTER_EVERYTHING: Position = (2**63, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """A partial match, or, in the final or pending state, a completed one. Without events: the start state."""

    state: State
    accepted: Accepted = ()
    positions: tuple[Position, ...] = ()
    expired: int | None = None  # the deadline that completed it
    taken: int = 0  # how many events the key's partial matches had accepted when it accepted its last one

    @property
    def first(self) -> Position:
        """The order of all heaps; the start state sorts last."""
        return self.positions[0] if self.positions else _AFTER_EVERYTHING

    @property
    def ended(self) -> int:
        """The deadline that completed it, else the time of its last event."""
        return self.positions[-1][0] if self.expired is None else self.expired

    def position_of(self, pattern: str, place: int) -> Position | None:
        """Where the first (0) or last (-1) event of the pattern stands."""
        found = [position for position, (name, _) in zip(self.positions, self.accepted, strict=True) if name == pattern]
        return found[place] if found else None

    def as_match(self) -> Match:
        """The ids of its events by pattern."""
        match: Match = {}
        for pattern, event in self.accepted:
            match.setdefault(pattern, []).append(event.id)
        return match


@dataclass(frozen=True, slots=True)
class SkipStrategy:
    """What a match that is emitted discards."""

    type: str = "NO_SKIP"
    pattern: str = ""

    def discards(self, match: Run, other: Run) -> bool:
        """Whether *match* takes *other* (not the start state) away."""
        match self.type:
            case "SKIP_TO_NEXT":
                return other.first == match.first
            case "SKIP_PAST_LAST_EVENT":
                return other.first <= match.positions[-1]
            case "SKIP_TO_FIRST" | "SKIP_TO_LAST":
                goal = match.position_of(self.pattern, 0 if self.type == "SKIP_TO_FIRST" else -1)
                return goal is not None and other.first < goal
            case _:
                return False


class Matcher:
    """All that one key needs: feed events and watermarks, read `matches`, `timeouts` and `late`.

    Of more than *limit* partial matches after an event, those that began last are dropped (of those that began together, the
    ones that accepted their last event last), and counted in `dropped`.

    There are two semantics, "flink" and "default". The default is Flink's with all corrections; any set of them can be
    asked for by name. A deep copy is a snapshot.
    """

    def __init__(
        self,
        pattern: Mapping[str, Any],
        *,
        order_by: Sequence[str] = (),
        semantics: Semantics = "flink",
        limit: int | None = None,
    ) -> None:
        self._corrections = _corrections(semantics)
        self._automaton: Automaton = build(read_pattern(pattern), exact_gaps="gaps" in self._corrections)
        skip = pattern.get("afterMatchStrategy") or {"type": "NO_SKIP"}
        self._skip = SkipStrategy(skip["type"], skip.get("patternName") or "")
        # SKIP_TO_NEXT discards only what has the same first event, so no earlier partial match can discard a completed
        # match: corrected, it does not wait for one.
        self._holds_back = self._skip.type not in (
            ("NO_SKIP", "SKIP_TO_NEXT") if "held" in self._corrections else ("NO_SKIP",)
        )
        self._order_by = tuple(order_by)
        self._limit = limit

        self._watermark: int | None = None
        self._timers: set[int] = set()
        self._buffer: dict[int, list[Event]] = {}
        self._processed = 0
        self._taken = 0
        self._started_in_round = False
        self._runs = PriorityQueue(_first, [Run(self._automaton.start)])
        self._completed: PriorityQueue[Run] = PriorityQueue(_first)

        self.matches: list[tuple[int, Match]] = []
        self.timeouts: list[tuple[int, Match]] = []
        self.late: list[int] = []
        self.dropped = 0

    # --- arrival ---

    def event(self, event: Event) -> None:
        """Buffer an event until the watermark passes it, or note that it is late."""
        if self._watermark is not None and event.ts <= self._watermark:
            self.late.append(event.id)
            return
        self._buffer.setdefault(event.ts, []).append(event)
        self._timers.add(event.ts)

    def watermark(self, value: int) -> None:
        """Let event time pass up to *value*, inclusive."""
        if self._watermark is not None and value <= self._watermark:
            return
        self._watermark = value
        if "deadlines" in self._corrections:
            # Time passes for a quiet key too, and before the first event of a key it has nothing to do anyway.
            self._round(value)
        else:
            # Flink looks at a key only if a timer is due; else the watermark changes nothing at all.
            while (timer := min(self._timers, default=END_OF_INPUT)) <= value and self._timers:
                self._timers.remove(timer)
                self._round(value)
        if "held" in self._corrections and value == END_OF_INPUT:
            self._release_all()

    def _round(self, watermark: int) -> None:
        self._started_in_round = False
        for ts in sorted(ts for ts in self._buffer if ts <= watermark):
            self._advance(ts)
            for event in self._ordered(self._buffer.pop(ts)):
                if "stamps" in self._corrections:
                    self._advance(ts)  # an event of this time may have led to a deadline that has passed
                self._process(event)
                if self._automaton.window is not None and self._started_in_round:
                    self._timers.add(ts + self._automaton.window)
        self._advance(watermark)

    def _ordered(self, events: Iterable[Event]) -> list[Event]:
        ordered = list(events)
        for column in reversed(self._order_by):
            name = column.removeprefix("-")
            ordered.sort(key=lambda event: rank(getattr(event, name)), reverse=column.startswith("-"))
        return ordered

    # --- one event ---

    def _process(self, event: Event) -> None:
        position = (event.ts, self._processed)
        self._processed += 1
        runs: PriorityQueue[Run] = PriorityQueue(_first)
        completed: PriorityQueue[Run] = PriorityQueue(_first)
        for run in self._runs:
            results = self._step(run, event, position)
            if run.state is self._automaton.start and event.ts > 0 and any(result.accepted for result in results):
                # Only then a timer is set; a first event at or before 0 does not count.
                self._started_in_round = True
            stopped = any(result.state.kind is Kind.STOP for result in results)
            for result in results:
                if result.state.kind is Kind.FINAL:
                    completed.add(result)
                elif not stopped or ("forbidden" in self._corrections and result.state is self._automaton.start):
                    # In Flink a forbidden event met from the start state ends even that: nothing begins any more.
                    runs.add(result)
        self._runs = runs
        self._emit(completed, event.ts)
        self._drop_beyond_limit()

    def _drop_beyond_limit(self) -> None:
        partial = sorted((run for run in self._runs if run.accepted), key=lambda run: (run.first, run.taken))
        if self._limit is not None and len(partial) > self._limit:
            beyond = partial[self._limit :]
            self._runs.remove_if(lambda run: any(run is other for other in beyond))
            self.dropped += len(beyond)

    def _step(self, run: Run, event: Event, position: Position) -> list[Run]:
        """What becomes of one partial match. It may become several, or none."""
        at_start = run.state is self._automaton.start
        results = []
        applicable = self._applicable(run, event)
        if "ignored" in self._corrections and not at_start and stays(run.state, [edge for _, edge in applicable]):
            return [run]
        for source, edge in applicable:
            if edge.action is Action.TAKE:
                accepted = (*run.accepted, (source.pattern, event))
                taken = Run(edge.target, accepted, (*run.positions, position), taken=self._taken)
                self._taken += 1
                results.append(taken)
                final = self._final_after(edge.target, run, event)
                if final is not None:
                    results.append(replace(taken, state=final))
            elif not at_start:
                results.append(replace(run, state=edge.target))
        return [*results, run] if at_start else results

    def _applicable(self, run: Run, event: Event) -> list[tuple[State, Edge]]:
        """The TAKE and IGNORE edges open to this event, each with the state it leaves, PROCEED edges being followed."""
        found = []
        states = [run.state]
        while states:
            state = states.pop()
            for edge in state.edges:
                if not self._holds(edge, run, event):
                    continue
                if edge.action is Action.PROCEED:
                    states.append(edge.target)
                else:
                    found.append((state, edge))
        return found

    def _final_after(self, state: State, run: Run, event: Event) -> State | None:
        """The final state, if nothing more is needed. Conditions see the event just taken as the one under test."""
        states = [state]
        while states:
            for edge in states.pop().edges:
                if edge.action is Action.PROCEED and self._holds(edge, run, event):
                    if edge.target.kind is Kind.FINAL:
                        return edge.target
                    states.append(edge.target)
        return None

    def _holds(self, edge: Edge, run: Run, event: Event) -> bool:
        # Only the corrected semantics builds edges with a bound, and only behind an accepted event.
        if edge.max_gap is not None and event.ts - run.positions[-1][0] >= edge.max_gap:
            return False
        return edge.condition(event, run.accepted)

    # --- time ---

    def _deadlines(self, run: Run, limit: int) -> list[int]:
        """When the partial match is out of time: by its last event, by its first one. Never for the start state."""
        if run.state is self._automaton.start:
            return []
        deadlines = []
        for base, bound in ((run.positions[-1][0], run.state.max_gap), (run.positions[0][0], self._automaton.window)):
            # Flink's subtraction overflows.
            if bound and (limit - base < 2**63 or "stamps" in self._corrections):
                deadlines.append(base + bound)
        return deadlines

    def _advance(self, now: int) -> None:
        if "stamps" not in self._corrections:
            # Flink drops everything at once, and a match by absence is dated when it happens to look.
            self._expire(now, now)
            return
        # Each deadline has its own moment, wherever the watermarks fall.
        while due := [deadline for run in self._runs for deadline in self._deadlines(run, now) if deadline <= now]:
            self._expire(min(due), min(due))

    def _expire(self, limit: int, now: int) -> None:
        """Drop what is out of time at *limit*; what completes by that is a match as of *now*."""
        runs: PriorityQueue[Run] = PriorityQueue(_first)
        completed: PriorityQueue[Run] = PriorityQueue(_first)
        for run in self._runs:
            passed = [deadline for deadline in self._deadlines(run, limit) if deadline <= limit]
            if not passed:
                runs.add(run)
            elif run.state.kind is Kind.PENDING:
                completed.add(replace(run, expired=passed[0]))
            else:
                self.timeouts.append((passed[0], run.as_match()))
        self._runs = runs
        self._emit(completed, now)

    # --- completed matches ---

    def _emit(self, completed: Iterable[Run], now: int) -> None:
        for run in completed:
            self._completed.add(run)
        while (match := self._completed.peek()) is not None:
            if self._holds_back and _head(self._runs) < match.first:
                # An earlier partial match may still complete and discard this one.
                return
            self._emit_next(now)

    def _emit_next(self, now: int) -> None:
        match = self._completed.poll()
        for waiting in (self._runs, self._completed):
            waiting.remove_if(lambda run: bool(run.accepted) and self._skip.discards(match, run))
        self.matches.append((now, match.as_match()))

    def _release_all(self) -> None:
        """Corrected end of input: nothing more can happen, so nothing has to wait for it."""
        self._runs.remove_if(lambda run: bool(run.accepted))
        while (match := self._completed.peek()) is not None:
            self._emit_next(match.ended)


def run_case(case: Mapping[str, Any], semantics: Semantics = "flink", limit: int | None = None) -> dict[str, Any]:
    """Feed the steps of a conformance case; the result has the form of its `expected`, and with a *limit* also `dropped`."""
    events = {row[0]: Event(*row) for row in case["events"]}
    matcher = Matcher(case["pattern"], order_by=case.get("order_by") or (), semantics=semantics, limit=limit)
    for step in case["steps"]:
        for number in step["events"]:
            matcher.event(events[number])
        if step.get("watermark") is not None:
            matcher.watermark(step["watermark"])
    return {
        "matches": [[ts, match] for ts, match in matcher.matches],
        "timeouts": [[ts, match] for ts, match in matcher.timeouts],
        "late": matcher.late,
        **({} if limit is None else {"dropped": matcher.dropped}),
    }


def _corrections(semantics: Semantics) -> frozenset[str]:
    if isinstance(semantics, str):
        if semantics not in ("flink", "default"):
            raise ValueError(f"semantics {semantics!r} is neither 'flink' nor 'default'")
        return frozenset(CORRECTIONS if semantics == "default" else ())
    return frozenset(semantics)


def _first(run: Run) -> Position:
    return run.first


def _head(runs: PriorityQueue[Run]) -> Position:
    head = runs.peek()
    return _AFTER_EVERYTHING if head is None else head.first


def rank(value: Any) -> tuple[int, Any]:
    """Sorts as Spark does: NULL is the smallest value, and NaN the largest."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)
