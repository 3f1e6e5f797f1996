"""What a rule costs, before it runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from asterism import Pattern
from asterism.rules.definition.costs import cost_of
from asterism.rules.definition.processor import PatternProcessor
from tests.cli.test_rules import done, written
from tests.discovery.kit import rule, sql_rule

A = Pattern.begin("a").where("x > 1")


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        (A, "1 event"),
        (A.next("b").where("x > 2"), "2 events"),
        (A.next("b").times(3).consecutive(), "4 events"),
        (A.followed_by("b").where("x > 2"), None),
        (A.one_or_more().consecutive(), None),
        (A.followed_by("b").where("x > 2").within(timedelta(minutes=90)), "within 1 h 30 min"),
        (A.next("b").where("x > 2").within(timedelta(seconds=5)), "within 5 s, 2 events"),
    ],
)
def test_what_bounds_partial_matches(pattern: Pattern, bound: str | None) -> None:
    cost = cost_of(PatternProcessor("a", 1, pattern))
    assert cost.bound == bound
    assert cost.states >= 2
    assert 0 <= cost.conditions <= 2


def test_what_bounds_a_clause() -> None:
    text = "PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE A AS x > 1, B AS x > PREV(x)"
    cost = cost_of(PatternProcessor("a", 1, sql=text))
    assert (cost.states, cost.conditions, cost.bound) == (2, 2, "WITHIN INTERVAL '1' HOUR")


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        ("B", "1 event"),
        ("A B", "2 events"),
        ("A{1,3} (B | C C)? {- A -}", "6 events"),
        ("^ PERMUTE(A, B) $", "2 events"),
        ("A B*", None),
    ],
)
def test_a_clause_is_bounded_by_its_longest_match(pattern: str, bound: str | None) -> None:
    assert cost_of(PatternProcessor("a", 1, sql=f"PATTERN ({pattern})")).bound == bound


def test_costs_are_shown(tmp_path: Path) -> None:
    rules = [rule("one"), sql_rule("clause"), sql_rule("bounded", maxPartialMatches=1_000), rule("off", enabled=False)]
    lines = done("validate", written(tmp_path / "rules.json", *rules), "--costs").splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:5]] for line in lines if line.startswith("│")]
    assert rows == [
        ["one", "2", "1", "1 event"],
        ["clause", "2", "1", "nothing"],
        ["bounded", "2", "1", "maxPartialMatches 1,000"],
        ["off", "2", "1", "1 event"],
    ]
    assert lines[-2].startswith("warning: nothing bounds the partial matches of 1 rule")
