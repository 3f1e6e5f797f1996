"""Rules whose key groups become more and fewer, through the tables of a savepoint, have the rows of those that keep them."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import StateError
from asterism.expressions.routines.user_functions import checked, types_of_signatures
from asterism.operators.state.page_numbers import CLAUSES_PAGE, SETS_PAGE, SUPPRESSIONS_PAGE, PageKind
from asterism.rules.definition.processor import PatternProcessor
from tests.kit import examples, small_pages
from tests.rules.driver import Driver, Event, at, chain, processor
from tests.savepoints.regrouping import regrouped

CLAUSE = """
    PARTITION BY {key} MEASURES FIRST(A.x) AS first, COUNT(*) AS n PATTERN (A B+ C)
    WITHIN INTERVAL '20' SECOND DEFINE A AS kind = 'a', B AS x >= PREV(x), C AS kind = 'c'
"""
BY_ITEM = PatternProcessor("clause by item", 1, sql=CLAUSE.format(key="item % 2"))
RULES = [
    processor("ab", 1, chain("a", "b")),
    processor("forever", 1, chain("a", "b", "c", within=None)),
    processor("timed out", 1, chain("a", "b", within=9), timed_out=True),
    processor("by item", 1, chain("b", "a"), key=("item",)),
    processor("no key", 1, chain("c", "a", strict=True), key=()),
    processor("by upper", 1, chain("a", "c"), key=("upper(user)", "item")),
]
OTHERS = [
    processor("ab", 2, chain("b", "a")),
    processor("suppressed", 1, chain("a", "b"), suppress=timedelta(seconds=15)),
    PatternProcessor("clause", 1, sql=CLAUSE.format(key="user")),
    PatternProcessor(
        "clause of stream", 1, sql=CLAUSE.replace("PARTITION BY {key}", ""), suppress=timedelta(seconds=9)
    ),
    BY_ITEM,
    processor("shadow", 1, chain("a", "c"), shadow=True),
    processor("expires", 1, chain("a", "b"), expires=at(60)),
    processor("ab", 3, chain("b", "c"), timestamp=at(70.5)),
]


def events_of(rng: random.Random, second: int) -> list[Event]:
    return [
        (second - rng.randrange(6), rng.choice(["ann", "bob", "Bob", "eve", "max", "tom"]), rng.randrange(4), kind, 1.0)
        for kind in rng.choices("abc", k=rng.choice([0, 1, 3, 8]))
    ]


def sets_at(rng: random.Random, second: int) -> list[PatternProcessor] | None:
    if second % 20 != 1:
        return None
    known: dict[str, PatternProcessor] = {}
    for rule in rng.sample(RULES if second < 20 else [*RULES, *OTHERS[:-1]], 5 if second < 20 else 9):
        known[rule.id] = max(rule, known.get(rule.id, rule), key=lambda each: each.version)
    return [*known.values(), *([OTHERS[-1]] if second == 61 else [])]


def rows_of(seed: int, *, moves: bool) -> tuple[Counter[str], Any]:
    rng, moving = random.Random(seed), random.Random(seed)
    driver = Driver(key_groups=4 if moves else 3, waiting_time=6_000_000)
    kinds: set[int] = set()
    for second in range(1, 82):
        if moves and second % 14 == 0:
            kinds |= {number for store in driver.stores for number in store.pages}
            driver.stores = regrouped(driver.stores, moving.choice([1, 2, 5, 9]))
        driver.batch(events_of(rng, second), sets=sets_at(rng, second), watermark=second - 7 if second % 2 else None)
    counts = {
        name: (each.matches, each.partial_matches)
        for name, each in driver.counts.versions.items()
        if name[0] != "expires"  # those that end with their rule are subtracted when their page is read
    }
    driver.end()
    if moves:
        assert kinds >= {0, SETS_PAGE, CLAUSES_PAGE, SUPPRESSIONS_PAGE}
        assert any(number in PageKind.KEYS.value for number in kinds)
    return Counter(f"{name} {row}" for name, rows in driver.rows.items() for row in rows), counts


@pytest.mark.parametrize("seed", range(examples(1, usual=2)))
def test_key_groups_of_rules_can_become_more_and_fewer(seed: int) -> None:
    expected, counts = rows_of(seed, moves=False)
    assert expected.total() > 30
    with small_pages():
        assert rows_of(seed, moves=True) == (expected, counts)


def distance(x: int, y: int) -> float:
    return abs(x - y) / 2


def both(kind: str, user: str) -> list[str]:
    return [kind, user]


UDFS = {"distance": distance, "both": both}
CALLS = PatternProcessor(
    "calls functions", 1,
    sql="""
    PARTITION BY both(kind, user)[1] MEASURES distance(FIRST(A.item), LAST(B.item)) AS d, COUNT(*) AS n PATTERN (A B+ C)
    WITHIN INTERVAL '20' SECOND
    DEFINE A AS distance(item, 3) < 1.5, B AS distance(item, FIRST(A.item)) < 1, C AS both(kind, user)[0] = 'c'
    """,
)  # fmt: skip


def test_a_clause_that_calls_functions_of_the_program_is_regrouped_by_their_types() -> None:
    def rows(udfs: dict[str, pa.DataType] | None, key_groups: int | None) -> Counter[str]:
        rng = random.Random(2)
        driver = Driver(key_groups=3, waiting_time=6_000_000, udfs=checked(UDFS))
        for second in range(1, 60):
            if key_groups is not None and second % 18 == 0:
                driver.stores = regrouped(driver.stores, key_groups + second % 2, udfs=udfs)
            sets = [RULES[0], CALLS] if second == 1 else None
            driver.batch(events_of(rng, second), sets=sets, watermark=second - 7 if second % 2 else None)
        driver.end()
        return Counter(f"{name} {row}" for name, rows in driver.rows.items() for row in rows)

    signatures = {function.name: function.signature for function in checked(UDFS).values()}
    expected = rows(None, None)
    assert sum("calls functions" in row for row in expected) > 3
    assert rows(types_of_signatures(signatures), 4) == expected
    with pytest.raises(StateError, match="cannot be read without the program"):
        rows(None, 4)


def test_a_rule_is_disabled_where_it_was() -> None:
    """With a multiple of the number of key groups, for exactly the same keys; otherwise for at least these."""
    rule = processor("fails", 1, chain("a", "b"), select=("1 / (LAST(b.item) - 2) AS x",))
    users = [f"u{number}" for number in range(24)]
    opening: list[Event] = [(1, user, 1, "a", 0.0) for user in users]
    closing: list[Event] = [(9, user, 1, "b", 0.0) for user in users]
    failing: Event = (2, "u5", 2, "b", 0.0)

    def matches(key_groups: int | None) -> set[str]:
        driver = Driver(key_groups=4, disable_on_error=True).batch([*opening, failing], sets=[rule], watermark=3)
        assert len(driver.rows["errors"]) == 1
        if key_groups is not None:
            driver.stores = regrouped(driver.stores, key_groups)
        driver.batch(closing).end()
        assert len(driver.rows["errors"]) == 1
        return {row["key"][0] for row in driver.rows["matches"]}

    expected = matches(None)
    assert 3 < len(expected) < 23
    assert matches(12) == expected
    assert matches(2) < expected
    assert matches(3) == set()
