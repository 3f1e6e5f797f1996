"""Operators with several inputs against a model that does one thing after the other: any elements, cuts, watermarks, restarts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asterism.operators.state.keyed_state import BroadcastMapState, ListState, ValueState
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.testing import StreamOperatorHarness
from tests.kit import small_pages

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LIFE = 3
INPUTS = {"left": {"key": "k", "time": "t"}, "right": {"key": "k", "time": "t"}, "rules": {"time": "t"}}
RANKS = {"rules": 0, "left": 1, "right": 2}
"""The order of elements with equal times."""


class Program(StreamOperator):
    """The elements' values say what is done; every step is written down, numbered by key."""

    left = Input("k STRING, t TIMESTAMP, v BIGINT")
    right = Input("k STRING, t TIMESTAMP, v BIGINT")
    rules = BroadcastInput("t TIMESTAMP, v BIGINT")
    total = ValueState("BIGINT")
    fleeting = ValueState("BIGINT", ttl=LIFE * SECOND)
    lines = ListState("STRING")
    rule = BroadcastMapState("STRING", "BIGINT")
    log = Output("k STRING, n BIGINT, line STRING")

    def write(self, ctx: Any, line: str) -> None:
        self.lines.add(line)
        self.log.collect(k=ctx.key, n=len(self.lines.get()), line=line)

    @left.process_element
    def on_left(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.write(ctx, f"left {e.v} {self.total.value()} {self.rule.get('v')} {self.fleeting.value()}")
        self.fleeting.update(e.v)
        if e.v % 3 == 0:
            ctx.register_event_time_timer(f"n{e.v % 2}", e.t + (e.v % 5) * SECOND)
        if e.v % 7 == 0:
            ctx.delete_event_time_timer("n0")

    @rules.process_element
    def on_rule(self, e: Any, ctx: Any) -> None:
        self.rule.put("v", e.v)
        if e.v % 2 == 0:
            ctx.apply_to_keyed_state(self.total, lambda key, total: self.visit(ctx, e.v))

    def visit(self, ctx: Any, v: int) -> None:
        self.total.update(self.total.value() + v)
        self.write(ctx, f"visit {self.total.value()}")

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.write(ctx, f"{timer.name} {(timer.time - EPOCH) // SECOND} {self.total.value()} {self.fleeting.value()}")
        if len(timer.name) < 4:
            ctx.register_event_time_timer(timer.name + "!", timer.time + (self.total.value() % 3) * SECOND)


class ByElement(Program):
    right = Input("k STRING, t TIMESTAMP, v BIGINT")

    @right.process_element
    def on_right(self, e: Any, ctx: Any) -> None:
        self.write(ctx, f"right {e.v} {self.total.value()} {self.fleeting.value()}")


class ByBatch(Program):
    """The same for one of the inputs, with columns."""

    right = Input("k STRING, t TIMESTAMP, v BIGINT")
    count = ValueState("BIGINT")

    @right.process_batch
    def on_right(self, batch: Any, ctx: Any) -> None:
        totals = self.total.column(ctx.keys).to_pylist()
        for row, total in zip(batch.to_pylist(), totals, strict=True):
            self.log.collect(k=row["k"], line=f"right {row['v']} {total}")


@dataclass
class Model:
    """Does the same to all elements in order; keys in a dict."""

    rule: int | None = None
    totals: dict[str, int] = field(default_factory=dict)
    fleeting: dict[str, tuple[int, int]] = field(default_factory=dict)
    timers: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def run(self, elements: list[tuple[str, str, int, int]]) -> dict[str, list[str]]:
        for name, key, time, v in sorted(elements, key=lambda e: (e[2], RANKS[e[0]])):
            self.fire(time)
            getattr(self, name)(key, time, v)
        self.fire(10**9)
        return {key: lines for key, lines in self.lines.items() if lines}

    def fire(self, before: int) -> None:
        while True:
            due = [(t, name, key) for key, timers in self.timers.items() for name, t in timers.items() if t < before]
            if not due:
                return
            time, name, key = min(due)
            del self.timers[key][name]
            total = self.totals.get(key)
            self.lines[key].append(f"{name} {time} {total} {self.alive(key, time)}")
            if len(name) < 4:
                assert total is not None
                self.timers[key][name + "!"] = time + total % 3

    def alive(self, key: str, time: int) -> int | None:
        v, until = self.fleeting.get(key, (0, 0))
        return v if time < until else None

    def left(self, key: str, time: int, v: int) -> None:
        self.totals[key] = self.totals.get(key, 0) + v
        self.lines[key].append(f"left {v} {self.totals[key]} {self.rule} {self.alive(key, time)}")
        self.fleeting[key] = v, time + LIFE
        if v % 3 == 0:
            self.timers[key][f"n{v % 2}"] = time + v % 5
        if v % 7 == 0:
            self.timers[key].pop("n0", None)

    def right(self, key: str, time: int, v: int) -> None:
        self.lines[key].append(f"right {v} {self.totals.get(key)} {self.alive(key, time)}")

    def rules(self, key: str, time: int, v: int) -> None:
        self.rule = v
        if v % 2 == 0:
            for visited in self.totals:
                self.totals[visited] += v
                self.lines[visited].append(f"visit {self.totals[visited]}")


NAMES = st.sampled_from(["left", "left", "right", "rules"])
ELEMENTS = st.lists(st.tuples(NAMES, st.sampled_from("abcd"), st.integers(0, 20), st.integers(0, 30)), max_size=30)


def arrival(elements: list[tuple[str, str, int, int]], data: st.DataObject) -> list[tuple[str, str, int, int]]:
    """In any order, but for elements of one input with equal times, for which the order counts."""
    return data.draw(st.permutations(elements)) if elements else []


def play(
    harness: StreamOperatorHarness, elements: list[tuple[str, str, int, int]], data: st.DataObject
) -> StreamOperatorHarness:
    """Elements in pieces; between them watermarks that make none of them late, and restarts."""
    at = 0
    while at < len(elements):
        size = data.draw(st.integers(1, 8))
        for name in RANKS:
            rows = [{"k": k, "t": SECOND * t, "v": v} for n, k, t, v in elements[at : at + size] if n == name]
            if rows:
                harness.send(name, rows if name != "rules" else [{"t": row["t"], "v": row["v"]} for row in rows])
        at += size
        for name in RANKS:
            if data.draw(st.booleans()):
                left = [t for n, _, t, _ in elements[at:] if n == name]
                harness.advance_watermark(name, SECOND * (min(left, default=25) - 1))
        if data.draw(st.integers(0, 3)) == 0:
            harness = harness.again().restore(harness.snapshot())
    return harness.end()


@given(elements=ELEMENTS, data=st.data(), key_groups=st.integers(1, 3), pages=st.sampled_from([1, 3, None]))
def test_elements(
    elements: list[tuple[str, str, int, int]], data: st.DataObject, key_groups: int, pages: int | None
) -> None:
    arrived = arrival(elements, data)
    harness = StreamOperatorHarness(ByElement(), INPUTS, key_groups=key_groups, pages=pages)
    with small_pages():
        harness = play(harness, arrived, data)
    found: dict[str, list[str]] = defaultdict(list)
    for row in sorted(harness.rows("log"), key=lambda row: (row["k"], row["n"])):
        found[row["k"]].append(row["line"])
        assert len(found[row["k"]]) == row["n"]
    assert found == Model().run(arrived)
    assert harness.is_empty


@given(elements=ELEMENTS, data=st.data(), key_groups=st.integers(1, 3), pages=st.sampled_from([1, 3, None]))
def test_batches(
    elements: list[tuple[str, str, int, int]], data: st.DataObject, key_groups: int, pages: int | None
) -> None:
    """Of each key the lines are the same; what a batch says is without a number and stands where its run does."""
    arrived = arrival(elements, data)
    with small_pages():
        harness = play(StreamOperatorHarness(ByBatch(), INPUTS, key_groups=key_groups, pages=pages), arrived, data)
    found: dict[str, list[str]] = defaultdict(list)
    for row in harness.rows("log"):
        found[row["k"]].append(row["line"])
    model = Model()
    model.right = lambda key, time, v: model.lines[key].append(f"right {v} {model.totals.get(key)}")  # type: ignore[method-assign]
    assert found == model.run(arrived)
