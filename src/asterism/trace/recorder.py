"""Records the actions of the interpreter as the steps of a trace, each with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TimeColumn
from asterism.errors import printable
from asterism.patterns.automaton import Action, Both, Guard, Nfa, NfaState, NfaStateKind, Not, proceeding
from asterism.patterns.conditions import FirstEventCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import Combining, PatternSequence, SkipKind, Stage, Taking, stages_of
from asterism.patterns.wording import CONTIGUITY, count_text, repeats
from asterism.text.printable import duration, either
from asterism.trace.conditions import TraceConditions
from asterism.trace.steps import (
    Check,
    Expired,
    Partial,
    Run,
    StateEvaluation,
    Taken,
    TraceMatch,
    TraceStep,
    What,
    Why,
)

MAX_STEPS = 20_000
"""The default number of steps that are kept. Matches, timeouts and the summary are always complete."""
MAX_NAMED = 8
"""The maximum number of partial matches that are listed in one step."""


END_OF_INPUT = "the end of the input"


class _Reason(NamedTuple):
    why: Why | None
    text: str
    checks: tuple[Check, ...] = ()


class Recorder:
    """
    :param time_column: the time column of the events, whose *times* are microseconds; None: processing time
    :param limit: the maximum number of steps that are kept
    """

    def __init__(
        self,
        pattern: Pattern,
        nfa: Nfa,
        times: Ints,
        time_column: TimeColumn | None,
        conditions: TraceConditions,
        limit: int = MAX_STEPS,
    ) -> None:
        self.times, self.time_column, self.conditions, self.limit = times, time_column, conditions, limit
        self.skip = pattern.skip.kind
        self.stages = nfa.stages
        self.atoms = {stage.name: stage for stage in pattern.atoms()}
        self.prefers = bool(nfa.preferred)
        self.choices = [
            (stage.group.combination, frozenset(_heads(stage)))
            for stage in stages_of(pattern)
            if stage.group is not None and stage.group.combination is not Combining.SEQUENCE
        ]
        """for each group of alternatives, or of elements in any order, the stages with which they begin"""
        self.places = _places(pattern)
        """for each stage that accepts events its place in the pattern; alternatives have the same one"""
        takings = {stage.quantifier.taking for stage in self.atoms.values()}
        self.may_pass_over = bool(self.choices or takings & {Taking.GREEDY, Taking.LONGEST, Taking.RELUCTANT})
        self.waits: dict[frozenset[NfaState], tuple[str, ...]] = {}
        """a cache of the stages that a set of states waits for"""
        self.row: int | None = None
        """the current event"""
        self.moment: int | None = None
        self.steps: list[TraceStep] = []
        self.omitted: Counter[What] = Counter()
        """the number of steps beyond the limit"""
        self.matches: list[TraceMatch] = []
        self.timeouts: list[TraceMatch] = []
        self.ends: dict[Partial, _Reason] = {}
        """what made partial matches complete without a further event"""
        self.late_events: list[int] = []
        self.waiting: list[TraceStep] = []
        self.closest: TraceStep | None = None
        self.progress = ""
        """how far *closest* got, as text"""

    def shown_time(self, time: int) -> Any:
        if self.time_column is None or time in (BEFORE_TIME, END_OF_TIME):
            return None
        return self.time_column.from_micros(np.array([time]))[0].as_py()

    # ------------------------------------------------------------------ actions of the interpreter

    def late(self, row: int, behind: int | None) -> None:
        """Record a late event: it is *behind* microseconds behind the watermark, or has no time (None)."""
        self.row, self.moment = row, int(self.times[row])
        self.late_events.append(row + 1)
        description = "the event has no time"
        if behind is not None:
            description = f"late: the watermark is {_span(behind)} past the time of the event"
        self._add(What.LATE, None, _Reason(Why.LATE, f"{description}; it is not matched"))

    def event(
        self,
        row: int,
        evaluations: Mapping[Partial, list[StateEvaluation]],
        made: Sequence[Partial],
        runs: Iterable[Run],
    ) -> None:
        """Record an event: its effect on each partial match, the partial matches that took it, and the runs that remain."""
        self.row, self.moment = row, int(self.times[row])
        after, children = _by_partial(runs), _grouped((child.parent, child) for child in made)
        reasons: dict[Any, _Reason] = {}
        waiting: dict[tuple[tuple[str, ...], str], tuple[_Reason, list[Partial]]] = {}
        nothing = _Reason(
            Why.FORBIDDEN, "a forbidden event arrived before any event was taken; in Flink, nothing can match after it"
        )
        if self.skip is SkipKind.FIRST_MATCH_ONLY and self.matches:
            nothing = _Reason(Why.SKIPPED, "only the first match of a key is a match, and match 1 was the first")
        is_used = bool(made)
        at_start: list[StateEvaluation] = []
        for partial in sorted(evaluations):
            evaluated, left = evaluations[partial], after.get(partial, [])
            if not partial:
                at_start = evaluated
                nothing = nothing if made else self._reason(partial, evaluated)
                continue
            passed_over = self._passed_over(partial, evaluated, children.get(partial, ()))
            for child in children.get(partial, ()):
                waits = self._awaited(after.get(child, ()))
                self._add(What.ADVANCED, child, passed_over, parent=partial, waits_for=waits)
                passed_over = None
            is_complete = any(map(_completes, evaluated))
            if is_complete:
                self.ends[partial] = self._end_of_loop(partial, evaluated)
            is_used |= is_complete
            if partial in children or is_complete:
                continue
            waits = self._awaited(left)
            lost = tuple(
                stage for stage in self._awaited(evaluation.state for evaluation in evaluated) if stage not in waits
            )
            goes_on = bool(waits) and not lost
            case = frozenset(map(id, evaluated)), lost, goes_on  # partial matches share equal evaluations
            if case not in reasons:
                reasons[case] = self._reason(partial, evaluated, None if goes_on else lost)
            if goes_on:
                waiting.setdefault((waits, reasons[case].text), (reasons[case], []))[1].append(partial)
            else:
                self._gone(partial, left, reasons[case])
        for (waits, _), (reason, (first, *others)) in waiting.items():
            self._add(What.WAITED, first, reason, waits_for=waits, others=[other.number for other in others])
        began = [child for child in made if not child.parent]
        passed_over = self._passed_over(Partial.none(), at_start, began) if began else None
        for child in began:
            self._add(What.BEGAN, child, passed_over, waits_for=self._awaited(after.get(child, ())))
            passed_over = None
        if not is_used:
            self._add(What.NOTHING, None, nothing)

    def time(self, moment: int, next_row: int | None, expired: Sequence[Expired], runs: Iterable[Run]) -> None:
        """Record that time has passed up to *moment*, before the event *next_row*; *runs* remain."""
        self.row, self.moment = None, moment
        left = _by_partial(runs)
        for partial, bounds in sorted(_grouped((bound.run.partial, bound) for bound in expired).items()):
            _, why, row, deadline = min(bounds, key=lambda bound: bound.deadline)
            what = "its first event" if why is Why.WINDOW else "the event before"
            text = f"{why.value} over: {_span(deadline - int(self.times[row]))} after {what} ({row + 1})"
            if next_row is not None and self.times[next_row] > deadline:
                behind = _span(int(self.times[next_row]) - deadline)
                text += f"; event {next_row + 1} is {behind} after its end"
            self._gone(partial, left.get(partial, ()), _Reason(why, text))
        self.timeouts += [
            TraceMatch(self.shown_time(bound.deadline), self._taken(bound.run.partial)) for bound in expired
        ]

    def end(self, runs: Iterable[Run], done: Iterable[Run]) -> None:
        """Record that the input has ended, which ends *runs* and completes *done*."""
        self.row = self.moment = None
        completed = {run.partial for run in done}
        for partial, states in _by_partial(runs).items():
            if partial not in completed:
                text = f"the input ends while it still waits for {either(self._awaited(states))}"
                self._add(What.DROPPED, partial, _Reason(Why.END, text))

    def discarded(self, partial: Partial, preferred: Partial, stage: str | None) -> None:
        """Record that *preferred* is preferred to a match: it has more events in *stage*; None: it was complete before."""
        text = f"#{preferred.number} began with the same event and is preferred: "
        if stage is None:
            names = " and ".join(
                name for name, atom in self.atoms.items() if atom.quantifier.taking is Taking.GIVING_BACK
            )
            text += f"it has as many events in {printable(names)} and was complete first"
        else:
            text += (
                f"{len(preferred.rows(stage)):,} events in {printable(stage)} instead of {len(partial.rows(stage)):,}"
            )
        self._add(What.DISCARDED, partial, _Reason(Why.PREFERRED, text))

    def matched(self, run: Run, time: int, discarded: Iterable[Partial]) -> None:
        """Record a match that is emitted with this time and discards overlapping partial matches."""
        self.matches.append(TraceMatch(self.shown_time(time), self._taken(run.partial)))
        name = f"match {len(self.matches)}"
        because = self._why_complete(run)
        self._add(What.MATCHED, run.partial, because._replace(text=name + because.text))
        for partial in sorted(discarded):
            self._add(What.DROPPED, partial, _Reason(Why.SKIPPED, f"skipped after {name} ({self.skip.value})"))

    def held(self, partials: Iterable[Partial], runs: Iterable[Run]) -> None:
        """Record complete matches that one of *runs* could still discard."""
        for partial in sorted(partials):
            rivals = sorted({run.partial for run in runs if run.partial and run.partial.origin is partial.origin})
            if rivals and self.prefers:
                text = f"held back: {_named(rivals)} began with the same event and could still be preferred"
                reason = _Reason(Why.PREFERRED, text)
            else:
                first = min((run.first, run.partial) for run in runs)[1].number
                reason = _Reason(Why.SKIPPED, f"held back: #{first} began earlier and could still discard it")
            self._add(What.HELD, partial, reason)

    def finish(self, runs: Iterable[Run], complete: Iterable[Run]) -> None:
        """Record the partial matches that still wait when no more events follow; each is compared with the closest so far."""
        for partial, states in _by_partial(runs).items():
            step = TraceStep(
                What.WAITED, None, None, partial.number, took=self._taken(partial), waits_for=self._awaited(states)
            )
            self.waiting.append(step)
            self._compare(partial, step)
        for partial in _by_partial(complete):
            self.waiting.append(TraceStep(What.HELD, None, None, partial.number, took=self._taken(partial)))

    # ------------------------------------------------------------------ steps

    def _gone(self, partial: Partial, left: Sequence[NfaState], reason: _Reason) -> None:
        """Record that a partial match was dropped, or remains only in the states *left*."""
        if left:
            self._add(What.NARROWED, partial, reason, waits_for=self._awaited(left))
        else:
            self._add(What.DROPPED, partial, reason)

    def _add(
        self,
        what: What,
        partial: Partial | None,
        reason: _Reason | None = None,
        *,
        parent: Partial | None = None,
        waits_for: tuple[str, ...] = (),
        others: Sequence[int] = (),
    ) -> None:
        is_full = len(self.steps) >= self.limit and what not in (What.MATCHED, What.LATE)
        if is_full:
            self.omitted[what] += 1
            if what is not What.DROPPED:
                return
        step = TraceStep(
            what,
            event=None if self.row is None else self.row + 1,
            time=None if self.moment is None else self.shown_time(self.moment),
            partial=None if partial is None else partial.number,
            parent=None if parent is None else parent.number,
            took=() if partial is None else self._taken(partial),
            waits_for=waits_for,
            why=reason.why if reason is not None else None,
            reason=reason.text if reason is not None else "",
            checks=reason.checks if reason is not None else (),
            others=tuple(others[: MAX_NAMED - 1]),
            more=len(others[MAX_NAMED - 1 :]),
        )
        if partial is not None and what is What.DROPPED:
            self._compare(partial, step)
        if not is_full:
            self.steps.append(step)

    def _taken(self, partial: Partial) -> Taken:
        events: dict[str, list[int]] = {}
        for taken in partial.path():
            events.setdefault(taken.stage, []).append(taken.row + 1)
        return tuple((stage, tuple(events[stage])) for stage in self.stages if stage in events)

    # ------------------------------------------------------------------ reasons

    def _why_complete(self, run: Run) -> _Reason:
        """Why a match is complete without a further event; no text if its last event completed it."""
        stage = printable(run.state.stage)
        if run.state.kind is NfaStateKind.LAST:
            return _Reason(Why.END, f", because event {run.partial.row + 1} is the last one")
        if run.state.kind is not NfaStateKind.PENDING:
            return self.ends.get(run.partial, _Reason(Why.CONDITION, ""))
        if self.atoms[run.state.stage].contiguity.negated:
            return _Reason(Why.CONDITION, f", because no {stage} occurred")
        what = {Why.WINDOW: "window", Why.GAP: "window between its events", Why.END: "input"}[run.why]
        return _Reason(run.why, f", because the end of the {what} ends the loop {stage}")

    def _end_of_loop(self, partial: Partial, evaluations: Sequence[StateEvaluation]) -> _Reason:
        """Why a loop that takes as many events as it can has ended with the current event; no text if there is none."""
        assert self.row is not None
        loops = [evaluation for evaluation in evaluations if evaluation.state.kind is NfaStateKind.PENDING]
        ended = [loop for loop in loops if _completes(loop)]
        if not ended:
            return _Reason(Why.CONDITION, "")
        why, _, checks = self._reason(partial, ended)
        return _Reason(why, f", because event {self.row + 1} ends the loop {printable(ended[0].state.stage)}", checks)

    def _not_allowed(self, evaluations: Sequence[StateEvaluation]) -> _Reason | None:
        """Why no match may begin with the current event, although a first stage accepts it; None: nothing forbids it."""
        none = Partial.none()
        for edge in (edge for evaluation in evaluations for _, edge in evaluation.refused):
            for guard in _conjuncts(edge.guard):
                condition = self.conditions.of_key(guard)
                row = None if condition is None else self.conditions.blocking(condition)
                if condition is None or row is None:
                    continue
                takes = [e.guard for at in proceeding(edge.target) for e in at.edges if e.action is Action.TAKE]
                if not any(self.conditions.tried(take, none) for take in takes):
                    checks = self.conditions.checks(takes, none)
                    return _Reason(Why.CONDITION, _joined(checks), checks)
                checks = self.conditions.checks([guard], none)
                if isinstance(condition, FirstEventCondition):
                    text = f"it is not the first event of the key, which is event {row + 1}"
                    return _Reason(Why.NOT_FIRST, text, checks)
                assert self.row is not None
                before = _span(int(self.times[self.row] - self.times[row]))
                text = (
                    f'forbidden event, without "{printable(condition.stage)}": event {row + 1} occurred {before} before'
                )
                atom = self.atoms[condition.stage]
                if atom.window is not None:
                    text += f"; {'up to' if atom.inclusive else 'less than'} {duration(atom.window)} is forbidden"
                return _Reason(Why.BEFORE, text, checks)
        return None

    def _reason(
        self, partial: Partial, evaluations: Sequence[StateEvaluation], lost: Sequence[str] | None = None
    ) -> _Reason:
        """Why a partial match did not take the event and so lost the option of the stages *lost* (None: it continues to wait)."""
        assert self.row is not None
        for stop in (edge for evaluation in evaluations for edge in evaluation.stops):
            forbidden = self.atoms[stop.target.stage]
            checks = self.conditions.checks([stop.guard], partial)
            description = _joined(checks) or "it forbids every event"
            text = f'forbidden event, {CONTIGUITY[forbidden.contiguity]} "{printable(forbidden.name)}": {description}'
            return _Reason(Why.FORBIDDEN, text, checks)
        not_allowed = None if partial else self._not_allowed(evaluations)
        if not_allowed is not None:
            return not_allowed
        refusals = self._refusals(partial, evaluations)
        if lost:
            refusals = {key: guards for key, guards in refusals.items() if key[0] in lost} or refusals
        # An event that begins no match is explained by the condition; a partial match ends for the reason of its loop.
        for stage in {stage for stage, _, _ in refusals}:
            ends = [key for key in refusals if key[0] == stage and key[2]]
            others = [key for key in refusals if key[0] == stage and not key[2]]
            for key in (others if partial else ends) if ends and others else ():
                del refusals[key]
        checked = {key: self.conditions.checks(guards, partial) for key, guards in refusals.items()}
        stages = list(dict.fromkeys(stage for stage, _, _ in checked))
        texts = [
            (f"{printable(stage)}: " if len(stages) > 1 else "") + _refusal(why, loop, checks)
            for (stage, why, loop), checks in checked.items()
        ]
        text, every = _listed(texts), tuple(check for checks in checked.values() for check in checks)
        if lost is not None and END_OF_INPUT in lost:
            followed = (
                f"event {self.row + 1} follows event {partial.row + 1}, so that was not the last event of the key"
            )
            return _Reason(Why.NOT_LAST, f"{followed}; {text}" if text else followed, every)
        kinds = {why for _, why, _ in checked}
        for why in (Why.UNTIL, Why.GREEDY, Why.RELUCTANT):
            if why in kinds:
                return _Reason(why, text, every)
        too_late = next((late for evaluation in evaluations for late in evaluation.too_late), None)
        if too_late is not None and (gap := too_late[1].gap) is not None:
            late = _span(int(self.times[self.row] - self.times[partial.row]))
            bound = f"less than {duration(gap)} after event {partial.row + 1}"
            stage = too_late[0].stage
            what = "a repetition" if repeats(self.atoms[stage].quantifier) else printable(stage)
            return _Reason(Why.GAP, f"{what} must occur {bound}, this event is {late} after it", every)
        if lost is not None and Why.STRICT in kinds:
            text = f"strict contiguity: the very next event had to be {either(stages)}: {text}"
            return _Reason(Why.STRICT, text, every)
        for combination, heads in self.choices if len(stages) > 1 else ():
            if heads.issuperset(stages):
                what = "alternatives" if combination is Combining.ANY_OF else "elements"
                return _Reason(Why.CONDITION, f"the event begins none of the {what}: {text}", every)
        return _Reason(Why.CONDITION, text, every)

    def _passed_over(
        self, partial: Partial, evaluations: Sequence[StateEvaluation], children: Sequence[Partial]
    ) -> _Reason | None:
        """Why the current event, which *children* took, was not taken for other stages as well: for further alternatives, or
        because of a greedy or reluctant loop; None: there are none.
        """
        if not (self.may_pass_over and children):
            return None
        taken = {child.stage for child in children}
        alternatives = [heads for combination, heads in self.choices if combination is Combining.ANY_OF]
        siblings = {stage for heads in alternatives if heads & taken for stage in heads} - taken
        refusals = self._refusals(partial, evaluations)
        shared = Counter(stage for stage, _, _ in refusals)
        checked = {
            key: self.conditions.checks(guards, partial)
            for key, guards in refusals.items()
            if key[0] in siblings
            or (key[0] not in taken and key[1] in (Why.GREEDY, Why.RELUCTANT) and shared[key[0]] == 1)
        }
        texts = [
            f"not {printable(stage)}: {_refusal(why, loop, checks)}" for (stage, why, loop), checks in checked.items()
        ]
        if not texts:
            return None
        return _Reason(None, _listed(texts), tuple(check for checks in checked.values() for check in checks))

    def _refusals(
        self, partial: Partial, evaluations: Iterable[StateEvaluation]
    ) -> dict[tuple[str, Why, str], list[Guard]]:
        """Why stages did not take the event, and why the event is not a forbidden one: a map from (stage, reason, the loop
        with the until condition or greedy quantifier) to the guards that did not hold.
        """
        guards: dict[tuple[str, Why, str], list[Guard]] = {}
        for state, edge in (refused for evaluation in evaluations for refused in evaluation.refused):
            is_absence = state.kind is NfaStateKind.PENDING and edge.target.kind is NfaStateKind.STOP
            # A group is not entered because of a loop before or around it, or for want of a condition of its stages.
            stages = [at.stage for at in proceeding(edge.target) if any(e.action is Action.TAKE for e in at.edges)]
            is_entry = edge.action is Action.PROCEED and edge.target.kind is not NfaStateKind.STOP
            if edge.action is not Action.TAKE and not is_absence and not is_entry:
                continue
            is_strict = bool(partial) and all(other.action is not Action.IGNORE for other in state.edges)
            for guard in _conjuncts(edge.guard):
                if self.conditions.tried(guard, partial) is False:
                    why, loop = Why.STRICT if is_strict else Why.CONDITION, ""
                    if isinstance(guard, Not):
                        demands = (Why.UNTIL, guard.until), (Why.GREEDY, guard.greedy), (Why.RELUCTANT, guard.reluctant)
                        why, loop = next((demand for demand in demands if demand[1]), (why, loop))
                    for stage in (stages if loop else ()) if is_entry else (state.stage,):
                        guards.setdefault((stage, why, loop), []).append(guard)
        return guards

    # ------------------------------------------------------------------ progress

    def _awaited(self, states: Iterable[NfaState]) -> tuple[str, ...]:
        """The stages that a partial match in these states waits for."""
        these = frozenset(states)
        if these not in self.waits:
            names: set[str] = set()
            other: dict[str, None] = {}
            for at in (at for state in sorted(these, key=lambda state: state.number) for at in proceeding(state)):
                is_loop = at.kind is NfaStateKind.PENDING and not self.atoms[at.stage].contiguity.negated
                if is_loop:
                    other[f"the end of the loop {at.stage}"] = None
                elif at.kind is NfaStateKind.PENDING:
                    other[f"the end of the window without {at.stage}"] = None
                elif at.kind is NfaStateKind.LAST:
                    other[END_OF_INPUT] = None
                for edge in at.edges:
                    if edge.action is Action.TAKE:
                        names.add(at.stage)
                    elif edge.action is Action.IGNORE and edge.target.kind is NfaStateKind.FINAL and not is_loop:
                        other[f"an event that is not {at.stage}"] = None
            self.waits[these] = (*(stage for stage in self.stages if stage in names), *other)
        return self.waits[these]

    def _compare(self, partial: Partial, step: TraceStep) -> None:
        """Keep the partial match that got farthest; among equals, the last one."""
        if partial.complete and step.why is not Why.SKIPPED:
            return
        if self.closest is None or self._far(step.took) >= self._far(self.closest.took):
            self.closest, self.progress = step, "was complete" if partial.complete else self._reached(step.took)

    def _far(self, took: Taken) -> tuple[int, int]:
        """The place of the last stage that took an event, and the number of events taken."""
        return max(self.places[stage] for stage, _ in took), sum(len(events) for _, events in took)

    def _reached(self, took: Taken) -> str:
        at, _ = self._far(took)
        name = max((events[-1], stage) for stage, events in took if self.places[stage] == at)[1]
        often, events = count_text(self.atoms[name].quantifier), len(dict(took)[name])
        times = f" {events} times ({often} required)" if often not in ("", "?") else ""
        return f"reached {printable(name)}{times}, stage {at + 1} of {1 + max(self.places.values())}"


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _by_partial(runs: Iterable[Run]) -> dict[Partial, list[NfaState]]:
    """The states of each partial match, by number."""
    return _grouped((run.partial, run.state) for run in sorted(runs, key=lambda run: run.partial) if run.partial)


def _named(partials: Sequence[Partial]) -> str:
    more = len(partials) - MAX_NAMED
    return ", ".join(f"#{partial.number}" for partial in partials[:MAX_NAMED]) + (
        f" and {more:,} more" if more > 0 else ""
    )


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED
    return "; ".join(texts if more <= 0 else [*texts[:MAX_NAMED], f"and {more:,} more"])


def _places(pattern: PatternSequence) -> dict[str, int]:
    places: dict[str, int] = {}

    def visit(chain: PatternSequence, at: int) -> int:
        """Number the stages of a chain from *at* on. Returns the next number."""
        for stage in chain.stages:
            if stage.group is not None and stage.group.combination is Combining.SEQUENCE:
                at = visit(stage.group, at)
            elif not stage.contiguity.negated:
                atoms = [stage] if stage.group is None else stage.group.atoms()
                places.update({atom.name: at for atom in atoms if not atom.contiguity.negated})
                at += 1
        return at

    visit(pattern, 0)
    return places


def _heads(stage: Stage) -> Iterator[str]:
    if stage.group is None:
        yield stage.name
    else:
        is_sequence = stage.group.combination is Combining.SEQUENCE
        for first in stage.group.stages[:1] if is_sequence else stage.group.stages:
            yield from _heads(first)


def _completes(evaluation: StateEvaluation) -> bool:
    """Whether a partial match is complete without the event."""
    return any(
        edge.action is Action.IGNORE and edge.target.kind is NfaStateKind.FINAL for _, edge in evaluation.followed
    )


def _conjuncts(guard: Guard) -> list[Guard]:
    return [*_conjuncts(guard.left), *_conjuncts(guard.right)] if isinstance(guard, Both) else [guard]


def _refusal(why: Why, loop: str, checks: Sequence[Check]) -> str:
    description = _joined(checks)
    because = f", {description}" if description else ""
    if why is Why.UNTIL:
        return f"the until condition of {printable(loop)} holds, {description}"
    if why is Why.GREEDY:
        return f"the greedy loop {printable(loop)} takes the event{because}"
    if why is Why.RELUCTANT:
        return f"the reluctant stage {printable(loop)} leaves the event to the next stage{because}"
    return description


def _joined(checks: Iterable[Check]) -> str:
    return " and ".join(map(str, checks))


def _span(micros: int) -> str:
    return duration(timedelta(microseconds=micros))
