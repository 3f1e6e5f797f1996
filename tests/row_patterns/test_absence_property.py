"""Random patterns with absence, timeouts and NO SKIP: engine and reference matcher agree, over tables and streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from asterism.errors import ExpressionSyntaxError, LimitExceededError
from asterism.expressions.evaluation import tried_before
from asterism.row_patterns import search
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.clause.clause import Exclusion
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import DROPPED, MATCHES
from asterism.row_patterns.result_rows import match_table
from tests.reference.row_patterns import BudgetError, match_recognize
from tests.row_patterns.strategies import patterns_with_absence
from tests.row_patterns.test_match_table_property import CONDITIONS, MEASURES, OF_THE_MATCH, SCHEMA, some_rows
from tests.row_patterns.test_operator import WAYS, by_key, in_pieces, streamed

SKIPS = ["SKIP PAST LAST ROW", "SKIP TO NEXT ROW", "NO SKIP", "NO SKIP"]
ROWS = [
    "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
]
NEAR = ["", "c = '{}'", "c = '{}'", "c = '{}'", "c = '{}' OR v > 3", "c <> 'a'", *CONDITIONS]


def clause_of(pattern: Any, conditions: list[str], skip: str, output: str, timeouts: bool, within: str) -> str:
    if any(isinstance(node, Exclusion) for node in pattern.walk()):
        output = output.replace(" WITH UNMATCHED ROWS", "")
    defined = ", ".join(
        f"{name} AS {text.format(name.lower() if 'c =' in text else name)}"
        for name, text in zip("ABC", conditions, strict=True)
        if text
    )
    show = " SHOW TIMEOUT MATCHES" if timeouts and within else ""
    return (
        f"PARTITION BY k ORDER BY ts MEASURES {MEASURES}, MATCH_TIMEOUT() AS late {output}{show} AFTER MATCH {skip}"
        f" PATTERN (({pattern}) | $ ^ A B C) {within} SUBSET U = (A, B) {'DEFINE ' if defined else ''}{defined}"
    )


def checked(text: str) -> CheckedClause:
    with tried_before():
        return check(read(text), SCHEMA)


@given(
    patterns_with_absence().filter(lambda node: len(str(node)) < 70),
    st.lists(st.sampled_from([*NEAR, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows,
    st.sampled_from(SKIPS),
    st.sampled_from(ROWS),
    st.booleans(),
    st.sampled_from(["", "WITHIN INTERVAL '2' SECOND", "WITHIN INTERVAL '3' SECOND", "WITHIN INTERVAL '3' SECOND"]),
    st.sampled_from([*sorted(WAYS), "cut"]),
    st.integers(1, 8),
)
def test_table_stream_and_reference_agree(
    pattern: Any, conditions: list[str], rows: list[dict[str, Any]], skip: str, output: str, timeouts: bool, within: str,
    way: str, cut: int,
) -> None:  # fmt: skip
    rows = [row | {"ts": 1000 * (row["ts"] + 1)} for row in rows]
    text = clause_of(pattern, conditions, skip, output, timeouts, within)
    try:
        clause = checked(text)
        found = match_table(clause, pa.Table.from_pylist(rows, SCHEMA))
    except ExpressionSyntaxError:  # some of the patterns are refused
        reject()
    try:
        expected = match_recognize(text, rows)
    except BudgetError:
        reject()
    assert found.to_pylist() == expected
    stream = streamed(clause, pa.Table.from_pylist(rows, SCHEMA), WAYS.get(way) or in_pieces(cut, 2 * cut))
    assert by_key(clause, stream.output(MATCHES)) == by_key(clause, found)


@given(
    patterns_with_absence().filter(lambda node: len(str(node)) < 70),
    st.lists(st.sampled_from([*NEAR, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows,
    st.sampled_from(SKIPS),
    st.booleans(),
    st.sampled_from(["", "WITHIN INTERVAL '3' SECOND"]),
    st.integers(1, 3),
    st.integers(1, 8),
)
def test_limit_does_not_depend_on_cuts(
    pattern: Any, conditions: list[str], rows: list[dict[str, Any]], skip: str, timeouts: bool, within: str, limit: int, cut: int
) -> None:  # fmt: skip
    table = pa.Table.from_pylist([row | {"ts": 1000 * (row["ts"] + 1)} for row in rows], SCHEMA)
    try:
        clause = checked(clause_of(pattern, conditions, skip, ROWS[0], timeouts, within))
        ways = [in_pieces(), WAYS["row by row"], in_pieces(cut)]
        found = [streamed(clause, table, way, max_rows=limit, on_limit="drop") for way in ways]
    except ExpressionSyntaxError:
        reject()
    answers = [(by_key(clause, one.output(MATCHES)), one.metrics[DROPPED], one.metrics[MATCHES]) for one in found]
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]


@pytest.mark.parametrize(
    ("pattern", "counts"), [("A??", [0, 1, 0, 1]), ("A*?", [0, 1, 2, 0, 1]), ("A | () | B", [1, 0, 1] * 2)]
)
def test_all_ways_are_found_after_one_that_always_matches(pattern: str, counts: list[int]) -> None:
    clause = checked(f"ORDER BY ts MEASURES COUNT(*) AS n AFTER MATCH NO SKIP PATTERN ({pattern})")
    rows = pa.Table.from_pylist([{"k": "x", "ts": n, "c": "a", "v": 1} for n in range(2)], SCHEMA)
    assert match_table(clause, rows).column("n").to_pylist() == counts


@pytest.mark.parametrize("pattern", ["(A | B)+ C", "(A | B)+", "(A? B?)+ C"])
def test_all_ways_are_limited(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are found quickly, and if none is found."""
    monkeypatch.setattr(search, "MAX_STEPS", 100_000)
    defined = "DEFINE C AS c = 'c'" if "C" in pattern else ""
    clause = checked(f"ORDER BY ts MEASURES COUNT(*) AS n AFTER MATCH NO SKIP PATTERN ({pattern}) {defined}")
    rows = pa.Table.from_pylist([{"k": "x", "ts": n, "c": "a", "v": 1} for n in range(60)], SCHEMA)
    if pattern.endswith("C"):  # failures are remembered
        assert match_table(clause, rows).num_rows == 0
        rows = pa.concat_tables([rows, pa.Table.from_pylist([{"k": "x", "ts": 99, "c": "c", "v": 1}], SCHEMA)])
    with pytest.raises(LimitExceededError, match="NO SKIP asks for all ways"):
        match_table(clause, rows)
