"""Rules that change, event after event in the order of event time: nothing waits, nothing is evaluated ahead.

A set takes effect at the watermark with which its micro-batch begins: all events after it meet this set. If no rule before it has
grouped by the key of a rule, this rule sees the events that are later than all that had arrived by then. A rule is a sequence of
kinds, as a pattern in which each event is followed by another, or as a clause of consecutive rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

BEFORE = float("-inf")
STREAM = ("user", False)
"""The key of the stream, by which all events are always known."""


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

    @property
    def key(self) -> tuple[str, bool]:
        """A clause has a key of its own, because it groups NULLs, unless it groups by the key of the stream."""
        return self.by, self.clause and self.by != "user"


@dataclass(frozen=True)
class RuleSet:
    """*limits* by user; *before*: sets that were published since the last one that a micro-batch brought; *latest*: the latest
    time of an event that had arrived before it.

    Of a slot, there may be several versions, the first to come into force first.
    """

    rules: tuple[Rule, ...]
    killed: frozenset[str] = frozenset()
    limits: Mapping[str, float] = field(default_factory=dict)
    before: tuple[tuple[Rule, ...], ...] = ()
    latest: float = BEFORE


Found = tuple[str, int, str, float, float, bool, int]
"""Id, version, key, times of the first and the last event, whether it is a shadow's, how many matches were suppressed before."""


@dataclass(eq=False)
class _Life:
    """A version from when it comes until it goes."""

    rule: Rule
    begins: float
    published: int
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


@dataclass(frozen=True)
class _Published:
    """A version that may be in force, whether or not a micro-batch has brought it. One that is *withdrawn* does not come into
    force, but stays if it is.

    :param number: which publication brought it
    :param listed: whether the last set still had it
    """

    rule: Rule
    number: int
    listed: bool
    withdrawn: bool = False


class Rules:
    """The slots, each with the version in force, if there is one, and those that wait, in the order of their times."""

    def __init__(self) -> None:
        self.time = BEFORE
        self.limits: Mapping[str, float] = {}
        self.slots: dict[tuple[str, bool], list[_Life]] = {}
        self.published: dict[tuple[str, bool], list[_Published]] = {}
        self.number = 0
        self.keys = {STREAM: BEFORE}
        """The keys by which rules group, each with the time after which all events are known by it."""

    def come_to(self, time: float) -> None:
        self.time = max(self.time, time)
        for slot, lives in self.slots.items():
            begun = [life for life in lives if life.begins <= self.time]
            lives = [life for life in lives if life.begins > self.time or life is begun[-1]]
            self.slots[slot] = [one for one in lives if one.rule.expires is None or one.rule.expires > self.time]

    def _publish(self, rules: Sequence[Rule]) -> None:
        """The versions of a set say what is in force from the first of them on. What was published before stays until then,
        unless it was withdrawn: it was in a set together with a later version, which still is.
        """
        self.number += 1
        before, self.published = self.published, {}
        known = {one.rule.definition: one.number for chain in before.values() for one in chain}
        for slot in dict.fromkeys((rule.id, rule.shadow) for rule in rules):
            versions = [rule for rule in rules if (rule.id, rule.shadow) == slot]
            now = {rule.version for rule in versions}
            chain = []
            former = before.get(slot, [])
            for place, one in enumerate(former):
                rule, later = one.rule, [other for other in former[place + 1 :] if other.listed]
                withdrawn = one.withdrawn or (one.listed and any(other.rule.version in now for other in later))
                first = versions[0].timestamp
                in_time = first is not None and (rule.timestamp is None or rule.timestamp < first)
                if rule.version not in now and in_time:
                    chain.append(replace(one, listed=False, withdrawn=withdrawn))
            chain += [_Published(rule, known.get(rule.definition, self.number), listed=True) for rule in versions]
            self.published[slot] = chain

    def take(self, new: RuleSet, time: float) -> None:
        self.come_to(time)
        for rules in [*new.before, new.rules]:
            self._publish(rules)
        before, self.slots = self.slots, {}
        used: list[_Life] = []
        for slot in sorted(self.published):
            id, shadow = slot
            free = [life for each in (slot, (id, not shadow)) for life in before.get(each, []) if life not in used]
            lives: list[_Life] = []
            for one in self.published[slot]:
                same = [
                    life for life in free if (life.rule.definition, life.published) == (one.rule.definition, one.number)
                ]
                begins = self.time if one.rule.timestamp is None else one.rule.timestamp
                if one.withdrawn and not any(life.begins <= self.time and life.rule.shadow == shadow for life in same):
                    continue
                life = same[0] if same else _Life(one.rule, begins, one.number)
                life.rule = one.rule
                lives.append(life)
            if lives[0].begins > self.time:
                lives = [life for life in free if life.rule.shadow == shadow and life.begins <= self.time] + lives
            self.slots[slot] = lives
            used += lives
        for lives in self.slots.values():
            for life in lives:
                if {life.rule.id, f"{life.rule.id}@{life.rule.version}"} & new.killed:
                    life.disabled, life.parts = True, {}
        self.limits = new.limits
        self.come_to(time)
        used_keys = {life.rule.key for lives in self.slots.values() for life in lives if not life.disabled}
        last = {(rule.id, rule.shadow): rule for rule in new.rules}
        named = {slot: {rule.id, f"{rule.id}@{rule.version}"} for slot, rule in last.items()}
        used_keys |= {rule.key for slot, rule in last.items() if not named[slot] & new.killed}
        self.keys = {key: self.keys.get(key, new.latest) for key in {STREAM, *used_keys}}

    def see(self, event: Event) -> list[Found]:
        self.come_to(event.time)
        in_force = [life for lives in self.slots.values() for life in lives if life.begins <= self.time]
        sees = [life for life in in_force if not life.disabled and event.time > self.keys[life.rule.key]]
        return [found for life in sees for found in life.see(event, self.limits)]


def matches(events: Sequence[Event], sets: Sequence[tuple[float, RuleSet]]) -> list[Found]:
    """:param sets: each with the event time after which it is in force"""
    rules, left, found = Rules(), list(sets), list[Found]()
    for event in sorted(events, key=lambda event: (event.time, event.order)):
        while left and left[0][0] < event.time:
            time, new = left.pop(0)
            rules.take(new, time)
        found += rules.see(event)
    return sorted(found)
