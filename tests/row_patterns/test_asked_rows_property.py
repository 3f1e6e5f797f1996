"""Searches that ask DuckDB answer as those that do not: tables, streams however they are cut, and the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern, PatternProcessor
from asterism.errors import InvalidEventError, LimitExceededError
from asterism.matching import asked_conditions
from asterism.row_patterns import search
from asterism.row_patterns.result_rows import match_table
from asterism.rules.definition.rule_tests import RuleTest
from asterism.testing import RowPatternHarness, match
from asterism.testing.rule_harness import run_rule_test
from tests.kit import examples
from tests.row_patterns import (
    test_absence_property,
    test_match_table_property,
    test_operator,
    test_time_bounds,
)
from tests.row_patterns.asking import everything_asked
from tests.row_patterns.test_operator import MATCHES, WAYS, by_key, checked_clause, in_pieces, streamed

PROPERTIES: dict[str, Callable[..., None]] = {
    "table": test_match_table_property.test_engine_and_reference_agree,
    "absence": test_absence_property.test_table_stream_and_reference_agree,
    "time bounds": test_time_bounds.test_table_stream_and_reference_agree,
    "streams": test_operator.test_stream_and_table_agree,
    "limit": test_operator.test_limit_does_not_depend_on_cuts,
}
LIMITS = [{"ahead": 0, "near": True}, {"ahead": 2, "stopped": 1, "known": 1}, {"ahead": 64}]


@pytest.mark.parametrize(
    ("name", "limits"), [(name, LIMITS[number % 3]) for number, name in enumerate(PROPERTIES)], ids=[*PROPERTIES]
)
def test_with_everything_asked(name: str, limits: dict[str, Any]) -> None:
    with everything_asked(**limits):
        PROPERTIES[name]()


def test_steps_do_not_depend_on_how_much_is_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", 1_500)
    text = f"ORDER BY ts MEASURES FIRST(ts) AS a, LAST(ts) AS b {test_operator.HEAVY[1]}"
    clause = checked_clause(text, test_operator.SCHEMA)
    outcomes = []
    for limits in LIMITS[::2]:
        with everything_asked(**limits | {"near": False}):
            outcomes.append([outcome(clause, seed) for seed in range(8)])
    assert outcomes[0] == outcomes[1]
    assert {type(one) for one in outcomes[0]} == {str, list}


def outcome(clause: Any, seed: int) -> Any:
    rng = random.Random(seed)
    rows = [{"k": "x", "ts": n, "c": "a", "v": rng.randrange(4)} for n in range(rng.randint(3, 11))]
    try:
        return match_table(clause, test_operator.table_of(rows)).to_pylist()
    except LimitExceededError as error:
        return str(error)


SCHEMA = pa.schema({"key": pa.string(), "ts": pa.int64(), "kind": pa.string(), "name": pa.string()})


def names(seed: int, count: int, keys: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "key": f"k{rng.randrange(keys)}",
            "ts": 1000 * (number + 1),
            "kind": rng.choice("aabbc"),
            "name": rng.choice(["anna", "anne", "hanna", "bob", "rob", "robert", None]),
        }
        for number in range(count)
    ]


def distance(one: str | None, other: str | None) -> int | None:
    if one is None or other is None:
        return None
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, against in enumerate(other, 1):
            line.append(min(before[column] + 1, line[-1] + 1, before[column - 1] + (letter != against)))
        before = line
    return before[-1]


@pytest.mark.parametrize("skip", ["PAST LAST ROW", "TO NEXT ROW"])
def test_similar_names(skip: str) -> None:
    """Rows of A are followed by at most two others and one whose name is similar, against a loop in Python."""
    text = (
        f"PARTITION BY key ORDER BY ts MEASURES A.ts AS a, B.ts AS b AFTER MATCH SKIP {skip} PATTERN (A X{{0,2}}? B)"
        " DEFINE A AS kind = 'a', B AS kind = 'b' AND levenshtein(name, LAST(A.name)) < 3"
    )
    rows = names(5, examples(120, usual=300), 7)
    expected: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for key in sorted({row["key"] for row in rows}):
        of_key, at = [row for row in rows if row["key"] == key], 0
        while at < len(of_key):
            first = of_key[at]
            ends = [
                end
                for end in range(at + 1, min(at + 4, len(of_key)))
                if of_key[end]["kind"] == "b" and (distance(of_key[end]["name"], first["name"]) or 0) < 3
                and None not in (of_key[end]["name"], first["name"])
            ]  # fmt: skip
            if first["kind"] == "a" and ends:
                expected.setdefault((key,), []).append({"key": key, "a": first["ts"], "b": of_key[ends[0]]["ts"]})
            at = ends[0] + 1 if first["kind"] == "a" and ends and skip == "PAST LAST ROW" else at + 1
    table, clause = pa.Table.from_pylist(rows, SCHEMA), checked_clause(text, SCHEMA)
    assert by_key(clause, match_table(clause, table)) == expected
    for way in (WAYS["row by row"], in_pieces(40, 41, 100)):
        assert by_key(clause, streamed(clause, table, way).output(MATCHES)) == expected


@pytest.mark.parametrize("partitions", [(0, 1, 2), (2, 1, 0)], ids=["first", "last"])
def test_the_error_is_that_of_the_first_partition(partitions: Sequence[int]) -> None:
    """Although the search of a later one fails before its answers are computed."""
    text = (
        "PARTITION BY key ORDER BY ts MEASURES A.ts AS a AFTER MATCH SKIP TO LAST A PATTERN (A B C)"
        " DEFINE A AS kind = 'a', B AS levenshtein(name, A.name) < 9, C AS CAST(concat(name, A.name) AS INT) = 1"
    )
    kinds = {0: "a", 1: "x", 2: "a"}
    rows = [
        {"key": f"k{key}", "ts": 10 * place + at, "kind": kinds[key] if at == 0 else "b", "name": f"n{key}"}
        for place, key in enumerate(partitions)
        for at in range(3)
    ]
    with pytest.raises(InvalidEventError) as caught:
        match_table(checked_clause(text, SCHEMA), pa.Table.from_pylist(rows, SCHEMA))
    assert f"n{partitions[0]}" in str(caught.value)


def test_an_error_that_is_not_reached_does_not_matter() -> None:
    """That of a row ahead is not: the match has ended by then."""
    text = (
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B)"
        " DEFINE A AS kind = 'a', B AS CAST(concat(name, A.name) AS INT) > 1"
    )
    rows = [
        {"ts": number, "kind": kind, "name": name}
        for number, (kind, name) in enumerate([("a", "1"), ("a", "2"), ("x", "x"), ("a", "3"), ("b", "4")])
    ]
    table = pa.Table.from_pylist(rows)
    found = match_table(checked_clause(text, table.schema), table)
    assert found.to_pylist() == [{"a": 0}, {"a": 3}]


def test_calls_of_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """All partitions are computed together, and so are the next rows of each."""
    calls = []
    compute = asked_conditions.CandidateAnswers.compute
    monkeypatch.setattr(
        asked_conditions.CandidateAnswers, "compute", lambda self: (calls.append(self._count), compute(self))[1]
    )
    text = (
        "PARTITION BY key ORDER BY ts MEASURES A.ts AS a PATTERN (A B)"
        " DEFINE A AS kind = 'a', B AS levenshtein(name, A.name) < 1"
    )
    for keys in (1, 100):
        calls.clear()
        clause = checked_clause(text, SCHEMA)
        match_table(clause, pa.Table.from_pylist(names(3, 1000, keys), SCHEMA))
        assert sum(calls) > 300
        assert len(calls) < 40


def near(one: int | None, other: int | None) -> bool | None:
    if one is None or other is None:
        return None
    if other == 9:
        raise ValueError("no nine")
    return abs(one - other) <= 1


@pytest.mark.parametrize("kit", ["pattern", "clause", "rule", "rule in SQL"])
def test_a_function_in_python_of_two_events(kit: str) -> None:
    """The values of many pairs are computed together, and its errors matter only where it is needed."""
    pattern = (
        Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b' AND near(value, LAST(a.value))")
    )  # fmt: skip
    clause = (
        "MEASURES A.value AS a, B.value AS b PATTERN (A B)"
        " DEFINE A AS kind = 'a', B AS kind = 'b' AND near(value, LAST(A.value))"
    )
    events, expected = "a1 b2 a3 b5 a9 c1 a6 b6 a7", [{"a": 1, "b": 2}, {"a": 6, "b": 6}]
    select = ["a.value AS a", "b.value AS b"]
    udfs = {"near": near}
    if kit == "pattern":
        found = match(pattern, events, udfs=udfs, select=select).selected
        assert [{"a": row["a"], "b": row["b"]} for row in found] == expected
        with pytest.raises(InvalidEventError, match="no nine"):
            match(pattern, events + " a9 b9", udfs=udfs)
    elif kit == "clause":
        text = f"PARTITION BY key ORDER BY ts {clause}"
        found = RowPatternHarness(text, udfs=udfs).send(events).end().matches
        assert [{"a": row["a"], "b": row["b"]} for row in found] == expected
        with pytest.raises(InvalidEventError, match="no nine"):
            RowPatternHarness(text, udfs=udfs).send(events + " a9 b9").end()
    else:
        rule = PatternProcessor("r", 1, pattern, select=tuple(select))
        if kit == "rule in SQL":
            rule = PatternProcessor("r", 1, sql=clause)
        assert run_rule_test(rule, RuleTest("t", events, tuple(expected)), udfs=udfs).failure == ()
