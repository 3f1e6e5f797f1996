"""Traces of clauses: their matches are those of the engine, and they say why there are no others."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism import MatchRecognize
from asterism.errors import (
    AsterismError,
    ColumnNotFoundError,
    InvalidEventError,
    LimitExceededError,
    SkipStrategyError,
    StreamDefinitionError,
)
from asterism.expressions.evaluation import tried_before
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import DialectName
from asterism.row_patterns.result_rows import match_table
from asterism.trace import Obstacle, RowPatternTrace, StartOutcome, row_search, trace_rows
from tests.row_patterns.cases import FAILING_SKIPS, PATTERNS, PatternCase
from tests.row_patterns.strategies import patterns, patterns_with_absence
from tests.row_patterns.test_cases import SCHEMAS
from tests.row_patterns.test_match_table_property import CONDITIONS, OF_THE_MATCH, SCHEMA, SKIPS, some_rows

Found = list[tuple[int, list[tuple[int, str]]]]
MEASURES = "MATCH_NUMBER() AS n, array_agg(ts) AS rows, array_agg(CLASSIFIER()) AS labels"


def by_trace(clause: str, rows: pa.Table, dialect: DialectName = "standard") -> tuple[Found, RowPatternTrace]:
    """For each match its number, and the time and variable of each row."""
    traced = trace_rows(MatchRecognize(clause, dialect), rows, explained=2)
    times = traced.rows.column("ts").to_pylist()
    found = []
    for match in traced.starts:
        if match.outcome not in (StartOutcome.MATCHED, StartOutcome.TIMED_OUT):
            continue
        assert match.match is not None
        found.append((match.match, [(times[row - 1], name) for name, some in match.took for row in some]))
    assert (
        traced.stopped
        or [*dict.fromkeys(start.row for start in traced.starts)] == [*range(1, rows.num_rows + 1)]
        or "NEXT" in clause
    )
    assert traced.text()
    return found, traced


def by_engine(clause: str, rows: pa.Table, dialect: DialectName = "standard") -> Found:
    checked = check(MatchRecognize(clause, dialect).clause, rows.schema)
    return [
        (row["n"], list(zip(row["rows"], row["labels"], strict=True)))
        for row in match_table(checked, rows).select(["n", "rows", "labels"]).to_pylist()
    ]


@pytest.mark.parametrize(
    "case", [case for case in PATTERNS if case.letters], ids=lambda case: f"{case.pattern} on {case.letters}"
)
def test_cases(case: PatternCase) -> None:
    _, _, rest = case.clause.partition("ALL ROWS PER MATCH ")
    clause = f"ORDER BY ts MEASURES {MEASURES} ONE ROW PER MATCH {rest.removeprefix(case.rows)}"
    rows = pa.Table.from_pylist(case.input, SCHEMAS[PatternCase])
    assert by_trace(clause, rows)[0] == by_engine(clause, rows)


@given(
    st.one_of(patterns("ABC"), patterns_with_absence("ABC")).filter(lambda node: len(str(node)) < 60),
    st.lists(st.sampled_from([*CONDITIONS, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows.filter(bool),
    st.sampled_from([*(f"SKIP {skip}" for skip in SKIPS), "NO SKIP"]),
    st.sampled_from(["", "", "WITHIN INTERVAL '2' SECOND"]),
    st.sampled_from(["standard", "standard", "flink"]),
    st.booleans(),
)
def test_matches_are_those_of_the_engine(
    pattern: Any, conditions: list[str], rows: list[dict[str, Any]], skip: str, within: str, dialect: DialectName,
    timeouts: bool,
) -> None:  # fmt: skip
    defined = ", ".join(
        f"{name} AS {text.format(name.lower() if 'c =' in text else name)}"
        for name, text in zip("ABC", conditions, strict=True)
        if text
    )
    table = pa.Table.from_pylist([row | {"ts": row["ts"] * 1000} for row in rows], SCHEMA)
    whole = f"{pattern} A B C" if dialect == "flink" else f"({pattern}) | $ ^ A B C"
    clause = (
        f"ORDER BY ts MEASURES {MEASURES} ONE ROW PER MATCH {'SHOW TIMEOUT MATCHES' if timeouts and within else ''}"
        f" AFTER MATCH {skip} PATTERN ({whole}) {within} SUBSET U = (A, B)"
        f" {'DEFINE ' if defined else ''}{defined}"
    )
    with tried_before():
        try:
            expected = by_engine(clause, table, dialect)
        except SkipStrategyError:
            assert "the query fails" in by_trace(clause, table, dialect)[1].stopped
            return
        except (LimitExceededError, AsterismError):
            assume(False)
        assert by_trace(clause, table, dialect)[0] == expected


@pytest.mark.parametrize(("pattern", "letters", "skip"), FAILING_SKIPS)
def test_search_that_cannot_go_on(pattern: str, letters: str, skip: str) -> None:
    case = PatternCase(pattern, letters, "", skip)
    traced = trace_rows(case.clause, pa.Table.from_pylist(case.input, SCHEMAS[PatternCase]))
    assert traced.stopped.startswith(f"AFTER MATCH SKIP {skip.split()[0]}")
    assert f"The trace stops here: {traced.stopped}" in str(traced)


PRICES = [
    {"symbol": symbol, "minute": minute, "price": price}
    for symbol, prices in (("A", [5, 6, 4, 3, 7, 6, 5]), ("B", [1, 2]))
    for minute, price in enumerate(prices)
]
FALLS = """
    PARTITION BY symbol ORDER BY minute MEASURES TOP.minute AS began, LAST(DOWN.minute) AS ended
    PATTERN (TOP DOWN{2,} UP) DEFINE DOWN AS price < PREV(price), UP AS price > TOP.price AND price < 100
