"""Explanations and drawings of clauses. That they are good to look at is for eyes; here: what is in them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import MatchRecognize
from asterism.errors import ColumnNotFoundError, ExpressionError, ExpressionSyntaxError, StreamDefinitionError
from asterism.text.diagram import MAX_PARTS
from tests.patterns.test_drawing import texts, titles
from tests.row_patterns.strategies import patterns

EVERYTHING = """\
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY ts
  MEASURES A.ts AS began, SUM(U.v) AS total
  ALL ROWS PER MATCH WITH UNMATCHED ROWS
  AFTER MATCH SKIP TO LAST B
  PATTERN (^ A (B | C D)+? () PERMUTE(E, B?) F{2,3} $) WITHIN INTERVAL '1' HOUR
  SUBSET U = (A, B)
  DEFINE A AS v > 1
     AND w < NEXT(w), B AS v <= 1
)"""


def test_everything_is_explained() -> None:
    assert (
        MatchRecognize(EVERYTHING).explain()
        == """\
1. ^: only at the first row of the partition
2. A: once
     where v > 1
           AND w < NEXT(w)
3. one of these, an earlier one is preferred: 1 or more times, as few as possible
   3.1. B: once
          where v <= 1
   3.2. a group
      3.2.1. C: once
               any row
      3.2.2. D: once
               any row
4. no row
5. all of these in any order, that of the list is preferred
   5.1. E: once
          any row
   5.2. B: at most once, once is preferred
          where as in 3.1.
6. F: 2 to 3 times, as many as possible
     any row
7. $: only after the last row of the partition
U: the rows of A and B
window: INTERVAL '1' HOUR from the first to the last row, inclusive
partitions: rows with equal symbol
order: ts
output: ALL ROWS PER MATCH WITH UNMATCHED ROWS: the rows of each match, and the rows that are in none
  began = A.ts
  total = SUM(U.v)
after a match: SKIP TO LAST B: the search continues with the last row of B
on a stream, a match is emitted
  at the end of the input, because of $
  if a preferred alternative is still possible: when it no longer is
  NEXT waits for the rows that it reads
  at the latest when the watermark has passed INTERVAL '1' HOUR after its first row

