"""What joins of streams promise, by example."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.time import TIME_UNIT
from asterism.errors import StateError
from asterism.joins.kinds import AsOfJoin, IntervalJoin, JoinKind, WindowJoin
from asterism.joins.operator import JOINED, LATE_LEFT, LATE_RIGHT, JoinOperator
from asterism.operators.multiple_input import Wire
from asterism.testing import OperatorHarness
from asterism.windows.assigners import SlidingWindows, TumblingWindows

ORDERS = pa.schema({"id": pa.int64(), "ts": pa.int64(), "amount": pa.int64()})
PAYMENTS = pa.schema({"order": pa.int64(), "at": pa.int64(), "paid": pa.int64()})
SECOND = timedelta(seconds=1)
HOUR = IntervalJoin.of((timedelta(0), 3600 * SECOND))
KEYS = {"left": ["id"], "right": ["order"]}


def operator(kind: JoinKind = HOUR, how: str = "inner", **options: Any) -> JoinOperator:
    return JoinOperator(Wire(ORDERS, ["id"], "ts"), Wire(PAYMENTS, ["order"], "at"), kind, how, **options)


def harness_of(kind: JoinKind = HOUR, how: str = "inner", **options: Any) -> OperatorHarness:
    return OperatorHarness(operator(kind, how, **options), keys=KEYS)


def orders(*rows: tuple[int | None, int | None, int]) -> pa.Table:
    """Id, second, amount."""
    return table(ORDERS, rows)


def payments(*rows: tuple[int | None, int | None, int]) -> pa.Table:
    return table(PAYMENTS, rows)


def table(schema: pa.Schema, rows: Sequence[tuple[int | None, int | None, int]]) -> pa.Table:
    found = [(key, None if second is None else 1000 * second, number) for key, second, number in rows]
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in found], schema)


def found(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in harness.rows(JOINED)]


def watermark(harness: OperatorHarness, second: int) -> OperatorHarness:
    for side in KEYS:
        harness.feed_watermark(second * 1_000_000, side)
    return harness


def test_a_pair_comes_out_when_the_watermark_has_passed_both_rows() -> None:
    harness = harness_of().feed(orders((1, 10, 5)), "left").feed(payments((1, 20, 5)), "right")
    assert found(watermark(harness, 19)) == []
    assert found(watermark(harness, 20)) == [(1, 10_000, 5, 20_000, 5)]


@pytest.mark.parametrize("how", ["left", "left_anti"])
def test_a_row_alone_comes_out_when_no_partner_can_come(how: str) -> None:
    harness = harness_of(IntervalJoin.of((0 * SECOND, 10 * SECOND)), how).feed(orders((1, 10, 5)), "left")
    assert found(watermark(harness, 19)) == []
    expected = (1, 10_000, 5, None, None) if how == "left" else (1, 10_000, 5)
    assert found(watermark(harness, 20)) == [expected]
    assert found(harness.end()) == [expected]


def test_a_row_without_candidates_is_decided_at_once() -> None:
    """All payments before the order are there when the order is ready."""
    harness = harness_of(IntervalJoin.of((-10 * SECOND, -5 * SECOND)), "left_anti").feed(orders((1, 10, 5)), "left")
    assert found(watermark(harness, 10)) == [(1, 10_000, 5)]


@pytest.mark.parametrize(
    ("exclusive", "times"),
    [((), [10, 15, 20]), (("lower",), [15, 20]), (("upper",), [10, 15]), (("lower", "upper"), [15])],
)
def test_bounds_belong_to_the_interval_unless_they_are_exclusive(exclusive: Sequence[str], times: list[int]) -> None:
    kind = IntervalJoin.of((0 * SECOND, 10 * SECOND), **{f"{side}_exclusive": True for side in exclusive})
    harness = harness_of(kind).feed(orders((1, 10, 5)), "left")
    harness.feed(payments((1, 9, 0), (1, 10, 0), (1, 15, 0), (1, 20, 0), (1, 21, 0)), "right").end()
    assert [row[3] // 1000 for row in found(harness)] == times


def test_a_null_equals_no_key() -> None:
    for how, expected in (
        ("inner", []),
        ("left", [(None, 0, 5, None, None)]),
        ("left_semi", []),
        ("left_anti", [(None, 0, 5)]),
    ):
        for kind in (HOUR, AsOfJoin(), WindowJoin(TumblingWindows.of(SECOND))):
            harness = (
                harness_of(kind, how).feed(orders((None, 0, 5)), "left").feed(payments((None, 0, 5)), "right").end()
            )
            assert [row[-len(expected[0]) :] if expected else row for row in found(harness)] == expected
            assert harness.is_empty


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_row_of_the_right_side_that_joins_nothing_has_its_key(how: str) -> None:
    """It comes out when no row of the left side can come that joins it: all of an hour before have come."""
    harness = harness_of(IntervalJoin.of((-10 * SECOND, 0 * SECOND)), how)
    harness.feed(payments((1, 10, 5), (2, 11, 6), (None, 12, 7)), "right").feed(orders((1, 15, 8), (3, 16, 9)), "left")
    pair, alone = (1, 15_000, 8, 10_000, 5), [(2, None, None, 11_000, 6), (None, None, None, 12_000, 7)]
    assert found(watermark(harness, 15)) == [pair]
    alone_left = [(3, 16_000, 9, None, None)] if how == "full" else []
    assert found(watermark(harness, 20)) == [pair, *alone_left]
    assert found(watermark(harness, 21))[len([pair, *alone_left]) :] == alone[:1]
    assert found(harness.end()) == [pair, *alone_left, *alone]
    assert harness.is_empty


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_row_of_the_right_side_alone_in_a_window(how: str) -> None:
    harness = harness_of(WindowJoin(SlidingWindows.of(10 * SECOND, 5 * SECOND)), how)
    harness.feed(payments((1, 7, 5)), "right").feed(orders((1, 12, 6)), "left").end()
    alone = [(10_000, 20_000, 1, 12_000, 6, None, None)] if how == "full" else []
    assert sorted(found(harness)) == sorted(
        [(0, 10_000, 1, None, None, 7000, 5), (5000, 15_000, 1, 12_000, 6, 7000, 5), *alone], key=lambda row: row[0]
    )


def test_a_semi_join_emits_a_row_once_and_forgets_it() -> None:
    harness = harness_of(HOUR, "left_semi").feed(orders((1, 0, 5)), "left")
    harness.feed(payments((1, 1, 0), (1, 2, 0), (1, 9, 0)), "right")
    assert found(watermark(harness, 3)) == [(1, 0, 5)]
    assert found(harness.end()) == [(1, 0, 5)]


def test_a_condition_reads_both_rows() -> None:
    harness = harness_of(HOUR, "left", on="paid >= amount AND at > ts")
    harness.feed(orders((1, 0, 5), (2, 0, 5)), "left").feed(payments((1, 1, 4), (1, 2, 6), (2, 0, 9)), "right").end()
    assert found(harness) == [(1, 0, 5, 2000, 6), (2, 0, 5, None, None)]


def test_a_condition_without_columns() -> None:
    for on, expected in (("true", [(1, 0, 5)]), ("1 > 2", [])):
        harness = harness_of(HOUR, "left_semi", on=on).feed(orders((1, 0, 5)), "left")
        assert found(harness.feed(payments((1, 1, 4)), "right").end()) == expected


def test_a_condition_that_is_null_is_not_satisfied() -> None:
    harness = harness_of(HOUR, "left_anti", on="nullif(paid, 4) > 0").feed(orders((1, 0, 5)), "left")
    assert found(harness.feed(payments((1, 1, 4)), "right").end()) == [(1, 0, 5)]


def test_late_rows_are_not_joined() -> None:
    harness = harness_of(HOUR, "left", late=[LATE_LEFT, LATE_RIGHT]).feed(orders((1, 10, 5)), "left")
    watermark(harness, 20)
    harness.feed(payments((1, 20, 5), (1, 21, 6)), "right").feed(orders((1, 20, 7), (3, None, 8)), "left").end()
    assert found(harness) == [(1, 10_000, 5, 21_000, 6)]
    assert [row["paid"] for row in harness.rows(LATE_RIGHT)] == [5]
    assert [row["amount"] for row in harness.rows(LATE_LEFT)] == [7, 8]
    assert harness.metrics["late_elements"] == 3


def test_a_window_begins_the_row_and_a_pair_is_in_each_of_its_windows() -> None:
    kind = WindowJoin(SlidingWindows.of(10 * SECOND, 5 * SECOND))
    harness = harness_of(kind, "left").feed(orders((1, 7, 5)), "left").feed(payments((1, 3, 6)), "right").end()
    assert found(harness) == [(0, 10_000, 1, 7000, 5, 3000, 6), (5000, 15_000, 1, 7000, 5, None, None)]


def test_the_last_version_at_or_before_the_row_is_valid() -> None:
    harness = harness_of(AsOfJoin(), "left").feed(payments((1, 5, 50), (1, 9, 90), (2, 5, 51)), "right")
    harness.feed(orders((1, 4, 0), (1, 5, 1), (1, 8, 2), (1, 9, 3), (2, 99, 4)), "left").end()
    assert sorted((row[2], row[4]) for row in found(harness)) == [(0, None), (1, 50), (2, 50), (3, 90), (4, 51)]


def test_versions_with_equal_times_have_an_order() -> None:
    for order, price in ((["paid"], 7), (["-paid"], 3), ([], 5)):
        harness = harness_of(AsOfJoin(), order_by=order).feed(payments((1, 5, 7), (1, 5, 3)), "right")
        harness.feed(payments((1, 5, 5)), "right").feed(orders((1, 6, 0)), "left").end()
        assert [row[4] for row in found(harness)] == [price]


def test_an_earlier_version_is_not_tried() -> None:
    harness = harness_of(AsOfJoin(), on="paid > 0").feed(payments((1, 5, 7), (1, 6, 0)), "right")
    assert found(harness.feed(orders((1, 7, 0)), "left").end()) == []


def test_each_side_has_times_of_its_own_type() -> None:
    left = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC")})
    right = pa.schema({"id": pa.int64(), "at": pa.int64()}, metadata={TIME_UNIT: b"seconds"})
    join = JoinOperator(Wire(left, ["id"], "ts"), Wire(right, ["id"], "at"), IntervalJoin(0, 0))
    harness = OperatorHarness(join, keys=["id"]).feed(pa.table({"id": [1], "ts": [5_000_000]}).cast(left), "left")
    assert harness.feed(pa.table({"id": [1, 1], "at": [5, 6]}), "right").end().output(JOINED)["at"].to_pylist() == [5]


def test_streams_without_a_key_are_joined() -> None:
    join = JoinOperator(Wire(ORDERS, [], "ts"), Wire(PAYMENTS, [], "at"), HOUR)
    harness = OperatorHarness(join).feed(orders((1, 0, 5), (2, 0, 6)), "left").feed(payments((7, 1, 8)), "right").end()
    assert found(harness) == [(1, 0, 5, 7, 1000, 8), (2, 0, 6, 7, 1000, 8)]


# ---------------------------------------------------------------------- changes


def continued(before: OperatorHarness, after: JoinOperator) -> OperatorHarness:
    snapshot = before.snapshot()
    snapshot.outputs.clear()
    snapshot.outputs.update({name: [] for name in after.output_schemas})
    return OperatorHarness(after, keys=KEYS).restore(snapshot)


def test_the_condition_can_change() -> None:
    before = harness_of(HOUR, "left_anti", on="paid > 5")
    watermark(before.feed(orders((1, 0, 5), (2, 0, 5)), "left").feed(payments((1, 1, 4)), "right"), 2)
    after = continued(before, operator(HOUR, "left_anti", on="paid > 3")).feed(payments((2, 3, 4)), "right")
    assert found(after.end()) == [(1, 0, 5)]


def test_columns_can_be_added_and_are_null_in_rows_of_the_state() -> None:
    narrow = pa.schema([field for field in PAYMENTS if field.name != "paid"])
    former = JoinOperator(Wire(ORDERS, ["id"], "ts"), Wire(narrow, ["order"], "at"), HOUR, "left")
    before = OperatorHarness(former, keys=KEYS).feed(payments((1, 1, 4)).drop_columns(["paid"]), "right")
    watermark(before.feed(orders((1, 0, 5)), "left"), 2)
    assert found(before) == [(1, 0, 5, 1000)]
    after = continued(before, operator(HOUR, "left")).feed(payments((1, 3, 6)), "right").end()
    assert found(after) == [(1, 0, 5, 3000, 6)]


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("what is joined", operator(IntervalJoin(0, 5), "left")),
        ("the type of the join", operator(HOUR, "left_anti")),
        ("the kind of the join", operator(AsOfJoin(), "left")),
        ("the use of processing time", JoinOperator(
            Wire(ORDERS, ["id"], "ts", 5), Wire(PAYMENTS, ["order"], "at"), HOUR, "left"
        )),
    ],
)  # fmt: skip
def test_what_the_state_depends_on_cannot_change(what: str, changed: JoinOperator) -> None:
    before = watermark(harness_of(HOUR, "left").feed(orders((1, 0, 5)), "left"), 2)
    with pytest.raises(StateError, match=f"the checkpoint cannot be continued: {what} changed"):
        continued(before, changed).feed(orders((1, 3, 5)), "left")


def test_ordered_versions_are_stored_in_the_pages_of_their_keys() -> None:
    harness = harness_of(AsOfJoin(), pages=8, order_by=["-paid"])
    watermark(harness.feed(payments(*((key, 1, key) for key in range(20))), "right"), 2)
    for key in range(20):
        watermark(harness.feed(orders((key, 3 + key, 0)), "left"), 3 + key)
    assert [(row[0], row[4]) for row in found(harness)] == [(key, key) for key in range(20)]
