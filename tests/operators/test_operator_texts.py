"""What a user of operators with any number of inputs reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.schemas import schema_of, type_of
from asterism.operators import runtime
from asterism.operators.multiple_input import MultipleInputOperator, Wire
from asterism.operators.state.keyed_state import (
    AggregateFunction,
    AggregatingState,
    BroadcastListState,
    BroadcastMapState,
    BroadcastValueState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from asterism.operators.state.partition_watermarks import (
    MAX_NAME,
    MAX_PARTITIONS,
    check_names,
    check_partitions,
    partition_name,
)
from asterism.operators.stream_operator import (
    BroadcastInput,
    Counter,
    Gauge,
    Histogram,
    Input,
    InputSelection,
    Output,
    StreamOperator,
)
from asterism.testing import End, ProcessingTime, Send, StreamOperatorHarness, Watermark
from asterism.testing.stream_harness import Step
from tests.kit import Golden, Provocation

ITEM = "k STRING, t TIMESTAMP, v BIGINT"
TIMED: Mapping[str, Any] = {"key": "k", "time": "t"}
NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


class Forgetful(AggregateFunction):
    """Changes its accumulator, which it does not return."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> Any:
        accumulator += value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Base(StreamOperator):
    """Does what a test says, where it says."""

    clicks = Input(ITEM)
    plain = Input("k STRING, v BIGINT")
    rules = BroadcastInput("v BIGINT")
    one = ValueState("BIGINT")
    many = ListState("STRUCT<a: INT>")
    named = MapState("BIGINT", "DATE")
    total = ReducingState("DECIMAL(5, 2)", lambda a, b: a + b)
    mean = AggregatingState("BIGINT", Forgetful())
    fleeting = ValueState("FLOAT", ttl=timedelta(seconds=1))
    rule = BroadcastValueState("BIGINT")
    history = BroadcastListState("STRING")
    limits = BroadcastMapState("STRING", "BIGINT")
    out = Output("k STRING, v TINYINT")
    level = Gauge()
    sizes = Histogram()

    def __init__(self, **does: Callable[[Any, Any], Any]) -> None:
        self.does = does

    def do(self, what: str, ctx: Any) -> Any:
        return self.does.get(what, lambda self, ctx: None)(self, ctx)

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        if "event" in self.does:
            ctx.register_event_time_timer("due", e.t)
        if "clock" in self.does:
            ctx.register_processing_time_timer("due", e.t)
        self.one.update(e.v)
        self.do("click", ctx)

    @clicks.process_late
    def on_late(self, e: Any, ctx: Any) -> None:
        self.do("late", ctx)

    @clicks.process_watermark
    def on_watermark(self, watermark: Any, ctx: Any) -> None:
        self.do("watermark", ctx)

    @clicks.end_input
    def on_end(self, ctx: Any) -> None:
        self.do("end", ctx)

    @plain.process_batch
    def on_plain(self, batch: Any, ctx: Any) -> None:
        self.do("batch", ctx)

    @rules.process_element
    def on_rule(self, e: Any, ctx: Any) -> None:
        self.do("rule", ctx)

    def open(self) -> None:
        self.do("open", None)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.do("event", ctx)

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.do("clock", ctx)


INPUTS: Mapping[str, Mapping[str, Any]] = {"clicks": TIMED, "plain": {"key": "k"}}
EVERYTHING: list[Step] = [
    Send("clicks", {"k": "ann", "t": "1s", "v": 1}),
    Send("plain", [{"k": "bob", "v": 2}, {"k": "ann", "v": 2}]),
    Watermark("1s"),
    Send("rules", {"v": 3}),
    Send("clicks", {"k": "bob", "t": "1s", "v": 4}),
    ProcessingTime("5s"),
    End(),
]


def doing(**does: Callable[[Any, Any], Any]) -> Provocation:
    """Everything that can happen happens; functions do what is said here."""
    return lambda: StreamOperatorHarness(Base(**does), INPUTS).play(EVERYTHING)


def fails(*_: Any) -> Any:
    raise KeyError("color")


def selecting(answer: Any) -> Provocation:
    class Selecting(StreamOperator):
        clicks = Input(ITEM)

        @clicks.process_element
        def on_click(self, e: Any, ctx: Any) -> None: ...

        def select_inputs(self, ctx: Any) -> Any:
            return answer(ctx) if callable(answer) else answer

    return lambda: StreamOperatorHarness(Selecting(), {"clicks": TIMED}).play(EVERYTHING[:1]).end()


