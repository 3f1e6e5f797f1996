"""Whatever arrives in whatever pieces, the operator emits what the slow twin emits, at every watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.joins.kinds import AsOfJoin, IntervalJoin, JoinKind, WindowJoin
from asterism.joins.operator import JOINED, LATE_LEFT, LATE_RIGHT, JoinOperator
from asterism.joins.types import STREAM_JOIN_TYPES
from asterism.operators.multiple_input import Wire
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.testing import OperatorHarness
from asterism.windows.assigners import SessionWindows, SlidingWindows, TumblingWindows
from tests.kit import small_pages
from tests.reference import joins as reference
from tests.reference.joins import END, Pair, Row

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema([("number", pa.int64()), ("key", pa.string()), ("ts", TIME), ("value", pa.int64())])
RIGHT = pa.schema([("key", pa.string()), ("value", pa.int64()), ("number", pa.int64()), ("ts", TIME)])
BEFORE = -100

SETTINGS = settings(max_examples=settings().max_examples * 2)  # there are three joins of four types
Step = tuple[str, int | tuple[Row, ...]]
"""The side, and rows or a watermark."""


@dataclass(frozen=True)
class Case:
    kind: JoinKind
    how: str
    conditional: bool
    steps: tuple[Step, ...]

    def operator(self, pages: int | None = None) -> JoinOperator:
        order = ["value"] if isinstance(self.kind, AsOfJoin) else []
        return JoinOperator(
            Wire(LEFT, ["key"], "ts"), Wire(RIGHT, ["key"], "ts"), self.kind, self.how, prefix="r_", pages=pages,
            on="value <= r_value" if self.conditional else None, late=[LATE_LEFT, LATE_RIGHT], order_by=order,
        )  # fmt: skip

    def expected(self, left: Sequence[Row], right: Sequence[Row], now: int) -> list[Pair]:
        def on(row: Row, other: Row) -> bool:
            return not self.conditional or row.value <= other.value

        match self.kind:
            case IntervalJoin(lower, upper):
                return reference.interval_join(left, right, lower, upper, self.how, on, now)
            case AsOfJoin(tolerance):
                return reference.as_of_join(left, right, tolerance, self.how, on, now)
            case WindowJoin(windows):
                return reference.window_join(left, right, windows, self.how, on, now)  # type: ignore[arg-type]
        raise AssertionError(self.kind)


def micros(number: int) -> timedelta:
    return timedelta(microseconds=number)


def moment(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + micros(number)


BOUNDS = st.tuples(st.integers(-6, 6), st.integers(-6, 6)).map(sorted).map(tuple)
KINDS = st.one_of(
    st.builds(IntervalJoin, st.integers(-6, 3), st.integers(3, 6)),
    BOUNDS.map(lambda pair: IntervalJoin(*pair)),
    st.builds(AsOfJoin, st.none() | st.integers(0, 6)),
    st.integers(1, 9).map(lambda size: WindowJoin(TumblingWindows.of(micros(size)))),
    BOUNDS.map(lambda pair: WindowJoin(SlidingWindows.of(micros(abs(pair[1]) + 7), micros(abs(pair[0]) + 1)))),
    st.integers(1, 5).map(lambda gap: WindowJoin(SessionWindows.with_gap(micros(gap)))),
)


KEYS = ["a", "a", "a", "b", None]


@st.composite
def a_case(draw: st.DrawFn) -> Case:
    """Rows whose times lie around a clock that goes on, and watermarks that follow it."""
    values = iter(draw(st.permutations(range(100))))  # versions with equal times have an order
    clock, number = 0, 0
    steps: list[Step] = []
    moves = st.tuples(
        st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS), st.integers(-1, 6)), max_size=6),
        st.integers(0, 3),
        st.sampled_from(["both", "both", "left", "right", "none"]),
    )
    for rows, forward, follows in draw(st.lists(moves, min_size=2, max_size=14)):
        for is_left, key, later in rows:
            side = "left" if is_left else "right"
            row = Row(number, key, clock + later, next(values))
            number += 1
            if steps and steps[-1][0] == side and not isinstance(steps[-1][1], int):
                steps[-1] = side, (*steps[-1][1], row)
            else:
                steps.append((side, (row,)))
        clock += forward
        steps += [(side, clock) for side in ("left", "right") if follows in (side, "both")]
    kind = draw(KINDS)
    return Case(kind, draw(st.sampled_from(kind.types)), draw(st.booleans()), tuple(steps))


def table_of(side: str, rows: Sequence[Row]) -> pa.Table:
    schema = LEFT if side == "left" else RIGHT
    return pa.Table.from_pylist([row._asdict() | {"ts": moment(row.time)} for row in rows], schema)


def text_of(pair: Pair) -> str:
    window, row, other = pair
    keys = {each.key for each in (row, other) if each is not None}
    return f"{window} {[None if each is None else each.number for each in (row, other)]} {keys}"


def emitted(harness: OperatorHarness) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in harness.rows(JOINED):
        window = None
        if "window_start" in row:
            window = tuple((row[name] - moment(0)) // micros(1) for name in ("window_start", "window_end"))
        found[f"{window} {[row['number'], row.get('r_number')]} {{{row['key']!r}}}"] += 1
    return found


class Run:
    """Steps carried to a harness, compared with the slow twin after each."""

    def __init__(self, case: Case, make: Callable[[], OperatorHarness]) -> None:
        self.case, self.make, self.harness = case, make, make()
        self.marks = {"left": BEFORE, "right": BEFORE}
        self.rows: dict[str, list[Row]] = {"left": [], "right": []}
        self.late: dict[str, Counter[int]] = {"left": Counter(), "right": Counter()}

    @property
    def now(self) -> int:
        return min(self.marks.values())

    def step(self, side: str, what: int | Sequence[Row]) -> None:
        if isinstance(what, int):
            self.marks[side] = max(self.marks[side], what)
            self.harness.feed_watermark(what, side)
        else:
            for row in what:
                if row.time <= self.now:
                    self.late[side][row.number] += 1
                else:
                    self.rows[side].append(row)
            self.harness.feed(table_of(side, what), side)

    def compare(self) -> None:
        expected = Counter(map(text_of, self.case.expected(self.rows["left"], self.rows["right"], self.now)))
        assert emitted(self.harness) == expected
        for side, output in (("left", LATE_LEFT), ("right", LATE_RIGHT)):
            assert Counter(row["number"] for row in self.harness.rows(output)) == self.late[side]

    def restore(self) -> None:
        self.harness = self.make().restore(self.harness.snapshot())

    def end(self) -> None:
        self.harness.end()
        self.marks = dict.fromkeys(self.marks, END)
        self.compare()
        assert self.harness.is_empty


def harness_of(case: Case, key_groups: int = 1, pages: int | None = None) -> OperatorHarness:
    return OperatorHarness(case.operator(pages), keys=["key"], key_groups=key_groups)


@SETTINGS
@given(a_case())
def test_each_step_emits_what_the_slow_twin_emits(case: Case) -> None:
    run = Run(case, lambda: harness_of(case))
    for side, what in case.steps:
        run.step(side, what)
        run.compare()
    for time in range(
        max(run.marks.values()) + 1, max(run.marks.values()) + 16, 2
    ):  # what is due comes out without new rows
        run.step("left", time)
        run.step("right", time)
        run.compare()
    run.end()


@pytest.mark.parametrize(("key_groups", "pages", "small"), [(3, 1, False)])
@given(a_case())
def test_row_by_row_and_restored_after_each(key_groups: int, pages: int | None, small: bool, case: Case) -> None:
    with small_pages() if small else nullcontext():
        run = Run(case, lambda: harness_of(case, key_groups, pages))
        for side, what in case.steps:
            for piece in [what] if isinstance(what, int) else [(row,) for row in what]:
                run.step(side, piece)
                run.restore()
            run.compare()
        run.end()


@given(a_case(), st.integers(1, 3))
def test_any_number_of_candidates_at_once_and_rows_of_several_pages(case: Case, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asterism.joins.operator.PAIRS", at_once)
        run = Run(case, lambda: harness_of(case, pages=4))
        for side, what in case.steps:
            run.step(side, what)
        run.end()


def stored_rows(harness: OperatorHarness, operator: JoinOperator) -> int:
    from asterism.operators.state.state_store import tables_from_bytes

    schemas: list[Any] = list(operator.row_schemas.values())
    pages = [page for store in harness.stores for number, page in store.pages.items() if number < DEFINITION_PAGE]
    return sum(table.num_rows for page in pages for table in tables_from_bytes(page, schemas))


@pytest.mark.parametrize("how", STREAM_JOIN_TYPES)
@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (IntervalJoin(-5, 5), 4 * 11),
        (IntervalJoin(-10, -5), 4 * 11),
        (IntervalJoin(5, 10), 4 * 11),
        (AsOfJoin(), 2),
        (AsOfJoin(3), 2),
        (WindowJoin(TumblingWindows.of(micros(5))), 4 * 5),
        (WindowJoin(SlidingWindows.of(micros(6), micros(2))), 4 * 7),
        (WindowJoin(SessionWindows.with_gap(micros(1))), 4 * 5),
    ],
    ids=repr,
)
def test_the_state_does_not_grow(kind: JoinKind, most: int, how: str) -> None:
    if how not in kind.types:
        return
    case = Case(kind, how, False, ())
    operator = case.operator()
    harness = OperatorHarness(operator, keys=["key"])
    for time in range(25):
        if time % 5 == 4:  # so that sessions end
            continue
        for side in ("left", "right"):
            rows = [Row(time, key, time, 0) for key in ("a", "b")]
            harness.feed(table_of(side, rows), side).feed_watermark(time, side)
        assert stored_rows(harness, operator) <= most
    if not (isinstance(kind, AsOfJoin) and kind.tolerance is None):
        for side in ("left", "right"):
            harness.feed_watermark(1000, side)
        assert stored_rows(harness, operator) == 0
