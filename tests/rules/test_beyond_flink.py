"""Rules with the parts of a pattern that Flink lacks, in a set with others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.result_rows import MATCHES
from tests.kit import examples
from tests.rules.driver import SCHEMA, Driver, Event, chain, cuts, processor
from tests.rules.test_validation import problems_of

PAST = AfterMatchSkipStrategy.skip_past_last_event()


def begin(kind: str, skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    return Pattern.begin(kind, skip).where(f"kind = '{kind}'")


PATTERNS: dict[str, Pattern] = {
    "ordinary": chain("a", "b"),
    "longest": begin("a", PAST).times_or_more(2).consecutive().longest(),
    "any of": begin("a", PAST).followed_by(Pattern.any_of(begin("b").next("d"), begin("c"))),
    "any order": Pattern.in_any_order(begin("a"), begin("b"), begin("c"), consecutive=True),
    "previous": Pattern.begin("up", PAST).where("x > PREV(x) AND x > PREV(x, 2)").next("then"),
    "without": Pattern.begin_without("c").where("kind = 'c'").followed_by("a").where("kind = 'a'").next("b"),
    "first event": begin("a").followed_by("b").where("kind = 'b'").starts_with_first_event(),
    "last event": begin("a").next("b").where("kind = 'b'").ends_with_last_event(),
    "once": begin("a", AfterMatchSkipStrategy.first_match_only()).next("b").where("kind = 'b'"),
    "gives back": begin("a")
    .one_or_more()
    .consecutive()
    .greedy(give_back=True)
    .next("late")
    .where("x > 2 OR kind = 'b'"),
    "reluctant": begin("a", PAST).one_or_more().consecutive().reluctant().next("late").where("x > 2 OR kind = 'b'"),
}
ALL = [processor(name, 1, pattern) for name, pattern in PATTERNS.items()]
Found = list[tuple[str, int, tuple[str, ...], str]]


def events_of(rng: random.Random, count: int = 60) -> list[Event]:
    return [
        (second, rng.choice(["ann", "bob"]), 7, rng.choice("aaabbcd"), float(rng.randint(0, 4)))
        for second in range(count)
    ]


def run(pieces: Iterable[Sequence[Event]], *, key_groups: int = 1, sets: Sequence[PatternProcessor] = ALL) -> Driver:
    driver = Driver(key_groups=key_groups).batch(sets=sets)
    for piece in pieces:
        driver.batch(piece, watermark=piece[-1][0])
    return driver


def of(found: Found, *names: str) -> Found:
    return [one for one in found if one[0] in names]


def test_rules_find_what_they_would_find_alone() -> None:
    events = [*events_of(random.Random(1)), (60, "ann", 7, "a", 1.0), (61, "ann", 7, "b", 1.0)]
    together = run([events]).end().found
    for one in ALL:
        alone = run([events], sets=[one]).end().found
        assert alone, one.id
        assert of(together, one.id) == alone


def test_they_find_what_is_meant() -> None:
    kinds = [("a", 1.0), ("a", 2.0), ("b", 0.0), ("c", 3.0), ("a", 5.0), ("b", 6.0)]
    events: list[Event] = [(second, "ann", 7, kind, x) for second, (kind, x) in enumerate(kinds, 1)]
    found = {name: [text for id, _, _, text in run([events]).end().found if id == name] for name in PATTERNS}
    assert found == {
        "ordinary": ["a1 b3", "a2 b3", "a5 b6"],
        "longest": ["a1 a2"],
        "any of": ["a1 b3 c4"],
        "any order": ["a2 b3 c4", "b3 c4 a5", "c4 a5 b6"],
        "previous": ["c4 a5"],
        "without": ["a1 a2", "a2 b3"],
        "first event": ["a1 b3"],
        "last event": ["a5 b6"],
        "once": ["a2 b3"],
        "gives back": ["a1 a2 b3", "a2 b3", "a5 b6"],
        "reluctant": ["a1 a2 b3", "a5 b6"],
    }


@pytest.mark.parametrize("seed", range(examples(2, usual=4)))
def test_micro_batches_and_key_groups_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    events = events_of(rng)
    assert run(cuts(events, rng), key_groups=3).end().found == run([events]).end().found


@pytest.mark.parametrize("name", PATTERNS)
def test_a_new_version_begins_anew_and_the_others_go_on(name: str) -> None:
    """What a rule remembers of a key goes with its version."""
    rng = random.Random(5)
    events = events_of(rng)
    new = processor(name, 2, PATTERNS[name])
    driver = run(cuts(events[:30], rng))
    driver.batch(sets=[new if one.id == name else one for one in ALL])
    for piece in cuts(events[30:], rng):
        driver.batch(piece, watermark=piece[-1][0])
    found = driver.end().found
    others = [other for other in PATTERNS if other != name]
    assert of(found, *others) == of(run([events]).end().found, *others)
    before = of(run([events[:30]]).found, name)
    after = run([events[30:]], sets=[new]).end().found
    assert of(found, name) == sorted(before + after)


SELECT = (
    "COUNT(*) AS n",
    "SUM(both.x) AS x",
    "CLASSIFIER() AS last",
    "array_agg(CLASSIFIER()) AS stages",
    "MATCH_NUMBER() AS number",
)
MEASURED = begin("a", PAST).one_or_more().next("b").where("kind = 'b' AND COUNT(both.*) > 0").subset("both", "a", "b")


def test_measures_of_the_whole_match() -> None:
    events: list[Event] = [(1, "ann", 7, "a", 1.0), (2, "ann", 7, "a", 2.0), (3, "ann", 7, "b", 4.0)]
    events += [(4, "ann", 7, "a", 1.0), (5, "ann", 7, "b", 1.0)]
    for pieces in ([events], [[event] for event in events]):
        rows = run(pieces, sets=[processor("m", 1, MEASURED, select=SELECT), ALL[0]]).end().rows[MATCHES]
        assert [dict(row["measures"]) for row in rows if row["processor_id"] == "m"] == [
            {"n": "3", "x": "7.0", "last": "b", "stages": "['a', 'a', 'b']", "number": "1"},
            {"n": "2", "x": "2.0", "last": "b", "stages": "['a', 'b']", "number": "2"},
        ]


def test_previous_events_in_measures_are_refused() -> None:
    """Before a query knows the columns, when it is bound to them, and for a subset of the stages."""
    for measure in ("PREV(a.x) AS x", "PREV(both.x) AS x"):
        one = rule(MEASURED, select=[measure])
        for schema in (None, SCHEMA):
            assert list(problems_of(one, schema).values()) == ["select: the measures of a rule do not support PREV"]


def rule(pattern: Pattern, **more: Any) -> dict[str, Any]:
    return {"id": "r", "version": 1, "pattern": pattern.to_json(), **more}


@pytest.mark.parametrize("name", PATTERNS)
def test_they_are_valid_before_they_are_used(name: str, tmp_path: Any) -> None:
    assert problems_of(rule(PATTERNS[name]), None) == {}
    assert problems_of(rule(PATTERNS[name]), SCHEMA) == {}
    assert StoredRuleFile(tmp_path / "set.json").checked(rule(PATTERNS[name]))


def test_names_of_subsets_are_known_and_others_refused(tmp_path: Any) -> None:
    rules = StoredRuleFile(tmp_path / "set.json")
    good = rule(MEASURED, select=list(SELECT))
    assert problems_of(good, None) == problems_of(good, SCHEMA) == {}
    assert rules.checked(good)
    bad = rule(MEASURED, select=["SUM(none.x) AS x", "CLASSIFIER(a) AS c", "SUM(both.kind) AS k"])
    assert problems_of(bad, None) == {
        "/select/0": "select: unknown stage 'none'",
        "/select/1": "select: CLASSIFIER takes no arguments",
    }
    assert [*problems_of(bad, SCHEMA)] == ["/select/0", "/select/1", "/select/2"]
    with pytest.raises(AsterismError, match="unknown stage 'none'"):
        rules.checked(bad | {"version": 2})
    condition = rule(begin("a").where("COUNT(other.*) > 0").subset("u", "a"))
    assert problems_of(condition, None) == {
        "/pattern/nodes/0/condition/expression": "pattern: a: condition: unknown stage 'other'"
    }
