"""Follows the partial matches of one key through its events, and finds out why they end.

The truth is the engine's. :class:`Follower` hands the events to the matcher one at a time, and looks at the partial matches of
the page of state before and after each: what is new began or advanced, what is gone was dropped, what came out is a match.
Why it was dropped is told by the edges of the automaton, with the answers of :mod:`asterism.trace.condition_probe` for their
conditions.

A *partial match* is what a user thinks of: the events taken so far. The engine may hold several rows for one of these,
where it waits for several stages at once.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME, TimeColumn, micros
from asterism.errors import printable
from asterism.matching.binding import BoundPattern
from asterism.matching.matcher import NO_SLICES, Found, KeyedEvents, Matcher, Step
from asterism.matching.page import Page
from asterism.patterns.automaton import ALWAYS, Action, Both, Edge, Either, Guard, Not, State, StateKind, Test, both
from asterism.patterns.conditions import AndCondition, Condition, NotCondition, OrCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import SkipKind, Stage
from asterism.patterns.wording import CONTIGUITY, count_text
from asterism.text.printable import duration, either
from asterism.trace.condition_probe import Check, Probe

MAX_STEPS = 20_000
"""Steps that are kept, unless it is said otherwise; matches, timeouts and the summary are complete in any case."""
MAX_NAMED = 8
"""Partial matches that are named where the same is true of many."""
MAX_PARTIALS = 20_000
"""Partial matches at the same time, above which a trace stops: nobody reads that, and the next event may double them."""

_ROW = "__row"
_KEY = pa.schema([("key", pa.int8())])


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


# ---------------------------------------------------------------------------------------------------- partial matches


class _Partials:
    """Partial matches by number, as a tree: each is another one (0: nothing taken yet) and one event more."""

    def __init__(self, stages: Sequence[str]) -> None:
        self.stages = stages
        self._numbers: dict[tuple[int, int, int], int] = {}
        self.parent, self.row, self.stage, self.first = [0], [-1], [-1], [-1]

    def number(self, parent: int, row: int, stage: int) -> int:
        number = self._numbers.setdefault((parent, row, stage), len(self.parent))
        if number == len(self.parent):
            self.parent.append(parent)
            self.row.append(row)
            self.stage.append(stage)
            self.first.append(self.first[parent] if parent else row)
        return number

    def path(self, partial: int) -> list[tuple[int, int]]:
        """The events taken, (row, stage), in order."""
        path = []
        while partial:
            path.append((self.row[partial], self.stage[partial]))
            partial = self.parent[partial]
        return path[::-1]

    def taken(self, partial: int) -> Taken:
        events: dict[int, list[int]] = {}
        for row, stage in self.path(partial):
            events.setdefault(stage, []).append(row + 1)
        return tuple((self.stages[stage], tuple(rows)) for stage, rows in sorted(events.items()))


Run = tuple[int, State]
"""A partial match in a state. Number 0 is the start state's, which has taken nothing."""


@dataclass(slots=True)
class _Snapshot:
    """What a page of state holds."""

    runs: Counter[Run]
    waiting: Counter[int]
    places: dict[int, tuple[int, int]]
    """first event and node, in the page, of each partial match"""
    page: Page
    rows: Ints
    """numbers of the page's events"""


@dataclass(slots=True)
class _Moves:
    """What the edges of a state do with an event."""

    followed: list[tuple[State, Edge]] = field(default_factory=list)
    refused: list[tuple[State, Edge]] = field(default_factory=list)
    too_late: list[tuple[State, Edge]] = field(default_factory=list)
    stops: list[Edge] = field(default_factory=list)
    final: bool = False
    leads: list[tuple[int, State | None]] = field(default_factory=list)
    """where it leads: the stage that takes the event (-1: none does), and the next state (None: the match is complete)"""


