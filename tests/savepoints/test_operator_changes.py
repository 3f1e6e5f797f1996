"""An operator that continues with states that were renamed, widened or removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import BroadcastInput, BroadcastMapState, Input, ListState, MapState, Output, StreamOperator, ValueState
from asterism.errors import CheckpointMismatchError, StateError
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.operators import OperatorChange, _is_wider, _removed_fields
from asterism.savepoints.rows.nested import by_name
from asterism.testing import StreamOperatorHarness
from tests.savepoints.regrouping import continue_with

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WIRES: dict[str, Any] = {"orders": {"key": "user", "time": "ts"}, "limits": {}}


class Narrow(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    limits = BroadcastInput("name STRING, v INT")
    total = ValueState("INT")
    last = ListState("STRUCT<v: INT, tags: ARRAY<STRING>>")
    by_rest = MapState("INT", "FLOAT")
    limit = BroadcastMapState("STRING", "INT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.last.add({"v": e.v, "tags": ["x"]})
        self.by_rest.put(e.v % 2, (self.by_rest.get(e.v % 2) or 0.5) + e.v)

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.limit.put(e.name, e.v)


class Wide(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    limits = BroadcastInput("name STRING, v INT")
    total = ValueState("BIGINT")
    latest = ListState("STRUCT<v: BIGINT, tags: ARRAY<STRING>>")
    by_rest = MapState("BIGINT", "DOUBLE")
    bound = BroadcastMapState("STRING", "BIGINT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + 2**40 + e.v)
        tags = [each["v"] for each in self.latest.get()]
        line = f"{self.total.value()} {tags} {sorted(self.by_rest.items())} {sorted(self.bound.items())}"
        self.out.collect(line=line)

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.bound.put(e.name, e.v)


class Other(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    limits = BroadcastInput("name STRING, v INT")
    total = ListState("INT")
    by_rest = MapState("INT", "FLOAT")
    limit = BroadcastMapState("STRING", "INT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.out.collect(line=f"{self.total.get()} {sorted(self.by_rest.items())}")

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        pass


def orders(*values: int) -> pa.Table:
    schema = pa.schema([("user", "string"), ("ts", pa.timestamp("us", "UTC")), ("v", "int32")])
    rows = [{"user": "u", "ts": EPOCH + timedelta(seconds=v), "v": v} for v in values]
    return pa.Table.from_pylist(rows, schema)


def former() -> StreamOperatorHarness:
    run = StreamOperatorHarness(Narrow(), WIRES)
    run.feed(pa.table({"name": ["n"], "v": pa.array([7], pa.int32())}), "limits")
    return run.feed(orders(1, 2, 5), "orders").feed_watermark(3_000_000, "orders")


def changed(new: StreamOperator, renamed: dict[str, str] | None = None) -> tuple[list[Any], dict[str, str]]:
    """What the operator emits, and the outcome of each state."""
    old, run, outcomes = former(), StreamOperatorHarness(new, WIRES), dict[str, str]()

    class Watched(OperatorChange):
        def rows(self, rows: pa.Table) -> Any:
            made, counts = super().rows(rows)
            outcomes.update({f"{part.what} {n}": f"{part.outcome} {part.reason}".strip() for part, n in counts.items()})
            return made, counts

    def change_of(definition: StateDefinition, summary: Any) -> OperatorChange:
        return Watched(definition, run.operator, renamed)  # type: ignore[arg-type]

    continue_with(old, run, change_of)
    run.feed_watermark(9_000_000, "orders").end()
    return [row["line"] for row in run.rows("out")], outcomes


def test_states_are_renamed_and_their_types_widened() -> None:
    """The order that waited for the watermark meets the state of the others."""
    lines, outcomes = changed(Wide(), {"last": "latest", "limit": "bound"})
    assert lines == [f"{2**40 + 8} [1, 2] [(0, 2.5), (1, 1.5)] [('n', 7)]"]
    assert outcomes == {
        'entries of the state "total" 1': "continues",
        'entries of the state "last" 2': 'continues as "latest"',
        'entries of the state "by_rest" 2': "continues",
    }


def test_states_are_removed_and_of_another_kind() -> None:
    lines, outcomes = changed(Other())
    assert lines == ["[] [(0, 2.5), (1, 1.5)]"]
    assert outcomes == {
        'entries of the state "total" 1': 'dropped the state "total" was a value and is a list',
        'entries of the state "last" 2': 'dropped the state "last" was removed',
        'entries of the state "by_rest" 2': "continues",
    }


def test_what_an_operator_cannot_change() -> None:
    with pytest.raises(StateError, match="cannot be renamed"):
        changed(Wide(), {"total": "sum"})
    old, run = former(), StreamOperatorHarness(Wide(), {"orders": {"key": "v", "time": "ts"}, "limits": {}})
    with pytest.raises(CheckpointMismatchError, match="key"):
        continue_with(old, run, lambda definition, _: OperatorChange(definition, run.operator))  # type: ignore[arg-type]


class Kept(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    last = MapState("INT", "INT", ttl=timedelta(seconds=4))
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.last.put(e.v, e.v)


class KeptForever(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    last = MapState("INT", "INT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.out.collect(line=str(sorted(self.last.items())))


def in_place(old: StreamOperatorHarness, run: StreamOperatorHarness) -> None:
    run.restore(old.snapshot())


def from_savepoint(old: StreamOperatorHarness, run: StreamOperatorHarness) -> None:
    def change_of(definition: StateDefinition, summary: Any) -> OperatorChange:
        return OperatorChange(definition, run.operator, watermark=summary.watermark)  # type: ignore[arg-type]

    continue_with(old, run, change_of)


@pytest.mark.parametrize("watermark", [4, 5, 6])
def test_what_has_expired_remains_expired_without_a_time_to_live(watermark: int) -> None:
    """The page is not read while the watermark passes the expiry times of 5 and 6 seconds, so the entries are still in it."""
    wires = {"orders": WIRES["orders"]}
    old, run = (StreamOperatorHarness(operator, wires) for operator in (Kept(), KeptForever()))
    old.feed(orders(1, 2), "orders").feed_watermark(2_000_000, "orders").feed_watermark(watermark * 1_000_000, "orders")
    from_savepoint(old, run)
    run.feed(orders(9), "orders").feed_watermark(9_000_000, "orders").end()
    left = {4: "[(1, 1), (2, 2)]", 5: "[(2, 2)]", 6: "[]"}
    assert [row["line"] for row in run.rows("out")] == [left[watermark]]


class Digits(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    last = MapState("INT", "INT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.out.collect(line=str(sorted(self.last.keys())))
        self.last.put(e.v % 10, e.v)


class FleetingDigits(Digits):
    last = MapState("INT", "INT", ttl=timedelta(seconds=4))


@pytest.mark.parametrize("continued", [in_place, from_savepoint])
def test_a_time_to_live_is_switched_on(continued: Any) -> None:
    """Entries stored without one stay until they are written again, as in Flink: 1 at 11 s, and 2 never."""
    wires = {"orders": WIRES["orders"]}
    old, run = (StreamOperatorHarness(operator, wires) for operator in (Digits(), FleetingDigits()))
    old.feed(orders(1, 2), "orders").feed_watermark(2_000_000, "orders")
    continued(old, run)
    run.feed(orders(11, 14, 16, 30), "orders").feed_watermark(40_000_000, "orders").end()
    assert [row["line"] for row in run.rows("out")][-4:] == ["[1, 2]", "[1, 2]", "[2, 4]", "[2]"]


def test_a_time_to_live_is_switched_off_by_a_changed_savepoint_alone() -> None:
    """In place, what has expired could be there again."""
    wires = {"orders": WIRES["orders"]}
    old, run = (StreamOperatorHarness(operator, wires) for operator in (FleetingDigits(), Digits()))
    old.feed(orders(1), "orders").feed_watermark(2_000_000, "orders")
    in_place(old, run)
    with pytest.raises(
        CheckpointMismatchError, match='the state "last" of Digits has no time to live any more'
    ) as error:
        run.feed(orders(11), "orders").feed_watermark(40_000_000, "orders")
    assert error.value.hint == "undo this change; or continue with a changed savepoint, see change_checkpoint"


class Grown(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v INT")
    limits = BroadcastInput("name STRING, v INT")
    total = ValueState("INT")
    last = ListState("STRUCT<note: STRING, v: BIGINT>")
    by_rest = MapState("INT", "FLOAT")
    limit = BroadcastMapState("STRING", "INT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.out.collect(line=f"{self.last.get()}")

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        pass


def test_fields_of_structs_are_added_removed_and_moved() -> None:
    """As those of POJOs in Flink, but what is lost is in the plan."""
    lines, outcomes = changed(Grown())
    assert lines == ["[{'note': None, 'v': 1}, {'note': None, 'v': 2}]"]
    assert outcomes['entries of the state "last" 2'] == "continues"
    assert outcomes['values of the field "tags" of the state "last" 2'] == "dropped the field was removed"


def test_what_fields_of_structs_can_become() -> None:
    narrow = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    nested = pa.struct([("b", pa.list_(pa.struct([("d", pa.int8())]))), ("a", pa.int64())])
    assert _is_wider(narrow, nested)
    assert _removed_fields(narrow, nested) == ["b.c"]
    assert not _is_wider(narrow, pa.struct([("a", pa.string())]))
    assert not _is_wider(narrow, pa.struct([*narrow, pa.field("e", pa.int32(), nullable=False)]))
    values = pa.array([None, {"a": 1, "b": [{"c": "x"}, None]}, {"a": None, "b": None}], narrow)
    expected = [None, {"b": [{"d": None}, None], "a": 1}, {"b": None, "a": None}]
    assert by_name(values, nested).to_pylist() == expected
    assert by_name(values.slice(1), nested).to_pylist() == expected[1:]
