"""Patterns that surely do not mean what they say are warned of, and no others."""

from __future__ import annotations

import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from asterism import AfterMatchSkipStrategy, Pattern, Semantics, WithinType
from asterism.conformance.corpus import read_cases
from asterism.errors import AsterismError, MalformedPatternError, PatternWarning, SkipStrategyError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.warnings import costs, diagnose
from asterism.testing import check_independence, match
from tests.kit import CORPUS, FACTOR, examples

NOTHING = "cannot take (any|a second) event|nothing can match"
CASE_FILES = sorted(CORPUS.glob("*.jsonl"))


def a() -> Pattern:
    return Pattern.begin("a").where("kind = 'a'")


def loop(at_least: int = 1) -> Pattern:
    return a().followed_by("b").where("kind = 'b'").times_or_more(at_least).consecutive()


def no_b(pattern: Pattern) -> Pattern:
    return pattern.not_followed_by("n").where("kind = 'b'")


def b(name: str = "b") -> Pattern:
    return Pattern.begin(name).where("kind = 'b'")


def messages_of(pattern: Pattern) -> list[str]:
    return [found.message for found in diagnose(pattern)]


EVENTS = " ".join(
    f"k{key}.{kind}{number}"
    for key, kinds in enumerate((
        "abbcbc",
        "aabbbxcab",
        "abcabcxbb",
        "aaxxbbbbcc",
        "cbacbacbac",
        "axbxbxc",
        "abbb",
        "aaaa",
        "abxbbxbbb",
    ))
    for number, kind in enumerate(kinds)
)  # fmt: skip
"""Of nine keys."""


def matches(pattern: Pattern, semantics: Semantics) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        # A skip strategy that discards nothing may hold matches back, so that they come in another order.
        return sorted(match(pattern, EVENTS, semantics=semantics).matches)


# --- what can never match ---

