"""Which events matter to a processor."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.columns.time import TimeColumn
from asterism.matching.matcher import KeyedEvents, Matcher
from asterism.patterns.semantics import Semantics
from asterism.rules.binding import binding
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching import selections as shares
from asterism.rules.matching.selections import MAX_SETS, Selections
from tests.kit import examples
from tests.rules.driver import SCHEMA, Driver, Event, chain, cuts, processor


def test_a_cached_set_belongs_to_living_processors() -> None:
    """It is found by the identities of its processors, which Python gives to other objects once they are collected."""
    compiler = ProcessorCompiler(SCHEMA, (), TimeColumn("ts", pa.timestamp("us", "UTC")), Semantics.DEFAULT, {})
    two = [compiler.compile(processor("p", version, chain("a", "b", within=version))) for version in (1, 2)]
    for number in range(MAX_SETS):
        bound = replace(two[number % 2])
        assert Selections.of([bound]).matcher.patterns[0] is bound.pattern
        del bound


# ------------------------------------------------------------------------------------------------ events in vain


def some_pattern(rng: random.Random) -> Pattern:
    """Two to four stages over five kinds of events."""

    def condition(first: bool) -> str:
        kinds = rng.sample("abcde", rng.randint(1, 2))
        text = f"kind IN ({', '.join(map(repr, kinds))})"
        if not first and rng.random() < 0.3:
            text += " AND x > LAST(s0.x)" if rng.random() < 0.7 else " AND x / (x - 2) > LAST(s0.x)"
        return text

    skip = rng.choice([AfterMatchSkipStrategy.no_skip(), AfterMatchSkipStrategy.skip_past_last_event()])
    pattern = Pattern.begin("s0", skip).where(condition(first=True))
    for number in range(1, rng.randint(2, 4)):
        how = rng.choice(["next", "followed_by", "followed_by", "followed_by_any"])
        pattern = getattr(pattern, how)(f"s{number}").where(condition(first=False))
        if rng.random() < 0.3:
            pattern = rng.choice([Pattern.one_or_more, Pattern.optional, lambda p: p.times(2)])(pattern)
    return pattern if rng.random() < 0.2 else pattern.within(timedelta(seconds=rng.randint(2, 8)))


def some_events(rng: random.Random, count: int) -> list[Event]:
    found: list[Event] = []
    second = 0
    for _ in range(count):
        second += rng.choice([0, 1, 1, 2, 5])
        found.append((second, rng.choice("uvw"), 1, rng.choice("abcde"), float(rng.randint(0, 4))))
    return found


def found_by(
    rules: list[PatternProcessor], events: list[Event], rng: random.Random
) -> tuple[Any, Counter[str], list[dict[str, Any]]]:
    driver = Driver(max_partial_matches=4, disable_on_error=True)
    sets: list[PatternProcessor] | None = rules
    for some in cuts(events, rng):
        driver.batch(some, sets=sets, watermark=(some[-1][0] or 0) - 1)
        sets = None
    driver.end()
    ids = Counter(row["match_id"] for row in driver.rows["matches"])
    errors = sorted(driver.rows["errors"], key=lambda row: str(row["processor_id"]))
    return driver.found, ids, errors


@pytest.mark.parametrize("seed", range(examples(2, usual=5)))
def test_events_in_vain_do_not_matter(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are the same as if every event was passed that may belong to a partial match, whatever the micro-batches."""
    rng = random.Random(seed)
    events = some_events(rng, 60)
    rules = [processor(str(number), 1, some_pattern(rng), timed_out=number == 0) for number in range(10)]
    found = [found_by(rules, events, random.Random(other)) for other in (1, 2)]
    shares._SETS.clear()
    monkeypatch.setattr(binding, "MOST_IN_VAIN", 1)
    found.append(found_by(rules, events, random.Random(3)))
    shares._SETS.clear()
    assert found[0][0]
    assert found[0] == found[1] == found[2]


def test_events_in_vain_are_not_passed_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []
    advance = Matcher.advance

    def recorded(self: Matcher, page: Any, events: KeyedEvents, **options: Any) -> Any:
        passed.append(events.table.column("e:x").take(pa.array(events.rows)).to_pylist())
        return advance(self, page, events, **options)

    monkeypatch.setattr(Matcher, "advance", recorded)
    driver = Driver()
    times = [(0, "a"), (5, "a"), (100, "a"), (101, "b"), (300, "a"), (301, "b"), (400, "a"), (500, "a")]
    driver.batch(
        [(time, "u", 1, kind, time) for time, kind in times], sets=[processor("p", 1, chain("a", "b"))], watermark=510
    )
    assert passed == [[100, 101, 300, 301, 500]]  # the last one may have a successor
    assert [row["match_id"] for row in driver.rows["matches"]]
