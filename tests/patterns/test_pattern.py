"""The pattern language: what each word of it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta

import pytest

from asterism.patterns.conditions import (
    AndCondition,
    NotCondition,
    OrCondition,
    PythonCondition,
    SqlCondition,
    as_condition,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import (
    AfterMatchSkipStrategy,
    Contiguity,
    Quantifier,
    QuantifierKind,
    SkipKind,
    Stage,
    Taking,
    WithinType,
)

SECOND = timedelta(seconds=1)
P, Q, R = SqlCondition("p"), SqlCondition("q"), SqlCondition("r")


def begin() -> Pattern:
    return Pattern.begin("a")


def last(pattern: Pattern) -> Stage:
    return pattern.stages[-1]


# --- immutability ---


@pytest.mark.parametrize(
    "method",
    [
        lambda p: p.next("b"),
        lambda p: p.not_followed_by("b"),
        lambda p: p.where("x"),
        lambda p: p.or_("x"),
        lambda p: p.until("x"),
        lambda p: p.optional(),
        lambda p: p.greedy(),
        lambda p: p.consecutive(),
        lambda p: p.allow_combinations(),
        lambda p: p.within(SECOND),
        lambda p: p.skip_strategy(AfterMatchSkipStrategy.skip_to_next()),
    ],
)
def test_methods_return_a_new_pattern(method: Callable[[Pattern], Pattern]) -> None:
    """The pattern itself stays what it was, so that two patterns may share a beginning."""
    pattern = begin().one_or_more()
    assert method(pattern) != pattern
    assert pattern == begin().one_or_more()


def test_patterns_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        begin().stages = ()  # type: ignore[misc]


def test_equal_patterns_are_equal() -> None:
    """Patterns are values: they compare and hash by what they say."""
    assert begin().next("b").where("x") == begin().next("b").where("x")
    assert hash(begin().next("b")) == hash(begin().next("b"))
    assert begin().next("b") != begin().followed_by("b")


# --- the chain ---


@pytest.mark.parametrize(
    ("method", "contiguity"),
    [
        ("next", Contiguity.STRICT),
        ("followed_by", Contiguity.SKIP_TILL_NEXT),
        ("followed_by_any", Contiguity.SKIP_TILL_ANY),
        ("not_next", Contiguity.NOT_NEXT),
        ("not_followed_by", Contiguity.NOT_FOLLOW),
    ],
)
def test_each_link_has_its_contiguity(method: str, contiguity: Contiguity) -> None:
    assert last(getattr(begin(), method)("b")) == Stage("b", contiguity)


def test_begin_may_name_the_skip_strategy() -> None:
    assert Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next()).skip.kind is SkipKind.SKIP_TO_NEXT


def test_a_group_is_a_stage() -> None:
    """It is named after its stages, and :meth:`atoms` looks into it."""
    pattern = begin().followed_by(Pattern.begin("b").next("c")).next("d")
    assert [stage.name for stage in pattern.stages] == ["a", "(b c)", "d"]
    assert [stage.name for stage in pattern.atoms()] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("strategy", "kind", "stage"),
    [
        (AfterMatchSkipStrategy.no_skip(), SkipKind.NO_SKIP, None),
        (AfterMatchSkipStrategy.skip_to_next(), SkipKind.SKIP_TO_NEXT, None),
        (AfterMatchSkipStrategy.skip_past_last_event(), SkipKind.SKIP_PAST_LAST_EVENT, None),
        (AfterMatchSkipStrategy.skip_to_first("b"), SkipKind.SKIP_TO_FIRST, "b"),
        (AfterMatchSkipStrategy.skip_to_last("b"), SkipKind.SKIP_TO_LAST, "b"),
    ],
)
def test_skip_strategies(strategy: AfterMatchSkipStrategy, kind: SkipKind, stage: str | None) -> None:
    assert (strategy.kind, strategy.stage, strategy.throw_on_miss) == (kind, stage, False)


# --- conditions ---


def test_conditions_are_joined_from_left_to_right() -> None:
    assert last(begin().where("p").where("q")).condition == AndCondition(P, Q)
    assert last(begin().where("p").or_("q").where("r")).condition == AndCondition(OrCondition(P, Q), R)
    assert last(begin().or_("p")).condition == P


def test_conditions_speak_of_the_last_stage() -> None:
    first, second = begin().where("p").next("b").where("q").stages
    assert (first.condition, second.condition) == (P, Q)


def test_conditions_combine() -> None:
    assert P.and_(Q).or_(NotCondition(R)) == OrCondition(AndCondition(P, Q), NotCondition(R))


def test_a_function_is_a_condition() -> None:
    def anything(_: object) -> bool:
        return True

    assert as_condition(anything) == PythonCondition(anything)
    assert as_condition(P) is P


# --- quantifiers ---


@pytest.mark.parametrize(
    ("pattern", "quantifier"),
    [
        (begin(), Quantifier()),
        (begin().times(3), Quantifier(QuantifierKind.TIMES, 3, 3)),
        (begin().times(2, 4), Quantifier(QuantifierKind.TIMES, 2, 4)),
        (begin().times(0, 4), Quantifier(QuantifierKind.TIMES, 1, 4, optional=True)),
        (begin().times(2, within=SECOND), Quantifier(QuantifierKind.TIMES, 2, 2, gap=SECOND)),
        (begin().one_or_more(), Quantifier(QuantifierKind.LOOPING, 1, 1)),
        (begin().times_or_more(3), Quantifier(QuantifierKind.LOOPING, 3, 3)),
        (begin().times_or_more(3, within=SECOND), Quantifier(QuantifierKind.LOOPING, 3, 3, gap=SECOND)),
        (begin().optional(), Quantifier(optional=True)),
        (begin().times(1, 2).greedy(), Quantifier(QuantifierKind.TIMES, 1, 2, taking=Taking.GREEDY)),
        (begin().times(2).consecutive(), Quantifier(QuantifierKind.TIMES, 2, 2, inner=Contiguity.STRICT)),
        (begin().times(2).allow_combinations(), Quantifier(QuantifierKind.TIMES, 2, 2, inner=Contiguity.SKIP_TILL_ANY)),
    ],
)
def test_quantifiers(pattern: Pattern, quantifier: Quantifier) -> None:
    assert last(pattern).quantifier == quantifier


def test_saying_the_inner_contiguity_twice_changes_nothing() -> None:
    loop = begin().one_or_more().consecutive()
    assert loop.consecutive() == loop


def test_until_belongs_to_the_loop() -> None:
    assert last(begin().one_or_more().until("p")).until == P


# --- time ---


def test_within_is_said_of_the_last_stage() -> None:
    assert [stage.window for stage in begin().next("b").within(SECOND).stages] == [None, SECOND]
    gap = last(begin().next("b").within(SECOND, WithinType.PREVIOUS_AND_CURRENT))
    assert (gap.window, gap.gap_window) == (None, SECOND)


def test_a_window_of_no_length_is_no_window() -> None:
    """As in Flink."""
    pattern = begin().within(timedelta(0))
    assert (last(pattern).window, pattern.time_bound) == (None, None)
    assert last(begin().within(SECOND).within(timedelta(0))).window is None


def test_the_smallest_window_bounds_the_match() -> None:
    assert begin().time_bound is None
    assert begin().within(3 * SECOND).next("b").within(SECOND).next("c").within(2 * SECOND).time_bound == SECOND


def test_validate_accepts_absence_at_the_end_of_a_window() -> None:
    begin().not_followed_by("b").within(SECOND).validate()
    begin().not_followed_by("b").within(SECOND, WithinType.PREVIOUS_AND_CURRENT).validate()
