"""The JSON graph says what the fluent pattern says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from asterism.json_format import pattern_from_json
from asterism.pattern import AfterMatchSkipStrategy, Pattern, WithinType

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
}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_the_fluent_pattern(name: str) -> None:
    document, pattern = CASES[name]
    assert pattern_from_json(document) == pattern
    assert pattern_from_json(json.dumps(document)) == pattern
    assert pattern_from_json(json.dumps(document).encode()) == pattern


def test_a_group_keeps_its_name() -> None:
    """The fluent pattern names a group after its stages; in a graph it has a name of its own."""
    document = graph(node("a"), graph(node("b"), quantifier={"properties": ["SINGLE"]}) | {"name": "g"}, links="STRICT")
    group = begin().next(Pattern.begin("b")).stages[-1]
    assert pattern_from_json(document).stages[-1] == replace(group, name="g")


@pytest.mark.parametrize(
    ("unit", "duration"),
    [
        ("DAYS", timedelta(days=2)),
        ("HOURS", timedelta(hours=2)),
        ("MINUTES", timedelta(minutes=2)),
        ("SECONDS", timedelta(seconds=2)),
        ("MILLISECONDS", timedelta(milliseconds=2)),
    ],
)
def test_units_of_time(unit: str, duration: timedelta) -> None:
    window = {"type": "FIRST_AND_LAST", "time": {"unit": unit, "size": 2}}
    assert pattern_from_json(graph(node("a"), window=window)).time_bound == duration
