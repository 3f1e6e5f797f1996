"""What is written as JSON reads as the same pattern, and the published schema never refuses what the parser accepts."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from asterism.conformance.engines import run_kernel
from asterism.errors import AsterismError, MalformedPatternError, PatternError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import AndCondition, Condition, NotCondition, OrCondition, SqlCondition
from asterism.patterns.json_format import pattern_json_schema
from asterism.patterns.json_reading import read_graph
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from asterism.rules.checking.validation import check
from asterism.text.strict_json import decode, offset_of
from tests.patterns.strategies import Json, chance, events, patterns
from tests.reference.event import Accepted, Event
from tests.reference.sql import parse_condition

SCHEMA = Draft202012Validator(pattern_json_schema())

# ---------------------------------------------------------------------------------------------------- round trip


def durations() -> st.SearchStrategy[timedelta]:
    return st.builds(
        lambda unit, size: size * unit,
        st.sampled_from(
            [timedelta(**{unit: 1}) for unit in ("microseconds", "milliseconds", "seconds", "minutes", "days")]
        ),
        st.integers(1, 100_000),
    )


@st.composite
def fluent_patterns(draw: st.DrawFn) -> Pattern:
    """Patterns that can be read from a graph, with more of what Python can say."""
    try:
        pattern = Pattern.from_json(draw(patterns(beyond_flink=draw(st.booleans()))))
    except AsterismError:
        assume(False)
    *_, last = pattern.stages
    if draw(chance(30)):
        gap = draw(durations())
        last = replace(last, window=gap + draw(durations()), gap_window=gap)
        # A bound between repetitions may not be wider than the window.
        assume(last.quantifier.gap is None or last.window is None or last.quantifier.gap <= last.window)
    pattern = replace(pattern, stages=(*pattern.stages[:-1], last))
    stages = [stage.name for stage in pattern.stages if stage.group is None]
    if stages and draw(chance(30)):
        skip = draw(st.sampled_from([AfterMatchSkipStrategy.skip_to_first, AfterMatchSkipStrategy.skip_to_last]))
        pattern = pattern.skip_strategy(skip(draw(st.sampled_from(stages)), throw_on_miss=draw(st.booleans())))
    return pattern


@given(pattern=fluent_patterns())
def test_what_is_written_reads_as_the_same_pattern(pattern: Pattern) -> None:
    text = pattern.to_json()
    assert Pattern.from_json(text) == pattern
    assert list(SCHEMA.iter_errors(json.loads(text))) == []
    assert Pattern.from_json(text).to_json() == text


CALLS = (
    "next", "next", "followed_by", "followed_by", "followed_by_any", "not_next", "not_followed_by", "where", "until", "times",
    "times", "times_or_more", "one_or_more", "optional", "greedy", "longest", "reluctant", "consecutive", "allow_combinations",
    "within",
)  # fmt: skip
OF_THE_WHOLE = ("starts_with_first_event", "ends_with_last_event", "subset")


@st.composite
def written_patterns(draw: st.DrawFn, names: list[str], depth: int = 2, whole: bool = True) -> Pattern:
    """Patterns as they are written in Python: any calls in any order, but for those that the pattern refuses."""

    def stage() -> str | Pattern:
        if depth and draw(chance(20)):
            return draw(written_patterns(names, depth - 1, whole=False))
        if depth and draw(chance(20)):
            combine = draw(st.sampled_from([Pattern.any_of, Pattern.in_any_order]))
            elements = [draw(written_patterns(names, depth - 1, whole=False)) for _ in range(draw(st.integers(2, 3)))]
            try:
                return combine(*elements)
            except MalformedPatternError as refused:
                event(refused.message.partition(":")[0])
        names.append(f"s{len(names)}")
        return names[-1]

    def arguments(call: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        within = {"within": draw(durations())} if draw(chance(20)) else {}
        match call:
            case "next" | "followed_by" | "followed_by_any" | "not_next" | "not_followed_by":
                return (stage(),), {}
            case "where" | "until":
                return ("price > 2",), {}
            case "times":
                return tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))), within
            case "times_or_more":
                return (draw(st.integers(1, 3)),), within
            case "one_or_more":
                return (), within
            case "within":
                inclusive = {"inclusive": True} if draw(chance(30)) else {}
                return (draw(durations()), draw(st.sampled_from(WithinType))), inclusive
            case "greedy":
                return (), {"give_back": True} if draw(st.booleans()) else {}
            case "subset":
                return ("u", draw(st.sampled_from(names))), {}
        return (), {}

    if whole and draw(chance(10)):
        names.append(f"s{len(names)}")
        pattern = Pattern.begin_without(names[-1]).where("price > 3").within(draw(durations())).followed_by(stage())
    else:
        pattern = Pattern.begin(stage())
    for call in draw(st.lists(st.sampled_from((*CALLS, *OF_THE_WHOLE) if whole else CALLS), max_size=9)):
        positional, named = arguments(call)
        if call == "where" and pattern.stages[-1].condition is not None:
            continue  # conditions that are joined come back as one text
        try:
            pattern = getattr(pattern, call)(*positional, **named)
        except MalformedPatternError as refused:
            event(refused.message.partition(": ")[2])
    return pattern


@settings(max_examples=5 * settings().max_examples)
@given(pattern=st.builds(list).flatmap(written_patterns), semantics=st.sampled_from(Semantics))
def test_every_pattern_that_compiles_can_be_written(pattern: Pattern, semantics: Semantics) -> None:
    try:
        compile_pattern(pattern, semantics)
    except MalformedPatternError:
        return
    text = pattern.to_json()
    assert Pattern.from_json(text) == pattern
    assert list(SCHEMA.iter_errors(json.loads(text))) == []


# ---------------------------------------------------------------------------------------------------- conditions

LEAVES = (
    "price > 2",
    "price = 1.0 OR volume = 1",
    "volume IS NULL",
    "NOT volume = 2",
    "name IN ('a', 'b') AND price < 4",
    "name = 'it''s (not) a -- comment'",
    "price > LAST(s.price)",
    "LAST(s.volume) = volume OR volume > 1",
    "COUNT(s.price) = 0 AND name <> 'x'",
    "NULL",
    "TRUE",
)


def conditions() -> st.SearchStrategy[Condition]:
    return st.recursive(
        st.builds(SqlCondition, st.sampled_from(LEAVES)),
        lambda inner: (
            st.builds(AndCondition, inner, inner)
            | st.builds(OrCondition, inner, inner)
            | st.builds(NotCondition, inner)
        ),
        max_leaves=8,
    )


def holds(condition: Condition, event: Event, accepted: Accepted) -> bool:
    """As :mod:`asterism.patterns.conditions` says it: that a text is not TRUE is settled before anything is built from it."""
    match condition:
        case SqlCondition(text):
            return parse_condition(text)(event, accepted)
        case AndCondition(left, right):
            return holds(left, event, accepted) and holds(right, event, accepted)
        case OrCondition(left, right):
            return holds(left, event, accepted) or holds(right, event, accepted)
        case NotCondition(inner):
            return not holds(inner, event, accepted)
    raise AssertionError


@given(condition=conditions(), rows=events())
def test_one_text_means_what_the_conditions_meant(condition: Condition, rows: list[list[Any]]) -> None:
    """To the slow matcher's SQL, which is that of the conformance corpus."""
    pattern = Pattern.begin("s").followed_by_any("a").where(condition)
    text = json.loads(pattern.to_json())["nodes"][1]["condition"]["expression"]
    joined = parse_condition(text)
    for first, second in combinations([Event(*row) for row in rows], 2):
        accepted = (("s", first),)
        assert joined(second, accepted) == holds(condition, second, accepted), text


