"""The JSON graph says what the fluent pattern says, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from asterism.conformance.corpus import read_cases
from asterism.errors import AsterismError, PatternError, PatternFormatError
from asterism.patterns.conditions import AndCondition, Condition, NotCondition, SqlCondition
from asterism.patterns.json_format import pattern_json_schema
from asterism.patterns.json_reading import read_graph
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from tests.kit import CORPUS, FACTOR

Json = dict[str, Any]
SECOND = timedelta(seconds=1)


def node(name: str, *properties: str, **quantifier: Any) -> Json:
    return {"name": name, "type": "ATOMIC", "quantifier": {"properties": list(properties or ("SINGLE",)), **quantifier}}


def sql(text: str) -> Json:
    return {"type": "SQL", "expression": text}


def graph(*nodes: Json, links: str = "", **root: Any) -> Json:
    """Nodes with the links between them, named in order."""
    kinds = links.split()
    edges = [
        {"source": a["name"], "target": b["name"], "type": kind}
        for a, b, kind in zip(nodes, nodes[1:], kinds, strict=False)
    ]
    return {"name": "root", "type": "COMPOSITE", "nodes": list(nodes), "edges": edges, **root}


def seconds(size: int, kind: str = "FIRST_AND_LAST") -> Json:
    return {"type": kind, "time": {"unit": "SECONDS", "size": size}}


def begin() -> Pattern:
    return Pattern.begin("a")


CASES: dict[str, tuple[Json, Pattern]] = {
    "one stage": (graph(node("a")), begin()),
    "condition": (graph(node("a") | {"condition": sql("x > 1")}), begin().where("x > 1")),
    "contiguity": (
        graph(*map(node, "abcde"), links="STRICT SKIP_TILL_NEXT SKIP_TILL_ANY NOT_NEXT"),
        begin().next("b").followed_by("c").followed_by_any("d").not_next("e"),
    ),
    "absence": (
        graph(node("a"), node("b"), node("c"), links="NOT_FOLLOW SKIP_TILL_NEXT"),
        begin().not_followed_by("b").followed_by("c"),
    ),
    "nodes in any order": (
        graph(node("b"), node("a")) | {"edges": [{"source": "a", "target": "b", "type": "STRICT"}]},
        begin().next("b"),
    ),
    "times": (graph(node("a", "TIMES", times={"from": 2, "to": 4})), begin().times(2, 4)),
    "times from zero": (graph(node("a", "TIMES", times={"from": 0, "to": 4})), begin().times(0, 4)),
    "times with a window": (
        graph(node("a", "TIMES", times={"from": 2, "to": 2, "windowTime": {"unit": "MINUTES", "size": 1}})),
        begin().times(2, within=timedelta(minutes=1)),
    ),
    "loop": (graph(node("a", "LOOPING")), begin().one_or_more()),
    "loop from three, in any order of properties": (
        graph(node("a", "GREEDY", "OPTIONAL", "LOOPING", times={"from": 3, "to": 9}, consumingStrategy="STRICT")),
        begin().times_or_more(3).optional().greedy().consecutive(),
    ),
    "combinations": (
        graph(node("a", "LOOPING", consumingStrategy="SKIP_TILL_ANY", untilCondition=sql("x"))),
        begin().one_or_more().allow_combinations().until("x"),
    ),
    "optional": (graph(node("a", "SINGLE", "OPTIONAL")), begin().optional()),
    "window of the root": (
        graph(node("a"), node("b"), links="STRICT", window=seconds(1)),
        begin().next("b").within(SECOND),
    ),
    "windows of nodes": (
        graph(
            node("a") | {"window": seconds(2)},
            node("b") | {"window": seconds(1, "PREVIOUS_AND_CURRENT")},
            links="STRICT",
        ),
        begin().within(2 * SECOND).next("b").within(SECOND, WithinType.PREVIOUS_AND_CURRENT),
    ),
    "skip": (
        graph(node("a"), afterMatchStrategy={"type": "SKIP_TO_LAST", "patternName": "a"}),
        begin().skip_strategy(AfterMatchSkipStrategy.skip_to_last("a")),
    ),
    "group": (
        graph(
            node("a"),
            graph(node("b"), node("c"), links="STRICT", quantifier={"properties": ["LOOPING"]}) | {"name": "(b c)"},
            links="SKIP_TILL_ANY",
        ),
        begin().followed_by_any(Pattern.begin("b").next("c")).one_or_more(),
    ),
    "group in a group": (
        graph(
            graph(
                graph(node("a"), quantifier={"properties": ["SINGLE", "OPTIONAL"]}) | {"name": "(a)"},
                node("b"),
                links="SKIP_TILL_NEXT",
                quantifier={"properties": ["TIMES"], "times": {"from": 2, "to": 3}},
            )
            | {"name": "((a) b)"}
        ),
        Pattern.begin(Pattern.begin(begin()).optional().followed_by("b")).times(2, 3),
    ),
    "loops that take in other ways": (
        graph(
            node("a", "LOOPING", "GIVE_BACK"),
            node("b", "SINGLE", "OPTIONAL", "RELUCTANT"),
            node("c", "LOOPING", "LONGEST", consumingStrategy="STRICT"),
            links="STRICT STRICT",
        ),
        begin().one_or_more().greedy(give_back=True).next("b").optional().reluctant().next("c").one_or_more().longest()
        .consecutive(),
    ),
    "alternatives": (
        graph(
            node("a"),
            {"name": "(b | c)", "type": "COMPOSITE", "combination": {"type": "ANY_OF"}, "nodes": [node("b"), node("c")]}
            | {"quantifier": {"properties": ["LOOPING", "OPTIONAL"]}},
            links="SKIP_TILL_NEXT",
        ),
        begin().followed_by(Pattern.any_of("b", "c")).one_or_more().optional(),
    ),
    "any order": (
        graph(
            {
                "name": "(a & (b c))",
                "type": "COMPOSITE",
                "combination": {"type": "IN_ANY_ORDER", "consumingStrategy": "STRICT"},
                "nodes": [
                    node("a"),
                    graph(node("b"), node("c"), links="STRICT", quantifier={"properties": ["SINGLE"]}) | {"name": "(b c)"},
                ],
                "quantifier": {"properties": ["SINGLE"]},
            }
        ),
        Pattern.in_any_order("a", Pattern.begin("b").next("c"), consecutive=True),
    ),
    "absence before": (
        graph(node("x") | {"window": seconds(5)}, node("a"), links="NOT_BEFORE"),
        Pattern.begin_without("x").within(5 * SECOND).followed_by("a"),
    ),
    "inclusive window": (
        graph(node("a"), window=seconds(1) | {"inclusive": True}),
        begin().within(SECOND, inclusive=True),
    ),
    "only the first match": (
        graph(node("a"), afterMatchStrategy={"type": "FIRST_MATCH_ONLY"}),
        begin().skip_strategy(AfterMatchSkipStrategy.first_match_only()),
    ),
    "anchors and subsets": (
        graph(node("a"), node("b"), links="STRICT", startsWithFirstEvent=True, endsWithLastEvent=True)
        | {"subsets": [{"name": "u", "stages": ["a", "b"]}, {"name": "v", "stages": ["b"]}]},
        begin().next("b").starts_with_first_event().ends_with_last_event().subset("u", "a", "b").subset("v", "b"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_the_fluent_pattern(name: str) -> None:
    document, pattern = CASES[name]
    assert Pattern.from_json(document) == pattern
    assert Pattern.from_json(json.dumps(document)) == pattern
    assert Pattern.from_json(json.dumps(document).encode()) == pattern


def test_a_group_keeps_its_name() -> None:
    """The fluent pattern names a group after its stages; in a graph it has a name of its own."""
    document = graph(node("a"), graph(node("b"), quantifier={"properties": ["SINGLE"]}) | {"name": "g"}, links="STRICT")
    group = begin().next(Pattern.begin("b")).stages[-1]
    assert Pattern.from_json(document).stages[-1] == replace(group, name="g")


@pytest.mark.parametrize(
    ("unit", "duration"),
    [
        ("DAYS", timedelta(days=2)),
        ("HOURS", timedelta(hours=2)),
        ("MINUTES", timedelta(minutes=2)),
        ("SECONDS", timedelta(seconds=2)),
        ("MILLISECONDS", timedelta(milliseconds=2)),
        ("MICROSECONDS", timedelta(microseconds=2)),
    ],
)
def test_units_of_time(unit: str, duration: timedelta) -> None:
    window = {"type": "FIRST_AND_LAST", "time": {"unit": unit, "size": 2}}
    assert Pattern.from_json(graph(node("a"), window=window)).time_bound == duration


def test_absent_and_null_are_the_same() -> None:
    """Flink writes the fields that it does not need as null."""
    quantifier = {"properties": ["SINGLE"], "times": None, "untilCondition": None, "consumingStrategy": None}
    a = node("a") | {"quantifier": quantifier, "condition": None, "window": None}
    nothing = {"window": None, "afterMatchStrategy": None, "version": None, "quantifier": None, "condition": None}
    nothing |= dict.fromkeys(("combination", "startsWithFirstEvent", "endsWithLastEvent", "subsets"))
    assert Pattern.from_json(graph(a) | nothing | {"edges": None, "name": None}) == begin()
    skip = {"type": "NO_SKIP", "patternName": None, "throwOnMiss": None}
    assert Pattern.from_json(graph(a, afterMatchStrategy=skip)) == begin()


# ---------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("name", CASES)
def test_a_pattern_is_written_as_it_is_read(name: str) -> None:
    _, pattern = CASES[name]
    assert Pattern.from_json(pattern.to_json()) == pattern
    assert Pattern.from_json(pattern.to_json()) == pattern


def inner(skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    return Pattern.begin("b", skip).next("c").where("x = 'c'")


WRITTEN: dict[str, Pattern] = {
    "both windows of the last stage": (
        begin().next("b").within(2 * SECOND).within(SECOND, WithinType.PREVIOUS_AND_CURRENT)
    ),
    "both windows of another stage": (
        begin().within(SECOND, WithinType.PREVIOUS_AND_CURRENT).within(2 * SECOND).next("b")
    ),
    "microseconds": begin().times(2, within=timedelta(microseconds=1)).within(timedelta(microseconds=1500)),
    "zero times after a greedy stage": begin().one_or_more().greedy().next("b").times(0, 2),
    "window before the last stage": begin().within(SECOND).next("b").within(timedelta(days=1, milliseconds=1)),
    "windows of groups": begin().next(inner().within(SECOND)).within(2 * SECOND).next("d").within(3 * SECOND),
    "no time between repetitions": begin().times(3, within=timedelta(0)),
    "time between repetitions": begin().times_or_more(3, within=timedelta(milliseconds=1500)),
    "long window": begin().within(timedelta(days=400_000, milliseconds=1)),
    "throwing": begin().skip_strategy(AfterMatchSkipStrategy.skip_to_first("a", throw_on_miss=True)),
    "throwing at the last": begin().skip_strategy(AfterMatchSkipStrategy.skip_to_last("a", throw_on_miss=True)),
    "skipping to next": begin().skip_strategy(AfterMatchSkipStrategy.skip_to_next()),
    "a strategy that has no effect": begin().next(inner(AfterMatchSkipStrategy.skip_past_last_event())),
    "optional before it is said how often": begin().optional().times(2, 3).greedy(),
    "until on a group": begin().next(inner()).one_or_more().consecutive().until("x = 'u'"),
    "names and texts in other languages": Pattern.begin('начало "1"\n/~').where("x = 'Ünï' -- 😀\n"),
    "blank name": Pattern.begin(" "),
    "both windows of the last stage, inclusive": (
        begin()
        .next("b")
        .within(2 * SECOND, inclusive=True)
        .within(SECOND, WithinType.PREVIOUS_AND_CURRENT, inclusive=True)
    ),
    "inclusive window of no time": begin().next("b").within(timedelta(0), inclusive=True),
    "inclusive windows of no time": (
        begin()
        .within(timedelta(0), inclusive=True)
        .within(timedelta(0), WithinType.PREVIOUS_AND_CURRENT, inclusive=True)
    ),
    "zero times after the longest loop": begin().one_or_more().longest().next("b").times(0, 2),
    "alternatives in alternatives": begin().next(
        Pattern.any_of("b", Pattern.any_of(Pattern.begin("c").next("d"), "e"))
    ),
    "alternatives with a window": begin().next(Pattern.any_of("b", "c").within(SECOND)).next("d"),
    "alternatives that are the whole": Pattern.any_of("a", "b").times(2).within(SECOND),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_round_trip(name: str) -> None:
    pattern = WRITTEN[name]
    text = pattern.to_json()
    assert Pattern.from_json(text) == pattern
    assert Pattern.from_json(text.encode()) == pattern


def test_written_graph() -> None:
    """All of it, with what Flink requires though it says nothing here."""
    pattern = (
        Pattern.begin("a", AfterMatchSkipStrategy.skip_to_last("a"))
        .where("x > 1")
        .times_or_more(2, within=SECOND)
        .until("x = 0")
        .followed_by_any(Pattern.begin("b").not_next("c").next("d"))
        .optional()
        .within(timedelta(minutes=90))
    )
    once = {"consumingStrategy": "SKIP_TILL_NEXT", "properties": ["SINGLE"]}
    assert json.loads(pattern.to_json()) == {
        "name": "root",
        "type": "COMPOSITE",
        "version": 1,
        "quantifier": once,
        "nodes": [
            {
                "name": "a",
                "type": "ATOMIC",
                "quantifier": {
                    "consumingStrategy": "SKIP_TILL_NEXT",
                    "properties": ["LOOPING"],
                    "times": {"from": 2, "to": 2, "windowTime": {"unit": "SECONDS", "size": 1}},
                    "untilCondition": sql("x = 0"),
                },
                "condition": sql("x > 1"),
            },
            {
                "name": "(b c d)",
                "type": "COMPOSITE",
                "quantifier": once | {"properties": ["SINGLE", "OPTIONAL"]},
                "nodes": [{"name": name, "type": "ATOMIC", "quantifier": once} for name in "bcd"],
                "edges": [
                    {"source": "b", "target": "c", "type": "NOT_NEXT"},
                    {"source": "c", "target": "d", "type": "STRICT"},
                ],
            },
        ],
        "edges": [{"source": "a", "target": "(b c d)", "type": "SKIP_TILL_ANY"}],
        "window": {"type": "FIRST_AND_LAST", "time": {"unit": "MINUTES", "size": 90}},
        "afterMatchStrategy": {"type": "SKIP_TO_LAST", "patternName": "a"},
    }


def expression(pattern: Pattern) -> str:
    text: str = json.loads(pattern.to_json())["nodes"][0]["condition"]["expression"]
    return text


def not_(condition: str | Condition) -> NotCondition:
    return NotCondition(SqlCondition(condition) if isinstance(condition, str) else condition)


JOINED: dict[str, tuple[Pattern, str]] = {
    "one text as it is": (begin().where("  x >1 -- why"), "  x >1 -- why"),
    "where where": (begin().where("x OR y").where("z"), "(x OR y) AND (z)"),
    "where where where": (begin().where("x").where("y").where("z"), "(x) AND (y) AND (z)"),
    "where or where": (begin().where("x").or_("y").where("z"), "((x) OR (y)) AND (z)"),
    "not": (begin().where(not_("x > 1")), "NOT (x > 1) OR (x > 1) IS NULL"),
    "not not": (begin().where(not_(not_("x"))), "x"),
    "not or": (
        begin().where(not_(SqlCondition("x").or_(SqlCondition("y")))),
        "(NOT (x) OR (x) IS NULL) AND (NOT (y) OR (y) IS NULL)",
    ),
    "not and, among others": (
        begin().where("v").where(not_(AndCondition(SqlCondition("x"), not_("y")))),
        "(v) AND ((NOT (x) OR (x) IS NULL) OR (y))",
    ),
    "comments": (begin().where("x -- first").where("y /* second */").where("z"), "(x -- first\n) AND (y /* second */) AND (z)"),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_conditions_become_one_text(name: str) -> None:
    pattern, text = JOINED[name]
    assert expression(pattern) == text
    assert expression(Pattern.from_json(pattern.to_json())) == text


def test_a_comment_cannot_swallow_a_condition() -> None:
    """Each of the texts is an expression of its own; side by side they must not be another one."""
    assert expression(begin().where("x --").where("y\n IS NULL")) == "(x --\n) AND (y\n IS NULL)"


def test_a_long_row_of_conditions_is_not_deep() -> None:
    pattern = begin()
    for number in range(100):
        pattern = pattern.where(f"x <> {number}")
    assert expression(pattern).count("AND") == 99


def test_written_graph_beyond_flink() -> None:
    pattern = (
        Pattern.begin_without("x")
        .within(SECOND)
        .followed_by(Pattern.in_any_order("a", "b"))
        .next("c")
        .one_or_more()
        .longest()
        .within(SECOND, inclusive=True)
        .starts_with_first_event()
        .subset("u", "a", "b")
    )
    once = {"consumingStrategy": "SKIP_TILL_NEXT", "properties": ["SINGLE"]}
    written = json.loads(pattern.to_json())
    assert written["nodes"][1] == {
        "name": "(a & b)",
        "type": "COMPOSITE",
        "quantifier": once,
        "combination": {"type": "IN_ANY_ORDER", "consumingStrategy": "SKIP_TILL_NEXT"},
        "nodes": [{"name": name, "type": "ATOMIC", "quantifier": once} for name in "ab"],
    }
    assert written["nodes"][2]["quantifier"]["properties"] == ["LOOPING", "LONGEST"]
    assert written["edges"] == [
        {"source": "x", "target": "(a & b)", "type": "NOT_BEFORE"},
        {"source": "(a & b)", "target": "c", "type": "STRICT"},
    ]
    assert written["window"] == seconds(1) | {"inclusive": True}
    assert written["startsWithFirstEvent"] is True
    assert "endsWithLastEvent" not in written
    assert written["subsets"] == [{"name": "u", "stages": ["a", "b"]}]


def test_nothing_new_is_written_without_need() -> None:
    """A pattern that Flink can express has only fields of its format."""
    written = json.loads(begin().next("b").one_or_more().greedy().within(SECOND).to_json())
    assert set(written) == {"name", "type", "version", "quantifier", "nodes", "edges", "window", "afterMatchStrategy"}
    assert set(written["window"]) == {"type", "time"}


# ---------------------------------------------------------------------------------------------------- problems


def test_every_problem_has_its_place() -> None:
    document = graph(
        node("a", "LAZY") | {"condition": {"type": "SQL"}},
        graph(node("b", "TIMES", times={"from": 1}), type="COMPOSITE", quantifier={}) | {"name": "g"},
        window={"type": "LAST"},
    )
    problems = read_graph(Pattern, document).problems
    assert [problem.path for problem in problems] == [
        "/edges",
        "/nodes/0/condition/expression",
        "/nodes/0/quantifier/properties/0",
        "/nodes/0/quantifier/properties",
        "/nodes/1/nodes/0/quantifier/times/to",
        "/nodes/1/quantifier/properties",
        "/window/type",
    ]
    with pytest.raises(PatternFormatError) as caught:
        Pattern.from_json(document)
    assert (str(caught.value), caught.value.path) == (str(problems[0]), "/edges")


def test_fields_with_slashes_have_pointers() -> None:
    with pytest.raises(PatternFormatError) as caught:
        Pattern.from_json(graph(node("a")) | {"a/b~c": 1})
    assert caught.value.path == "/a~1b~0c"


def test_errors_of_patterns_are_one_family() -> None:
    with pytest.raises(PatternError) as caught:
        Pattern.from_json(graph(node("a", "TIMES", times={"from": 3, "to": 2})))
    assert caught.value.path == "/nodes/0/quantifier/times"
    with pytest.raises(PatternError) as caught:
        begin().times(3, 2)
    assert caught.value.path is None


def test_messages_are_of_bounded_length() -> None:
    """What is unknown may be large."""
    document = graph(node("a") | {"type": "x" * 100_000}, node("b", ["x" * 1000] * 1000))  # type: ignore[arg-type]
    assert all(len(str(problem)) < 1000 for problem in read_graph(Pattern, document).problems)


# ---------------------------------------------------------------------------------------------------- the schema


def test_the_schema_accepts_every_pattern_of_the_corpus() -> None:
    schema = Draft202012Validator(pattern_json_schema())
    schema.check_schema(schema.schema)
    accepted = 0
    for number, case in enumerate(read_cases(sorted(CORPUS.glob("*.jsonl")))):
        if number % max(1, 5 // FACTOR):
            continue
        try:
            Pattern.from_json(case["pattern"])
        except AsterismError:
            continue
        accepted += 1
        assert list(schema.iter_errors(case["pattern"])) == [], case["id"]
    assert accepted > 600


BEYOND_A_SCHEMA = (
    "edge", "begin-node", "branching", "cycle", "loop", "same-name", "window", "after", "not-next", "not-follow", "unknown-name",
    "skip-to", "to-less-than-from", "zero-optional", "further",
)  # fmt: skip


def test_the_schema_refuses_what_is_malformed() -> None:
    """Except for what concerns several places at once."""
    schema = Draft202012Validator(pattern_json_schema())
    refused = 0
    for case in read_cases([CORPUS / "malformed.jsonl"]):
        is_format = case["expected"]["error"].startswith("PatternFormatException")
        if "condition-" in case["id"] or any(word in case["id"] for word in BEYOND_A_SCHEMA):
            continue
        assert not schema.is_valid(case["pattern"]), case["id"]
        refused += is_format
    assert refused > 15
