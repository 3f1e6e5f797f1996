"""The automaton of a pattern: its states, and its edges in order of preference."""

from __future__ import annotations

import pytest
from hypothesis import given

from asterism.errors import ExpressionSyntaxError
from asterism.row_patterns.automaton import compiled_pattern
from asterism.row_patterns.clause.clause import PatternNode
from asterism.row_patterns.clause.reading import read
from tests.kit import bounded
from tests.row_patterns.strategies import patterns


def automaton(text: str) -> str:
    return str(compiled_pattern(read(f"PATTERN ({text})")))


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A B", ["start: A0", "A0: B1", "B1: accept"]),
        ("A | B", ["start: A0, B1", "A0: accept", "B1: accept"]),
        ("A*", ["start: A0, accept", "A0: A0, accept"]),
        ("A*?", ["start: accept", "A0: accept"]),
        ("A+? B", ["start: A0", "A0: B1, A0", "B1: accept"]),
        ("A{2,3}", ["start: A0", "A0: A1", "A1: A2, accept", "A2: accept"]),
        ("A{2,}", ["start: A0", "A0: A1", "A1: A1, accept"]),
        ("(A*)+", ["start: A0, accept", "A0: A0, accept"]),
        ("(A*)*", ["start: A0, accept", "A0: A0, accept"]),
        ("(A | ())*", ["start: A0, accept", "A0: A0, accept"]),
        ("(() | A)*", ["start: accept", "A0: accept"]),  # a repetition that takes no row is the last one
        ("(A??)* B", ["start: B1, A0", "A0: B1, A0", "B1: accept"]),
        ("(A*?){2,} B", ["start: B3, A2, A1, A0", "A0: B3, A2, A1, A0", "A1: B3, A2, A1", "A2: B3, A2", "B3: accept"]),
        (
            "(E? A?? | D)* B",
            [f"{state}: E0, B3, A1, D2" for state in ("start", "E0", "A1", "D2")] + ["B3: accept"],
        ),
        ("(() | A)?", ["start: accept", "A0: accept"]),
        ("() | A", ["start: accept", "A0: accept"]),
        ("^ A $", ["start: A0 at the start", "A0: accept at the end"]),
        ("(^ | A) B", ["start: B1 at the start, A0", "A0: B1", "B1: accept"]),
        ("A ($ | ()) B?", ["start: A0", "A0: B1 at the end, accept at the end, B1, accept", "B1: accept"]),
        ("{- A -} B", ["start: A0", "A0 (excluded): B1", "B1: accept"]),
        ("PERMUTE(A, B)", ["start: A0, B2", "A0: B1", "B1: accept", "B2: A3", "A3: accept"]),
    ],
)
def test_edges(pattern: str, lines: list[str]) -> None:
    assert automaton(pattern).splitlines() == lines


@given(patterns())
def test_no_edge_is_there_twice(node: PatternNode) -> None:
    """Of two edges to one state, the preferred one has conditions that the other one lacks."""
    made = compiled_pattern(read(f"PATTERN ({node})"))
    for state in range(made.start + 1):
        edges = made.edges[made.first_edge[state] : made.first_edge[state + 1]].tolist()
        for at, (target, guards, _) in enumerate(edges):
            assert not any(other == target and earlier & ~guards == 0 for other, earlier, _ in edges[:at])


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 45 + "A*" + ")*" * 45,
        "(" * 45 + "A*" + ")+" * 45,
        "(" * 7 + "A?" + ")+" * 7,
        "PERMUTE(" + ", ".join(f"V{n}" for n in range(10)) + ")",
        "A{10000}",
        "A{0,10000}",
        "(A | B | C | D){2000} E",
        "A? " * 500 + "B",
    ],
    ids=lambda text: text[:20],
)
def test_large_pattern_is_compiled_in_bounded_time(pattern: str) -> None:
    with bounded():
        compiled_pattern(read(f"PATTERN ({pattern})"))


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A [^B]", ["start: A0", "A0: accept unless B"]),
        ("A [^B] C", ["start: A0", "A0: C1 unless B", "C1: accept"]),
        (
            "A {- X*? -} [^B] C",
            ["start: A0", "A0: C2 unless B, X1 unless B", "X1 (excluded): C2 unless B, X1 unless B", "C2: accept"],
        ),
        ("A [^B] C+{D}", ["start: A0", "A0: C1 unless B or D", "C1: C1 unless D, accept"]),
        ("A [^B] [^C] [^B]", ["start: A0", "A0: accept unless B or C"]),
        (
            "(A {- X*? -} [^B] C)+{D} [^E]",
            [
                "start: A0 unless D",
                "A0: C2 unless B or D, X1 unless B or D",
                "X1 (excluded): C2 unless B or D, X1 unless B or D",
                "C2: A0 unless D, accept unless E",
            ],
        ),
        ("B+{C} D?", ["start: B0 unless C", "B0: B0 unless C, D1, accept", "D1: accept"]),
        (
            "A (B C)+{D}",
            ["start: A0", "A0: B1 unless D", "B1: C2 unless D", "C2: B1 unless D, accept"],
        ),
    ],
)
def test_edges_that_rows_block(pattern: str, lines: list[str]) -> None:
    assert automaton(pattern).splitlines() == lines


def test_absence_at_the_end_waits_for_the_deadline() -> None:
    clause = read("ORDER BY ts PATTERN (A {- X* -} [^B]) WITHIN INTERVAL '1' HOUR")
    assert str(compiled_pattern(clause)).splitlines() == [
        "start: A0",
        "A0: X1 unless B, accept at the deadline",
        "X1 (excluded): X1 unless B, accept at the deadline",
    ]


@pytest.mark.parametrize(
    ("clause", "text"),
    [
        (
            "PATTERN (A {- X*? -} [^B])",
            "[EXPRESSION_SYNTAX] that a row does not follow, however late, is known only with a deadline: WITHIN is missing\n"
            "  PATTERN (A {- X*? -} [^B])\n"
            "                       ^\n"
            "  Hint: PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '1' HOUR",
        ),
    ],
)
def test_refused(clause: str, text: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as raised:
        compiled_pattern(read(clause))
    assert str(raised.value) == text


@pytest.mark.parametrize(
    "pattern",
    [
        "A " + " ".join(f"[^V{n}]" for n in range(20)) + " B",
        "A " + " ".join(f"([^V{n}] | [^W{n}])" for n in range(16)) + " B",
        "A " + "(" * 30 + "B" + "".join(f")+{{V{n}}}" for n in range(30)),
    ],
    ids=["sequence", "alternatives", "loops"],
)
def test_too_many_variables_that_a_row_must_not_satisfy(pattern: str) -> None:
    with bounded(), pytest.raises(ExpressionSyntaxError, match=r"too many variables \(limit 16\)"):
        automaton(pattern)
