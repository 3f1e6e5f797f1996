"""The keys of a map state are equal where Spark's GROUP BY has one group, however micro-batches and restarts are."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.operators.state.keyed_state import BroadcastMapState, MapState
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.testing import StreamOperatorHarness

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", (0xFFF8 << 48) + 1))[0]
DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, math.nan, -math.nan, OTHER_NAN])


class Keyed(StreamOperator):
    elements = Input("k STRING, x DOUBLE")
    counts = MapState("DOUBLE", "BIGINT")
    floats = MapState("FLOAT", "BIGINT")
    rows = Output("x DOUBLE, known BOOLEAN, n BIGINT, size BIGINT")

    @elements.process_element
    def on_element(self, e: Any, ctx: Any) -> None:
        known, n = e.x in self.counts, self.counts.get(e.x, 0) + 1
        assert self.floats.get(e.x, 0) + 1 == n
        self.counts.put(e.x, n)
        self.floats.put(e.x, n)
        if n == 3:
            self.counts.remove(e.x)
            self.floats.remove(e.x)
        self.rows.collect(x=next(iter(self.counts.keys()), None), known=known, n=n, size=len(list(self.counts.keys())))


class Broadcast(StreamOperator):
    keyed = Input("k STRING")
    elements = BroadcastInput("k STRING, x DOUBLE")
    counts = BroadcastMapState("DOUBLE", "BIGINT")
    rows = Output("x DOUBLE, known BOOLEAN, n BIGINT, size BIGINT")

    @keyed.process_element
    def on_keyed(self, e: Any, ctx: Any) -> None: ...

    @elements.process_element
    def on_element(self, e: Any, ctx: Any) -> None:
        known, n = e.x in self.counts, self.counts.get(e.x, 0) + 1
        self.counts.put(e.x, n)
        if n == 3:
            self.counts.remove(e.x)
        self.rows.collect(x=next(iter(self.counts.keys()), None), known=known, n=n, size=len(list(self.counts.keys())))


def expected(values: list[float]) -> list[str]:
    counts: dict[str, int] = {}
    rows = []
    for value in values:
        key = "nan" if math.isnan(value) else repr(value + 0.0)
        known = key in counts
        counts[key] = n = counts.get(key, 0) + 1
        if n == 3:
            del counts[key]
        rows.append(
            repr({"x": float(next(iter(counts))) if counts else None, "known": known, "n": n, "size": len(counts)})
        )
    return rows


@pytest.mark.parametrize("operator", [Keyed, Broadcast])
@given(values=st.lists(DOUBLES, max_size=8), restarts=st.sets(st.integers(0, 7)))
def test_keys_are_those_of_spark(operator: type[StreamOperator], values: list[float], restarts: set[int]) -> None:
    keyed = {"keyed": {"key": "k"}, "elements": {}}
    harness = StreamOperatorHarness(operator(), {"elements": {"key": "k"}} if operator is Keyed else keyed)
    for number, value in enumerate(values):
        if number in restarts:
            harness.restore(harness.snapshot())
        harness.send("elements", {"k": "u", "x": value})
    assert [repr(row) for row in harness.rows("rows")] == expected(values)
