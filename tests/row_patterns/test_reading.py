"""A clause is read as it is written."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given

from asterism.errors import ExpressionSyntaxError
from asterism.row_patterns.clause.clause import (
    Alternation,
    Clause,
    Concatenation,
    Definition,
    EmptyPattern,
    Exclusion,
    ExpressionText,
    Measure,
    OrderKey,
    PartitionEnd,
    PartitionKey,
    PartitionStart,
    PatternNode,
    Permutation,
    Quantified,
    RowsPerMatch,
    Skip,
    SkipTo,
    Subset,
    Variable,
)
from asterism.row_patterns.clause.reading import MAX_CLAUSE, read
from asterism.row_patterns.statements import StatementTokens
from tests.kit import bounded
from tests.row_patterns.strategies import patterns

A, B, C = Variable("A"), Variable("B"), Variable("C")


def pattern(text: str) -> PatternNode:
    return read(f"PATTERN ({text})").pattern


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", A),
        ("A B C", Concatenation((A, B, C))),
        ("(A) ((B C))", Concatenation((A, B, C))),
        ("A | B C", Alternation((A, Concatenation((B, C))))),
        ("A | (B | C)", Alternation((A, B, C))),
        ("(A | B) C", Concatenation((Alternation((A, B)), C))),
        ("()", EmptyPattern()),
        ("(())", EmptyPattern()),
        ("A | ()", Alternation((A, EmptyPattern()))),
        ("^A$", Concatenation((PartitionStart(), A, PartitionEnd()))),
        ("{- A B -} C", Concatenation((Exclusion(Concatenation((A, B))), C))),
        ("PERMUTE(A, B | C)", Permutation((A, Alternation((B, C))))),
        ("A*", Quantified(A, 0, None)),
        ("A+?", Quantified(A, 1, None, greedy=False)),
        ("A?", Quantified(A, 0, 1)),
        ("A??", Quantified(A, 0, 1, greedy=False)),
        ("A ? ?", Quantified(A, 0, 1, greedy=False)),
        ("A{2}", Quantified(A, 2, 2)),
        ("A{2,}", Quantified(A, 2, None)),
        ("A{,3}?", Quantified(A, 0, 3, greedy=False)),
        ("A { 2 , 3 }", Quantified(A, 2, 3)),
        ("A{,}", Quantified(A, 0, None)),
        ("(A B)+", Quantified(Concatenation((A, B)), 1, None)),
        ("(A*)+", Quantified(Quantified(A, 0, None), 1, None)),
        ("{- A -}*", Quantified(Exclusion(A), 0, None)),
        ("a `a` `b c`", Concatenation((A, Variable("a"), Variable("b c")))),
        ("permute(A, B) permute", Concatenation((Permutation((A, B)), Variable("PERMUTE")))),
        ("first next end row", Concatenation(tuple(map(Variable, ("FIRST", "NEXT", "END", "ROW"))))),
        ("A -- the first\n /* and */ B", Concatenation((A, B))),
    ],
)
def test_pattern(text: str, expected: PatternNode) -> None:
    assert pattern(text) == expected


@given(patterns())
def test_text_of_a_pattern_is_read_as_the_same_pattern(node: PatternNode) -> None:
    assert pattern(str(node)) == node


WHOLE = """MATCH_RECOGNIZE (
    PARTITION BY account, date(ts) AS day
    ORDER BY ts, amount * 2 DESC NULLS LAST
    MEASURES FINAL LAST(ts) AS until, CASE WHEN a THEN 1 END AS `my flag`
    ALL ROWS PER MATCH WITH UNMATCHED ROWS
    AFTER MATCH SKIP TO FIRST b
    PATTERN (A b+)
    WITHIN INTERVAL '1' HOUR
    SUBSET U = (A, b)
    DEFINE b AS CAST(x AS INT) > 1 AND y IN (1, 2), A AS TRUE
)"""


def test_whole_clause() -> None:
    clause = read(WHOLE)
    text = ExpressionText
    assert clause == Clause(
        WHOLE,
        Concatenation((A, Quantified(B, 1, None))),
        (PartitionKey(text("account")), PartitionKey(text("date(ts)"), "day")),
        (OrderKey(text("ts")), OrderKey(text("amount * 2"), descending=True, nulls_first=False)),
        (Measure(text("FINAL LAST(ts)"), "until"), Measure(text("CASE WHEN a THEN 1 END"), "my flag")),
        RowsPerMatch.ALL_WITH_UNMATCHED,
        Skip(SkipTo.FIRST, "B"),
        text("INTERVAL '1' HOUR"),
        (Subset("U", ("A", "B")),),
        (Definition("B", text("CAST(x AS INT) > 1 AND y IN (1, 2)")), Definition("A", text("TRUE"))),
    )


def test_positions_point_into_the_text() -> None:
    clause = read(WHOLE)
    texts = [measure.expression for measure in clause.measures] + [one.condition for one in clause.definitions]
    texts += [key.expression for key in (*clause.partition_by, *clause.order_by)]
    assert [WHOLE[one.start :].startswith(one.text) for one in texts] == [True] * len(texts)
    assert [WHOLE[node.start] for node in clause.pattern.walk()] == ["A", "A", "b", "b"]
    assert WHOLE[clause.skip.start] == "b"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", RowsPerMatch.ONE),
        ("ONE ROW PER MATCH", RowsPerMatch.ONE),
        ("all rows per match", RowsPerMatch.ALL_SHOW_EMPTY),
        ("ALL ROWS PER MATCH SHOW EMPTY MATCHES", RowsPerMatch.ALL_SHOW_EMPTY),
        ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", RowsPerMatch.ALL_OMIT_EMPTY),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS", RowsPerMatch.ALL_WITH_UNMATCHED),
    ],
)
def test_rows_per_match(text: str, rows: RowsPerMatch) -> None:
    assert read(f"{text} PATTERN (A)").rows is rows


@pytest.mark.parametrize(
    ("text", "skip"),
    [
        ("", Skip()),
        ("AFTER MATCH SKIP PAST LAST ROW", Skip(SkipTo.PAST_LAST_ROW)),
        ("AFTER MATCH SKIP TO NEXT ROW", Skip(SkipTo.NEXT_ROW)),
        ("AFTER MATCH SKIP TO FIRST a", Skip(SkipTo.FIRST, "A")),
        ("AFTER MATCH SKIP TO LAST `a`", Skip(SkipTo.LAST, "a")),
        ("AFTER MATCH SKIP TO a", Skip(SkipTo.LAST, "A")),
    ],
)
def test_skip(text: str, skip: Skip) -> None:
    assert read(f"{text} PATTERN (A)").skip == skip


def test_columns_may_be_named_like_sections() -> None:
    clause = read(
        "PARTITION BY measures ORDER BY within MEASURES A.pattern AS define PATTERN (A) DEFINE A AS subset > 1"
    )
    assert clause.partition_by[0].expression.text == "measures"
    assert clause.order_by[0].expression.text == "within"
    assert clause.measures[0].name == "define"
    assert clause.definitions[0].condition.text == "subset > 1"


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN (" + "(" * (MAX_CLAUSE // 2),
        "PATTERN (" + "A|" * (MAX_CLAUSE // 2 - 10) + "A)",
        "PATTERN (" + "{-" * (MAX_CLAUSE // 2 - 10),
        "PATTERN (" + "PERMUTE(" * (MAX_CLAUSE // 8 - 10),
        "PATTERN (" + "A? " * (MAX_CLAUSE // 3 - 10) + ")",
        "PATTERN (A{" + "9" * (MAX_CLAUSE - 20) + "})",
        "DEFINE " + "A AS x," * (MAX_CLAUSE // 7 - 10),
        "MEASURES " + "((((" * (MAX_CLAUSE // 4 - 10),
        "A" * 1_000_000,
    ],
    ids=lambda text: text[:20],
)
def test_hostile_text_is_read_or_refused_in_bounded_time(text: str) -> None:
    with bounded(), contextlib.suppress(ExpressionSyntaxError):
        read(text)


@pytest.mark.parametrize(
    ("statement", "clauses"),
    [
        ("CREATE TABLE match_recognize (i INT)", 0),
        ("CREATE TABLE IF NOT EXISTS db.match_recognize (i INT)", 0),
        ("INSERT INTO match_recognize (i) VALUES (1)", 0),
        ("WITH match_recognize (i) AS (SELECT 1) SELECT * FROM match_recognize", 0),
        ("SELECT * FROM t AS match_recognize (i)", 0),
        ("SELECT * FROM match_recognize MATCH_RECOGNIZE (PATTERN (A))", 1),
        ("SELECT * FROM t match_recognize (PATTERN (A)) AS match_recognize (i)", 1),
    ],
)
def test_tables_may_be_named_like_the_clause(statement: str, clauses: int) -> None:
    assert len(StatementTokens.read(statement).clauses) == clauses


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ("trips", ["trips"]),
        ("db.trips", ["db.trips"]),
        ("`a b`.c.trips AS `T x`", ["T x"]),
        ("(SELECT 1, 2) s (a, b)", ["s"]),
        ("(SELECT 1)", []),
        ("range(4)", []),
        ("range(4) AS r", ["r"]),
        ("VALUES (1, 2), (3, 4) AS v (a, b)", ["v"]),
        ("VALUES (1, 2), (3, 4)", []),
        ("trips TABLESAMPLE (5 ROWS)", ["trips"]),
        ("trips TABLESAMPLE (5 ROWS) AS t", ["t"]),
        ("trips MATCH_RECOGNIZE (PATTERN (A))", []),
        ("trips MATCH_RECOGNIZE (PATTERN (A)) m (a, b)", ["m"]),
        ("(a x JOIN b ON x.n = b.n) AS j", ["j"]),
        ("((a x JOIN b ON x.n = b.n))", ["x", "b"]),
        ("a x LEFT OUTER JOIN db.b ON x.n = f(b.n, 2) CROSS JOIN VALUES (1), (2) AS v", ["x", "db.b", "v"]),
        ("a NATURAL JOIN b, c AS d LEFT SEMI JOIN e USING (n)", ["a", "b", "d"]),
    ],
)
def test_names_of_tables(tables: str, names: list[str]) -> None:
    statement = StatementTokens.read(tables)
    assert [".".join(name) for name in statement.table_names(0, len(statement.tokens))] == names


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [
        ("A [^B]", "A [^B]"),
        ("A {- X*? -} [ ^ `b` ] C", "A {- X*? -} [^`b`] C"),
        ("A+{C}", "A+{C}"),
        ("A+ {c} B", "A+{C} B"),
        ("(A B){2,}?{C}", "(A B){2,}?{C}"),
        ("A*{- B -}", "A* {- B -}"),
    ],
)
def test_absence_and_until(pattern: str, normal: str) -> None:
    read_pattern = read(f"PATTERN ({pattern})").pattern
    assert str(read_pattern) == normal
    assert read(f"PATTERN ({normal})").pattern == read_pattern


def test_timeouts_and_no_skip() -> None:
    clause = read("ALL ROWS PER MATCH OMIT EMPTY MATCHES SHOW TIMEOUT MATCHES AFTER MATCH NO SKIP PATTERN (A)")
    assert (clause.timeouts, clause.rows, clause.skip) == (True, RowsPerMatch.ALL_OMIT_EMPTY, Skip(SkipTo.NO_SKIP))
    assert clause.rows_text == "ALL ROWS PER MATCH OMIT EMPTY MATCHES SHOW TIMEOUT MATCHES"
    assert (
        read("ALL ROWS PER MATCH SHOW TIMEOUT MATCHES PATTERN (A)").rows_text
        == "ALL ROWS PER MATCH SHOW TIMEOUT MATCHES"
    )
    assert read("PATTERN (A [^B] C+{D})").variables == ("A", "B", "C", "D")


@pytest.mark.parametrize(
    ("clause", "subqueries"),
    [
        ("MEASURES (SELECT max(n) FROM (SELECT 1 AS n)) AS a, (with w AS (SELECT 1) SELECT * FROM w) AS b PATTERN (A)",
         ["(SELECT max(n) FROM (SELECT 1 AS n))", "(with w AS (SELECT 1) SELECT * FROM w)"]),
        ("PATTERN (A B) DEFINE A AS n IN (SELECT 1), B AS n > (1 + (SELECT 2))", ["(SELECT 2)"]),
        ("PATTERN (SELECT A) SUBSET U = (SELECT, A) DEFINE A AS n = (SELECT.n) AND '(SELECT 1)' = (`SELECT`)", []),
    ],
)  # fmt: skip
def test_subqueries_of_a_clause(clause: str, subqueries: list[str]) -> None:
    written = f"SELECT * FROM t MATCH_RECOGNIZE ({clause})"
    statement = StatementTokens.read(written)
    places = statement.subqueries(statement.clauses[0])
    found = [written[statement.tokens[begin].start : statement.tokens[end].end + 1] for begin, end in places]
    assert found == subqueries
