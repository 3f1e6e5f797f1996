"""Operators without a key whose elements are distributed over parallel instances."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import BroadcastInput, BroadcastValueState, Input, ListState, Output, StreamOperator, ValueState
from asterism.errors import CheckpointMismatchError
from asterism.testing import Send, StreamOperatorHarness, Watermark, check_operator_independence


class Batches(StreamOperator):
    """Each instance emits what it has collected, ten seconds after the first element."""

    items = Input("t TIMESTAMP, v BIGINT")
    other = Input("v BIGINT")
    least = BroadcastInput("v BIGINT")
    limit = BroadcastValueState("BIGINT")
    collected = ListState("BIGINT")
    count = ValueState("BIGINT")
    out = Output("vs ARRAY<BIGINT>, key STRING")
    counts = Output("n BIGINT")

    @items.process_element
    def item(self, e: Any, ctx: Any) -> None:
        if not self.collected.get():
            ctx.register_event_time_timer("emit", e.t + timedelta(seconds=10))
        if e.v >= (self.limit.value() or 0):
            self.collected.add(e.v)
        self.count.update((self.count.value() or 0) + 1)

    @other.process_batch
    def others(self, batch: Any, ctx: Any) -> None: ...

    @least.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.limit.update(e.v)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(vs=self.collected.get(), key=ctx.key)
        self.collected.clear()

    @items.end_input
    def end(self, ctx: Any) -> None:
        ctx.apply_to_keyed_state(self.count, lambda key, count: self.counts.collect(n=count.value()))


DISTRIBUTED = {"distributed": True}
INPUTS = {"items": {"time": "t", **DISTRIBUTED}, "other": DISTRIBUTED, "least": {}}


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5), st.sampled_from([1, 3, None]), st.data())
def test_instances_have_all_elements_together(
    values: list[int], key_groups: int, pages: int | None, data: st.DataObject
) -> None:
    """Each element once, whatever the number of instances, the cuts and the restarts; equal elements in one instance."""
    harness = StreamOperatorHarness(Batches(), INPUTS, key_groups=key_groups, pages=pages)
    harness.send("least", {"v": 10})
    for number, value in enumerate(values):
        harness.send("items", {"t": f"{number}s", "v": value})
        if data.draw(st.booleans()):
            harness.advance_watermark("items", f"{number}s")
        if data.draw(st.booleans()):
            harness = harness.again().restore(harness.snapshot())
    harness.end()
    found = [value for row in harness.rows("out") for value in row["vs"]]
    assert sorted(found) == sorted(value for value in values if value >= 10)
    counts = [row["n"] for row in harness.rows("counts")]
    assert sum(counts) == len(values)
    assert len(counts) <= key_groups
    assert {row["key"] for row in harness.rows("out")} <= {None}


def test_elements_are_distributed() -> None:
    harness = StreamOperatorHarness(Batches(), INPUTS, key_groups=4)
    harness.send("items", [{"t": "1s", "v": value} for value in range(200)]).end()
    counts = [row["n"] for row in harness.rows("counts")]
    assert len(counts) == 4
    assert min(counts) > 20


class Doubles(StreamOperator):
    items = Input("t TIMESTAMP, v BIGINT")
    out = Output("v BIGINT")

    @items.process_element
    def item(self, e: Any, ctx: Any) -> None:
        self.out.collect(v=2 * e.v)


def test_without_state_the_instances_do_not_matter() -> None:
    steps = [
        Send("items", [{"t": f"{n}s", "v": n} for n in range(5)]),
        Watermark("3s"),
        Send("items", {"t": "4s", "v": 7}),
    ]
    harness = check_operator_independence(Doubles(), steps, {"items": {"time": "t", **DISTRIBUTED}})
    assert sorted(row["v"] for row in harness.rows("out")) == [0, 2, 4, 6, 8, 14]


def test_a_checkpoint_with_one_key_is_not_distributed() -> None:
    before = StreamOperatorHarness(Doubles(), {"items": {"time": "t"}}).send("items", {"t": "1s", "v": 1})
    after = StreamOperatorHarness(Doubles(), {"items": {"time": "t", **DISTRIBUTED}}).restore(before.snapshot())
    with pytest.raises(CheckpointMismatchError, match='the kind of the input "items" changed'):
        after.send("items", {"t": "2s", "v": 1})