"""


def test_text() -> None:
    assert (
        str(trace_rows(FALLS, PRICES, key={"symbol": "A"}))
        == """\
key symbol='A': 7 rows
1 match
closest to another match: TOP=[6] DOWN=[7];
  no more rows: the next one could have been DOWN

row 1  minute=0  price=5
  no match: TOP=[1]
  row 2 as DOWN: price < PREV(price) is false (price=6, PREV(price)=5)

row 2  minute=1  price=6
  match 1: TOP=[2] DOWN=[3 4] UP=[5]
  row 5 as DOWN: price < PREV(price) is false (price=7, PREV(price)=3)

rows 3..5: skipped after match 1 (SKIP PAST LAST ROW)

row 6  minute=5  price=6
  no match: TOP=[6] DOWN=[7]
  no more rows: the next one could have been DOWN

row 7  minute=6  price=5
  no match: TOP=[7]
  no more rows: the next one could have been DOWN"""
    )


def test_text_of_only_dropped() -> None:
    clause = "ORDER BY minute MEASURES A.minute AS m PATTERN (A B) DEFINE A AS price > 4, B AS price > A.price + 9"
    traced = trace_rows(clause, PRICES[:4])
    assert (
        traced.text(only_dropped=True, limit=1)
        == """\
4 rows
no matches
closest to a match: A=[1];
  row 2 as B: price > A.price + 9 is false (price=6, A.price=5)

row 1  minute=0  price=5
  no match: A=[1]
  row 2 as B: price > A.price + 9 is false (price=6, A.price=5)

