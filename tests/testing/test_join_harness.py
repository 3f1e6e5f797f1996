"""Joins are run without Spark."""

from __future__ import annotations

from datetime import timedelta

import pytest

from asterism import TumblingWindows
from asterism.errors import ColumnNotFoundError, InvalidEventError, StreamDefinitionError
from asterism.testing import JoinHarness

ORDERS = {"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP"}
PRICES = {"key": "id", "time": "at", "columns": "id BIGINT, at TIMESTAMP, price INT"}


def test_rows_are_joined_step_by_step() -> None:
    join = JoinHarness.interval_join(ORDERS, PRICES, (timedelta(0), timedelta(seconds=10)), how="left")
    join.send("left", [{"id": 1, "ts": "1s"}, {"id": 2, "ts": "2s"}]).send("right", {"id": 1, "at": "11s", "price": 5})
    assert join.advance_watermark("left", "20s").results == []
    assert [(row["id"], row["price"]) for row in join.advance_watermark("right", "11s").results] == [(1, 5)]
    assert [(row["id"], row["price"]) for row in join.advance_watermark("12s").results] == [(1, 5), (2, None)]
    join.send("left", {"id": 3, "ts": "12s"})
    assert [row["id"] for row in join.late("left")] == [3]
    assert (join.late("right"), join.end().is_empty) == ([], True)


def test_a_join_without_rows_to_join_is_empty() -> None:
    join = JoinHarness.interval_join(ORDERS, PRICES, (timedelta(0), timedelta(seconds=10)))
    assert join.is_empty
    assert not join.send("left", {"id": 1, "ts": "1s"}).is_empty
    assert not join.advance_watermark("10s").is_empty
    assert join.advance_watermark("11s").is_empty


def test_versions_have_an_order() -> None:
    join = JoinHarness.as_of_join(ORDERS, {**PRICES, "order_by": ["-price"]}, tolerance=timedelta(seconds=5))
    join.send("right", [{"id": 1, "at": "1s", "price": 5}, {"id": 1, "at": "1s", "price": 7}])
    join.send("left", [{"id": 1, "ts": "6s"}, {"id": 1, "ts": "7s"}])
    assert [row["price"] for row in join.end().results] == [5]


def test_windows_are_joined() -> None:
    join = JoinHarness.window_join(ORDERS, PRICES, TumblingWindows.of(timedelta(seconds=5)), how="left_semi")
    join.send("left", [{"id": 1, "ts": "1s"}, {"id": 1, "ts": "6s"}]).send("right", {"id": 1, "at": "4s"})
    assert [row["window_start"].second for row in join.end().results] == [0]


def test_sides_are_checked() -> None:
    with pytest.raises(StreamDefinitionError, match="the sides of a join must be dicts of options, not 5"):
        JoinHarness.as_of_join(5, PRICES)  # type: ignore[arg-type]
    with pytest.raises(StreamDefinitionError, match="has no option 'order_by'"):
        JoinHarness.as_of_join({**ORDERS, "order_by": ["ts"]}, PRICES)
    with pytest.raises(ColumnNotFoundError, match="unknown column 'id'"):
        JoinHarness.as_of_join({"key": "id", "time": "ts"}, PRICES)
    with pytest.raises(InvalidEventError, match="there is no input"):
        JoinHarness.as_of_join(ORDERS, PRICES).late("middle")


def test_an_idle_side_does_not_hold_the_other_one_back() -> None:
    prices = {**PRICES, "idle_after": timedelta(seconds=30)}
    join = JoinHarness.as_of_join(ORDERS, prices).send("right", {"id": 1, "at": "1s", "price": 5})
    join.advance_watermark("right", "1s").send("left", {"id": 1, "ts": "10s"}).advance_watermark("left", "20s")
    assert join.advance_processing_time("29s").results == []
    assert [row["price"] for row in join.advance_processing_time("30s").results] == [5]
    assert [row["price"] for row in join.send("right", {"id": 1, "at": "9s", "price": 6}).late("right")] == [6]
