"""What one rule may cost: rules that explode, each beside one that is to find what it always finds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.errors import LimitExceededError, PatternProcessorError, StreamDefinitionError
from asterism.matching import kernels
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching import operator as dynamic_cep
from asterism.rules.matching.result_rows import ERRORS, MATCHES
from tests.kit import FACTOR
from tests.rules.driver import Driver, Event, chain, cuts, processor

GOOD = processor("good", 1, chain("a", "z", within=None))


def e(second: float, kind: str, user: str = "ann") -> Event:
    return second, user, 1, kind, 0.0


def of(kind: str) -> str:
    return f"kind = '{kind}'"


def subsets() -> Pattern:
    begin = Pattern.begin("a").where(of("a")).followed_by_any("b").where(of("b")).one_or_more().allow_combinations()
    return begin.followed_by("c").where(of("c"))


def optional(stages: int) -> Pattern:
    pattern = Pattern.begin("s0")
    for number in range(1, stages):
        pattern = pattern.followed_by(f"s{number}").optional()
    return pattern.followed_by("last").where("kind = 'never'")


def ways_to_skip() -> Pattern:
    pattern = Pattern.begin("a").where(of("a"))
    for number in range(60):
        pattern = pattern.next(Pattern.begin(f"g{number}").where(of("x")).optional()).optional()
    return pattern.next("e").where(of("e"))


def nested() -> Pattern:
    inner = Pattern.begin("p").followed_by_any("q").times(10)
    for _ in range(2):
        inner = Pattern.begin(inner).times(10)
    return inner


def loop() -> Pattern:
    return (
        Pattern.begin("a").where(of("a")).followed_by("b").where(of("b")).one_or_more().followed_by("c").where(of("c"))
    )


BOMBS: dict[str, tuple[Pattern, int | None, list[str]]] = {
    "subsets": (subsets(), None, ["a", *["b"] * 31, "c"]),
    "optional stages": (optional(200), None, ["a", *"bcdefgh"]),
    "ways to skip": (ways_to_skip(), None, ["a", "b", "e"]),
    "nested groups": (nested(), None, ["a"] * 60),
    "a loop that never ends": (loop(), 300, ["a", *["b"] * 2000, "c"]),
    "all pairs": (chain("a", "b", within=None), 300, ["a", "x"] * 2000),
    "combinations of everything": (
        Pattern.begin("a").one_or_more().allow_combinations().followed_by_any("n").where("kind = 'never'"),
        None,
        ["a"] * 40,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_rule_that_explodes_is_disabled_alone(name: str) -> None:
    """Whatever ``on_error`` says; what the good rule finds before and after is there."""
    pattern, limit, kinds = BOMBS[name]
    bomb = processor("bomb", 1, pattern, max_partial_matches=limit)
    events = [e(n, kind) for n, kind in enumerate([*kinds, "a", "z"])]
    driver = Driver().batch(events, sets=[bomb, GOOD]).end()
    (error,) = driver.rows[ERRORS]
    assert (error["processor_id"], error["processor_version"]) == ("bomb", 1)
    assert "key 'ann'" in error["error"]
    assert ("good", 1, ("ann",), f"a{len(kinds)} z{len(kinds) + 1}") in driver.found
    assert driver.metrics[ERRORS] == 1
    assert all(store.is_empty for store in driver.stores)


@pytest.mark.parametrize("name", ["subsets", "optional stages", "a loop that never ends", "all pairs"])
@pytest.mark.parametrize("seed", range(FACTOR))
def test_where_it_ends_does_not_depend_on_the_cuts(name: str, seed: int) -> None:
    pattern, limit, kinds = BOMBS[name]
    bomb = processor("bomb", 1, pattern, max_partial_matches=40 if limit else None)
    some = [*kinds[:150], "c", "a", "z"]
    events = [e(n, kind, user) for n, kind in enumerate(some) for user in ("ann", "bob")]
    whole = Driver().batch(events, sets=[bomb, GOOD]).end()
    pieces = Driver().batch(sets=[bomb, GOOD])
    for part in cuts(events, random.Random(seed)):
        pieces.batch(part, watermark=part[-1][0] - 0.5)
    pieces.end()
    assert pieces.found == whole.found
    assert pieces.rows[ERRORS] == whole.rows[ERRORS]
    assert len(whole.rows[ERRORS]) == 1


def test_what_it_found_before_is_kept() -> None:
    """It has been in force until the event that was too much; its matches of that time are not emitted."""
    rule = processor("ab", 1, chain("a", "b"), max_partial_matches=2)
    events = [e(1, "a"), e(2, "b"), e(3, "a"), e(4, "a"), e(5, "a"), e(6, "b")]
    driver = Driver().batch(events, sets=[rule, GOOD]).end()
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]
    (error,) = driver.rows[ERRORS]
    assert error["time"].timestamp() == 5
    assert error["error"] == (
        "TooManyPartialMatchesError: [TOO_MANY_PARTIAL_MATCHES] a key has more than 2 partial matches\n"
        "  stage \"b\", key 'ann', event of 1970-01-01T00:00:05.000000\n"
        "  Hint: bound them with within(...), until(...), times(...) or a narrower condition; see docs/limits.md"
    )


def test_the_next_version_is_taken() -> None:
    rule = processor("ab", 1, chain("a", "b"), max_partial_matches=1)
    driver = Driver().batch([e(1, "a"), e(2, "a")], sets=[rule], watermark=2)
    driver.batch([e(3, "a"), e(4, "b")], watermark=4)
    assert driver.found == []
    driver.batch([e(5, "a"), e(6, "b")], sets=[processor("ab", 2, chain("a", "b"))]).end()
    assert driver.found == [("ab", 2, ("ann",), "a5 b6")]


def test_the_smaller_limit_holds() -> None:
    """A rule can ask for less than the query allows, never for more; and what is allowed can change with a restart."""
    events = [e(1, "a"), e(2, "a"), e(3, "a"), e(4, "b")]
    for query, own, fails in (
        (2, None, True),
        (2, 9, True),
        (9, 2, True),
        (3, 3, False),
        (None, None, False),
        (None, 2, True),
    ):
        rule = processor("ab", 1, chain("a", "b"), max_partial_matches=own)
        driver = Driver(max_partial_matches=query).batch(events, sets=[rule]).end()
        assert bool(driver.rows[ERRORS]) is fails, (query, own)
    assert Driver(max_partial_matches=2).operator.fingerprint == Driver().operator.fingerprint


@pytest.mark.parametrize("failing", ["fail", "disable"])
def test_the_query_can_fail_instead(failing: str) -> None:
    rule = processor("ab", 1, chain("a", "b"), max_partial_matches=1)
    driver = Driver(disable_on_limit=False, disable_on_error=failing == "disable")
    with pytest.raises(LimitExceededError) as caught:
        driver.batch([e(1, "a"), e(2, "a")], sets=[rule, GOOD], watermark=2)
    assert str(caught.value) == (
        '[TOO_MANY_PARTIAL_MATCHES] the pattern processor "ab" version 1: a key has more than 1 partial matches\n'
        "  stage \"b\", key 'ann', event of 1970-01-01T00:00:02.000000\n"
        "  Hint: bound them with within(...), until(...), times(...) or a narrower condition; see docs/limits.md"
    )


def test_many_that_explode_cost_one_more_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one each, and not one for each key that fails earlier than another one."""
    calls = []
    real = kernels.advance_keys

    def counted(*args: Any) -> Any:
        calls.append(1)
        return real(*args)

    monkeypatch.setattr(kernels, "advance_keys", counted)
    bombs = [processor(f"bomb{n}", 1, subsets()) for n in range(5)]
    bombs += [processor(f"pairs{n}", 1, chain("a", "b"), max_partial_matches=n + 1) for n in range(5)]
    events = [
        e(100 - 2 * n + m, kind, f"user{n}") for n in range(40) for m, kind in enumerate(["a", *["b"] * 20, "a", "a"])
    ]
    events += [e(200 + n, "a", f"user{u}") for n in range(9) for u in range(40)] + [e(300, "z", "user3")]
    driver = Driver().batch(events, sets=[*bombs, GOOD]).end()
    assert len(driver.rows[ERRORS]) == 10
    assert any(match[0] == "good" for match in driver.found)
    assert len(calls) <= 4  # what is due, what arrived, and that again