... and 1 more row"""
    )
    assert [start.took for start in traced.starts] == [(("A", (1,)),), (("A", (2,)),), (), ()]


@pytest.mark.parametrize(
    ("clause", "row", "why", "line"),
    [
        (
            "PATTERN (A B) WITHIN INTERVAL '1' SECOND",
            1,
            Obstacle.WITHIN,
            "row 2 is too late for B (WITHIN): 2 s after the first row",
        ),
        ("PATTERN (^ A B $)", 2, Obstacle.NOT_AT_START, "row 2 is not the first row of the partition (^)"),
        ("PATTERN (A $)", 1, Obstacle.NOT_AT_END, "row 2 follows, so this is not the end of the partition ($)"),
        ("PATTERN (A{9} (B | C))", 3, Obstacle.NO_MORE_ROWS, "no more rows: the next one could have been A"),
        (
            "PATTERN (A B) DEFINE B AS price > 9 AND SUM(A.price + 1) < MAX(B.price)",
            1,
            Obstacle.CONDITION,
            "row 2 as B: price > 9 is false (price=6); SUM(A.price + 1) < MAX(B.price) is false (SUM(A.price + 1)=6,"
            " MAX(B.price)=6)",
        ),
        (
            "PATTERN (A B C) DEFINE B AS 1 / (price - 6) > 1, C AS price > 9",
            1,
            Obstacle.CONDITION,
            "row 2 as B: 1 / (price - 6) > 1 cannot be computed (price=6)",
        ),
        (
            "PATTERN (A B) DEFINE B AS PREV(price, 5) > 1",
            1,
            Obstacle.CONDITION,
            "PREV(price, 5) > 1 is not true (PREV(price, 5)=NULL)",
        ),
        (
            "PATTERN (A B) DEFINE B AS CLASSIFIER() = 'A' AND TRUE",
            1,
            Obstacle.CONDITION,
            "CLASSIFIER() = 'A' is false (CLASSIFIER()='B')",
        ),
    ],
)  # fmt: skip
def test_reasons(clause: str, row: int, why: Obstacle, line: str) -> None:
    rows = [{"ts": 2000 * n, "price": 5 + n} for n in range(4)]
    traced = trace_rows(f"ORDER BY ts MEASURES 1 AS one AFTER MATCH SKIP TO NEXT ROW {clause}", rows)
    assert why in [one.why for one in traced.starts[row - 1].tried]
    assert line in str(traced)


def test_flinks_greedy_loop_takes_the_row() -> None:
    clause = "ORDER BY ts MEASURES A.ts AS t PATTERN (A+ B) DEFINE A AS price > 1, B AS price > 5"
    rows = [{"ts": n, "price": price} for n, price in enumerate([2, 6])]
    assert len(trace_rows(clause, rows).matches) == 1
    traced = trace_rows(MatchRecognize(clause, "flink"), rows)
    assert not traced.matches
    assert "also tried: row 2 as B, but the condition of the greedy loop before is true" in str(traced)


def test_failure_in_a_row_that_matters() -> None:
    clause = "ORDER BY ts MEASURES 1 AS one PATTERN (A B) DEFINE B AS 1 / (price - 6) > 1"
    with pytest.raises(InvalidEventError):
        trace_rows(clause, [{"ts": n, "price": 5 + n} for n in range(2)])


def test_a_trace_is_bounded() -> None:
    rows = [{"ts": n, "price": n} for n in range(30)]
    clause = "ORDER BY ts MEASURES 1 AS one PATTERN ((A | B)+ C) DEFINE C AS SUM(A.price) < 0"
    with mock.patch.object(row_search, "MAX_TESTS", 300):
        traced = trace_rows(clause, rows)
    assert traced.stopped == "more than 300 steps"
    hopeless = "ORDER BY ts MEASURES 1 AS one PATTERN ((A | B)+ C) DEFINE A AS SUM(A.price) >= 0, C AS FALSE"
    with mock.patch.object(row_search, "MAX_TRIED", 5):
        traced = trace_rows(hopeless, rows[:8])
    assert not traced.stopped
    assert max(len(start.tried) for start in traced.starts) <= 16


def test_wrong_arguments() -> None:
    with pytest.raises(StreamDefinitionError) as raised:
        trace_rows(FALLS, PRICES)
    assert str(raised.value) == (
        "[STREAM_DEFINITION] the rows are of 2 partitions\n  PARTITION BY symbol\n  Hint: give a key to choose one"
    )
    with pytest.raises(ColumnNotFoundError):
        trace_rows(FALLS, PRICES, key={"isin": "A"})
    with pytest.raises(StreamDefinitionError, match="no event has the key"):
        trace_rows(FALLS, PRICES, key={"symbol": "C"})


def test_starts_as_data() -> None:
    traced = trace_rows(FALLS, PRICES, key={"symbol": "A"})
    assert [start.outcome.value for start in traced.starts[1:5]] == ["matched", *["skipped after a match"] * 3]
    [tried] = traced.starts[0].tried
    assert (tried.row, tried.variable, tried.took) == (2, "DOWN", (("TOP", (1,)),))
    assert [check.values for check in tried.checks] == [(("price", 6), ("PREV(price)", 5))]
    assert traced.closest is traced.starts[5]
    assert traced.starts[2].outcome is StartOutcome.SKIPPED
    assert "<pre>" in traced._repr_html_()
