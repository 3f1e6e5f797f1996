"""A second slow matcher, for all of :class:`Pattern`, which has no automaton.

It rewrites what is left of the pattern. After each accepted event, :class:`Derivation` lists every way to continue: *which stage
accepts the next event*, which events may be skipped before it, and what is left after it. A way is never changed by a skipped
event; so each rule of the documentation is a line here, and a match is one way through all of them.

Only the default semantics, and no NOT stages except ``begin_without``: :mod:`tests.reference.matcher` has those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from .event import Accepted, Condition, Event, always, conjunction, negation
from .sql import parse_condition

END_OF_INPUT = 2**63 - 1
Found = tuple[int, tuple[tuple[str, int], ...]]
"""The time, and the stage and id of each event."""


@dataclass(frozen=True, eq=False)
class Way:
    """A stage may accept the next event.

    :param fits: the condition of the stage
    :param takes: whether it accepts an event
    :param skips: whether an event before it may be skipped; None: no event
    :param rest: the ways after it
    :param ends: what completes the match instead, because the stage is the longest loop at the end of the pattern
    :param gap: the time after the last event in which it must occur
    """

    stage: str
    fits: Condition
    takes: Condition
    skips: Condition | None
    rest: Rest
    pending: bool = False
    ends: Condition | None = None
    gap: int | None = None


COMPLETE, COMPLETE_AT_LAST = "complete", "complete at last"
Ways = list[Way | str]
Rest = Callable[[], Ways]


@dataclass(frozen=True, eq=False)
class Partial:
    """A partial match and one way to continue it."""

    way: Way | str
    accepted: Accepted
    positions: tuple[int, ...]
    """of its events among those of the key"""

    @property
    def first(self) -> int:
        return self.positions[0]

    @property
    def events(self) -> tuple[tuple[str, int], ...]:
        return tuple((stage, event.id) for stage, event in self.accepted)


@dataclass(eq=False)
class Complete:
    """A complete match that is not decided yet."""

    match: Partial
    time: int
    position: int
    """of the event with which it is complete"""


def bound(length: timedelta | None, inclusive: bool = False) -> int | None:
    """As an exclusive bound. Times have microseconds here, and milliseconds in events and results."""
    return None if length is None else length // timedelta(microseconds=1) + inclusive


def micros(event: Event) -> int:
    return 1000 * event.ts


class Derivation:
    """Everything that a pattern is, without state. *pattern* is a Pattern; only its data is read."""

    def __init__(self, pattern: Any) -> None:
        self.subsets = dict(pattern.subsets)
        stages = list(pattern.stages)
        self.absence = stages.pop(0) if stages[0].contiguity.value == "NOT_BEFORE" else None
        self.from_first, self.to_last = pattern.from_first, pattern.to_last
        self.stages = tuple(stages)
        bounds = [bound(stage.window, stage.inclusive) for stage in self.stages]
        self.window = min((one for one in bounds if one is not None), default=None)
        self.preferred = [s.name for s in pattern.atoms() if s.quantifier.taking.value == "GIVING_BACK"]
        self._conditions: dict[str, Condition] = {}
        self._end: Rest = lambda: [COMPLETE_AT_LAST if self.to_last else COMPLETE]
        self.begin = self._chain(self.stages, self._end, "STRICT")

    def condition(self, given: Any) -> Condition:
        if given is None:
            return always
        if given.text not in self._conditions:
            self._conditions[given.text] = parse_condition(given.text, self.subsets)
        return self._conditions[given.text]

    # --- the ways to continue

    def _chain(self, stages: Sequence[Any], rest: Rest, contiguity: str) -> Rest:
        """The ways into the first of *stages*, with *contiguity* before its first event."""
        for number, stage in reversed(list(enumerate(stages))):
            rest = partial(self._stage, stage, stage.contiguity.value if number else contiguity, rest)
        return rest

    def _stage(self, stage: Any, contiguity: str, rest: Rest) -> Ways:
        """The ways through one stage or group, with all of its repetitions."""
        quantifier = stage.quantifier
        taking, looping = quantifier.taking.value, quantifier.kind.value == "LOOPING"
        least, most = quantifier.at_least, None if looping else quantifier.at_most
        at_end = rest is self._end and not self.to_last
        if taking == "RELUCTANT" and at_end:
            most = least
        longest = taking == "LONGEST" and at_end

        def after(count: int) -> Ways:
            found: Ways = []
            then: Rest
            may_stop = count >= least or (count == 0 and quantifier.optional)
            if may_stop and not (longest and count != most):
                left = rest()
                found += self._restricted(left, stage) if taking in ("GREEDY", "LONGEST") and least != most else left
            if count != most:
                before = contiguity if count == 0 else quantifier.inner.value
                then = partial(after, min(count + 1, least) if looping else count + 1)
                if stage.group is not None and count + 1 == most:
                    then = rest  # the end of the group may be the end of the pattern
                for way in self._once(stage, before, then, count):
                    assert isinstance(way, Way)
                    if taking == "RELUCTANT" and may_stop:
                        way = self._reluctant(way, rest)
                    if longest and may_stop:
                        way = self._longest(way, stage, before, count)
                    found.append(way)
            return found

        return after(0)

    def _once(self, stage: Any, before: str, rest: Rest, count: int) -> Ways:
        """The ways into one repetition."""
        if stage.group is None:
            fits = takes = self.condition(stage.condition)
            skips = _skips(before, [fits])
            if stage.until is not None:
                goes_on = negation(self.condition(stage.until))
                takes = conjunction(goes_on, fits)
                if skips is not None and count:
                    skips = conjunction(goes_on, skips)
            gap = bound(stage.quantifier.gap) if count else bound(stage.gap_window, stage.inclusive)
            return [Way(stage.name, fits, takes, skips, rest, gap=gap)]
        kind = stage.group.combination.value
        if kind == "SEQUENCE":
            return self._chain(stage.group.stages, rest, before)()
        return self._combined(tuple(stage.group.stages), before, rest, in_any_order=kind == "IN_ANY_ORDER")

    def _combined(self, elements: tuple[Any, ...], before: str, rest: Rest, in_any_order: bool) -> Ways:
        """Alternatives, or those elements that are left to occur in any order. No event that begins one of them is skipped."""
        found: Ways = []
        for number, element in enumerate(elements):
            others = elements[:number] + elements[number + 1 :]
            then = rest
            if in_any_order and others:
                then = partial(self._combined, others, element.contiguity.value, rest, in_any_order)
            found += self._stage(element, "STRICT", then)
        ways = [way for way in found if isinstance(way, Way)]
        assert len(ways) == len(found)
        skips = _skips(before, [way.fits for way in ways])
        return [replace(way, skips=skips) for way in ways]

    def _restricted(self, ways: Ways, loop: Any) -> Ways:
        """Greedy: the next stage neither accepts nor skips an event that the loop would accept."""
        assert loop.until is None, "for this, see tests.reference.matcher"
        not_loop = negation(self.condition(loop.condition))
        return [
            replace(
                way,
                takes=conjunction(not_loop, way.takes),
                skips=None if way.skips is None else conjunction(not_loop, way.skips),
            )
            if isinstance(way, Way)
            else way
            for way in ways
        ]

    def _reluctant(self, way: Way, rest: Rest) -> Way:
        """Reluctant: the loop neither accepts nor skips an event that the next stage accepts or skips."""

        def next_goes_on(event: Event, accepted: Accepted) -> bool:
            ways = [other for other in rest() if isinstance(other, Way)]
            return any(
                other.takes(event, accepted) or (other.skips is not None and other.skips(event, accepted))
                for other in ways
            )

        not_next = negation(next_goes_on)
        skips = None if way.skips is None else conjunction(not_next, way.skips)
        return replace(way, takes=conjunction(not_next, way.takes), skips=skips)

    def _longest(self, way: Way, stage: Any, before: str, count: int) -> Way:
        """The longest loop at the end: complete when it cannot go on."""
        if before == "STRICT":
            return replace(way, pending=True, ends=negation(way.takes))
        ended = self.condition(stage.until) if stage.until is not None and count else None
        return replace(way, pending=True, ends=ended)


def _skips(contiguity: str, fits: Sequence[Condition]) -> Condition | None:
    if contiguity == "STRICT":
        return None
    if contiguity == "SKIP_TILL_ANY":
        return always
    return lambda event, accepted: not any(one(event, accepted) for one in fits)


class OneKey:
    """The matches of one key.

    Where the documentation leaves the order open, that of *known* decides: of matches that began with the same event and are
    complete or held back at the same time, the one that it has at this time is the first. (In the engine, as in Flink, that is
    a matter of heaps; :mod:`tests.reference.matcher` has the same ones.)
    """

    def __init__(self, pattern: Any, known: Sequence[Found] = ()) -> None:
        self.derivation = Derivation(pattern)
        self.skip, self.skip_stage = pattern.skip.kind.value, pattern.skip.stage
        self.known = Counter(known)
        self.seen: list[Event] = []
        self.partial: list[Partial] = []
        self.waiting: list[Complete] = []
        self.matches: list[Found] = []
        self.timeouts: set[Found] = set()
        """What times out, once; too much of it if repetitions have a maximum gap."""
        self.is_over = False

    def run(self, events: Sequence[Event]) -> OneKey:
        """All *events*, in order, and the end of the input."""
        for event in events:
            self._pass(micros(event))
            self._accept(event)
        self._pass(END_OF_INPUT)
        # No more events: complete is what waited only for them, with the time of its last event.
        for one in self.partial:
            if one.way == COMPLETE_AT_LAST or (isinstance(one.way, Way) and one.way.pending):
                self._complete(one, micros(one.accepted[-1][1]), len(self.seen))
        self.partial = []
        self._decide(None)
        return self

    # --- events

    def _accept(self, event: Event) -> None:
        position = len(self.seen)
        went_on, made = self.partial, [Partial(way, (), ()) for way in self._beginning(event)]
        self.partial = []
        for one in (*went_on, *made):
            way = one.way
            if not isinstance(way, Way):
                continue  # an event follows the last one
            if way.gap is not None and micros(event) - micros(one.accepted[-1][1]) >= way.gap:
                continue
            if way.takes(event, one.accepted):
                self._continue(
                    (*one.accepted, (way.stage, event)), (*one.positions, position), way.rest(), micros(event)
                )
            if way.skips is not None and one.positions and way.skips(event, one.accepted):
                self.partial.append(one)
            if way.ends is not None and one.positions and way.ends(event, one.accepted):
                self._complete(one, micros(event), position)
        self.seen.append(event)
        self._decide(micros(event))

    def _continue(self, accepted: Accepted, positions: tuple[int, ...], ways: Ways, time: int) -> None:
        for way in ways:
            one = Partial(way, accepted, positions)
            if way == COMPLETE:
                self._complete(one, time, positions[-1])
            else:
                self.partial.append(one)

    def _beginning(self, event: Event) -> Ways:
        """The ways to begin a match with *event*."""
        derivation = self.derivation
        if self.is_over or (derivation.from_first and self.seen):
            return []
        absence = derivation.absence
        if absence is not None:
            forbidden, window = derivation.condition(absence.condition), bound(absence.window, absence.inclusive)
            for other in self.seen:
                if forbidden(other, ()) and (window is None or micros(event) - micros(other) < window):
                    return []
        return [way for way in derivation.begin() if isinstance(way, Way)]

    # --- time

    def _deadlines(self, one: Partial) -> list[int]:
        if not isinstance(one.way, Way):
            return []
        found = [] if self.derivation.window is None else [micros(one.accepted[0][1]) + self.derivation.window]
        if one.way.gap is not None:
            found.append(micros(one.accepted[-1][1]) + one.way.gap)
        return found

    def _pass(self, now: int) -> None:
        """Time passes from deadline to deadline."""
        while due := [moment for one in self.partial for moment in self._deadlines(one) if moment <= now]:
            moment, before = min(due), self.partial
            self.partial = [one for one in before if all(deadline > moment for deadline in self._deadlines(one))]
            for one in before:
                if any(one is other for other in self.partial):
                    continue
                if isinstance(one.way, Way) and one.way.pending:
                    self._complete(one, moment, len(self.seen))
                else:
                    self.timeouts.add((moment // 1000, one.events))
            self._decide(moment)

    # --- decisions

    def _complete(self, one: Partial, time: int, position: int) -> None:
        new = Complete(one, time, position)
        if self.derivation.preferred:
            # Of the matches that begin with the same event, the one with most events in the loops that give back.
            rivals = [other for other in self.waiting if other.match.first == one.first]
            for other in rivals:
                mine, its = self._taken(new), self._taken(other)
                if mine < its or (mine == its and other.position < position):
                    return
            self.waiting = [
                other for other in self.waiting if other not in rivals or self._taken(other) == self._taken(new)
            ]
        self.waiting.append(new)

    def _taken(self, one: Complete) -> list[int]:
        return [sum(stage == name for stage, _ in one.match.accepted) for name in self.derivation.preferred]

    def _decide(self, now: int | None) -> None:
        """Emit what nothing can change any more, and discard what the skip strategy says."""
        while self.waiting and not self.is_over:
            first = min((one.match.first for one in self.waiting if self._is_decided(one.match.first)), default=None)
            if first is None:
                return
            rivals = [one for one in self.waiting if one.match.first == first]
            at = {id(one): ((one.time if now is None else now) // 1000, one.match.events) for one in rivals}
            chosen = next((one for one in rivals if self.known[at[id(one)]]), rivals[0])
            self.known[at[id(chosen)]] -= 1
            self.matches.append(at[id(chosen)])
            if self.derivation.preferred:
                self.waiting = [one for one in self.waiting if one.match.first != first]
            else:
                self.waiting.remove(chosen)
            self._discard(chosen.match)

    def _is_decided(self, first: int) -> bool:
        waits_for_earlier = self.skip not in ("NO_SKIP", "FIRST_MATCH_ONLY", "SKIP_TO_NEXT")
        for one in self.partial:
            if (waits_for_earlier and one.first < first) or (self.derivation.preferred and one.first == first):
                return False
        return True

    def _discard(self, found: Partial) -> None:
        if self.skip == "FIRST_MATCH_ONLY":
            self.is_over, self.partial, self.waiting = True, [], []
            return
        of_stage = [
            position
            for position, (stage, _) in zip(found.positions, found.accepted, strict=True)
            if stage == self.skip_stage
        ]
        match self.skip:
            case "NO_SKIP":
                return
            case "SKIP_TO_NEXT":
                low, high = found.first, found.first
            case "SKIP_PAST_LAST_EVENT":
                low, high = 0, found.positions[-1]
            case "SKIP_TO_FIRST":
                low, high = 0, of_stage[0] - 1 if of_stage else -1
            case "SKIP_TO_LAST":
                low, high = 0, of_stage[-1] - 1 if of_stage else -1
        self.partial = [one for one in self.partial if not low <= one.first <= high]
        self.waiting = [one for one in self.waiting if not low <= one.match.first <= high]
