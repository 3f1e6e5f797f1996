"""Correlations of Sigma, of random events in random cuts against the reference, and by hand."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from asterism.patterns.semantics import Semantics
from asterism.rules.definition.processor import PatternProcessor
from asterism.sigma.collection import RefusedRule
from asterism.testing.rule_harness import rows_of_rule
from tests.kit import FACTOR
from tests.reference.sigma import Found, Window, in_order, over, reached
from tests.sigma.kit import outcomes, rule

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("number", pa.int64()),
        ("user", pa.string()),
        ("target", pa.string()),
        ("kind", pa.string()),
        ("x", pa.float64()),
        ("name", pa.string()),
    ]
)
SPAN = 10
SEEDS = range(3, 4)
FAILED = rule("failed", s={"kind|contains": "f"}, condition="s")
LOGIN = rule("login", s={"kind|contains": "l"}, condition="s")
ADMIN = rule("admin", s={"kind|contains": "a"}, condition="s")
BASE = [FAILED, LOGIN, ADMIN]
NAMES = {"f": "failed", "l": "login", "a": "admin"}


def correlation(kind: str, rules: Any, condition: Any = None, **more: Any) -> dict[str, Any]:
    section = {"type": kind, "rules": rules, "group-by": ["user"], "timespan": f"{SPAN}s"} | more
    if condition is not None:
        section["condition"] = condition
    return {"title": "Correlation", "name": "correlation", "correlation": section}


def random_events(rng: random.Random, count: int = 90) -> list[dict[str, Any]]:
    time = 0
    events = []
    for number in range(count):
        time += rng.choice([0, 0, 1, 1, 1, 2, 3, 5, 9, 10, 14])
        kind = rng.choice(["f", "f", "f", "l", "a", "fl", "x"])
        user = rng.choice(["ann", "bob", None])
        events.append(
            {
                "ts": datetime.fromtimestamp(time, UTC),
                "time": time,
                "number": number,
                "user": user,
                "target": rng.choice(["ann", "bob"]),
                "kind": kind,
                "x": rng.choice([None, 1.0, 2.0, 2.0, 5.0, -1.0]),
                "name": rng.choice(["p", "q", "r", None]),
                "rules": [NAMES[letter] for letter in kind if letter in NAMES],
            }
        )
    return events


def table(events: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: event[name] for name in SCHEMA.names} for event in events], SCHEMA)


def matches(
    document: dict[str, Any],
    events: Sequence[dict[str, Any]],
    rng: random.Random,
    *more: dict[str, Any],
    **options: Any,
) -> set[Any]:
    """(group, number of the last event, suppressed), the events in random parts."""
    made = next(one for one in outcomes(*BASE, *more, document, **options) if one.id == "correlation")
    if isinstance(made, RefusedRule):
        raise made.error
    processor = PatternProcessor(
        "correlation", 1, made.pattern, key=made.key, sql=made.sql, suppress=made.suppress, labels=made.labels
    )
    parts: list[pa.Table | None] = []
    rest = list(events)
    while rest:
        size = rng.randint(1, 12)
        while size < len(rest) and rest[size]["time"] == rest[size - 1]["time"]:  # it would be late
            size += 1
        parts += [table(rest[:size]), None]
        rest = rest[size:]
    rows = rows_of_rule(processor, SCHEMA, parts, keys=[], time="ts", semantics=Semantics.DEFAULT)
    return {
        (*row["key"], max(event["event"]["number"] for event in row["events"]), row["suppressed"])
        for row in rows.get("matches", ())
    }


def expected(
    events: Sequence[dict[str, Any]],
    rules: Sequence[str],
    evaluate: Callable[[Window], list[Found]],
    group: str = "user",
) -> set[Any]:
    groups = sorted({event[group] for event in events if event[group] is not None})
    answers = set()
    for name in groups:
        inside = [event for event in events if event[group] == name and set(event["rules"]) & set(rules)]
        answers |= {(name, *found) for found in evaluate(inside)}
    return answers


def values(window: Window, name: str = "x") -> list[Any]:
    return [event[name] for event in window if event[name] is not None]


def total(window: Window) -> float:
    return sum(values(window))


def kinds(window: Window) -> set[str]:
    return {name for event in window for name in event["rules"]}


def pairs(window: Window) -> int:
    return len({(event["name"], event["target"]) for event in window if event["name"]})


def percentile(numbers: list[float], share: float) -> float:
    ordered, place = sorted(numbers), share * (len(numbers) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


REACHED: list[tuple[str, list[str], Any, Callable[[Window], bool]]] = [
    ("event_count", ["failed"], {"gte": 3}, lambda w: len(w) >= 3),
    ("event_count", ["failed", "login"], {"gt": 3}, lambda w: len(w) > 3),
    ("event_count", ["failed"], {"gte": 1}, lambda w: len(w) >= 1),
    ("value_count", ["failed"], {"gte": 2, "field": "name"}, lambda w: len(set(values(w, "name"))) >= 2),
    ("value_count", ["failed"], {"gt": 1, "field": ["name", "target"]},
     lambda w: pairs(w) > 1),
    ("value_sum", ["failed", "admin"], {"gte": 5, "field": "x"}, lambda w: bool(values(w)) and total(w) >= 5),
    ("temporal", ["failed", "login"], None, lambda w: kinds(w) >= {"failed", "login"}),
    ("temporal", ["failed", "login", "admin"], {"gte": 2}, lambda w: len(kinds(w)) >= 2),
    ("temporal", ["failed", "login", "admin"], "failed and (login or admin)", lambda w: "failed" in kinds(w) != {"failed"}),
    ("temporal_ordered", ["failed", "login"], None, lambda w: in_order(w, ["failed", "login"])),
    ("temporal_ordered", ["failed", "admin", "login"], None, lambda w: in_order(w, ["failed", "admin", "login"])),
    ("temporal_ordered", ["failed", "admin", "login"], "failed and (admin or login)",
     lambda w: any(in_order(w, ["failed", last]) for last in ("admin", "login"))),
]  # fmt: skip
OVER: list[tuple[str, list[str], Any, Callable[[Window], bool]]] = [
    ("event_count", ["failed"], {"lt": 3}, lambda w: len(w) < 3),
    ("event_count", ["failed"], {"eq": 2}, lambda w: len(w) == 2),
    ("event_count", ["failed"], {"neq": 2}, lambda w: len(w) != 2),
    ("event_count", ["failed", "login"], {"gt": 1, "lte": 3}, lambda w: 1 < len(w) <= 3),
    ("value_count", ["failed"], {"lte": 1, "field": "name"}, lambda w: len(set(values(w, "name"))) <= 1),
    ("value_sum", ["failed"], {"lt": 2, "field": "x"}, lambda w: bool(values(w)) and total(w) < 2),
    ("value_avg", ["failed"], {"gt": 1.5, "field": "x"}, lambda w: bool(values(w)) and total(w) / len(values(w)) > 1.5),
    ("value_median", ["failed"], {"gte": 2, "field": "x"}, lambda w: bool(values(w)) and statistics.median(values(w)) >= 2),
    ("value_percentile", ["failed"], {"percentile": 75, "lt": 3, "field": "x"},
     lambda w: bool(values(w)) and percentile(values(w), 0.75) < 3),
    ("temporal", ["failed", "login"], "failed and not login", lambda w: "login" not in kinds(w)),
    ("temporal", ["failed", "login", "admin"], {"eq": 2}, lambda w: len(kinds(w)) == 2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REACHED)))
def test_conditions_that_are_reached(number: int) -> None:
    """Every match, or one of an episode: each of every second condition, ``make test-all`` both of all."""
    kind, rules, condition, holds = REACHED[number]
    reports = ("episode", "each") if FACTOR > 1 else (("episode", "each")[number % 2],)
    document = correlation(kind, rules, condition)
    some = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        events = random_events(rng)

        def holding(window: Window) -> bool:
            relevant = [{**event, "rules": [name for name in event["rules"] if name in rules]} for event in window]
            return holds(relevant)

        for report in reports:
            answer = expected(
                events,
                rules,
                lambda inside, report=report: reached(inside, SPAN, holding, episode=report == "episode"),  # type: ignore[misc]
            )
            assert matches(document, events, rng, report=report) == answer
            some += len(answer)
    assert some


@pytest.mark.parametrize(("kind", "rules", "condition", "holds"), OVER)
def test_conditions_that_are_known_when_a_window_is_over(
    kind: str, rules: list[str], condition: Any, holds: Callable[[Window], bool]
) -> None:
    document = correlation(kind, rules, condition)
    some = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        events = random_events(rng)

        def holding(window: Window) -> bool:
            relevant = [{**event, "rules": [name for name in event["rules"] if name in rules]} for event in window]
            return holds(relevant)

        answer = expected(events, rules, lambda inside: over(inside, SPAN, holding))
        assert matches(document, events, rng) == answer
        some += len(answer)
    assert some


def made(*documents: dict[str, Any], **options: Any) -> Any:
    """The outcome of the correlation."""
    return next(one for one in outcomes(*BASE, *documents, **options) if one.id == "correlation")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (correlation("event_count", ["nobody"], {"gte": 2}), "there is no rule 'nobody'"),
        (correlation("event_count", ["failed"], {"gte": 20_000}), "limit 10,000"),
        (correlation("event_count", ["failed"], {"gte": "many"}), "must be a number"),
        (correlation("event_count", ["failed"], {}), "exactly one condition"),
        (correlation("value_count", ["failed"], {"gte": 2}), "without field"),
        (correlation("value_percentile", ["failed"], {"gte": 2, "field": "x"}), "needs a percentile"),
        (correlation("nonsense", ["failed"], {"gte": 2}), "no valid Sigma correlation type"),
        (correlation("event_count", ["failed"], {"gte": 2}, timespan="99999999y"), "longer than"),
        (correlation("event_count", ["failed"], {"gte": 2}, timespan="soon"), "invalid"),
        (correlation("event_count", ["correlation"], {"gte": 2}), "refers to itself"),
        (correlation("temporal_ordered", ["failed", "login"], "failed and not login"), "must be a sequence of rules"),
        (correlation("temporal", ["failed"] * 60), "limit 50"),
        (correlation("temporal", ["failed", "login"], "failed and ((login"), "parse"),
        (correlation("event_count", 7, {"gte": 2}), ""),
        ({"title": "Correlation", "name": "correlation", "correlation": "x"}, ""),
    ],
)
def test_a_bad_correlation_is_refused(document: dict[str, Any], problem: str) -> None:
    outcome = made(document)
    assert isinstance(outcome, RefusedRule)
    assert problem in str(outcome.error)


def test_cycles_of_correlations_are_refused() -> None:
    first = correlation("event_count", ["second"], {"gte": 2})
    second = correlation("event_count", ["correlation"], {"gte": 2}) | {"name": "second"}
    third = correlation("event_count", ["second"], {"gte": 2}) | {"name": "third"}
    found = {one.id: str(getattr(one, "error", "")) for one in outcomes(first, second, third)}
    assert "refers to itself" in found["correlation"]
    assert "refers to itself" in found["second"]
    assert "refused" in found["third"]


def test_rules_of_correlations_have_matches_only_if_it_says_so() -> None:
    def ids(**more: Any) -> list[str | None]:
        return [one.id for one in outcomes(FAILED, LOGIN, correlation("event_count", ["failed"], {"gte": 2}, **more))]

    assert ids() == ["login", "correlation"]
    assert ids(generate=True) == ["failed", "login", "correlation"]


def test_a_rule_that_is_refused_refuses_its_correlation() -> None:
    bad = rule("bad", s={"a|nosuch": 1}, condition="s")
    refused, outcome = outcomes(bad, correlation("event_count", ["bad"], {"gte": 2}))
    assert isinstance(refused, RefusedRule)
    assert isinstance(outcome, RefusedRule)
    assert "rules.yml:1: Unknown modifier" in str(outcome.error)


def test_aliases_group_by_a_field_of_each_rule() -> None:
    aliases = {"who": {"failed": "user", "login": "target"}}
    document = correlation("temporal_ordered", ["failed", "login"], aliases=aliases, **{"group-by": ["who"]})
    rng = random.Random(3)
    events = [
        event for event in random_events(rng, 120) if event["kind"] != "fl"
    ]  # which group is that of the first rule
    for event in events:
        event["who"] = event["user"] if event["kind"] == "f" else event["target"]
    answer = expected(
        events,
        ["failed", "login"],
        lambda inside: reached(inside, SPAN, lambda w: in_order(w, ["failed", "login"]), episode=True),
        "who",
    )
    assert answer
    assert matches(document, events, rng) == answer


def test_without_groups_all_events_are_together() -> None:
    rng = random.Random(4)
    events = [event | {"user": "all"} for event in random_events(rng)]
    for kind, condition in (("event_count", {"gte": 4}), ("value_count", {"gte": 3, "field": "name"})):
        found = {
            one[-2:] for one in matches(correlation(kind, ["failed"], condition, **{"group-by": None}), events, rng)
        }
        grouped = {one[-2:] for one in matches(correlation(kind, ["failed"], condition), events, rng)}
        assert found == grouped != set()
