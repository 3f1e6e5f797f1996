"""Joins that continue with other bounds, windows, conditions and types."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import SlidingWindows, TumblingWindows
from asterism.changes.plan import PlanPart
from asterism.errors import CheckpointMismatchError
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.join_changes import JoinChange
from asterism.testing import JoinHarness
from tests.kit import FACTOR
from tests.savepoints.regrouping import continue_with

SECOND = timedelta(seconds=1)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
SIDE: dict[str, Any] = {"columns": SCHEMA, "key": "user", "time": "ts"}
OVER = "its new bounds have passed: it ends at once"


def interval(lower: int, upper: int, **options: Any) -> JoinHarness:
    return JoinHarness.interval_join(SIDE, SIDE, (lower * SECOND, upper * SECOND), prefix="r_", **options)


def rows_at(*rows: tuple[float, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"ts": datetime.fromtimestamp(at, UTC), "user": "a", "v": v} for at, v in rows], SCHEMA
    )


def mark(run: Any, second: float, *inputs: str) -> Any:
    for name in inputs or ("left", "right"):
        run.feed_watermark(int(second * 1_000_000), name)
    return run


def changed(old: Any, new: Any) -> dict[tuple[str, str, str], int]:
    counts = Counter[PlanPart]()

    class Watched(JoinChange):
        def rows(self, rows: pa.Table) -> Any:
            made, found = super().rows(rows)
            counts.update(found)
            return made, found

    def change_of(definition: StateDefinition, summary: Any) -> JoinChange:
        return Watched(definition, new.operator, summary.watermark)

    continue_with(old, new, change_of)
    return {(part.what, part.outcome, part.reason): count for part, count in counts.items()}


def pairs(run: Any) -> list[tuple[Any, Any]]:
    return sorted(((row["v"], row.get("r_v")) for row in run.rows("results")), key=str)


def test_wider_and_narrower_bounds() -> None:
    for upper, found in ((30, [(1, 10)]), (3, [(2, 10)])):
        old, new = interval(0, 10), interval(0, upper)
        mark(old.feed(rows_at((1, 1)) if upper == 30 else rows_at((1, 1), (9, 2)), "left"), 9.5)
        fates = changed(old, new)
        assert fates[("rows of left", "continues", "")] == 1
        assert fates.get(("rows of left", "continues", OVER), 0) == (upper == 3)
        assert pairs(new.feed(rows_at((11, 10)), "right").end()) == found


def test_a_row_without_a_partner_ends_at_once() -> None:
    old, new = interval(0, 10, how="left"), interval(0, 2, how="left")
    mark(old.feed(rows_at((1, 1)), "left"), 5)
    assert changed(old, new) == {("rows of left", "continues", OVER): 1}
    assert pairs(mark(new, 6)) == [(1, None)]


def test_another_condition_and_type() -> None:
    old, new = interval(0, 10, how="left"), interval(0, 10, on="v < r_v")
    mark(old.feed(rows_at((1, 5)), "left"), 2)
    assert changed(old, new) == {("rows of left", "continues", ""): 1}
    assert pairs(new.feed(rows_at((3, 4), (4, 6)), "right").end()) == [(5, 6)]


def test_a_type_that_needs_to_know_what_has_joined() -> None:
    old, new = interval(0, 10), interval(0, 10, how="left")
    mark(old.feed(rows_at((1, 1)), "left").feed(rows_at((1, 7)), "right"), 2)
    no_mark = "it was stored without whether it has joined another row, which the new type needs"
    assert changed(old, new) == {("rows of left", "dropped", no_mark): 1}
    assert pairs(new.feed(rows_at((3, 4)), "left").feed(rows_at((5, 6)), "right").end()) == [(4, 6)]


def windowed(windows: Any) -> JoinHarness:
    return JoinHarness.window_join(SIDE, SIDE, windows, prefix="r_")


def test_windows_of_another_size() -> None:
    """Rows of windows that the former definition had joined are not in the state; the others are joined in all their windows."""
    old, new = windowed(TumblingWindows.of(20 * SECOND)), windowed(SlidingWindows.of(10 * SECOND, 5 * SECOND))
    mark(old.feed(rows_at((3, 1), (23, 2)), "left").feed(rows_at((4, 5), (24, 6)), "right"), 31)
    assert pairs(old) == [(1, 5)]
    assert changed(old, new) == {("rows of left", "continues", ""): 1, ("rows of right", "continues", ""): 1}
    assert pairs(mark(new, 32)) == [(2, 6), (2, 6)]
    old, new = (
        windowed(SlidingWindows.of(40 * SECOND, 10 * SECOND)),
        windowed(SlidingWindows.of(10 * SECOND, 5 * SECOND)),
    )
    mark(old.feed(rows_at((3, 1)), "left"), 20)
    ended = "all its windows of the new definition have ended"
    assert changed(old, new) == {("rows of left", "dropped", ended): 1}


def test_what_cannot_change() -> None:
    old, new = interval(0, 10), windowed(TumblingWindows.of(10 * SECOND))
    mark(old.feed(rows_at((1, 1)), "left"), 2)
    with pytest.raises(CheckpointMismatchError, match="the kind of the join changed"):
        changed(old, new)


def many(upper: int, how: str) -> JoinHarness:
    between = {("a", "b"): (0 * SECOND, upper * SECOND)}
    return JoinHarness.multi_join({"a": SIDE, "b": SIDE}, between, how={"b": how}, prefix={"b": "r_"})


def test_a_join_of_many_streams_says_what_is_not_reported() -> None:
    for how in ("inner", "left"):
        old, new = many(10, how), many(2, how)
        mark(old.feed(rows_at((1, 1)), "a"), 5, "a", "b")
        fates = changed(old, new)
        assert fates.pop(("rows of a", "continues", OVER)) == 1
        lost = "if it has joined no row of b: its new bounds have passed"
        assert fates == ({} if how == "inner" else {("results with a row of a alone", "dropped", lost): 1})
        assert pairs(new.end()) == []


@pytest.mark.parametrize("how", ["inner", "left", "full", "left_semi"])
def test_pairs_of_rows_that_come_later_are_those_of_a_replay(how: str) -> None:
    """With other bounds: a pair is found if its later row is passed after the change, and its earlier row was still there."""
    for seed in range(3 * FACTOR):
        rng = random.Random(f"{how} {seed}")
        times = sorted(rng.sample(range(60), 24))
        arrivals = [(at, rng.choice(["left", "right"]), number) for number, at in enumerate(times)]
        half, upper = rng.randint(4, 20), rng.choice([3, 9])
        old, new, whole = (
            interval(-5, 5, how=how),
            interval(-5, upper, how=how, key_groups=2),
            interval(-5, upper, how=how),
        )
        for number, (at, side, v) in enumerate(arrivals):
            for run in (old if number < half else new, whole):
                run.feed(rows_at((at, v)), side)
            if number == half - 1:
                mark(old, at)
                changed(old, new)
        passed = times[half - 1]
        found, expected = Counter(pairs(new.end())), Counter(pairs(whole.end()))
        at_of = dict(zip(range(24), times, strict=True))
        both = [p for p in expected if None not in p and max(at_of[n] for n in p if n is not None) > passed]
        kept = [
            p for p in both if min(at_of[n] for n in p if n is not None) > passed or abs(at_of[p[0]] - at_of[p[1]]) <= 5
        ]
        assert all(found[p] for p in kept), seed
        assert how != "inner" or not found - expected, seed
