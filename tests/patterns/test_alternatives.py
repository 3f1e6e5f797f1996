"""What applies to one of several alternatives does not concern the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from asterism import Pattern, WithinType
from asterism.testing import match


def kind(name: str, stage: str = "") -> Pattern:
    return Pattern.begin(stage or name).where(f"kind = '{name}'")


@pytest.mark.parametrize("loop", [kind("c").one_or_more().greedy(), kind("c").times(1, 2).longest()])
def test_greedy_loop_of_one_alternative_does_not_bar_events_after_another(loop: Pattern) -> None:
    alternatives = Pattern.any_of(loop, kind("f"))
    assert match(alternatives.next("z"), "f1 c2").matches == ["f1 c2"]
    assert match(alternatives.next("z"), "c1 c2 x3").matches == ["c1 c2 x3", "c2 x3"]
    assert match(alternatives.followed_by(Pattern.any_of(kind("c", "again"), kind("x"))), "f1 c2").matches == ["f1 c2"]


def test_greedy_loop_of_an_element_does_not_bar_events_after_a_later_element() -> None:
    pattern = Pattern.in_any_order(kind("a").one_or_more().consecutive().greedy(), kind("b")).next("z")
    assert match(pattern, "a1 b2 a3").matches == ["a1 b2 a3"]
    assert match(pattern, "b1 a2 a3 x4").matches == ["a2 a3 b1 x4"]


@pytest.mark.parametrize("inclusive", [False, True])
def test_time_before_one_alternative_is_bounded(inclusive: bool) -> None:
    bounded = kind("b").within(timedelta(seconds=2), WithinType.PREVIOUS_AND_CURRENT, inclusive=inclusive)
    pattern = kind("a").followed_by(Pattern.any_of(bounded, kind("c")))
    assert match(pattern, "a1@1s b2@2s").matches == ["a1 b2"]
    assert match(pattern, "a1@1s b2@3s").matches == ["a1 b2"] * inclusive
    assert match(pattern, "a1@1s c3@9s").matches == ["a1 c3"]


def test_time_before_one_element_is_bounded() -> None:
    bounded = kind("b").within(timedelta(seconds=2), WithinType.PREVIOUS_AND_CURRENT)
    pattern = Pattern.in_any_order(bounded, kind("c"))
    assert match(pattern, "c1@1s b2@2s").matches == ["b2 c1"]
    assert match(pattern, "c1@1s b2@4s").matches == []
    assert match(pattern, "b1@1s c2@4s").matches == ["b1 c2"]
