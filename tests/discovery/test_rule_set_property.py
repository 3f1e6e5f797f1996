"""The algebra of rule sets, compared with a naive model: a dictionary of one version for each rule, and one of all versions."""

from __future__ import annotations

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

    def addition(self) -> Addition:
        return addition(*self)


@cache
def addition(id: str, shadow: bool, version: int, limit: int, enabled: bool) -> Addition:
    item: dict[str, Any] = {"id": id, "version": version, "sql": f"PATTERN (A) DEFINE A AS x > {limit}"}
    item |= {"shadow": True} if shadow else {}
    return Addition(item | ({} if enabled else {"enabled": False}), PatternProcessor.from_dict(item))


class Refused(Exception):  # noqa: N818 - it is a result
    """No rule is changed."""


class Model:
    """Rules by id, whether they are shadows, and version.

    :param keeps_versions: whether there may be several of a rule
    """

    def __init__(self, keeps_versions: bool) -> None:
        self.keeps_versions = keeps_versions
        self.rules: dict[tuple[str, int], New] = {}

    def of(self, id: str, shadow: bool | None = None, version: int | None = None) -> list[New]:
        return [
            one
            for one in sorted(self.rules.values(), key=lambda one: one.version)
            if one.id == id and shadow in (None, one.shadow) and version in (None, one.version)
        ]

    def put(self, *rules: New) -> None:
        self.rules |= {(one.id, one.version): one for one in rules}

    def drop(self, *rules: New) -> None:
        for one in rules:
            del self.rules[one.id, one.version]

    def found(self, id: str, version: int | None = None) -> list[New]:
        if not self.of(id, None, version):
            raise Refused
        return self.of(id, None, version)

    def enabled(self, id: str, shadow: bool) -> list[New]:
        return [one for one in self.of(id, shadow) if one.enabled]

    def add(self, new: list[New], leaving: frozenset[Slot] = frozenset()) -> None:
        for one in sorted(new, key=lambda one: one.shadow):
            there = self.rules.get((one.id, one.version))
            if there is not None and there.limit != one.limit:
                raise Refused
            others = self.of(one.id, one.shadow)
            if not self.keeps_versions:
                if there is not None and one.shadow > there.shadow:
                    if (one.id, False) not in leaving:
                        raise Refused
                    # It is removed after the shadow was added, which the dictionary cannot have at the same time.
                    leaving -= {(one.id, False)}
                self.drop(*others)
                self.put(one)
                continue
            if there == one:
                continue
            in_force = self.enabled(one.id, False)[-1:]
            if one.shadow and there in in_force and (one.id, False) not in leaving:
                raise Refused
            if there is not None and there.shadow > one.shadow:
                self.put(*(s._replace(enabled=False) for s in self.of(one.id, True) if s != there))
            if any(other.version > one.version for other in self.enabled(one.id, one.shadow)):
                raise Refused
            self.put(one)
        for id, shadow in leaving:
            self.drop(*self.of(id, shadow))

    def put_all(self, new: list[New]) -> None:
        slots = {(one.id, one.shadow) for one in new}
        self.add(new, frozenset((one.id, one.shadow) for one in self.rules.values()) - slots)

    def remove(self, ids: list[str], version: int | None) -> None:
        for id in ids:
            self.drop(*self.found(id, version))

    def disable(self, ids: list[str]) -> None:
        for id in ids:
            self.put(*(one._replace(enabled=False) for one in self.found(id)))

    def enable(self, ids: list[str], version: int | None) -> None:
        for id in ids:
            self.found(id, version)
            for shadow in (False, True):
                for highest in self.of(id, shadow, version)[-1:]:
                    above = [one for one in self.of(id, shadow) if one.version > highest.version]
                    self.put(highest._replace(enabled=True), *(one._replace(enabled=False) for one in above))

    def promote(self, ids: list[str]) -> None:
        for id in ids:
            self.found(id)
            shadows = self.enabled(id, True)
            if not shadows:
                raise Refused
            others = shadows[:-1]
            if self.keeps_versions:
                others += [one for one in self.enabled(id, False) if one.version > shadows[-1].version]
                self.put(*(one._replace(enabled=False) for one in others))
            else:
                self.drop(*self.of(id, False))
            self.put(shadows[-1]._replace(shadow=False))


IDS = st.lists(st.sampled_from("ab"), min_size=1, max_size=2, unique=True)
NEW = st.builds(
    New, st.sampled_from("ab"), st.booleans(), st.integers(1, 4), st.integers(1, 2), st.just(True) | st.booleans()
)
ADDED = st.lists(NEW, min_size=1, max_size=3, unique_by=lambda one: (one.id, one.shadow))
VERSION = st.none() | st.integers(1, 4)
CHANGES = st.lists(
    st.tuples(st.just("add"), ADDED)
    | st.tuples(st.just("put_all"), ADDED)
    | st.tuples(st.sampled_from(["remove", "enable"]), IDS, VERSION)
    | st.tuples(st.sampled_from(["disable", "promote"]), IDS),
    max_size=12,
)


def shown(rules: RuleSet) -> set[New]:
    limits = {addition("a", False, 1, limit, True).item["sql"]: limit for limit in (1, 2)}
    return {New(r.id, r.shadow, r.version, limits[r.item["sql"]], r.enabled) for r in rules.rules}


@pytest.mark.parametrize("keeps_versions", [False, True])
@given(changes=CHANGES)
def test_a_change_does_what_the_model_does(keeps_versions: bool, changes: list[Any]) -> None:
    rules, model = RuleSet(keeps_versions=keeps_versions), Model(keeps_versions)
    for what, *arguments in changes:
        before, rules_before = dict(model.rules), shown(rules)
        try:
            getattr(model, what)(*arguments)
        except Refused:
            model.rules = before
            given = arguments if what not in ("add", "put_all") else [[one.addition() for one in arguments[0]]]
            with pytest.raises(AsterismError):
                getattr(rules, what)(*given)
            continue
        given = arguments if what not in ("add", "put_all") else [[one.addition() for one in arguments[0]]]
        after, done = getattr(rules, what)(*given)
        assert shown(rules) == rules_before  # a change makes another set
        assert shown(after) == set(model.rules.values())
        assert len(done) >= len(arguments[0])
        assert after.is_same(rules) or (what, shown(after)) != ("add", rules_before)
        assert len({one.slot for one in after.used()}) == len(after.used())
        rules = after
