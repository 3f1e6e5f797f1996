"""A checkpoint opens in later releases: the identity of a pattern stays what it was."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from asterism import AfterMatchSkipStrategy, Pattern, WithinType
from asterism.patterns.conditions import SqlCondition
from asterism.patterns.identity import pattern_identity


def test_identity_is_that_of_the_first_release() -> None:
    inner = Pattern.begin("x").where("kind = 'x'").next("y").where(~SqlCondition("kind = 'z'"))
    pattern = (
        Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("a", throw_on_miss=True))
        .where("v > 1")
        .or_("v < -1")
        .one_or_more()
        .greedy()
        .until("v = 0")
        .followed_by_any(inner)
        .times(2, 3)
        .allow_combinations()
        .not_followed_by("n")
        .where("v = 3")
        .next("b")
        .where("kind = 'b'")
        .optional()
        .within(timedelta(minutes=5))
        .within(timedelta(minutes=1), WithinType.PREVIOUS_AND_CURRENT)
    )
    assert pattern_identity(pattern) == (Path(__file__).parent / "identity_0.1.0.txt").read_text().strip()


A = Pattern.begin("a").one_or_more()
B = Pattern.begin("b")


def test_whatever_changes_a_pattern_changes_its_identity() -> None:
    patterns = [
        A,
        A.greedy(),
        A.greedy(give_back=True),
        A.longest(),
        A.reluctant(),
        A.within(timedelta(hours=1)),
        A.within(timedelta(hours=1), inclusive=True),
        A.starts_with_first_event(),
        A.ends_with_last_event(),
        A.subset("s", "a"),
        Pattern.any_of(A, B),
        Pattern.in_any_order(A, B),
        Pattern.in_any_order(A, B, consecutive=True),
    ]
    assert len(set(map(pattern_identity, patterns))) == len(patterns)
