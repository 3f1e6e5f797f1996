"""Window functions with outputs and metrics of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import Counter, Output, ProcessWindowFunction, TimeSpan, TumblingWindows, ValueState, WindowContext
from asterism.errors import OperatorError, StreamDefinitionError
from asterism.testing import WindowHarness, check_window_independence

TEN = TumblingWindows.of(timedelta(seconds=10))
EVENTS = "ann.a1@1s bob.a2@2s ann.a300@4s |10s ann.a5@11s bob.a600@12s |20s"


class Large(ProcessWindowFunction):
    before = ValueState("BIGINT")
    large = Output("user STRING, value DOUBLE, number BIGINT")
    closed = Output("user STRING")
    fired = Counter()

    def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
        self.fired.inc()
        state = ctx.global_state(self.before)
        for value in elements["value"].to_pylist():
            if value > 100:
                state.update((state.value() or 0) + 1)
                self.large.collect(user=ctx.key, value=value, number=state.value())
        return {"n": elements.num_rows}

    def clear(self, window: TimeSpan, ctx: WindowContext) -> None:
        self.closed.collect(user=ctx.key)


def test_a_window_function_emits_to_outputs() -> None:
    harness = WindowHarness(TEN, process=Large(), schema="n BIGINT").send(EVENTS).end()
    assert sorted(row["n"] for row in harness.results) == [1, 1, 1, 2]
    assert sorted((row["user"], row["value"], row["number"]) for row in harness.rows("large")) == [
        ("ann", 300.0, 1), ("bob", 600.0, 1)
    ]  # fmt: skip
    assert sorted(row["user"] for row in harness.rows("closed")) == ["ann", "ann", "bob", "bob"]
    assert harness.metrics["fired"] == 4


def test_outputs_do_not_depend_on_batches_and_restarts() -> None:
    harness = check_window_independence(TEN, None, EVENTS, process=Large(), schema="n BIGINT")
    assert len(harness.rows("large")) == 2

    class Counts(Large):
        seen = 0

        def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
            type(self).seen += 1  # not a state
            self.large.collect(number=self.seen)
            return {"n": 1}

    with pytest.raises(AssertionError, match="large depends on"):
        check_window_independence(TEN, None, EVENTS, process=Counts(), schema="n BIGINT")


def test_a_function_without_state_knows_its_key() -> None:
    class Keys(ProcessWindowFunction):
        keys = Output("user STRING")

        def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
            self.keys.collect(user=ctx.key)
            return {"user": ctx.key}

        def clear(self, window: TimeSpan, ctx: WindowContext) -> None:
            self.keys.collect(user=ctx.key)

    harness = WindowHarness(TEN, process=Keys(), schema="user STRING").send("bob.a1@1s ann.a2@2s |10s ann.a3@11s").end()
    assert sorted(row["user"] for row in harness.results) == ["ann", "ann", "bob"]
    assert sorted(row["user"] for row in harness.rows("keys")) == ["ann"] * 4 + ["bob"] * 2


def test_an_output_is_used_only_while_a_window_is_processed() -> None:
    kept: list[Any] = []

    class Keeps(Large):
        def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
            kept.append(self.large)
            return {"n": 1}

    WindowHarness(TEN, process=Keeps(), schema="n BIGINT").send(EVENTS).end()
    with pytest.raises(OperatorError, match="only while the function processes a window"):
        kept[0].collect(user="x")


@pytest.mark.parametrize("name", ["results", "late", "late_elements"])
def test_usual_names_are_taken(name: str) -> None:
    declared = Counter() if name == "late_elements" else Output("n BIGINT")
    taken = type("Taken", (Large,), {name: declared})()
    with pytest.raises(StreamDefinitionError, match="which a query has anyway"):
        WindowHarness(TEN, process=taken, schema="n BIGINT")
