"""Patterns in a live engine: the answers are those of tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism import CEP, KeyedStream, Pattern
from tests.embedded.cases import CASES, TRADES, two
from tests.kit import examples
from tests.live.driver import OpenedPattern, in_order, play
from tests.matching.pattern_strategies import cases
from tests.matching.test_pattern_property import SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")
ALL = timedelta(days=1000)
"""An out-of-orderness with which no event is late."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_cases(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]
    expected = case.rows(case.results(case.table))
    delay = {"max_out_of_orderness": ALL if name == "unsorted" else timedelta(0)}
    live = replace(case, stream={**case.stream, **delay})
    found = OpenedPattern(lambda: live.results(case.table.schema), case.table, tmp_path, seed)
    table = live.rows(found)
    assert table.schema.equals(expected.schema)
    if name == "arrival order":  # that of equal times, which are in several batches here
        return
    assert in_order(table) == in_order(expected)


@settings(
    max_examples=examples(15, usual=40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=cases(), seed=st.integers(0, 10_000))
def test_random_patterns_cuts_and_kills(case: Any, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    pattern, rows = case
    table = pa.Table.from_pylist(rows, SCHEMA)
    times = table.column("ts").to_pylist()
    stream: dict[str, Any] = {"key": "key", "time": "ts"}
    batch = CEP.pattern(KeyedStream(table, **stream), pattern, max_partial_matches=None)
    if any(one > other for one, other in pairwise(times)):
        stream["max_out_of_orderness"] = ALL
    live = CEP.pattern(KeyedStream(SCHEMA, **stream), pattern, max_partial_matches=None)
    outputs = ["matches", "timed_out", *(["late"] if seed % 2 else [])]  # with it, no event is left out
    found = play(
        lambda folder: live.open(folder, outputs=outputs, snapshot_every=None),
        {"events": table},
        tmp_path_factory.mktemp("live"),
        seed,
        largest=5,
    )
    assert in_order(found["matches"]) == in_order(batch.matches)
    assert in_order(found["timed_out"]) == in_order(batch.timed_out)
    assert "late" not in found or found["late"].num_rows == 0


def test_an_engine_in_memory_and_single_events() -> None:
    with CEP.pattern(KeyedStream(TRADES.schema, key="symbol", time="ts"), two()).open() as engine:
        rows = [engine.process(event)["matches"] for event in TRADES.to_pylist()]
        rows.append(engine.finish()["matches"])
        assert engine.position is None
        assert engine.progress["numInputRows"] == TRADES.num_rows
        assert engine.progress["observedMetrics"]["asterism"] == {"matches": 2, "timed_out": 6}
    expected = CEP.pattern(KeyedStream(TRADES, key="symbol", time="ts"), two()).matches
    assert in_order(pa.concat_tables(rows)) == in_order(expected)


def test_events_that_no_stage_can_use_advance_the_watermark() -> None:
    """That is all they do: they neither wait nor count as late, as on Spark."""
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("kind", pa.string())])
    stream: Any = KeyedStream(schema, key="user", time="ts", max_out_of_orderness=timedelta(seconds=1))
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
    with CEP.pattern(stream, pattern).open() as engine:
        engine.process([{"user": "ann", "ts": 1000, "kind": "a"}, {"user": "ann", "ts": 2000, "kind": "b"}])
        size = engine.progress["stateOperators"][0]["memoryUsedBytes"]
        rows = engine.process([{"user": "bob", "ts": 4000 - number, "kind": "c"} for number in range(900)])
        assert rows["matches"].num_rows == 1
        engine.process({"user": "bob", "ts": 0, "kind": "c"})
        assert engine.progress["stateOperators"][0]["memoryUsedBytes"] < size
        assert "late_elements" not in engine.progress["observedMetrics"]["asterism"]
        engine.process({"user": "bob", "ts": 0, "kind": "a"})
        assert engine.progress["observedMetrics"]["asterism"]["late_elements"] == 1
