"""The cases of :mod:`tests.row_patterns.cases`, by every implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from unittest import mock

import pyarrow as pa
import pytest

from asterism.errors import LimitExceededError, SkipStrategyError
from asterism.row_patterns import search
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from asterism.testing import RowPatternHarness
from tests.reference import row_patterns as reference
from tests.reference.row_patterns import BudgetError, SkipError, match_recognize
from tests.row_patterns.cases import (
    FAILING_SKIPS,
    IDIOMS,
    MEASURES,
    PATTERNS,
    SCOPES,
    STANDARD,
    TABLES,
    PatternCase,
    Row,
    TableCase,
    shown,
)

SCHEMAS = {
    PatternCase: pa.schema({"ts": pa.int64(), "c": pa.string()}),
    TableCase: pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()}),
}


def by_engine(clause: str, rows: Sequence[Row], schema: pa.Schema) -> list[Row]:
    checked = check(read(clause), schema)
    found: list[Row] = match_table(checked, pa.Table.from_pylist(rows, schema)).to_pylist()
    return found


def by_reference(clause: str, rows: Sequence[Row], _schema: pa.Schema) -> list[Row]:
    return match_recognize(clause, rows)


Implementation = Callable[[str, Sequence[Row], pa.Schema], list[Row]]
each_implementation = pytest.mark.parametrize("answer_of", [by_reference, by_engine], ids=["reference", "engine"])


@each_implementation
@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.pattern} on {case.letters}")
def test_pattern(case: PatternCase, answer_of: Implementation) -> None:
    assert shown(answer_of(case.clause, case.input, SCHEMAS[PatternCase])) == case.answer


@each_implementation
@pytest.mark.parametrize("case", [*MEASURES, *TABLES, *STANDARD, *SCOPES, *IDIOMS], ids=lambda case: case.clause)
def test_table(case: TableCase, answer_of: Implementation) -> None:
    rows = answer_of(case.clause, case.input, SCHEMAS[TableCase])
    if case in MEASURES:
        rows = [{"m": row["m"]} for row in rows]
    assert [tuple(row.values()) for row in rows] == case.answer


@each_implementation
@pytest.mark.parametrize(("pattern", "letters", "skip"), FAILING_SKIPS)
def test_search_that_cannot_go_on(pattern: str, letters: str, skip: str, answer_of: Implementation) -> None:
    case = PatternCase(pattern, letters, "", skip)
    with pytest.raises((SkipError, SkipStrategyError)):
        answer_of(case.clause, case.input, SCHEMAS[PatternCase])


@pytest.mark.parametrize("case", [*PATTERNS, *MEASURES, *TABLES], ids=lambda case: case.clause)
def test_columns_of_the_answer(case: PatternCase | TableCase) -> None:
    checked = check(read(case.clause), SCHEMAS[type(case)])
    rows = match_recognize(case.clause, case.input)
    assert not rows or [name.lower() for name in checked.output.names] == [name.lower() for name in rows[0]]


def minutes(*numbers: int) -> list[Row]:
    begin = datetime(2024, 5, 1)
    return [{"ts": begin + timedelta(minutes=n), "n": n} for n in numbers]


@each_implementation
@pytest.mark.parametrize(
    ("pattern", "times", "answer"),
    [
        ("A B", [0, 60, 121], [(0, 60)]),
        ("A X* B", [0, 30, 59, 60, 61], [(0, 60)]),
        ("A B+", [0, 61, 100, 122], [(61, 100)]),
        ("A B*", [0, 61], [(0, 0), (61, 61)]),
    ],
)
def test_within_includes_the_last_moment(
    pattern: str, times: list[int], answer: list[tuple[int, int]], answer_of: Implementation
) -> None:
    """A match from 10:00 to 11:00 lies within an hour."""
    clause = f"ORDER BY ts MEASURES FIRST(n) AS a, LAST(n) AS b PATTERN ({pattern}) WITHIN INTERVAL '1' HOUR DEFINE A AS TRUE"
    schema = pa.schema({"ts": pa.timestamp("us"), "n": pa.int64()})
    assert [tuple(row.values()) for row in answer_of(clause, minutes(*times), schema)] == answer


@each_implementation
def test_search_without_end_is_given_up(answer_of: Implementation) -> None:
    """A condition that depends on the match makes every way to match different: here there are 2^40."""
    case = PatternCase("(X | Y)+ Z", "a" * 40, "", define="Z AS SUM(X.ts * X.ts * X.ts * X.ts * X.ts * X.ts) = -1")
    with (
        pytest.raises((BudgetError, LimitExceededError), match="steps"),
        mock.patch.object(search, "MAX_STEPS", 10_000),
        mock.patch.object(reference, "BUDGET", 10_000),
    ):
        answer_of(case.clause, case.input, SCHEMAS[PatternCase])


def test_aggregates_in_an_order() -> None:
    clause = (
        "PARTITION BY k ORDER BY ts MEASURES array_agg(A.v ORDER BY A.v DESC) AS a, FINAL first_value(v ORDER BY -v, ts) AS b,"
        " array_agg(CLASSIFIER() || v ORDER BY CLASSIFIER() DESC, v) AS c ALL ROWS PER MATCH PATTERN (A+ B)"
        " DEFINE A AS COALESCE(array_agg(v ORDER BY v)[0] > 1, TRUE), B AS TRUE"
    )
    found = by_engine(clause, TableCase("", "x:5 x:9 x:3 x:1", []).input, SCHEMAS[TableCase])
    assert [(row["a"], row["b"], row["c"]) for row in found] == [
        ([5], 9, ["A5"]),
        ([9, 5], 9, ["A5", "A9"]),
        ([9, 5, 3], 9, ["A3", "A5", "A9"]),
        ([9, 5, 3], 9, ["B1", "A3", "A5", "A9"]),
    ]


@pytest.mark.parametrize("rows", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"])
def test_measures_that_name_earlier_ones(rows: str) -> None:
    """They are what they are with the earlier measures written out. A column of the input comes first."""
    clause = "PARTITION BY k ORDER BY ts MEASURES {} {} AFTER MATCH SKIP TO NEXT ROW PATTERN (A* B??) DEFINE A AS v > 1"
    named = "COUNT(*) AS N, FINAL SUM(A.v) AS s, n + 1 AS m, s * M + v AS p, p AS q, COALESCE(s, MATCH_NUMBER()) AS c, 2 AS kk"
    written = (
        "COUNT(*) AS N, FINAL SUM(A.v) AS s, COUNT(*) + 1 AS m, FINAL SUM(A.v) * (COUNT(*) + 1) + v AS p,"
        " FINAL SUM(A.v) * (COUNT(*) + 1) + v AS q, COALESCE(FINAL SUM(A.v), MATCH_NUMBER()) AS c, 2 AS kk"
    )
    schema, input_rows = SCHEMAS[TableCase], TableCase("", "x:5 y:9 x:3 x:1 y:0 x:4 x:6 y:9 x:2", []).input
    found = by_engine(clause.format(named, rows), input_rows, schema)
    assert found == by_engine(clause.format(written, rows), input_rows, schema)
    assert len(found) > 8
    shadowed = by_engine("MEASURES COUNT(*) AS v, v AS w PATTERN (A+)", input_rows, schema)
    assert shadowed == [{"v": 9, "w": 2}]


@pytest.mark.parametrize("rows", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ONE ROW PER MATCH SHOW TIMEOUT MATCHES"])
def test_earlier_measures_and_order_by_row_by_row(rows: str) -> None:
    clause = (
        "PARTITION BY key ORDER BY ts MEASURES COUNT(*) AS n, n + 1 AS m, array_agg(A.value ORDER BY A.value DESC) AS down"
        f" {rows} PATTERN (A+ B) WITHIN INTERVAL '10' SECOND DEFINE A AS kind = 'a', B AS kind = 'b'"
    )
    text = "x.a3@1s y.a1@1s x.a9@2s x.a5@3s | x.b1@4s y.b2@5s | x.a7@20s x.a8@21s x.b2@40s |50s"
    whole, single = RowPatternHarness(clause, key_groups=2), RowPatternHarness(clause, key_groups=2)
    whole.send(text)
    for one in text.split():
        single.send(one)
    whole.end()
    single.end()
    assert single.matches == whole.matches
    found = [(row["n"], row["m"], row["down"]) for row in whole.matches]
    assert (4, 5, [9, 5, 3]) in found
    assert all(n + 1 == m and down == sorted(down, reverse=True) for n, m, down in found)
