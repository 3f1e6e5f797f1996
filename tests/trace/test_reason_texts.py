"""A whole trace as text for each part of a pattern that Flink lacks: why a match was made, and why not.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

import pytest

from asterism import AfterMatchSkipStrategy, Pattern, WithinType
from tests.kit import Golden
from tests.trace.test_trace import begin, ms, stage, traced

PAST = AfterMatchSkipStrategy.skip_past_last_event()
ALTERNATIVES = Pattern.any_of(begin("b"), stage(begin("c").next("d")))
WITHOUT = stage(stage(Pattern.begin_without("x")).within(ms(5)).followed_by("a"))

TEXTS: dict[str, tuple[Pattern, str]] = {
    "longest_ended_by_an_event": (begin(skip=PAST).times_or_more(2).consecutive().longest(), "a1 a2 x3 a4 x5"),
    "longest_ended_by_until": (begin(skip=PAST).one_or_more().longest().until("price > 5"), "a1 x2 a3 x4=6"),
    "longest_ended_by_a_window": (begin(skip=PAST).one_or_more().longest().within(ms(5)), "a1 a2 a9"),
    "longest_ended_by_the_input": (begin(skip=PAST).one_or_more().consecutive().longest(), "a1 a2"),
    "giving_back": (
        begin().one_or_more().consecutive().greedy(give_back=True).next("b").where("price > 1"),
        "a1=1 a2=2 a3=3 b4=0",
    ),
    "reluctant": (begin().one_or_more().consecutive().reluctant().next("b").where("price > 1"), "a1=1 a2=1 a3=2"),
    "alternatives": (begin().next(ALTERNATIVES), "a1 c2 d3 a4 x5"),
    "alternative_within_a_time": (
        begin().followed_by(
            Pattern.any_of(begin("b").within(ms(5), WithinType.PREVIOUS_AND_CURRENT), begin("c")),
        ),
        "a1 b9 c10",
    ),
    "in_any_order": (
        begin().followed_by(Pattern.in_any_order(begin("b"), begin("c"), begin("d"))),
        "a1 c2 x3 b4 c5 d6",
    ),
    "in_any_order_consecutive": (Pattern.in_any_order(begin("b"), begin("c"), consecutive=True), "b1 c2 x3"),
    "without_before": (WITHOUT, "x1 a2 b3 a6"),
    "without_before_inclusive": (
        stage(stage(Pattern.begin_without("x")).within(ms(5), inclusive=True).followed_by("a")),
        "x1 a6 a7",
    ),
    "without_ever_before": (stage(stage(Pattern.begin_without("x")).followed_by("a")), "a1 x2 a3"),
    "first_event_of_the_key": (stage(begin().starts_with_first_event().followed_by("b")), "a1 a2 x3 b4"),
    "last_event_of_the_key": (stage(begin().followed_by("b")).ends_with_last_event(), "a1 b2 a3 b4"),
    "last_event_of_the_key_is_optional": (stage(begin().next("b")).optional().ends_with_last_event(), "a1 b2 a3"),
    "first_match_only": (
        stage(begin(skip=AfterMatchSkipStrategy.first_match_only()).next("b")),
        "a1 b2 a3 b4",
    ),
    "earlier_events_of_the_key": (
        Pattern.begin("a").where("price < PREV(price)").followed_by("b").where("price < PREV(price, 2) - 1"),
        "x1=3 x2=2 x3=2 x4=1",
    ),
    "aggregates_of_the_match": (
        begin().followed_by("b").where("price > SUM(price) AND COUNT(*) = 1 AND LAST(price) > 1"),
        "a1=2 x2=2 x3=3",
    ),
    "subsets": (
        stage(begin().followed_by("b"))
        .followed_by("c")
        .where("kind = 'c' AND price > MAX(u.price) AND COUNT(u.*) = 2 AND SUM(u.price + 1) > 0")
        .subset("u", "a", "b"),
        "a1=2 b2=5 c3=4 c4=6",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_explanation(name: str, golden: Golden) -> None:
    pattern, events = TEXTS[name]
    golden.check(name, f"{events}\n\n{traced(pattern, events)}")
