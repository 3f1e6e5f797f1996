"""Records what the interpreter does as the steps of a trace, each with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TimeColumn
from asterism.errors import printable
from asterism.patterns.automaton import Action, Both, Guard, Nfa, NfaState, NfaStateKind, Not
from asterism.patterns.pattern import Pattern
from asterism.patterns.wording import CONTIGUITY, count_text
from asterism.text.printable import duration, either
from asterism.trace.conditions import Conditions
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
    proceeding,
)

MAX_STEPS = 20_000
"""The default number of steps that are kept. Matches, timeouts and the summary are always complete."""
MAX_NAMED = 8
"""The maximum number of partial matches that are listed in one step."""


class _Reason(NamedTuple):
    why: Why
    text: str
    checks: tuple[Check, ...] = ()


class Recorder:
    """
    :param times: the times of the events, in microseconds
    :param time_column: the time column; None: processing time
    :param limit: the maximum number of steps that are kept
    """

    def __init__(
        self,
        pattern: Pattern,
        nfa: Nfa,
        times: Ints,
        time_column: TimeColumn | None,
        conditions: Conditions,
        limit: int = MAX_STEPS,
    ) -> None:
        self.times, self.time_column, self.conditions, self.limit = times, time_column, conditions, limit
        self.skip = pattern.skip.kind.value
        self.stages = nfa.stages
        self.atoms = {stage.name: stage for stage in pattern.atoms()}
        self.positive = [name for name, stage in self.atoms.items() if not stage.contiguity.negated]
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
        self.late_events: list[int] = []
        self.waiting: list[TraceStep] = []
        self.closest: TraceStep | None = None
        self.progress = ""
        """how far *closest* got, as text"""

    def shown_time(self, time: int) -> Any:
        if self.time_column is None or time in (BEFORE_TIME, END_OF_TIME):
            return None
        return self.time_column.from_micros(np.array([time]))[0].as_py()

    # ------------------------------------------------------------------ what the interpreter does

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
        """Record an event: what each partial match did with it, the partial matches that took it, and the incomplete ones
        that remain.
        """
        self.row, self.moment = row, int(self.times[row])
        after, children = _by_partial(runs), _grouped((child.parent, child) for child in made)
        reasons: dict[Any, _Reason] = {}
        waiting: dict[tuple[tuple[str, ...], str], tuple[_Reason, list[Partial]]] = {}
        nothing = _Reason(
            Why.FORBIDDEN, "a forbidden event arrived before any event was taken; in Flink, nothing can match after it"
        )
        is_used = bool(made)
        for partial in sorted(evaluations):
            own, left = evaluations[partial], after.get(partial, [])
            if not partial:
                nothing = nothing if made else self._reason(partial, own)
                continue
            for child in children.get(partial, ()):
                self._add(What.ADVANCED, child, parent=partial, waits_for=self._awaited(after.get(child, ())))
            is_complete = any(map(_completes, own))
            is_used |= is_complete
            if partial in children or is_complete:
                continue
            waits = self._awaited(left)
            lost = tuple(stage for stage in self._awaited(evaluation.state for evaluation in own) if stage not in waits)
            goes_on = bool(waits) and not lost
            case = frozenset(map(id, own)), lost, goes_on  # equal looks are shared by partial matches
            if case not in reasons:
                reasons[case] = self._reason(partial, own, None if goes_on else lost)
            if goes_on:
                waiting.setdefault((waits, reasons[case].text), (reasons[case], []))[1].append(partial)
            else:
                self._gone(partial, left, reasons[case])
        for (waits, _), (reason, (first, *others)) in waiting.items():
            self._add(What.WAITED, first, reason, waits_for=waits, others=[one.number for one in others])
        for child in made:
            if not child.parent:
                self._add(What.BEGAN, child, waits_for=self._awaited(after.get(child, ())))
        if not is_used:
            self._add(What.NOTHING, None, nothing)

    def time(self, moment: int, next_row: int | None, expired: Sequence[Expired], runs: Iterable[Run]) -> None:
        """Record that time has passed up to *moment*, before the event *next_row*; *runs* remain."""
        self.row, self.moment = None, moment
        left = _by_partial(runs)
        for partial, bounds in sorted(_grouped((one.run.partial, one) for one in expired).items()):
            _, why, row, deadline = min(bounds, key=lambda one: one.deadline)
            what = "its first event" if why is Why.WINDOW else "the event before"
            text = f"{why.value} over: {_span(deadline - int(self.times[row]))} after {what} ({row + 1})"
            if next_row is not None and self.times[next_row] > deadline:
                behind = _span(int(self.times[next_row]) - deadline)
                text += f"; event {next_row + 1} is {behind} after its end"
            self._gone(partial, left.get(partial, ()), _Reason(why, text))
        self.timeouts += [TraceMatch(self.shown_time(one.deadline), self._taken(one.run.partial)) for one in expired]

    def end(self, runs: Iterable[Run]) -> None:
        """Record that the input has ended, which ends *runs*."""
        self.row = self.moment = None
        for partial, states in _by_partial(runs).items():
            text = f"the input ends while it still waits for {either(self._awaited(states))}"
            self._add(What.DROPPED, partial, _Reason(Why.END, text))

    def matched(self, run: Run, time: int, discarded: Iterable[Partial]) -> None:
        """Record a match that is emitted with this time and discards overlapping partial matches."""
        self.matches.append(TraceMatch(self.shown_time(time), self._taken(run.partial)))
        name = f"match {len(self.matches)}"
        absence = (
            f", because no {printable(run.state.stage)} occurred" if run.state.kind is NfaStateKind.PENDING else ""
        )
        self._add(What.MATCHED, run.partial, _Reason(Why.CONDITION, name + absence))
        for partial in sorted(discarded):
            self._add(What.DROPPED, partial, _Reason(Why.SKIPPED, f"skipped after {name} ({self.skip})"))

    def held(self, partials: Iterable[Partial], runs: Iterable[Run]) -> None:
        """Record complete matches that one of *runs* could still discard."""
        for partial in sorted(partials):
            first = min((run.first, run.partial) for run in runs)[1].number
            reason = f"held back: #{first} began earlier and could still discard it"
            self._add(What.HELD, partial, _Reason(Why.SKIPPED, reason))

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
        for one in partial.path():
            events.setdefault(one.stage, []).append(one.row + 1)
        return tuple((stage, tuple(events[stage])) for stage in self.stages if stage in events)

    # ------------------------------------------------------------------ why

    def _reason(
        self, partial: Partial, evaluations: Sequence[StateEvaluation], lost: Sequence[str] | None = None
    ) -> _Reason:
        """Why a partial match did not take the current event and so lost the option of the stages *lost* (None: it continues
        to wait).
        """
        assert self.row is not None
        for stop in (edge for evaluation in evaluations for edge in evaluation.stops):
            forbidden = self.atoms[stop.target.stage]
            checks = self.conditions.checks([stop.guard], partial)
            description = _joined(checks) or "it forbids every event"
            text = f'forbidden event, {CONTIGUITY[forbidden.contiguity]} "{printable(forbidden.name)}": {description}'
            return _Reason(Why.FORBIDDEN, text, checks)
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
        text, every = "; ".join(texts), tuple(check for checks in checked.values() for check in checks)
        kinds = {why for _, why, _ in checked}
        for why in (Why.UNTIL, Why.GREEDY):
            if why in kinds:
                return _Reason(why, text, every)
        gap = next((edge.gap for evaluation in evaluations for _, edge in evaluation.too_late), None)
        if gap is not None:
            late = _span(int(self.times[self.row] - self.times[partial.row]))
            bound = f"less than {duration(gap)} after event {partial.row + 1}"
            return _Reason(Why.GAP, f"a repetition must occur {bound}, this event is {late} after it", every)
        if lost is not None and Why.STRICT in kinds:
            text = f"strict contiguity: the very next event had to be {either(stages)}: {text}"
            return _Reason(Why.STRICT, text, every)
        return _Reason(Why.CONDITION, text, every)

    def _refusals(
        self, partial: Partial, evaluations: Iterable[StateEvaluation]
    ) -> dict[tuple[str, Why, str], list[Guard]]:
        """Why stages did not take the event, and why the event is not a forbidden one: a map from (stage, reason, the loop
        with the until condition or greedy quantifier) to the guards that did not hold.
        """
        found: dict[tuple[str, Why, str], list[Guard]] = {}
        for state, edge in (refused for evaluation in evaluations for refused in evaluation.refused):
            is_absence = state.kind is NfaStateKind.PENDING and edge.target.kind is NfaStateKind.STOP
            if edge.action is not Action.TAKE and not is_absence:
                continue
            is_strict = bool(partial) and all(other.action is not Action.IGNORE for other in state.edges)
            for guard in _conjuncts(edge.guard):
                if self.conditions.tried(guard, partial) is False:
                    why, loop = Why.STRICT if is_strict else Why.CONDITION, ""
                    if isinstance(guard, Not) and (guard.until or guard.greedy):
                        why, loop = Why.UNTIL if guard.until else Why.GREEDY, guard.until or guard.greedy
                    found.setdefault((state.stage, why, loop), []).append(guard)
        return found

    # ------------------------------------------------------------------ how far

    def _awaited(self, states: Iterable[NfaState]) -> tuple[str, ...]:
        """The stages that a partial match in these states waits for."""
        these = frozenset(states)
        if these not in self.waits:
            names: set[str] = set()
            other: dict[str, None] = {}
            for at in (at for state in sorted(these, key=lambda state: state.number) for at in proceeding(state)):
                if at.kind is NfaStateKind.PENDING:
                    other[f"the end of the window without {at.stage}"] = None
                for edge in at.edges:
                    if edge.action is Action.TAKE:
                        names.add(at.stage)
                    elif edge.action is Action.IGNORE and edge.target.kind is NfaStateKind.FINAL:
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
        """The index of the last stage that took an event, and the number of events taken."""
        return max(self.positive.index(stage) for stage, _ in took), sum(len(events) for _, events in took)

    def _reached(self, took: Taken) -> str:
        at, _ = self._far(took)
        name = self.positive[at]
        often, events = count_text(self.atoms[name].quantifier), len(dict(took)[name])
        times = f" {events} times ({often} required)" if often not in ("", "?") else ""
        return f"reached {printable(name)}{times}, stage {at + 1} of {len(self.positive)}"


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _by_partial(runs: Iterable[Run]) -> dict[Partial, list[NfaState]]:
    """The states of each partial match, by number."""
    return _grouped((run.partial, run.state) for run in sorted(runs, key=lambda run: run.partial) if run.partial)


def _completes(evaluation: StateEvaluation) -> bool:
    """Whether a partial match is complete without the event."""
    return any(
        edge.action is Action.IGNORE and edge.target.kind is NfaStateKind.FINAL for _, edge in evaluation.followed
    )


def _conjuncts(guard: Guard) -> list[Guard]:
    return [*_conjuncts(guard.left), *_conjuncts(guard.right)] if isinstance(guard, Both) else [guard]


def _refusal(why: Why, loop: str, checks: Sequence[Check]) -> str:
    description = _joined(checks)
    if why is Why.UNTIL:
        return f"the until condition of {printable(loop)} holds, {description}"
    if why is Why.GREEDY:
        return f"the greedy loop {printable(loop)} takes the event" + (f", {description}" if description else "")
    return description


def _joined(checks: Iterable[Check]) -> str:
    return " and ".join(map(str, checks))


def _span(micros: int) -> str:
    return duration(timedelta(microseconds=micros))
