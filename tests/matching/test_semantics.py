"""Where the default corrects Flink: the same stream under both semantics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from asterism.testing import match
from tests.matching.harness import Run, chain, in_flink, ms, run, stage

GAP = WithinType.PREVIOUS_AND_CURRENT
AB = chain("a", "b")
ABSENCE = stage("a").not_followed_by("b").where("name = 'b'").within(ms(10))


def test_absence_is_stamped_with_its_deadline() -> None:
    """Not with the watermark that happened to come."""
    assert run(ABSENCE, "a1 | |50").matches == ["a1 @11"]
    assert in_flink(ABSENCE, "a1 | |50").matches == ["a1 @50"]


def test_absence_is_stamped_with_its_deadline_if_an_event_tells() -> None:
    assert run(ABSENCE, "a1 x30").matches == ["a1 @11"]
    assert in_flink(ABSENCE, "a1 x30 |30 ...").matches == ["a1 @30"]


def test_absence_is_no_matter_of_what_comes_later() -> None:
    """The b is too late to deny it."""
    assert run(ABSENCE, "a1 b11").matches == ["a1 @11"]
    assert run(ABSENCE, "a1 b10").matches == []


def test_gap_window_fires_on_a_quiet_key() -> None:
    """Flink sets no timer for it, so the timeout comes with the next event, or never."""
    pattern = AB.within(ms(10), GAP)
    assert run(pattern, "a1 | |11 ...").timed_out == ["a1 @11"]
    assert in_flink(pattern, "a1 | |11 |end").timed_out == []
    assert in_flink(pattern, "a1 | x40 |").timed_out == ["a1 @11"]


def test_absence_by_gap_window_fires_on_a_quiet_key() -> None:
    pattern = stage("a").not_followed_by("b").where("name = 'b'").within(ms(10), GAP)
    assert run(pattern, "a1 | |11 ...").matches == ["a1 @11"]
    assert in_flink(pattern, "a1 | |11 |end").matches == []


def test_windows_fire_at_the_end_of_input() -> None:
    """By default and, for windows first to last, in Flink."""
    for run_ in (run, in_flink):
        assert run_(AB.within(ms(10)), "a1").timed_out == ["a1 @11"]


@pytest.mark.parametrize("watermarks", ["|2 |3", "|3", "|2 |2 |9 |20", "|end"])
def test_timeouts_do_not_depend_on_watermarks(watermarks: str) -> None:
    """Each has its deadline for a time, and they come in order of their deadlines."""
    pattern = chain("a", "b", "c").within(ms(10))
    cep = run(pattern, f"a1 a2 b3 {watermarks}")
    assert cep.timed_out == ["a1 b3 @11", "a2 b3 @12"]


# --- held back by a skip strategy ---

SECOND_A = stage("a").followed_by("b").where("name = 'b' AND LAST(a.n) > 1")


def test_skip_to_next_holds_nothing_back() -> None:
    """It discards what started with the same event only: nothing that started earlier can take the match away."""
    pattern = SECOND_A.skip_strategy(AfterMatchSkipStrategy.skip_to_next())
    assert run(pattern, "a1 a2 b3 |3 ...").matches == ["a2 b3 @3"]
    assert in_flink(pattern, "a1 a2 b3 |3 ...").matches == []


def test_what_is_held_back_comes_out_at_the_end_of_input() -> None:
    """With the time of its completion. In Flink it never comes out."""
    pattern = SECOND_A.skip_strategy(AfterMatchSkipStrategy.skip_past_last_event())
    assert Run(pattern).send("a1 a2 b3 x9 |").matches == []
    assert run(pattern, "a1 a2 b3 x9").matches == ["a2 b3 @3"]
    assert in_flink(pattern, "a1 a2 b3 x9").matches == []


def test_what_is_held_back_comes_out_when_the_other_times_out() -> None:
    """At that deadline, also on a quiet key."""
    pattern = SECOND_A.within(ms(10)).skip_strategy(AfterMatchSkipStrategy.skip_past_last_event())
    assert run(pattern, "a1 a2 b3 |3 |30 ...").matches == ["a2 b3 @11"]
    assert in_flink(pattern, "a1 a2 b3 |3 |30 ...").matches == ["a2 b3 @30"]


# --- windows between repetitions ---

THREE = stage("a").followed_by("b").where("name = 'b'")


def test_times_within_bounds_the_gaps_between_repetitions() -> None:
    """All of these, and not the gap before the first; Flink bounds that one, and not the one before the last."""
    pattern = THREE.times(3, within=ms(5))
    late_first, late_last = "a1 b9 b10 b11", "a1 b2 b3 b20"
    assert run(pattern, late_first).matches == ["a1 b9 b10 b11 @11"]
    assert in_flink(pattern, late_first).matches == []
    assert run(pattern, late_last).matches == []
    assert in_flink(pattern, late_last).matches == ["a1 b2 b3 b20 @20"]


def test_times_within_is_exclusive() -> None:
    pattern = stage("a").times(2, within=ms(5))
    assert run(pattern, "a1 a6").matches == []
    assert run(pattern, "a1 a5").matches == ["a1 a5 @5"]


def test_times_within_times_out_on_a_quiet_key() -> None:
    pattern = stage("a").times(2, within=ms(5))
    assert run(pattern, "a1 | |6 ...").timed_out == ["a1 @6"]


def test_loop_within_bounds_repetitions_but_not_what_follows() -> None:
    pattern = stage("a").one_or_more(within=ms(5)).followed_by("b").where("name = 'b'")
    assert sorted(run(pattern, "a1 a9 b30").matches) == ["a1 b30 @30", "a9 b30 @30"]
    assert sorted(run(pattern, "a1 a3 b30").matches) == ["a1 a3 b30 @30", "a1 b30 @30", "a3 b30 @30"]


def test_consecutive_loop_within() -> None:
    pattern = stage("a").times_or_more(2, within=ms(5)).consecutive()
    assert sorted(run(pattern, "a1 a3 a9 a10").matches) == ["a1 a3 @3", "a9 a10 @10"]


# --- what is the same ---


@pytest.mark.parametrize("run_", [run, in_flink])
def test_what_both_agree_on(run_: Callable[[Pattern, str], Run]) -> None:
    """Without windows and skip strategies there is no difference."""
    pattern = Pattern.begin("a").where("name = 'a'").one_or_more().next("b").where("name = 'b'")
    assert sorted(run_(pattern, "a1 a2 b3 x4").matches) == ["a1 a2 b3 @3", "a2 b3 @3"]


def test_in_flink_a_key_that_a_forbidden_event_has_ended_stays_so_beside_other_keys() -> None:
    group = Pattern.begin(Pattern.begin("g").where("kind = 'g'").optional())
    pattern = group.not_followed_by("n").where("kind = 'n'").followed_by("b").where("kind = 'b'")
    for text in ("u.n1 | u.g3 | u.b4 |", "u.n1 | v.x2 | u.g3 | u.b4 |", "u.n1 | v.x2 | v.b3 | u.g4 | u.b5 |"):
        found = match(pattern, text, keys=["key"], semantics=Semantics.FLINK).matches
        assert [one for one in found if one.startswith("u")] == []
