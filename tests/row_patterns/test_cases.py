"""The cases of :mod:`tests.row_patterns.cases`, by every implementation."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from asterism.row_patterns.checking import check
from asterism.row_patterns.reading import read
from tests.reference.row_patterns import BudgetError, SkipError, match_recognize
from tests.row_patterns.cases import FAILING_SKIPS, MEASURES, PATTERNS, TABLES, PatternCase, Row, TableCase, shown


@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.pattern} on {case.letters}")
def test_pattern(case: PatternCase) -> None:
    assert shown(match_recognize(case.clause, case.input)) == case.answer


@pytest.mark.parametrize("case", [*MEASURES, *TABLES], ids=lambda case: case.clause)
def test_table(case: TableCase) -> None:
    rows = match_recognize(case.clause, case.input)
    if case in MEASURES:
        rows = [{"m": row["m"]} for row in rows]
    assert [tuple(row.values()) for row in rows] == case.answer


@pytest.mark.parametrize(("pattern", "letters", "skip"), FAILING_SKIPS)
def test_search_that_cannot_go_on(pattern: str, letters: str, skip: str) -> None:
    case = PatternCase(pattern, letters, "", skip)
    with pytest.raises(SkipError):
        match_recognize(case.clause, case.input)


SCHEMAS = {
    PatternCase: pa.schema({"ts": pa.int64(), "c": pa.string()}),
    TableCase: pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()}),
}


@pytest.mark.parametrize("case", [*PATTERNS, *MEASURES, *TABLES], ids=lambda case: case.clause)
def test_clause_is_accepted_with_the_columns_of_the_answer(case: PatternCase | TableCase) -> None:
    checked = check(read(case.clause), SCHEMAS[type(case)])
    rows = match_recognize(case.clause, case.input)
    assert not rows or [name.lower() for name in checked.output.names] == [name.lower() for name in rows[0]]


def minutes(*numbers: int) -> list[Row]:
    begin = datetime(2024, 5, 1)
    return [{"ts": begin + timedelta(minutes=n), "n": n} for n in numbers]


@pytest.mark.parametrize(
    ("pattern", "times", "answer"),
    [
        ("A B", [0, 60, 121], [(0, 60)]),
        ("A X* B", [0, 30, 59, 60, 61], [(0, 60)]),
        ("A B+", [0, 61, 100, 122], [(61, 100)]),
        ("A B*", [0, 61], [(0, 0), (61, 61)]),
    ],
)
def test_within_includes_the_last_moment(pattern: str, times: list[int], answer: list[tuple[int, int]]) -> None:
    """A match from 10:00 to 11:00 lies within an hour."""
    clause = f"ORDER BY ts MEASURES FIRST(n) AS a, LAST(n) AS b PATTERN ({pattern}) WITHIN INTERVAL '1' HOUR DEFINE A AS TRUE"
    assert [tuple(row.values()) for row in match_recognize(clause, minutes(*times))] == answer


def test_search_without_end_is_given_up() -> None:
    """A condition that depends on the match makes every way to match different."""
    case = PatternCase("(A+)+ X", "a" * 40, "", define="A AS COUNT(A.*) > 0;X AS FALSE")
    with pytest.raises(BudgetError):
        match_recognize(case.clause, case.input)
