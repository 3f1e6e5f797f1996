"""Conditions that bound the time of a row by rows before it: when the search stops to wait, and what times out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import ExpressionError
from asterism.expressions.evaluation import tried_before
from asterism.expressions.types import TIME_ZONE
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import DROPPED, MATCHES
from asterism.row_patterns.result_rows import match_table
from asterism.row_patterns.time_bounds import time_bounds
from asterism.testing import RowPatternHarness
from asterism.trace.row_patterns import trace_rows
from tests.reference.row_patterns import match_recognize
from tests.row_patterns.test_operator import WAYS, by_key, in_pieces, streamed

SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "c": pa.string(), "v": pa.int64()})
MEASURES = "A.ts AS a, B.ts AS b, C.ts AS cc, COUNT(*) AS n, MATCH_TIMEOUT() AS late"


def checked(text: str, schema: pa.Schema = SCHEMA) -> CheckedClause:
    with tried_before():
        return check(read(text), schema)


def table(*rows: tuple[str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "ts": ts, "c": c, "v": 1} for k, ts, c in rows], SCHEMA)


# ---------------------------------------------------------------------------------------------------- which conditions


ZONES = {
    "NTZ": pa.schema({"ts": pa.timestamp("us"), "c": pa.string()}),
    "UTC": pa.schema({"ts": pa.timestamp("us", "UTC"), "c": pa.string()}, metadata={TIME_ZONE: "UTC"}),
    "Berlin": pa.schema({"ts": pa.timestamp("us", "UTC"), "c": pa.string()}, metadata={TIME_ZONE: "Europe/Berlin"}),
    "DATE": pa.schema({"ts": pa.date32(), "c": pa.string()}),
    "BIGINT": pa.schema({"ts": pa.int64(), "c": pa.string()}),
}


@pytest.mark.parametrize(
    ("condition", "kinds"),
    [
        ("c = 'b' AND ts <= A.ts + INTERVAL '5' MINUTE", "NTZ UTC Berlin"),
        ("A.ts + INTERVAL '5' MINUTE > B.ts", "NTZ UTC Berlin"),
        ("ts BETWEEN A.ts AND A.ts + INTERVAL '5' MINUTE", "NTZ UTC Berlin"),
        ("ts - A.ts <= INTERVAL '5' MINUTE", "NTZ UTC"),  # local times go back at the end of daylight saving time
        ("ts - INTERVAL '5' MINUTE <= A.ts", "NTZ UTC"),
        ("ts - PREV(ts) < INTERVAL '5' MINUTE", "NTZ UTC"),
        ("ts <= FIRST(ts) + INTERVAL '2' HOUR", "NTZ UTC Berlin"),
        ("ts <= A.ts + INTERVAL '2' DAY", "NTZ UTC Berlin DATE"),
        ("ts - A.ts < 5", "BIGINT"),
        ("ts <= LAST(B.ts, 1) + 3", "DATE BIGINT"),
        ("ts <= A.ts + INTERVAL '5' MINUTE OR c = 'b'", ""),
        ("ts >= A.ts + INTERVAL '5' MINUTE", ""),
        ("ts <= NEXT(ts) + INTERVAL '5' MINUTE", ""),
        ("ts <= ts + INTERVAL '5' MINUTE", ""),
        ("ts <= TIMESTAMP '2024-01-01 00:00:00'", ""),
    ],
)
def test_which_conditions_bound_times(condition: str, kinds: str) -> None:
    found = []
    for kind, schema in ZONES.items():
        try:
            clause = check(read(f"ORDER BY ts MEASURES A.c AS a PATTERN (A B) DEFINE B AS {condition}"), schema)
        except ExpressionError:  # not of this type
            continue
        found += [kind] if time_bounds(clause) else []
    assert " ".join(found) == kinds


def test_descending_order_has_no_bounds() -> None:
    text = "ORDER BY ts DESC MEASURES A.c AS a PATTERN (A B) DEFINE B AS ts <= A.ts + 5"
    assert time_bounds(checked(text)) == []


# ---------------------------------------------------------------------------------------------------- when


A = "A AS c = 'a'"
B = "B AS c = 'b' AND ts <= A.ts + 5"
HOUR = "WITHIN INTERVAL '1' HOUR"
GAP = "A {- X*? -} B"


def text_of(pattern: str, define: str, *, timeouts: bool = False) -> str:
    show = "ONE ROW PER MATCH SHOW TIMEOUT MATCHES" if timeouts else ""
    within = HOUR if timeouts else ""
    return f"PARTITION BY k ORDER BY ts MEASURES {MEASURES} {show} PATTERN ({pattern} | $ ^ A B C) {within} DEFINE {define}"


@pytest.mark.parametrize(
    ("pattern", "define", "rows", "open_at", "decided_at", "results"),
    [
        ("A B", f"{A}, {B}", [("x", 0, "a")], 4, 5, 0),
        (GAP, f"{A}, {B}", [("x", 0, "a"), ("x", 3, "c")], 4, 5, 0),
        (GAP, f"{A}, B AS ts < A.ts + 5", [("x", 9, "a")], 12, 13, 0),
        ("A {- X*? -} B {- Y*? -} C", f"{A}, {B}, C AS ts <= B.ts + 9", [("x", 0, "a"), ("x", 1, "b")], 9, 10, 0),
        ("A B*", f"{A}, B AS ts - PREV(ts) <= 5", [("x", 0, "a"), ("x", 4, "c")], 8, 9, 1),  # a session
        ("A B* C?", f"{A}, B AS ts - PREV(ts) <= 5, C AS ts <= FIRST(ts) + 20", [("x", 0, "a"), ("x", 4, "c")], 19, 20, 1),
        ("A [^B]", f"{A}, {B}", [("x", 0, "a")], 4, 5, 1),
    ],
)  # fmt: skip
def test_the_search_ends_when_the_bound_has_passed(
    pattern: str, define: str, rows: list[tuple[str, int, str]], open_at: int, decided_at: int, results: int
) -> None:
    harness = RowPatternHarness(text_of(pattern, define), SCHEMA).send(table(*rows))
    harness.advance_watermark(timedelta(milliseconds=open_at))
    assert (len(harness.matches), bool(harness.waiting)) == (0, True)
    harness.advance_watermark(timedelta(milliseconds=decided_at))
    assert (len(harness.matches), harness.waiting) == (results, [])


def test_a_row_that_may_come_moves_the_bound() -> None:
    """Another A at any time, and B after it."""
    harness = RowPatternHarness(text_of("A+ B", f"{A}, {B}"), SCHEMA).send(table(("x", 0, "a"), ("x", 4, "a")))
    harness.advance_watermark(timedelta(milliseconds=100))
    assert [len(rows) for rows in harness.waiting] == [2]
    assert [row["n"] for row in harness.send(table(("x", 200, "a"), ("x", 203, "b"))).end().matches] == [4]


@pytest.mark.parametrize(
    ("pattern", "define", "rows", "open_at", "decided_at", "late"),
    [
        ("A B", f"{A}, {B}", [("x", 0, "a")], 4, 5, [(0, None, 1)]),
        (GAP, f"{A}, {B}", [("x", 0, "a"), ("x", 3, "c")], 4, 5, [(0, None, 1)]),
        ("A X* B", f"{A}, X AS c = 'c', {B}", [("x", 0, "a"), ("x", 3, "c")], 4, 5, [(0, None, 2)]),
        (
            "A {- X*? -} B {- Y*? -} C", f"{A}, {B}, C AS ts <= B.ts + 9", [("x", 0, "a"), ("x", 1, "b")], 9, 10,
            [(0, 1, 2)],
        ),
        # A row that comes too late does not end the attempt before; one that comes in time does.
        ("A B", f"{A}, {B}", [("x", 0, "a"), ("x", 6, "c")], 4, 6, [(0, None, 1)]),
        ("A B", f"{A}, {B}", [("x", 0, "a"), ("x", 5, "c")], 4, 6, []),
    ],
)  # fmt: skip
def test_what_waits_times_out_when_the_bound_has_passed(
    pattern: str, define: str, rows: list[tuple[str, int, str]], open_at: int, decided_at: int, late: list[Any]
) -> None:
    text = text_of(pattern, define, timeouts=True)
    harness = RowPatternHarness(text, SCHEMA).send(table(*rows))
    harness.advance_watermark(timedelta(milliseconds=open_at))
    assert harness.matches == []
    harness.advance_watermark(timedelta(milliseconds=decided_at))
    assert [(row["a"], row["b"], row["n"]) for row in harness.matches] == late
    assert all(row["late"] for row in harness.matches)
    harness.end()
    assert harness.matches == match_table(checked(text), table(*rows)).to_pylist()


# ---------------------------------------------------------------------------------------------------- all cuts


PATTERNS = [
    "A B", "A X* B", GAP, "A {- X* -} B C", "A (B | C)", "A B? C", "A+ B", "A B+ C", "A {- X*? -} B {- Y*? -} C",
    "A [^B] C", "(A B)+ C", "A {- X*? -} [^B] C", "A+{B} C", "A? B C", "A B*",
]  # fmt: skip
BOUNDS = {
    "A": ["ts <= PREV(ts) + 1000"],
    "B": ["ts <= A.ts + 1000", "ts - FIRST(ts) < 2000", "PREV(ts) + 1000 >= ts", "ts <= LAST(B.ts, 1) + 1000"],
    "C": ["ts <= B.ts + 1000", "ts <= A.ts + 2000", "ts - LAST(ts, 1) <= 1000", "ts BETWEEN A.ts AND B.ts + 2000"],
    "X": ["ts <= A.ts + 2000"],
}
steps = st.lists(st.tuples(st.sampled_from("xxy"), st.integers(1, 3), st.sampled_from("aabbc")), min_size=1, max_size=8)


@st.composite
def clauses(draw: st.DrawFn) -> tuple[str, str]:
    """A clause, and the same with nothing but the bounds."""
    pattern = draw(st.sampled_from(PATTERNS))
    timeouts = draw(st.booleans()) or draw(st.booleans())
    within = "WITHIN INTERVAL '4' SECOND" if timeouts else ""
    rows = draw(st.sampled_from(["ONE ROW PER MATCH", "ALL ROWS PER MATCH"]))
    skip = draw(st.sampled_from(["SKIP PAST LAST ROW", "SKIP TO NEXT ROW", "NO SKIP"]))
    bounds: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, choices in BOUNDS.items():
        if name in pattern:
            others[name] = draw(
                st.sampled_from(["", "c <> 'b'"] if name == "X" else [f"c = '{name.lower()}'", "c <> 'c'"])
            )
            if draw(st.booleans() if name in "BC" else st.sampled_from([False, False, True])):
                bounds[name] = draw(st.sampled_from(choices))
    both = {name: " AND ".join(part for part in (others[name], bounds.get(name)) if part) for name in others}

    def text(define: dict[str, str]) -> str:
        defined = ", ".join(f"{name} AS {condition}" for name, condition in define.items() if condition)
        return (
            f"PARTITION BY k ORDER BY ts MEASURES {MEASURES} {rows} {'SHOW TIMEOUT MATCHES' if timeouts else ''} AFTER MATCH"
            f" {skip} PATTERN ({pattern} | $ ^ A B C) {within} {'DEFINE ' if defined else ''}{defined}"
        )

    return text(both), text(bounds)


@given(clauses(), steps, st.sampled_from([*sorted(WAYS), "cut"]), st.integers(1, 7))
def test_table_stream_and_reference_agree(
    texts: tuple[str, str], steps: list[tuple[str, int, str]], way: str, cut: int
) -> None:
    text, bounds = texts
    times = [1000 * sum(step for _, step, _ in steps[: at + 1]) for at in range(len(steps))]
    rows = table(*((key, time, c) for (key, _, c), time in zip(steps, times, strict=True)))
    clause = checked(text)
    found = match_table(clause, rows)
    assert found.to_pylist() == match_recognize(text, rows.to_pylist(), bounds)
    stream = streamed(clause, rows, WAYS.get(way) or in_pieces(cut, 2 * cut))
    assert by_key(clause, stream.output(MATCHES)) == by_key(clause, found)
    if "ONE ROW" in text:
        one_key = rows.filter(pc.equal(rows["k"], "x"))
        if one_key.num_rows:
            traced = trace_rows(text, one_key)
            late = [row["late"] for row in found.to_pylist() if row["k"] == "x"]
            assert (len(traced.matches), len(traced.timeouts)) == (late.count(False), late.count(True))


@given(clauses(), steps, st.integers(1, 3), st.integers(1, 7))
def test_limit_does_not_depend_on_cuts(
    texts: tuple[str, str], steps: list[tuple[str, int, str]], limit: int, cut: int
) -> None:
    times = [1000 * sum(step for _, step, _ in steps[: at + 1]) for at in range(len(steps))]
    rows = table(*((key, time, c) for (key, _, c), time in zip(steps, times, strict=True)))
    clause = checked(texts[0])
    answers = []
    for way in (in_pieces(), WAYS["row by row"], in_pieces(cut)):
        stream = streamed(clause, rows, way, max_rows=limit, on_limit="drop")
        answers.append((by_key(clause, stream.output(MATCHES)), stream.metrics[DROPPED], stream.metrics[MATCHES]))
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
