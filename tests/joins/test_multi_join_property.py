"""Whatever arrives in whatever pieces, a join of many streams emits at every watermark what joins in SQL, one by one, give."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JOINED, late_output
from asterism.operators.multiple_input import Wire
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_store import tables_from_bytes
from asterism.testing import OperatorHarness
from tests.kit import small_pages
from tests.reference import joins as reference
from tests.reference.joins import END, Bounds, Row, Rows

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("ts", TIME), ("value", pa.int64())])
KEYS = ["a", "a", "a", "a", "a", "b", None]
BEFORE = -100

Step = tuple[int, int | tuple[Row, ...]]
"""The input, and rows or a watermark."""


def moment(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)


@dataclass(frozen=True)
class Case:
    """
    :ivar conditions: by input another one before it, whose value must not be larger; itself: its value must not be 0
    """

    left: tuple[bool, ...]
    bounds: Bounds
    conditions: dict[int, int]
    steps: tuple[Step, ...]

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(len(self.left))]

    def operator(self, pages: int | None = None) -> MultiJoinOperator:
        names = self.names
        return MultiJoinOperator(
            {name: Wire(SCHEMA, ["key"], "ts") for name in names},
            {
                (names[a], names[b]): (timedelta(microseconds=lower), timedelta(microseconds=upper))
                for (a, b), (lower, upper) in self.bounds.items()
            },
            how={name: "left" for name, left in zip(names, self.left, strict=True) if left},
            on={
                names[number]: f"s{other}_value <= s{number}_value" if other != number else f"s{number}_value > 0"
                for number, other in self.conditions.items()
            },
            prefix={name: name + "_" for name in names},
            late=[late_output(name) for name in names],
            pages=pages,
        )

    def harness(self, key_groups: int = 1, pages: int | None = None) -> OperatorHarness:
        return OperatorHarness(self.operator(pages), keys=["key"], key_groups=key_groups)

    def expected(self, rows: list[list[Row]], now: int) -> Counter[Any]:
        def on(number: int, found: Rows) -> bool:
            if number not in self.conditions:
                return True
            row, other = found[number], found[self.conditions[number]]
            if self.conditions[number] == number:
                return row is not None and row.value > 0
            return row is not None and other is not None and other.value <= row.value

        found = reference.multi_join(rows, self.bounds, self.left, on, now)
        return Counter(tuple(None if row is None else row.number for row in each) for each in found)


@st.composite
def a_case(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 4))
    left = (False, *(draw(st.booleans()) for _ in range(count - 1)))
    bounds: Bounds = {}
    for number in range(1, count):
        for other in draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=2)):
            lower = draw(st.integers(-8, 3))
            bounds[other, number] = lower, lower + draw(st.integers(0, 12))
    conditions = {number: draw(st.integers(0, number)) for number in range(1, count) if draw(st.integers(0, 2)) == 0}
    clock, number = 0, 0
    steps: list[Step] = []
    moves = st.tuples(
        st.lists(
            st.tuples(
                st.integers(0, count - 1), st.sampled_from(KEYS), st.integers(-1, 6), st.integers(0, 3)
            ),
            min_size=1,
            max_size=8,
        ),
        st.integers(0, 3),
        st.sets(st.integers(0, count - 1)) | st.just(set(range(count))),
    )  # fmt: skip
    for rows, forward, follows in draw(st.lists(moves, min_size=2, max_size=8)):
        for of, key, later, value in rows:
            row = Row(number, key, clock + later, value)
            number += 1
            if steps and steps[-1][0] == of and not isinstance(steps[-1][1], int):
                steps[-1] = of, (*steps[-1][1], row)
            else:
                steps.append((of, (row,)))
        clock += forward
        steps += [(of, clock) for of in sorted(follows)]
    return Case(left, bounds, conditions, tuple(steps))


class Run:
    """Steps carried to a harness, compared with the reference."""

    def __init__(self, case: Case, *arguments: Any) -> None:
        self.case, self.arguments = case, arguments
        self.harness = case.harness(*arguments)
        self.marks = [BEFORE] * len(case.left)
        self.rows: list[list[Row]] = [[] for _ in case.left]
        self.late: list[list[int]] = [[] for _ in case.left]

    def step(self, of: int, what: int | tuple[Row, ...]) -> None:
        name = self.case.names[of]
        if isinstance(what, int):
            self.marks[of] = max(self.marks[of], what)
            self.harness.feed_watermark(what, name)
            return
        for row in what:
            if row.time <= min(self.marks):
                self.late[of].append(row.number)
            else:
                self.rows[of].append(row)
        values = [{"key": row.key, "number": row.number, "ts": moment(row.time), "value": row.value} for row in what]
        self.harness.feed(pa.Table.from_pylist(values, SCHEMA), name)

    def compare(self) -> None:
        names = self.case.names
        found = Counter(tuple(row[f"{name}_number"] for name in names) for row in self.harness.rows(JOINED))
        assert found == self.case.expected(self.rows, min(self.marks))
        for name, late in zip(names, self.late, strict=True):
            assert [row["number"] for row in self.harness.rows(late_output(name))] == late

    def restore(self) -> None:
        self.harness = self.case.harness(*self.arguments).restore(self.harness.snapshot())

    def end(self) -> None:
        self.harness.end()
        self.marks = [END] * len(self.marks)
        self.compare()
        assert self.harness.is_empty


@given(a_case())
def test_each_step_emits_what_sql_gives(case: Case) -> None:
    run = Run(case)
    for step in case.steps:
        run.step(*step)
        run.compare()
    for time in range(max(run.marks) + 1, max(run.marks) + 30, 3):  # what is known comes out without new rows
        for of in range(len(case.left)):
            run.step(of, time)
        run.compare()
    run.end()


@pytest.mark.parametrize(("key_groups", "pages", "small"), [(3, 4, False)])
@given(a_case())
def test_row_by_row_and_restored_after_each(key_groups: int, pages: int | None, small: bool, case: Case) -> None:
    with small_pages() if small else nullcontext():
        run = Run(case, key_groups, pages)
        for of, what in case.steps:
            for piece in [what] if isinstance(what, int) else [(row,) for row in what]:
                run.step(of, piece)
                run.restore()
            run.compare()
        run.end()


@given(a_case(), st.integers(1, 9))
def test_any_number_of_rows_at_once(case: Case, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asterism.joins.multi_operator.PAIRS", at_once)
        run = Run(case, 1, 4)
        for step in case.steps:
            run.step(*step)
        run.end()


@settings(max_examples=max(settings().max_examples // 2, 10))
@given(a_case())
def test_rows_are_dropped_when_no_row_to_come_can_join_them(case: Case) -> None:
    """With an inner join of each input with the first one, they are those of the longest interval after the watermark."""
    run = Run(case)
    for step in case.steps:
        run.step(*step)
    operator = case.operator()
    lengths = [max(0, *(abs(end) for each in case.bounds.values() for end in each))] * len(case.left)
    longest = sum(lengths) * 2
    for of in range(len(case.left)):
        run.step(of, max(run.marks) + longest)
    now = max(run.marks) + longest + 10
    last = tuple(Row(10_000 + n, "a", now, 0) for n in range(1))
    for of in range(len(case.left)):
        run.step(of, last)
    for of in range(len(case.left)):
        run.step(of, now)
    schemas = list(operator.row_schemas.values())
    pages = [page for store in run.harness.stores for number, page in store.pages.items() if number < DEFINITION_PAGE]
    rows = [row for page in pages for table in tables_from_bytes(page, schemas) for row in table.to_pylist()]
    assert all(row["e:number"] >= 10_000 for row in rows)
