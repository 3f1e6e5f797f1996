"""Every word of the pattern language, and what it means: Flink's answers, measured, where both semantics agree."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from asterism import AfterMatchSkipStrategy, Pattern, Semantics, WithinType
from asterism.errors import SkipStrategyError
from asterism.testing import assert_matches, check_independence, match
from tests.kit import FACTOR

SECOND = timedelta(seconds=1)
GAP = WithinType.PREVIOUS_AND_CURRENT
SKIP = AfterMatchSkipStrategy


def stage(name: str) -> Pattern:
    return Pattern.begin(name).where(f"kind = '{name}'")


def is_(name: str) -> str:
    return f"kind = '{name}'"


A, B, C = (stage(name) for name in "abc")
AB_GROUP = A.next("b").where(is_("b"))
N = is_("n")

ANSWERS: list[tuple[str, Pattern, str, list[str]]] = [
    # --- contiguity
    ("every event may begin", A, "a1 a2", ["a1", "a2"]),
    ("next", A.next("b").where(is_("b")), "a1 c b2 a3 b4", ["a3 b4"]),
    ("followed by", A.followed_by("b").where(is_("b")), "a1 a2 c b3 b4", ["a1 b3", "a2 b3"]),
    ("followed by any", A.followed_by_any("b").where(is_("b")), "a1 c b2 b3", ["a1 b2", "a1 b3"]),
    ("not next", A.not_next("n").where(N).followed_by("b").where(is_("b")), "a1 n b2 a3 b4 a5 x b6", ["a3 b4", "a5 b6"]),
    ("not next, last", A.not_next("n").where(N), "a1 n a2 x a3", ["a2"]),
    ("not followed by", A.not_followed_by("n").where(N).followed_by("b").where(is_("b")), "a1 x b2 a3 n b4", ["a1 b2"]),
    ("not followed by, last", A.not_followed_by("n").where(N).within(5 * SECOND), "a1@1s n a2@20s x@30s", ["a2"]),
    ("absence, at the deadline", A.not_followed_by("n").where(N).within(5 * SECOND), "a1@1s n@6s", ["a1 @6s"]),
    # --- conditions
    ("no condition", Pattern.begin("a").next("b"), "x1 y2 z3", ["x1 y2", "y2 z3"]),
    ("where and where", A.where("value > 1"), "a1 a2 b3", ["a2"]),
    ("where, or, where", A.or_(is_("b")).where("value > 1"), "a1 b1 a2 b2", ["a2", "b2"]),
    ("or, first", Pattern.begin("a").or_(is_("a")), "a1 b2", ["a1"]),
    ("earlier stages", A.next("b").where("value > LAST(a.value)"), "a2 b1 a2 b3", ["a2 b3"]),
    ("what the stage has so far", A.times_or_more(2).where("COUNT(a.*) = 0 OR value > LAST(a.value)"), "a1 a3 a2 a4", [
        "a1 a3", "a3 a4", "a1 a3 a4", "a2 a4"]),
    ("subtype", Pattern.begin("x").subtype("a", "c", column="kind"), "a1 b2 c3", ["a1", "c3"]),
    ("subtype and where", Pattern.begin("x").where("value > 1").subtype("a", column="kind"), "a1 a2 b3", ["a2"]),
    ("subtype after or", A.or_(is_("b")).subtype("b", column="kind"), "a1 b2", ["b2"]),
    ("until", A.one_or_more().until(is_("b")), "a1 c a2 b a3", ["a1", "a1 a2", "a2", "a3"]),
    # --- quantifiers
    ("one or more", B.one_or_more().followed_by("c").where(is_("c")), "b1 b2 b3 c", [
        "b1 c", "b1 b2 c", "b1 b2 b3 c", "b2 c", "b2 b3 c", "b3 c"]),
    ("one or more, greedy", B.one_or_more().greedy().followed_by("c").where(is_("c")), "b1 b2 b3 c", [
        "b1 b2 b3 c", "b2 b3 c", "b3 c"]),
    ("greedy, last", A.next("b").where(is_("b")).one_or_more().greedy(), "a1 b2 b3", ["a1 b2", "a1 b2 b3"]),
    ("greedy and bounded", B.times(2, 3).greedy().followed_by("c").where(is_("c")), "b1 b2 b3 b4 c", [
        "b2 b3 b4 c", "b3 b4 c"]),
    ("optional", A.followed_by("b").where(is_("b")).optional().followed_by("c").where(is_("c")), "a1 b2 c3", [
        "a1 b2 c3", "a1 c3"]),
    ("optional, strictly", A.next("b").where(is_("b")).optional().next("c").where(is_("c")), "a1 b2 c3", ["a1 b2 c3"]),
    ("optional, last", A.next("b").where(is_("b")).optional(), "a1 b2", ["a1", "a1 b2"]),
    ("optional, first", A.optional().next("b").where(is_("b")), "a1 b2", ["a1 b2", "b2"]),
    ("zero or more", B.one_or_more().optional(), "b1 b2", ["b1", "b1 b2", "b2"]),
    ("times", B.times(2), "b1 x b2 b3", ["b1 b2", "b2 b3"]),
    ("times, after a stage", A.followed_by("b").where(is_("b")).times(2), "a1 b1 x b2 b3", ["a1 b1 b2"]),
    ("times from to", B.times(1, 2), "b1 b2", ["b1", "b1 b2", "b2"]),
    ("times from zero", A.next("b").where(is_("b")).times(0, 2), "a1 b2 b3", ["a1", "a1 b2", "a1 b2 b3"]),
    ("times or more", B.times_or_more(2), "b1 b2 b3", ["b1 b2", "b1 b2 b3", "b2 b3"]),
    ("consecutive", C.followed_by("a").where(is_("a")).one_or_more().consecutive().followed_by("b").where(is_("b")),
     "c d a1 a2 a3 d a4 b", ["c a1 b", "c a1 a2 b", "c a1 a2 a3 b"]),
    ("allow combinations", A.times(2).allow_combinations(), "a1 a2 a3", ["a1 a2", "a1 a3", "a2 a3"]),
    # --- groups
    ("a group that repeats", Pattern.begin(AB_GROUP).one_or_more().next("c").where(is_("c")), "a1 b1 a2 b2 c", [
        "a1 a2 b1 b2 c", "a2 b2 c"]),
    ("a group twice", Pattern.begin(AB_GROUP).times(2), "a1 b1 a2 b2 a3 b3", ["a1 a2 b1 b2", "a2 a3 b2 b3"]),
    ("a group twice or more", Pattern.begin(AB_GROUP).times_or_more(2), "a1 b1 a2 b2 a3 b3", [
        "a1 a2 b1 b2", "a1 a2 a3 b1 b2 b3", "a2 a3 b2 b3"]),
    ("a group consecutively", Pattern.begin(AB_GROUP).times(2).consecutive(), "a1 b1 x a2 b2 a3 b3", ["a2 a3 b2 b3"]),
    ("combinations of a group", Pattern.begin(AB_GROUP).times(2).allow_combinations(), "a1 b1 a2 b2 a3 b3", [
        "a1 a2 b1 b2", "a1 a3 b1 b3", "a2 a3 b2 b3"]),
    ("next group", C.next(AB_GROUP), "c1 a2 b3 c4 x a5 b6", ["c1 a2 b3"]),
    ("followed by group", C.followed_by(AB_GROUP), "c1 x a2 b3 a4 b5", ["c1 a2 b3"]),
    ("followed by any group", C.followed_by_any(AB_GROUP), "c1 a2 b3 a4 b5", ["c1 a2 b3", "c1 a4 b5"]),
    ("an optional group", C.next(AB_GROUP).optional().next("d").where(is_("d")), "c1 d2 c3 a4 b5 d6", [
        "c1 d2", "c3 a4 b5 d6"]),
    ("until of a group", C.followed_by(AB_GROUP).one_or_more().until(is_("u")).followed_by("d").where(is_("d")),
     "c a1 b1 u a2 b2 d", ["c a1 b1 d"]),
    ("a group in a group", Pattern.begin(Pattern.begin(AB_GROUP).times(2).next("c").where(is_("c"))).times(2),
     "a1 b1 a1 b1 c a2 b2 a2 b2 c", ["a1 a1 a2 a2 b1 b1 b2 b2 c c"]),
    ("not followed by, before a group", C.not_followed_by("n").where(N).followed_by(AB_GROUP), "c1 a2 b3 c4 n a5 b6", [
        "c1 a2 b3"]),
    # --- time
    ("within", A.next("b").where(is_("b")).within(5 * SECOND), "a1@1s b2@6s a3@10s b4@14s", ["a3 b4"]),
    ("within, the smallest counts", A.next("b").where(is_("b")).within(9 * SECOND).next("c").within(5 * SECOND),
     "a1@1s b2@2s c3@6s", []),
    ("within, said earlier", A.within(5 * SECOND).next("b").where(is_("b")), "a1@1s b2@6s", []),
    ("no window", A.next("b").within(timedelta(0)), "a1@1s b2@3h", ["a1 b2"]),
    ("within a gap", A.next("b").where(is_("b")).next("c").within(5 * SECOND, GAP), "a1@1s b2@20s c3@24s", ["a1 b2 c3"]),
    ("not within a gap", A.next("b").where(is_("b")).next("c").within(5 * SECOND, GAP), "a1@1s b2@20s c3@25s", []),
    # --- skipping
    ("no skip", A.next("b").where(is_("b")).one_or_more(), "a1 b1 b2 b3", ["a1 b1", "a1 b1 b2", "a1 b1 b2 b3"]),
    ("skip to next", A.next("b").where(is_("b")).one_or_more().skip_strategy(SKIP.skip_to_next()), "a1 b1 b2 b3", ["a1 b1"]),
    ("skip past last", B.one_or_more().skip_strategy(SKIP.skip_past_last_event()), "b1 b2", ["b1", "b2"]),
    ("skip to first", B.one_or_more().consecutive().next("c").where(is_("c")).skip_strategy(SKIP.skip_to_first("b")),
     "b1 b2 b3 c", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
    ("skip to last", B.one_or_more().next("c").where(is_("c")).skip_strategy(SKIP.skip_to_last("b")), "b1 b2 b3 c", [
        "b1 b2 b3 c", "b3 c"]),
    ("skip strategy of begin", Pattern.begin("b", SKIP.skip_past_last_event()).times(2), "b1 b2 b3 b4", ["b1 b2", "b3 b4"]),
    ("skip strategy of a group", Pattern.begin(AB_GROUP, SKIP.skip_past_last_event()).times(2), "a1 b1 a2 b2 a3 b3", [
        "a1 a2 b1 b2"]),
    ("skip that misses", A.next("b").where(is_("b")).optional().skip_strategy(SKIP.skip_to_first("b")), "a1 a2", ["a1", "a2"]),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")  # one skips to its own first event
@pytest.mark.parametrize("number", range(len(ANSWERS)), ids=[a[0] for a in ANSWERS])
def test_answers(number: int) -> None:
    """However the events are cut, in one of the semantics, and in one piece in the other; ``make test-all`` cuts in both."""
    _, pattern, text, expected = ANSWERS[number]
    cut, whole = [*Semantics][:: 1 if number % 2 else -1]
    assert_matches(check_independence(pattern, text, cuts=1, semantics=cut), expected, in_any_order=True)
    other = match(pattern, text, semantics=whole) if FACTOR == 1 else check_independence(pattern, text, semantics=whole)
    assert_matches(other, expected, in_any_order=True)


@pytest.mark.parametrize(("text", "problem"), [("a1 x2", "no such event"), ("x1 b2", "the first event of the match")])
def test_a_skip_that_misses_may_be_an_error(text: str, problem: str) -> None:
    pattern = Pattern.begin("any").where("kind <> 'b'").optional().next("b").where(is_("b")).optional()
    skip = SKIP.skip_to_last("b" if "such" in problem else "any", throw_on_miss=True)
    with pytest.raises(SkipStrategyError, match=problem):
        match(pattern.skip_strategy(skip), text)


@pytest.mark.parametrize("name", ["plain", "O'Neil", "back\\slash", 'dou"ble', "a''b", "%_`"])
def test_subtypes_may_have_any_name(name: str) -> None:
    """And so may their column."""
    for column in ("type", "the `type`"):
        schema = pa.schema([("ts", pa.int64()), (column, pa.string())])
        rows = [{"ts": 1, column: name}, {"ts": 2, column: name + "s"}, {"ts": 3, column: None}]
        found = match(Pattern.begin("a").subtype(name, column=column), rows, columns=schema).rows("matches")
        assert [row["a"][0][column] for row in found] == [name]