class Clocked(StreamOperator):
    """Without a function for its timer."""

    clicks = Input("k STRING, t TIMESTAMP")

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        ctx.register_event_time_timer("due", 5)


def generator() -> None:
    class Yields(StreamOperator):
        clicks = Input(ITEM)

        @clicks.process_element
        def on_click(self, e: Any, ctx: Any) -> Any:
            yield e


def coroutine() -> None:
    class Awaits(StreamOperator):
        async def on_event_time_timer(self, timer: Any, ctx: Any) -> None: ...  # type: ignore[override]


async def awaits(self: Any) -> None: ...


def returning(*, element: bool = False, timer: bool = False) -> Provocation:
    """The rows that functions return are in no output."""

    class Returns(StreamOperator):
        clicks = Input(ITEM)
        plain = Input("k STRING, v BIGINT")

        @clicks.process_element
        def on_click(self, e: Any, ctx: Any) -> Any:
            ctx.register_event_time_timer("due", e.t)
            return {"k": e.k, "v": e.v} if element else None

        def on_event_time_timer(self, timer_: Any, ctx: Any) -> Any:
            return [{"k": ctx.key}] if timer else None

        @plain.process_batch
        def on_plain(self, batch: Any, ctx: Any) -> Any:
            return batch.num_rows

    return lambda: StreamOperatorHarness(Returns(), INPUTS).play(
        [Send("plain", {"k": "ann", "v": 1})] if not (element or timer) else [*EVERYTHING[:1], Watermark("1s")]
    )


FUNCTIONS: dict[str, Provocation] = {
    "function_fails": doing(click=fails),
    "function_of_batch_fails": doing(batch=fails),
    "function_of_broadcast_fails": doing(rule=fails),
    "function_of_late_fails": doing(late=fails),
    "function_of_watermark_fails": doing(watermark=fails),
    "function_of_end_fails": doing(end=fails),
    "function_of_event_timer_fails": doing(event=fails),
    "function_of_clock_timer_fails": doing(clock=fails),
    "function_of_visit_fails": doing(rule=lambda self, ctx: ctx.apply_to_keyed_state(self.one, fails)),
    "function_of_selection_fails": selecting(fails),
    "open_fails": doing(open=fails),
    "element_has_no_such_column": doing(click=lambda self, ctx: ctx.key.name),
    "function_is_a_generator": generator,
    "timer_function_is_a_coroutine": coroutine,
    "function_returns_a_row": returning(element=True),
    "function_of_batch_returns": returning(element=False),
    "function_of_timer_returns": returning(timer=True),
    "function_of_visit_returns": doing(rule=lambda self, ctx: ctx.apply_to_keyed_state(self.one, lambda key, one: key)),
    "open_is_a_coroutine": lambda: type("Opens", (StreamOperator,), {"open": awaits}),
    "selection_of_unknown_input": selecting(InputSelection.of("click", "clicks")),
    "selection_of_text": selecting("clicks"),
    "selection_of_nothing": selecting(None),
    "selection_has_ended_unknown": selecting(lambda ctx: ctx.has_ended("build")),
}

