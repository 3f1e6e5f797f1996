"""What :class:`Pattern` has beyond Flink, as a table: a pattern, a stream, its matches; checked by hand.

An event ``b2`` has the kind ``b`` and the value 2; without a time, it is one second after the one before it. A match ``a1 b2 @3``
was complete at 3 s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.errors import ExpressionError, MalformedPatternError
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy
from asterism.testing import PatternHarness, check_independence, match

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")

PAST = AfterMatchSkipStrategy.skip_past_last_event()
ONLY = AfterMatchSkipStrategy.first_match_only()
Case = tuple[Pattern, str, list[str]]


def on(add: Callable[[str], Pattern], name: str, kinds: str = "") -> Pattern:
    """One more stage, whose events are of the kind *name*, or of one of several *kinds*."""
    return add(name).where(f"kind IN ({', '.join(map(repr, kinds or name))})")


def a(skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    return on(lambda name: Pattern.begin(name, skip), "a")


def begin(name: str, kinds: str = "") -> Pattern:
    return on(Pattern.begin, name, kinds)


def s(seconds: int) -> timedelta:
    return timedelta(seconds=seconds)


B, C, D = begin("b"), begin("c"), begin("d")
RUN = a(PAST).times_or_more(2).consecutive().longest()
ABC = on(on(a().followed_by, "b").followed_by, "c")

LONGEST: dict[str, Case] = {
    "a run is complete with the event that ends it": (RUN, "a1 a2 a3 x4", ["a1 a2 a3 @4"]),
    "a run that is too short is none": (RUN, "a1 x2 a3 a4 x5", ["a3 a4 @5"]),
    "the end of the input ends a run, at its last event": (RUN, "a1 a2", ["a1 a2 @2"]),
    "without a skip strategy, a run begins with each of its events": (
        a().times_or_more(2).consecutive().longest(),
        "a1 a2 a3 x4",
        ["a1 a2 a3 @4", "a2 a3 @4"],
    ),
    "the maximum number of events": (
        a(PAST).times(2, 3).consecutive().longest(),
        "a1 a2 a3 a4 a5 x6",
        ["a1 a2 a3 @3", "a4 a5 @6"],
    ),
    "relaxed, only the end of the input ends the loop": (
        a(PAST).one_or_more().longest(),
        "a1 x2 a3 x4",
        ["a1 a3 @3"],
    ),
    "relaxed, the window ends the loop, at its deadline": (
        a(PAST).one_or_more().longest().within(s(4)),
        "a1 x2 a3 x4 a5 x6",
        ["a1 a3 @5", "a5 @9"],
    ),
    "until ends the loop": (a(PAST).one_or_more().longest().until("value = 3"), "a1 x2 a3 a4 x5", ["a1 @3", "a4 @4"]),
    "the gap between repetitions ends the loop": (
        a(PAST).one_or_more(within=s(3)).longest(),
        "a1 a2 x3 x4 a5 x6",
        ["a1 a2 @5", "a5 @8"],
    ),
    "optional and present": (
        on(a().next, "b").one_or_more().optional().consecutive().longest(),
        "a1 b2 b3 x4",
        ["a1 b2 b3 @4"],
    ),
    "optional and absent": (
        on(a().next, "b").one_or_more().optional().consecutive().longest(),
        "a1 x2 a3",
        ["a1 @2", "a3 @3"],
    ),
    "after a loop, an optional one is absent at the end of the input": (
        on(on(a(PAST).next, "b").times(1, 2).consecutive().next, "c").one_or_more().consecutive().optional().longest(),
        "a1 b2",
        ["a1 b2 @2"],
    ),
    "before another stage, like greedy": (
        on(a(PAST).one_or_more().consecutive().longest().next, "end", "ab"),
        "a1 a2 b3",
        ["a1 a2 b3 @3"],
    ),
    "at the end of an alternative": (
        Pattern.any_of(begin("a").one_or_more().consecutive().longest(), B).skip_strategy(PAST),
        "a1 a2 b3 a4 x5",
        ["a1 a2 @3", "b3 @3", "a4 @5"],
    ),
}

GREEDY: dict[str, Case] = {
    "greedy takes what the next stage needs": (
        on(a().one_or_more().consecutive().greedy().next, "end", "a"),
        "a1 a2 a3",
        [],
    ),
    "giving back, the longest loop that leads to a match": (
        on(a(PAST).one_or_more().consecutive().greedy(give_back=True).next, "end", "a"),
        "a1 a2 a3 x4",
        ["a1 a2 a3 @4"],
    ),
    "giving back, one match for each first event": (
        a().one_or_more().consecutive().greedy(give_back=True).next("end").where("value = 3"),
        "a1 a2 a3 b4",
        ["a1 a2 a3 @4", "a2 a3 @4"],
    ),
    "giving back, the first loop decides before the second": (
        on(
            on(a(PAST).one_or_more().consecutive().greedy(give_back=True).next, "b", "ab")
            .one_or_more()
            .consecutive()
            .greedy(give_back=True)
            .next,
            "c",
        ).subset("loops", "a", "b"),
        "a1 a2 b3 b4 c5 x6",
        ["a1 a2 b3 b4 c5 @5"],
    ),
    "giving back, with the time at which it is decided": (
        on(a(PAST).one_or_more().greedy(give_back=True).followed_by, "b").within(s(5)),
        "a1 b2 a3 b4 x5 x6",
        ["a1 a3 b4 @6"],
    ),
}

RELUCTANT: dict[str, Case] = {
    "before the first event that the next stage accepts": (
        a().one_or_more().consecutive().reluctant().next("end").where("value >= 3"),
        "a1 a2 a3 a4 b5",
        ["a1 a2 a3 @3", "a2 a3 @3", "a3 a4 @4", "a4 b5 @5"],
    ),
    "a relaxed loop does not skip such an event": (
        on(a().one_or_more().reluctant().next, "b"),
        "a1 x2 a3 b4 a5 b6",
        ["a1 a3 b4 @4", "a3 b4 @4", "a5 b6 @6"],
    ),
    "the next stage can skip all other events": (
        on(a().one_or_more().reluctant().followed_by, "b"),
        "a1 x2 a3 b4 a5 b6",
        ["a1 b4 @4", "a3 b4 @4", "a5 b6 @6"],
    ),
    "first its minimum": (
        on(a().times_or_more(2).reluctant().next, "end", "a"),
        "a1 a2 a3 a4",
        ["a1 a2 a3 @3", "a2 a3 a4 @4"],
    ),
    "an optional stage": (
        on(on(a().next, "b", "bc").optional().reluctant().next, "c"),
        "a1 c2 c3 a4 b5 c6",
        ["a1 c2 @2", "a4 b5 c6 @6"],
    ),
    "at the end, its minimum": (a().times_or_more(2).consecutive().reluctant(), "a1 a2 a3", ["a1 a2 @2", "a2 a3 @3"]),
    "at the end of the key, up to its last event": (
        a().one_or_more().consecutive().reluctant().ends_with_last_event(),
        "a1 x2 a3 a4",
        ["a3 a4 @4", "a4 @4"],
    ),
}

ANY_OF: dict[str, Case] = {
    "relaxed, it skips what begins no alternative": (
        a().followed_by(Pattern.any_of(B, on(C.next, "d"))),
        "a1 x2 d3 b4 a5 c6 d7",
        ["a1 b4 @4", "a5 c6 d7 @7"],
    ),
    "an event that begins an alternative is not skipped, even if the alternative fails": (
        a().followed_by(Pattern.any_of(B, on(C.next, "d"))),
        "a1 c2 b3",
        [],
    ),
    "strict": (a().next(Pattern.any_of(B, C)), "a1 x2 b3 a4 c5 a6 b7", ["a4 c5 @5", "a6 b7 @7"]),
    "non-deterministic": (a().followed_by_any(Pattern.any_of(B, C)), "a1 c2 b3", ["a1 c2 @2", "a1 b3 @3"]),
    "an event that begins several alternatives": (
        Pattern.any_of(B, begin("c", "bc")),
        "b1 c2",
        ["b1 @1", "b1 @1", "c2 @2"],
    ),
    "optional": (
        on(a().next(Pattern.any_of(B, C)).optional().next, "d"),
        "a1 d2 a3 b4 d5 a6 x7 d8",
        ["a1 d2 @2", "a3 b4 d5 @5"],
    ),
    "repeated": (
        on(a().next(Pattern.any_of(B, C)).one_or_more().consecutive().next, "d"),
        "a1 b2 c3 b4 d5",
        ["a1 b2 b4 c3 d5 @5"],
    ),
    "a loop in an alternative has its own contiguity": (
        on(Pattern.any_of(begin("a").one_or_more(), B).next, "c"),
        "a1 x2 a3 c4",
        ["a1 a3 c4 @4", "a3 c4 @4"],
    ),
    "a loop at the beginning of a longer alternative as well": (
        Pattern.any_of(on(begin("a").one_or_more().consecutive().next, "c"), B),
        "a1 x2 a3 c4",
        ["a3 c4 @4"],
    ),
    "a greedy loop restricts only what follows its own alternative": (
        on(Pattern.any_of(begin("a").one_or_more().consecutive().greedy(), B).next, "end", "ac"),
        "b1 a2 c3",
        ["b1 a2 @2", "a2 c3 @3"],
    ),
    "after a greedy loop, no alternative accepts its events": (
        a(PAST).one_or_more().consecutive().greedy().next(Pattern.any_of(B, begin("c", "ac"))),
        "a1 a2 b3 a4 c5",
        ["a1 a2 b3 @3", "a4 c5 @5"],
    ),
    "after a reluctant loop, every alternative ends it": (
        a(PAST).one_or_more().consecutive().reluctant().next(Pattern.any_of(B, begin("c", "ac"))),
        "a1 a2 a3 b4",
        ["a1 a2 @2", "a3 b4 @4"],
    ),
    "an event that must not occur before it": (
        on(a().not_followed_by, "n").followed_by(Pattern.any_of(B, C)),
        "a1 x2 c3 a4 n5 b6",
        ["a1 c3 @3"],
    ),
    "an alternative inside another": (
        a().followed_by(Pattern.any_of(B, Pattern.any_of(C, D))),
        "a1 x2 d3 a4 b5",
        ["a1 d3 @3", "a4 b5 @5"],
    ),
}

IN_ANY_ORDER: dict[str, Case] = {
    "it skips what begins no remaining element": (
        a().followed_by(Pattern.in_any_order(B, C, D)),
        "a1 d2 x3 d4 b5 b6 c7",
        ["a1 b5 c7 d2 @7"],
    ),
    "consecutive": (
        a().next(Pattern.in_any_order(B, C, consecutive=True)),
        "a1 c2 b3 a4 b5 x6 c7",
        ["a1 b3 c2 @3"],
    ),
    "an event that fits two elements": (
        Pattern.in_any_order(B, begin("c", "bc"), consecutive=True),
        "b1 b2 c3",
        ["b1 b2 @2", "b2 b1 @2", "b2 c3 @3"],
    ),
    "as the first stage": (on(Pattern.in_any_order(B, C).next, "d"), "c1 b2 d3", ["b2 c1 d3 @3"]),
    "a longer element is not interrupted": (
        Pattern.in_any_order(on(B.next, "c"), D).skip_strategy(PAST),
        "b1 d2 c3 b4 c5 x6 d7",
        ["b4 c5 d2 @5"],
    ),
    "a loop": (
        Pattern.in_any_order(B.times(2).consecutive(), C, consecutive=True),
        "b1 b2 c3 x4 c5 b6 b7",
        ["b1 b2 c3 @3", "b6 b7 c5 @7"],
    ),
    "a greedy loop restricts only the element after it": (
        Pattern.in_any_order(begin("a").one_or_more().consecutive().greedy(), B, begin("c", "ac"), consecutive=True),
        "a1 b2 a3",
        ["a1 b2 a3 @3", "a3 b2 a1 @3"],
    ),
    "within": (Pattern.in_any_order(B, C).within(s(3)), "b1 x2 x3 c4 b5", ["b5 c4 @5"]),
}

ANCHORS: dict[str, Case] = {
    "the first event of each key": (
        on(a().starts_with_first_event().followed_by, "b"),
        "k.a1 j.x2 k.b3 j.a4 k.a5 j.b6 k.b7",
        ["k.a1 k.b3 @3"],
    ),
    "the last event of each key": (
        on(a().followed_by, "b").ends_with_last_event(),
        "k.a1 j.a2 k.b3 j.b4 k.x5 k.a6 k.b7",
        ["j.a2 j.b4 @4", "k.a6 k.b7 @7"],
    ),
    "a loop up to the last event": (
        on(a().followed_by, "b").one_or_more().consecutive().ends_with_last_event(),
        "a1 b2 a3 b4 b5",
        ["a3 b4 b5 @5"],
    ),
    "optional stages before the last event": (
        on(a().next, "b").optional().ends_with_last_event(),
        "a1 b2 a3",
        ["a3 @3"],
    ),
    "a window does not bound the time after the last event": (
        on(a().next, "b").ends_with_last_event().within(s(3)),
        "a1 b2 |20s",
        ["a1 b2 @2"],
    ),
    "all events of a key": (
        Pattern.begin("all")
        .where("kind <> 'x'")
        .one_or_more()
        .consecutive()
        .starts_with_first_event()
        .ends_with_last_event(),
        "k.a1 j.a2 k.b3 j.x4 k.a5",
        ["k.a1 k.b3 k.a5 @5"],
    ),
}

BEFORE = on(Pattern.begin_without, "x")
WITHOUT: dict[str, Case] = {
    "no event of the key before it": (
        on(on(BEFORE.followed_by, "a").next, "b"),
        "k.a1 k.b2 j.x3 k.x4 j.a5 j.b6 k.a7 k.b8",
        ["k.a1 k.b2 @2"],
    ),
    "within a time, which is not enough if it has just passed": (
        on(BEFORE.within(s(3)).followed_by, "a"),
        "x1 a2 a3 a4 x5 a7@7s a8@8s",
        ["a4 @4", "a8 @8"],
    ),
    "within a time, inclusive": (on(BEFORE.within(s(3), inclusive=True).followed_by, "a"), "x1 a2 a3 a4 a5", ["a5 @5"]),
    "an event at the same time precedes it": (
        on(BEFORE.within(s(1)).followed_by, "a"),
        "a1@1s x2@1s a3@1s a4@2s",
        ["a1 @1", "a4 @2"],
    ),
    "it is forgotten by no one": (on(BEFORE.followed_by, "a"), "x1 | |90s a2@100s", []),
    "later, the event may occur": (on(on(BEFORE.followed_by, "a").followed_by, "b"), "a1 x2 b3", ["a1 b3 @3"]),
    "before alternatives": (BEFORE.followed_by(Pattern.any_of(B, C)), "c1 x2 b3", ["c1 @1"]),
    "and the first event of the key": (
        on(BEFORE.followed_by, "a").starts_with_first_event(),
        "k.a1 k.a2 j.x3 j.a4",
        ["k.a1 @1"],
    ),
}

ONLY_FIRST: dict[str, Case] = {
    "one match of each key": (
        on(a(ONLY).next, "b"),
        "k.a1 k.b2 k.a3 k.b4 j.a5 | j.b6 j.a7 j.b8",
        ["k.a1 k.b2 @2", "j.a5 j.b6 @6"],
    ),
    "of those that are complete at the same time, the one that began first": (
        on(a(ONLY).followed_by, "b"),
        "a1 a2 b3",
        ["a1 b3 @3"],
    ),
    "complete first, not begun first": (
        on(a(ONLY).followed_by, "b").where("value > 2 * LAST(a.value)"),
        "a4 a1 b3 b9",
        ["a1 b3 @3"],
    ),
    "the first run": (a(ONLY).one_or_more().consecutive().longest(), "a1 a2 x3 a4 x5", ["a1 a2 @3"]),
    "with giving back, when it is decided": (
        on(a(ONLY).one_or_more().greedy(give_back=True).followed_by, "b").within(s(4)),
        "a1 b2 a3 b4 x5 a6 b7",
        ["a1 a3 b4 @5"],
    ),
}

CONDITIONS: dict[str, Case] = {
    "the previous event of the key": (
        Pattern.begin("d").where("value < PREV(value)"),
        "k.a5 j.a4 k.a3 j.a6 | k.a2",
        ["k.a3 @3", "k.a2 @5"],
    ),
    "an earlier one": (Pattern.begin("d").where("value < PREV(value, 2)"), "a5 a4 a3 | a6 | a2", ["a3 @3", "a2 @5"]),
    "the first event has none": (
        Pattern.begin("d").where("PREV(value) IS NULL"),
        "k.a5 j.a4 k.a3",
        ["k.a5 @1", "j.a4 @2"],
    ),
    "the previous event need not be one of the match": (
        a().followed_by("b").where("kind = 'b' AND PREV(kind) = 'x'"),
        "a1 b2 x3 b4",
        ["a1 b4 @4"],
    ),
    "all events of the match so far": (
        a().one_or_more().consecutive().next("b").where("value = SUM(value) AND COUNT(*) > 1"),
        "a1 a2 b3 a4 b4",
        ["a1 a2 b3 @3"],
    ),
    "the last event of several stages": (
        on(on(a().followed_by, "b").optional().followed_by, "c").where("value > LAST(u.value)").subset("u", "a", "b"),
        "a1 b5 c3",
        ["a1 c3 @3"],
    ),
}

WINDOWS: dict[str, Case] = {
    "exclusive": (on(a().followed_by, "b").within(s(2)), "a1 x2 b3 a4 b5", ["a4 b5 @5"]),
    "inclusive": (on(a().followed_by, "b").within(s(2), inclusive=True), "a1 x2 b3 a4 x5 x6 b7", ["a1 b3 @3"]),
    "inclusive, of length zero": (
        on(a().next, "b").within(s(0), inclusive=True),
        "a1@1s b2@1s a3@2s b4@3s",
        ["a1 b2 @1"],
    ),
}

GROUPS = {
    "longest": LONGEST,
    "greedy": GREEDY,
    "reluctant": RELUCTANT,
    "any_of": ANY_OF,
    "in_any_order": IN_ANY_ORDER,
    "anchors": ANCHORS,
    "begin_without": WITHOUT,
    "first_match_only": ONLY_FIRST,
    "conditions": CONDITIONS,
    "windows": WINDOWS,
}
CASES = [pytest.param(*case, id=f"{group}: {name}") for group, cases in GROUPS.items() for name, case in cases.items()]
REMEMBERED = ("anchors", "begin_without", "first_match_only", "conditions")
"""Groups of patterns that store more of a key than its partial matches."""


def answer(harness: PatternHarness) -> list[str]:
    found = sorted(harness.found(), key=lambda one: one.time or 0)
    return [f"{one.text} @{(one.time or 0) // 1_000_000}" for one in found]


@pytest.mark.parametrize(("pattern", "events", "matches"), CASES)
def test_matches(pattern: Pattern, events: str, matches: list[str]) -> None:
    harness = match(pattern, events)
    assert sorted(answer(harness)) == sorted(matches)
    assert harness.is_empty


@pytest.mark.parametrize("group", REMEMBERED)
def test_what_is_remembered_does_not_depend_on_batches(group: str) -> None:
    for pattern, events, _ in GROUPS[group].values():
        harness = check_independence(pattern, events, cuts=1, select=["MATCH_NUMBER() AS number", "COUNT(*) AS n"])
        assert harness.is_empty


# --- measures ---


def test_measures_of_all_events_and_of_subsets() -> None:
    pattern = on(on(a().one_or_more().consecutive().longest().next, "b").followed_by, "c").subset("u", "b", "c")
    select = [
        "COUNT(*) AS n",
        "SUM(value) AS total",
        "FIRST(kind) AS first",
        "LAST(value) AS last",
        "COUNT(u.*) AS in_u",
        "FIRST(u.value) AS first_in_u",
        "CLASSIFIER() AS stage",
        "ARRAY_AGG(CLASSIFIER()) AS stages",
    ]
    assert match(pattern.skip_strategy(PAST), "a1 a2 b3 x4 c5", select=select).selected == [
        {
            "key": None,
            "n": 4,
            "total": 11,
            "first": "a",
            "last": 5,
            "in_u": 2,
            "first_in_u": 3,
            "stage": "c",
            "stages": ["a", "a", "b", "c"],
        }
    ]


def test_matches_are_numbered_by_key_in_order_of_emission() -> None:
    """Also those that are complete at the same time, and after a restored snapshot."""
    pattern, select = on(a().followed_by, "b"), ["MATCH_NUMBER() AS number", "LAST(b.value) AS b"]
    harness = PatternHarness(pattern, select=select).send("k.a1 k.a2 j.a3 k.b4 |")
    harness = harness.again().restore(harness.snapshot()).send("j.b5 k.a6 k.b7").end()
    assert sorted((row["key"], row["number"], row["b"]) for row in harness.selected) == [
        ("j", 1, 5),
        ("k", 1, 4),
        ("k", 2, 4),
        ("k", 3, 7),
    ]
    assert harness.is_empty


PREVIOUS_SELECT = [
    "LAST(b.value) AS b",
    "PREV(b.value) AS before_b",
    "PREV(FIRST(value), 3) AS before_match",
    "SUM(b.value - PREV(b.value)) AS change",
    "PREV(LAST(b.kind), 2) AS kind",
]


def test_measures_of_previous_events() -> None:
    pattern = on(a(PAST).followed_by, "b").one_or_more().longest()
    assert match(pattern, "x1 x7 x8 a2 x3 b9 b4 x5", select=PREVIOUS_SELECT).selected == [
        {"key": None, "b": 4, "before_b": 9, "before_match": 1, "change": 1, "kind": "x"}
    ]
    assert match(a(), "a1", select=["PREV(a.value) AS p", "PREV(FIRST(a.kind), 100) AS k"]).selected == [
        {"key": None, "p": None, "k": None}
    ]


@settings(max_examples=max(1, settings().max_examples // 3))
@given(st.lists(st.tuples(st.sampled_from("kj"), st.sampled_from("abx"), st.integers(0, 9)), max_size=25))
def test_previous_events_are_those_of_the_key(events: list[tuple[str, str, int]]) -> None:
    """Compare with the lists of the events of each key, which are searched for every pair of an a and the next b."""
    text = " ".join(f"{key}.{kind}{value}" for key, kind, value in events)
    pattern = on(a().followed_by, "b")
    select = ["PREV(FIRST(a.value), 2) AS a", "PREV(b.value) AS b", "PREV(b.kind) AS kind"]
    expected = []
    for key in "kj":
        mine = [(kind, value) for own, kind, value in events if own == key]
        for first, (kind, _) in enumerate(mine):
            last = next((at for at in range(first + 1, len(mine)) if mine[at][0] == "b"), None)
            if kind == "a" and last is not None:
                before = mine[first - 2][1] if first > 1 else None
                expected.append((key, before, mine[last - 1][1], mine[last - 1][0]))
    harness = check_independence(pattern, text, cuts=1, select=select)
    assert sorted(map(str, (tuple(row.values()) for row in harness.selected))) == sorted(map(str, expected))
    assert harness.is_empty


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        (
            "PREV(value) AS x",
            r"PREV\(value\) reads the event before one of the match.*\n.*\n.*\n.*PREV\(LAST\(value\)\)",
        ),
        ("PREV(a.value * 2) AS x", "PREV takes a column, or FIRST or LAST of a column"),
        ("PREV(SUM(a.value)) AS x", "PREV takes a column, or FIRST or LAST of a column"),
        ("PREV(CLASSIFIER()) AS x", "PREV takes a column, or FIRST or LAST of a column"),
        ("PREV(a.*) AS x", "PREV takes a column, or FIRST or LAST of a column"),
        ("PREV() AS x", "PREV takes a column, or FIRST or LAST of a column"),
        ("PREV(a.value, 101) AS x", "the offset of PREV must be 1 to 100"),
        ("PREV(a.value, n) AS x", "the second argument of PREV must be an integer literal"),
        ("PREV(a.nope) AS x", "unknown column 'nope'"),
        ("PREV(z.value) AS x", "unknown stage 'z'"),
    ],
)
def test_refused_measures_of_previous_events(measure: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        match(a(), "a1", select=[measure])


# --- state ---


@pytest.mark.parametrize(
    ("pattern", "select"),
    [
        (Pattern.begin("d").where("value < PREV(value, 3)"), None),
        (a().starts_with_first_event(), None),
        (on(a(ONLY).next, "b"), None),
        (on(BEFORE.followed_by, "a"), None),
        (a(), ["MATCH_NUMBER() AS number"]),
        (a(), ["PREV(a.value, 2) AS x"]),
    ],
    ids=["PREV", "starts_with_first_event", "first_match_only", "begin_without", "MATCH_NUMBER", "PREV in a measure"],
)
def test_keys_are_remembered_until_the_end_of_input(pattern: Pattern, select: list[str] | None) -> None:
    harness = PatternHarness(pattern, select=select, pages=2, key_groups=2).send("k.x1 k.a2 k.b3 j.a4 j.b5 |")
    assert not harness.is_empty
    assert harness.end().is_empty


# --- what has no meaning ---

LOOP = begin("a").one_or_more().consecutive()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: on(a().next, "b").optional().reluctant(), 'stage "b" accepts no event'),
        (
            lambda: Pattern.any_of(LOOP.greedy(), B).one_or_more(),
            "greedy is not supported at the end of a repeated group",
        ),
        (
            lambda: Pattern.any_of(LOOP.longest(), B).times(1, 2),
            "longest is not supported at the end of a repeated group",
        ),
        (
            lambda: on(Pattern.any_of(LOOP.greedy(), B).next, "c").optional(),
            "an optional stage cannot follow the greedy stage",
        ),
    ],
    ids=["reluctant_at_end", "greedy_in_loop", "longest_in_times", "optional_after_greedy"],
)
def test_refused(make: Callable[[], Pattern], problem: str) -> None:
    with pytest.raises(MalformedPatternError, match=problem):
        match(make(), "a1 b2")