@settings(max_examples=max(1, settings().max_examples // 3))
@given(condition=conditions(), rows=events())
def test_the_engine_finds_the_same(condition: Condition, rows: list[list[Any]]) -> None:
    graph = json.loads(Pattern.begin("s").followed_by_any("a").where(condition).to_json())
    rows = sorted(rows, key=lambda row: row[1])
    steps = [{"events": [row[0] for row in rows], "watermark": 2**63 - 1}]
    case: Json = {"pattern": graph, "events": rows, "steps": steps}
    answer = run_kernel(case, Semantics.DEFAULT, "whole", random.Random(0))
    pairs = combinations([Event(*row) for row in rows], 2)
    expected = [[first.id, second.id] for first, second in pairs if holds(condition, second, (("s", first),))]
    assert sorted([*match["s"], *match["a"]] for _, match in answer["matches"]) == sorted(expected)


# ---------------------------------------------------------------------------------------------------- schema and parser

FIELDS = [
    "name", "type", "version", "quantifier", "condition", "nodes", "edges", "window", "afterMatchStrategy", "properties",
    "consumingStrategy", "times", "untilCondition", "windowTime", "from", "to", "unit", "size", "time", "source", "target",
    "expression", "patternName", "throwOnMiss", "comment", "combination", "subsets", "stages", "startsWithFirstEvent",
    "endsWithLastEvent", "inclusive",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 1.0, 2.5, 10**19, "", " ", "a", "b", "a:b", "ATOMIC", "COMPOSITE", "SINGLE", "LOOPING",
    "TIMES", "OPTIONAL", "GREEDY", "STRICT", "SKIP_TILL_ANY", "NOT_NEXT", "NOT_FOLLOW", "NO_SKIP", "SKIP_TO_FIRST", "SQL",
    "AVIATOR", "FIRST_AND_LAST", "PREVIOUS_AND_CURRENT", "DAYS", "WEEKS", "\ud800", [], {}, ["SINGLE"], ["LOOPING"],
    ["TIMES", "GREEDY"], [None], [{}], {"type": "SQL"}, {"type": "SQL", "expression": "TRUE"}, {"unit": "DAYS", "size": 1},
    {"from": 1}, {"from": 2, "to": 3}, {"type": "SKIP_TO_FIRST", "patternName": "a", "throwOnMiss": True},
    {"type": "FIRST_AND_LAST", "time": {"unit": "HOURS", "size": 3}}, {"type": "ANY_OF"},
    {"type": "IN_ANY_ORDER", "consumingStrategy": "STRICT"}, "LONGEST", "RELUCTANT", "GIVE_BACK", "NOT_BEFORE",
    "FIRST_MATCH_ONLY", [{"name": "u", "stages": ["a"]}],
]  # fmt: skip


def containers(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict | list) else []), *(c for part in inner for c in containers(part))]


