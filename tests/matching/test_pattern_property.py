"""The engine and :mod:`tests.reference.derivation` have the same matches, for whatever :class:`Pattern` can say."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from asterism.patterns.pattern import Pattern
from asterism.testing import PatternHarness, check_independence
from tests.matching.pattern_strategies import SUBSET, Row, cases
from tests.reference.derivation import Found, OneKey
from tests.reference.event import Event
from tests.reference.sql import parse_expression

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")

SCHEMA = pa.schema(
    [("key", pa.string()), ("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string()), ("price", pa.int64())]
)
MEASURES = {
    "count": "COUNT(*)",
    "total": f"SUM({SUBSET}.price)",
    "first": "FIRST(price)",
    "last": "LAST(price)",
    "of_subset": f"COUNT({SUBSET}.*)",
    "named": f"FIRST({SUBSET}.name)",
}
"""What the reference can compute as well."""
SELECT = [
    "match_time AS time",
    "MATCH_NUMBER() AS number",
    "ARRAY_AGG(id) AS ids",
    "ARRAY_AGG(CLASSIFIER()) AS stages",
    "CLASSIFIER() AS stage",
    *(f"{text} AS {name}" for name, text in MEASURES.items()),
]
Case = tuple[Pattern, list[Row]]
Answer = dict[str, list[Found]]
"""By key."""


def options(pattern: Pattern) -> dict[str, Any]:
    """The match, the timed-out partial match and the measures of each; no limit."""
    return {"columns": SCHEMA, "keys": ["key"], "select": SELECT, "max_partial_matches": None}


def run(pattern: Pattern, rows: Sequence[Row]) -> PatternHarness:
    return PatternHarness(pattern, **options(pattern)).send(rows).end()


def found(harness: PatternHarness, pattern: Pattern, output: str) -> Answer:
    answer = defaultdict(list)
    time = "match_time" if output == "matches" else "timeout_time"
    for row in harness.rows(output):
        events = [
            (event["ts"], event["id"], stage.name) for stage in pattern.atoms() for event in row.get(stage.name) or ()
        ]
        answer[row["key"]].append((row[time], tuple((stage, number) for _, number, stage in sorted(events))))
    return answer


def keyed(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The events of each key in order; their ids are then in order as well."""
    events: dict[str, list[Event]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["ts"])):
        before = events[row["key"]]
        before.append(Event(row["id"], row["ts"], row["name"], row["price"], previous=before[-1] if before else None))
    return events


def _all_stages(pattern: Any) -> Iterator[Any]:
    for stage in pattern.stages:
        yield stage
        if stage.group is not None:
            yield from _all_stages(stage.group)


def described(pattern: Pattern, rows: Sequence[Row], **answers: Any) -> str:
    """A failure as one can read it."""
    words = [f"{row['key']}.{row['name']}{row['price']}#{row['id']}@{row['ts']}" for row in rows]
    stages = [
        f"{one.name} {one.contiguity.name} {getattr(one.condition, 'text', '')} until {one.until} {one.quantifier}"
        for one in _all_stages(pattern)
    ]
    ends = f"first={pattern.from_first} last={pattern.to_last}"
    about = f"{pattern.skip} {ends} window={pattern.effective_window} {pattern.subsets}"
    lines = [*stages, about, " ".join(words), *(f"{name}: {answer}" for name, answer in answers.items())]
    return "\n".join(["", *lines])


@given(case=cases())
def test_engine_equals_reference(case: Case) -> None:
    """The matches of each key with their times, and what timed out."""
    pattern, rows = case
    harness = run(pattern, rows)
    matches, timeouts = (found(harness, pattern, output) for output in ("matches", "timed_out"))
    event("matches" if matches else "no match")
    has_gaps = any(stage.quantifier.gap is not None for stage in pattern.atoms())
    for key, events in keyed(rows).items():
        one = OneKey(pattern, matches[key]).run(events)
        story = described(pattern, rows, key=key, engine=matches[key], reference=one.matches)
        assert Counter(matches[key]) == Counter(one.matches), story
        story = described(pattern, rows, key=key, engine=timeouts[key], reference=one.timeouts)
        assert set(timeouts[key]) == one.timeouts or has_gaps, story
    assert harness.is_empty, described(pattern, rows)


@given(case=cases())
def test_measures_equal_reference(case: Case) -> None:
    pattern, rows = case
    harness = run(pattern, rows)
    matches = found(harness, pattern, "matches")
    numbers: Counter[str] = Counter()
    by_id = {one.id: one for events in keyed(rows).values() for one in events}
    subsets = dict(pattern.subsets)
    for row in harness.selected:
        numbers[row["key"]] += 1
        story = described(pattern, rows, row=row)
        assert row["number"] == numbers[row["key"]], story
        events = tuple(zip(row["stages"], row["ids"], strict=True))
        assert (row["time"], events) in matches[row["key"]], story
        assert row["stage"] == row["stages"][-1], story
        accepted = tuple((stage, by_id[number]) for stage, number in events)
        for name, text in MEASURES.items():
            assert row[name] == parse_expression(text, subsets)(accepted[-1][1], accepted), f"{story}\n{text}"
    assert numbers == Counter({key: len(of_key) for key, of_key in matches.items() if of_key})


@settings(max_examples=max(1, settings().max_examples // 3))
@given(case=cases(longest=6), seed=st.integers(0, 99))
def test_batches_do_not_matter(case: Case, seed: int) -> None:
    """One batch, one row each, at random, with a restored snapshot after each row, over key groups and pages, with watermarks."""
    pattern, rows = case
    harness = check_independence(pattern, rows, cuts=2, seed=seed, **options(pattern))
    assert harness.is_empty, described(pattern, rows)


@settings(max_examples=max(1, settings().max_examples // 3))
@given(case=cases(), seed=st.integers(0, 99))
def test_restored_state_with_time_between(case: Case, seed: int) -> None:
    """Pieces with watermarks between them, each in a new process with another number of pages."""
    pattern, rows = case
    whole, rng = run(pattern, rows), random.Random(seed)
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    harness = whole.again()
    while rows:
        size = rng.randint(1, len(rows))
        piece, rows = rows[:size], rows[size:]
        harness = whole.again().restore(harness.snapshot()).send(piece)
        if rng.random() < 0.6:
            # The rest is not late: a watermark is the last time that is complete.
            harness.move(watermark=(rows[0]["ts"] if rows else piece[-1]["ts"] + rng.randint(0, 5)) * 1000 - 1)
    harness = whole.again().restore(harness.snapshot()).end()
    assert harness.late == []
    for output in ("matches", "timed_out", "selected"):
        mine, wanted = (sorted(map(repr, one.rows(output))) for one in (harness, whole))
        assert mine == wanted, described(pattern, rows, pieces=mine, whole=wanted)
    assert harness.is_empty, described(pattern, rows)