STATE: dict[str, Provocation] = {
    "state_value_of_other_type": doing(click=lambda self, ctx: self.one.update("x")),
    "state_value_too_large": doing(click=lambda self, ctx: self.one.update(2**63)),
    "state_field_unknown": doing(click=lambda self, ctx: self.many.add({"a": 1, "b": 2})),
    "state_map_key_of_other_type": doing(click=lambda self, ctx: self.named.get("x")),
    "state_map_value_of_other_type": doing(click=lambda self, ctx: self.named.put(1, 20_000)),
    "state_decimal_loses_digits": doing(click=lambda self, ctx: self.total.add(10**6)),
    "state_text_that_is_none": doing(rule=lambda self, ctx: self.history.add("\ud800")),
    "state_column_of_other_type": doing(batch=lambda self, ctx: self.one.update_column(ctx.keys, ["x", "y"])),
    "state_column_of_other_length": doing(batch=lambda self, ctx: self.one.update_column(ctx.keys, [1])),
    "state_column_of_broadcast": doing(batch=lambda self, ctx: self.rule.column(ctx.keys)),
    "state_without_key_in_batch": doing(batch=lambda self, ctx: self.one.value()),
    "state_without_key_in_broadcast": doing(rule=lambda self, ctx: self.one.update(1)),
    "state_without_key_in_watermark": doing(watermark=lambda self, ctx: self.many.get()),
    "state_without_key_at_end": doing(end=lambda self, ctx: self.named.is_empty()),
    "state_in_late": doing(late=lambda self, ctx: self.one.value()),
    "state_of_broadcast_in_late": doing(late=lambda self, ctx: self.rule.value()),
    "state_in_open": doing(open=lambda self, ctx: self.one.value()),
    "state_accumulates_nothing": doing(click=lambda self, ctx: self.mean.add(1)),
    "state_aggregate_assigned": doing(click=lambda self, ctx: setattr(self, "mean", 1)),
    "state_assigned": doing(click=lambda self, ctx: setattr(self, "many", [])),
    "state_made_in_function": doing(click=lambda self, ctx: ValueState("BIGINT").update(1)),
    "broadcast_value_from_keyed": doing(click=lambda self, ctx: self.rule.update(1)),
    "broadcast_list_from_batch": doing(batch=lambda self, ctx: self.history.add("x")),
    "broadcast_map_from_timer": doing(event=lambda self, ctx: self.limits.put("x", 1)),
    "broadcast_from_clock": doing(clock=lambda self, ctx: self.limits.remove("x")),
    "broadcast_from_watermark": doing(watermark=lambda self, ctx: self.history.update(["x"])),
    "broadcast_from_end": doing(end=lambda self, ctx: self.limits.clear()),
    "broadcast_from_visit": doing(
        rule=lambda self, ctx: ctx.apply_to_keyed_state(self.one, lambda key, one: self.history.add(key))
    ),
    "broadcast_after_visit": doing(
        rule=lambda self, ctx: [ctx.apply_to_keyed_state(self.one, lambda key, one: None), self.history.add("x")]
    ),
    "broadcast_after_has_ended": doing(rule=lambda self, ctx: [ctx.has_ended("clicks"), self.history.add("x")]),
    "visit_from_keyed": doing(click=lambda self, ctx: ctx.apply_to_keyed_state(self.one, fails)),
    "visit_of_broadcast_state": doing(rule=lambda self, ctx: ctx.apply_to_keyed_state(self.rule, fails)),
    "visit_of_no_state": doing(rule=lambda self, ctx: ctx.apply_to_keyed_state("one", fails)),
    "key_in_broadcast": doing(rule=lambda self, ctx: ctx.key),
    "key_in_late": doing(late=lambda self, ctx: ctx.key),
    "timer_in_broadcast": doing(rule=lambda self, ctx: ctx.register_event_time_timer("x", 1)),
    "timer_in_batch": doing(batch=lambda self, ctx: ctx.register_processing_time_timer("x", 1)),
    "timer_at_text": doing(click=lambda self, ctx: ctx.register_event_time_timer("x", "10s")),
    "timer_with_other_name": doing(click=lambda self, ctx: ctx.delete_event_time_timer(5)),
    "timer_without_function": lambda: (
        StreamOperatorHarness(Clocked(), {"clicks": TIMED}).send("clicks", {"k": "ann", "t": "1s"}).end()
    ),
    "timer_again_and_again": doing(event=lambda self, ctx: ctx.register_event_time_timer("due", 1000)),
    "timer_goes_on_after_the_end": doing(
        event=lambda self, ctx: ctx.register_event_time_timer("due", ctx.timestamp + timedelta(seconds=1))
    ),
    "clock_timer_again_and_again": doing(clock=lambda self, ctx: ctx.register_processing_time_timer("due", 1000)),
    "timer_of_event_time_without_it": lambda: StreamOperatorHarness(Clocked(), {"clicks": {"key": "k"}}).send(
        "clicks", {"k": "ann"}
    ),
}

OUTPUTS: dict[str, Provocation] = {
    "output_column_unknown": doing(click=lambda self, ctx: self.out.collect(k="x", prize=1)),
    "output_value_of_other_type": doing(click=lambda self, ctx: self.out.collect(k="x", v="y")),
    "output_value_too_large": doing(click=lambda self, ctx: [self.out.collect(v=n) for n in (127, 128)]),
    "output_batch_lacks_column": doing(batch=lambda self, ctx: self.out.collect_batch(pa.table({"k": ["x"]}))),
    "output_batch_of_other_type": doing(
        batch=lambda self, ctx: self.out.collect_batch(pa.table({"v": ["x"], "k": ["x"]}))
    ),
    "output_of_whole_element": doing(click=lambda self, ctx: self.out.collect({"k": "x", "t": 1}, v=1)),
    "output_assigned": doing(click=lambda self, ctx: setattr(self, "out", [])),
    "gauge_of_no_number": doing(click=lambda self, ctx: self.level.set(float("nan"))),
    "histogram_of_text": doing(click=lambda self, ctx: self.sizes.update("5")),
    "gauge_assigned": doing(click=lambda self, ctx: setattr(self, "level", 5)),
    "counter_made_in_function": doing(click=lambda self, ctx: Counter().inc()),
    "output_in_open": doing(open=lambda self, ctx: self.out.collect(k="x")),
}

