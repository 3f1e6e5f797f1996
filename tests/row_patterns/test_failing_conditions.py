"""A condition that cannot be computed in some row matters only if the search looks at that row."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.failures import evaluated_in_parts
from asterism.errors import InvalidEventError
from asterism.row_patterns import match_conditions
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table


def matched(clause: str, values: list[int | None], texts: list[str] | None = None) -> list[dict[str, Any]]:
    texts = texts or [str(value) for value in values]
    rows = pa.table({"ts": range(len(values)), "v": pa.array(values, pa.int32()), "s": pa.array(texts, pa.string())})
    found: list[dict[str, Any]] = match_table(check(read(f"ORDER BY ts {clause}"), rows.schema), rows).to_pylist()
    return found


NUMBERS = [0, 5, 7, 0, 2, 9]


@pytest.mark.parametrize(
    ("clause", "answer"),
    [
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS 70 DIV v > 8", [2]),
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS PREV(70 DIV v) > 8", [2]),
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS 70 DIV v > A.v", [2]),
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS A.v > 0 AND 70 DIV v > 8", [2]),
        ("PATTERN (A B) DEFINE A AS v > 4, B AS A.v < 6 AND 70 DIV v > 8", [2]),
        ("PATTERN (A B) DEFINE A AS v > 4, B AS 70 DIV v > 8 AND v > 6 AND A.v < 6", [2]),
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS SUM(70 DIV v) > 8", [2]),
        ("PATTERN (A B) DEFINE A AS v BETWEEN 5 AND 6, B AS MAX(70 DIV v) > 8", [2]),
        ("PATTERN (A | B) DEFINE A AS v >= 0, B AS 70 DIV v > 8", [1] * 6),
        ("PATTERN ((A | B) C) DEFINE A AS v > 4, B AS 70 DIV v > 99, C AS FALSE", []),
    ],
)
def test_rows_that_are_not_looked_at_do_not_fail(clause: str, answer: list[int]) -> None:
    assert [row["n"] for row in matched(f"MEASURES COUNT(*) AS n {clause}", NUMBERS)] == answer


@pytest.mark.parametrize(
    "clause",
    [
        "PATTERN (A B) DEFINE A AS v > 6, B AS 70 DIV v > 8",
        "PATTERN (A B) DEFINE A AS v > 6, B AS PREV(70 DIV v, 0) > 8",
        "PATTERN (A B C) DEFINE A AS v > 6, B AS v = 0, C AS PREV(70 DIV v) > 8",
        "PATTERN (A B) DEFINE A AS v > 6, B AS 70 DIV v > A.v",
        "PATTERN (A B) DEFINE A AS v > 6, B AS A.v > 0 AND 70 DIV v > 8",
        "PATTERN (A B) DEFINE A AS v > 6, B AS SUM(70 DIV v) > 8",
        "PATTERN (A B) DEFINE A AS v > 6, B AS MIN(70 DIV v) > 8",
        "PATTERN (A B) DEFINE A AS v = 0, B AS v / A.v > 8",
        "PATTERN (A B) DEFINE B AS 2147483647 + A.v > v",
        "PATTERN (A B) DEFINE B AS SUM(9223372036854775807 - v) > 0",
    ],
)
def test_row_that_is_looked_at_fails(clause: str) -> None:
    with pytest.raises(InvalidEventError, match=r"could not be computed|does not fit"):
        matched(f"MEASURES COUNT(*) AS n {clause}", NUMBERS)


def test_text_that_is_no_number() -> None:
    """Only the row after ``b`` is looked at."""
    clause = "MEASURES B.ts AS t PATTERN (A B) DEFINE A AS s = 'b', B AS CAST(s AS INT) > 3"
    assert matched(clause, [0] * 5, ["a", "4", "b", "5", "c"]) == [{"t": 3}]
    with pytest.raises(InvalidEventError, match="CAST"):
        matched(clause, [0] * 5, ["a", "4", "b", "b", "c"])


def test_measure_is_computed_for_rows_of_matches_only() -> None:
    clause = "MEASURES LAST(70 DIV v) AS m PATTERN (A+) DEFINE A AS v > 0"
    assert matched(clause, NUMBERS) == [{"m": 10}, {"m": 7}]


def test_many_failing_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not found out which rows fail, they count as unknown; the answer is the same."""
    in_few_parts = functools.partial(evaluated_in_parts, most=1)
    monkeypatch.setattr(match_conditions, "evaluated_in_parts", in_few_parts)
    clause = "MEASURES B.v AS m PATTERN (A B) DEFINE A AS v = 5, B AS 70 DIV v = 10"
    assert matched(clause, [0, 0, 0, 5, 7, 0, 5, 9, 0, 0, 5, 7, 0]) == [{"m": 7}, {"m": 7}]
