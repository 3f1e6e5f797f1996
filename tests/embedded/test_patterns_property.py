"""The embedded host has the matches of a harness, which gets the events one after the other and keeps state."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import CEP, KeyedStream
from tests.embedded.test_on_spark import in_order
from tests.kit import examples
from tests.matching.pattern_strategies import cases
from tests.matching.test_pattern_property import SCHEMA, SELECT, run

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")


@settings(max_examples=examples(25, usual=60), deadline=None)
@given(case=cases(), seed=st.integers(0, 99))
def test_random_patterns(case: Any, seed: int) -> None:
    """The rows of different keys, and those of one key with different times, may come in any order."""
    pattern, rows = case
    harness = run(pattern, rows)
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    place = {row["id"]: number for number, row in enumerate(rows)}
    by_time: dict[tuple[Any, int], list[Any]] = {}
    for row in shuffled:
        by_time.setdefault((row["key"], row["ts"]), []).append(row)
    # Equal times of a key keep the order of their arrival.
    ties = {key: iter(sorted(group, key=lambda row: place[row["id"]])) for key, group in by_time.items()}
    table = pa.Table.from_pylist([next(ties[row["key"], row["ts"]]) for row in shuffled], SCHEMA)
    found = CEP.pattern(KeyedStream(table, key="key", time="ts"), pattern, max_partial_matches=None)
    assert in_order(found.matches) == in_order(harness.output("matches"))
    assert in_order(found.timed_out) == in_order(harness.output("timed_out"))
    assert in_order(found.select(*SELECT)) == in_order(harness.output("selected"))
