"""A new version of a Sigma correlation that adopts what the former one has not decided."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream
from asterism.rules.definition.processor import PatternProcessor
from tests.kit import FACTOR, until
from tests.rules.driver import Driver
from tests.sigma.test_correlations import BASE, SCHEMA, correlation, random_events, table

CORRELATIONS: list[tuple[str, list[str], Any]] = [
    ("event_count", ["failed"], {"gte": 3}),
    ("value_count", ["failed"], {"gte": 2, "field": "name"}),
    ("value_sum", ["failed", "admin"], {"gte": 5, "field": "x"}),
    ("temporal", ["failed", "login"], "failed and not login"),
    ("temporal_ordered", ["failed", "login"], None),
]


def correlating(version: int, of: dict[str, Any], **more: Any) -> PatternProcessor:
    """A rule with the text of a correlation and of the rules that it refers to."""
    base = [document for document in BASE if document["name"] in of["correlation"]["rules"]]
    text = "\n---\n".join(yaml.safe_dump(document, sort_keys=False) for document in (*base, of))
    return PatternProcessor.from_dict({"id": "r", "version": version, "sigma": text, **more})


def alerts(driver: Driver) -> list[str]:
    """The group, the last event and the suppressed matches of each alert, whatever the version."""
    rows = driver.rows["matches"]
    return sorted(
        f"{row['key']} {max(e['event']['number'] for e in row['events'])} {row['suppressed']}" for row in rows
    )


def run(events: Sequence[dict[str, Any]], sets: dict[int, list[PatternProcessor]], rng: random.Random) -> Driver:
    """Random micro-batches, with watermarks behind them; each set arrives before the event with its number."""
    driver, begin = Driver(keys=[], key_groups=2, schema=SCHEMA), 0
    while begin < len(events):
        ends = [number for number in sets if number > begin]
        end = min([begin + rng.randint(1, 12), len(events), *ends])
        watermark = events[begin - 1]["time"] - 1 if begin else None
        driver.batch(table(events[begin:end]), sets=sets.get(begin), watermark=watermark)
        begin = end
    return driver.end()


@pytest.mark.parametrize(("kind", "rules", "condition"), CORRELATIONS)
def test_an_equal_correlation_loses_nothing(kind: str, rules: list[str], condition: Any) -> None:
    """With another title it is another version. Its alerts are those of a rule that was never replaced."""
    first = correlating(1, correlation(kind, rules, condition))
    renamed = correlation(kind, rules, condition) | {"title": "A better title"}
    adopted = 0
    for seed in range(FACTOR):
        rng = random.Random(seed)
        events = random_events(rng, 60)
        whole = run(events, {0: [first]}, rng)
        places = sorted(rng.sample(range(1, 59), 2))
        versions = [correlating(version, renamed, adopt=rng.choice([True, version - 1])) for version in (2, 3)]
        changed = run(events, {0: [first], **{place: [new] for place, new in zip(places, versions, strict=True)}}, rng)
        assert alerts(changed) == alerts(whole) != [], seed
        counts = changed.counts.versions.values()
        assert sum(each.not_adopted for each in counts) == 0
        adopted += sum(each.adopted for each in counts)
    assert adopted


def event(second: int, kind: str, user: str = "ann", **more: Any) -> dict[str, Any]:
    row = {"ts": datetime.fromtimestamp(second, UTC), "time": second, "number": second, "user": user, "kind": kind}
    return {**row, "target": user, "x": 1.0, "name": "p", **more}


def switched(old: dict[str, Any], new: dict[str, Any], before: list[Any], after: list[Any], **more: Any) -> Driver:
    driver = Driver(keys=[], schema=SCHEMA)
    driver.batch(table(before), sets=[correlating(1, old)], watermark=before[-1]["time"] + 0.5)
    return driver.batch(table(after), sets=[correlating(2, new, **more)], watermark=after[-1]["time"]).end()


def counted(driver: Driver) -> tuple[int, int]:
    counts = driver.counts.versions["r", 2]
    return counts.adopted, counts.not_adopted


BEFORE = [event(1, "f", name="p"), event(1, "f", "bob"), event(2, "f", name="q")]
AFTER = [event(4, "f", name="r"), event(5, "l"), event(6, "x", "bob")]


@pytest.mark.parametrize(
    ("old", "new", "alerts_of_new", "counts"),
    [
        # A count of events is a pattern graph: 4 instead of 3 continues with each partial match of one and of two events.
        (correlation("event_count", ["failed"], {"gte": 3}), correlation("event_count", ["failed"], {"gte": 4}), [], (3, 0)),
        # Others are clauses, whose searches go on: of ann and of bob.
        (correlation("value_count", ["failed"], {"gte": 4, "field": "name"}),
         correlation("value_count", ["failed"], {"gte": 3, "field": "name"}), [("ann", 4)], (2, 0)),
        (correlation("value_sum", ["failed"], {"gte": 9, "field": "x"}),
         correlation("value_sum", ["failed"], {"gte": 3, "field": "x"}), [("ann", 4)], (2, 0)),
        (correlation("temporal", ["failed", "admin"]), correlation("temporal", ["failed", "login"]), [("ann", 5)], (2, 0)),
        (correlation("value_sum", ["failed"], {"gte": 9, "field": "x"}),
         correlation("value_sum", ["failed"], {"gte": 3, "field": "number"}), [("ann", 2)], (2, 0)),
        (correlation("value_count", ["failed"], {"gte": 4, "field": "name"}),
         correlation("value_count", ["failed"], {"gte": 4, "field": "name"}, **{"group-by": ["target"]}), [], (0, 2)),
        (correlation("value_count", ["failed"], {"gte": 4, "field": "name"}),
         correlation("event_count", ["failed"], {"gte": 4}), [], (0, 2)),
    ],
)  # fmt: skip
def test_a_changed_correlation(old: Any, new: Any, alerts_of_new: list[Any], counts: tuple[int, int]) -> None:
    driver = switched(old, new, BEFORE, AFTER, adopt=True)
    found = [(row["key"][0], max(e["event"]["number"] for e in row["events"])) for row in driver.rows["matches"]]
    assert found == alerts_of_new
    assert counted(driver) == counts


def test_without_adopt_a_changed_correlation_begins_anew() -> None:
    old, new = (correlation("value_count", ["failed"], {"gte": n, "field": "name"}) for n in (4, 3))
    driver = switched(old, new, BEFORE, AFTER)
    assert driver.rows["matches"] == []
    assert counted(driver) == (0, 0)


def test_in_a_live_engine(tmp_path: Path) -> None:
    """The rule changes between two calls, after the engine was closed and opened again."""
    path, state = tmp_path / "rules.json", tmp_path / "state"
    old, new = (correlation("value_count", ["failed"], {"gte": n, "field": "name"}) for n in (4, 3))
    numbers = []
    for version, of, events in ((1, old, BEFORE), (2, new, AFTER)):
        path.write_text(json.dumps([correlating(version, of, adopt=True).to_dict()]), encoding="utf-8")
        stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
        with CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(path)).open(state) as engine:
            until(lambda version=version, engine=engine: engine.status().processors == {"r": version})
            for each in events:
                rows = engine.process(table([each]), watermark=each["ts"])["matches"].to_pylist()
                numbers += [(row["processor_version"], row["match_time"].second) for row in rows]
    assert numbers == [(2, 4)]
