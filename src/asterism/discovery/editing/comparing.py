"""The differences between the rules in two places."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from asterism.discovery.editing.kept_rules import OFF, OLDER, ON, SHADOW, Rule
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor, Slot, by_slot
from asterism.rules.sets.interfaces import without_flag
from asterism.rules.sets.sets import ProcessorSet

MAX_SHOWN = 10_000
"""Lines of a rule that are compared line by line."""


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """A rule, or a *shadow*, that is only in one of two places, or differs."""

    id: str
    old: Rule | None
    new: Rule | None
    shadow: bool = False

    @property
    def name(self) -> str:
        return f"shadow of {self.id}" if self.shadow else self.id

    def __str__(self) -> str:
        """
        >>> print(RuleDifference("a", Rule("a", 1, ON, "", {"id": "a"}), Rule("a", 2, OFF, "", {"id": "a"})))
        ~ a, version 1 -> 2, off
        """
        sign = "+" if self.old is None else "-" if self.new is None else "~"
        versions = dict.fromkeys(
            f"{rule.version}{', off' if rule.state == OFF else ''}" for rule in (self.old, self.new) if rule is not None
        )
        return f"{sign} {self.name}, version {' -> '.join(versions)}"

    @property
    def stored_slot(self) -> Slot:
        rule = self.new or self.old
        assert rule is not None
        return rule.stored_slot

    def lines(self) -> list[str]:
        old, new = (text_of(rule).splitlines()[:MAX_SHOWN] for rule in (self.old, self.new))
        return list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]


def text_of(rule: Rule | None) -> str:
    """The JSON form of a rule, which is the same for equal rules if they are valid."""
    if rule is None:
        return ""
    definition: Any = rule.item
    if rule.call is not None:
        definition = {"className": rule.call[0], "constructorParams": list(rule.call[1])}
    elif rule.error is None:
        try:
            definition = PatternProcessor.from_dict(without_flag(rule.item)[0]).as_data().to_dict()
        except AsterismError:
            definition = rule.item
    if rule.state == OFF:
        definition = {**definition, "enabled": False} if isinstance(definition, dict) else definition
    return json.dumps(definition, ensure_ascii=False, indent=2, sort_keys=True, default=str)


def differences(old: Iterable[Rule], new: Iterable[Rule]) -> list[RuleDifference]:
    """The rules of *new* that are not in *old* or differ from those, and the rules that are only in *old*. The versions of a rule
    that are used are compared, or the highest one if the rule is disabled; and likewise its shadows. A shadow that has become a
    version in force is not counted as a difference.
    """
    before, after = _used(old), _used(new)
    promoted = {
        (id, True)
        for (id, shadow), rules in after.items()
        if not shadow and {rule.version for rule in before.get((id, True), ())} <= {rule.version for rule in rules}
    }
    different = []
    for slot in [*after, *(slot for slot in before if slot not in after and slot not in promoted)]:
        old_versions, new_versions = before.get(slot, []), after.get(slot, [])
        same = {rule.version for rule in old_versions} & {rule.version for rule in new_versions}
        pairs = [(a, b) for a in old_versions for b in new_versions if a.version == b.version]
        others = ([rule for rule in rules if rule.version not in same] for rules in (old_versions, new_versions))
        different += [
            RuleDifference(slot[0], a, b, slot[1])
            for a, b in [*pairs, *zip_longest(*others)]
            if a is None or b is None or text_of(a) != text_of(b)
        ]
    return different


def _used(rules: Iterable[Rule]) -> dict[Slot, list[Rule]]:
    """The versions of each rule that are used, the lowest first; if there is none, the highest."""
    used = {}
    for slot, versions in by_slot(rule for rule in rules if rule.state != OLDER).items():
        versions.sort(key=lambda rule: (rule.state in (ON, SHADOW), -1 if rule.version is None else rule.version))
        used[slot] = [rule for rule in versions if rule.state in (ON, SHADOW)] or versions[-1:]
    return used


def rules_in_set(processor_set: ProcessorSet, where: str) -> Sequence[Rule]:
    return [
        Rule(processor.id, processor.version, SHADOW if processor.shadow else ON, where, processor.to_dict())
        for processor in processor_set.processors
    ]
