"""Where a partial match of one automaton continues in another one.

The events that a partial match has accepted are followed in both automata at once, by the names of their stages. Conditions are
not evaluated again: what was accepted remains accepted, and what was skipped remains skipped. So after each event there is a set
of pairs of states, in which the partial match can be in the former and in the new automaton.

See docs/decisions/0132.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from asterism.changes.plan import CONTINUES, DROPPED, PlanPart
from asterism.matching.stored_matches import CHANGE
from asterism.patterns.automaton import Action, NfaStateKind

MAX_PAIRS = 10_000
"""The maximum number of pairs of states after an event. With more, a change is not followed."""
_ENDS = (NfaStateKind.FINAL, NfaStateKind.STOP)
_Pair = tuple[int, int, bool]
"""A state of the former automaton, one of the new automaton, and whether an event was skipped since the last accepted one."""


@dataclass(frozen=True)
class StoredAutomaton:
    """An automaton as a definition describes it.

    :ivar states: of each state the stage that it waits for, its kind, and its gap in microseconds (0: none)
    :ivar edges: of each state, those that leave it: action, target, gap
    """

    stages: tuple[str, ...]
    states: Sequence[tuple[str, int, int]]
    edges: Sequence[Sequence[tuple[int, int, int]]] | None
    start: int
    window: int

    @classmethod
    def of_details(cls, details: Mapping[str, Any]) -> StoredAutomaton:
        change = details.get(CHANGE, {})
        states = [tuple(state) for state in details["states"]]
        edges = change.get("edges")
        start = change.get("start", next(n for n, state in enumerate(states) if state[1] == NfaStateKind.START))
        followed = None if edges is None else [[tuple(edge) for edge in of_state] for of_state in edges]
        return cls(tuple(details["stages"]), states, followed, start, int(details["window"]))

    @cached_property
    def _reached(self) -> list[list[int]]:
        """Of each state, itself and the states that PROCEED edges lead to."""
        reached = []
        for state in range(len(self.states)):
            todo = {state: None}
            for at in (order := [state]):
                for action, target, _ in (self.edges or ())[at]:
                    if action == Action.PROCEED and target not in todo and self.states[target][1] != NfaStateKind.STOP:
                        todo[target] = None
                        order.append(target)
            reached.append(order)
        return reached

    @cached_property
    def taken(self) -> list[dict[str, list[int]]]:
        """Of each state, where it goes with an event of a stage."""
        return [self._targets(state) for state in range(len(self.states))]

    def _targets(self, state: int) -> dict[str, list[int]]:
        targets: dict[str, list[int]] = {}
        for at in self._reached[state]:
            for action, target, _ in (self.edges or ())[at]:
                if action == Action.TAKE and target not in targets.setdefault(self.states[at][0], []):
                    targets[self.states[at][0]].append(target)
        return targets

    @cached_property
    def ignored(self) -> list[list[int]]:
        """Of each state, where it goes with an event that it skips."""
        skipped = []
        for reached in self._reached:
            edges = [edge for at in reached for edge in (self.edges or ())[at]]
            skipped.append(list(dict.fromkeys(target for action, target, _ in edges if action == Action.IGNORE)))
        return skipped

    @cached_property
    def complete(self) -> list[bool]:
        """Of each state, whether the match is complete in it, or when its time is over."""
        kinds = (NfaStateKind.FINAL, NfaStateKind.LAST, NfaStateKind.PENDING)
        return [any(self.states[at][1] in kinds for at in reached) for reached in self._reached]

    @cached_property
    def places(self) -> list[tuple[str, int]]:
        """Of each state, its stage and its number among the states of this stage."""
        counts: dict[str, int] = {}
        places = []
        for stage, *_ in self.states:
            places.append((stage, counts.get(stage, 0)))
            counts[stage] = counts.get(stage, 0) + 1
        return places


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a partial match is in both automata: the *pairs* of states; none: it cannot continue, for a *reason*."""

    pairs: frozenset[_Pair]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a partial match continues: in one or more states; none: it does not, for a *reason*."""

    states: tuple[int, ...]
    reason: str | None = None


class AutomatonChange:
    """
    :param renamed: new names of stages, by their former names
    :param lacking: of each new stage, why its events cannot be continued with; those of other stages can
    """

    def __init__(
        self,
        old: StoredAutomaton,
        new: StoredAutomaton,
        renamed: Mapping[str, str],
        lacking: Mapping[str, str] | None = None,
    ) -> None:
        self.old, self.new, self._lacking = old, new, dict(lacking or {})
        self._names = {stage: renamed.get(stage, stage) for stage in old.stages}
        numbers = {stage: number for number, stage in enumerate(new.stages)}
        self.stages = [numbers.get(self._names[stage], -1) for stage in old.stages]
        """for each former stage its number now; -1: it was removed"""
        states = [(self._names.get(stage, stage), kind) for stage, kind, _ in old.states]
        alike = states == [(stage, kind) for stage, kind, _ in new.states] and old.start == new.start
        if alike and old.edges is None:  # a definition of an earlier release, without edges
            self.old = old = StoredAutomaton(old.stages, old.states, new.edges, old.start, old.window)
        self.is_same = alike and -1 not in self.stages and _shape(old) == _shape(new)
        """whether each state is the same in both"""
        self._unknown = None
        if not self.is_same and (old.edges is None or new.edges is None):
            self._unknown = "the two patterns cannot be compared: one has too many states, or no edges were stored"
        self._progress: list[_Progress] = []
        self._numbers: dict[_Progress, int] = {}
        self._after: dict[tuple[int, int], int] = {}
        self._places: dict[tuple[int, int], Continuation] = {}
        begin = frozenset([(old.start, new.start, False)])
        self.begin = self._number(_Progress(begin, self._unknown))
        """the number of the progress without an event"""

    def _number(self, progress: _Progress) -> int:
        if progress not in self._numbers:
            self._numbers[progress] = len(self._progress)
            self._progress.append(progress)
        return self._numbers[progress]

    # ------------------------------------------------------------------ events

    def after(self, progress: int, stage: int) -> int:
        """The number of the progress after an event of a former stage."""
        key = progress, stage
        if key not in self._after:
            self._after[key] = self._number(self._taken(self._progress[progress], stage))
        return self._after[key]

    def _taken(self, before: _Progress, number: int) -> _Progress:
        stage = self.old.stages[number]
        name = None if self.stages[number] < 0 else self._names[stage]
        if before.reason is not None:
            return before
        if name is not None and name in self._lacking:
            return _Progress(frozenset(), self._lacking[name])
        if self.is_same:
            return before
        pairs = self._skipped(before.pairs)
        taken: set[_Pair] = set()
        for state, new_state, _ in pairs:
            for target in self.old.taken[state].get(stage, ()):
                if name is not None:
                    taken.update((target, new, False) for new in self.new.taken[new_state].get(name, ()))
                elif new_state == self.new.start:
                    taken.add((target, new_state, False))
                else:  # the event of a stage that was removed is skipped
                    taken.update((target, new, True) for new in self.new.ignored[new_state] or [new_state])
        if len(taken) > MAX_PAIRS:
            return _Progress(frozenset(), "the two patterns have too many states in common to be compared")
        if not taken:
            return _Progress(frozenset(), self._refusal({new for _, new, _ in pairs}, name or stage))
        return _Progress(frozenset(taken))

    def _skipped(self, pairs: Iterable[_Pair]) -> set[_Pair]:
        """The pairs after any number of skipped events. What was skipped is not judged by the new pattern."""
        reached = set(pairs)
        todo = list(reached)
        while todo and len(reached) <= MAX_PAIRS:
            state, new_state, _ = todo.pop()
            skips = [] if new_state == self.new.start else self.new.ignored[new_state]
            for target in self.old.ignored[state]:
                for new_target in skips or [new_state]:
                    pair = target, new_target, True
                    if pair not in reached:
                        reached.add(pair)
                        todo.append(pair)
        return reached

    def _refusal(self, states: Iterable[int], stage: str) -> str:
        wanted = sorted({name for state in states for name in self.new.taken[state]})
        if not wanted:
            return f'it has accepted an event of "{stage}", after which nothing is left of the new pattern'
        waits = " or ".join(f'"{name}"' for name in wanted)
        return f'it has accepted an event of "{stage}", where the new pattern accepts {waits}'

    # ------------------------------------------------------------------ states

    def place(self, progress: int, state: int) -> Continuation:
        """Where a partial match with this progress continues that was in *state*."""
        key = progress, state
        if key not in self._places:
            self._places[key] = self._found(self._progress[progress], state)
        return self._places[key]

    def _found(self, progress: _Progress, state: int) -> Continuation:
        if progress.reason is not None:
            return Continuation((), progress.reason)
        if self.is_same:
            return Continuation((state,))
        pairs = self._skipped(progress.pairs)
        skipped = min((s for old, _, s in pairs if old == state), default=None)
        if skipped is None:
            return Continuation((), "its state is not one of the former pattern")
        candidates = {new for old, new, s in pairs if (old, s) == (state, skipped)}
        if self.new.start in candidates:
            return Continuation((), "all stages of which it has accepted an event were removed")
        resting = sorted((new for new in candidates if self.new.states[new][1] not in _ENDS), reverse=True)
        if not resting:
            return Continuation((), "the new pattern is complete with the events that it has accepted")
        rest = {old for old, _, _ in pairs if self.old.states[old][1] not in _ENDS}
        same = [new for new in resting if self._corresponds(state, new)][:1]
        others = [new for new in resting if not any(self._corresponds(old, new) for old in rest)]
        return Continuation(tuple(same + others or resting[:1]))

    def _corresponds(self, state: int, new_state: int) -> bool:
        """Whether the states are in the same place of the same stage."""
        stage, number = self.old.places[state]
        new_stage, new_number = self.new.places[new_state]
        if self._names.get(stage, stage) != new_stage:
            return False
        if self._sizes[0].get(stage) == self._sizes[1].get(new_stage):
            return number == new_number
        return self.old.states[state][1] == self.new.states[new_state][1]

    @cached_property
    def _sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The number of states of each stage, in both automata."""
        old, new = ({stage: number + 1 for stage, number in each.places} for each in (self.old, self.new))
        return old, new

    def waits(self, states: Sequence[int], before: str) -> str:
        """How a partial match continues in some states, if it waits for another stage than *before*."""
        now = list(dict.fromkeys(self.new.states[state][0] for state in states))
        return "" if now == [before] else f"waits for {' and '.join(now)}"

    def fates(self, what: str) -> list[PlanPart]:
        """What becomes of all partial matches that there can be, by their last stage, in the order in which they are reached. Of
        very many, the first are followed.

        :param what: the name of partial matches
        """
        if self.old.edges is None:
            return [PlanPart(what, "", "", DROPPED, self._unknown or "")]
        begin = (self.begin, self.old.start, -1)
        known = {begin: None}
        todo = [begin]
        for progress, state, last in todo:
            reached = [(progress, target, last) for target in self.old.ignored[state]]
            for stage, targets in self.old.taken[state].items():
                number = self.old.stages.index(stage)
                after = self.after(progress, number)
                reached += [(after, target, number) for target in targets]
            for each in reached:
                if each not in known and len(known) < MAX_PAIRS:
                    known[each] = None
                    todo.append(each)
        parts: dict[PlanPart, None] = {}
        for progress, state, last in known:
            waits_for, kind, _ = self.old.states[state]
            if last >= 0 and kind not in _ENDS:
                place = self.place(progress, state)
                reason = place.reason or self.waits(place.states, waits_for)
                outcome = CONTINUES if place.states else DROPPED
                parts[PlanPart(what, self.old.stages[last], waits_for, outcome, reason)] = None
        return list(parts)

    def is_complete(self, progress: int) -> str | None:
        """None if a finished match with these events is one of the new pattern, too; otherwise why not."""
        at = self._progress[progress]
        if at.reason is not None:
            return at.reason
        if self.is_same or any(self.new.complete[new] for _, new, _ in at.pairs):
            return None
        wanted = sorted({name for _, new, _ in at.pairs for name in self.new.taken[new]})
        return f"the new pattern is not complete with its events: it waits for {' or '.join(map(repr, wanted))}"


def _shape(automaton: StoredAutomaton) -> list[list[tuple[int, int]]] | None:
    if automaton.edges is None:
        return None
    return [[(action, target) for action, target, _ in edges] for edges in automaton.edges]
