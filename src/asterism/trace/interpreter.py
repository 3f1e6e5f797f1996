"""Runs an automaton over the events of one key in plain Python, and reports each step to a recorder.

:mod:`asterism.patterns.automaton` defines the transitions of a partial match, and :mod:`asterism.matching.kernels` the order
in which they are made. The kernels do the same with arrays, for all keys at once. Both give the same results in the same
order, see tests/trace/test_trace_property.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.errors import SkipStrategyError
from asterism.patterns.automaton import Action, Nfa, NfaState, NfaStateKind, ignored_edges
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, SkipKind
from asterism.trace.conditions import TraceConditions
from asterism.trace.recorder import Recorder
from asterism.trace.steps import NO_EVENT, Expired, Partial, Run, StateEvaluation, TraceStoppedError, Why

MAX_PARTIALS = 20_000
"""The maximum number of partial matches at a time. A trace with more is too long to read, and each event may double them."""
MAX_VISITS = 1_000_000
"""The number of states visited for one event above which a trace stops."""


class Heap(list[Run]):
    """Runs ordered by their first event; the run of the start state is last. Ties are broken as in
    ``java.util.PriorityQueue``, because they decide which of two matches discards the other.
    """

    def push(self, run: Run) -> None:
        at = len(self)
        self.append(run)
        while at > 0 and run.first < self[(at - 1) // 2].first:
            self[at] = self[(at - 1) // 2]
            at = (at - 1) // 2
        self[at] = run

    def take_first(self) -> Run:
        first, last = self[0], self.pop()
        if self:
            self._sink(last, 0)
        return first

    def remove_one(self, run: Run) -> None:
        """Remove one run, which is the first or the only one that began with its first event."""
        if run is self[0]:
            self.take_first()
        else:
            self.discard(run.first, run.first)

    def discard(self, least: int, most: int) -> list[Run]:
        """Remove the runs whose first event is in [least, most]."""
        gone = [run for run in self if least <= run.first <= most]
        if gone:
            self[:] = [run for run in self if not least <= run.first <= most]
            for at in reversed(range(len(self) // 2)):
                self._sink(self[at], at)
        return gone

    def _sink(self, run: Run, at: int) -> None:
        while at < len(self) // 2:
            child = 2 * at + 1
            if child + 1 < len(self) and self[child + 1].first < self[child].first:
                child += 1
            if run.first <= self[child].first:
                break
            self[at] = self[child]
            at = child
        self[at] = run


class Interpreter:
    """:meth:`arrive` and :meth:`watermark` correspond to the calls of an operator. *times* are those of the events."""

    def __init__(
        self,
        nfa: Nfa,
        skip: AfterMatchSkipStrategy,
        times: Ints,
        conditions: TraceConditions,
        semantics: Semantics,
        recorder: Recorder,
    ) -> None:
        self.nfa, self.skip, self.conditions, self.recorder = nfa, skip, conditions, recorder
        self.times: list[int] = times.tolist()
        self.flink = semantics is Semantics.FLINK
        # SKIP_TO_NEXT discards nothing that began earlier, so its matches need not wait for earlier partial matches.
        at_once = {SkipKind.NO_SKIP, SkipKind.FIRST_MATCH_ONLY, *([] if self.flink else [SkipKind.SKIP_TO_NEXT])}
        self.holds_back = skip.kind not in at_once
        self.window = micros(nfa.window)
        self.is_timed = bool(self.window) or any(state.gap for state in nfa.states)
        edges = [edge for state in nfa.states for edge in state.edges]
        self.reads_match = any(map(conditions.reads_match, {edge.guard for edge in edges}))
        self.is_alike = not self.reads_match and all(edge.gap is None for edge in edges)
        """Whether an event has the same effect on all partial matches in a state."""
        self.ignored = {state: 0 if self.flink else ignored_edges(state) for state in nfa.states}
        self.count = 0
        """the number of partial matches so far"""
        self.processed = 0
        """the number of events processed so far"""
        self.runs, self.complete = Heap(), Heap()
        self.runs.push(Run(Partial.none(), nfa.start))
        self.buffer: list[int] = []
        self.now = BEFORE_TIME
        self.timers: set[int] = set()
        """Flink: times at which deadlines are checked even without an event"""
        self.stopped = ""
        """why the trace stopped; empty if it did not"""
        self._evaluations: dict[tuple[NfaState, bool], StateEvaluation] = {}
        self._visits = 0

    # ------------------------------------------------------------------ the stream

    def arrive(self, rows: Iterable[int]) -> None:
        for row in rows:
            if self.times[row] <= self.now:
                self.recorder.late(row, self.now - self.times[row])
            else:
                self.buffer.append(row)

    def watermark(self, watermark: int, rank: Ints | None = None) -> None:
        """Advance the watermark; *rank* orders events with equal times."""
        if watermark > self.now and not self.stopped:
            self.now = watermark
            ready = [row for row in self.buffer if self.times[row] <= watermark]
            self.buffer = [row for row in self.buffer if self.times[row] > watermark]
            try:
                self._round(
                    sorted(ready, key=lambda row: (self.times[row], row if rank is None else rank[row])), watermark
                )
            except TraceStoppedError as error:
                self.stopped = str(error)

    def _round(self, rows: Sequence[int], watermark: int) -> None:
        # Flink: without an event or a due timer, a watermark has no effect.
        is_due = not self.flink or bool(rows) or any(timer <= watermark for timer in self.timers)
        began, before = False, None
        for row in rows:
            time = self.times[row]
            if not self.flink or time != before:  # Flink checks the time once for all events of one time
                self._pass_time(time, row)
            began |= self._event(row)
            if self.flink and self.window and began:
                self.timers.add(time + self.window)
            before = time
        if is_due:
            self._pass_time(watermark, None)
        self.timers = {timer for timer in self.timers if timer > watermark}
        if watermark == END_OF_TIME and not self.flink:
            # No more events can arrive: partial matches that waited only for the end are complete, at the time of their last
            # event; the others end, and the matches that they held back are emitted.
            done, ended = Heap(), Heap()
            for run in self.runs:
                if run.partial and run.state.kind in (NfaStateKind.PENDING, NfaStateKind.LAST):
                    done.push(run._replace(time=self.times[run.partial.row], why=Why.END))
                else:
                    ended.push(run)
            self.runs = Heap()
            self.recorder.end(ended, done)
            self._settle(done, None)

    # ------------------------------------------------------------------ one event

    def _event(self, row: int) -> bool:
        """Process an event for all partial matches. Returns whether a match began after 1970, as Flink's timers need it."""
        runs, done, time, began = Heap(), Heap(), self.times[row], False
        evaluations: dict[Partial, list[StateEvaluation]] = {}
        made: dict[tuple[Partial, str], Partial] = {}
        self._evaluations, self._visits = {}, 0
        self.conditions.meet(row, list(dict.fromkeys(run.partial for run in self.runs)) if self.reads_match else [])
        for run in self.runs:
            partial = run.partial
            evaluation = self._evaluate(run.state, partial, row)
            evaluations.setdefault(partial, []).append(evaluation)
            actions = [edge.action for _, edge in evaluation.followed]
            if partial and not evaluation.stops and actions and actions == self.ignored[run.state] * [Action.IGNORE]:
                runs.push(run)  # it can do what it could do before
                continue
            for state, edge in evaluation.followed:
                target, is_final = edge.target, edge.target.kind is NfaStateKind.FINAL
                if edge.action is Action.IGNORE:
                    if partial and is_final:
                        done.push(Run(partial, target, time))
                    elif partial and not evaluation.stops:
                        runs.push(Run(partial, target))
                    continue
                began |= not partial and time > 0
                # The match may be complete without a further event if all remaining stages are optional.
                is_complete = is_final or self._evaluate(target, partial, row, only_proceed=True).is_final
                if evaluation.stops and not is_complete:
                    continue
                child = made.get((partial, state.stage))
                if child is None:
                    self.count += 1
                    child = made[partial, state.stage] = Partial(self.count, partial, row, state.stage, self.processed)
                if not is_final and not evaluation.stops:
                    runs.push(Run(child, target))
                if is_complete:
                    done.push(Run(child, target, time))
            # In Flink a forbidden event seen from the start state ends the start state as well: no further match can begin.
            if not partial and run.state is self.nfa.start and not (evaluation.stops and self.flink):
                runs.push(run)
        self.runs = runs
        self.processed += 1
        self.recorder.event(row, evaluations, list(made.values()), runs)
        self._settle(done, time)
        if len(self.runs) > MAX_PARTIALS:
            raise TraceStoppedError(f"there are {len(self.runs):,} partial matches after event {row + 1}")
        return began

    def _evaluate(self, state: NfaState, partial: Partial, row: int, *, only_proceed: bool = False) -> StateEvaluation:
        """Evaluate the edges of a state. PROCEED edges are followed immediately, the last one first."""
        if (state, only_proceed) in self._evaluations:
            return self._evaluations[state, only_proceed]
        since = self.times[row] - self.times[partial.row] if partial else 0
        evaluation, todo = StateEvaluation(state), [state]
        while todo:
            at = todo.pop()
            self._visits += 1
            if self._visits > MAX_VISITS:
                raise TraceStoppedError(
                    f"event {row + 1} leads partial matches through more than {MAX_VISITS:,} states"
                )
            evaluation.is_final |= at.kind is NfaStateKind.FINAL
            for edge in at.edges:
                if only_proceed and edge.action is not Action.PROCEED:
                    continue
                if not self.conditions.holds(edge.guard, partial):
                    evaluation.refused.append((at, edge))
                elif edge.action is Action.PROCEED:
                    todo.append(edge.target)
                    evaluation.stops += [edge] if edge.target.kind is NfaStateKind.STOP else []
                elif edge.gap is None or since < micros(edge.gap):
                    evaluation.followed.append((at, edge))
                else:
                    evaluation.too_late.append((at, edge))
        if self.is_alike:
            self._evaluations[state, only_proceed] = evaluation
        return evaluation

    # ------------------------------------------------------------------ time

    def _pass_time(self, time: int, next_row: int | None) -> None:
        """Fire the deadlines up to *time*, before the event *next_row*: one after the other, or in Flink all at once."""
        while self.is_timed:
            earliest = min((bound.deadline for run in self.runs for bound in self._bounds(run)), default=END_OF_TIME)
            if earliest > time or earliest == END_OF_TIME:
                return
            self._expire(time if self.flink else earliest, next_row)
            if self.flink:
                return

    def _bounds(self, run: Run) -> Iterator[Expired]:
        """The deadlines of a partial match, with their reasons. One that waits only for the end of the input has none."""
        partial, gap = run.partial, run.state.gap
        if not partial or run.state.kind is NfaStateKind.LAST:
            return
        if gap is not None:
            yield Expired(run, Why.GAP, partial.row, self.times[partial.row] + micros(gap))
        if self.window:
            yield Expired(run, Why.WINDOW, partial.origin.row, self.times[partial.origin.row] + self.window)

    def _expire(self, moment: int, next_row: int | None) -> None:
        runs, done, expired = Heap(), Heap(), []
        # In Flink the difference of the end of time and a time before 1970 overflows, so such a partial match does not end.
        overflows = self.flink and moment == END_OF_TIME
        for run in self.runs:
            bounds = (bound for bound in self._bounds(run) if not (overflows and self.times[bound.row] < 0))
            passed = next((bound for bound in bounds if bound.deadline <= moment), None)
            if passed is None:
                runs.push(run)
            elif run.state.kind is NfaStateKind.PENDING:
                done.push(run._replace(time=moment, why=passed.why))
            else:
                expired.append(passed)
        self.runs = runs
        self.recorder.time(moment, next_row, expired, runs)
        self._settle(done, moment)

    # ------------------------------------------------------------------ complete matches

    def _settle(self, done: Heap, time: int | None) -> None:
        """Emit complete matches that nothing can discard any more, at *time* (None: that of completion), and skip after them."""
        for run in done:
            run.partial.complete = True
            if not self._compare(run):
                self.complete.push(run)
        emitted: set[Partial] = set()
        while (match := self._next_match()) is not None:
            self.complete.remove_one(match)
            emitted.add(match.partial)
            discards = self._discards(match.partial)
            gone = {
                run.partial for run in self.runs.discard(*discards) + self.complete.discard(*discards) if run.partial
            }
            self.recorder.matched(match, match.time if time is None else time, gone - emitted)
        self.recorder.held({run.partial for run in done if run in self.complete}, self.runs)

    def _compare(self, run: Run) -> bool:
        """Keep the preferred one of two matches with the same first event. Returns whether there is another complete one."""
        for at, other in enumerate(self.complete if self.nfa.preferred else ()):
            if other.first == run.first:
                better, worse, stage = other, run, self._more(other.partial, run.partial)
                if stage is None and (stage := self._more(run.partial, other.partial)) is not None:
                    better, worse = run, other
                self.complete[at] = better
                if better.partial is not worse.partial:
                    self.recorder.discarded(worse.partial, better.partial, stage)
                return True
        return False

    def _more(self, partial: Partial, other: Partial) -> str | None:
        """The stage that decides that *partial* is preferred to *other*, because it took more events; None: it is not."""
        for stage in self.nfa.preferred:
            more = len(partial.rows(stage)) - len(other.rows(stage))
            if more:
                return stage if more > 0 else None
        return None

    def _next_match(self) -> Run | None:
        """The complete match to emit next. With preferred stages, it waits for the partial matches with the same first event."""
        if not self.nfa.preferred:
            is_held = self.holds_back and self.runs and self.complete and self.runs[0].first < self.complete[0].first
            return None if is_held or not self.complete else self.complete[0]
        begun = {run.first for run in self.runs}
        earliest = min(begun, default=NO_EVENT) if self.holds_back else NO_EVENT
        decided = (run for run in self.complete if run.first not in begun and earliest >= run.first)
        return min(decided, key=lambda run: run.first, default=None)

    def _discards(self, match: Partial) -> tuple[int, int]:
        """The range of the first events of the partial matches that a match discards."""
        match self.skip.kind:
            case SkipKind.NO_SKIP:
                return 0, -1
            case SkipKind.SKIP_TO_NEXT:
                return match.origin.order, match.origin.order
            case SkipKind.SKIP_PAST_LAST_EVENT:
                return 0, match.order
            case SkipKind.FIRST_MATCH_ONLY:
                return 0, NO_EVENT  # the start state as well: no further match can begin
        places = [taken.order for taken in match.path() if taken.stage == self.skip.stage]
        goal = places[0 if self.skip.kind is SkipKind.SKIP_TO_FIRST else -1] if places else -1
        if self.skip.throw_on_miss and goal in (-1, match.origin.order):
            problem = "the match has no such event" if goal < 0 else "it is the first event of the match"
            raise SkipStrategyError(f'could not skip to "{self.skip.stage}": {problem}')
        return 0, goal - 1
