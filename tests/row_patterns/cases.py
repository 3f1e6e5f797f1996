"""What MATCH_RECOGNIZE answers, as lists of cases for every implementation.

In :data:`PATTERNS` the rows are letters, one after the other, and the variable A takes the letter ``a``, B takes ``b`` and so
on; X takes every row. An answer lists the rows of the matches: ``A1 B2 | ()3 | -4`` is a match of rows 1 and 2, an empty match
at row 3, and the unmatched row 4.

In :data:`MEASURES` and :data:`TABLES` the clause is whole, and the answer is the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

Row = dict[str, Any]


class PatternCase(NamedTuple):
    pattern: str
    letters: str
    answer: str
    skip: str = "PAST LAST ROW"
    rows: str = ""
    define: str = ""
    subset: str = ""

    @property
    def clause(self) -> str:
        letters = dict.fromkeys(re.findall(r"\b[A-F]\b", self.pattern))
        defined = {one: f"c = '{one.lower()}'" for one in letters}
        for part in self.define.split(";"):
            name, _, condition = part.strip().partition(" AS ")
            defined |= {name: condition} if name else {}
        subset = f"SUBSET {self.subset}" if self.subset else ""
        define = f"DEFINE {', '.join(f'{name} AS {text}' for name, text in defined.items())}" if defined else ""
        return (
            f"ORDER BY ts MEASURES MATCH_NUMBER() AS match, CLASSIFIER() AS label ALL ROWS PER MATCH {self.rows} "
            f"AFTER MATCH SKIP {self.skip} PATTERN ({self.pattern}) {subset} {define}"
        )

    @property
    def input(self) -> list[Row]:
        return [{"ts": n + 1, "c": letter} for n, letter in enumerate(self.letters)]


def shown(rows: Sequence[Row]) -> str:
    """The result of the clause of a :class:`PatternCase` as an answer."""
    parts = []
    for (number, _), group in groupby(rows, lambda row: (row["match"], row["match"] or row["ts"])):
        words = [f"{row['label'] or '()'}{row['ts']}" for row in group]
        parts.append(" ".join(words) if number is not None else words[0].replace("()", "-"))
    return " | ".join(parts)


NEXT, OMIT, UNMATCHED = "TO NEXT ROW", "OMIT EMPTY MATCHES", "WITH UNMATCHED ROWS"

PATTERNS = [
    # one after the other, alternatives
    PatternCase("A B C", "abcxabc", "A1 B2 C3 | A5 B6 C7"),
    PatternCase("A B", "aab", "A2 B3"),
    PatternCase("A | B", "abc", "A1 | B2"),
    PatternCase("X | A", "ab", "X1 | X2"),
    PatternCase("A | X", "ab", "A1 | X2"),
    PatternCase("A B | A", "aab", "A1 | A2 B3"),
    PatternCase("A | A B", "aab", "A1 | A2"),
    PatternCase("(A | A B) C", "abc", "A1 B2 C3"),
    PatternCase("(A | B) (C | D)", "bdac", "B1 D2 | A3 C4"),
    PatternCase("A B", "", ""),
    PatternCase("A B", "a", ""),
    # quantifiers
    PatternCase("A+", "aaxa", "A1 A2 | A4"),
    PatternCase("A+?", "aa", "A1 | A2"),
    PatternCase("A*", "aaxa", "A1 A2 | ()3 | A4"),
    PatternCase("A*?", "ab", "()1 | ()2"),
    PatternCase("A?", "aab", "A1 | A2 | ()3"),
    PatternCase("A??", "a", "()1"),
    PatternCase("A{2}", "aaaaa", "A1 A2 | A3 A4"),
    PatternCase("A{2,}", "aaaxa", "A1 A2 A3"),
    PatternCase("A{2,}?", "aaaa", "A1 A2 | A3 A4"),
    PatternCase("A{2,3}", "aaaa", "A1 A2 A3"),
    PatternCase("A{2,3}", "aaaaa", "A1 A2 A3 | A4 A5"),
    PatternCase("A{2,3}?", "aaaa", "A1 A2 | A3 A4"),
    PatternCase("A{,2}", "aaa", "A1 A2 | A3"),
    PatternCase("A{,2}?", "a", "()1"),
    PatternCase("A* B", "aab", "A1 A2 B3"),
    PatternCase("X* B", "abab", "X1 X2 X3 B4"),
    PatternCase("X*? B", "abab", "X1 B2 | X3 B4"),
    PatternCase("X+ X", "abc", "X1 X2 X3"),
    PatternCase("X{2,3} X", "abc", "X1 X2 X3"),
    PatternCase("X{2,3}? X", "abcd", "X1 X2 X3"),
    PatternCase("(A B)+", "ababa", "A1 B2 A3 B4"),
    PatternCase("(A B?)+ C", "aabac", "A1 A2 B3 A4 C5"),
    PatternCase("(A | B)+ C", "abbac", "A1 B2 B3 A4 C5"),
    PatternCase("(A* B)* C", "aabbc", "A1 A2 B3 B4 C5"),
    PatternCase("(A+ | B+)+? C", "aabbc", "A1 A2 B3 B4 C5"),
    PatternCase("A? B? C?", "ac", "A1 C2"),
    # what takes no row
    PatternCase("()", "ab", "()1 | ()2"),
    PatternCase("() | A", "a", "()1"),
    PatternCase("A | ()", "ab", "A1 | ()2"),
    PatternCase("A () B", "ab", "A1 B2"),
    PatternCase("()*", "a", "()1"),
    PatternCase("()+ A", "a", "A1"),
    PatternCase("(){3,} A", "a", "A1"),
    PatternCase("(A*)*", "aab", "A1 A2 | ()3"),
    PatternCase("(A*)+", "aab", "A1 A2 | ()3"),
    PatternCase("(A?)*? B", "aab", "A1 A2 B3"),
    PatternCase("(A* | B*)*", "abba", "A1 | ()2 | ()3 | A4"),  # a repetition without a row is the last one, as in Perl
    PatternCase("(A ()*)*", "aab", "A1 A2 | ()3"),
    PatternCase("(() | A)*", "aab", "()1 | ()2 | ()3"),
    PatternCase("(() | A)+", "aab", "()1 | ()2 | ()3"),
    PatternCase("(A | ())*", "aab", "A1 A2 | ()3"),
    PatternCase("(A??)* X", "aab", "X1 | X2 | X3"),
    PatternCase("(A??){0,3} X", "aab", "X1 | X2 | X3"),
    PatternCase("(A*?){3,} X", "aab", "X1 | X2 | X3"),
    # the order of a permutation is preferred before the way in which its parts match
    PatternCase("PERMUTE(A+, B, C)", "aabc", "A1 A2 B3 C4"),
    PatternCase(
        "PERMUTE(A+, B, C)", "axcb", "A1 B2 C3 | -4", rows=UNMATCHED, define="A AS c IN ('a', 'x'); B AS c IN ('x', 'b')"
    ),
    PatternCase("(() | A)?", "a", "()1"),
    PatternCase("(() | A){2}", "aa", "()1 | ()2"),
    PatternCase("(() | A){2} B", "aab", "A1 A2 B3"),
    PatternCase("(A | B)*? C", "abc", "A1 B2 C3"),
    # the ends of the partition
    PatternCase("^ A", "aa", "A1"),
    PatternCase("A ^", "aa", ""),
    PatternCase("A $", "aa", "A2"),
    PatternCase("$ A", "aa", ""),
    PatternCase("^ X+ $", "abc", "X1 X2 X3"),
    PatternCase("^ X $", "abc", ""),
    PatternCase("^* A", "aa", "A1 | A2"),
    PatternCase("^+ | A", "aa", "()1 | A2"),
    PatternCase("A ($ | B)", "aba", "A1 B2 | A3"),
    PatternCase("(^ A | B)+", "abab", "A1 B2 | B4"),
    # any order
    PatternCase("PERMUTE(A, B)", "abba", "A1 B2 | B3 A4"),
    PatternCase("PERMUTE(A, B, C)", "cab", "C1 A2 B3"),
    PatternCase("PERMUTE(A, B, C) D", "bcacbad", "C4 B5 A6 D7"),
    PatternCase("PERMUTE(A, B+)", "bba", "B1 B2 A3"),
    PatternCase("PERMUTE(A | C, B)", "cbba", "C1 B2 | B3 A4"),
    PatternCase("PERMUTE(X, A)", "ab", "A1 X2"),
    PatternCase("PERMUTE(X, A)", "aa", "X1 A2"),
    PatternCase("PERMUTE(A?, B?)", "ba", "B1 | A2"),
    PatternCase("PERMUTE(A)+", "aa", "A1 A2"),
    # exclusion
    PatternCase("A {- B+ -} C", "abbc", "A1 C4"),
    PatternCase("{- A -} B", "ab", "B2"),
    PatternCase("{- A B -}", "abab", ""),
    PatternCase("A {- {- B -} C -} D", "abcd", "A1 D4"),
    PatternCase("(A {- B -})+", "abab", "A1 A3"),
    PatternCase("{- A -}* B", "aab", "B3"),
    PatternCase("A {- B* -}", "abba", "A1 | A4"),
    # where the next search begins
    PatternCase("A+ B", "aab", "A1 A2 B3"),
    PatternCase("A+ B", "aab", "A1 A2 B3 | A2 B3", skip=NEXT),
    PatternCase("A B+ A", "abbaba", "A1 B2 B3 A4 | A4 B5 A6", skip="TO LAST A"),
    PatternCase("X B+", "abbb", "X1 B2 B3 B4 | X2 B3 B4 | X3 B4", skip="TO FIRST B"),
    PatternCase("X B+", "abbb", "X1 B2 B3 B4", skip="TO LAST B"),
    PatternCase("X B C", "abcbc", "X1 B2 C3 | X3 B4 C5", skip="TO C"),
    PatternCase("X (B | C) D", "abdcd", "X1 B2 D3 | X3 C4 D5", skip="TO LAST U", subset="U = (C, D)"),
    PatternCase("X (B | C)+", "abcb", "X1 B2 C3 B4 | X2 C3 B4 | X3 B4", skip="TO FIRST U", subset="U = (B, C)"),
    PatternCase("A*", "aab", "A1 A2 | A2 | ()3", skip=NEXT),
    PatternCase("A* B", "aabb", "A1 A2 B3 | A2 B3 | B3 | B4", skip=NEXT),
    # which rows come out
    PatternCase("A*", "baab", "()1 | A2 A3 | ()4", rows="SHOW EMPTY MATCHES"),
    PatternCase("A*", "baab", "A2 A3", rows=OMIT),
    PatternCase("A+", "baab", "A2 A3", rows=OMIT),
    PatternCase("A+", "baab", "-1 | A2 A3 | -4", rows=UNMATCHED),
    PatternCase("A*", "baab", "()1 | A2 A3 | ()4", rows=UNMATCHED),
    PatternCase("A B", "aabb", "-1 | A2 B3 | -4", rows=UNMATCHED),
    PatternCase("A B B", "abbbabb", "A1 B2 B3 | -4 | A5 B6 B7", skip=NEXT, rows=UNMATCHED),
    # conditions on rows near the current one
    PatternCase("A B", "ab", "A1 B2", define="B AS PREV(c) = 'a'"),
    PatternCase("X", "aab", "X2", define="X AS PREV(c) = c"),
    PatternCase("X", "aab", "X1", define="X AS NEXT(X.c) = X.c"),
    PatternCase("X", "abcd", "X3 | X4", define="X AS PREV(c, 2) IS NOT NULL"),
    PatternCase("X", "abcd", "X1 | X2", define="X AS NEXT(c, 2) IS NOT NULL"),
    PatternCase("X+", "abcd", "X1 X2 X3 X4", define="X AS PREV(c, 0) = c"),
    PatternCase("X+", "aab", "X1 X2 X3", define="X AS PREV(c, 10000) IS NULL"),
    PatternCase("X", "ab", "", define="X AS NULL"),
    PatternCase("X", "ab", "", define="X AS PREV(c) = NEXT(c)"),
    # conditions on the match so far
    PatternCase("A X", "aabb", "A1 X2", define="X AS X.c = A.c"),
    PatternCase("A X", "abba", "", define="X AS c = A.c"),
    PatternCase("X B", "ab", "X1 B2", define="X AS B.c IS NULL"),
    PatternCase("A+ X", "aab", "A1 A2 X3", define="X AS FIRST(A.ts) = 1"),
    PatternCase("X+ B", "aabb", "X1 X2 B3", define="X AS COUNT(X.*) < 3"),
    PatternCase("X+ B", "abab", "X1 B2 | X3 B4", define="X AS SUM(X.ts) < 6"),
    PatternCase("(A | X)+ B", "acb", "A1 X2 B3", define="X AS COUNT(A.*) = 1 AND COUNT(X.*) = 1"),
    PatternCase("(A | X)+", "aaa", "A1 X2 A3", define="A AS COUNT(*) % 2 = 1"),
    PatternCase("(X | Y)+ C", "abc", "X1 Y2 C3", define="X AS COUNT(X.*) = 1;Y AS CLASSIFIER() = 'Y' AND LAST(X.ts) = 1"),
    PatternCase("X+ Y", "abc", "X1 X2 Y3", define="X AS LAST(ts, 1) IS NULL OR ts = LAST(ts, 1) + 1;Y AS X.ts = 2"),
    PatternCase("X Y", "abab", "X1 Y2", define="X AS MATCH_NUMBER() = 1"),
    PatternCase("(X | Y)* Z", "aa", "X1 Z2", define="Z AS ts = X.ts + 1"),
    PatternCase("(X | Y)* Z", "aa", "Y1 Z2", define="Z AS ts = Y.ts + 1"),
    PatternCase("X Y", "ab", "", define="Y AS NEXT(CLASSIFIER()) = 'Y'"),
    PatternCase("X Y", "ab", "X1 Y2", define="Y AS PREV(CLASSIFIER()) = 'X'"),
    PatternCase("(A | B)+ X", "abab", "A1 B2 A3 X4", define="X AS CLASSIFIER(U) = 'A' AND COUNT(U.*) = 3", subset="U = (A, B)"),
    PatternCase("X Y Z", "aab", "X1 Y2 Z3", define="Z AS PREV(FIRST(X.c)) IS NULL AND NEXT(FIRST(X.c), 2) = 'b'"),
    # an exponential number of ways
    PatternCase("(A+)+ B", "a" * 24, ""),
    PatternCase("(A | A)* B", "a" * 24, ""),
    PatternCase("(A* A*)* B", "a" * 24 + "b", " ".join(f"A{n + 1}" for n in range(24)) + " B25"),
    PatternCase("A? A? A? A? A? A? A? A? A A A A A A A A", "a" * 8, " ".join(f"A{n + 1}" for n in range(8))),
]  # fmt: skip


class TableCase(NamedTuple):
    """*values* are the rows: ``k`` and ``v`` of each word ``k:v`` or ``v``, and its number ``ts``; ``-`` is NULL."""

    clause: str
    values: str
    answer: list[tuple[Any, ...]]

    @property
    def input(self) -> list[Row]:
        rows = []
        for n, word in enumerate(self.values.split()):
            key, _, value = word.rpartition(":")
            rows.append({"k": key or "x", "ts": n + 1, "v": None if value == "-" else int(value)})
        return rows


def measured(measure: str, pattern: str = "X+", define: str = "", rows: str = "ALL ROWS PER MATCH") -> str:
    subset = "SUBSET U = (A, B)" if "B" in pattern and "U" in measure else ""
    return f"ORDER BY ts MEASURES {measure} AS m {rows} PATTERN ({pattern}) {subset} {define}"


ABBA = "(A | B)+", "DEFINE A AS v > 0, B AS v <= 0"

MEASURES = [
    # (measure, values, what it is for each row, or None for one row per match)
    *[
        TableCase(measured(measure, *ABBA), "1 0 -2 5", [(value,) for value in answer])
        for measure, answer in [
            ("v", [1, 0, -2, 5]),
            ("A.v", [1, 1, 1, 5]),
            ("B.v", [None, 0, -2, -2]),
            ("U.v", [1, 0, -2, 5]),
            ("LAST(v)", [1, 0, -2, 5]),
            ("RUNNING LAST(v)", [1, 0, -2, 5]),
            ("FINAL LAST(v)", [5, 5, 5, 5]),
            ("FINAL LAST(B.v)", [-2, -2, -2, -2]),
            ("FIRST(v)", [1, 1, 1, 1]),
            ("FIRST(B.v)", [None, 0, 0, 0]),
            ("FINAL FIRST(B.v)", [0, 0, 0, 0]),
            ("LAST(v, 1)", [None, 1, 0, -2]),
            ("LAST(A.v, 1)", [None, None, None, 1]),
            ("FIRST(v, 2)", [None, None, -2, -2]),
            ("FINAL FIRST(v, 2)", [-2, -2, -2, -2]),
            ("FINAL LAST(v, 9)", [None, None, None, None]),
            ("PREV(v)", [None, 1, 0, -2]),
            ("NEXT(v)", [0, -2, 5, None]),
            ("PREV(A.v)", [None, None, None, -2]),
            ("NEXT(FIRST(v), 2)", [-2, -2, -2, -2]),
            ("PREV(FINAL LAST(B.v))", [0, 0, 0, 0]),
            ("NEXT(LAST(v, 1), 1)", [None, 0, -2, 5]),
            ("CLASSIFIER()", ["A", "B", "B", "A"]),
            ("CLASSIFIER(B)", [None, "B", "B", "B"]),
            ("FINAL LAST(CLASSIFIER(U), 1)", ["B", "B", "B", "B"]),
            ("PREV(CLASSIFIER())", [None, "A", "B", "B"]),
            ("NEXT(CLASSIFIER())", ["B", "B", "A", None]),
            ("MATCH_NUMBER() * 10", [10, 10, 10, 10]),
            ("COUNT(*)", [1, 2, 3, 4]),
            ("FINAL COUNT(*)", [4, 4, 4, 4]),
            ("COUNT(B.*)", [0, 1, 2, 2]),
            ("SUM(v)", [1, 1, -1, 4]),
            ("SUM(B.v)", [None, 0, -2, -2]),
            ("FINAL SUM(A.v) - SUM(A.v)", [5, 5, 5, 0]),
            ("AVG(A.v)", [1.0, 1.0, 1.0, 3.0]),
            ("MIN(U.v)", [1, 0, -2, -2]),
            ("MAX(v + MATCH_NUMBER())", [2, 2, 2, 6]),
            ("MAX(CLASSIFIER())", ["A", "B", "B", "B"]),
            ("array_agg(CLASSIFIER(U))", [["A"], ["A", "B"], ["A", "B", "B"], ["A", "B", "B", "A"]]),
            ("max_by(v, ts)", [1, 0, -2, 5]),
            ("MATCH_ROWTIME()", [1, 2, 3, 4]),
            ("v - FIRST(v) + COUNT(A.*)", [1, 0, -2, 6]),
            ("CASE WHEN COUNT(B.*) > 1 THEN 'many' ELSE lower(CLASSIFIER()) END", ["a", "b", "many", "many"]),
            ("B.v IN (0, LAST(A.v) - 7)", [None, True, False, True]),
        ]
    ],
    TableCase(measured("LAST(A.v)", *ABBA, rows="ONE ROW PER MATCH"), "1 0 -2 5 -1", [(5,)]),
    TableCase(measured("v", *ABBA, rows=""), "1 0 -2", [(-2,)]),
    # NULL
    TableCase(measured("COUNT(v)"), "1 - 3", [(1,), (1,), (2,)]),
    TableCase(measured("SUM(v)"), "- - 3", [(None,), (None,), (3,)]),
    TableCase(measured("LAST(v)"), "1 - 3", [(1,), (None,), (3,)]),
    TableCase(measured("COUNT(*)", "A+", "DEFINE A AS v > 0"), "1 - 3", [(1,), (1,)]),
    # an empty match
    TableCase(measured("COUNT(*)", "A*", "DEFINE A AS v > 0", ""), "0 1", [(0,), (1,)]),
    TableCase(measured("v", "A*", "DEFINE A AS v > 0", ""), "0 1", [(None,), (1,)]),
    TableCase(measured("PREV(v)", "A*", "DEFINE A AS v > 0"), "3 0", [(None,), (None,)]),
    TableCase(measured("MATCH_NUMBER()", "A*", "DEFINE A AS v > 0", ""), "0 1 0", [(1,), (2,), (3,)]),
    TableCase(measured("MATCH_NUMBER()", "A*", "DEFINE A AS v > 0", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"), "0 1 0", [(2,)]),
    # excluded rows count in measures
    TableCase(measured("SUM(v)", "A {- X -} B"), "1 2 3", [(1,), (6,)]),
    # PREV and NEXT leave the match, but not the partition
    TableCase(measured("PREV(FIRST(v))", "A", "DEFINE A AS v = 3", ""), "1 2 3", [(2,)]),
    TableCase(measured("NEXT(v)", "A", "DEFINE A AS v = 2", ""), "1 2 3", [(3,)]),
    TableCase(measured("PREV(CLASSIFIER())", "A", "DEFINE A AS v = 2", ""), "1 2 3", [(None,)]),
    TableCase(measured("NEXT(coalesce(v, 7))", "A", "DEFINE A AS v = 3", ""), "1 2 3", [(None,)]),
]  # fmt: skip

_DOWN = "DEFINE D AS v < PREV(v), U AS v > PREV(v)"

TABLES = [
    TableCase(
        f"PARTITION BY k ORDER BY ts MEASURES S.v AS a, LAST(D.v) AS b, LAST(U.v) AS c PATTERN (S D+ U+) {_DOWN}",
        "x:5 y:9 x:3 x:1 y:8 x:4 x:6 y:9 x:2",
        [("x", 5, 1, 6), ("y", 9, 8, 9)],
    ),
    TableCase(
        "PARTITION BY k ORDER BY ts MEASURES MATCH_NUMBER() AS n, FIRST(ts) AS a PATTERN (S D+) DEFINE D AS v < PREV(v)",
        "x:3 x:2 x:5 y:2 y:1 x:4",
        [("x", 1, 1), ("x", 2, 3), ("y", 1, 4)],
    ),
    TableCase(
        "PARTITION BY k ORDER BY ts MEASURES v * 2 AS w ALL ROWS PER MATCH PATTERN (A) DEFINE A AS v > 1",
        "x:1 y:2 x:3",
        [("x", 3, 6, 3), ("y", 2, 4, 2)],
    ),
    TableCase("ORDER BY v DESC MEASURES A.v AS a, B.v AS b PATTERN (A B)", "1 4 3 2", [(4, 3), (2, 1)]),
    TableCase("ORDER BY v, ts DESC MEASURES A.ts AS a, B.ts AS b PATTERN (A B)", "1 1 0 0", [(4, 3), (2, 1)]),
    TableCase("ORDER BY v MEASURES A.ts AS a PATTERN (A B C)", "2 - 1", [(2,)]),
    TableCase("ORDER BY v DESC MEASURES A.ts AS a PATTERN (A B C)", "2 - 1", [(1,)]),
    TableCase("ORDER BY v DESC NULLS FIRST MEASURES A.ts AS a PATTERN (A B C)", "2 - 1", [(2,)]),
    TableCase("MEASURES COUNT(*) AS n PATTERN (A+)", "1 2 3", [(3,)]),
    TableCase("PARTITION BY k PATTERN (A+) DEFINE A AS v > 1", "a:1 b:2 a:1 b:3", [("b",)]),
    TableCase(
        "ORDER BY ts MEASURES `a b`.v AS `M n`, UP.v AS u PATTERN (`a b` up+) DEFINE Up AS uP.v > PREV(V)",
        "3 1 2",
        [(1, 2)],
    ),
    TableCase("ORDER BY ts MEASURES CLASSIFIER() AS c PATTERN (low | `high`) DEFINE low AS v < 2", "1 3", [("LOW",), ("high",)]),
    TableCase(
        "ORDER BY ts MEASURES SUM(A.v) AS s, B.ts AS t AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B) DEFINE A AS SUM(A.v) < 10",
        "4 5 6 1 2",
        [(9, 3), (5, 3), (7, 5), (1, 5)],
    ),
]  # fmt: skip

_VALLEY = "PATTERN (S D+ U+) DEFINE D AS v < PREV(v), U AS v > PREV(v)"
_VALLEY_MEASURES = (
    "MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, S.v AS a, LAST(D.v) AS b, LAST(U.v) AS d, AVG(v) AS m"
)
_PRICES = "7 12 9 6 3 6 6 9 4 5 5"

STANDARD = [
    # the fall and the rise of a price, in each kind of output
    TableCase(f"ORDER BY ts {_VALLEY_MEASURES} {_VALLEY}", _PRICES, [(1, "U", 12, 3, 6, 7.2), (2, "U", 9, 4, 5, 6.0)]),
    TableCase(
        f"ORDER BY ts {_VALLEY_MEASURES} ALL ROWS PER MATCH {_VALLEY}",
        _PRICES,
        [
            (2, 1, "S", 12, None, None, 12.0, "x", 12),
            (3, 1, "D", 12, 9, None, 10.5, "x", 9),
            (4, 1, "D", 12, 6, None, 9.0, "x", 6),
            (5, 1, "D", 12, 3, None, 7.5, "x", 3),
            (6, 1, "U", 12, 3, 6, 7.2, "x", 6),
            (8, 2, "S", 9, None, None, 9.0, "x", 9),
            (9, 2, "D", 9, 4, None, 6.5, "x", 4),
            (10, 2, "U", 9, 4, 5, 6.0, "x", 5),
        ],
    ),
    TableCase(
        f"ORDER BY ts MEASURES CLASSIFIER() AS c, FINAL AVG(v) AS m ALL ROWS PER MATCH WITH UNMATCHED ROWS {_VALLEY}",
        "1 4 2 4 4",
        [
            (1, None, None, "x", 1), (2, "S", 10 / 3, "x", 4), (3, "D", 10 / 3, "x", 2), (4, "U", 10 / 3, "x", 4),
            (5, None, None, "x", 4),
        ],
    ),
    TableCase(
        f"ORDER BY ts MEASURES FIRST(ts) AS f, LAST(ts) AS l AFTER MATCH SKIP TO LAST D {_VALLEY}",
        "9 5 7 3 4 2 8",
        [(1, 3), (3, 5), (5, 7)],
    ),
    TableCase(
        f"ORDER BY ts MEASURES FIRST(ts) AS f, LAST(ts) AS l AFTER MATCH SKIP TO NEXT ROW {_VALLEY}",
        "9 5 3 7 8",
        [(1, 5), (2, 5)],
    ),
    # two falls and rises, of which the second one does not reach as deep
    TableCase(
        "ORDER BY ts MEASURES FIRST(ts) AS f, LAST(ts) AS l, MIN(A.v) AS a, MIN(C.v) AS c PATTERN (S A+ B+ C+ D+)"
        " DEFINE A AS v < PREV(v), B AS v > PREV(v), C AS v < PREV(v) AND v > LAST(A.v), D AS v > PREV(v)",
        "9 4 7 5 8 1 6 0 5",
        [(1, 5, 4, 5)],
    ),
    # RUNNING and FINAL, FIRST and LAST of variables and of a union
    TableCase(
        "ORDER BY ts MEASURES SUM(U.v) AS s, FINAL SUM(U.v) AS t, FIRST(B.ts, 1) AS f, LAST(A.ts, 1) AS l"
        " ALL ROWS PER MATCH PATTERN (A+ B+ C) SUBSET U = (A, C) DEFINE A AS v < 3, B AS v < 6",
        "1 2 4 5 9",
        [
            (1, 1, 12, None, None, "x", 1), (2, 3, 12, None, 1, "x", 2), (3, 3, 12, None, 1, "x", 4),
            (4, 3, 12, 4, 1, "x", 5), (5, 12, 12, 4, 1, "x", 9),
        ],
    ),
]  # fmt: skip

SCOPES = [
    # a variable may have the name of a column, and of a measure
    TableCase("ORDER BY ts MEASURES V.v AS v, v AS w PATTERN (v X) DEFINE V AS v.v > 1", "1 2 3", [(2, 3)]),
    TableCase("ORDER BY ts MEASURES A.v AS A, COUNT(a.*) AS n PATTERN (A+ B) DEFINE A AS a.v > 1", "2 3 1", [(3, 2)]),
    # without a variable, a column is that of the last row of all variables; in DEFINE, of the row that is tested
    TableCase("ORDER BY ts MEASURES v AS a, B.v AS b, A.v AS c PATTERN (A B? C)", "1 2 3", [(3, 2, 1)]),
    TableCase("ORDER BY ts MEASURES LAST(ts) AS t PATTERN (A B) DEFINE B AS v > 5 AND A.v < v", "7 6 8", [(3,)]),
    # PREV and NEXT leave the match; FIRST and LAST do not
    TableCase("ORDER BY ts MEASURES PREV(A.v) AS p, NEXT(B.v) AS n PATTERN (A B) DEFINE A AS v = 2", "1 2 3 4", [(1, 4)]),
    TableCase("ORDER BY ts MEASURES LAST(B.v, 1) AS p, FIRST(A.v, 1) AS n PATTERN (A B)", "1 2", [(None, None)]),
    # no partition sees the rows of another
    TableCase(
        "PARTITION BY k ORDER BY ts MEASURES PREV(A.v) AS p, NEXT(A.v) AS n, MATCH_NUMBER() AS m PATTERN (A)",
        "x:1 y:2 x:3",
        [("x", None, 3, 1), ("x", 1, None, 2), ("y", None, None, 1)],
    ),
    # the number of a match counts empty ones
    TableCase(
        "ORDER BY ts MEASURES MATCH_NUMBER() AS n ALL ROWS PER MATCH PATTERN (A*) DEFINE A AS v > 1", "1 2",
        [(1, 1, "x", 1), (2, 2, "x", 2)],
    ),
]  # fmt: skip

IDIOMS = [
    # islands of consecutive numbers
    TableCase(
        "ORDER BY v MEASURES FIRST(v) AS a, LAST(v) AS b PATTERN (A B*) DEFINE B AS v = PREV(v) + 1",
        "7 1 2 3 8 5", [(1, 3), (5, 5), (7, 8)],
    ),
    # the gaps between them
    TableCase(
        "ORDER BY v MEASURES LAST(A.v) + 1 AS a, B.v - 1 AS b AFTER MATCH SKIP TO B PATTERN (A B) DEFINE B AS v > PREV(v) + 1",
        "7 1 2 3 8 5", [(4, 4), (6, 6)],
    ),
    # sessions: at most 10 between two rows
    TableCase(
        "PARTITION BY k ORDER BY v MEASURES COUNT(*) AS n, LAST(v) - FIRST(v) AS d PATTERN (A B*) DEFINE B AS v <= PREV(v) + 10",
        "x:0 x:8 x:18 x:29 y:5", [("x", 3, 18), ("x", 1, 0), ("y", 1, 0)],
    ),
    # bins of at most 10 together
    TableCase("ORDER BY ts MEASURES COUNT(*) AS n, SUM(v) AS s PATTERN (A+) DEFINE A AS SUM(v) <= 10", "4 5 3 7 10 1",
              [(2, 9), (2, 10), (1, 10), (1, 1)]),
    # at least three equal values in a row
    TableCase("ORDER BY ts MEASURES A.v AS v, COUNT(*) AS n PATTERN (A B{2,}) DEFINE B AS v = A.v", "1 2 2 2 2 3 3",
              [(2, 4)]),
    # the first of equal values, without the others
    TableCase(
        "ORDER BY ts MEASURES A.ts AS t ALL ROWS PER MATCH PATTERN (A {- B* -}) DEFINE B AS v = PREV(v)", "5 5 6 5 5",
        [(1, 1, "x", 5), (3, 3, "x", 6), (4, 4, "x", 5)],
    ),
    # peaks
    TableCase("ORDER BY ts MEASURES P.ts AS t PATTERN (P) DEFINE P AS v > PREV(v) AND v > NEXT(v)", "1 3 2 2 5 4 9",
              [(2,), (5,)]),
    # the first and the last row of each partition
    TableCase("PARTITION BY k ORDER BY ts MEASURES A.v AS v PATTERN (^ A)", "x:1 y:2 x:3", [("x", 1), ("y", 2)]),
    TableCase("PARTITION BY k ORDER BY ts MEASURES A.v AS v PATTERN (A $)", "x:1 y:2 x:3", [("x", 3), ("y", 2)]),
    # a value that more than doubles within three rows
    TableCase(
        "ORDER BY ts MEASURES A.ts AS f, B.ts AS t AFTER MATCH SKIP TO NEXT ROW PATTERN (A X{0,1}? B) DEFINE B AS v > 2 * A.v",
        "1 2 3 9 4", [(1, 3), (2, 4), (3, 4)],
    ),
    # steps of a funnel, of which one may be left out, with anything between them
    TableCase(
        "PARTITION BY k ORDER BY ts MEASURES COUNT(B.*) AS b, C.ts AS t PATTERN (A X*? (B X*?)? C)"
        " DEFINE A AS v = 1, B AS v = 2, C AS v = 3, X AS v <> 3",
        "x:1 x:5 x:2 x:5 x:3 y:1 y:3 y:2", [("x", 1, 5), ("y", 0, 7)],
    ),
    TableCase(
        "PARTITION BY k ORDER BY ts MEASURES COUNT(B.*) AS b, C.ts AS t PATTERN (A X* B X* C | A X* C)"
        " DEFINE A AS v = 1, B AS v = 2, C AS v = 3, X AS v <> 3",
        "x:1 x:5 x:2 x:5 x:3 y:1 y:3 y:2", [("x", 1, 5), ("y", 0, 7)],
    ),
    # the largest fall from a maximum so far
    TableCase(
        "ORDER BY ts MEASURES A.v AS top, MIN(B.v) AS low PATTERN (A B+) DEFINE B AS v < A.v", "3 9 4 6 2 9 8 10",
        [(9, 2), (9, 8)],
    ),
]  # fmt: skip

FAILING_SKIPS = [
    # (pattern, letters, skip): a match is found, but the search cannot go on
    ("A B+", "abb", "TO FIRST A"),
    ("A B+", "abb", "TO A"),
    ("A B?", "ac", "TO LAST B"),
    ("A (B | C)", "ab", "TO C"),
    ("A*", "ba", "TO FIRST A"),
    ("A+ B", "aab", "TO FIRST A"),
]
