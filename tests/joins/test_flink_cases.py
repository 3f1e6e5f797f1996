"""Inputs and results of Flink's own tests of joins: IntervalJoinITCase, RowTimeIntervalJoinTest, TemporalRowTimeJoinOperatorTest,
WindowJoinOperatorTest. Times are milliseconds.

Late rows are left out: here they are not joined, while Flink joins them as long as their partners are in its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.joins.kinds import AsOfJoin, IntervalJoin, JoinKind, WindowJoin
from asterism.joins.operator import JOINED, JoinOperator
from asterism.operators.multiple_input import Wire
from asterism.testing import OperatorHarness
from asterism.windows.assigners import TumblingWindows

LEFT = pa.schema({"key": pa.string(), "ts": pa.int64(), "name": pa.string()})
RIGHT = pa.schema({"key": pa.string(), "at": pa.int64(), "version": pa.string()})
Rows = Iterable[tuple[Any, ...]]


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def between(lower: int, upper: int, **exclusive: bool) -> IntervalJoin:
    return IntervalJoin.of((millis(lower), millis(upper)), **exclusive)


def joined(kind: JoinKind, how: str, left: Rows, right: Rows, on: str | None = None) -> list[tuple[Any, ...]]:
    """The rows without their keys and, in a window join, without the window."""
    operator = JoinOperator(Wire(LEFT, ["key"], "ts"), Wire(RIGHT, ["key"], "at"), kind, how, on=on)
    harness = OperatorHarness(operator, keys=["key"])
    for side, schema, rows in (("left", LEFT, left), ("right", RIGHT, right)):
        full = [(*row, None)[:3] for row in rows]
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in full], schema)
        harness.feed(table, side)
    found = harness.end().output(JOINED).drop_columns(["key"])
    found = found.drop_columns([name for name in found.column_names if name.startswith("window_")])
    empty = [name for name in ("name", "version") if name in found.column_names and not any(found[name].to_pylist())]
    return sorted((tuple(row.values()) for row in found.drop_columns(empty).to_pylist()), key=str)


SAME = [("key", time) for time in range(6)]
TWO_KEYS = [("key1" if time % 2 == 0 else "key2", time) for time in range(6)]
UNORDERED = (
    [("key", time) for time in (5, 1, 4, 3, 2, 9, 8, 7, 6)],
    [("key", time) for time in (2, 1, 3, 4, 5, 8, 7, 9, 6)],
)


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        (between(0, 0), SAME, SAME, [(n, n) for n in range(6)]),
        (between(0, 1), TWO_KEYS, TWO_KEYS, [(n, n) for n in range(6)]),
        (between(-1, 1), *UNORDERED, [(n, m) for n in range(1, 10) for m in (n - 1, n, n + 1) if 1 <= m <= 9]),
        (between(0, 2, lower_exclusive=True, upper_exclusive=True), SAME[:3], SAME[:3], [(0, 1), (1, 2)]),
        (between(0, 2), SAME[:3], SAME[:3], [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]),
        (
            between(-20, 10),
            [("k1", 2), ("k1", 5), ("k1", 35), ("k2", 40)],
            [("k1", 2), ("k1", 15), ("k2", 39)],
            [(2, 2), (35, 15), (40, 39), (5, 15), (5, 2)],
        ),
        (between(7, 10), [("k1", 3), ("k1", 6)], [("k1", 2), ("k1", 3), ("k1", 13)], [(3, 13), (6, 13)]),
    ],
)
def test_inner_interval_joins(kind: IntervalJoin, left: Rows, right: Rows, expected: list[tuple[int, ...]]) -> None:
    assert joined(kind, "inner", left, right) == expected


def test_a_left_interval_join() -> None:
    left = [("k1", 1), ("k1", 19), ("k1", 20), ("k1", 21), ("k2", 50), ("k2", 49)]
    right = [("k2", 1), ("k1", 26), ("k1", 25), ("k2", 39), ("k2", 40), ("k2", 41)]
    pairs = [(1, None), (19, None), (20, 25), (21, 25), (21, 26), (49, 40), (49, 41), (50, 41)]
    assert joined(between(-9, 5), "left", left, right) == pairs


VERSIONS = [("k1", 2, "1a2"), ("k2", 4, "2a4"), ("k2", 7, "2a5"), ("k2", 9, "deleted"), ("k2", 10, "2a6")]
PROBES = [("k1", 1, "1a1"), ("k1", 3, "1a3"), ("k2", 6, "2a3"), ("k2", 9, "5a11"), ("k2", 11, "5a12")]
VALID = [(11, "5a12", 10, "2a6"), (3, "1a3", 2, "1a2"), (6, "2a3", 4, "2a4")]


@pytest.mark.parametrize(("how", "alone"), [("inner", []), ("left", [(1, "1a1", None, None), (9, "5a11", None, None)])])
def test_temporal_joins(how: str, alone: list[tuple[Any, ...]]) -> None:
    """A deletion is a version that does not satisfy the condition."""
    assert joined(AsOfJoin(), how, PROBES, VERSIONS, on="version <> 'deleted'") == sorted(VALID + alone, key=str)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(14, 14), (14, 14), (2, 2), (2, 2)]),
        ("left", [(11, None), (14, 14), (14, 14), (2, 2), (2, 2), (5, None)]),
        ("left_semi", [(14,), (2,), (2,)]),
        ("left_anti", [(11,), (5,)]),
    ],
)
def test_window_joins(how: str, expected: list[tuple[int, ...]]) -> None:
    left = [("k1", time) for time in (2, 2, 5, 11, 14)]
    right = [("k1", time) for time in (2, 8, 14, 14)]
    assert joined(WindowJoin(TumblingWindows.of(millis(3))), how, left, right) == expected