NEVER: dict[str, tuple[Pattern, str]] = {
    "own events": (
        a().followed_by("b").where("kind = 'b' AND value > LAST(b.value)").one_or_more().followed_by("c"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, in arithmetic": (
        a().next("b").where("(value - MAX(b.value)) * 2 BETWEEN 1 AND 9").times(2),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, in both alternatives": (
        a().next("b").where("value > LAST(b.value) OR value < FIRST(b.value)"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, joined": (
        a().next("b").where("kind = 'b'").where("value > LAST(b.value)"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "a later stage": (
        a().where("value < LAST(b.value)").followed_by("b").where("kind = 'b'"),
        'stage "a" cannot take any event: its condition is never TRUE',
    ),
    "a later stage, in a group": (
        Pattern.begin(a().where("LAST(c.value) > 1").next("b")).followed_by("c"),
        'stage "a" cannot take any event: its condition is never TRUE',
    ),
    "not_next of every event": (a().not_next("n").followed_by("c"), 'after not_next("n") nothing can match'),
    "not_next of every event, at the end": (a().not_next("n"), 'after not_next("n") nothing can match'),
    "all that fits is forbidden": (
        a().not_followed_by("n").where("kind = 'b'").followed_by("b").where("kind = 'b' AND value > 0").next("c"),
        'stage "b" cannot take any event',
    ),
    "greedy without an end": (
        a().followed_by("b").one_or_more().greedy().followed_by("c").where("kind = 'c'"),
        'stage "c" cannot take any event',
    ),
    "greedy, with the same condition": (
        a().next("b").where("kind = 'b'").times(1, 3).greedy().followed_by("c").where("kind = 'b' AND value > 1"),
        'stage "c" cannot take any event',
    ),
    "greedy, before a stage that occurs twice": (
        a().next("b").one_or_more().greedy().followed_by("c").where("kind = 'c'").times(2),
        'stage "c" cannot take any event',
    ),
    "greedy, before a loop": (
        a().next("b").one_or_more().greedy().followed_by("c").where("kind = 'c'").one_or_more(),
        'stage "c" cannot take any event',
    ),
    "greedy, before a group": (
        a().next("b").one_or_more().greedy().followed_by(Pattern.begin("c").where("kind = 'c'")),
        'stage "c" cannot take any event',
    ),
    "greedy, before groups in each other": (
        a()
        .next("b")
        .one_or_more()
        .greedy()
        .followed_by(Pattern.begin(Pattern.begin("c").next("d").optional()).times(2)),
        'stage "c" cannot take any event',
    ),
    "greedy, of a condition that is always true": (
        a().next("b").where("1 = 1").one_or_more().greedy().followed_by("c").where("kind = 'c'"),
        'stage "c" cannot take any event',
    ),
    "what must come twice is forbidden": (
        no_b(a()).followed_by("z").where("kind = 'b'").times(2),
        'stage "z" cannot take any event',
    ),
    "a loop is forbidden": (
        no_b(a()).followed_by("z").where("kind = 'b'").one_or_more().followed_by("c"),
        'stage "z" cannot take any event',
    ),
    "the first of a group is forbidden": (no_b(a()).followed_by(b("z").next("y")), 'stage "z" cannot take any event'),
    "all that fits is forbidden, after a loop": (
        no_b(a().one_or_more()).followed_by("z").where("kind = 'b'").next("c"),
        'stage "z" cannot take any event',
    ),
    "a second event is forbidden": (
        a().followed_by("b").where("kind = 'b'").times(2).not_followed_by("n").where("kind = 'b'").followed_by("c"),
        'stage "b" cannot take a second event',
    ),
    "a second event of a loop is forbidden": (
        loop(2).greedy().not_followed_by("n").where("kind = 'b'").followed_by("c"),
        'stage "b" cannot take a second event',
    ),
    "own events, in a function": (
        a().next("b").where("abs(value - LAST(b.value)) < 5"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, as a bound": (
        a().next("b").where("value BETWEEN LAST(b.value) AND 9"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, in a list": (
        a().next("b").where("value IN (LAST(b.value), FIRST(b.value))"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, in a choice": (
        a().next("b").where("if(value > LAST(b.value), TRUE, FALSE)"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, in cases": (
        a().next("b").where("CASE WHEN value > LAST(b.value) THEN TRUE WHEN LAST(b.kind) = kind THEN TRUE END"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "own events, as what is compared with cases": (
        a().next("b").where("CASE LAST(b.value) WHEN 1 THEN TRUE END"),
        'stage "b" cannot take any event: its condition is never TRUE',
    ),
    "a later stage of the first round": (
        Pattern.begin(Pattern.begin("x").where("value > LAST(y.value)").next("y")).one_or_more(),
        'stage "x" cannot take any event: its condition is never TRUE',
    ),
    "a later stage of the first round, in a group in a group": (
        Pattern.begin(Pattern.begin(Pattern.begin("x").where("value > LAST(y.value)")).next("y")).times(2),
        'stage "x" cannot take any event: its condition is never TRUE',
    ),
    "nothing": (a().next("b").where("1 > 2"), 'stage "b" cannot take any event: its condition is never TRUE'),
    "not_next of TRUE": (a().not_next("n").where("TRUE").followed_by("c"), 'after not_next("n") nothing can match'),
    "not_next of 1 = 1": (a().not_next("n").where("1 = 1"), 'after not_next("n") nothing can match'),
}


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("name", NEVER)
def test_what_can_never_match_is_told(name: str, semantics: Semantics) -> None:
    """And it never does, in either semantics."""
    pattern, message = NEVER[name]
    assert messages_of(pattern) == [message]
    assert matches(pattern, semantics) == []


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
    "a greedy loop before not_followed_by of the same": (
        loop().greedy().not_followed_by("more").where("kind = 'b'").followed_by("c").where("kind = 'c'"),
        'the loop "b" never takes more than 1 event',
        a().followed_by("b").where("kind = 'b'").not_followed_by("more").where("kind = 'b'").followed_by("c").where("kind = 'c'"),
    ),
    "a relaxed loop before not_followed_by of the same": (
        no_b(a().followed_by("b").where("kind = 'b'").one_or_more()).followed_by("c").where("kind = 'c'"),
        'the loop "b" never takes more than 1 event',
        no_b(a().followed_by("b").where("kind = 'b'")).followed_by("c").where("kind = 'c'"),
    ),
    "a last loop that is forbidden": (
        no_b(a()).followed_by("z").where("kind = 'b'").one_or_more(),
        'the loop "z" never takes more than 1 event',
        a().followed_by("z").where("kind = 'b'"),
    ),
    "until reads a later stage": (
        a().followed_by("b").where("kind = 'b'").one_or_more().until("value > LAST(c.value)").next("c").where("kind = 'c'"),
        'the until condition of stage "b" never ends the loop',
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
    "skip to a stage that must not occur": (
        a().not_followed_by("n").where("kind = 'c'").followed_by("b").where("kind = 'b'")
        .skip_strategy(AfterMatchSkipStrategy.skip_to_first("n")),
        'SKIP_TO_FIRST "n" discards nothing',
        a().not_followed_by("n").where("kind = 'c'").followed_by("b").where("kind = 'b'"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_effect_is_told(name: str, semantics: Semantics) -> None:
    """The pattern without it, or with the loop that is left of it, has the same answers."""
    pattern, message, without = WITHOUT[name]
    assert messages_of(pattern) == [message]
    found = matches(pattern, semantics)
    assert found == matches(without, semantics)
    assert found


FAILS = loop().skip_strategy(AfterMatchSkipStrategy.skip_to_first("a", throw_on_miss=True))


def test_a_skip_that_always_fails_is_told() -> None:
    assert messages_of(FAILS) == [
        'the first match fails the query: it cannot skip to its own first event, of stage "a"'
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        with pytest.raises(SkipStrategyError):
            match(FAILS, "a1 b2")


RUNS = b().times_or_more(2).consecutive().longest()


@pytest.mark.parametrize("skip", [AfterMatchSkipStrategy.no_skip(), AfterMatchSkipStrategy.skip_to_next()])
def test_parts_of_a_longest_run_are_told(skip: AfterMatchSkipStrategy) -> None:
    overlapping = RUNS.skip_strategy(skip)
    assert messages_of(overlapping) == ['a run of the longest loop "b" gives several matches']
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        assert match(overlapping, "b1 b2 b3 x4").matches == ["b1 b2 b3", "b2 b3"]
    whole = RUNS.skip_strategy(AfterMatchSkipStrategy.skip_past_last_event())
    assert match(whole, "b1 b2 b3 x4").matches == ["b1 b2 b3"]


# --- what costs on a stream ---

MINUTE = timedelta(minutes=1)
COSTS: dict[str, Pattern] = {
    "an absence before at any time": Pattern.begin_without("x").where("kind = 'x'").followed_by("a"),
    "the first event": a().starts_with_first_event(),
    "the last event": a().ends_with_last_event(),
    "only the first match": a().skip_strategy(AfterMatchSkipStrategy.first_match_only()),
    "the event before": a().next("b").where("kind = 'b'").where("value > PREV(value, 3)"),
    "a relaxed longest loop": a().followed_by("b").where("kind = 'b'").one_or_more().longest(),
    "a loop that gives back": (
        a()
        .followed_by("b")
        .where("kind = 'b'")
        .one_or_more()
        .greedy(give_back=True)
        .followed_by("c")
        .where("value > 3")
    ),
    "an absence after a loop": no_b(a().times_or_more(4)).within(MINUTE),
}
FREE: dict[str, Pattern] = {
    "a plain pattern": loop().greedy().followed_by("c").where("kind = 'c'"),
    "an absence before, for a time": Pattern.begin_without("x").where("kind = 'x'").within(MINUTE).followed_by("a"),
    "a consecutive longest loop": loop().longest(),
    "a relaxed longest loop with an end": a().next("b").one_or_more().longest().until("kind = 'c'"),
    "a relaxed longest loop in a window": a().next("b").one_or_more().longest().within(MINUTE),
    "a relaxed longest loop with gaps": a().next("b").one_or_more(within=MINUTE).longest(),
    "a longest loop before a stage": a().next("b").where("kind = 'b'").one_or_more().longest().next("c"),
    "adjacent events that are given back": (
        a()
        .next("b")
        .where("kind = 'b'")
        .one_or_more()
        .consecutive()
        .greedy(give_back=True)
        .next("c")
        .where("value > 3")
    ),
    "a loop that gives back in a window": a().one_or_more().greedy(give_back=True).followed_by("c").within(MINUTE),
}


@pytest.mark.parametrize("name", FREE)
def test_what_costs_nothing_has_no_note(name: str) -> None:
    assert costs(FREE[name]) == []


def test_costs_are_notes_and_no_warnings() -> None:
    pattern = COSTS["the first event"]
    assert messages_of(pattern) == []
    assert "note: starts_with_first_event() depends on all earlier events of a key" in pattern.explain()


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
    "a greedy loop that may be left out": (
        a().not_followed_by("n").where("kind = 'x'").followed_by("b").one_or_more().optional().greedy().followed_by("c")
    ),
    "a greedy loop before a group of which the first may be left out": (
        a().next("b").one_or_more().greedy().followed_by(Pattern.begin("o").optional().next("c"))
    ),
    "the end of a group is the end of the match": Pattern.begin(no_b(a()).followed_by("z").where("kind = 'b'")),
    "what follows may be left out": no_b(a()).followed_by("z").where("kind = 'b'").followed_by("d").optional(),
    "what follows the loop may be left out": (
        a().next("b").where("kind = 'b'").times(2).not_followed_by("n").where("kind = 'b'").next("c").optional()
    ),
    "a relaxed times may go on": no_b(a().followed_by("b").where("kind = 'b'").times(1, 3)).followed_by("c"),
    "a later stage of the round before": Pattern.begin(
        Pattern.begin("w").optional().next("x").where("value > LAST(y.value)").optional().next("y")
    ).one_or_more(),
    "a choice that may be taken": a().next("b").where("if(COUNT(b.*) = 0, TRUE, value > LAST(b.value))").one_or_more(),
    "not between": a().next("b").where("value NOT BETWEEN LAST(b.value) AND 2").one_or_more(),
    "one of a list": a().next("b").where("value IN (LAST(b.value), 2)").one_or_more(),
    "a function": a().next("b").where(lambda table: table["value"]).one_or_more().greedy().next("c").where(len),
    "a greedy alternative beside another": a().next(Pattern.any_of(b().one_or_more().greedy(), b("c").next("d"))).next("e"),
    "a loop that gives back": a().next("b").one_or_more().greedy(give_back=True).next("c").where("kind = 'c'"),
    "an alternative of the round before": (
        a().next(Pattern.any_of(b().where("value > LAST(c.value)"), Pattern.begin("c").where("kind = 'c'"))).one_or_more()
    ),
    "an element that may come later": a().next(
        Pattern.in_any_order(b().where("value > LAST(c.value)"), Pattern.begin("c").where("kind = 'c'"))
    ),
    "an alternative that may follow": no_b(a()).followed_by(Pattern.any_of(b("z"), Pattern.begin("c"))).next("d"),
    "whole runs": b().one_or_more().longest().consecutive().skip_strategy(AfterMatchSkipStrategy.skip_past_last_event()),
    "a run after an event": a().next("b").where("kind = 'b'").one_or_more().longest().consecutive(),
    "the first run of a key": b().one_or_more().longest().consecutive().starts_with_first_event(),
    "the event before it": a().where("value > PREV(value)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_not_told(name: str) -> None:
    assert messages_of(MEANT[name]) == []


def test_few_patterns_of_the_corpus_are_surprising() -> None:
    """They were made at random, and to be surprising; what is said to find nothing has no match of Flink's."""
    patterns = warned = 0
    for case in islice(read_cases(CASE_FILES), 0, None, max(1, 3 // FACTOR)):
        try:
            pattern = Pattern.from_json(case["pattern"])
        except AsterismError:
            continue
        found = diagnose(pattern)
        patterns, warned = patterns + 1, warned + bool(found)
        mandatory = not any(stage.quantifier.optional or stage.group for stage in pattern.stages)
        if mandatory and any(re.search(NOTHING, diagnostic.message) for diagnostic in found):
            assert case["expected"].get("matches", []) == [], case["id"]
    assert 0 < warned < patterns / 15


@st.composite
def patterns(draw: st.DrawFn, prefix: str = "", depth: int = 0) -> Pattern:
    """Of few conditions, so that many of them surprise."""
    names = [f"{prefix or 's'}{number}" for number in range(draw(st.integers(1 if depth else 2, 4)))]
    conditions = ["kind = 'a'", "kind = 'b'", "kind = 'b' AND value > 2", "TRUE", "value > coalesce(LAST({}.value), 0)"]
    conditions += [
        "abs(LAST({}.value)) < value",
        "value BETWEEN 0 AND LAST({}.value)",
        "if(LAST({}.value) > 0, TRUE, FALSE)",
    ]
    contiguities = ["next", "followed_by", "followed_by", "not_followed_by", "not_next"]
    hows = [draw(st.sampled_from(contiguities[: 5 if 0 < at < len(names) - 1 else 3])) for at in range(len(names))]
    groups = {
        name: draw(patterns(f"{name}x", depth + 1))
        for name, how in zip(names, hows, strict=True)
        if depth < 2 and how[:3] != "not" and draw(st.integers(0, 5)) == 5
    }
    for name in groups:
        combine = draw(st.sampled_from([None, None, Pattern.any_of, Pattern.in_any_order]))
        if combine is not None:
            try:
                groups[name] = combine(groups[name], draw(patterns(f"{name}y", 2)))
            except MalformedPatternError:  # an element that begins with an optional stage
                reject()
    read = [name for name in names if name not in groups] or [""]
    pattern: Pattern | None = None
    for name, how in zip(names, hows, strict=True):
        here: Any = groups.get(name, name)
        try:
            pattern = Pattern.begin(here) if pattern is None else getattr(pattern, how)(here)
        except MalformedPatternError:  # a NOT stage after an optional one
            reject()
        text = draw(st.one_of(st.none(), st.sampled_from(conditions[:4]), st.sampled_from(conditions)))
        if name not in groups and text is not None:
            pattern = pattern.where(text.format(draw(st.sampled_from(read))))
        changes = [
            [],
            ["times"],
            ["loop"],
            ["loop", "consecutive"],
            ["loop", "greedy"],
            ["range", "greedy"],
            ["optional"],
            ["loop", "longest"],
            ["range", "give back"],
            ["loop", "reluctant"],
        ]
        for change in draw(st.sampled_from([*changes, ["loop", "greedy", "optional"]])) if how[:3] != "not" else []:
            try:
                pattern = {
                    "times": lambda made: made.times(2),
                    "range": lambda made: made.times(1, 2),
                    "loop": Pattern.one_or_more,
                    "consecutive": Pattern.consecutive,
                    "greedy": Pattern.greedy,
                    "give back": lambda made: made.greedy(give_back=True),
                    "longest": Pattern.longest,
                    "reluctant": Pattern.reluctant,
                    "optional": Pattern.optional,
                }[change](pattern)
            except MalformedPatternError:  # not of a group, or not after a greedy loop
                break
    assert pattern is not None
    return pattern


def test_what_is_told_is_true() -> None:
    """Of patterns at random: what is to take nothing takes nothing, and what is to take so many takes no more."""
    numbers = random.Random(7)
    events = " ".join(
        f"k{key}.{numbers.choice('aabbbc')}{1 + at % 5}" for key in range(60) for at in range(numbers.randrange(3, 9))
    )
    warned: Counter[str] = Counter()

    @settings(
        max_examples=examples(60, usual=150),
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(patterns(), st.sampled_from(Semantics))
    def check(pattern: Pattern, semantics: Semantics) -> None:
        try:
            compile_pattern(pattern, semantics)
        except MalformedPatternError:
            reject()
        claims = [
            (found.group(1), int(found.group(2) or 0))
            for message in messages_of(pattern)
            if (
                found := re.search(
                    r'"(\w+)" (?:cannot take (?:any|a second) event|never takes more than (\d+))', message
                )
            )
        ]
        if claims:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PatternWarning)
                taken = match(pattern, events, semantics=semantics).by_stage()
        for stage, most in claims:
            warned[str(most)] += 1
            assert all(len(found.get(stage, [])) <= most for found in taken), (stage, pattern.explain())

    check()
    assert warned["0"] > 2
    assert warned["1"] > 0


def test_the_hint_of_a_loop_before_an_absence_leads_to_the_run() -> None:
    """As it is, only the last event of the run is a match, and only where another event comes within the time."""
    seconds, run = timedelta(seconds=5), b("r").one_or_more().consecutive()
    long, short = "b1@1s b2@2s b3@3s x40@60s", "b1@1s b2@2s b3@3s x40@4s"
    for kind, found in ((WithinType.FIRST_AND_LAST, []), (WithinType.PREVIOUS_AND_CURRENT, ["b3"])):
        for loop in (run, run.greedy()):
            pattern = no_b(loop).within(seconds, kind)
            [diagnostic] = diagnose(pattern)
            assert diagnostic.hint.endswith('.next("last").where("...").not_followed_by("n")')
            with pytest.warns(PatternWarning):
                assert match(pattern, long).matches == found
            with pytest.warns(PatternWarning):
                assert match(pattern, short).matches == ["b3"]
        hinted = no_b(run.next("last").where("kind = 'b'")).within(seconds, kind)
        assert messages_of(hinted) == []
        assert match(hinted, long).matches == match(hinted, short).matches == ["b1 b2 b3", "b2 b3"]


# --- where a warning is shown ---


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
    assert first_line(record) == 'stage "b" cannot take any event: its condition is never TRUE'


def test_explain_tells_it() -> None:
    lines = WITHOUT["before a strict last stage"][0].explain().splitlines()
    assert 'warning: not_followed_by("n") has no effect' in lines


def test_a_condition_that_does_not_parse_is_told_elsewhere() -> None:
    assert messages_of(a().next("b").where("value >").one_or_more().greedy().next("c").where("value >")) == [
        'stage "c" cannot take any event'
    ]


def test_long_conditions_are_read() -> None:
    text = " OR ".join(f"value = {number}" for number in range(1000))
    assert messages_of(a().next("b").where(f"({text}) AND value > LAST(b.value)")) != []
    assert json.loads(json.dumps(text)) == text


def test_a_match_may_end_before_forbidden_stages() -> None:
    """The stages after the loop can be omitted, so that its second event completes the match."""
    pattern = Pattern.begin("a").times(2).not_followed_by("b").not_followed_by("c").next("d").optional()
    assert messages_of(pattern) == []
    assert match(pattern, "a1 b2").by_stage() == [{"a": ["a1", "b2"]}]
