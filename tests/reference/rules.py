"""Rules that change, event after event in the order of event time: nothing waits, nothing is evaluated ahead.

A set takes effect at the watermark with which its micro-batch begins: all events after it meet this set. A rule is a sequence of
kinds, as a pattern in which each event is followed by another, or as a clause of consecutive rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

BEFORE = float("-inf")


@dataclass(frozen=True)
class Event:
    """*order*: the order of arrival."""

    time: float
    order: int
    user: str
    item: int
    kind: str
    x: float


@dataclass(frozen=True)
class Rule:
    id: str
    version: int
    kinds: tuple[str, ...]
    by: str = "user"
    clause: bool = False
    above_limit: bool = False
    """Whether the first event must also be above the limit that a lookup has for its user."""
    timestamp: float | None = None
    expires: float | None = None
    shadow: bool = False
    suppress: float | None = None

    @property
    def definition(self) -> Rule:
        return replace(self, expires=None, shadow=False)


@dataclass(frozen=True)
class RuleSet:
    """*limits* by user; *before*: sets that were published since the last one that a micro-batch brought."""

    rules: tuple[Rule, ...]
    killed: frozenset[str] = frozenset()
    limits: Mapping[str, float] = field(default_factory=dict)
    before: tuple[tuple[Rule, ...], ...] = ()


Found = tuple[str, int, str, float, float, bool, int]
"""Id, version, key, times of the first and the last event, whether it is a shadow's, how many matches were suppressed before."""


@dataclass(eq=False)
class _Life:
    """A version from when it comes until it goes."""

    rule: Rule
    begins: float
    disabled: bool = False
    parts: dict[str, list[list[Event]]] = field(default_factory=dict)
    """For each key the partial matches; of a clause, the current one alone."""
    last: dict[str, tuple[float, int]] = field(default_factory=dict)
    """For each key the time of the last match that was not suppressed, and how many were since then."""

    def see(self, event: Event, limits: Mapping[str, float]) -> list[Found]:
        rule = self.rule
        key = event.user if rule.by == "user" else str(event.item)
        starts = event.kind == rule.kinds[0]
        if rule.above_limit:
            starts = starts and event.user in limits and event.x > limits[event.user]
        parts = self.parts.setdefault(key, [])
        going = [[*part, event] for part in parts if rule.kinds[len(part)] == event.kind]
        if not rule.clause:
            going += [part for part in parts if rule.kinds[len(part)] != event.kind]
        # A match of a clause ends with its last row, and the next begins after it.
        if starts and not (rule.clause and any(len(part) > 1 and part[-1] is event for part in going)):
            going.append([event])
        complete = [part for part in going if len(part) == len(rule.kinds)]
        self.parts[key] = [part for part in going if len(part) < len(rule.kinds)]
        found = []
        for part in sorted(complete, key=lambda part: (part[0].time, part[0].order)):
            suppressed = 0
            if rule.suppress is not None:
                before, count = self.last.get(key, (BEFORE, 0))
                if event.time - before < rule.suppress:
                    self.last[key] = before, count + 1
                    continue
                # The number is remembered as long again as the suppression lasts.
                suppressed = count if event.time - before < 2 * rule.suppress else 0
                self.last[key] = event.time, 0
            found.append((rule.id, rule.version, key, part[0].time, event.time, rule.shadow, suppressed))
        return found


class Rules:
    """The slots, each with the version in force, if there is one, and those that wait, in the order of their times."""

    def __init__(self) -> None:
        self.time = BEFORE
        self.limits: Mapping[str, float] = {}
        self.slots: dict[tuple[str, bool], list[_Life]] = {}
        self.published: dict[tuple[str, bool], list[Rule]] = {}
        """The versions with timestamps that no later set has withdrawn, whether or not a micro-batch has brought them."""

    def come_to(self, time: float) -> None:
        self.time = max(self.time, time)
        for slot, lives in self.slots.items():
            begun = [life for life in lives if life.begins <= self.time]
            lives = [life for life in lives if life.begins > self.time or life is begun[-1]]
            self.slots[slot] = [one for one in lives if one.rule.expires is None or one.rule.expires > self.time]

    def _publish(self, rules: Sequence[Rule]) -> None:
        """A version with a timestamp withdraws those for the same time and for later; any other change withdraws all."""
        before, self.published = self.published, {}
        for rule in rules:
            if rule.timestamp is not None:
                slot = (rule.id, rule.shadow)
                earlier = [
                    one for one in before.get(slot, []) if one.timestamp is not None and one.timestamp < rule.timestamp
                ]
                self.published[slot] = [*earlier, rule]

    def take(self, new: RuleSet, time: float) -> None:
        self.come_to(time)
        for rules in [*new.before, new.rules]:
            self._publish(rules)
        before, self.slots = self.slots, {}
        used: list[_Life] = []
        for rule in sorted(new.rules, key=lambda rule: rule.shadow):
            slot = (rule.id, rule.shadow)
            lives = [life for life in before.get(slot, []) if life not in used]
            others = [life for life in before.get((rule.id, not rule.shadow), []) if life not in used]
            waiting = self.published.get(slot, [])
            in_between = [one for one in waiting if any(one in rules for rules in new.before)]
            for version in [*(one for one in in_between if one.definition != rule.definition), rule]:
                lives = self._with_version(version, lives, others, waiting)
            self.slots[slot] = lives
            used += lives
        for lives in self.slots.values():
            for life in lives:
                if {life.rule.id, f"{life.rule.id}@{life.rule.version}"} & new.killed:
                    life.disabled, life.parts = True, {}
        self.limits = new.limits
        self.come_to(time)

    def _with_version(
        self, rule: Rule, lives: Sequence[_Life], others: Sequence[_Life], waiting: Sequence[Rule]
    ) -> list[_Life]:
        known = [life for life in [*lives, *others] if life.rule.definition == rule.definition]
        life = known[0] if known else _Life(rule, self.time if rule.timestamp is None else rule.timestamp)
        life.rule = rule
        if life.begins <= self.time:
            return [life]
        may_wait = {one.definition for one in waiting}
        before = [one for one in lives if one is not life and one.begins < life.begins]
        return [*(one for one in before if one.begins <= self.time or one.rule.definition in may_wait), life]

    def see(self, event: Event) -> list[Found]:
        self.come_to(event.time)
        in_force = [life for lives in self.slots.values() for life in lives if life.begins <= self.time]
        return [found for life in in_force if not life.disabled for found in life.see(event, self.limits)]


def matches(events: Sequence[Event], sets: Sequence[tuple[float, RuleSet]]) -> list[Found]:
    """:param sets: each with the event time after which it is in force"""
    rules, left, found = Rules(), list(sets), list[Found]()
    for event in sorted(events, key=lambda event: (event.time, event.order)):
        while left and left[0][0] < event.time:
            time, new = left.pop(0)
            rules.take(new, time)
        found += rules.see(event)
    return sorted(found)
