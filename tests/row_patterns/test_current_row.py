"""What a row tells of itself: the answer is the same as without it."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism.errors import SkipStrategyError
from asterism.operators.key_group import complete
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.operator import LATE_ROWS, MATCHES, RowPatternOperator
from asterism.row_patterns.ordered_rows import columns_beside_words
from asterism.row_patterns.result_rows import TableMatcher, match_table
from tests.reference.row_patterns import SkipError, match_recognize
from tests.row_patterns.test_match_table_property import SCHEMA, some_rows
from tests.row_patterns.test_operator import WAYS, WordsBySpark, by_key, checked_clause, in_pieces, streamed, table_of

LETTERS = pa.table({"k": ["x"] * 5, "ts": range(5), "c": ["a", "b", "x", "y", None], "v": [1, 2, 3, 4, None]}, SCHEMA)
A_X_B = "DEFINE A AS c = 'a', X AS c <> 'a', B AS c = 'b'"
X_Y = "DEFINE A AS c = 'a', X AS c <> 'b' OR v > A.v, B AS c = 'b' AND v > A.v"


def current_row(text: str) -> CurrentRow:
    clause = checked_clause(f"PARTITION BY k ORDER BY ts {text}", SCHEMA)
    return CurrentRow(clause)


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        (f"MEASURES A.v AS v PATTERN (A X* B) {A_X_B}", "xy"),
        (f"MEASURES A.v AS v PATTERN (A X*? B) {A_X_B}", "xy"),
        (f"MEASURES FIRST(v) AS v, LAST(ts) AS t PATTERN (A X* B) {A_X_B}", "xy"),
        (f"MEASURES SUM(A.v) AS v, MATCH_NUMBER() AS n PATTERN (A X* B) {A_X_B}", "xy"),
        (f"MEASURES A.v AS v AFTER MATCH SKIP TO LAST B PATTERN (A X* B) {A_X_B}", "xy"),
        (f"MEASURES A.v AS v PATTERN (A X* B) {X_Y}", "xy"),
        ("MEASURES A.v AS v PATTERN (A (X | Y)* B) DEFINE A AS c = 'a', X AS c = 'x', Y AS c = 'y', B AS c = 'b'", "xy"),
        ("MEASURES X.v AS v PATTERN (A (X | Y)* B) DEFINE A AS c = 'a', X AS c = 'x', Y AS c = 'y', B AS c = 'b'", "y"),
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', B AS c = 'b'", "xyN"),  # X takes every row
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', X AS c = 'x', B AS 1 DIV v > 0", ""),  # may fail
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', X AS c = 'x' AND v > A.v, B AS c = 'b'", ""),
        (f"MEASURES COUNT(*) AS v PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES LAST(v, 1) AS v PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES NEXT(A.v) AS v PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES LAST(CLASSIFIER(), 1) AS v PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES COUNT(X.*) AS v PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES COUNT(U.*) AS v PATTERN (A X* B) SUBSET U = (A, X) {A_X_B}", ""),
        (f"MEASURES A.v AS v AFTER MATCH SKIP TO X PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES A.v AS a ALL ROWS PER MATCH PATTERN (A X* B) {A_X_B}", ""),
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', X AS c <> 'a', B AS PREV(c) = 'x'", ""),
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', X AS c <> 'a', B AS COUNT(*) > 2", ""),
        ("MEASURES A.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', X AS c <> 'a', B AS LAST(X.v) > 2", ""),
        ("MEASURES A.v AS v PATTERN (A X*) DEFINE A AS c = 'a', X AS c <> 'a'", ""),  # the match is longer
        (f"MEASURES A.v AS v PATTERN (A X{{2}} B) {A_X_B}", ""),
        (f"MEASURES A.v AS v PATTERN (A X* $ B) {A_X_B}", ""),
        (f"MEASURES A.v AS v PATTERN ((A X* B)?) {A_X_B}", ""),  # each row begins an empty match
        ("MEASURES A.v AS v PATTERN (A B) DEFINE A AS c = 'a', B AS c = 'b'", ""),  # other rows interrupt a match
        (f"MEASURES A.v AS v PATTERN (A {{- X*? -}} [^B]) WITHIN INTERVAL '1' HOUR {A_X_B}", "xy"),
        ("MEASURES A.v AS v PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '1' HOUR DEFINE A AS c = 'a', B AS c = 'b'", "xyN"),
        (f"MEASURES A.v AS v ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A {{- X* -}} B) WITHIN INTERVAL '1' HOUR {A_X_B}",
         "xy"),
        (f"MEASURES A.v AS v ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A X* B) WITHIN INTERVAL '1' HOUR {A_X_B}", ""),
        (f"MEASURES A.v AS v AFTER MATCH NO SKIP PATTERN (A X* B) {A_X_B}", ""),
        (f"MEASURES A.v AS v PATTERN (A X* B [^A]) {A_X_B}", ""),  # the next row would be another one
        ("MEASURES A.v AS v PATTERN (A X*{Y} B) DEFINE A AS c = 'a', B AS c = 'b', Y AS c = 'y'", "xN"),
        ("MEASURES A.v AS v PATTERN (A [^Y] X* B) DEFINE A AS c = 'a', B AS c = 'b', Y AS c = 'y'", ""),
    ],
)  # fmt: skip
def test_neutral_rows(text: str, letters: str) -> None:
    found = current_row(text)
    neutral = found.neutral(found.words(LETTERS).to_numpy()).tolist()
    assert "".join(c or "N" for c, gone in zip(LETTERS["c"].to_pylist(), neutral, strict=True) if gone) == letters
    assert (found.matter_sql is None) == (not found.has_neutral)


def test_too_many_conditions_and_too_many_terms() -> None:
    many = ", ".join(f"V{n} AS v = {n}" for n in range(100))
    pattern = " ".join(f"V{n}" for n in range(100))
    bits = current_row(f"MEASURES V1.v AS v PATTERN ({pattern}) DEFINE {many}").bits
    assert [one.whole for one in bits.values()] == [True] * 63 + [False] * 37
    loops = " ".join(f"V{n} X{n}*" for n in range(40))
    found = current_row(f"MEASURES V1.v AS v PATTERN ({loops} V40) DEFINE {many.split(', V41')[0]}")
    assert (found.has_neutral, found.matter_sql) == (False, None)


# ---------------------------------------------------------------------- the fast path and the slow one

PATTERNS = [
    "A {- X*? -} [^B]", "A {- X* -} [^C] B", "A X*{C} B", "A {- X*? -} B {- X* -} [^C]", "A {- X*? -} B T",
    "A X* B", "A X*? B", "A X* B X* C", "A X* (B | C)", "(A | B X*) C", "A (X | B)* C", "A (X* B)+", "A X* B C?", "A X* A",
    "A (X | C)* B", "(A X*)+ B", "X* A X* B", "A (B X*)* C", "A X+ B", "A X* B {- X* -} C", "PERMUTE(A, B) X* C",
]  # fmt: skip
OF_X = [
    "X AS c <> 'a'", "X AS c <> 'b' OR v > 2", "X AS c = 'c'", "X AS c = 'x' OR v < A.v", "X AS NOT (c = 'a' OR c = 'b')",
    "X AS PREV(v) > 1", "X AS (c = 'c' OR v > A.v) AND v < 5", "X AS c <> 'b' AND (v > 1 OR v + 1 > A.v)",
]  # fmt: skip
OF_B = [
    "B AS c = 'b'",
    "B AS c = 'b' AND v >= A.v",
    "B AS c = 'b' AND PREV(v) > 0",
    "B AS c = 'b' AND COUNT(A.*) < 3",
    "B AS v > 3",
]
MEASURES = [
    "MATCH_NUMBER() AS n, FIRST(ts) AS first, LAST(ts) AS last, A.v AS a",
    "FIRST(v) AS v, CLASSIFIER() AS label, SUM(A.v) AS s",
    "FIRST(ts) AS first, COUNT(C.*) AS c",
    "FIRST(ts) AS first, COUNT(*) AS n",
]
SKIPS = ["PAST LAST ROW", "TO NEXT ROW", "TO LAST A", "TO LAST B"]


def expected_rows(clause: CheckedClause, rows: pa.Table) -> Any:
    """Of all rows, without bits."""
    with (
        mock.patch.object(CurrentRow, "_add", return_value=None),
        mock.patch.object(CurrentRow, "has_neutral", False),
    ):
        return match_table(clause, rows).to_pylist()


def table_with_words(clause: CheckedClause, rows: pa.Table) -> Any:
    """Of the columns that Spark passes on, with the bits."""
    found = CurrentRow(clause)
    if found.words_sql is None:
        return match_table(clause, rows).to_pylist()
    kept = rows.select([name for name in rows.column_names if name in columns_beside_words(clause, found)])
    given = complete(kept, rows.schema).append_column(WORDS, found.words(rows))
    return [row for part in TableMatcher(clause).match(given) for row in part.to_pylist()]


def test_patterns_have_neutral_rows() -> None:
    found = []
    for pattern in PATTERNS:
        within = "WITHIN INTERVAL '1' HOUR" if "[" in pattern else ""
        pattern = pattern.removesuffix(" T")
        define = ", ".join(f"{name} AS c = '{name.lower()}'" for name in sorted(set(re.findall("[ABCX]", pattern))))
        found.append(current_row(f"MEASURES FIRST(v) AS v PATTERN ({pattern}) {within} DEFINE {define}").has_neutral)
    assert sum(found) == 14


@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(OF_X),
    st.sampled_from(OF_B),
    st.sampled_from(MEASURES),
    st.sampled_from(SKIPS),
    st.sampled_from(["", "", "WITHIN INTERVAL '2' SECOND"]),
    some_rows,
    st.sampled_from([*sorted(WAYS), "cut"]),
    st.sampled_from([[MATCHES], [MATCHES, LATE_ROWS]]),
    st.sampled_from([RowPatternOperator, WordsBySpark]),
    st.integers(1, 8),
)
def test_the_answer_is_that_for_all_rows(
    pattern: str,
    x: str,
    b: str,
    measures: str,
    skip: str,
    within: str,
    words: Any,
    way: str,
    outputs: list[str],
    operator: type[RowPatternOperator],
    cut: int,
) -> None:
    timeouts = pattern.endswith(" T")
    pattern = pattern.removesuffix(" T")
    if timeouts or "[" in pattern:
        within = "WITHIN INTERVAL '2' SECOND"
    names = set(re.findall(r"\b[ABCX]\b", pattern))
    assume(skip != "TO LAST B" or "[^B]" not in pattern)
    assume({"B", "C"} & set(re.findall(r"[BC]\b", measures + skip)) <= names)
    rows = table_of(words)
    defined = [one for one in ("A AS c = 'a'", b, "C AS c = 'c' AND v > 1", x) if one[0] in names]
    text = (
        f"PARTITION BY k ORDER BY ts MEASURES {measures} ONE ROW PER MATCH"
        f"{' SHOW TIMEOUT MATCHES' if timeouts else ''} AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within}"
        f" DEFINE {', '.join(defined)}"
    )
    clause = checked_clause(text, SCHEMA)
    feed = WAYS.get(way) or in_pieces(cut, 2 * cut)
    try:
        expected = match_recognize(text, rows.to_pylist())
    except SkipError:
        with pytest.raises(SkipStrategyError):
            match_table(clause, rows)
        with pytest.raises(SkipStrategyError):
            streamed(clause, rows, feed, outputs=outputs)
        return
    assert match_table(clause, rows).to_pylist() == expected
    assert expected_rows(clause, rows) == expected
    assert table_with_words(clause, rows) == expected
    harness = streamed(clause, rows, feed, operator=operator, outputs=outputs)
    assert by_key(clause, harness.output(MATCHES)) == by_key(clause, pa.Table.from_pylist(expected, clause.output))


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_limit_does_not_depend_on_outputs_and_cuts(limit: int) -> None:
    clause = checked_clause(f"ORDER BY ts MEASURES A.ts AS t PATTERN (A X* B) {X_Y}", SCHEMA)
    words = [
        ("a", 3),
        ("x", 1),
        ("b", 1),
        ("x", 1),
        ("b", 2),
        ("x", 1),
        ("b", 3),
        ("b", 9),
        ("a", 1),
        ("y", 1),
        ("b", 5),
    ]
    rows = table_of([{"k": "x", "ts": n, "c": c, "v": v} for n, (c, v) in enumerate(words)])
    found = [
        streamed(clause, rows, feed, outputs=outputs, max_rows=limit, on_limit="drop")
        for feed in WAYS.values()
        for outputs in ([MATCHES], [MATCHES, LATE_ROWS])
    ]
    answers = {(repr(one.rows(MATCHES)), one.metrics["starts_dropped"]) for one in found}
    assert len(answers) == 1


def test_only_columns_that_are_read_later_are_exchanged() -> None:
    clause = checked_clause(f"PARTITION BY k ORDER BY ts MEASURES A.ts AS t PATTERN (A X* B) {A_X_B}", SCHEMA)
    operator = RowPatternOperator(clause, SCHEMA)
    names = operator.inputs["events"].prepared.names
    assert [name for name in names if name.startswith("e:")] == ["e:ts"]
    assert operator.columns_beside_words == ["k", "ts"]
    assert RowPatternOperator(clause, SCHEMA, outputs=[MATCHES, LATE_ROWS]).columns_beside_words == SCHEMA.names


def test_conditions_that_are_ranges_of_columns_are_spark_sql() -> None:
    of_both = current_row(f"MEASURES A.v AS v PATTERN (A X* B) {X_Y}").words_sql
    assert of_both == (
        "CAST(IF(COALESCE(`c` = 'a', FALSE), 1L, 0L) + IF(COALESCE(`c` <> 'b', FALSE), 2L, 0L)"
        " + IF(COALESCE(`c` = 'b', FALSE), 4L, 0L) AS TINYINT)"
    )


@pytest.mark.parametrize(
    ("define", "name"),
    [
        ("A AS upper(c) = 'A'", "c"),  # no range of a column
        ("A AS c = 'a' AND length(c) = 1", "c"),
        ("A AS v > PREV(v)", "c"),  # no bit
        ("A AS c = 'a'", "__WORDS"),  # Spark replaces a column with this name
    ],
)
def test_other_conditions_stay_in_python(define: str, name: str) -> None:
    schema = SCHEMA.append(pa.field(name, pa.int64())) if name != "c" else SCHEMA
    clause = checked_clause(f"ORDER BY ts MEASURES A.v AS v PATTERN (A) DEFINE {define}", schema)
    assert CurrentRow(clause).words_sql is None


def test_null_time_of_a_neutral_row() -> None:
    clause = checked_clause(f"ORDER BY ts MEASURES A.v AS v PATTERN (A X* B) WITHIN INTERVAL '1' HOUR {A_X_B}", SCHEMA)
    rows = pa.Table.from_pylist([{"k": "x", "ts": None, "c": "x", "v": 1}], SCHEMA)
    with pytest.raises(Exception, match="a time is NULL"):
        match_table(clause, rows)


def test_a_condition_may_be_repeated() -> None:
    """A bit that occurs twice in a conjunction, or in a disjunction, is one bit."""
    for condition in ("c = 'b' AND c = 'b' AND v > A.v", "(c = 'b' OR c = 'b') AND v > A.v"):
        row = current_row(f"MEASURES B.v AS v PATTERN (A X* B) DEFINE A AS c = 'a', B AS {condition}")
        possible = row.possible("B", row.words(LETTERS).to_numpy())
        assert possible.tolist() == [False, True, False, False, False], condition