@st.composite
def mutated_graphs(draw: st.DrawFn) -> Json:
    """A good graph in which a few values were removed, replaced, added, doubled or exchanged."""
    graph: Json = copy.deepcopy(draw(patterns(beyond_flink=draw(st.booleans()))))
    for _ in range(draw(st.integers(0, 3))):
        container = draw(st.sampled_from(containers(graph)))
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        verb = draw(st.sampled_from(["replace", "replace", "remove", "add", "move"]))
        new = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if verb == "add" or not keys:
            if isinstance(container, dict):
                container[draw(st.sampled_from(FIELDS))] = new
            else:
                container.append(copy.deepcopy(container[0]) if container and draw(st.booleans()) else new)
            continue
        key = draw(st.sampled_from(keys))
        if verb == "remove":
            del container[key]
        elif verb == "replace":
            container[key] = new
        elif isinstance(container, dict):
            container[draw(st.sampled_from(FIELDS))] = container.pop(key)
        else:
            container.reverse()
    return graph


@settings(max_examples=5 * settings().max_examples)
@given(graph=mutated_graphs())
def test_what_the_schema_refuses_the_parser_refuses(graph: Json) -> None:
    """And whatever it refuses, it says so with an error of its own, at a place that is there."""
    allowed = SCHEMA.is_valid(graph)
    text = json.dumps(graph)
    problems = read_graph(Pattern, decode(text)).problems
    event(f"schema {'accepts' if allowed else 'refuses'}, parser {'refuses' if problems else 'accepts'}")
    assert allowed or problems
    for problem in problems:
        assert isinstance(problem, PatternError)
        assert problem.path is not None
        assert 0 <= offset_of(text, problem.path) < len(text)
    checked = check(text)
    assert checked.problems or not problems
    for found in checked.problems:
        assert (found.line, str(found).partition(":")[0]) == (1, "1")