@dataclass(frozen=True, slots=True)
class _Deadline:
    time: int
    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a stage did not take an event."""

    stage: str
    why: Why
    loop: str
    """whose until condition, or greed, it is"""
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        checks = _joined(self.checks)
        if self.why is Why.UNTIL:
            return f"the until condition of {printable(self.loop)} holds, {checks}"
        if self.why is Why.GREEDY:
            return f"the greedy {printable(self.loop)} takes the event" + (f", {checks}" if checks else "")
        return checks


@dataclass(frozen=True, slots=True)
class _Reason:
    why: Why
    text: str
    checks: tuple[Check, ...] = ()


Answers = dict[tuple[int, int], bool | None]
"""Of conditions that look at a partial match, by question and partial match."""


class Follower:
    """Feeds the events of one key to the matcher and notes what came of each.

    :meth:`arrive` and :meth:`watermark` are what an operator is called with; :meth:`finish` comes last.

    :param times: of the events, in microseconds
    :param clock: the time column; None: processing time
    :param limit: how many steps are kept
    """

    def __init__(
        self,
        pattern: Pattern,
        events: pa.Table,
        times: Ints,
        clock: TimeColumn | None,
        semantics: Semantics = Semantics.DEFAULT,
        limit: int = MAX_STEPS,
    ) -> None:
        self.pattern, self.events, self.times, self.clock, self.limit = pattern, events, times, clock, limit
        self.bound = bound = BoundPattern.of_pattern(pattern, events.schema, semantics)
        self.flink = semantics is Semantics.FLINK
        self.nfa = bound.nfa
        self.window = micros(self.nfa.window)
        prepared = bound.prepare(events)
        fields = [pa.field(TIME, pa.int64()), *bound.bit_fields, *bound.event_schema]
        # The state carries whatever the event schema names: here also which event it is.
        self.matcher = Matcher([bound], bound.event_schema.append(pa.field(_ROW, pa.int64())))
        self.prepared = pa.table(
            [pa.array(times), *prepared, pa.array(np.arange(events.num_rows))],
            schema=pa.schema([*fields, pa.field(_ROW, pa.int64())]),
        )
        self.probe = Probe(self.nfa, events, times)
        self.partials = _Partials(self.nfa.stages)
        self.stage_number = {stage: number for number, stage in enumerate(self.nfa.stages)}
        self.conditions = {state: _conditions_near(state) for state in self.nfa.states}
        self.alike = {state for state in self.nfa.states if self._is_alike(state)}
        """states in which an event does the same to every partial match"""
        self.waits: dict[frozenset[State], tuple[str, ...]] = {}
        """what is waited for in states, as far as it was asked"""
        self.loop_ends = _loop_ends(pattern, self.nfa.conditions)
        self.atoms = {stage.name: stage for stage in pattern.atoms()}
        self.positive = [name for name, stage in self.atoms.items() if not stage.contiguity.negated]

        self.buffer: list[int] = []
        self.now = BEFORE_TIME
        self.wake = END_OF_TIME
        self.began_in_round = False
        self.order: dict[int, int] = {}
        """event to its place in the order of processing"""
        self.snapshot = self._read(Page.empty(_KEY, self.matcher.event_schema))
        self.complete: set[int] = set()
        self.absences: dict[int, str] = {}
        """what did not come, where that made a match"""
        self.row: int | None = None
        """the event at hand"""
        self.moment: int | None = None
        self.steps: list[TraceStep] = []
        self.omitted: Counter[What] = Counter()
        """steps beyond the limit"""
        self.matches: list[TraceMatch] = []
        self.timeouts: list[TraceMatch] = []
        self.late_events: list[int] = []
        self.waiting: list[TraceStep] = []
        self.closest: TraceStep | None = None
        self.stopped = ""
        """why nothing is followed any more"""

    @property
    def columns(self) -> list[str]:
        """The columns that conditions read."""
        names = {name for question in self.probe.questions for name in question.columns}
        if not all(isinstance(condition, SqlCondition) for condition in self.nfa.conditions):
            return list(self.events.column_names)
        return [name for name in self.events.column_names if name in names]

    def shown_time(self, time: int) -> Any:
        if self.clock is None or time in (BEFORE_TIME, END_OF_TIME):
            return None
        return self.clock.from_micros(np.array([time]))[0].as_py()

    # ------------------------------------------------------------------ the stream

    def arrive(self, rows: Iterable[int]) -> None:
        for row in map(int, rows):
            if self.times[row] <= self.now:
                over = duration(timedelta(microseconds=self.now - int(self.times[row])))
                self.late(row, f"late: the watermark is {over} past its time")
            else:
                self.buffer.append(row)

    def late(self, row: int, reason: str) -> None:
        self.row, self.moment = row, int(self.times[row])
        self.late_events.append(row + 1)
        self._add(What.LATE, reason=_Reason(Why.LATE, f"{reason}; it takes no part"))

    def watermark(self, watermark: int, rank: Ints | None = None) -> None:
        """The watermark rises; *rank* orders events with equal times."""
        if watermark <= self.now or self.stopped:
            return
        self.now = watermark
        ready = [row for row in self.buffer if self.times[row] <= watermark]
        ready.sort(key=lambda row: (self.times[row], row if rank is None else rank[row]))
        self.buffer = [row for row in self.buffer if self.times[row] > watermark]
        self.began_in_round = False
        for row in ready:
            self._pass_time(int(self.times[row]), row, force=True)
            self._event(row)
            if len(self.snapshot.runs) > MAX_PARTIALS:
                self.stopped = f"there are {len(self.snapshot.runs)} partial matches after event {row + 1}"
                return
        self._pass_time(watermark, None, force=bool(ready))

    def finish(self) -> None:
        """No more events come. What is still waiting is noted, and may be what got farthest."""
        for partial, states in sorted(_by_partial(self.snapshot.runs).items()):
            if partial:
                step = TraceStep(
                    What.WAITED, None, None, partial, took=self.partials.taken(partial), waits_for=self._awaited(states)
                )
                self.waiting.append(step)
                self._compare(step)
        for partial in sorted(self.snapshot.waiting):
            self.waiting.append(TraceStep(What.HELD, None, None, partial, took=self.partials.taken(partial)))

    # ------------------------------------------------------------------ calls of the matcher

    def _advance(self, rows: Sequence[int], horizon: int, *, open_end: bool = False) -> Step:
        events = self.prepared.take(pa.array(rows, pa.int64()))
        keys = pa.table([pa.array([0] * len(rows), pa.int8())], schema=_KEY)
        page = self.snapshot.page
        shown = KeyedEvents.of_one(self.bound, page, keys, events, horizon, last_key_open=open_end)
        (step,) = self.matcher.advance_one(page, shown, most=NO_SLICES)
        assert step.page is not None
        self.snapshot, self.wake = self._read(step.page), step.wake
        return step

    def _read(self, page: Page) -> _Snapshot:
        rows = page.events.column(_ROW).to_numpy()
        partial_of: list[int] = []
        for event, stage, parent in page.nodes.tolist():
            partial_of.append(self.partials.number(partial_of[parent] if parent >= 0 else 0, int(rows[event]), stage))
        runs: Counter[Run] = Counter()
        places: dict[int, tuple[int, int]] = {}
        for first, node, number in page.run_rows.tolist():
            state = self.nfa.states[number]
            if node >= 0:
                places[partial_of[node]] = first, node
                runs[partial_of[node], state] += 1
            elif state.kind is not StateKind.FINAL:  # in Flink's semantics, where not even the start state is left
                runs[0, state] += 1
        if not len(page.run_rows):
            runs[0, self.nfa.start] += 1
        waiting = Counter(partial_of[node] for _, node, _ in page.waiting_rows.tolist())
        return _Snapshot(runs, waiting, places, page, rows)

    def _found(self, step: Step, found: Found) -> list[tuple[int, int]]:
        """Matches, or timed-out partial matches: (partial match, time)."""
        rows = step.events.column(_ROW).to_numpy()[found.events].tolist()
        stages, offsets = found.stages.tolist(), found.offsets.tolist()
        result = []
        for match, time in enumerate(found.emitted.tolist()):
            partial = 0
            for at in range(offsets[match], offsets[match + 1]):
                partial = self.partials.number(partial, rows[at], stages[at])
            result.append((partial, time))
        return result

    # ------------------------------------------------------------------ time

    def _pass_time(self, time: int, next_row: int | None, *, force: bool) -> None:
        """Let the deadlines up to *time* pass, ahead of the event *next_row*. *force* is about Flink's semantics, where
        time jumps, and does so only where an event or a timer asks for it.
        """
        self.row = None
        if self.flink:
            if force:
                due = any(self._is_over(partial, state, time) for partial, state in self.snapshot.runs)
                self._set_timers(at=time if due else None, later_than=time)
            else:
                due = self.wake <= time and self.wake != END_OF_TIME
            if due:
                self._expire(time, next_row)
            return
        while self.wake <= time and self.wake != END_OF_TIME:
            self._expire(self.wake, next_row)
        if time == END_OF_TIME and self._has_state():
            self._end()

    def _has_state(self) -> bool:
        return bool(self.snapshot.page.keys.num_rows)

    def _set_timers(self, at: int | None, later_than: int = BEFORE_TIME) -> None:
        """Keep the timers that are *later_than* a time, and set one *at* a time, as Flink's semantics would have it, had all
        events of a round been seen in one call.
        """
        page = self.snapshot.page
        if not self._has_state():
            if at is None:
                return
            page = Page.empty(_KEY, self.matcher.event_schema)
            page.keys = pa.table([pa.array([0], pa.int8())], schema=_KEY)
            page.run_at = page.waiting_at = np.zeros(2, np.int64)
        timers = [timer for timer in page.timer_rows[:, 0].tolist() if timer > later_than] + (
            [] if at is None else [at]
        )
        page.timer_rows = np.unique(np.array(timers, np.int64)).reshape(-1, 1)
        page.timer_at = np.array([0, len(page.timer_rows)])
        self.snapshot.page = page
        self.wake = min(timers, default=END_OF_TIME)

    def _is_over(self, partial: int, state: State, time: int) -> bool:
        deadline = self._deadline(partial, state) if partial else None
        return deadline is not None and deadline.time <= time

    def _expire(self, time: int, next_row: int | None) -> None:
        before = self.snapshot
        step = self._advance([], time)
        self.moment = time
        over: Counter[Run] = Counter()
        absent: Counter[int] = Counter()
        deadlines: dict[int, _Deadline] = {}
        for run, number in before.runs.items():
            partial, state = run
            deadline = self._deadline(partial, state) if partial else None
            if deadline is None or deadline.time > time:
                continue
            over[run] = number
            if state.kind is StateKind.PENDING:
                absent[partial] += number
                self.absences[partial] = state.stage
            elif partial not in deadlines or deadline.time < deadlines[partial].time:
                deadlines[partial] = deadline
        left = before.runs - over
        states_left = _by_partial(left)
        for partial, deadline in sorted(deadlines.items(), key=lambda item: (item[1].time, item[0])):
            text = deadline.reason
            if next_row is not None and self.times[next_row] > deadline.time:
                late = duration(timedelta(microseconds=int(self.times[next_row]) - deadline.time))
                text += f"; event {next_row + 1} comes {late} after its end"
            self._gone(partial, states_left.get(partial), _Reason(deadline.why, text))
        for partial, emitted in self._found(step, step.timeouts):
            self.timeouts.append(TraceMatch(self.shown_time(emitted), self.partials.taken(partial)))
        self._settle(before, step, left, absent)

    def _deadline(self, partial: int, state: State) -> _Deadline | None:
        """When a partial match in a state is out of time, and by what."""
        deadlines = []
        for why, length, row, what in (
            (Why.WINDOW, self.window, self.partials.first[partial], "its first event"),
            (Why.GAP, micros(state.gap), self.partials.row[partial], "the event before"),
        ):
            if length:
                end, bound = int(self.times[row]) + length, duration(timedelta(microseconds=length))
                text = f"{why.value} over: {bound} after {what} ({row + 1})"
                deadlines.append(_Deadline(end, why, text))
        return min(deadlines, key=lambda deadline: deadline.time, default=None)

    def _end(self) -> None:
        """The end of time, where no deadline is left: partial matches end, and what they held back comes out."""
        before = self.snapshot
        step = self._advance([], END_OF_TIME)
        self.moment = None
        for partial, states in sorted(_by_partial(before.runs).items()):
            if partial:
                text = f"the input ends, and it still waits for {either(self._awaited(states))}"
                self._gone(partial, None, _Reason(Why.END, text))
        self._settle(before, step, Counter(), Counter())

    # ------------------------------------------------------------------ one event

    def _event(self, row: int) -> None:
        before = self.snapshot
        step = self._advance([row], int(self.times[row]), open_end=True)
        self.row, self.moment = row, int(self.times[row])
        self.order[row] = len(self.order)
        if self.flink and self.window:
            # Once a match has begun in a round, each event of the round sets a timer: the kernel knows this one event only.
            timers = self.snapshot.page.timer_rows[:, 0]
            deadline = self.moment + self.window
            self.began_in_round |= deadline in timers and deadline not in before.page.timer_rows[:, 0]
            if self.began_in_round:
                self._set_timers(deadline)

        wanted = [
            (condition, partial, before.places.get(partial))
            for partial, state in before.runs
            if state not in self.alike
            for condition in self.conditions[state]
        ]
        answers = self.probe.holds(row, before.page, before.rows, dict.fromkeys(wanted))
        known: dict[State, _Moves] = {}
        looked: dict[Run, _Moves] = {}
        runs: Counter[Run] = Counter()
        done: Counter[int] = Counter()
        children: dict[int, list[int]] = defaultdict(list)
        for run, number in before.runs.items():
            partial, state = run
            moves = known.get(state)
            if moves is None:
                moves = self._look(run, row, answers)
                if state in self.alike:
                    known[state] = moves
            looked[run] = moves
            for stage, target in moves.leads:
                reached = partial
                if stage >= 0:
                    reached = self.partials.number(partial, row, stage)
                    if reached not in children[partial]:
                        children[partial].append(reached)
                if target is None:
                    done[reached] += number
                else:
                    runs[reached, target] += number
        self._tell(looked, runs, done, children, answers)
        self._settle(before, step, runs, done)

    def _is_alike(self, state: State) -> bool:
        iterative = any(self.probe.questions[self.probe.whole[c]].iterative for c in self.conditions[state])
        return not iterative and all(edge.gap is None for at in _proceeding(state) for edge in at.edges)

    def _look(self, run: Run, row: int, answers: Answers, *, only_proceed: bool = False) -> _Moves:
        """Follow the edges of a state, as the kernel does."""
        partial, state = run
        since = int(self.times[row] - self.times[self.partials.row[partial]]) if partial else 0
        moves, todo = _Moves(), [state]
        while todo:
            at = todo.pop()
            if at.kind is StateKind.FINAL:
                moves.final = True
            for edge in at.edges:
                if only_proceed and edge.action is not Action.PROCEED:
                    continue
                if not self._holds(edge.guard, row, partial, answers):
                    moves.refused.append((at, edge))
                elif edge.action is Action.PROCEED:
                    todo.append(edge.target)
                    if edge.target.kind is StateKind.STOP:
                        moves.stops.append(edge)
                elif edge.gap is None or since < micros(edge.gap):
                    moves.followed.append((at, edge))
                else:
                    moves.too_late.append((at, edge))
        if not only_proceed:
            moves.leads = list(self._leads(run, row, moves, answers))
        return moves

    def _leads(self, run: Run, row: int, moves: _Moves, answers: Answers) -> Iterator[tuple[int, State | None]]:
        partial, _ = run
        for at, edge in moves.followed:
            if edge.action is Action.IGNORE:
                if partial and edge.target.kind is StateKind.FINAL:
                    yield -1, None
                elif partial and not moves.stops:
                    yield -1, edge.target
                continue
            stage = self.stage_number[at.stage]
            if edge.target.kind is StateKind.FINAL:
                yield stage, None
                continue
            if not moves.stops:
                yield stage, edge.target
            # The match may be complete without a further event, if all that is left is optional.
            if self._look((partial, edge.target), row, answers, only_proceed=True).final:
                yield stage, None

    def _holds(self, guard: Guard, row: int, partial: int, answers: Answers) -> bool:
        match guard:
            case Test(condition):
                return bool(self.probe.answer(self.probe.whole[condition], row, partial, answers))
            case Not(inner):
                return not self._holds(inner, row, partial, answers)
            case Both(left, right):
                return self._holds(left, row, partial, answers) and self._holds(right, row, partial, answers)
            case Either(left, right):
                return self._holds(left, row, partial, answers) or self._holds(right, row, partial, answers)
        return True

    # ------------------------------------------------------------------ what came of it

    def _tell(
        self,
        looked: Mapping[Run, _Moves],
        runs: Counter[Run],
        done: Counter[int],
        children: Mapping[int, list[int]],
        answers: Answers,
    ) -> None:
        """The steps of one event, before matches come out and discard others."""
        before, after = _by_partial(looked), _by_partial(runs)
        reasons: dict[tuple[frozenset[State], tuple[str, ...], bool], _Reason] = {}
        waiting: dict[tuple[tuple[str, ...], str], tuple[_Reason, list[int]]] = {}
        for partial in sorted(before.keys() - {0}):
            for child in children.get(partial, ()):
                self._add(What.ADVANCED, child, parent=partial, waits_for=self._awaited(after.get(child, ())))
            if children.get(partial) or partial in done:
                continue
            states, left = before[partial], after.get(partial, [])
            waits = self._awaited(left)
            lost = tuple(stage for stage in self._awaited(states) if stage not in waits)
            goes_on = waits and not lost
            case = frozenset(states), lost, bool(waits)
            if case not in reasons or not self.alike.issuperset(states):
                moves = [looked[partial, state] for state in states]
                reasons[case] = self._reason(partial, moves, answers, None if goes_on else lost)
            if goes_on:
                waiting.setdefault((waits, reasons[case].text), (reasons[case], []))[1].append(partial)
            else:
                self._gone(partial, left, reasons[case])
        for (waits, _), (reason, (first, *others)) in waiting.items():
            self._add(What.WAITED, first, reason, waits_for=waits, others=others)
        for child in children.get(0, ()):
            self._add(What.BEGAN, child, waits_for=self._awaited(after.get(child, ())))
        if not any(children.values()) and not done:
            start = [looked[0, state] for state in before.get(0, ())]
            blocked = _Reason(Why.FORBIDDEN, "a forbidden event came before any was taken, which ends it all in Flink")
            self._add(What.NOTHING, reason=self._reason(0, start, answers) if start else blocked)

    def _gone(self, partial: int, left: Sequence[State] | None, reason: _Reason) -> None:
        """A partial match is no more, or only in the states that are *left*."""
        if left:
            self._add(What.NARROWED, partial, reason, waits_for=self._awaited(left))
        else:
            self._add(What.DROPPED, partial, reason)

    def _settle(self, before: _Snapshot, step: Step, runs: Counter[Run], done: Counter[int]) -> None:
        """What the skip strategy makes of the *runs* and the complete matches: some come out, and discard others."""
        emitted = self._found(step, step.matches)
        self.complete |= set(done)
        out = Counter(partial for partial, _ in emitted)
        alive = {partial for partial, _ in self.snapshot.runs}
        skipped = {partial for partial, _ in runs - self.snapshot.runs if partial and partial not in alive | out.keys()}
        skipped |= set(before.waiting + done - out - self.snapshot.waiting)
        for partial in sorted(self.snapshot.waiting - before.waiting):
            first = min((self.order[self.partials.first[one]], one) for one in alive if one)
            reason = f"held back: #{first[1]} began earlier and could still discard it"
            self._add(What.HELD, partial, _Reason(Why.SKIPPED, reason))
        for partial, time in emitted:
            number = len(self.matches) + 1
            self.matches.append(TraceMatch(self.shown_time(time), self.partials.taken(partial)))
            absence = f", as no {printable(self.absences[partial])} came" if partial in self.absences else ""
            self._add(What.MATCHED, partial, _Reason(Why.CONDITION, f"match {number}{absence}"))
            low, high = self._discards(partial)
            for other in sorted(skipped):
                if low <= self.order[self.partials.first[other]] <= high:
                    skipped.remove(other)
                    text = f"skipped after match {number} ({self.pattern.skip.kind.value})"
                    self._add(What.DROPPED, other, _Reason(Why.SKIPPED, text))
        for other in sorted(skipped):
            self._add(What.DROPPED, other, _Reason(Why.SKIPPED, "skipped after a match"))

    def _discards(self, partial: int) -> tuple[int, int]:
        """What a match discards: partial matches whose first event is, in the order of processing, in this range."""
        path, skip = self.partials.path(partial), self.pattern.skip
        match skip.kind:
            case SkipKind.NO_SKIP:
                return 0, -1
            case SkipKind.SKIP_TO_NEXT:
                return self.order[path[0][0]], self.order[path[0][0]]
            case SkipKind.SKIP_PAST_LAST_EVENT:
                return 0, self.order[path[-1][0]]
        rows = [row for row, stage in path if self.nfa.stages[stage] == skip.stage]
        return 0, self.order[rows[0 if skip.kind is SkipKind.SKIP_TO_FIRST else -1]] - 1 if rows else -1

    def _add(
        self,
        what: What,
        partial: int | None = None,
        reason: _Reason | None = None,
        *,
        parent: int | None = None,
        waits_for: tuple[str, ...] = (),
        others: Sequence[int] = (),
    ) -> None:
        is_full = len(self.steps) >= self.limit and what not in (What.MATCHED, What.LATE)
        if is_full and what is not What.DROPPED:
            self.omitted[what] += 1
            return
        step = TraceStep(
            what,
            event=None if self.row is None else self.row + 1,
            time=None if self.moment is None else self.shown_time(self.moment),
            partial=partial,
            parent=parent,
            took=() if partial is None else self.partials.taken(partial),
            waits_for=waits_for,
            why=reason.why if reason is not None else None,
            reason=reason.text if reason is not None else "",
            checks=reason.checks if reason is not None else (),
            others=tuple(others[: MAX_NAMED - 1]),
            more=len(others[MAX_NAMED - 1 :]),
        )
        if what is What.DROPPED:
            self._compare(step)
        if is_full:
            self.omitted[what] += 1
        else:
            self.steps.append(step)

    # ------------------------------------------------------------------ why

    def _reason(
        self, partial: int, moves: Sequence[_Moves], answers: Answers, lost: Sequence[str] | None = None
    ) -> _Reason:
        """Why a partial match did not take the event at hand, and so has *lost* the chance of some stages (None: it waits on)."""
        assert self.row is not None
        stops = [edge for move in moves for edge in move.stops]
        if stops:
            stage = self.atoms[stops[0].target.stage]
            checks = self._checks(self._deciding(stops[0].guard, partial, answers), partial, answers)
            said = _joined(checks) or "any event is one"
            return _Reason(
                Why.FORBIDDEN,
                f'forbidden event, {CONTIGUITY[stage.contiguity]} "{printable(stage.name)}": {said}',
                checks,
            )
        refusals = list(dict.fromkeys(self._refusals(moves, partial, answers)))
        if lost:
            refusals = [refusal for refusal in refusals if refusal.stage in lost] or refusals
        refusals = _most_telling(refusals, begins=partial == 0)
        checks = tuple(check for refusal in refusals for check in refusal.checks)
        stages = list(dict.fromkeys(refusal.stage for refusal in refusals))
        text = "; ".join(f"{printable(r.stage)}: {r}" if len(stages) > 1 else str(r) for r in refusals)
        kinds = {refusal.why for refusal in refusals}
        gaps = [edge.gap for move in moves for _, edge in move.too_late if edge.gap is not None]
        for why in (Why.UNTIL, Why.GREEDY):
            if why in kinds:
                return _Reason(why, text, checks)
        if gaps:
            before = self.partials.row[partial]
            late = duration(timedelta(microseconds=int(self.times[self.row] - self.times[before])))
            text = f"a repetition had to come less than {duration(gaps[0])} after event {before + 1}, this one comes {late} after"
            return _Reason(Why.GAP, text, checks)
        if lost is not None and Why.STRICT in kinds:
            return _Reason(
                Why.STRICT, f"strict contiguity: the very next event had to be {either(stages)}: {text}", checks
            )
        return _Reason(Why.CONDITION, text, checks)

    def _refusals(self, moves: Sequence[_Moves], partial: int, answers: Answers) -> Iterator[_Refusal]:
        """Why stages did not take the event, and why one that must not come is not it."""
        for move in moves:
            for at, edge in move.refused:
                absence = at.kind is StateKind.PENDING and edge.target.kind is StateKind.STOP
                if edge.action is not Action.TAKE and not absence:
                    continue
                strict = partial and not any(other.action is Action.IGNORE for other in at.edges)
                found: dict[tuple[Why, str], list[tuple[int, bool]]] = {}
                for guard in _conjuncts(edge.guard):
                    if self._holds(guard, self._at_hand, partial, answers):
                        continue
                    why, loop = Why.STRICT if strict else Why.CONDITION, ""
                    if isinstance(guard, Not) and guard.guard in self.loop_ends and not self._is_own(guard, at.stage):
                        why, loop = self.loop_ends[guard.guard]
                    found.setdefault((why, loop), []).extend(self._deciding(guard, partial, answers))
                for (why, loop), deciding in found.items():
                    yield _Refusal(at.stage, why, loop, self._checks(deciding, partial, answers))

    @property
    def _at_hand(self) -> int:
        assert self.row is not None
        return self.row

    def _is_own(self, guard: Guard, stage: str) -> bool:
        """Did the author of the stage say so, with a condition that is a negation?"""
        condition = self.atoms[stage].condition
        return condition is not None and guard in _conjuncts(_guard(condition, self.nfa.conditions))

    def _deciding(self, guard: Guard, partial: int, answers: Answers) -> list[tuple[int, bool]]:
        """The conditions that make a guard what it is: (number, does it hold)."""
        value = self._holds(guard, self._at_hand, partial, answers)
        match guard:
            case Test(condition):
                return [(condition, value)]
            case Not(inner):
                return self._deciding(inner, partial, answers)
            case Both(left, right) | Either(left, right):
                sides = [side for side in (left, right) if self._holds(side, self._at_hand, partial, answers) is value]
                return [part for side in sides for part in self._deciding(side, partial, answers)]
        return []

    def _checks(self, deciding: Iterable[tuple[int, bool]], partial: int, answers: Answers) -> tuple[Check, ...]:
        """The conditions as they are to be told; of one that does not hold, the parts that do not."""
        taken = [(row, self.nfa.stages[stage]) for row, stage in self.partials.path(partial)]
        checks = []
        for condition, value in dict.fromkeys(deciding):
            parts = [
                part
                for part in self.probe.parts[condition]
                if not value and not self.probe.answer(part, self._at_hand, partial, answers)
            ]
            told = parts or [self.probe.whole[condition]]
            checks += [self.probe.check(question, self._at_hand, partial, taken, answers) for question in told]
        return tuple(checks)

    # ------------------------------------------------------------------ how far

    def _awaited(self, states: Iterable[State]) -> tuple[str, ...]:
        """What a partial match in these states waits for."""
        these = frozenset(states)
        if these not in self.waits:
            self.waits[these] = self._find_awaited(these)
        return self.waits[these]

    def _find_awaited(self, states: Iterable[State]) -> tuple[str, ...]:
        names: set[str] = set()
        other: dict[str, None] = {}
        for state in states:
            for at in _proceeding(state):
                if at.kind is StateKind.PENDING:
                    other[f"the end of the window without {at.stage}"] = None
                for edge in at.edges:
                    if edge.action is Action.TAKE:
                        names.add(at.stage)
                    elif edge.action is Action.IGNORE and edge.target.kind is StateKind.FINAL:
                        other[f"an event that is not {at.stage}"] = None
        return (*(stage for stage in self.nfa.stages if stage in names), *other)

    def _reached(self, took: Taken) -> int:
        return max(self.positive.index(stage) for stage, _ in took) + 1

    def _compare(self, step: TraceStep) -> None:
        """Keep the partial match that got farthest; of those that got equally far, the last."""
        if step.partial in self.complete and step.why is not Why.SKIPPED:
            return

        def far(one: TraceStep) -> tuple[int, int]:
            return self._reached(one.took), sum(len(events) for _, events in one.took)

        if self.closest is None or far(step) >= far(self.closest):
            self.closest = step

    def progress(self, step: TraceStep) -> str:
        """How far a partial match got, in words."""
        if step.partial in self.complete:
            return "was complete"
        reached = self._reached(step.took)
        name = self.positive[reached - 1]
        often = count_text(self.atoms[name].quantifier)
        events = len(dict(step.took)[name])
        times = f" {events} times ({often} wanted)" if often not in ("", "?") else ""
        return f"reached {printable(name)}{times}, stage {reached} of {len(self.positive)}"


def _most_telling(refusals: Sequence[_Refusal], *, begins: bool) -> list[_Refusal]:
    """Of several for one stage: what begins nothing does so for want of its condition; what has begun ends with its loop."""
    told = []
    for refusal in refusals:
        is_end = refusal.why in (Why.UNTIL, Why.GREEDY)
        others = [(other.why in (Why.UNTIL, Why.GREEDY)) for other in refusals if other.stage == refusal.stage]
        if is_end is not begins or all(other is is_end for other in others):
            told.append(refusal)
    return told


def _by_partial(runs: Iterable[Run]) -> dict[int, list[State]]:
    states: dict[int, list[State]] = defaultdict(list)
    for partial, state in runs:
        states[partial].append(state)
    return states


def _proceeding(state: State) -> list[State]:
    """The state, and all that PROCEED edges lead to from it."""
    reached = [state]
    for at in reached:
        reached += [edge.target for edge in at.edges if edge.action is Action.PROCEED and edge.target not in reached]
    return reached


def _conditions_near(state: State) -> list[int]:
    """The conditions that a partial match in a state may look at while it is shown one event."""
    found: set[int] = set()
    for at in _proceeding(state):
        for edge in at.edges:
            found |= _tests(edge.guard)
            if edge.action is Action.TAKE:
                for near in _proceeding(edge.target):
                    found |= {
                        c for further in near.edges if further.action is Action.PROCEED for c in _tests(further.guard)
                    }
    return sorted(found)


def _tests(guard: Guard) -> set[int]:
    match guard:
        case Test(condition):
            return {condition}
        case Not(inner):
            return _tests(inner)
        case Both(left, right) | Either(left, right):
            return _tests(left) | _tests(right)
    return set()


def _conjuncts(guard: Guard) -> list[Guard]:
    return [*_conjuncts(guard.left), *_conjuncts(guard.right)] if isinstance(guard, Both) else [guard]


def _guard(condition: Condition | None, conditions: Sequence[Condition]) -> Guard:
    """The guard that the compiler makes of a condition."""
    match condition:
        case None:
            return ALWAYS
        case AndCondition(left, right):
            return Both(_guard(left, conditions), _guard(right, conditions))
        case OrCondition(left, right):
            return Either(_guard(left, conditions), _guard(right, conditions))
        case NotCondition(inner):
            return Not(_guard(inner, conditions))
    return Test(conditions.index(condition))


def _loop_ends(pattern: Pattern, conditions: Sequence[Condition]) -> dict[Guard, tuple[Why, str]]:
    """What must not hold for other reasons than a stage's own condition: until conditions, and what greedy loops take."""
    ends: dict[Guard, tuple[Why, str]] = {}

    def visit(stages: Sequence[Stage], until: Condition | None) -> None:
        for stage in stages:
            if stage.quantifier.greedy:
                around = ALWAYS if until is None else Not(_guard(until, conditions))
                ends[both(around, _guard(stage.condition, conditions))] = Why.GREEDY, stage.name
            if stage.until is not None:
                ends[_guard(stage.until, conditions)] = Why.UNTIL, stage.name
            if stage.group is not None:
                visit(stage.group.stages, stage.until)

    visit(pattern.stages, None)
    return ends


def _joined(checks: Iterable[Check]) -> str:
    return " and ".join(map(str, checks))
