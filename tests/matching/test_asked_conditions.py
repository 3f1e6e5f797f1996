"""Conditions over several events that the stack machine cannot compute, which DuckDB does."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.columns.time import END_OF_TIME
from asterism.conformance.corpus import CUTS, Case
from asterism.errors import AsterismError, ExpressionError, InvalidEventError
from asterism.matching import asked_conditions
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from tests.kit import FACTOR
from tests.matching.asking import everything_asked
from tests.patterns.strategies import cases
from tests.trace.strategies import patterns, streams
from tests.trace.test_trace import traced
from tests.trace.test_trace_property import check, check_case

FEWER = settings(max_examples=max(1, settings().max_examples // 4))
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("ts", pa.int64()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
SIMILAR = (
    Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND levenshtein(name, LAST(a.name)) < 2")
)


@pytest.fixture(params=["", "no look ahead", "much is forgotten"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on how many candidates are computed together, and on how many answers are kept."""
    if request.param == "no look ahead":
        monkeypatch.setattr(asked_conditions, "MAX_MISSING", 0)
    elif request.param:
        monkeypatch.setattr(asked_conditions, "MAX_KNOWN", 1)


@pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
@FEWER
@given(case=cases())
def test_the_interpreter_asks_nothing(semantics: Semantics, case: Case) -> None:
    """All comparisons are asked, and the order and times of matches and timeouts remain."""
    try:
        compile_pattern(Pattern.from_json(case["pattern"]), semantics)
    except AsterismError:
        return
    with everything_asked():
        check_case(case, semantics)


@FEWER
@given(pattern=patterns(), case=streams(), cuts=st.sampled_from(CUTS))
def test_patterns_beyond_flink(pattern: Pattern, case: Case, cuts: str) -> None:
    try:
        compile_pattern(pattern)
    except AsterismError:
        return
    with everything_asked():
        check(pattern, case, Semantics.DEFAULT, cuts)


