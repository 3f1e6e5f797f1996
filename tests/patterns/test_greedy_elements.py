"""A loop in one element restricts what follows it, but not what follows the other elements."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.matching.binding import BoundPattern
from asterism.testing import match


def b(name: str, condition: str | None = None) -> Pattern:
    return Pattern.begin(name).where(condition or f"kind = '{name}'")


GREEDY = b("v").one_or_more().greedy()


@pytest.mark.parametrize(
    ("elements", "events", "expected"),
    [
        (Pattern.any_of(b("c"), GREEDY), "a1 c2 v3", ["a1 c2 v3"]),
        (Pattern.any_of(b("c"), GREEDY), "a1 v2 v3 e4", ["a1 v2 v3 e4"]),
        (Pattern.any_of(b("c"), b("d").next(GREEDY)), "a1 c2 v3", ["a1 c2 v3"]),
        (Pattern.in_any_order(b("c"), GREEDY), "a1 v2 c3 v4", ["a1 c3 v2 v4"]),
        (Pattern.in_any_order(b("c"), GREEDY), "a1 c2 v3 v4 e5", ["a1 c2 v3 v4 e5"]),
    ],
)
def test_a_greedy_element_restricts_only_what_follows_it(elements: Pattern, events: str, expected: list[str]) -> None:
    assert match(b("a").followed_by(elements).next("e"), events).matches == expected


def test_a_greedy_element_restricts_only_what_follows_it_in_any_order() -> None:
    """After c, the loop v is over: d can accept its events."""
    elements = Pattern.in_any_order(b("c"), GREEDY, b("d", "value > 5"))
    assert match(b("a").followed_by(elements).followed_by("e").where("kind = 'e'"), "a1 v2 c3 v6 e7").matches == [
        "a1 c3 v2 v6 e7"
    ]


@pytest.mark.parametrize("reluctant", [False, True])
def test_many_alternatives_are_not_deep(reluctant: bool) -> None:
    """Guards are read recursively."""
    wide = Pattern.any_of(*[Pattern.any_of(*[b(f"s{group}_{number}") for number in range(50)]) for group in range(12)])
    first = b("a").one_or_more().reluctant() if reluctant else b("a")
    bound = BoundPattern.of_pattern(first.followed_by(wide).next("e"), pa.schema([("kind", pa.string())]))
    assert len(bound.tables.states) > 600
