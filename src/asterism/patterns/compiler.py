"""Pattern to automaton.

The chain is compiled from its last stage to its first. Each stage becomes a few states before a *sink*, the state that was
built for the following stage. The order of edges matters: it is the order of results.

Source: the construction of Flink's ``NFACompiler`` (flink-cep 2.3). The text and code are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from asterism.arguments import expect
from asterism.errors import MalformedPatternError, StreamDefinitionError
from asterism.patterns.automaton import (
    ALWAYS,
    Action,
    Both,
    Either,
    Guard,
    Nfa,
    NfaState,
    NfaStateKind,
    Not,
    Test,
    both,
)
from asterism.patterns.conditions import (
    AndCondition,
    Condition,
    IterativeCondition,
    NotCondition,
    OrCondition,
    PythonCondition,
)
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Contiguity, PatternSequence, QuantifierKind, Stage

MAX_STATES = 20_000  # a larger pattern is a mistake; the tables of this many states take some megabytes
MAX_STOPS = 100_000
"""Edges to STOP states: one for each forbidden stage in each state where it applies."""


def check_pattern(pattern: Any) -> None:
    """Raise :class:`~asterism.errors.MalformedPatternError` unless *pattern* is a complete pattern."""
    expect(
        MalformedPatternError,
        pattern,
        PatternSequence,
        "a pattern must be a Pattern",
        'Pattern.begin("a").where("...")',
    )
    pattern.validate()


def compile_pattern(pattern: PatternSequence, semantics: Semantics = Semantics.DEFAULT) -> Nfa:
    """Compile *pattern*.

    :raises MalformedPatternError: the pattern has no meaning
    """
    check_pattern(pattern)
    expect(
        StreamDefinitionError,
        semantics,
        Semantics,
        "semantics must be a Semantics",
        "Semantics.DEFAULT or Semantics.FLINK",
    )
    if semantics is Semantics.DEFAULT:
        _refuse_what_flink_ignores(pattern)
    builder = _Builder(semantics)
    final = builder.state("$end", NfaStateKind.FINAL)
    start = builder.chain(pattern.stages, final, None, None)
    start.kind = NfaStateKind.START
    _refuse_endless_loops(builder.states)
    _refuse_gaps_beyond(pattern.effective_window, builder.states)
    return Nfa(
        states=tuple(builder.states),
        start=start,
        conditions=tuple(builder.conditions),
        stages=tuple(stage.name for stage in pattern.atoms()),
        window=pattern.effective_window,
    )


def _refuse_gaps_beyond(window: timedelta | None, states: Sequence[NfaState]) -> None:
    """Refuse a bound on a gap that exceeds the bound on the whole match: it cannot be intended."""
    for state in states:
        if window is not None and state.gap is not None and state.gap > window:
            raise MalformedPatternError(
                f'stage "{state.stage}": the window between neighbouring events ({state.gap}) cannot be larger than'
                f" the window of the whole match ({window})"
            )


def _refuse_what_flink_ignores(pattern: PatternSequence, in_group: bool = False) -> None:
    last = pattern.stages[-1]
    if last.contiguity is Contiguity.NOT_FOLLOW:
        if in_group:
            raise MalformedPatternError(
                f'not_followed_by("{last.name}") cannot be the last stage of a group',
                "Nothing in the group ends the wait; Flink ignores the stage.",
                "put it after the group, or follow it with a stage that must occur",
            )
        if last.window is None and last.gap_window is None:
            raise MalformedPatternError(
                f'not_followed_by("{last.name}") is the last stage of the pattern, but the window is set on an earlier stage',
                "Flink ignores the stage in this case.",
                "set .within(...) on it",
            )
    for stage in pattern.stages:
        if stage.group is not None and stage.quantifier.gap is not None:
            raise MalformedPatternError(
                f'group "{stage.name}": a window between repetitions does not apply to a group',
                "Flink ignores it or applies it to stages of the group.",
            )
        if in_group and stage.window is not None:
            raise MalformedPatternError(
                f'stage "{stage.name}": a window inside a group is not supported',
                "Flink ignores it or applies it to the whole match.",
                "set .within(...) on the whole pattern",
            )
        if stage.group is not None:
            _refuse_what_flink_ignores(stage.group, in_group=True)


def _refuse_endless_loops(states: list[NfaState]) -> None:
    """Refuse cycles of PROCEED edges, which would never end: repeated groups that can match nothing."""
    follows = {state: [edge.target for edge in state.edges if edge.action is Action.PROCEED] for state in states}
    done: set[NfaState] = set()
    for origin in states:
        path, todo = {origin}, [(origin, iter(follows[origin]))]
        while todo and origin not in done:
            state, targets = todo[-1]
            target = next((t for t in targets if t not in done), None)
            if target is None:
                todo.pop()
                path.discard(state)
                done.add(state)
            elif target in path:
                raise MalformedPatternError(
                    f'the group around stage "{target.stage}" repeats and can match no event, so it never ends',
                    "Every stage of a group that repeats is optional; Flink does not terminate on it.",
                    "make one of its stages mandatory",
                )
            else:
                path.add(target)
                todo.append((target, iter(follows[target])))


def identity_of(condition: Condition) -> Any:
    """Equal for conditions with the same number. Functions are distinguished by identity because they need not be hashable."""
    if isinstance(condition, PythonCondition | IterativeCondition):
        return type(condition), id(condition.function), getattr(condition, "columns", None)
    return condition


@dataclass(frozen=True, slots=True)
class _Position:
    """The position in the definition: stage *at* of the chain *stages*, inside *group*, in its first or a later repetition."""

    stages: tuple[Stage, ...]
    at: int
    following: Stage | None
    group: Stage | None
    first_round: bool
    after_nots: bool
    """whether not_followed_by stages still apply here"""

    @property
    def stage(self) -> Stage:
        return self.stages[self.at]

    @property
    def heads_group(self) -> bool:
        return self.group is not None and self.at == 0

    @property
    def heads_optional_group(self) -> bool:
        return self.heads_group and self.first_round and self.group is not None and self.group.quantifier.optional

    def nots_before(self) -> list[Stage]:
        """The not_followed_by stages that still apply here: directly before, or with only optional stages in between."""
        found = []
        at = self.at - 1 if self.after_nots else -1
        while at >= 0 and (self.stages[at].quantifier.optional or self.stages[at].contiguity is Contiguity.NOT_FOLLOW):
            if self.stages[at].contiguity is Contiguity.NOT_FOLLOW:
                found.append(self.stages[at])
            at -= 1
        return found


class _Builder:
    def __init__(self, semantics: Semantics) -> None:
        self.flink = semantics is Semantics.FLINK
        self.states: list[NfaState] = []
        self.conditions: list[Condition] = []
        self.numbers: dict[Any, int] = {}
        """Indexes of conditions. Functions are compared by identity, because they need not be hashable."""
        self.stops: dict[str, tuple[NfaState, Guard]] = {}
        self.n_stops = 0
        self.unrestricted: dict[NfaState, NfaState] = {}
        self.names: dict[str, int] = {}
        self.window_from_end: timedelta | None = None
        """Flink: the smallest window so far, from the end to the beginning."""
        self.loop_groups = 0
        """The number of repeated groups so far, in the same order."""

    # ------------------------------------------------------------------ states

    def state(self, stage: str, kind: NfaStateKind = NfaStateKind.NORMAL, gap: timedelta | None = None) -> NfaState:
        if len(self.states) == MAX_STATES:
            raise MalformedPatternError(
                f"the pattern needs more than {MAX_STATES} states",
                f'Compilation stopped at stage "{stage}".',
                "lower the counts of times(...); nested counts multiply",
            )
        copies = self.names.get(stage, 0)
        self.names[stage] = copies + 1
        name = stage if copies == 0 else f"{stage}:{copies - 1}"
        state = NfaState(len(self.states), name, stage, kind, gap)
        self.states.append(state)
        return state

    def add_stop(self, state: NfaState, stage: Stage, condition: Guard) -> None:
        """Add an edge from *state* to the stop state of the NOT stage *stage*.

        There is one stop state per stage. As in Flink, it accepts the event by the condition of the place that created it.
        """
        if stage.name not in self.stops:
            self.stops[stage.name] = self.state(stage.name, NfaStateKind.STOP), condition
        stop, taken = self.stops[stage.name]
        self.n_stops += 1
        if self.n_stops > MAX_STOPS:
            raise MalformedPatternError(
                "the pattern forbids too many stages in too many places",
                f'{len(self.stops)} stages must not occur, in many states each; compilation stopped at stage "{state.stage}".',
                "combine the forbidden stages in one not_followed_by, with OR",
            )
        state.add(Action.PROCEED, stop, condition if condition == taken else both(condition, taken))

    def copy(self, original: NfaState) -> NfaState:
        twin = self.twin(original)
        for edge in original.edges:
            twin.edges.append(replace(edge, target=twin if edge.target is original else edge.target))
        return twin

    def twin(self, original: NfaState) -> NfaState:
        """A copy of *original* without its edges. With Flink's semantics, where bounds belong to names, it has no bound."""
        return self.state(original.stage, original.kind, None if self.flink else original.gap)

    # ------------------------------------------------------------------ guards

    def guard(self, condition: Condition | None) -> Guard:
        match condition:
            case None:
                return ALWAYS
            case AndCondition(left, right):
                return Both(self.guard(left), self.guard(right))
            case OrCondition(left, right):
                return Either(self.guard(left), self.guard(right))
            case NotCondition(inner):
                return Not(self.guard(inner))
        same = identity_of(condition)
        if same not in self.numbers:
            self.numbers[same] = len(self.conditions)
            self.conditions.append(condition)
        return Test(self.numbers[same])

    def unless_ended(self, loop: Stage, guard: Guard) -> Guard:
        """*guard*, and the until condition of *loop* does not hold."""
        return guard if loop.until is None else both(Not(self.guard(loop.until), until=loop.name), guard)

    def always(self, place: _Position) -> Guard:
        """True, unless the enclosing group has ended by its until condition."""
        return self.unless_ended(place.group, ALWAYS) if place.group is not None else ALWAYS

    def take(self, place: _Position, stage: Stage) -> Guard:
        return both(self.always(place), self.guard(stage.condition))

    def ignore(self, place: _Position, contiguity: Contiguity) -> Guard | None:
        if contiguity is Contiguity.STRICT:
            return None
        if contiguity is Contiguity.SKIP_TILL_ANY:
            return self.always(place)
        return both(self.always(place), Not(self.guard(place.stage.condition)))

    def outer_ignore(self, place: _Position) -> Guard | None:
        """The guard for events that may be skipped before the first event of the stage."""
        if place.heads_group:
            assert place.group is not None
            return self.ignore(place, place.group.contiguity if place.first_round else place.group.quantifier.inner)
        return self.ignore(place, place.stage.contiguity)

    def inner_ignore(self, place: _Position) -> Guard | None:
        """The guard for events that may be skipped between repetitions of the stage."""
        quantifier = place.group.quantifier if place.heads_group and place.group is not None else place.stage.quantifier
        guard = self.ignore(place, quantifier.inner)
        return None if guard is None else self.unless_ended(place.stage, guard)

    # ------------------------------------------------------------------ the chain

    def chain(
        self,
        stages: tuple[Stage, ...],
        sink: NfaState,
        group: Stage | None,
        following: Stage | None,
        first_round: bool = True,
    ) -> NfaState:
        """Build the states of *stages* before *sink*, and return the first one."""
        after_nots = [False]
        for stage in stages:
            negated = stage.contiguity is Contiguity.NOT_FOLLOW
            after_nots.append(negated or (stage.quantifier.optional and after_nots[-1]))
        for at in range(len(stages) - 1, -1, -1):
            stage = stages[at]
            place = _Position(stages, at, following, group, first_round, after_nots[at])
            if stage.window is not None and (group is None or at < len(stages) - 1):
                self.window_from_end = min(stage.window, self.window_from_end or stage.window)
            if stage.contiguity is Contiguity.NOT_FOLLOW:
                # In the middle of a pattern it has no state: the following states stop on its condition.
                if sink.kind is NfaStateKind.FINAL and (
                    self.window_from_end is not None or stage.gap_window is not None
                ):
                    sink = self.pending(place)
            elif stage.contiguity is Contiguity.NOT_NEXT:
                sink = self.not_next(place, sink)
            else:
                sink = self.stage(place, sink)
            following = stage
        return sink

    def pending(self, place: _Position) -> NfaState:
        """Absence at the end of the pattern: wait for the window to pass."""
        condition = self.take(place, place.stage)
        state = self.state(place.stage.name, NfaStateKind.PENDING, place.stage.gap_window)
        self.add_stop(state, place.stage, condition)
        state.add(Action.IGNORE, state, Not(condition))
        return state

    def not_next(self, place: _Position, sink: NfaState) -> NfaState:
        condition = self.take(place, place.stage)
        state = self.state(place.stage.name, gap=place.stage.gap_window)
        # An event must decide it, even if no stage follows: only an IGNORE edge waits for one.
        state.add(Action.IGNORE if sink.kind is NfaStateKind.FINAL else Action.PROCEED, sink, Not(condition))
        self.add_stop(state, place.stage, condition)
        return state

    def stage(self, place: _Position, sink: NfaState) -> NfaState:
        """Build the states of one stage or group with its quantifier."""
        quantifier = place.stage.quantifier
        if quantifier.kind is QuantifierKind.LOOPING:
            loop = self.loop(place, self.without_spent_nots(place, sink))
            head = self.repetitions(place, loop, sink)
        elif quantifier.kind is QuantifierKind.TIMES:
            head = self.repetitions(place, sink, sink)
        else:
            take, ignore = self.take(place, place.stage), self.outer_ignore(place)
            head = self.once(place, sink, sink, take, ignore, quantifier.optional, gap=place.stage.gap_window)
        self.add_stops(place, head)
        return head

    def once(
        self,
        place: _Position,
        sink: NfaState,
        skip_to: NfaState | None,
        take: Guard,
        ignore: Guard | None,
        optional: bool,
        *,
        gap: timedelta | None,
        first_round: bool = True,
    ) -> NfaState:
        """Build one occurrence: TAKE to *sink*; if optional, PROCEED to *skip_to*."""
        stage = place.stage
        if stage.group is not None:
            return self.group(place, sink, skip_to if optional else None, first_round)
        state = self.state(stage.name, gap=gap)
        target = self.without_spent_nots(place, sink)
        state.add(Action.TAKE, target, take)
        if optional:
            assert skip_to is not None
            self.proceed(place, state, skip_to)
        if ignore is not None:
            waiting = state
            if optional or place.heads_optional_group:
                # After an ignored event the optional stage is entered: a PROCEED would duplicate matches.
                waiting = self.state(stage.name)
                waiting.add(Action.TAKE, target, take)
                waiting.add(Action.IGNORE, waiting, ignore)
                self.add_stops(place, waiting)
            state.add(Action.IGNORE, waiting, ignore)
        return state

    def proceed(self, place: _Position, state: NfaState, sink: NfaState) -> None:
        until = place.stage.until
        if place.stage.quantifier.greedy and until is not None:
            # The next stage may accept the event that ends a greedy loop: an unrestricted copy of the sink.
            free = self.unrestricted.get(sink, sink)
            state.add(Action.PROCEED, free, both(self.always(place), self.guard(until)))
            state.add(Action.PROCEED, sink, both(self.always(place), Not(self.guard(until))))
        else:
            state.add(Action.PROCEED, sink, self.always(place))

    def loop(self, place: _Position, sink: NfaState) -> NfaState:
        """Build the state in which a loop has its minimum number of events."""
        stage = place.stage
        if stage.group is not None:
            return self.loop_group(place, sink)
        take = self.unless_ended(stage, self.take(place, stage))
        ignore = self.inner_ignore(place)
        state = self.state(stage.name, gap=self.flinks_gap(stage))
        if stage.quantifier.greedy:
            self.restrict(place, sink, self.take(place, stage))
        self.proceed(place, state, sink)
        state.add(Action.TAKE, state, take)
        self.add_stop_of_following(place, state)
        if ignore is not None:
            waiting = self.state(stage.name)
            waiting.add(Action.TAKE, state, take)
            waiting.add(Action.IGNORE, waiting, ignore)
            state.add(Action.IGNORE, waiting, ignore)
            self.add_stop_of_following(place, waiting)
        self.bound_repetition(stage, state, sink)
        return state

    def repetitions(self, place: _Position, sink: NfaState, after: NfaState) -> NfaState:
        """Build ``at_least`` to ``at_most`` occurrences in sequence; the optional ones PROCEED to *after*."""
        stage, quantifier = place.stage, place.stage.quantifier
        take = self.unless_ended(stage, self.take(place, stage))
        ignore = self.inner_ignore(place)
        if quantifier.kind is QuantifierKind.TIMES and quantifier.greedy and quantifier.at_least != quantifier.at_most:
            self.restrict(place, after, self.take(place, stage))
        for missing in range(quantifier.at_most - 1):
            optional = missing < quantifier.at_most - quantifier.at_least
            sink = self.once(place, sink, after, take, ignore, optional, gap=self.flinks_gap(stage), first_round=False)
            self.add_stop_of_following(place, sink)
            if stage.group is None:
                self.bound_repetition(stage, sink, after if optional else None)
        # Only the first may ignore events that satisfy the until condition: the loop has not started.
        outer = self.outer_ignore(place)
        return self.once(place, sink, after, take, outer, quantifier.optional, gap=self.flinks_gap(stage))

    def flinks_gap(self, stage: Stage) -> timedelta | None:
        """The bound that Flink sets on the next state of a repeated stage: on all but the first state that it creates, which
        is the one before the last repetition, or the loop. It therefore bounds the gap before the first repetition instead.
        """
        return stage.quantifier.gap if self.flink and stage.name in self.names else None

    def bound_repetition(self, stage: Stage, state: NfaState, way_out: NfaState | None) -> None:
        """Default semantics: bound the gap before one repetition after the first, and nothing else.

        A partial match that could also continue with the next stage must not time out with the repetition. In this case
        the edges are bounded instead of the state.
        """
        gap = stage.quantifier.gap
        if self.flink or gap is None:
            return
        for edge in state.edges:
            if edge.action is Action.IGNORE and edge.target is not state:
                edge.target.gap = gap
        if way_out is None or way_out.kind is NfaStateKind.FINAL:
            state.gap = gap
        else:
            for edge in state.edges:
                edge.gap = gap if edge.action is not Action.PROCEED else None

    # ------------------------------------------------------------------ groups

    def group(self, place: _Position, sink: NfaState, skip_to: NfaState | None, first_round: bool) -> NfaState:
        stage = place.stage
        assert stage.group is not None
        head = self.chain(stage.group.stages, sink, stage, place.following, first_round)
        if skip_to is not None:
            head.add(Action.PROCEED, skip_to, self.always(place))
        return head

    def loop_group(self, place: _Position, sink: NfaState) -> NfaState:
        stage = place.stage
        assert stage.group is not None
        # In Flink all groups have the same name: the bound of a known name is set on the state that leads back.
        gap = stage.quantifier.gap if self.flink and self.loop_groups else None
        self.loop_groups += 1
        again = self.state(stage.name, gap=gap)
        head = self.chain(stage.group.stages, again, stage, place.following, first_round=False)
        head.add(Action.PROCEED, sink, self.always(place))
        again.add(Action.PROCEED, head, self.always(place))
        return head

    # ------------------------------------------------------------------ greedy, not_followed_by

    def restrict(self, place: _Position, sink: NfaState, take: Guard) -> None:
        """Greedy: the next stage may neither accept nor ignore an event that the loop would accept."""
        if place.stage.until is not None:
            self.unrestricted[sink] = self.copy(sink)
        for edge in sink.edges:
            edge.guard = both(edge.guard, Not(take, greedy=place.stage.name))

    def add_stops(self, place: _Position, state: NfaState) -> None:
        for stage in place.nots_before():
            self.add_stop(state, stage, self.take(place, stage))

    def add_stop_of_following(self, place: _Position, state: NfaState) -> None:
        following = place.following
        if following is not None and following.contiguity is Contiguity.NOT_FOLLOW:
            self.add_stop(state, following, self.take(place, following))

    def without_spent_nots(self, place: _Position, sink: NfaState) -> NfaState:
        """After an optional stage has accepted an event, the not_followed_by before it no longer applies to later stages."""
        nots = {stage.name for stage in place.nots_before()}
        if not nots or not place.stage.quantifier.optional:
            return sink
        copies = {sink: self.twin(sink)}
        todo = [sink]
        for original in todo:
            twin = copies[original]
            for edge in original.edges:
                target = edge.target
                if edge.action is Action.PROCEED:
                    if target.kind is NfaStateKind.STOP:
                        if target.stage in nots:
                            continue
                    else:
                        if target not in copies:
                            copies[target] = self.twin(target)
                            todo.append(target)
                        target = copies[target]
                elif target is original:
                    target = twin
                twin.edges.append(replace(edge, target=target))
        return copies[sink]
