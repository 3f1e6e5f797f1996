"""Broadcast state is the same in every key group, whatever a function tries, wherever batches end and restarts fall."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import OperatorError
from asterism.operators.state.keyed_state import BroadcastListState, BroadcastMapState, BroadcastValueState, ValueState
from asterism.operators.state.page_numbers import BROADCAST_PAGE
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.testing import StreamOperatorHarness
from tests.kit import small_pages

SECOND = timedelta(seconds=1)
ATTACKS = 14
INPUTS = {"clicks": {"key": "k", "time": "t"}, "plain": {"key": "k"}, "timed": {"time": "t"}, "untimed": {}}
BROADCAST = ("timed", "untimed")


class Attacker(StreamOperator):
    """The values of elements say what is tried. What is refused is caught: the query goes on."""

    clicks = Input("k STRING, t TIMESTAMP, v BIGINT")
    plain = Input("k STRING, v BIGINT")
    timed = BroadcastInput("t TIMESTAMP, v BIGINT")
    untimed = BroadcastInput("v BIGINT")
    seen = ValueState("BIGINT")
    names = BroadcastListState("STRING")
    counts = BroadcastMapState("STRING", "BIGINT")
    last = BroadcastValueState("STRING")
    out = Output("line STRING")

    def attempt(self, function: Any) -> None:
        with suppress(OperatorError, ZeroDivisionError, pa.ArrowException):
            function()

    def write(self, text: str) -> None:
        self.attempt(lambda: self.names.add(text))
        self.attempt(lambda: self.counts.put(text, len(self.names.get())))
        self.attempt(lambda: self.last.update(text))
        if len(text) % 3 == 0:
            self.attempt(lambda: self.counts.remove(text))

    @timed.process_element
    def on_timed(self, e: Any, ctx: Any) -> None:
        self.attack(e.v, ctx)

    @untimed.process_batch
    def on_untimed(self, batch: Any, ctx: Any) -> None:
        for v in batch.column("v").to_pylist():
            self.attack(v, ctx)

    def attack(self, v: int, ctx: Any) -> None:
        kept = self.names
        visited: list[str] = []

        def visit(key: str, seen: Any) -> None:
            visited.append(key)
            match v % ATTACKS:
                case 1:
                    self.write(f"visit {key}")
                case 2:
                    kept.add(key)
                case 3:
                    ctx.apply_to_keyed_state(self.seen, lambda key, seen: self.write(key))
                case 4 if seen.value() % 2:
                    raise ZeroDivisionError
                case 5:
                    ctx.register_event_time_timer("due", 20_000)

        match v % ATTACKS:
            case 0:
                self.write(f"plain {v}")
            case 1 | 2 | 3 | 4 | 5 | 6:
                self.write("before")
                self.attempt(lambda: ctx.apply_to_keyed_state(self.seen, visit))
                self.write(f"{visited}")
            case 7:
                self.write(f"{ctx.has_ended('clicks')}")
            case 8:
                self.write(f"{ctx.has_ended('timed')} {ctx.has_ended('untimed')}")
            case 9:
                self.attempt(lambda: self.write(f"{self.seen.column(np.array([0]))}"))
            case 10:
                self.attempt(lambda: self.write(f"{ctx.key_columns(np.array([0]))}"))
            case 11:
                self.attempt(lambda: self.write(f"{self.seen.value()} {ctx.key}"))
            case 12:
                self.write(f"{ctx.current_watermark} {ctx.timestamp} {ctx.processing_time} {ctx.input}")
            case 13:
                copied = self.names.get()
                copied.append("not kept")
                self.write(str(len(copied)))

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        self.seen.update(e.v)
        self.write(f"click {e.v}")
        if e.v % 2:
            ctx.register_event_time_timer("due", e.t + 3 * SECOND)

    @plain.process_element
    def on_plain(self, e: Any, ctx: Any) -> None:
        self.attempt(lambda: ctx.apply_to_keyed_state(self.seen, lambda key, seen: self.write(key)))
        self.attack(e.v, ctx) if e.v % 2 else self.on_timed(e, ctx)

    @timed.process_late
    def on_late(self, e: Any, ctx: Any) -> None:
        self.write(f"late {e.v}")

    @clicks.end_input
    def on_end(self, ctx: Any) -> None:
        self.write("end of clicks")

    @timed.end_input
    def on_timed_end(self, ctx: Any) -> None:
        self.write("end of timed")

    @timed.process_watermark
    def on_watermark(self, watermark: Any, ctx: Any) -> None:
        self.write(f"watermark {watermark}")

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.write(f"timer {ctx.key}")


ELEMENTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(INPUTS)), st.sampled_from("abcdef"), st.integers(0, 20), st.integers(0, 4 * ATTACKS)
    ),
    max_size=25,
)


@given(elements=ELEMENTS, data=st.data(), key_groups=st.integers(2, 4), pages=st.sampled_from([1, 2, None]))
@small_pages()
def test_all_key_groups_agree(elements: Any, data: st.DataObject, key_groups: int, pages: int | None) -> None:
    harness = StreamOperatorHarness(Attacker(), INPUTS, key_groups=key_groups, pages=pages)
    for name, k, t, v in elements:
        row = {"k": k, "t": SECOND * t, "v": v}
        columns = harness.streams.wires[name].schema.names
        harness.send(name, {column: row[column] for column in columns})
        if data.draw(st.booleans()):
            harness.advance_watermark(
                data.draw(st.sampled_from(["clicks", "timed"])), SECOND * data.draw(st.integers(0, 25))
            )
        if data.draw(st.integers(0, 5)) == 0:
            harness = harness.again().restore(harness.snapshot())
        assert len({store.pages.get(BROADCAST_PAGE) for store in harness.stores}) == 1
    if data.draw(st.booleans()):
        harness.end("clicks")
        assert len({store.pages.get(BROADCAST_PAGE) for store in harness.stores}) == 1
    assert harness.end().is_empty


class Sizes(StreamOperator):
    """How many elements a function of a broadcast input is given at once."""

    clicks = Input("k STRING, t TIMESTAMP")
    timed = BroadcastInput("t TIMESTAMP, v BIGINT")
    untimed = BroadcastInput("v BIGINT")
    seen = ValueState("BOOLEAN")
    sizes = BroadcastListState("BIGINT")
    out = Output("sizes ARRAY<BIGINT>")

    @timed.process_batch
    @untimed.process_batch
    def load(self, batch: Any, ctx: Any) -> None:
        self.sizes.add(batch.num_rows)

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        self.out.collect(sizes=self.sizes.get())


def test_elements_of_one_time_come_in_one_batch() -> None:
    """In every key group alike, also where elements of keys lie between those of other times."""
    inputs = {"clicks": {"key": "k", "time": "t"}, "timed": {"time": "t"}, "untimed": {}}
    harness = StreamOperatorHarness(Sizes(), inputs, key_groups=3)
    harness.send("untimed", [{"v": n} for n in range(1000)])
    harness.send("timed", [{"t": SECOND * t, "v": 0} for t in (3, 1, 3, 2, 3)])
    harness.send("clicks", [{"k": k, "t": SECOND * 2} for k in "abcdef"]).send("clicks", {"k": "a", "t": SECOND * 4})
    harness.advance_watermark(SECOND * 5)
    sizes = [row["sizes"] for row in harness.rows("out")]
    assert sorted(sizes) == [[1000, 1, 1]] * 6 + [[1000, 1, 1, 3]]
