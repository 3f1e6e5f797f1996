"""A version that adopts partial matches, against a rule that was never replaced, and against a changed savepoint."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from asterism import Pattern
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.result_rows import MATCHES, TIMED_OUT
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