# ---------------------------------------------------------------------- declarations


def two_functions() -> None:
    class Two(StreamOperator):
        clicks = Input(ITEM)

        @clicks.process_element
        def first(self, e: Any, ctx: Any) -> None: ...

        @clicks.process_element
        def second(self, e: Any, ctx: Any) -> None: ...


def elements_and_batches() -> None:
    class Both(StreamOperator):
        clicks = Input(ITEM)

        @clicks.process_element
        def element(self, e: Any, ctx: Any) -> None: ...

        @clicks.process_batch
        def batch(self, batch: Any, ctx: Any) -> None: ...


def selects_and_batches() -> None:
    class Selects(StreamOperator):
        clicks = Input(ITEM)

        @clicks.process_batch
        def batch(self, batch: Any, ctx: Any) -> None: ...

        def select_inputs(self, ctx: Any) -> Any: ...


class Quiet(StreamOperator):
    """Whose wires can be wrong."""

    left = Input("id BIGINT, tags ARRAY<STRING>")
    right = Input("id BIGINT")
    rules = BroadcastInput("v BIGINT")

    @left.process_element
    @right.process_element
    @rules.process_element
    def anything(self, e: Any, ctx: Any) -> None: ...


class WithoutInputs(StreamOperator):
    out = Output("v BIGINT")


class WithoutFunctions(StreamOperator):
    clicks = Input(ITEM)


class OnlyBroadcast(StreamOperator):
    rules = BroadcastInput("v BIGINT")

    @rules.process_element
    def on_rule(self, e: Any, ctx: Any) -> None: ...


LEFT = Wire(schema_of("id BIGINT, tags ARRAY<STRING>"), ["id"])
RIGHT = Wire(schema_of("id BIGINT"), ["id"])
RULES = Wire(schema_of("v BIGINT"))


def wired(operator: Any = None, pages: int = 1, **wires: Wire | None) -> Provocation:
    every: dict[str, Wire | None] = {"left": LEFT, "right": RIGHT, "rules": RULES}
    found = {name: wire for name, wire in (every | wires).items() if wire is not None}
    return lambda: MultipleInputOperator(operator or Quiet(), found, pages=pages)


def of_another_operator() -> None:
    state = StreamOperatorHarness(Base(), INPUTS).play(EVERYTHING[:3]).snapshot()
    StreamOperatorHarness(Quiet()).restore(state).send("left", {"id": 1})


