"""Patterns that surely do not mean what they say are warned of, and no others."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism import AfterMatchSkipStrategy, Pattern, Semantics
from asterism.conformance import read_cases
from asterism.errors import AsterismError, PatternWarning, SkipStrategyError
from asterism.json_format import pattern_from_json
from asterism.surprises import surprises
from asterism.testing import check_independence, match

CORPUS = sorted((Path(__file__).parents[1] / "conformance").glob("*.jsonl"))


def a() -> Pattern:
    return Pattern.begin("a").where("kind = 'a'")


def loop(at_least: int = 1) -> Pattern:
    return a().followed_by("b").where("kind = 'b'").times_or_more(at_least).consecutive()


def said(pattern: Pattern) -> list[str]:
    return [found.message for found in surprises(pattern)]


EVENTS = [
    " ".join(f"{kind}{number}" for number, kind in enumerate(kinds))
    for kinds in (
        "abbcbc",
        "aabbbxcab",
        "abcabcxbb",
        "aaxxbbbbcc",
        "cbacbacbac",
        "axbxbxc",
        "abbb",
        "aaaa",
        "abxbbxbbb",
    )
]


def matches(pattern: Pattern, semantics: Semantics) -> list[list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        # A skip strategy that discards nothing may hold matches back, so that they come in another order.
        return [sorted(match(pattern, events, semantics=semantics).matches) for events in EVENTS]


# --- what can never match ---

NEVER: dict[str, tuple[Pattern, str]] = {
    "own events": (
        a().followed_by("b").where("kind = 'b' AND value > LAST(b.value)").one_or_more().followed_by("c"),
        'stage "b" can take no event: its condition is never TRUE',
    ),
    "own events, in arithmetic": (
        a().next("b").where("(value - MAX(b.value)) * 2 BETWEEN 1 AND 9").times(2),
        'stage "b" can take no event: its condition is never TRUE',
    ),
    "own events, in both alternatives": (
        a().next("b").where("value > LAST(b.value) OR value < FIRST(b.value)"),
        'stage "b" can take no event: its condition is never TRUE',
    ),
    "own events, joined": (
        a().next("b").where("kind = 'b'").where("value > LAST(b.value)"),
        'stage "b" can take no event: its condition is never TRUE',
    ),
    "a later stage": (
        a().where("value < LAST(b.value)").followed_by("b").where("kind = 'b'"),
        'stage "a" can take no event: its condition is never TRUE',
    ),
    "a later stage, in a group": (
        Pattern.begin(a().where("LAST(c.value) > 1").next("b")).followed_by("c"),
        'stage "a" can take no event: its condition is never TRUE',
    ),
    "not_next of every event": (a().not_next("n").followed_by("c"), 'after not_next("n") nothing can match'),
    "not_next of every event, at the end": (a().not_next("n"), 'after not_next("n") nothing can match'),
    "all that fits is forbidden": (
        a().not_followed_by("n").where("kind = 'b'").followed_by("b").where("kind = 'b' AND value > 0").next("c"),
        'stage "b" can take no event',
    ),
    "greedy without an end": (
        a().followed_by("b").one_or_more().greedy().followed_by("c").where("kind = 'c'"),
        'stage "c" can take no event',
    ),
    "greedy, with the same condition": (
        a().next("b").where("kind = 'b'").times(1, 3).greedy().followed_by("c").where("kind = 'b' AND value > 1"),
        'stage "c" can take no event',
    ),
}


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("name", NEVER)
def test_what_can_never_match_is_told(name: str, semantics: Semantics) -> None:
    """And it never does, in either semantics."""
    pattern, message = NEVER[name]
    assert said(pattern) == [message]
    assert surprises(pattern)[0].never
    assert matches(pattern, semantics) == [[] for _ in EVENTS]


# --- what has no effect ---

WITHOUT: dict[str, tuple[Pattern, str, Pattern]] = {
    "the last stage takes what is forbidden": (
        a().not_followed_by("n").where("kind = 'b' AND value > 2").followed_by("b").where("kind = 'b'"),
        'not_followed_by("n") has no effect',
        a().followed_by("b").where("kind = 'b'"),
    ),
    "the last stage takes everything": (
        a().not_followed_by("n").where("kind = 'b'").followed_by("z"),
        'not_followed_by("n") has no effect',
        a().followed_by("z"),
    ),
    "before a strict last stage": (
        a().not_followed_by("n").where("kind = 'x'").next("b").where("kind = 'b'"),
        'not_followed_by("n") has no effect',
        a().next("b").where("kind = 'b'"),
    ),
    "it speaks of itself": (
        a().not_followed_by("n").where("value > LAST(n.value)").followed_by("b").where("kind = 'b'"),
        'stage "n" forbids nothing: its condition is never TRUE',
        a().followed_by("b").where("kind = 'b'"),
    ),
    "a loop before not_next of the same": (
        loop().not_next("more").where("kind = 'b'"),
        'the loop "b" never takes more than 1 event',
        a().followed_by("b").where("kind = 'b'").not_next("more").where("kind = 'b'"),
    ),
    "a loop of at least two before not_next of the same": (
        loop(2).not_next("more").where("kind = 'b'").followed_by("c"),
        'the loop "b" never takes more than 2 events',
        a().followed_by("b").where("kind = 'b'").times(2).consecutive().not_next("more").where("kind = 'b'").followed_by("c"),
    ),
    "a loop before not_followed_by of the same": (
        loop().not_followed_by("more").where("kind = 'b'").followed_by("c").where("kind = 'c'"),
        'the loop "b" never takes more than 1 event',
        a().followed_by("b").where("kind = 'b'").not_followed_by("more").where("kind = 'b'").followed_by("c").where("kind = 'c'"),
    ),
    "until reads a later stage": (
        a().followed_by("b").where("kind = 'b'").one_or_more().until("value > LAST(c.value)").next("c").where("kind = 'c'"),
        'until of stage "b" never ends the loop',
        a().followed_by("b").where("kind = 'b'").one_or_more().next("c").where("kind = 'c'"),
    ),
    "skip to its own first event": (
        loop().skip_strategy(AfterMatchSkipStrategy.skip_to_first("a")),
        'SKIP_TO_FIRST "a" discards nothing',
        loop(),
    ),
    "skip to its only first event": (
        loop().skip_strategy(AfterMatchSkipStrategy.skip_to_last("a")),
        'SKIP_TO_LAST "a" discards nothing',
        loop(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_effect_is_told(name: str, semantics: Semantics) -> None:
    """The pattern without it, or with the loop that is left of it, has the same answers."""
    pattern, message, without = WITHOUT[name]
    assert said(pattern) == [message]
    assert not surprises(pattern)[0].never
    found = matches(pattern, semantics)
    assert found == matches(without, semantics)
    assert any(found)


FAILS = loop().skip_strategy(AfterMatchSkipStrategy.skip_to_first("a", throw_on_miss=True))


def test_a_skip_that_always_fails_is_told() -> None:
    assert said(FAILS) == ['the first match ends the query: it cannot skip to its own first event, of stage "a"']
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        with pytest.raises(SkipStrategyError):
            match(FAILS, "a1 b2")


# --- what is meant ---

MEANT: dict[str, Pattern] = {
    "a relaxed loop may go on": a().next("b").where("kind = 'b'").one_or_more().not_next("more").where("kind = 'b'"),
    "the longest run": loop().greedy().not_next("more").where("kind = 'b'"),
    "the event before": a().next("b").where("value > coalesce(LAST(b.value), a.value)").one_or_more(),
    "the first has an alternative": a().next("b").where("value > LAST(b.value) OR COUNT(b.*) = 0").one_or_more(),
    "the first may be null": a().next("b").where("LAST(b.value) IS NULL OR value > LAST(b.value)").one_or_more(),
    "not null is another thing": a().next("b").where("NOT (LAST(b.value) IS NOT NULL AND value < 3)").one_or_more(),
    "a function that takes NULL": a().next("b").where("concat_ws('x', LAST(b.kind)) = ''"),
    "a stage before": a().followed_by("b").where("value > LAST(a.value)"),
    "a later stage, in a group that repeats": Pattern.begin(
        Pattern.begin("s").where("kind = 's'").optional().next("a").where("kind = 'a'")
    ).one_or_more().next("c"),
    "the first sell is dear": a().not_followed_by("n").where("kind = 'b'").followed_by("b").where("kind = 'b' AND value > 9"),
    "a forbidden event in between": a().not_followed_by("n").where("kind = 'x'").followed_by("b").where("kind = 'b'"),
    "forbidden, and then more": (
        a().not_followed_by("n").where("kind = 'b' AND value > 9").followed_by("b").where("kind = 'b'").next("c")
    ),
    "silence": a().not_followed_by("n").within(timedelta(seconds=5)),
    "a greedy loop with an end": a().next("b").one_or_more().greedy().until("kind = 'c'").next("c").where("kind = 'c'"),
    "a greedy loop beside it": loop().greedy().followed_by("c").where("kind = 'c'"),
    "skip to the last of a loop": Pattern.begin("a").one_or_more().skip_strategy(AfterMatchSkipStrategy.skip_to_last("a")),
    "a function": a().next("b").where(lambda table: table["value"]).one_or_more().greedy().next("c").where(len),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_not_told(name: str) -> None:
    assert said(MEANT[name]) == []


def test_few_patterns_of_the_corpus_are_surprising() -> None:
    """They were made at random, and to be surprising; what is said to find nothing has no match of Flink's."""
    patterns = told = 0
    for case in read_cases(CORPUS):
        try:
            pattern = pattern_from_json(case["pattern"])
        except AsterismError:
            continue
        found = surprises(pattern)
        patterns, told = patterns + 1, told + bool(found)
        mandatory = not any(stage.quantifier.optional or stage.group for stage in pattern.stages)
        if mandatory and any(surprise.never for surprise in found):
            assert case["expected"].get("matches", []) == [], case["id"]
    assert 0 < told < patterns / 20


