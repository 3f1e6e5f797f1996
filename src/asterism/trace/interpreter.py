"""Runs an automaton over the events of one key in plain Python, and tells a listener all that it does.

What a partial match can do is told in :mod:`asterism.patterns.automaton`, in which order it happens in
:mod:`asterism.matching.kernels`, which does the same for all keys at once, with arrays. The answers are equal, also in their order:
tests/property/test_trace_equals_kernel.py.

A partial match is what a user thinks of: the events taken so far. It may be in several states at once, where it waits for several
stages: each of these is a *run*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.errors import SkipStrategyError
from asterism.patterns.automaton import Action, Edge, Nfa, State, StateKind
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, SkipKind
from asterism.trace.conditions import Conditions
from asterism.trace.steps import Partial, Why

MAX_PARTIALS = 20_000
"""Partial matches at the same time, above which a trace stops: nobody reads that, and the next event may double them."""
MAX_VISITS = 1_000_000
"""States that one event may lead the partial matches through, above which a trace stops."""


class Run(NamedTuple):
    """A partial match in a state; one that is complete is in the state that made it so, since *time*."""

    partial: Partial
    state: State
    time: int = BEFORE_TIME

    @property
    def first(self) -> int:
        return self.partial.origin.order


class Expired(NamedTuple):
    """A run that is out of time: by which bound, the event (a row) from which it counts, and since when."""

    run: Run
    why: Why
    row: int
    deadline: int


@dataclass(slots=True)
class Look:
    """What the edges of a state, and of the states that PROCEED edges lead to, do with an event. Edges with their states."""

    state: State
    followed: list[tuple[State, Edge]] = field(default_factory=list)
    refused: list[tuple[State, Edge]] = field(default_factory=list)
    too_late: list[tuple[State, Edge]] = field(default_factory=list)
    stops: list[Edge] = field(default_factory=list)
    """PROCEED edges to a STOP state"""
    final: bool = False
    """Does PROCEED lead to the end of the pattern?"""


class Listener(Protocol):
    """Is told all that the interpreter does, when it does it."""

    def late(self, row: int, behind: int | None) -> None:
        """An event takes no part: it is so many microseconds behind the watermark; None: it has no time."""

    def event(self, row: int, looks: dict[Partial, list[Look]], made: list[Partial], runs: Iterable[Run]) -> None:
        """An event was shown to all: what each saw, the partial matches that took it, and what is left (matches that it
        completed are settled next).
        """

    def time(self, moment: int, next_row: int | None, expired: list[Expired], runs: Iterable[Run]) -> None:
        """Time has passed up to *moment*, ahead of the event *next_row*; *runs* are left."""

    def end(self, runs: Iterable[Run]) -> None:
        """The input has ended with these, which are dropped."""

    def matched(self, run: Run, time: int, discarded: list[Partial]) -> None:
        """A match is emitted with this time, and discards partial matches, complete ones among them."""

    def held(self, partials: Iterable[Partial], runs: Iterable[Run]) -> None:
        """These are complete, but *runs* of partial matches that began earlier could still discard them."""


class Heap:
    """Runs by the place of their first event, the start state's last; ties are broken as in ``java.util.PriorityQueue``, which
    decides which of two matches is the first to discard the other.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def push(self, run: Run) -> None:
        runs, at = self.runs, len(self.runs)
        runs.append(run)
        while at > 0 and run.first < runs[(at - 1) // 2].first:
            runs[at] = runs[(at - 1) // 2]
            at = (at - 1) // 2
        runs[at] = run

    def pop(self) -> Run:
        first, last = self.runs[0], self.runs.pop()
        if self.runs:
            self._sink(last, 0)
        return first

    def discard(self, least: int, most: int) -> list[Run]:
        """Remove the runs whose first event is between these places, inclusive."""
        gone = [run for run in self.runs if least <= run.first <= most]
        if gone:
            self.runs = [run for run in self.runs if not least <= run.first <= most]
            for at in range(len(self.runs) // 2 - 1, -1, -1):
                self._sink(self.runs[at], at)
        return gone

    def _sink(self, run: Run, at: int) -> None:
        runs = self.runs
        while at < len(runs) // 2:
            child = 2 * at + 1
            if child + 1 < len(runs) and runs[child + 1].first < runs[child].first:
                child += 1
            if run.first <= runs[child].first:
                break
            runs[at] = runs[child]
            at = child
        runs[at] = run


class Interpreter:
    """
    :meth:`arrive` and :meth:`watermark` are what an operator is called with.

    :param times: of the events, in microseconds
    """

    def __init__(
        self,
        nfa: Nfa,
        skip: AfterMatchSkipStrategy,
        times: Ints,
        conditions: Conditions,
        semantics: Semantics,
        listener: Listener,
    ) -> None:
        self.nfa, self.skip, self.conditions, self.listener = nfa, skip, conditions, listener
        self.times: list[int] = times.tolist()
        self.flink = semantics is Semantics.FLINK
        # One that skips to the next start discards nothing that began earlier, so nothing has to wait for it.
        at_once = (SkipKind.NO_SKIP,) if self.flink else (SkipKind.NO_SKIP, SkipKind.SKIP_TO_NEXT)
        self.holds_back = skip.kind not in at_once
        self.window = micros(nfa.window)
        self.is_timed = bool(self.window) or any(state.gap for state in nfa.states)
        self.nothing = Partial.none()
        self.count = 0
        """of partial matches so far"""
        self.processed = 0
        """events so far"""
        self.runs, self.complete = Heap(), Heap()
        self.runs.push(Run(self.nothing, nfa.start))
        self.waiting: list[int] = []
        """events that the watermark has not passed"""
        self.now = BEFORE_TIME
        self.timers: set[int] = set()
        """Flink: when to look at the time, though no event comes"""
        self.stopped = ""
        """why the events are not followed any more"""
        self._alike: dict[State, bool] = {}
        self._visits = 0

    # ------------------------------------------------------------------ the stream

    def arrive(self, rows: Iterable[int]) -> None:
        for row in rows:
            if self.times[row] <= self.now:
                self.listener.late(row, self.now - self.times[row])
            else:
                self.waiting.append(row)

    def watermark(self, watermark: int, rank: Ints | None = None) -> None:
        """The watermark rises; *rank* orders events with equal times."""
        if watermark <= self.now or self.stopped:
            return
        self.now = watermark
        ready = [row for row in self.waiting if self.times[row] <= watermark]
        ready.sort(key=lambda row: (self.times[row], row if rank is None else rank[row]))
        self.waiting = [row for row in self.waiting if self.times[row] > watermark]
        # Flink: without an event or a timer that is due, a watermark does nothing at all.
        due = not self.flink or bool(ready) or any(timer <= watermark for timer in self.timers)
        began, before = False, None
        for row in ready:
            time = self.times[row]
            if not self.flink or time != before:  # Flink looks at the time once for all events of one time
                self._pass_time(time, row)
            began |= self._event(row)
            if self.stopped:
                return
            if self.flink and began and self.window:
                self.timers.add(time + self.window)
            before = time
        if due:
            self._pass_time(watermark, None)
        self.timers = {timer for timer in self.timers if timer > watermark}
        if watermark == END_OF_TIME and not self.flink:
            self.listener.end(self.runs.runs)
            self.runs = Heap()
            self._settle(Heap(), None)

    # ------------------------------------------------------------------ one event

    def _event(self, row: int) -> bool:
        """Show an event to all partial matches; did one begin, with a time after 1970?"""
        runs, done, time, self._visits = Heap(), Heap(), self.times[row], 0
        self.conditions.meet(row, {run.partial: None for run in self.runs.runs if not self.is_alike(run.state)})
        known: dict[tuple[State, bool], Look] = {}
        looks: dict[Partial, list[Look]] = {}
        made: dict[tuple[Partial, str], Partial] = {}
        for run in self.runs.runs:
            partial = run.partial
            look = self._look(run.state, partial, row, known)
            looks.setdefault(partial, []).append(look)
            for state, edge in look.followed:
                target = edge.target
                is_final = target.kind is StateKind.FINAL
                if edge.action is Action.IGNORE:
                    if partial and is_final:
                        done.push(Run(partial, target, time))
                    elif partial and not look.stops:
                        runs.push(Run(partial, target))
                    continue
                child = made.get((partial, state.stage))
                if child is None:
                    self.count += 1
                    child = made[partial, state.stage] = Partial(self.count, partial, row, state.stage, self.processed)
                if not is_final and not look.stops:
                    runs.push(Run(child, target))
                # It may be complete without a further event, if all that is left is optional.
                if is_final or self._look(target, partial, row, known, only_proceed=True).final:
                    done.push(Run(child, target, time))
            # In Flink a forbidden event that is met from the start state ends even that: nothing begins any more.
            if not partial and run.state is self.nfa.start and not (look.stops and self.flink):
                runs.push(run)
            if self._visits > MAX_VISITS:
                self.stopped = f"event {row + 1} leads the partial matches through more than {MAX_VISITS:,} states"
                return False
        self.runs = runs
        self.processed += 1
        for complete in done.runs:
            complete.partial.complete = True
        self.listener.event(row, looks, list(made.values()), runs.runs)
        self._settle(done, time)
        if len(self.runs.runs) > MAX_PARTIALS:
            self.stopped = f"there are {len(self.runs.runs)} partial matches after event {row + 1}"
        return time > 0 and any(parent is self.nothing for parent, _ in made)

    def is_alike(self, state: State) -> bool:
        """Does an event do the same to every partial match in a state?"""
        if state not in self._alike:
            near = proceeding(state)
            edges = [edge for at in near for edge in at.edges]
            beyond = {at: None for edge in edges if edge.action is Action.TAKE for at in proceeding(edge.target)}
            guards = {edge.guard: None for edge in [*edges, *(edge for at in beyond for edge in at.edges)]}
            gaps = any(edge.gap is not None for edge in edges)
            self._alike[state] = not gaps and not any(map(self.conditions.reads_match, guards))
        return self._alike[state]

    def _look(
        self,
        state: State,
        partial: Partial,
        row: int,
        known: dict[tuple[State, bool], Look],
        *,
        only_proceed: bool = False,
    ) -> Look:
        """Follow the edges of a state, PROCEED edges at once, the last one first."""
        if (state, only_proceed) in known:
            return known[state, only_proceed]
        since = self.times[row] - self.times[partial.row] if partial else 0
        look, todo = Look(state), [state]
        while todo and self._visits <= MAX_VISITS:
            self._visits += 1
            at = todo.pop()
            look.final |= at.kind is StateKind.FINAL
            for edge in at.edges:
                if only_proceed and edge.action is not Action.PROCEED:
                    continue
                if not self.conditions.holds(edge.guard, partial):
                    look.refused.append((at, edge))
                elif edge.action is Action.PROCEED:
                    todo.append(edge.target)
                    if edge.target.kind is StateKind.STOP:
                        look.stops.append(edge)
                elif edge.gap is None or since < micros(edge.gap):
                    look.followed.append((at, edge))
                else:
                    look.too_late.append((at, edge))
        if self.is_alike(state):
            known[state, only_proceed] = look
        return look

    # ------------------------------------------------------------------ time

    def _pass_time(self, time: int, next_row: int | None) -> None:
        """Let the deadlines up to *time* pass, ahead of the event *next_row*: one after the other; in Flink time jumps."""
        while self.is_timed:
            deadlines = [deadline for run in self.runs.runs for _, _, deadline in self._deadlines(run)]
            earliest = min(deadlines, default=END_OF_TIME)
            if earliest > time or earliest == END_OF_TIME:
                return
            self._expire(time if self.flink else earliest, next_row)
            if self.flink:
                return

    def _deadlines(self, run: Run) -> Iterator[tuple[Why, int, int]]:
        """The bounds on a partial match: which, the event from which it counts, and when it is out of time."""
        partial, state, _ = run
        if partial and state.gap:
            yield Why.GAP, partial.row, self.times[partial.row] + micros(state.gap)
        if partial and self.window:
            yield Why.WINDOW, partial.origin.row, self.times[partial.origin.row] + self.window

    def _expire(self, moment: int, next_row: int | None) -> None:
        runs, done = Heap(), Heap()
        expired = []
        # In Flink the difference of the end of time and a time before 1970 overflows: such a partial match does not end.
        overflows = self.flink and moment == END_OF_TIME
        for run in self.runs.runs:
            passed = [
                Expired(run, *bound)
                for bound in self._deadlines(run)
                if bound[2] <= moment and not (overflows and self.times[bound[1]] < 0)
            ]
            if not passed:
                runs.push(run)
            elif run.state.kind is StateKind.PENDING:
                run.partial.complete = True
                done.push(run._replace(time=moment))
            else:
                expired.append(passed[0])
        self.runs = runs
        self.listener.time(moment, next_row, expired, runs.runs)
        self._settle(done, moment)

    # ------------------------------------------------------------------ complete matches

    def _settle(self, done: Heap, time: int | None) -> None:
        """Emit the complete matches that nothing can discard any more, and discard what the skip strategy says.

        :param time: of emission; None: that of completion
        """
        for run in done.runs:
            self.complete.push(run)
        emitted: set[Partial] = set()
        while self.complete.runs:
            runs, first = self.runs.runs, self.complete.runs[0]
            if self.holds_back and runs and runs[0].first < first.first:
                break
            self.complete.pop()
            emitted.add(first.partial)
            least, most = self._discards(first.partial)
            gone = {run.partial for run in self.runs.discard(least, most) + self.complete.discard(least, most)}
            discarded = sorted(gone - emitted, key=lambda partial: partial.number)
            self.listener.matched(first, first.time if time is None else time, discarded)
        held = {run.partial for run in done.runs} & {run.partial for run in self.complete.runs}
        self.listener.held(sorted(held, key=lambda partial: partial.number), self.runs.runs)

    def _discards(self, match: Partial) -> tuple[int, int]:
        """What a match discards: the least and the most place that the first event of it has."""
        if self.skip.kind is SkipKind.NO_SKIP:
            return 0, -1
        if self.skip.kind is SkipKind.SKIP_TO_NEXT:
            return match.origin.order, match.origin.order
        if self.skip.kind is SkipKind.SKIP_PAST_LAST_EVENT:
            return 0, match.order
        places = [one.order for one in match.path() if one.stage == self.skip.stage]
        goal = places[0 if self.skip.kind is SkipKind.SKIP_TO_FIRST else -1] if places else -1
        if self.skip.throw_on_miss and goal in (-1, match.origin.order):
            said = "the match has no such event" if goal < 0 else "it is the first event of the match"
            raise SkipStrategyError(f'could not skip to "{self.skip.stage}": {said}')
        return 0, goal - 1


def proceeding(state: State) -> list[State]:
    """The state, and all that PROCEED edges lead to from it."""
    reached = {state: None}
    todo = [state]
    for at in todo:
        found = [edge.target for edge in at.edges if edge.action is Action.PROCEED and edge.target not in reached]
        reached |= dict.fromkeys(found)
        todo += found
    return list(reached)