DECLARATIONS: dict[str, Provocation] = {
    "two_functions": two_functions,
    "elements_and_batches": elements_and_batches,
    "selects_and_batches": selects_and_batches,
    "columns_of_unknown_type": lambda: Input("id BIGINT, amount BIGNT"),
    "columns_without_comma": lambda: Input("id BIGINT amount DOUBLE"),
    "columns_of_one_name": lambda: Output("id BIGINT, id STRING"),
    "state_named_as_method": lambda: type("Bars", (StreamOperator,), {"open": ValueState("DOUBLE")}),
    "input_named_declared": lambda: type("Declares", (StreamOperator,), {"declared": Input(ITEM)}),
    "gauge_combined_by_something": lambda: Gauge("last"),
    "histogram_of_one_bound": lambda: Histogram(10),  # type: ignore[arg-type]
    "histogram_without_buckets": lambda: Histogram([]),
    "histogram_of_texts": lambda: Histogram(["1", "2"]),  # type: ignore[list-item]
    "histogram_descends": lambda: Histogram([1, 5, 2]),
    "counter_of_late_elements": lambda: type("Counts", (StreamOperator,), {"late_elements": Counter()}),
    "state_lives_a_number": lambda: ValueState("BIGINT", ttl=60),  # type: ignore[arg-type]
    "state_lives_no_time": lambda: ValueState("BIGINT", ttl=timedelta(0)),
    "state_lives_by_another_type": lambda: ValueState("BIGINT", ttl=timedelta(1), update_type="on_read"),
    "state_without_life_has_a_type": lambda: ListState("BIGINT", update_type="on_read_and_write"),
    "state_aggregates_by_a_function": lambda: AggregatingState("BIGINT", max),  # type: ignore[arg-type]
    "state_aggregates_by_a_class": lambda: AggregatingState("BIGINT", AggregateFunction),  # type: ignore[type-abstract, arg-type]
    "state_map_of_lists": lambda: MapState("ARRAY<INT>", "BIGINT"),
    "state_of_no_type": lambda: ListState("BIGIN"),
    "type_unknown": lambda: type_of("STRUCT<a>"),
    "columns_without_types": lambda: Input("id, ts TIMESTAMP"),
    "pages_none": wired(pages=0),
    "operator_is_a_class": wired(Quiet),
    "operator_without_inputs": wired(WithoutInputs()),
    "input_without_function": wired(WithoutFunctions()),
    "input_not_connected": wired(right=None),
    "input_unknown": wired(wrong=RIGHT),
    "only_broadcast_inputs": lambda: StreamOperatorHarness(OnlyBroadcast()),
    "broadcast_input_with_key": wired(rules=Wire(RULES.schema, ["v"])),
    "column_missing": wired(left=Wire(schema_of("id BIGINT, tag ARRAY<STRING>"), ["id"])),
    "column_of_other_type": wired(right=Wire(schema_of("id INT"), ["id"])),
    "column_of_other_elements": wired(left=Wire(schema_of("id BIGINT, tags ARRAY<BINARY>"), ["id"])),
    "keys_of_other_types": wired(right=Wire(schema_of("id BIGINT, name STRING"), ["name"])),
    "keys_of_other_number": wired(right=Wire(RIGHT.schema)),
    "time_is_null": lambda: StreamOperatorHarness(
        Quiet(),
        {"left": {"key": "id", "time": "at", "columns": "id BIGINT, tags ARRAY<STRING>, at BIGINT"},
         "right": {"key": "id"}},
    ).send("left", [{"id": 1}, {"id": 2, "at": 1000}, {"id": 3}]),
    "state_of_another_operator": of_another_operator,
}  # fmt: skip

KIT: dict[str, Provocation] = {
    "kit_input_unknown": lambda: StreamOperatorHarness(Base(), INPUTS).send("click", {"k": "ann"}),
    "kit_input_not_of_the_operator": lambda: StreamOperatorHarness(Base(), {"click": TIMED}),
    "kit_key_is_no_column": lambda: StreamOperatorHarness(Base(), {"clicks": {"key": "key"}}),
    "kit_column_unknown": lambda: StreamOperatorHarness(Base(), INPUTS).send("clicks", {"key": "ann"}),
    "kit_element_does_not_fit": lambda: StreamOperatorHarness(Base(), INPUTS).send("clicks", {"v": "many"}),
    "kit_no_time": lambda: StreamOperatorHarness(Base(), INPUTS).send("clicks", {"t": "soon"}),
    "kit_distributes_keys": lambda: StreamOperatorHarness(Base(), {"clicks": {"key": "k", "distributed": True}}),
    "some_inputs_are_distributed": lambda: StreamOperatorHarness(Base(), {"clicks": {"distributed": True}}),
    "kit_option_unknown": lambda: StreamOperatorHarness(Base(), {"clicks": {"keys": "k"}}),
    "kit_output_unknown": lambda: StreamOperatorHarness(Base(), INPUTS).rows("outs"),
    "kit_after_the_end_of_an_input": lambda: (
        StreamOperatorHarness(Base(), INPUTS).end("clicks").send("clicks", {"k": "ann"})
    ),
    "kit_watermark_after_the_end": lambda: StreamOperatorHarness(Base(), INPUTS).end().advance_watermark("5s"),
    "kit_after_the_end": lambda: StreamOperatorHarness(Base(), INPUTS).end().send("rules", {"v": 1}),
}

# ---------------------------------------------------------------------- the tests

PARTITIONS: Mapping[str, Provocation] = {
    "too_many_partitions": lambda: check_partitions(MAX_PARTITIONS + 1, ["topic", "partition"]),
    "a_long_name_of_a_partition": lambda: check_names(["short", partition_name(["x" * MAX_NAME])], ["device"]),
}

TEXTS = FUNCTIONS | STATE | OUTPUTS | DECLARATIONS | KIT | PARTITIONS


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "ENDLESS", 100)
    """What a user's function raises is the cause."""
    error = golden.error(name, TEXTS[name])
    assert isinstance(error.__cause__, KeyError) == ("KeyError" in str(error))
