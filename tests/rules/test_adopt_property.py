"""A version that adopts partial matches, against a rule that was never replaced, a changed savepoint, and replays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from asterism import Pattern
from asterism.operators.state.page_numbers import CLAUSES_PAGE
from asterism.rules.binding.binding import BoundClauseProcessor
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.result_rows import MATCHES, TIMED_OUT
from asterism.rules.matching.state_pages import clauses_from
from tests.kit import FACTOR
from tests.rules.driver import Driver, Event, at, chain, cuts, processor
from tests.savepoints import pattern_changes

SECOND = timedelta(seconds=1)
WITHIN = 20


def pattern(letters: str, within: int | None = WITHIN) -> Pattern:
    return chain(*letters, within=within)


def random_events(rng: random.Random, count: int, kinds: str = "abcx") -> list[Event]:
    """In the order of their times, which are distinct."""
    second = 0
    events = []
    for _ in range(count):
        second += rng.randint(1, 3)
        events.append((float(second), rng.choice(["ann", "bob"]), 1, rng.choice(kinds), 0.0))
    return events


def rows_of(driver: Driver, output: str = MATCHES) -> list[tuple[tuple[str, ...], str]]:
    """The keys and events of matches, whatever their version."""
    return sorted((key, events) for _, _, key, events in driver.found_in(output))


def run(
    events: Sequence[Event],
    versions: Sequence[tuple[float | None, list[PatternProcessor]]],
    rng: random.Random,
    *,
    delay: float = 2,
    key_groups: int = 2,
) -> Driver:
    """Random micro-batches. *versions*: the sets, each with the event time of the event before which it arrives."""
    driver, pending = Driver(key_groups=key_groups), list(versions)
    for part in cuts(events, rng):
        begin = 0
        for number, event in enumerate(part):
            while pending and (pending[0][0] is None or pending[0][0] <= (event[0] or 0)):
                if number > begin:
                    driver.batch(part[begin:number], watermark=(part[number - 1][0] or 0) - delay)
                begin = number
                driver.batch(sets=pending.pop(0)[1])
        driver.batch(part[begin:], watermark=(part[-1][0] or 0) - delay)
    return driver.end()


SHAPES = [
    pattern("ab"), pattern("abc"), pattern("ab", None),
    chain("a", "b", strict=True),
    Pattern.begin("a").where("kind = 'a'").one_or_more().followed_by("b").where("kind = 'b'").within(WITHIN * SECOND),
    Pattern.begin("a").where("kind = 'a'").not_followed_by("x").where("kind = 'x'").within(WITHIN * SECOND),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_with_an_equal_pattern_nothing_is_lost(number: int) -> None:
    """At once, at a time, from a shadow, several times: the rows are those of a rule that was never replaced."""
    of = SHAPES[number]
    for seed in range(FACTOR):
        rng = random.Random(f"{number} {seed}")
        events = random_events(rng, 24)
        first = processor("r", 1, of, timed_out=True)
        whole = run(events, [(None, [first])], rng)
        times = sorted(rng.sample(range(2, 50), 2))
        second, third = (
            processor("r", version, of, timed_out=True, adopt=rng.choice([True, version - 1])) for version in (2, 3)
        )
        at_once = run(events, [(None, [first]), (times[0], [second]), (times[1], [third])], rng)
        later = [
            processor("r", version, of, timed_out=True, adopt=True, timestamp=at(time))
            for version, time in zip((2, 3), times, strict=True)
        ]
        in_turn = run(events, [(None, [first, *later])], rng)
        for output in (MATCHES, TIMED_OUT):
            assert rows_of(at_once, output) == rows_of(whole, output), (seed, output)
            assert rows_of(in_turn, output) == rows_of(whole, output), (seed, output)
        assert all(
            counts.not_adopted == 0 for driver in (at_once, in_turn) for counts in driver.counts.versions.values()
        )


def words(events: Sequence[Event]) -> str:
    return " ".join(f"{kind}{second:g}" for second, _, _, kind, _ in events)


CHANGES = [
    ("a stage at the end", pattern("ab"), pattern("abc")),
    ("a stage inserted", pattern("ac"), pattern("axc")),
    ("a stage removed", pattern("abc"), pattern("ac")),
    ("a longer window", pattern("ab"), pattern("ab", 40)),
    ("a shorter window", pattern("ab"), pattern("ab", 5)),
    ("strict", pattern("ab"), chain("a", "b", strict=True)),
    (
        "another condition",
        pattern("ab"),
        Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind IN ('b', 'c')").within(WITHIN * SECOND),
    ),
]


@pytest.mark.parametrize(("name", "old", "new"), CHANGES, ids=[change[0] for change in CHANGES])
def test_the_switch_does_not_depend_on_micro_batches(name: str, old: Pattern, new: Pattern) -> None:
    for seed in range(FACTOR):
        rng = random.Random(f"{name} {seed}")
        events, time = random_events(rng, 24), rng.randint(5, 40)
        rules = [processor("r", 1, old, timed_out=True)]
        rules.append(processor("r", 2, new, timed_out=True, adopt=True, timestamp=at(time)))
        whole = Driver().batch(events, sets=rules).end()
        for key_groups in (1, 3):
            parts = run(events, [(None, rules)], rng, key_groups=key_groups)
            for output in (MATCHES, TIMED_OUT):
                assert parts.found_in(output) == whole.found_in(output), seed


@pytest.mark.parametrize(("name", "old", "new"), CHANGES, ids=[change[0] for change in CHANGES])
def test_what_is_adopted_is_what_continues_in_a_changed_savepoint(name: str, old: Pattern, new: Pattern) -> None:
    """Of a single key, with the same pattern and the same events."""
    for seed in range(FACTOR):
        rng = random.Random(f"{name} {seed}")
        events = [(second, "k", item, kind, x) for second, _, item, kind, x in random_events(rng, 24, "aabcx")]
        half = rng.randint(4, 20)
        driver = Driver().batch(events[:half], sets=[processor("r", 1, old)], watermark=events[half - 1][0])
        driver.batch(events[half:], sets=[processor("r", 2, new, adopt=True)]).end()
        found = [text for _, version, _, text in driver.found if version == 2]

        before, after = (words(part) for part in (events[:half], events[half:]))
        plan, changed = pattern_changes.changed(old, new, before)
        assert sorted(found) == sorted(changed.send(after).end().matches), seed
        counts = driver.counts.versions["r", 2]
        assert counts.not_adopted == plan.dropped


# ---------------------------------------------------------------------- clauses


def clause(
    version: int,
    pattern: str = "A B+ C",
    define: str = "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'",
    **more: Any,
) -> PatternProcessor:
    """Of each first row, at most one match, whatever the rows before it are."""
    within, measures = more.pop("within", WITHIN), more.pop("measures", "COUNT(*) AS n, LAST(kind) AS last")
    sql = f"PARTITION BY user MEASURES {measures} AFTER MATCH SKIP TO NEXT ROW PATTERN ({pattern}) "
    return PatternProcessor("r", version, sql=f"{sql}WITHIN INTERVAL '{within}' SECOND DEFINE {define}", **more)


WIDER = "A AS kind = 'a', B AS kind IN ('b', 'x'), C AS kind = 'c'"
FOUR = "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c', D AS kind = 'x'"
EARLIER = "A AS kind = 'a', B AS kind = 'b' AND ts > A.ts, C AS kind = 'c'"
OTHERS: dict[str, dict[str, Any]] = {
    "equal": {},
    "another condition": {"define": WIDER},
    "a condition that stored rows cannot be tested with": {"define": WIDER, "measures": "COUNT(*) AS n"},
    "another pattern": {"pattern": "A (B | C)+ D", "define": FOUR},
    "a shorter window": {"within": 6},
    "a longer window": {"within": 40},
    "a condition on earlier events": {"define": EARLIER},
    "other measures": {"measures": "COUNT(*) AS __m, LAST(kind) AS last"},
}


def of_clauses(driver: Driver, version: int) -> list[tuple[str, float, float]]:
    """The key, and the seconds of the first and the last event of each match."""
    rows = (row for row in driver.rows[MATCHES] if row["processor_version"] == version)
    return sorted((row["key"][0], row["start_time"].timestamp(), row["end_time"].timestamp()) for row in rows)


def first_undecided(driver: Driver, rule: PatternProcessor) -> dict[str, float]:
    """The second of the first undecided row of each key."""
    bound = driver.operator.compiler.bind(rule)
    assert isinstance(bound, BoundClauseProcessor)
    operator, first = bound.clause.operator, {}
    for store in driver.stores:
        for state in clauses_from(store.read_page(CLAUSES_PAGE)).values():
            keys = operator.keys_in(state.value).column(0).to_pylist()  # without PREV, all of them wait
            for key, rows in zip(keys, operator.waiting_rows(state.value), strict=True):
                first[key.partition(":")[2]] = rows.column("__time")[0].as_py() / 1e6
    return first


@pytest.mark.parametrize("name", OTHERS)
def test_the_search_goes_on_at_the_first_undecided_row(name: str) -> None:
    """At once and at a time, in any micro-batches: matches are those of a replay, as if a key began with that row."""
    for seed in range(FACTOR):
        rng = random.Random(f"{name} {seed}")
        events, time = random_events(rng, 24, "aabbcx"), rng.randint(5, 40) + 0.5
        more = {"measures": OTHERS[name]["measures"]} if "cannot" in name else {}
        old, new = clause(1, **more), clause(2, **OTHERS[name], adopt=True)
        half = sum(second < time for second, *_ in events)
        at_once = Driver(key_groups=2).batch(events[:half], sets=[old], watermark=time)
        undecided = first_undecided(at_once, old)
        at_once.batch(events[half:], sets=[new]).end()
        replay = Driver().batch(events, sets=[clause(2, **OTHERS[name])]).end()
        expected = [row for row in of_clauses(replay, 2) if row[1] >= undecided.get(row[0], time)]
        assert of_clauses(at_once, 2) == expected, seed
        timed = clause(2, **OTHERS[name], adopt=True, timestamp=at(time))
        for key_groups in (1, 3):
            parts = run(events, [(None, [old, timed])], rng, key_groups=key_groups)
            assert of_clauses(parts, 2) == expected, seed
            assert of_clauses(parts, 1) == of_clauses(at_once, 1), seed
