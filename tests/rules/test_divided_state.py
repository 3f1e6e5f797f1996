"""The state of a key group is divided into pages, and no result depends on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from asterism import Pattern
from asterism.operators.state.page_numbers import CLAUSES_PAGE, DEFINITION_PAGE, SETS_PAGE, SUPPRESSIONS_PAGE
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching import operator as module
from asterism.rules.matching.result_rows import ERRORS
from asterism.rules.matching.state_pages import names_of_page
from tests.kit import examples, small_pages
from tests.rules.driver import Driver, Event, at, chain, processor
from tests.rules.test_operator import DIVIDES, e

AB, FOREVER = processor("ab", 1, chain("a", "b")), processor("forever", 1, chain("a", "b", within=None))
TIMED_OUT = processor("timed out", 1, chain("a", "b", within=7), timed_out=True)
BY_ITEM = processor("by item", 1, chain("b", "a", strict=True), key=("item",))
CHOICES = [
    AB,
    processor("ab", 2, chain("b", "a")),
    FOREVER,
    TIMED_OUT,
    BY_ITEM,
    DIVIDES,
    processor("suppressed", 1, chain("a", "b"), suppress=timedelta(seconds=20)),
    PatternProcessor("clause", 1, sql="MEASURES LAST(A.x) AS x PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"),
    processor("expires", 1, chain("a", "b"), expires=at(40)),
]
OTHERS = {DEFINITION_PAGE, SETS_PAGE, CLAUSES_PAGE, SUPPRESSIONS_PAGE}


def pages(driver: Driver) -> dict[int, bytes]:
    """Those of keys."""
    (store,) = driver.stores
    return {number: value for number, value in store.pages.items() if number not in OTHERS}


def events_of(rng: random.Random, second: int) -> list[Event]:
    return [
        e(second, rng.choice("ab"), f"user{rng.randrange(300)}", rng.randrange(5), float(rng.random() > 0.002))
        for _ in range(rng.choice([0, 1, 2, 100]))
    ]


@pytest.mark.parametrize("seed", range(examples(1, usual=2)))
def test_the_number_of_pages_changes_no_result(seed: int) -> None:
    rng = random.Random(seed)
    one, many = Driver(disable_on_error=True), Driver(disable_on_error=True)
    one.operator.fixed_pages = True
    numbers = set()
    with small_pages():
        for second in range(1, 46):
            sets: Sequence[PatternProcessor] | None = None
            if second % 15 == 1:
                sets = list(
                    {rule.id: rule for rule in rng.sample(CHOICES[:-3] if second < 30 else CHOICES, 4)}.values()
                )
                later = processor("ab", 9, chain("b", "a", strict=True), timestamp=at(second + 7.5))
                sets = [*sets, later] if rng.random() < 0.5 else sets
            events = events_of(rng, second)
            for driver in (one, many):
                driver.batch(events, sets=sets, watermark=second)
            numbers.add(min(len(pages(many)), 5))
            assert {key: counts.partial_matches for key, counts in many.counts.versions.items()} == {
                key: counts.partial_matches for key, counts in one.counts.versions.items()
            }
    assert numbers >= {1, 5}
    assert ordered(many.rows) == ordered(one.rows)
    assert any(many.rows.values())
    for driver in (one, many):
        assert not driver.end().stores[0].pages
    assert ordered(many.rows) == ordered(one.rows)


def ordered(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {name: sorted(map(str, found)) for name, found in rows.items()}


def test_a_call_reads_and_writes_the_pages_of_its_keys() -> None:
    driver = Driver().batch([e(1, "a", f"user{n}") for n in range(20_000)], sets=[FOREVER, AB], watermark=1)
    (whole,) = pages(driver).values()
    driver.batch([e(2, "b", "user3")], watermark=2)
    before = pages(driver)
    assert len(before) == 1_024
    driver.batch([e(3, "b", "user77")], watermark=3)
    after = pages(driver)
    (changed,) = (number for number in after if after[number] != before[number])
    assert len(after[changed]) < len(whole) / 32
    assert len(driver.found) == 4
    driver.batch(sets=[AB], watermark=4)  # the state of a removed rule is deleted in all pages
    assert {name for value in pages(driver).values() for name, *_ in names_of_page(value)[0]} == {"ab"}
    assert driver.counts.versions["ab", 1].partial_matches == 19_998


def test_a_page_names_the_processors_with_partial_matches() -> None:
    driver = Driver().batch([e(1, "a")], sets=[BY_ITEM, AB], watermark=1)
    (page,) = pages(driver).values()
    assert [name for name, *_ in names_of_page(page)[0]] == ["ab"]


def test_state_in_many_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, few = processor("wide", 1, chain("a", "n", within=None)), processor("few", 1, chain("k", "z", within=None))
    driver = Driver()
    with small_pages():
        driver.batch([e(1, "k"), *(e(2, "a", f"user{n}") for n in range(500))], sets=[wide, few], watermark=2)
        driver.batch([e(3, "a", "user1")], watermark=3)
        assert len(pages(driver)) > 50
        monkeypatch.setattr(module, "MAX_STATE", 20_000)
        driver.batch([e(4, "a", "user1")], watermark=4)
        driver.batch([e(5, "z")], watermark=5)
    (error,) = driver.rows[ERRORS]
    assert error["processor_id"] == "wide"
    assert driver.found == [("few", 1, ("ann",), "k1 z5")]


BRIEF = chain("a", "b", within=8)
"""Its partial matches may remain for two more seconds."""
ABSENT = Pattern.begin("a").where("kind = 'a'").not_followed_by("b").where("kind = 'b'").within(timedelta(seconds=4))
EXACT = [processor("seen", 1, BRIEF, timed_out=True), processor("absent", 1, ABSENT)]


@pytest.mark.parametrize("exact", [[], EXACT], ids=["alone", "with others"])
def test_when_ended_partial_matches_are_removed_changes_no_result(exact: list[PatternProcessor]) -> None:
    """One page is exact. Of many, some still have partial matches that have ended: those that nobody sees, which a version with a
    longer window does not adopt either.
    """
    rng, kept = random.Random(1), 0
    one, many = Driver(disable_on_error=True), Driver(disable_on_error=True)
    one.operator.fixed_pages = True
    with small_pages():
        for second in range(1, 41):
            sets: Sequence[PatternProcessor] | None = None
            if second in (1, 25):
                brief = processor("brief", 1, BRIEF), processor("brief", 2, chain("a", "b", within=40), adopt=True)
                sets = [brief[second > 1], processor("strict", 1, chain("a", "b", strict=True, within=8)), *exact]
            events = events_of(rng, second) if second < 30 else []
            for driver in (one, many):
                driver.batch(events, sets=sets, watermark=second)
            assert ordered(many.rows) == ordered(one.rows)
            counts, late = (
                {name: counts.partial_matches for (name, _), counts in driver.counts.versions.items()}
                for driver in (one, many)
            )
            assert all(late[rule.id] == counts[rule.id] for rule in exact)
            assert all(late[name] >= counts[name] for name in late)
            kept += late != counts
            if second == 25:
                adopted = [driver.counts.versions["brief", 2] for driver in (one, many)]
                assert adopted[0] == adopted[1]
                assert adopted[0].adopted
    assert kept or exact
    assert late == counts
    for driver in (one, many):
        assert not driver.end().stores[0].pages
    assert ordered(many.rows) == ordered(one.rows)


def test_ended_partial_matches_remain_for_a_quarter_of_the_window() -> None:
    driver, rule = Driver(), processor("rule", 1, chain("a", "b", within=40))
    with small_pages():
        driver.batch([e(1, "a", f"user{number}") for number in range(100)], sets=[rule], watermark=1)
        driver.batch([e(2, "b", "user1")], watermark=2)
        remaining = []
        for second in (40, 41, 50, 51):
            driver.batch(watermark=second)
            remaining.append(driver.counts.versions["rule", 1].partial_matches)
    assert len(driver.found) == 1
    assert remaining == [99, 99, 99, 0]
