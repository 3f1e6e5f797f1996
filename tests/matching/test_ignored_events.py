"""An event that satisfies no condition changes nothing: neither the matches nor the timed-out partial matches.

In Flink's semantics it can: a partial match in a loop becomes two.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism import Pattern, Semantics
from asterism.matching.operator import CepOperator
from asterism.patterns.automaton import ignored_edges
from asterism.patterns.compiler import compile_pattern
from asterism.testing import PatternHarness, match
from tests.matching.pattern_strategies import Row, patterns, streams

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")

SCHEMA = pa.schema(
    [("key", pa.string()), ("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string()), ("price", pa.int64())]
)
LOOPS = {
    "relaxed": lambda stage: stage.one_or_more(),
    "combinations": lambda stage: stage.one_or_more().allow_combinations(),
    "greedy": lambda stage: stage.one_or_more().greedy(),
    "times": lambda stage: stage.times(2, 3),
    "optional": lambda stage: stage.one_or_more().optional(),
}


def loop(kind: str, last: str) -> Pattern:
    """``a b+ c`` or ``a b+``, with a window."""
    stage = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
    pattern = LOOPS[kind](stage)
    if last:
        pattern = getattr(pattern, last)("c").where("kind = 'c'")
    return pattern.within(timedelta(seconds=10))


def found(harness: PatternHarness) -> tuple[Counter[str], Counter[str]]:
    """The matches and timed-out partial matches, with the times and ids of their events."""

    def rows(output: str) -> Counter[str]:
        return Counter(str(sorted((name, str(value)) for name, value in row.items())) for row in harness.rows(output))

    return rows("matches"), rows("timed_out")


def visible(pattern: CepOperator, rows: list[Row]) -> list[Row]:
    """The rows that the pattern sees."""
    seen = pattern.pattern.sees(pattern.prepare("events", pa.Table.from_pylist(rows, SCHEMA)))
    return [row for row, is_seen in zip(rows, seen, strict=True) if is_seen]


@pytest.mark.parametrize("last", ["", "followed_by", "followed_by_any"])
@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_sees_relevant_events_only(kind: str, last: str) -> None:
    harness = PatternHarness(loop(kind, last))
    assert harness.cep.pattern.relevant_only
    assert harness.cep.pattern.relevance_sql() is not None
    assert not PatternHarness(loop(kind, last), semantics=Semantics.FLINK).cep.pattern.relevant_only


@pytest.mark.parametrize("last", ["", "followed_by", "followed_by_any"])
@pytest.mark.parametrize("kind", LOOPS)
def test_timed_out_partial_matches_are_not_doubled(kind: str, last: str) -> None:
    """Neither by an event that satisfies no condition, nor by one that only another partial match takes."""
    plain = match(loop(kind, last), "a1@1s b2@2s").timed_out
    assert match(loop(kind, last), "a1@1s b2@2s x3@3s x4@4s").timed_out == plain
    assert match(loop(kind, last), "a1@1s b2@2s a3@3s").timed_out == [*plain, "a3"]


def test_flink_doubles_them() -> None:
    events = "a1@1s b2@2s x3@3s x4@4s"
    assert match(loop("relaxed", "followed_by"), events, semantics=Semantics.FLINK).timed_out == 2 * ["a1 b2"]


def test_strict_contiguity_sees_all_events() -> None:
    assert not PatternHarness(loop("relaxed", "next")).cep.pattern.relevant_only


def test_states_that_stay_the_same() -> None:
    """The loop and its copy after an ignored event; a state of a strict stage has no IGNORE edge."""
    states = {state.name: ignored_edges(state) for state in compile_pattern(loop("relaxed", "followed_by")).states}
    assert states == {"a": 0, "b": 2, "b:0": 1, "b:1": 1, "c": 1, "$end": 0}
    states = {state.name: ignored_edges(state) for state in compile_pattern(loop("relaxed", "next")).states}
    assert states["c"] == 0


@given(st.data())
def test_events_that_are_not_seen_change_nothing(data: Any) -> None:
    pattern = data.draw(patterns())
    options: dict[str, Any] = {"columns": SCHEMA, "keys": ["key"], "max_partial_matches": None}
    harness = PatternHarness(pattern, **options)
    assume(harness.cep.pattern.relevant_only)
    names = "".join(stage.name for stage in pattern.atoms())
    rows = data.draw(streams(names + "xyy"))
    rows = [row | ({"price": 9} if row["name"] == "y" else {}) for row in rows]
    seen = visible(harness.cep, rows)
    assume(len(seen) < len(rows))
    assert found(harness.send(rows).end()) == found(PatternHarness(pattern, **options).send(seen).end())
