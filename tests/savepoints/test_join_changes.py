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
from asterism.savepoints.changes.joins import JoinChange
from asterism.testing import JoinHarness
from tests.kit import FACTOR
from tests.savepoints.regrouping import continue_with

SECOND = timedelta(seconds=1)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
SIDE: dict[str, Any] = {"columns": SCHEMA, "key": "user", "time": "ts"}
OVER = "its new bounds have passed: it ends at once"
NO_MARK = "it was stored without whether it has joined another row, which the new type needs"
ENDED = "all its windows of the new definition have ended"


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
    assert changed(old, new) == {("rows of left", "dropped", NO_MARK): 1}
    assert pairs(new.feed(rows_at((3, 4)), "left").feed(rows_at((5, 6)), "right").end()) == [(4, 6)]


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_a_type_that_filters_keeps_what_has_not_joined(how: str) -> None:
    """Of a left join, a row that has joined is over; of an inner join, no row says whether it has."""
    for former in ("left", "full", "inner", "right"):
        old, new = interval(0, 10, how=former), interval(0, 10, how=how)
        old.feed(rows_at((1, 1), (2, 2)), "left").feed(rows_at((1, 7)), "right")
        mark(old.feed(rows_at((9, 3)), "left").feed(rows_at((3, 8)), "right"), 9.5)
        assert pairs(old) == [(1, 7), (1, 8), (2, 8)]
        fates = changed(old, new)
        marks = former in ("left", "full")
        assert fates.get(("rows of left", "continues", ""), 0) == marks
        assert fates.get(("rows of left", "dropped", NO_MARK), 0) == (0 if marks else 3)
        new.feed(rows_at((11, 4)), "left").feed(rows_at((9.7, 9)), "right").end()
        expected = {"left_semi": [(3, None)], "left_anti": [(4, None)]}[how]
        assert pairs(new) == (expected if marks or how == "left_anti" else [])


@pytest.mark.parametrize("former", ["left_semi", "left_anti"])
def test_rows_of_a_type_that_filtered_have_not_joined(former: str) -> None:
    for how in ("left", "full", "inner"):
        old, new = (interval(-5, 10, how=of, on="v < r_v") for of in (former, how))
        old.feed(rows_at((1, 1), (2, 9)), "left").feed(rows_at((1.5, 7)), "right")
        mark(old, 4)
        fates = changed(old, new)
        of_right = ("dropped", NO_MARK) if how == "full" else ("continues", "")
        assert fates == {("rows of left", "continues", ""): 1, ("rows of right", *of_right): 1}
        assert JoinChange(old.operator.definition, new.operator).notes == [  # type: ignore[arg-type]
            "rows of left that have joined are not in the state: new rows do not join them"
        ]
        assert pairs(mark(new, 30)) == ([] if how == "inner" else [(9, None)])


def windowed(windows: Any, how: str = "inner") -> JoinHarness:
    return JoinHarness.window_join(SIDE, SIDE, windows, prefix="r_", how=how)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_windows_of_another_size(how: str) -> None:
    """Rows are joined in all their windows of the new definition that have not ended, whenever their page was written."""
    tumbling, sliding = TumblingWindows.of(20 * SECOND), SlidingWindows.of(10 * SECOND, 5 * SECOND)
    for late, kept in ((23, 0), (28, 1)):
        old, new = windowed(tumbling, how), windowed(sliding, how)
        old.feed(rows_at((3, 1), (late, 2)), "left").feed(rows_at((4, 5), (late, 6)), "right")
        assert pairs(mark(old, 31)) == [(1, 5)]
        fate = ("continues", "") if kept else ("dropped", ENDED)
        assert changed(old, new) == {("rows of left", *fate): 1, ("rows of right", *fate): 1}
        assert pairs(mark(new, 32)) == []
        assert pairs(mark(new, 40)) == kept * [(2, 6)]
    for windows in (sliding, TumblingWindows.of(15 * SECOND)):
        for steps in ((), (4, 12)):  # pages of the state are written at other times
            old, new = windowed(SlidingWindows.of(40 * SECOND, 10 * SECOND), how), windowed(windows, how)
            old.feed(rows_at((3, 1)), "left")
            for second in (*steps, 20):
                mark(old, second)
            assert changed(old, new) == {("rows of left", "dropped", ENDED): 1}
            assert pairs(new.end()) == []


def test_what_cannot_change() -> None:
    old, new = interval(0, 10), windowed(TumblingWindows.of(10 * SECOND))
    mark(old.feed(rows_at((1, 1)), "left"), 2)
    with pytest.raises(CheckpointMismatchError, match="the kind of the join changed"):
        changed(old, new)


def many(upper: int, how: str) -> JoinHarness:
    between = {("a", "b"): (0 * SECOND, upper * SECOND)}
    return JoinHarness.multi_join({"a": SIDE, "b": SIDE}, between, how={"b": how}, prefix={"b": "r_"})


def test_a_join_of_many_streams_says_what_is_not_reported() -> None:
    """Its state does not say whether a row has joined, so nothing is counted as dropped."""
    for how in ("inner", "left"):
        old, new = many(10, how), many(2, how)
        mark(old.feed(rows_at((1, 1)), "a").feed(rows_at((2, 5)), "b"), 5, "a", "b")
        assert pairs(old) == [(1, 5)]
        fates = changed(old, new)
        assert {outcome for _, outcome, _ in fates} == {"continues"}
        alone = "rows that end at once, and have joined no row of a left-joined input, are not reported alone"
        notes = JoinChange(old.operator.definition, new.operator).notes  # type: ignore[arg-type]
        assert (alone in notes) == (how == "left")
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
