"""Correlations of correlations, of random events in random cuts against the reference, and by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from asterism.sigma.chain_rules import MAX_REPEATED
from asterism.sigma.collection import RefusedRule
from tests.reference.sigma import Element, chained, detected, in_order, sequence, windows
from tests.sigma.kit import outcomes, rule
from tests.sigma.test_correlations import BASE, SPAN, correlation, kinds, made, matches, random_events, values

INNER = 6
GUESSING = {"type": "event_count", "rules": ["failed"], "condition": {"gte": 3}}
PAIRS = {"type": "event_count", "rules": ["failed"], "condition": {"gte": 2}}
NAMES = {"type": "value_count", "rules": ["failed"], "condition": {"gt": 1, "field": "name"}}
BOTH = {"type": "temporal", "rules": ["failed", "admin"]}
EITHER = {"type": "temporal", "rules": ["failed", "admin", "login"], "condition": "failed and (admin or login)"}
ORDER = {"type": "temporal_ordered", "rules": ["failed", "admin"]}
ELEMENTS: dict[str, tuple[dict[str, Any], Any]] = {
    "guessing": (GUESSING, lambda w: len(w) >= 3),
    "pairs": (PAIRS, lambda w: len(w) >= 2),
    "names": (NAMES, lambda w: len(set(values(w, "name"))) > 1),
    "both": (BOTH, lambda w: kinds(w) >= {"failed", "admin"}),
    "either": (EITHER, lambda w: "failed" in kinds(w) != {"failed"}),
    "order": (ORDER, lambda w: in_order(w, ["failed", "admin"])),
}


def inner(name: str, groups: tuple[str, ...] = ("user",), **more: Any) -> dict[str, Any]:
    section = {"group-by": list(groups), "timespan": f"{INNER}s"} | ELEMENTS[name][0] | more
    return {"title": name.title(), "name": name, "correlation": section}


CHAINS = {
    "chain": ["pairs", "login"],
    "ordered": ["admin", "order"],
    "twice": ["names", "names"],
    "deep": ["chain", "admin"],
}


def chain(name: str) -> dict[str, Any]:
    rules = CHAINS[name]
    more: dict[str, Any] = {"type": "temporal_ordered", "rules": rules, "condition": None}
    if len(set(rules)) < len(rules):
        more = {"type": "event_count", "rules": rules[:1], "condition": {"gte": len(rules)}}
    section = {key: value for key, value in more.items() if value is not None}
    return {
        "title": name.title(),
        "name": name,
        "correlation": section | {"group-by": ["user"], "timespan": f"{INNER}s"},
    }


def documents(names: Sequence[str], groups: tuple[str, ...] = ("user",)) -> list[dict[str, Any]]:
    """The correlations with these names, and those to which they refer."""
    made = {name: inner(name, groups) for name in names if name in ELEMENTS}
    for name in names:
        if name in CHAINS:
            made |= {one["name"]: one for one in documents(CHAINS[name])} | {name: chain(name)}
    return list(made.values())


def element(name: str, groups: tuple[str, ...] = ()) -> Element:
    if name in CHAINS:
        return sequence(INNER, [element(inner_name) for inner_name in CHAINS[name]])
    if name not in ELEMENTS:
        return detected(*name.split(" or "))
    section, holds = ELEMENTS[name]
    return windows(section["rules"], INNER, holds, groups)


def at(event: dict[str, Any], time: int) -> dict[str, Any]:
    return event | {"time": time, "ts": datetime.fromtimestamp(time, UTC)}


def check(
    document: dict[str, Any], names: list[str], groups: tuple[str, ...] = ("user",), seed: int = 1, span: int = SPAN
) -> None:
    rng = random.Random(seed)
    events = [at(event, event["time"] // 6) for event in random_events(rng, 100)]
    report = rng.choice(["episode", "each"])
    found = matches(document, events, rng, *documents(names, groups), report=report, time="ts")
    answer = set()
    for user in ("ann", "bob"):
        mine = [event for event in events if event["user"] == user]
        elements = [element(name, groups) for name in names]
        answer |= {(user, *one) for one in chained(mine, span, elements, episode=report == "episode")}
    assert found == answer != set()


@pytest.mark.parametrize(
    "names",
    [
        ["guessing", "login"],
        ["names", "login"],
        ["both", "login"],
        ["either", "admin"],
        ["order", "login"],
        ["login", "order"],
        ["login", "pairs", "admin"],
        ["pairs", "both"],
        ["order", "names", "login"],
    ],
)
def test_a_sequence_of_correlations_and_detections(names: list[str]) -> None:
    check(correlation("temporal_ordered", names), names)


@pytest.mark.parametrize("name", ["guessing", "both", "order"])
def test_the_first_correlation_of_a_sequence_may_have_more_groups(name: str) -> None:
    check(correlation("temporal_ordered", [name, "login"]), [name, "login"], ("user", "target"))


@pytest.mark.parametrize(("name", "condition"), [("guessing", {"gte": 1}), ("order", {"gt": 0})])
def test_a_count_of_one_match_of_a_correlation(name: str, condition: dict[str, int]) -> None:
    check(correlation("event_count", [name], condition), [name])


@pytest.mark.parametrize("name", ["pairs", "names", "both", "order"])
def test_a_count_of_matches_of_a_correlation(name: str) -> None:
    check(correlation("event_count", [name], {"gt": 1}), [name] * 2, seed=2)


@pytest.mark.parametrize(
    ("rules", "condition", "names"),
    [
        (["pairs", "login", "admin"], "pairs and (login or admin)", ["pairs", "login or admin"]),
        (["login", "admin", "order"], "(admin or login) and order", ["admin or login", "order"]),
        (["pairs", "login"], "pairs and login", ["pairs", "login"]),
    ],
)
def test_a_condition_with_alternatives(rules: list[str], condition: str, names: list[str]) -> None:
    check(correlation("temporal_ordered", rules, condition), names)


@pytest.mark.parametrize(
    ("names", "seed"),
    [
        (["chain", "admin"], 1),
        (["admin", "chain"], 1),
        (["ordered", "pairs"], 1),
        (["pairs", "twice"], 3),
        (["deep", "failed"], 1),
    ],
)
def test_a_chain_in_a_chain(names: list[str], seed: int) -> None:
    check(correlation("temporal_ordered", names), names, seed=seed)


def test_a_count_of_matches_of_a_chain() -> None:
    check(correlation("event_count", ["ordered"], {"gte": 2}, timespan="30s"), ["ordered"] * 2, seed=2, span=30)


@pytest.mark.parametrize(
    ("document", "options", "problem"),
    [
        (correlation("temporal_ordered", ["pairs", "login"]), {"time": None}, "event-time column"),
        (correlation("temporal_ordered", ["others", "login"]), {}, "not grouped by 'user'"),
        (correlation("temporal_ordered", ["login", "more"]), {}, "only the first correlation of a chain"),
        (correlation("temporal_ordered", ["pairs", "login"], {"gte": 1}), {}, "needs all of its rules"),
        (correlation("temporal_ordered", ["pairs", "login"], "pairs and not login"), {}, "must be a sequence of rules"),
        (correlation("temporal_ordered", ["average", "login"]), {}, "only when its window is over"),
        (correlation("temporal_ordered", ["few", "login"]), {}, "only when its window is over"),
        (correlation("temporal_ordered", ["chain", "login"], **{"group-by": []}), {}, "must be grouped as that one is"),
        (correlation("temporal_ordered", ["chain", "login"] * 17), {}, "more than 50 rules"),
        (correlation("value_count", ["pairs"], {"gte": 2, "field": "name"}), {}, "cannot be value_count"),
        (correlation("event_count", ["pairs"], {"lt": 2}), {}, "event_count with this condition"),
        (correlation("event_count", ["pairs"], {"gte": MAX_REPEATED + 1}), {}, "matches of a correlation (limit"),
        (correlation("event_count", ["more"], {"gte": 2}), {}, "must be grouped as the correlation is"),
        (
            correlation("event_count", ["broken"], {"gte": 2}),
            {},
            "there is no rule 'nobody'",
        ),
        (correlation("temporal_ordered", ["many", "login"]), {}, "event_count of 20,000 events (limit 10,000)"),
        (
            correlation(
                "temporal_ordered",
                ["more", "login"],
                aliases={"who": {"more": "target", "login": "user"}},
                **{"group-by": ["who"]},
            ),
            {},
            "the alias 'who' gives the correlation 'more' another field",
        ),
        (correlation("temporal_ordered", ["pairs"] * 51), {}, "refers to 51 rules (limit 50)"),
    ],
)
def test_a_chain_that_has_no_meaning_is_refused(
    document: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    average = {"type": "value_avg", "condition": {"gt": 1, "field": "x"}}
    others = [
        inner("pairs"),
        inner("pairs", ("target",)) | {"name": "others"},
        inner("pairs", ("user", "target")) | {"name": "more"},
        inner("pairs", **average) | {"name": "average"},
        inner("pairs", condition={"gte": 2, "lt": 5}) | {"name": "few"},
        inner("pairs", rules=["nobody"]) | {"name": "broken"},
        inner("pairs", condition={"gte": 20_000}) | {"name": "many"},
        correlation("temporal_ordered", ["pairs", "login"]) | {"name": "chain"},
    ]
    outcome = made(*others, document, **({"time": "ts"} | options))
    assert isinstance(outcome, RefusedRule)
    assert outcome.place.startswith("rules.yml:")
    assert problem in str(outcome.error)


def test_a_condition_with_the_text_of_a_column_is_of_the_window_of_its_correlation() -> None:
    quoted = rule("quoted", s={"kind|contains": "`kind`"}, condition="s")
    both = inner("both", rules=["failed", "quoted"])
    outcome = made(quoted, both, correlation("temporal_ordered", ["login", "both"]), time="ts")
    assert "MAX(CASE WHEN (CONTAINS(LOWER(CAST(W.`kind` AS STRING)), '`kind`') AND W.`user` IS NOT NULL)" in outcome.sql


def test_a_correlation_of_a_chain_has_matches_only_if_the_chain_says_so() -> None:
    def ids(**more: Any) -> list[str | None]:
        chain = correlation("temporal_ordered", ["pairs", "login"], **more)
        return [one.id for one in outcomes(*BASE, inner("pairs"), chain, time="ts")]

    assert ids() == ["admin", "correlation"]
    assert ids(generate=True) == ["login", "admin", "pairs", "correlation"]


def test_a_cycle_of_chains_is_refused() -> None:
    circle = correlation("temporal_ordered", ["correlation", "login"]) | {"name": "circle"}
    outcome = made(circle, correlation("event_count", ["circle"], {"gte": 2}), time="ts")
    assert isinstance(outcome, RefusedRule)
    assert "refers to itself" in str(outcome.error)