automaton
start: A0 at the start
A0: B1, C2
B1: E4, B6, E7, B1, C2
C2: D3
D3: E4, B6, E7, B1, C2
E4: B5, F8
B5: F8
B6: E7
E7: F8
F8: F9
F9: F10, accept at the end
F10: accept at the end"""
    )


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A B", ["as soon as the row for B is there"]),
        ("A B{2}?", ["as soon as the row for B is there"]),
        ("A | B", ["as soon as the row for A or B is there"]),
        (
            "A B? C?",
            [
                "as soon as the row for C is there",
                "after A: with the first row that does not continue the match with B or C, because a longer match is preferred",
                "after B: with the first row that does not continue the match with C, because a longer match is preferred",
            ],
        ),
        (
            "A B | A",
            [
                "as soon as the row for B or A is there",
                "if a preferred alternative is still possible: when it no longer is",
            ],
        ),
        ("A{,3} $", ["at the end of the input, because of $"]),
        ("()", ["an empty match: as soon as its row is there"]),
        (
            "A*",
            [
                "after A or an empty match: with the first row that does not continue the match with A, because a longer match is"
                " preferred",
                "without WITHIN, a search can wait for any number of rows, up to max_rows",
            ],
        ),
    ],
)  # fmt: skip
def test_when_a_match_is_given_out(pattern: str, lines: list[str]) -> None:
    told = MatchRecognize(f"PATTERN ({pattern})").explain()
    begin = told.index("on a stream, a match is emitted\n")
    assert [line.strip() for line in told[begin : told.index("\n\n", begin)].splitlines()[1:]] == lines


def test_flinks_dialect_is_explained_as_it_matches() -> None:
    told = MatchRecognize("PATTERN (A B* C) DEFINE B AS v > 1", dialect="flink").explain()
    assert "3. the next row must not satisfy the condition of B, whose loop is greedy in Flink\n" in told
    assert "after a match: SKIP TO NEXT ROW" in told
    assert "not B" in texts(ET.fromstring(MatchRecognize("PATTERN (A B* C)", dialect="flink").to_svg()))


def test_everything_that_was_said_is_drawn() -> None:
    root = ET.fromstring(MatchRecognize(EVERYTHING).to_svg())
    shown = texts(root)
    for text in (
        "A", "B", "C", "D", "E", "F", "v > 1 AND w < NEXT(w)", "v <= 1", "any row", "+?", "?", "{2,3}", "^ start", "end $", "( )",
        "in any order", "within INTERVAL '1' HOUR", "output: ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        "an upper branch is preferred", "after a match: SKIP TO LAST B",
    ):  # fmt: skip
        assert text in shown, text
    assert "1 or more times, as few as possible" in titles(root)
    assert "not in the output" in texts(ET.fromstring(MatchRecognize("PATTERN (A {- B -})").to_svg()))


@given(patterns("ABC", leaves=12))
def test_every_pattern_is_explained_and_drawn(pattern: object) -> None:
    clause = MatchRecognize(f"PATTERN ({pattern} | A B C)")
    assert clause.explain()
    root = ET.fromstring(clause.to_svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + wide <= width
        assert y + high <= height


def test_drawings_and_explanations_are_bounded() -> None:
    many = MatchRecognize(f"PATTERN ({' '.join(f'A{n}' for n in range(190))})")
    assert f"… and {190 - MAX_PARTS} more" in texts(ET.fromstring(many.to_svg()))
    assert len(MatchRecognize(f"PATTERN ({'A ' * 9_000})").explain()) < 20_000
    deep = MatchRecognize("PATTERN (" + "(B | " * 40 + "A" + ")+" * 40 + ")")
    assert len(deep.to_svg()) < 20_000


@given(st.sampled_from(["</svg><script>", "\x1b[2J", "a\nb", "<b>&"]))
def test_names_and_conditions_are_text(name: str) -> None:
    clause = MatchRecognize(f"PATTERN (`{name}` B) DEFINE B AS x = '{name}'")
    for shown in (clause.explain(), clause.to_svg(), clause._repr_html_()):
        assert "\x1b" not in shown
        assert "<script>" not in shown.replace(clause.explain(), "")
    ET.fromstring(clause._repr_svg_())


def test_notebooks_show_variables_and_measures() -> None:
    html = MatchRecognize(EVERYTHING)._repr_html_()
    assert "<td>B</td><td>v &lt;= 1</td>" in html
    assert "<td>total</td><td>SUM(U.v)</td>" in html


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("PATTERN (A B", ExpressionSyntaxError),
        ("PATTERN (A) DEFINE B AS x", ExpressionSyntaxError),
        ("AFTER MATCH SKIP TO LAST C PATTERN (A)", ColumnNotFoundError),
        ("PATTERN (A{9999} B{9999})", ExpressionSyntaxError),
    ],
)
def test_clause_that_cannot_be_read(text: str, error: type[ExpressionError]) -> None:
    with pytest.raises(error) as raised:
        MatchRecognize(text)
    assert raised.value.position is not None


def test_wrong_arguments() -> None:
    with pytest.raises(StreamDefinitionError, match="a clause must be a string"):
        MatchRecognize(5)  # type: ignore[arg-type]
    with pytest.raises(StreamDefinitionError, match="there is no dialect 'oracle'"):
        MatchRecognize("PATTERN (A)", dialect="oracle")  # type: ignore[arg-type]


def test_absence_and_timeouts_are_explained_and_drawn() -> None:
    clause = MatchRecognize("""
        ORDER BY ts MEASURES MATCH_TIMEOUT() AS late
        ONE ROW PER MATCH SHOW TIMEOUT MATCHES AFTER MATCH NO SKIP
        PATTERN (A {- X*? -} [^B] F C+{D} [^E]) WITHIN INTERVAL '1' HOUR DEFINE B AS x > 1
    """)
    lines = clause.explain().splitlines()
    assert lines[2:10] == [
        "2. X: 0 or more times, as few as possible, not in the output of ALL ROWS PER MATCH",
        "     any row",
        "3. no row of the gap before, nor the next row, may satisfy the condition of B: x > 1",
        "4. F: once",
        "     any row",
        "5. C: 1 or more times, as many as possible, until a row satisfies D",
        "     any row",
        "6. the next row must not satisfy the condition of E",
    ]
    assert "output: ONE ROW PER MATCH SHOW TIMEOUT MATCHES: one row for each match; also those that time out" in lines
    assert "after a match: NO SKIP: all matches that begin at a row, then those that begin at the next one" in lines
    begin = lines.index("on a stream, a match is emitted")
    assert lines[begin + 1 : begin + 5] == [
        "  after C: with the first row that does not continue the match with C, because a longer match is preferred",
        "  with the next row, if that is not E; or when there is no next row",
        "  a match that times out: when the watermark has passed INTERVAL '1' HOUR after its first row",
        "  all matches that begin at a row: when no further match can begin at it",
    ]
    drawing = clause.to_svg()
    assert all(word in drawing for word in ("not B", "not E", "+{D}", "SHOW TIMEOUT MATCHES", "NO SKIP"))
    absent = MatchRecognize("ORDER BY ts MEASURES 1 AS one PATTERN (A {- X* -} [^B]) WITHIN INTERVAL '1' HOUR")
    expected = "  for a row that does not come: when the watermark has passed INTERVAL '1' HOUR after the first row"
    assert expected in absent.explain().splitlines()