def test_held_back_matches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partial match that never ends holds back all matches that began later."""
    from asterism.matching import plan
    from asterism.patterns.sequence import AfterMatchSkipStrategy

    monkeypatch.setattr(plan, "LEAST_PARTIAL_MATCHES", 10)
    pattern = Pattern.begin("a").where("kind IN ('a', 'o')").followed_by("b").where("kind = 'b' AND LAST(a.kind) = 'a'")
    rule = processor(
        "held", 1, pattern.skip_strategy(AfterMatchSkipStrategy.skip_past_last_event()), max_partial_matches=10
    )
    events = [e(0, "o"), *(e(n, kind) for n, kind in enumerate("ab" * 120, 1))]
    (error,) = Driver().batch(events, sets=[rule]).end().rows[ERRORS]
    assert "a key has more than 100 matches that the skip strategy holds back" in error["error"]


def test_state_that_grows_over_many_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heaviest rule of the key group goes; the others keep what they have."""
    monkeypatch.setattr(dynamic_cep, "MAX_STATE", 20_000)
    wide = processor("wide", 1, chain("a", "n", within=None))
    few = processor("few", 1, chain("k", "z", within=None))
    events = [e(1, "k"), *(e(2, "a", f"user{n}") for n in range(500)), e(3, "x")]
    driver = Driver().batch(events, sets=[wide, few], watermark=3).batch([e(4, "z")], watermark=4)
    (error,) = driver.rows[ERRORS]
    assert error["processor_id"] == "wide"
    assert "the partial matches of a key group have" in error["error"]
    assert driver.found == [("few", 1, ("ann",), "k1 z4")]


