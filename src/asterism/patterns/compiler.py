"""Compiles a pattern to an automaton.

The chain is compiled from its last stage to its first. Each stage becomes a few states before a *sink*, the first state of the
following stage. The order of the edges is the order of the results.

Source: the construction of Flink's ``NFACompiler`` (flink-cep 2.3). The text and code are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from asterism.arguments import expect
from asterism.errors import MalformedPatternError, PatternTooLargeError, StreamDefinitionError, UnboundedNotStageError
from asterism.patterns.automaton import (
    ALWAYS,
    Absence,
    Action,
    Both,
    Edge,
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
    AbsentBeforeCondition,
    AndCondition,
    Condition,
    FirstEventCondition,
    IterativeCondition,
    NotCondition,
    OrCondition,
    PythonCondition,
)
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import (
    Combining,
    Contiguity,
    PatternSequence,
    Quantifier,
    QuantifierKind,
    SkipKind,
    Stage,
    Taking,
    exclusive,
)

MAX_STATES = 20_000  # a larger pattern is a mistake; the tables of this many states take some megabytes
MAX_STOPS = 100_000
"""Edges to STOP states: one for each forbidden stage in each state where it applies."""
MAX_OPTIONAL = 200
"""Optional stages in sequence after a reluctant loop, or before the end of a pattern that ends with the last event."""


def check_pattern(pattern: Any) -> None:
    """Raise :class:`~asterism.errors.MalformedPatternError` unless *pattern* is a complete pattern."""
    hint = 'Pattern.begin("a").where("...")'
    expect(MalformedPatternError, pattern, PatternSequence, "a pattern must be a Pattern", hint)
    pattern.validate()


def compile_pattern(pattern: PatternSequence, semantics: Semantics = Semantics.DEFAULT) -> Nfa:
    """:raises MalformedPatternError: the pattern has no meaning"""
    check_pattern(pattern)
    hint = "Semantics.DEFAULT or Semantics.FLINK"
    expect(StreamDefinitionError, semantics, Semantics, "semantics must be a Semantics", hint)
    addition = beyond_flink(pattern)
    if semantics is Semantics.DEFAULT:
        _refuse_what_flink_ignores(pattern)
    elif addition is not None:
        raise MalformedPatternError(
            f"Semantics.FLINK does not support {addition}", "Flink has nothing like it.", "use the default semantics"
        )
    builder = _Builder(semantics)
    final = builder.state("$end", NfaStateKind.LAST if pattern.to_last else NfaStateKind.FINAL)
    without = pattern.stages[0] if pattern.stages[0].contiguity is Contiguity.NOT_BEFORE else None
    stages = pattern.stages
    if without is not None:
        stages = (replace(stages[1], contiguity=Contiguity.STRICT), *stages[2:])
    start = builder.chain(stages, final, None, None)
    if pattern.from_first or without is not None:
        start = builder.begin(start, pattern.from_first, without)
    builder.wait_at_open_ends()
    start.kind = NfaStateKind.START
    _refuse_endless_loops(builder.states)
    _refuse_gaps_beyond(pattern.effective_window, builder.states)
    if pattern.to_last:
        builder.take_to_last(final)
    return Nfa(
        states=tuple(builder.states),
        start=start,
        conditions=tuple(builder.conditions),
        stages=tuple(stage.name for stage in pattern.atoms()),
        window=pattern.effective_window,
        subsets=pattern.subsets,
        preferred=tuple(s.name for s in pattern.atoms() if s.quantifier.taking is Taking.GIVING_BACK),
        absences=tuple(builder.absences),
    )


def beyond_flink(pattern: PatternSequence) -> str | None:
    """A part of *pattern* that Flink lacks, and that :attr:`Semantics.FLINK` therefore refuses; None: there is none."""

    groups = [pattern]
    for chain in groups:
        if chain.combination is not Combining.SEQUENCE:
            return str(chain.combination.value).lower()
        for stage in chain.stages:
            if stage.quantifier.taking not in (Taking.ALL, Taking.GREEDY):
                return f"{stage.quantifier.taking.value.lower()} of stage {stage.name}"
            if stage.contiguity is Contiguity.NOT_BEFORE:
                return "begin_without"
            if stage.inclusive:
                return "an inclusive window"
            groups += [stage.group] if stage.group is not None else []
    if pattern.from_first:
        return "starts_with_first_event"
    if pattern.to_last:
        return "ends_with_last_event"
    return "first_match_only" if pattern.skip.kind is SkipKind.FIRST_MATCH_ONLY else None


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
            raise UnboundedNotStageError(
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
        if stage.group is not None and stage.gap_window is not None:
            raise MalformedPatternError(
                f'group "{stage.name}": a window between neighbouring events does not apply to a group',
                "Flink ignores it.",
                "set it on the stages of the group, WithinType.PREVIOUS_AND_CURRENT, or .within(...) on the whole pattern",
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

    def with_quantifier(self, quantifier: Quantifier) -> _Position:
        """The same position, where the stage has this quantifier."""
        stages = (*self.stages[: self.at], replace(self.stage, quantifier=quantifier), *self.stages[self.at + 1 :])
        return replace(self, stages=stages)

    def nots_before(self) -> list[Stage]:
        """The not_followed_by stages that still apply here: directly before, or with only optional stages in between."""
        forbidden = []
        at = self.at - 1 if self.after_nots else -1
        while at >= 0 and (self.stages[at].quantifier.optional or self.stages[at].contiguity is Contiguity.NOT_FOLLOW):
            if self.stages[at].contiguity is Contiguity.NOT_FOLLOW:
                forbidden.append(self.stages[at])
            at -= 1
        return forbidden


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
        self.absences: list[Absence] = []
        self.waiting: dict[NfaState, NfaState] = {}
        """For the first state of alternatives, the state in which it waits after an ignored event."""
        self.open_ends: list[NfaState] = []
        """The first states of optional loops at the end of the pattern that are longest."""
        self.in_choice = 0
        """The number of alternatives around the stage that is being built."""

    # ------------------------------------------------------------------ states

    def state(self, stage: str, kind: NfaStateKind = NfaStateKind.NORMAL, gap: timedelta | None = None) -> NfaState:
        if len(self.states) == MAX_STATES:
            raise PatternTooLargeError(
                f"the pattern needs more than {MAX_STATES:,} states",
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
            raise PatternTooLargeError(
                "the pattern forbids too many stages in too many places",
                f'{len(self.stops):,} stages must not occur, in many states each; compilation stopped at stage "{state.stage}".',
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
        identity = identity_of(condition)
        if identity not in self.numbers:
            self.numbers[identity] = len(self.conditions)
            self.conditions.append(condition)
        return Test(self.numbers[identity])

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
        quantifier = place.stage.quantifier
        if place.heads_group and place.group is not None and not self.in_choice:
            quantifier = place.group.quantifier  # as in Flink
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
            window = exclusive(stage, stage.window)
            if window is not None and (group is None or at < len(stages) - 1):
                self.window_from_end = min(window, self.window_from_end or window)
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
        state = self.state(place.stage.name, NfaStateKind.PENDING, exclusive(place.stage, place.stage.gap_window))
        self.add_stop(state, place.stage, condition)
        state.add(Action.IGNORE, state, Not(condition))
        return state

    def not_next(self, place: _Position, sink: NfaState) -> NfaState:
        condition = self.take(place, place.stage)
        state = self.state(place.stage.name, gap=exclusive(place.stage, place.stage.gap_window))
        # An event must decide it, even if no stage follows: only an IGNORE edge waits for one.
        state.add(Action.IGNORE if sink.kind is NfaStateKind.FINAL else Action.PROCEED, sink, Not(condition))
        self.add_stop(state, place.stage, condition)
        return state

    def stage(self, place: _Position, sink: NfaState) -> NfaState:
        """Build the states of one stage or group with its quantifier."""
        quantifier = place.stage.quantifier
        if sink.kind is NfaStateKind.FINAL and quantifier.taking is Taking.RELUCTANT:
            place = self.minimum(place)
            quantifier = place.stage.quantifier
        if sink.kind is NfaStateKind.FINAL and quantifier.taking is Taking.LONGEST:
            head = self.longest(place, sink)
        elif quantifier.kind is QuantifierKind.LOOPING:
            loop = self.loop(place, self.without_spent_nots(place, sink))
            head = self.repetitions(place, loop, sink)
        elif quantifier.kind is QuantifierKind.TIMES:
            head = self.repetitions(place, sink, sink)
        else:
            take, ignore = self.take(place, place.stage), self.outer_ignore(place)
            if quantifier.optional:
                take, ignore = self.unless_next(place, sink, take, ignore)
            head = self.once(
                place, sink, sink, take, ignore, quantifier.optional, gap=exclusive(place.stage, place.stage.gap_window)
            )
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
        take, ignore = self.unless_next(place, sink, take, self.inner_ignore(place))
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
        if stage.group is not None and quantifier.at_least != quantifier.at_most:
            self.refuse_undecided(stage)
        take = self.unless_ended(stage, self.take(place, stage))
        ignore = self.inner_ignore(place)
        if quantifier.kind is QuantifierKind.TIMES and quantifier.greedy and quantifier.at_least != quantifier.at_most:
            self.restrict(place, after, self.take(place, stage))
        reluctant = self.unless_next(place, after, take, ignore)
        for missing in range(quantifier.at_most - 1):
            optional = missing < quantifier.at_most - quantifier.at_least
            sink = self.once(
                place, sink, after, *(reluctant if optional else (take, ignore)), optional,
                gap=self.flinks_gap(stage), first_round=False,
            )  # fmt: skip
            self.add_stop_of_following(place, sink)
            if stage.group is None:
                self.bound_repetition(stage, sink, after if optional else None)
        # Only the first may ignore events that satisfy the until condition: the loop has not started.
        outer = self.outer_ignore(place)
        if quantifier.optional:
            take, outer = self.unless_next(place, after, take, outer)
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
        if stage.group.combination is not Combining.SEQUENCE:
            head = self.choice(place, sink, first_round)
        else:
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
        self.refuse_undecided(stage)
        head = self.group(place, again, None, first_round=False)
        head.add(Action.PROCEED, sink, self.always(place))
        again.add(Action.PROCEED, head, self.always(place))
        return head

    def refuse_undecided(self, group: Stage, combined: bool = False) -> None:
        """Refuse loops at the end of a repeated group that depend on the next stage, which may be the first one of the group.
        Flink permits greedy ones; not at the end of *combined* elements.
        """
        assert group.group is not None
        stages = group.group.stages
        combined = combined or group.group.combination is not Combining.SEQUENCE
        for stage in stages[-1:] if group.group.combination is Combining.SEQUENCE else stages:
            taking = stage.quantifier.taking
            if taking in (Taking.LONGEST, Taking.RELUCTANT) or (combined and taking is Taking.GREEDY):
                raise MalformedPatternError(
                    f'stage "{stage.name}": {taking.value.lower()} is not supported at the end of a repeated group',
                    "The next stage may be the first stage of the group.",
                    f"add a stage to the group after it{'' if combined else ', or use greedy()'}",
                )
            if stage.group is not None:
                self.refuse_undecided(stage, combined)

    # ------------------------------------------------------------------ alternatives

    def choice(self, place: _Position, sink: NfaState, first_round: bool) -> NfaState:
        """Build alternatives, or elements in any order."""
        stage, group = place.stage, place.stage.group
        assert group is not None
        if not first_round:
            contiguity = stage.quantifier.inner
        elif place.heads_group and place.group is not None:
            contiguity = place.group.contiguity if place.first_round else place.group.quantifier.inner
        else:
            contiguity = stage.contiguity
        # The state before the alternatives ignores events, so the first stage of each alternative must not.
        strict = replace(
            stage, contiguity=Contiguity.STRICT, quantifier=replace(stage.quantifier, inner=Contiguity.STRICT)
        )
        in_any_order = group.combination is Combining.IN_ANY_ORDER
        built: dict[frozenset[int], NfaState] = {frozenset(): sink}

        def rest(remaining: frozenset[int], before: Contiguity) -> NfaState:
            if remaining not in built:
                entries = []
                for number in sorted(remaining):
                    element = group.stages[number]
                    after = rest(remaining - {number} if in_any_order else frozenset(), element.contiguity)
                    if (greedy := _greedy_end(element)) is not None:
                        self.refuse_optional(place.following, after, greedy)
                        after = self.separate(after)
                    element = replace(element, contiguity=Contiguity.STRICT)
                    self.in_choice += 1
                    entry = self.chain((element,), after, strict, place.following, first_round)
                    self.in_choice -= 1
                    # A partial match waits in the state before the alternatives, so their edges are bounded instead.
                    gap, entry.gap = entry.gap, None
                    for edge in entry.edges:
                        if gap is not None and edge.action is not Action.PROCEED:
                            edge.gap = gap if edge.gap is None else min(edge.gap, gap)
                    entries.append(entry)
                heads = [guard for number in sorted(remaining) for guard in self.heads(group.stages[number])]
                built[remaining] = self.fork(place, entries, before, heads)
            return built[remaining]

        return rest(frozenset(range(len(group.stages))), contiguity)

    def refuse_optional(self, following: Stage | None, sink: NfaState, greedy: Stage) -> None:
        """Refuse an optional stage after a greedy element, as the method ``optional`` does outside of groups."""
        ends = (NfaStateKind.FINAL, NfaStateKind.LAST)
        may_end = _reaches(sink, lambda edge: edge.action is Action.PROCEED and edge.target.kind in ends)
        if following is not None and (following.quantifier.optional or may_end is not None):
            raise MalformedPatternError(
                f'stage "{following.name}": an optional stage cannot follow the greedy stage "{greedy.name}"'
            )

    def separate(self, shared: NfaState) -> NfaState:
        """A copy of the state that follows several elements, for an element that restricts it."""
        if not shared.edges:  # it is the end of the pattern, or of a round
            return shared
        copied = self.copy(shared)
        if shared in self.waiting:
            original = self.waiting[shared]
            waiting = self.waiting[copied] = self.copy(original)
            for edge in copied.edges:
                edge.target = waiting if edge.target is original else edge.target
        return copied

    def heads(self, stage: Stage) -> list[Guard]:
        """The conditions of the first events of a stage or group."""
        if stage.group is None:
            return [self.guard(stage.condition)]
        chosen = stage.group.stages
        return [
            guard
            for first in (chosen[:1] if stage.group.combination is Combining.SEQUENCE else chosen)
            for guard in self.heads(first)
        ]

    def fork(
        self, place: _Position, entries: Sequence[NfaState], before: Contiguity, heads: Sequence[Guard]
    ) -> NfaState:
        """A state that leads to all *entries*; with relaxed contiguity, it ignores events that satisfy none of *heads*."""
        state = self.state(place.stage.name)
        ignore: Guard | None = None
        if before is not Contiguity.STRICT:
            ignore = self.always(place)
            if before is Contiguity.SKIP_TILL_NEXT:
                ignore = both(ignore, _joined([Not(head) for head in heads], both))
        # PROCEED edges are followed from the last to the first.
        for entry in reversed(entries):
            state.add(Action.PROCEED, entry, self.always(place))
        if ignore is not None:
            waiting = self.copy(state)  # without a way around the alternatives, which would duplicate matches
            waiting.add(Action.IGNORE, waiting, ignore)
            self.add_stops(place, waiting)
            state.add(Action.IGNORE, waiting, ignore)
            self.waiting[state] = waiting
        return state

    # ------------------------------------------------------------------ longest, reluctant

    def minimum(self, place: _Position) -> _Position:
        """A reluctant loop at the end of the pattern: exactly its minimum number of events."""
        stage = place.stage
        if stage.quantifier.optional:
            raise MalformedPatternError(
                f'stage "{stage.name}" accepts no event: it is optional, reluctant, and the last stage of the pattern',
                hint="remove it, or add a stage after it",
            )
        fixed = replace(stage.quantifier, kind=QuantifierKind.TIMES, at_most=stage.quantifier.at_least)
        return place.with_quantifier(fixed)

    def longest(self, place: _Position, final: NfaState) -> NfaState:
        """Build a loop at the end of the pattern that is complete when it cannot accept another event."""
        stage, quantifier = place.stage, place.stage.quantifier
        if quantifier.inner is Contiguity.SKIP_TILL_ANY:
            raise MalformedPatternError(
                f'stage "{stage.name}": longest and allow_combinations exclude each other',
                hint="a loop that may skip matching events has no longest form",
            )
        take, ignore = self.unless_ended(stage, self.take(place, stage)), self.inner_ignore(place)
        looping = quantifier.kind is QuantifierKind.LOOPING
        sink = final
        for _ in range(1 if looping else quantifier.at_most - quantifier.at_least):
            state = self.state(stage.name, NfaStateKind.PENDING, quantifier.gap)
            state.add(Action.TAKE, state if looping else sink, take)
            if ignore is None:
                state.add(Action.IGNORE, final, Not(take))
            else:
                state.add(Action.IGNORE, state, ignore)
                ended = self.ended(place)
                if ended is not None:
                    state.add(Action.IGNORE, final, ended)
            self.add_stop_of_following(place, state)
            sink = state
        # Exactly the minimum number of events leads to the first of these states.
        fixed = replace(
            quantifier, kind=QuantifierKind.TIMES, at_most=quantifier.at_least, taking=Taking.ALL, optional=False
        )
        head = self.repetitions(place.with_quantifier(fixed), sink, final)
        if quantifier.optional:  # a match without the loop is complete when the loop cannot begin
            head.kind = NfaStateKind.PENDING
            self.open_ends.append(head)
            if not any(edge.action is Action.IGNORE for edge in head.edges):
                head.add(Action.IGNORE, final, Not(take))
        return head

    def wait_at_open_ends(self) -> None:
        """If no event follows, a match is also complete in a state from which an optional longest loop is the next stage."""
        for state in self.states if self.open_ends else ():
            if state.kind is NfaStateKind.NORMAL and _reaches(
                state, lambda edge: edge.action is Action.PROCEED and edge.target in self.open_ends
            ):
                state.kind = NfaStateKind.PENDING

    def ended(self, place: _Position) -> Guard | None:
        """Whether the until condition of the stage or of its group holds."""
        loops = [place.stage, *([place.group] if place.group is not None else [])]
        guards = [self.guard(loop.until) for loop in loops if loop.until is not None]
        return None if not guards else guards[0] if len(guards) == 1 else Either(*guards)

    def unless_next(
        self, place: _Position, sink: NfaState, take: Guard, ignore: Guard | None
    ) -> tuple[Guard, Guard | None]:
        """A reluctant stage neither accepts nor ignores an event that the next stage accepts or ignores."""
        if place.stage.quantifier.taking is Taking.RELUCTANT:
            handled = _reaches(sink, lambda edge: edge.action is not Action.PROCEED)
            if handled is not None:
                unless = Not(handled, reluctant=place.stage.name)
                take, ignore = both(take, unless), None if ignore is None else both(ignore, unless)
        return take, ignore

    # ------------------------------------------------------------------ the first and last event of a key

    def begin(self, head: NfaState, from_first: bool, without: Stage | None) -> NfaState:
        """A start state before *head*, for conditions on what precedes a match."""
        guard: Guard = ALWAYS
        if from_first:
            guard = self.guard(FirstEventCondition())
        if without is not None:
            self.absences.append(
                Absence(without.name, self.guard(without.condition), exclusive(without, without.window))
            )
            guard = both(guard, self.guard(AbsentBeforeCondition(without.name)))
        state = self.state(head.stage)
        state.add(Action.PROCEED, head, guard)
        return state

    def take_to_last(self, last: NfaState) -> None:
        """Add an edge to *last* for each event with which a match may be complete, because the remaining stages are optional."""
        for state in self.states:
            for edge in list(state.edges):
                if edge.action is Action.TAKE and edge.target is not last:
                    complete = _reaches(edge.target, lambda edge: edge.target is last and edge.action is Action.PROCEED)
                    if complete is not None:
                        state.add(Action.TAKE, last, both(edge.guard, complete))

    # ------------------------------------------------------------------ greedy, not_followed_by

    def restrict(self, place: _Position, sink: NfaState, take: Guard) -> None:
        """Greedy: the next stage may neither accept nor ignore an event that the loop would accept."""
        if place.stage.until is not None:
            self.unrestricted[sink] = self.copy(sink)
        waiting = self.waiting.get(sink)
        for edge in (*sink.edges, *(waiting.edges if waiting is not None else ())):
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


def _greedy_end(stage: Stage) -> Stage | None:
    """The greedy loop at the end of an element, which restricts the stage after it."""
    if stage.group is None:
        return stage if stage.quantifier.greedy else None
    return _greedy_end(stage.group.stages[-1]) if stage.group.combination is Combining.SEQUENCE else None


def _reaches(state: NfaState, counts: Callable[[Edge], bool], depth: int = 0) -> Guard | None:
    """When the PROCEED edges from *state* lead to an edge that *counts*, and its guard holds; None: never."""
    if depth > MAX_OPTIONAL:
        raise PatternTooLargeError(
            f"more than {MAX_OPTIONAL:,} optional stages in sequence are not supported here",
            f'Compilation stopped at stage "{state.stage}".',
        )
    guards: list[Guard] = []
    for edge in state.edges:
        if counts(edge):
            guard: Guard | None = edge.guard
        elif edge.action is Action.PROCEED:
            beyond = _reaches(edge.target, counts, depth + 1)
            guard = None if beyond is None else both(edge.guard, beyond)
        else:
            guard = None
        if guard == ALWAYS:
            return ALWAYS
        if guard is not None:
            guards.append(guard)
    return _joined(guards, Either) if guards else None


def _joined(guards: Sequence[Guard], join: Callable[[Guard, Guard], Guard]) -> Guard:
    """Join guards as a balanced tree: there may be thousands of alternatives, and trees are read recursively."""
    if len(guards) == 1:
        return guards[0]
    middle = (len(guards) + 1) // 2
    return join(_joined(guards[:middle], join), _joined(guards[middle:], join))