# --- where it is told ---


def first_line(record: pytest.WarningsRecorder) -> str:
    [warning] = record.list
    assert warning.category is PatternWarning
    assert warning.filename == __file__
    return str(warning.message).splitlines()[0]


@pytest.mark.parametrize(
    "make", [lambda pattern: match(pattern, "a1"), lambda pattern: check_independence(pattern, "a1 b2")]
)
def test_it_is_told_once_where_the_pattern_is_used(make: Callable[[Pattern], Any]) -> None:
    """The warning points at the user's line."""
    with pytest.warns(PatternWarning) as record:
        make(NEVER["own events"][0])
    assert first_line(record) == 'stage "b" can take no event: its condition is never TRUE'


def test_explain_tells_it() -> None:
    lines = WITHOUT["before a strict last stage"][0].explain().splitlines()
    assert 'surprising: not_followed_by("n") has no effect' in lines


def test_a_condition_that_does_not_parse_is_told_elsewhere() -> None:
    assert said(a().next("b").where("value >").one_or_more().greedy().next("c").where("value >")) == [
        'stage "c" can take no event'
    ]


def test_long_conditions_are_read() -> None:
    text = " OR ".join(f"value = {number}" for number in range(1000))
    assert said(a().next("b").where(f"({text}) AND value > LAST(b.value)")) != []
    assert json.loads(json.dumps(text)) == text
