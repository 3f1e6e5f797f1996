"""Correlations of correlations in any order and as alternatives: random events in random cuts, against the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from asterism.sigma.collection import RefusedRule
from tests.kit import some
from tests.reference.sigma import (
    Completes,
    Element,
    chained,
    detected,
    event_of,
    in_any_order,
    lately,
    overlapping,
    several_counted,
    windows,
)
from tests.sigma.kit import rule
from tests.sigma.test_chains import ELEMENTS, INNER, at, inner
from tests.sigma.test_correlations import SPAN, correlation, made, matches, random_events

NESTED = {"type": "temporal", "rules": ["pairs", "login"]}
DETECTIONS = ("failed", "login", "admin")


def documents() -> list[dict[str, Any]]:
    """The correlations to which those of the tests refer."""
    return [*map(inner, ELEMENTS), inner("pairs", **NESTED) | {"name": "nested"}]


def completes(name: str) -> Completes:
    if name in DETECTIONS:
        return event_of(name)
    if name == "nested":
        return in_any_order(
            INNER, {"pairs": completes("pairs"), "login": event_of("login")}, lambda rules: len(rules) == 2
        )
    section, holds = ELEMENTS[name]
    return lately(section["rules"], INNER, holds)


def rules_of(*names: str) -> list[str]:
    """The detections to which rules refer."""
    inside = {"nested": ["failed", "login"]} | {name: section["rules"] for name, (section, _) in ELEMENTS.items()}
    return [rule for name in names for rule in inside.get(name, [name])]


def length_of(*names: str) -> int:
    """The time that matches of rules take at most."""
    return max({"nested": 2 * INNER}.get(name, INNER if name in ELEMENTS else 0) for name in names)


def check(document: dict[str, Any], elements: Sequence[Element], seed: int = 1) -> None:
    """The matches of a correlation are those of a chain of *elements*."""
    rng = random.Random(seed)
    events = [at(event, event["time"] // 6) for event in random_events(rng, 100)]
    report = rng.choice(["episode", "each"])
    found = matches(document, events, rng, *documents(), report=report, time="ts")
    answer = set()
    for user in ("ann", "bob"):
        of_user = [event for event in events if event["user"] == user]
        answer |= {(user, *one) for one in chained(of_user, SPAN, elements, episode=report == "episode")}
    assert found == answer != set()


@pytest.mark.parametrize(
    ("names", "condition", "holds"),
    some([
        (["guessing", "login"], None, lambda rules: len(rules) == 2),
        (["pairs", "both"], None, lambda rules: len(rules) == 2),
        (["guessing", "both", "admin"], {"gte": 2}, lambda rules: len(rules) >= 2),
        (["guessing", "both"], "guessing or both", bool),
        (["guessing", "either", "admin"], "guessing and (either or admin)", lambda rules: "guessing" in rules != {"guessing"}),
        (["nested", "admin"], None, lambda rules: len(rules) == 2),
        (["nested", "guessing", "admin"], "(nested or guessing) and admin", lambda rules: "admin" in rules != {"admin"}),
    ], every=2),
)  # fmt: skip
@pytest.mark.parametrize("seed", some([2, 1], every=2))
def test_correlations_in_any_order(names: list[str], condition: Any, holds: Any, seed: int) -> None:
    part = in_any_order(SPAN, {name: completes(name) for name in names}, holds)
    element = overlapping(rules_of(*names), SPAN + length_of(*names), part)
    check(correlation("temporal", names, condition), [element], seed)


@pytest.mark.parametrize(
    ("names", "condition", "count"),
    [
        (["guessing", "both"], {"gte": 2}, 2),
        (["pairs", "login"], {"gt": 2}, 3),
        (["pairs", "both", "admin"], {"gte": 4}, 4),
    ],
)
@pytest.mark.parametrize("seed", some([2, 1], every=2))
def test_a_count_of_matches_of_several_rules(names: list[str], condition: Any, count: int, seed: int) -> None:
    correlations = [completes(name) for name in names if name not in DETECTIONS]
    part = several_counted(SPAN, [name for name in names if name in DETECTIONS], correlations, count)
    element = overlapping(rules_of(*names), SPAN + length_of(*names), part)
    check(correlation("event_count", names, condition), [element], seed)


def alternatives(*names: str) -> Element:
    part = [completes(name) for name in names]
    return overlapping(rules_of(*names), length_of(*names), lambda events: any(rule(events) for rule in part))


@pytest.mark.parametrize(
    ("rules", "condition", "elements"),
    [
        (["guessing", "login", "admin"], "(guessing or login) and admin", [alternatives("guessing", "login"), detected("admin")]),
        (["login", "pairs", "both"], "login and (pairs or both)", [detected("login"), alternatives("pairs", "both")]),
        (
            ["names", "guessing", "both", "admin"],
            "names and (guessing or (both or admin))",
            [windows(["failed"], INNER, ELEMENTS["names"][1]), alternatives("guessing", "both", "admin")],
        ),
        (["nested", "admin", "failed"], "(nested or admin) and failed", [alternatives("nested", "admin"), detected("failed")]),
    ],
)  # fmt: skip
def test_correlations_as_alternatives(rules: list[str], condition: str, elements: list[Element]) -> None:
    check(correlation("temporal_ordered", rules, condition), elements)


def test_correlations_in_any_order_in_a_sequence() -> None:
    part = in_any_order(INNER, {"pairs": completes("pairs"), "login": event_of("login")}, lambda rules: len(rules) == 2)
    nested = overlapping(rules_of("nested"), 2 * INNER, part)
    check(correlation("temporal_ordered", ["admin", "nested"]), [detected("admin"), nested])
    check(correlation("temporal_ordered", ["nested", "admin"]), [nested, detected("admin")])


LONG = rule("long", s={"kind|contains": [f"y{number:0>900}" for number in range(15)]}, condition="s")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (correlation("temporal", ["pairs", "login"], "pairs and not login"), "cannot be temporal with this condition"),
        (correlation("temporal", ["pairs", "login"], {"lt": 2}), "cannot be temporal with this condition"),
        (correlation("event_count", ["pairs", "login"], {"lte": 2}), "cannot be event_count with this condition"),
        (correlation("event_count", ["pairs", "both"], {"gte": 20_000}), "event_count of 20,000 matches (limit 10,000)"),
        (correlation("temporal", ["names", "login"]), "value_count cannot match in any order"),
        (correlation("temporal", ["order", "login"]), "temporal_ordered cannot match in any order"),
        (correlation("temporal", ["average", "login"]), "value_avg cannot match in any order"),
        (correlation("temporal", ["few", "login"]), "only when its window is over"),
        (correlation("temporal", ["sequence", "login"]), "temporal_ordered of correlations cannot match in any order"),
        (correlation("temporal", ["counted", "login"]), "event_count of correlations cannot match in any order"),
        (correlation("temporal", ["several", "login"]), "event_count of correlations cannot match in any order"),
        (correlation("event_count", ["nested", "login"], {"gte": 2}), "temporal of correlations cannot be counted"),
        (correlation("temporal", ["more", "login"]), "must be grouped as the one that refers to it"),
        (correlation("temporal_ordered", ["more", "both", "login"], "login and (more or both)"), "must be grouped as"),
        (correlation("temporal_ordered", ["names", "login", "both"], "login and (names or both)"), "value_count cannot match"),
        (correlation("temporal", ["pairs", "guessing", "third", "fourth"]), "limit 32 classes of events"),
        (correlation("temporal", ["long", "pairs", "guessing"]), "longer than 50,000 characters"),
        (correlation("temporal_ordered", ["long", "pairs"] * 5), "longer than 50,000 characters"),
        (correlation("temporal", ["pairs"] * 51), "refers to 51 rules (limit 50)"),
        (correlation("temporal", ["correlation", "pairs"]), "refers to itself"),
    ],
)  # fmt: skip
def test_what_cannot_match_in_any_order_is_refused(document: dict[str, Any], problem: str) -> None:
    others = [
        inner("pairs", ("user", "target")) | {"name": "more"},
        inner("pairs", type="value_avg", condition={"gt": 1, "field": "x"}) | {"name": "average"},
        inner("pairs", condition={"gte": 2, "lt": 5}) | {"name": "few"},
        inner("pairs", condition={"gte": 4}) | {"name": "third"},
        inner("pairs", condition={"gte": 5}) | {"name": "fourth"},
        correlation("temporal_ordered", ["pairs", "login"]) | {"name": "sequence"},
        correlation("event_count", ["pairs"], {"gte": 2}) | {"name": "counted"},
        correlation("event_count", ["pairs", "login"], {"gte": 2}) | {"name": "several"},
        LONG,
    ]
    outcome = made(*documents(), *others, document, time="ts")
    assert isinstance(outcome, RefusedRule)
    assert outcome.place.startswith("rules.yml:")
    assert problem in str(outcome.error)


def test_braces_in_a_condition_are_text() -> None:
    braces = rule("braces", s={"kind|contains": "{} {0} }{"}, condition="s")
    outcome = made(braces, *documents(), correlation("temporal", ["braces", "pairs"]), time="ts")
    assert "'{} {0} }{'" in outcome.sql


def test_chains_that_refer_to_two_of_the_level_below_are_refused_in_time() -> None:
    """2 ** 45 ways lead down; each level has two correlations."""
    levels = []
    for level in range(45):
        below = [f"a{level - 1}", f"b{level - 1}"] if level else ["pairs", "login"]
        levels += [correlation("temporal", below) | {"name": f"{name}{level}"} for name in "ab"]
    outcome = made(*documents(), *levels, correlation("temporal", ["a44", "b44"]), time="ts")
    assert isinstance(outcome, RefusedRule)
    assert "limit 32 classes of events" in str(outcome.error)