def events(rng: random.Random, count: int, keys: int) -> pa.Table:
    """Random events in order of time; some names are NULL."""
    names = ["anna", "anne", "hanna", "bob", "rob", "robert", None]
    rows = [
        {
            "key": f"k{rng.randrange(keys)}",
            "ts": number,
            "kind": rng.choice("aabbc"),
            "name": rng.choice(names),
            "tags": rng.choices(names, k=rng.randrange(3)),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def matches(pattern: Pattern, rows: pa.Table, cuts: list[int], **options: Any) -> list[Any]:
    """The matches of a pattern whose calls get the rows up to each cut; each call reopens its state."""
    measures = tuple(f"collect_list({name}.ts) AS {name}" for name in (stage.name for stage in pattern.atoms()))
    store, found = MemoryStore(), []
    for begin, end in zip([0, *cuts], [*cuts, rows.num_rows], strict=True):
        operator = CepOperator(
            pattern, SCHEMA, time="ts", keys=["key"], outputs={"m": OutputSpec(OutputKind.MATCHES, measures)}, **options
        )
        arrived = operator.prepare(EVENTS, rows.slice(begin, end - begin))
        results = [operator.process(store, [Arrival(EVENTS, arrived)], Now())]
        now = END_OF_TIME if end == rows.num_rows else int(rows["ts"][end - 1].as_py()) * 1000
        for result in [*results, operator.process(store, [], Now(now))]:
            if "m" in result.outputs:
                found += result.outputs["m"].to_pylist()
    return found


CONDITIONS = {
    "LAST(a.name) = name": "concat(LAST(a.name), '') = concat('', name)",
    "LAST(a.name) <> name AND kind <> LAST(a.kind)": "LAST(a.name) <> name AND NOT contains(LAST(a.kind), kind)",
    "COUNT(a.*) > 1 OR LAST(a.name) = name": "concat('x', CAST(COUNT(a.*) AS STRING)) > 'x1' OR LAST(a.name) = name",
    "MIN(a.name) > name OR MAX(a.name) < PREV(name)": "concat(MIN(a.name), '') > concat(name, '')"
    " OR concat(MAX(a.name), '') < concat(PREV(name), '')",
    "FIRST(a.ts) + 7 < ts AND AVG(a.ts) * 2 > ts": "FIRST(a.ts) + 7 < ts"
    " AND concat(IF(AVG(a.ts) * 2 > ts, 'x', 'y'), kind) LIKE 'x%'",
    "LAST(a.name) = name AND LAST(a.ts) > 5": "exists(split(LAST(a.name), '#'), x -> x = name) AND LAST(a.ts) > 5",
    "SUM(a.ts) + ts > 200": "CAST(concat(CAST(SUM(a.ts) AS STRING), '') AS BIGINT) + ts > 200",
}
"""Conditions of the stack machine, and others that say the same."""


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("computed", CONDITIONS)
def test_conditions_that_say_the_same(computed: str) -> None:
    rng = random.Random(computed)
    rows = events(rng, 120 if FACTOR == 1 else 250, 3)

    def pattern(condition: str) -> Pattern:
        begin = Pattern.begin("a").where("kind = 'a'").one_or_more().allow_combinations()
        return (
            begin.followed_by("b")
            .where("kind = 'b'")
            .where(condition)
            .next("c")
            .where(condition)
            .within(timedelta(milliseconds=15))
        )

    for cuts in ([], [20, 50, 51, 90]):
        asked = matches(pattern(CONDITIONS[computed]), rows, cuts)
        assert asked == matches(pattern(computed), rows, cuts)
        assert asked


@pytest.mark.usefixtures("limits")
def test_values_of_many_types() -> None:
    rows = events(random.Random(3), 120, 2)
    given = rows.to_pylist()
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by_any("b").where("array_contains(tags, LAST(a.name))")
    expected = {
        (a["ts"], b["ts"])
        for a in given
        for b in given
        if a["kind"] == "a" and a["key"] == b["key"] and a["ts"] < b["ts"] and a["name"] and a["name"] in b["tags"]
    }
    found = matches(pattern, rows, [17, 60])
    assert sorted((row["a"][0], row["b"][0]) for row in found) == sorted(expected)
    assert expected


def test_what_is_stored_of_patterns_that_ask_nothing() -> None:
    """Columns that only asked conditions read are stored beside the slots."""
    operator = CepOperator(SIMILAR, SCHEMA, time="ts", keys=["key"], outputs={})
    assert operator.pattern.event_schema.names == ["e:name"]


def test_errors_name_the_condition_and_the_stage() -> None:
    pattern = (
        Pattern.begin("a")
        .where("kind = 'a'")
        .followed_by("b")
        .where("element_at(tags, CAST(LAST(a.name) AS INT)) = 'x'")
    )
    rows = pa.Table.from_pylist(
        [
            {"key": "k", "ts": 1, "kind": "a", "name": "0", "tags": []},
            {"key": "k", "ts": 2, "kind": "b", "name": "0", "tags": ["x"]},
        ],
        SCHEMA,
    )
    with pytest.raises(InvalidEventError) as caught:
        matches(pattern, rows, [])
    assert "element_at(tags" in str(caught.value)
    assert "stage \"b\", key key='k'" in str(caught.value)


@pytest.mark.parametrize(
    "condition",
    [
        "LAST(a.name) <> '0' AND element_at(tags, CAST(LAST(a.name) AS INT)) = 'x'",
        "LAST(a.name) = '0' OR element_at(tags, CAST(LAST(a.name) AS INT)) = 'x'",
        "CASE WHEN LAST(a.name) = '0' THEN kind = 'b' ELSE element_at(tags, CAST(LAST(a.name) AS INT)) = 'x' END",
        "kind = 'b' AND element_at(tags, CAST(LAST(a.name) AS INT)) = 'x'",
    ],
)
def test_an_error_that_is_not_reached_does_not_matter(condition: str) -> None:
    """Neither is that of a candidate ahead: the partial match has ended by then."""
    rows = [
        {"key": "k", "ts": 1, "kind": "a", "name": "0" if "'0'" in condition else "1", "tags": ["x"]},
        {"key": "k", "ts": 2, "kind": "b", "name": "1", "tags": ["x"]},
        {"key": "k", "ts": 3, "kind": "a", "name": "1", "tags": []},
        {"key": "k", "ts": 4, "kind": "c", "name": "0", "tags": ["y"] if "'0'" in condition else []},
        {"key": "k", "ts": 5, "kind": "b", "name": "0", "tags": ["x"]},
    ]
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where(condition).within(timedelta(milliseconds=2))
    found = matches(pattern, pa.Table.from_pylist(rows, SCHEMA), [])
    assert (1, 2) in [(row["a"][0], row["b"][0]) for row in found] or "<>" in condition


@pytest.mark.parametrize(
    "condition", ["nothing(name, LAST(a.name)) = 1", "concat(LAST(a.name), name)", "contains(LAST(a.tags), name)"]
)
def test_what_duckdb_cannot_evaluate_either_is_refused(condition: str) -> None:
    with pytest.raises(ExpressionError):
        CepOperator(Pattern.begin("a").next("b").where(condition), SCHEMA, time="ts", outputs={})


def test_a_trace_tells_what_was_asked() -> None:
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("contains(concat(LAST(a.kind), kind), 'ac')")
    found = traced(pattern, "a1 b2 a3 c4")
    assert [match.took for match in found.matches] == [(("a", (3,)), ("b", (4,)))]
