"""Random patterns over random rows: the engine answers as the reference matcher does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from asterism.errors import SkipStrategyError
from asterism.expressions.evaluation import tried_before
from asterism.row_patterns import match_conditions, match_items, search
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import Exclusion
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.match_conditions import ConditionCompiler
from asterism.row_patterns.result_rows import match_table
from tests.reference.row_patterns import BudgetError, SkipError, match_recognize
from tests.row_patterns.strategies import patterns

SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "c": pa.string(), "v": pa.int64()})
CONDITIONS = [
    "", "c = '{}'", "c = '{}' OR v > 3", "c <> 'a'", "PREV(c) = '{}'", "NEXT(c) = c", "v > PREV(v)", "{0}.v > PREV({0}.v, 2)",
    "NEXT(v, 2) IS NULL", "v BETWEEN PREV(v) AND NEXT(v)", "FALSE",
]  # fmt: skip
OF_THE_MATCH = [
    "v > A.v", "COUNT({}.*) < 3", "SUM(v) < 8", "SUM({0}.v) <= 6 AND c <> 'c'", "LAST({0}.v, 1) IS NULL OR v >= LAST({0}.v, 1)",
    "FIRST(c) = c", "FIRST(U.v, 1) > v", "CLASSIFIER(U) = 'A'", "PREV(CLASSIFIER()) = 'B'", "NEXT(CLASSIFIER()) IS NULL",
    "MATCH_NUMBER() < 3", "AVG(U.v) > 2", "MIN(B.v) < MAX(A.v)", "MAX(c) = 'b'", "COUNT(A.v) = COUNT(*) - 1",
    "PREV(B.v) IS NULL", "NEXT(LAST(A.v), 1) > 1", "PREV(FIRST(A.c), 1) = c", "LAST(CLASSIFIER(), 1) = 'A'", "A.v + B.v > v",
    "A.c = 'a' AND v > 1", "lower(FIRST(c)) = LAST(c, 1)", "any_value(c) = 'b' OR v = 2", "max_by(c, v) = 'a' AND v < 4",
    "MAX(CLASSIFIER(U)) = 'A'", "LAST(v + MATCH_NUMBER(), 1) > 3", "C.v IN (A.v, B.v, 2)", "COUNT(*) % 2 = 1",
    "CASE WHEN A.v > 2 THEN v > 1 ELSE COUNT(*) > 1 END", "NOT (SUM(A.v) > v)", "SUM(U.v) + COUNT(*) > 4", "-SUM(v) < -2",
    "FIRST(v) > 2", "FIRST(c) = 'a' AND v > 1", "FIRST(A.v) < 3 OR MATCH_NUMBER() = 2",
    "PREV(FIRST(v), 1) = 2 AND COUNT(*) < 4",
]  # fmt: skip
MEASURES = (
    "MATCH_NUMBER() AS n, CLASSIFIER() AS label, A.v AS a, LAST(v, 1) AS l, FINAL FIRST(B.v) AS f, PREV(FIRST(A.v), 1) AS p,"
    " NEXT(CLASSIFIER()) AS x, COUNT(*) AS c1, FINAL COUNT(B.*) AS c2, SUM(U.v) AS s, MAX(CLASSIFIER(U)) AS m,"
    " LAST(U.v + MATCH_NUMBER()) AS w, 1 AS one, AVG(A.v) AS mean, MIN(v) AS low, MAX(U.v) AS high, COUNT(B.v) AS c3"
)
SKIPS = ["PAST LAST ROW", "TO NEXT ROW", "TO FIRST B", "TO LAST U", "TO A"]
ROWS = [
    "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
]


def rows_of(words: list[tuple[str, str, int | None]]) -> list[dict[str, Any]]:
    return [{"k": key, "ts": n, "c": letter, "v": value} for n, (key, letter, value) in enumerate(words)]


some_rows = st.lists(
    st.tuples(st.sampled_from("xxxy"), st.sampled_from("abc"), st.one_of(st.none(), *[st.integers(0, 5)] * 4)),
    max_size=9,
).map(rows_of)


@given(
    patterns("ABC").filter(lambda node: len(str(node)) < 60),
    st.lists(st.sampled_from([*CONDITIONS, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows,
    st.sampled_from(SKIPS),
    st.sampled_from(ROWS),
    st.sampled_from(["", "", "", "WITHIN INTERVAL '2' SECOND"]),
    st.sampled_from([1, 5, 10**6]),
    st.booleans(),
)
def test_engine_and_reference_agree(
    pattern: Any,
    conditions: list[str],
    rows: list[dict[str, Any]],
    skip: str,
    output: str,
    within: str,
    at_a_time: int,
    asks: bool,
) -> None:
    """Also when the result is made of a few rows at a time, with hardly any memory, and if *asks* without programs."""
    if any(isinstance(node, Exclusion) for node in pattern.walk()):
        output = output.replace(" WITH UNMATCHED ROWS", "")
    # All three variables must be there; what follows a pattern that is never left out is not.
    whole = f"({pattern}) | $ ^ A B C"
    defined = ", ".join(
        f"{name} AS {text.format(name.lower() if 'c =' in text else name)}"
        for name, text in zip("ABC", conditions, strict=True)
        if text
    )
    if within:
        rows = [row | {"ts": row["ts"] * 1000} for row in rows]
    clause = (
        f"PARTITION BY k ORDER BY ts MEASURES {MEASURES} {output} AFTER MATCH SKIP {skip} PATTERN ({whole}) {within}"
        f" SUBSET U = (A, B) {'DEFINE ' if defined else ''}{defined}"
    )
    with tried_before():  # the trials in DuckDB take most of the time
        checked = check(read(clause), SCHEMA)
    table = pa.Table.from_pylist(rows, SCHEMA)
    with ExitStack() as limits:
        limits.enter_context(mock.patch.object(match_items, "AT_ONCE", at_a_time))
        limits.enter_context(
            mock.patch.multiple(search, MATCHED_ROWS=at_a_time, AT_FIRST=min(at_a_time, 1024), MEMORY=at_a_time)
        )
        if asks:
            limits.enter_context(mock.patch.object(ConditionCompiler, "compiled", return_value=None))
            limits.enter_context(mock.patch.object(match_conditions, "_joint", return_value=None))
        try:
            expected = match_recognize(clause, rows)
        except BudgetError:
            reject()
        except SkipError:
            with pytest.raises(SkipStrategyError):
                match_table(checked, table)
            return
        assert match_table(checked, table).to_pylist() == expected
