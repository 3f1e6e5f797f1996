"""The algebra of rule sets, compared with a naive model: a dictionary of the versions of each rule."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.discovery.editing.rule_set import Addition, RuleSet
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor, Slot


class New(NamedTuple):
    id: str
    shadow: bool
    version: int
    limit: int
    """Part of the definition."""
    enabled: bool
    hour: int | None
    """Of the timestamp."""

    def addition(self) -> Addition:
        return addition(*self)

    def has_definition_of(self, other: New) -> bool:
        return (self.limit, self.hour) == (other.limit, other.hour)

    def fits(self, other: New) -> bool:
        low, high = sorted((self, other), key=lambda one: one.version)
        return low.version < high.version and (-1 if low.hour is None else low.hour) < (
            -1 if high.hour is None else high.hour
        )


@cache
def addition(id: str, shadow: bool, version: int, limit: int, enabled: bool, hour: int | None) -> Addition:
    item: dict[str, Any] = {"id": id, "version": version, "sql": f"PATTERN (A) DEFINE A AS x > {limit}"}
    item |= {"shadow": True} if shadow else {}
    item |= {} if hour is None else {"timestamp": hour * 3_600_000}
    return Addition(item | ({} if enabled else {"enabled": False}), PatternProcessor.from_dict(item))


class Refused(Exception):  # noqa: N818 - it is a result
    """No rule is changed."""


def in_turn(versions: list[New]) -> list[New]:
    """The highest one, and those before it that fit."""
    found: list[New] = []
    for one in sorted(versions, key=lambda one: -one.version):
        if all(one.fits(other) for other in found):
            found.insert(0, one)
    return found


class Model:
    """Rules by id and version.

    :param keeps_versions: whether there are also those that others have replaced
    """

    def __init__(self, keeps_versions: bool) -> None:
        self.keeps_versions = keeps_versions
        self.rules: dict[tuple[str, int], New] = {}
        self.withdrawn: set[tuple[str, int]] = set()
        """The versions that were disabled while their rule stayed enabled."""

    def of(self, id: str, shadow: bool | None = None, version: int | None = None) -> list[New]:
        return [
            one
            for one in sorted(self.rules.values(), key=lambda one: one.version)
            if one.id == id and shadow in (None, one.shadow) and version in (None, one.version)
        ]

    def put(self, *rules: New, new: bool = False) -> None:
        for one in rules:
            there = self.rules.get((one.id, one.version))
            if new or one.enabled:
                self.withdrawn.discard((one.id, one.version))
            elif there is not None and there.enabled:
                self.withdrawn.add((one.id, one.version))
            self.rules[one.id, one.version] = one

    def drop(self, *rules: New) -> None:
        for one in rules:
            del self.rules[one.id, one.version]
            self.withdrawn.discard((one.id, one.version))

    def found(self, id: str, version: int | None = None) -> list[New]:
        if not self.of(id, None, version):
            raise Refused
        return self.of(id, None, version)

    def enabled(self, id: str, shadow: bool) -> list[New]:
        return [one for one in self.of(id, shadow) if one.enabled]

    def add(self, new: list[New], leaving: frozenset[Slot] = frozenset(), *, is_complete: bool = False) -> None:
        slots = {(one.id, one.shadow): [two for two in new if one[:2] == two[:2]] for one in new}
        if not self.keeps_versions and any(in_turn(those) != sorted(those) for those in slots.values()):
            raise Refused
        for one in sorted(new, key=lambda one: (one.shadow, one.version)):
            there = self.rules.get((one.id, one.version))
            if there is not None and not there.has_definition_of(one):
                raise Refused
            others = self.of(one.id, one.shadow)
            if not self.keeps_versions:
                if there is not None and one.shadow > there.shadow:
                    if (one.id, False) not in leaving:
                        raise Refused
                    # It is removed after the shadow was added, which the dictionary cannot have at the same time.
                    self.drop(*self.of(one.id, False))
                    leaving -= {(one.id, False)}
                at_once = one.hour is None and there not in others
                self.drop(*(other for other in others if at_once or not one.fits(other)))
                self.put(one)
                continue
            if there == one:
                continue
            if one.shadow and there in in_turn(self.enabled(one.id, False)) and (one.id, False) not in leaving:
                raise Refused
            if there is not None and there.shadow > one.shadow:
                self.put(*(s._replace(enabled=False) for s in self.of(one.id, True) if s != there))
            highest = [other for other in self.enabled(one.id, one.shadow) if other != there][-1:]
            if any(other.version > one.version and not one.fits(other) for other in highest):
                raise Refused
            self.put(one, new=True)
        for slot, those in slots.items() if is_complete else ():
            versions = {one.version for one in those}
            if self.keeps_versions:
                while others := [one for one in in_turn(self.enabled(*slot)) if one.version not in versions]:
                    self.put(*(one._replace(enabled=False) for one in others))
            else:
                self.drop(*(one for one in self.of(*slot) if one.version not in versions))
        for id, shadow in leaving:
            self.drop(*self.of(id, shadow))

    def put_all(self, new: list[New]) -> None:
        slots = {(one.id, one.shadow) for one in new}
        self.add(new, frozenset((one.id, one.shadow) for one in self.rules.values()) - slots, is_complete=True)

    def remove(self, ids: list[str], version: int | None) -> None:
        for id in ids:
            self.drop(*self.found(id, version))

    def disable(self, ids: list[str], version: int | None) -> None:
        for id in ids:
            were_enabled = {one for one in self.of(id) if one.enabled}
            self.put(*(one._replace(enabled=False) for one in self.found(id, version)))
            if were_enabled and not any(one.enabled for one in self.of(id)):
                versions = {(one.id, one.version) for one in were_enabled}
                self.withdrawn |= {(one.id, one.version) for one in self.of(id)}
                self.withdrawn -= versions

    def enable(self, ids: list[str], version: int | None) -> None:
        for id in ids:
            named = self.found(id, version)
            if version is None and self.keeps_versions:
                in_use = {one.shadow for one in named if one.enabled}
                candidates = [one for one in named if not one.enabled and one.shadow not in in_use]
                candidates = [one for one in candidates if (one.id, one.version) not in self.withdrawn]
                named = [one for one in named if one.enabled or one in candidates] or named
            for shadow in (False, True):
                used = in_turn([one for one in named if one.shadow == shadow])
                above = [one for one in self.of(id, shadow) if used and one.version > used[-1].version]
                self.put(*(one._replace(enabled=True) for one in used), *(one._replace(enabled=False) for one in above))
                enabled = self.enabled(id, shadow)
                if not self.keeps_versions and in_turn(enabled) != enabled:
                    raise Refused

    def promote(self, ids: list[str]) -> None:
        for id in ids:
            self.found(id)
            shadows, rules = self.enabled(id, True), self.of(id, False)
            if not shadows or (not self.keeps_versions and len(self.of(id, True)) > 1):
                raise Refused
            *others, promoted = shadows
            if self.keeps_versions:
                others += [one for one in self.enabled(id, False) if one.version > promoted.version]
                self.put(*(one._replace(enabled=False) for one in others))
            else:
                self.drop(*(one for one in rules if promoted.hour is None or not promoted.fits(one)))
            self.put(promoted._replace(shadow=False))


IDS = st.lists(st.sampled_from("ab"), min_size=1, max_size=2, unique=True)
NEW = st.builds(
    New,
    st.sampled_from("ab"),
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 2),
    st.just(True) | st.booleans(),
    st.none() | st.integers(1, 3),
)
ADDED = st.lists(NEW, min_size=1, max_size=3, unique_by=lambda one: one[:3])
VERSION = st.none() | st.integers(1, 4)
CHANGES = st.lists(
    st.tuples(st.just("add"), ADDED)
    | st.tuples(st.just("put_all"), ADDED)
    | st.tuples(st.sampled_from(["remove", "disable", "enable"]), IDS, VERSION)
    | st.tuples(st.just("promote"), IDS),
    max_size=12,
)


def shown(rules: RuleSet) -> set[New]:
    limits = {addition("a", False, 1, limit, True, None).item["sql"]: limit for limit in (1, 2)}
    hours = {None: None} | {hour * 3_600_000: hour for hour in (1, 2, 3)}
    return {
        New(r.id, r.shadow, r.version, limits[r.item["sql"]], r.enabled, hours[r.item.get("timestamp")])
        for r in rules.rules
    }


def as_stored(rules: RuleSet) -> RuleSet:
    """A table records which versions were withdrawn; documents do not."""
    if not rules.keeps_versions:
        return rules
    return replace(rules, rules=tuple(replace(rule, withdrawn=bool(rule.withdrawn)) for rule in rules.rules))


@pytest.mark.parametrize("keeps_versions", [False, True])
@given(changes=CHANGES)
def test_a_change_does_what_the_model_does(keeps_versions: bool, changes: list[Any]) -> None:
    rules, model = RuleSet(keeps_versions=keeps_versions), Model(keeps_versions)
    for what, *arguments in changes:
        before, withdrawn, rules_before = dict(model.rules), set(model.withdrawn), shown(rules)
        try:
            getattr(model, what)(*arguments)
        except Refused:
            model.rules, model.withdrawn = before, withdrawn
            given = arguments if what not in ("add", "put_all") else [[one.addition() for one in arguments[0]]]
            with pytest.raises(AsterismError):
                getattr(rules, what)(*given)
            continue
        given = arguments if what not in ("add", "put_all") else [[one.addition() for one in arguments[0]]]
        after, done = getattr(rules, what)(*given)
        assert shown(rules) == rules_before  # a change makes another set
        assert shown(after) == set(model.rules.values())
        assert len(done) >= len(arguments[0])
        if what == "add" and len({(one.id, one.version) for one in arguments[0]}) == len(arguments[0]):
            assert after.is_same(rules) or shown(after) != rules_before
        used = [one for one in shown(replace(after, rules=tuple(after.used()))) if one.enabled]
        assert all(one is two or one[:2] != two[:2] or one.fits(two) for one in used for two in used)
        rules = as_stored(after)


@given(changes=CHANGES)
def test_disabling_and_enabling_a_rule_of_a_table_restores_what_was_in_use(changes: list[Any]) -> None:
    rules = RuleSet(keeps_versions=True)
    for what, *arguments in changes:
        given = arguments if what not in ("add", "put_all") else [[one.addition() for one in arguments[0]]]
        with suppress(AsterismError):
            rules = as_stored(getattr(rules, what)(*given)[0])
        for id in {rule.id for rule in rules.rules if rule.enabled}:
            in_use = [(rule.version, rule.shadow) for rule in rules.used() if rule.id == id and rule.enabled]
            disabled = as_stored(rules.disable([id])[0])
            enabled = disabled.enable([id])[0]
            assert in_use == [(rule.version, rule.shadow) for rule in enabled.used() if rule.id == id and rule.enabled]