def test_no_memory_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and the call can be repeated."""
    driver = Driver().batch(
        [e(1, "a"), e(2, "a", "bob")], sets=[GOOD, processor("ab", 1, chain("a", "b"))], watermark=2
    )
    before = driver.stores[0].header, dict(driver.stores[0].pages)

    def full(*args: Any) -> Any:
        raise MemoryError("Allocation failed")

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "advance_keys", full)
        with pytest.raises(LimitExceededError) as caught:
            driver.batch([e(3, "z")], watermark=3)
    assert 'Largest part: the pattern processor "good" version 1 with 2 partial matches before it.' in str(caught.value)
    assert (driver.stores[0].header, driver.stores[0].pages) == before
    assert driver.batch([e(3, "z")], watermark=3).found == [("good", 1, ("ann",), "a1 z3")]


@pytest.mark.parametrize("limit", [0, -1, True, "10", 10**10, 1.5])
def test_limits_of_rules_are_checked(limit: Any) -> None:
    with pytest.raises(PatternProcessorError, match="maxPartialMatches must be an integer from 1 to 1,000,000,000"):
        processor("ab", 1, chain("a", "b"), max_partial_matches=limit)


@pytest.mark.parametrize("limit", [0, -1, True, "10", 10**13])
def test_limits_of_queries_are_checked(limit: Any) -> None:
    with pytest.raises(StreamDefinitionError, match="max_partial_matches"):
        Driver(max_partial_matches=limit)


def test_a_limit_travels_with_its_rule() -> None:
    rule = processor("ab", 1, chain("a", "b"), max_partial_matches=7)
    assert rule.to_dict()["maxPartialMatches"] == 7
    assert PatternProcessor.from_dict(rule.to_dict()) == rule
    assert "maxPartialMatches" not in processor("ab", 1, chain("a", "b")).to_dict()


# ---------------------------------------------------------------------------------------------------- slices


def mixed() -> list[PatternProcessor]:
    return [
        processor("pairs", 1, chain("a", "b", within=None)),
        processor("measured", 1, chain("a", "b"), select=("COUNT(a.*) AS n", "LAST(b.x) AS x"), timed_out=True),
        processor("named", 1, chain("a", "c"), function="doubled"),
        processor("subsets", 1, subsets(), max_partial_matches=60, timed_out=True),
        processor("late", 1, chain("b", "c", within=5), timed_out=True),
    ]


def doubled(table: pa.Table) -> pa.Table:
    if any(event["x"] == 13 for events in table.column("c").to_pylist() for event in events):
        raise ValueError("unlucky")
    return table.select(["start_time"])


@pytest.mark.parametrize("seed", range(FACTOR))
@pytest.mark.parametrize("size", [1, 3, 20])
def test_slices_of_any_size_give_the_same(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and failures, also where a rule fails after other slices were made."""
    rng = random.Random(seed)
    events = [(n, rng.choice(["ann", "bob"]), 1, rng.choice("aabbbc"), float(rng.randint(1, 13))) for n in range(60)]

    def run() -> tuple[Any, ...]:
        driver = Driver(functions={"doubled": doubled}, disable_on_error=True)
        driver.batch(events[:30], sets=mixed(), watermark=25).batch(events[30:], watermark=50).end()
        found = {name: sorted(map(repr, rows)) for name, rows in driver.rows.items()}
        return found, driver.metrics, [(store.header, store.pages) for store in driver.stores]

    whole = run()
    monkeypatch.setattr("asterism.matching.matcher.SLICE", size)
    assert run() == whole
    assert whole[0][MATCHES]


def test_results_are_handed_on_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written before the last one."""
    from asterism.columns.time import END_OF_TIME
    from asterism.operators.operator import Now
    from asterism.operators.state.state_store import MemoryStore

    monkeypatch.setattr("asterism.matching.matcher.SLICE", 4)
    driver = Driver().batch([e(n, "a") for n in range(10)] + [e(n, "z") for n in range(10, 20)], sets=[GOOD])
    (store,) = driver.stores
    before = MemoryStore(store.header, dict(store.pages))
    results = driver.operator.slices(store, [], Now(END_OF_TIME))
    first, second, *rest = (result.outputs.get(MATCHES) for result in results)
    assert first.num_rows <= 4
    again = driver.operator.slices(before, [], Now(END_OF_TIME))
    assert next(again).outputs[MATCHES] == first
    again.close()
    assert not before.is_empty
    total: Sequence[Any] = [first, second, *(table for table in rest if table is not None)]
    assert sum(table.num_rows for table in total) == 10


def test_a_budget_is_for_each_event() -> None:
    """However many events a call has."""
    rule = processor("ab", 1, chain("a", "b").within(timedelta(seconds=3)))
    events = [e(n, kind) for n, kind in enumerate("ab" * 3000)]
    assert Driver(max_partial_matches=3).batch(events, sets=[rule]).end().rows[ERRORS] == []
