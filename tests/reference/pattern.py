"""The JSON graph of a pattern as chains of nodes, in the order in which events are expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from .event import Condition, always, conjunction, disjunction, negation
from .sql import parse_condition


class Contiguity(Enum):
    """How an event must follow the one before, or, for the NOT kinds, must not."""

    STRICT = "STRICT"
    SKIP_TILL_NEXT = "SKIP_TILL_NEXT"
    SKIP_TILL_ANY = "SKIP_TILL_ANY"
    NOT_NEXT = "NOT_NEXT"
    NOT_FOLLOW = "NOT_FOLLOW"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One pattern, or a group if it has a body.

    A `repeated` node is a LOOPING or TIMES one, even if it repeats exactly once. `gap` is its windowTime;
    `first_and_last` and `previous_and_current` are its windows. All three are milliseconds.
    """

    name: str
    contiguity: Contiguity = Contiguity.STRICT
    inner: Contiguity = Contiguity.SKIP_TILL_NEXT
    repeated: bool = False
    looping: bool = False
    least: int = 1
    most: int = 1
    optional: bool = False
    greedy: bool = False
    gap: int | None = None
    first_and_last: int | None = None
    previous_and_current: int | None = None
    condition: Condition = field(default=always)
    until: Condition | None = None
    body: tuple[Node, ...] = ()


_MILLISECONDS = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000, "MILLISECONDS": 1}


def read_pattern(graph: Mapping[str, Any]) -> tuple[Node, ...]:
    """The root's chain. The root's window belongs to the last node, whose own window of that type it replaces."""
    *chain, last = _read_chain(graph)
    return (*chain, replace(last, **_read_window(graph)))


def _read_chain(graph: Mapping[str, Any]) -> tuple[Node, ...]:
    specifications = {node["name"]: node for node in graph["nodes"]}
    following = {edge["source"]: edge for edge in graph.get("edges") or ()}
    targets = {edge["target"] for edge in following.values()}
    (name,) = specifications.keys() - targets
    # Nothing leads to the first node of a chain, and Flink counts that as STRICT. It matters for a group that heads a
    # group: its own first event then has to follow strictly, whatever the edge into the outer group says.
    chain = [_read_node(specifications[name], Contiguity.STRICT)]
    while name in following:
        edge = following[name]
        name = edge["target"]
        chain.append(_read_node(specifications[name], Contiguity(edge["type"])))
    return tuple(chain)


def _read_node(specification: Mapping[str, Any], contiguity: Contiguity) -> Node:
    quantifier = specification.get("quantifier") or {}
    properties = frozenset(quantifier.get("properties") or ())
    times = quantifier.get("times") or {}
    looping = "LOOPING" in properties
    repeated = looping or "TIMES" in properties
    least = times.get("from", 1) if repeated else 1
    until = quantifier.get("untilCondition")
    condition = specification.get("condition")
    return Node(
        name=specification["name"],
        contiguity=contiguity,
        inner=Contiguity(quantifier.get("consumingStrategy") or "SKIP_TILL_NEXT"),
        repeated=repeated,
        looping=looping,
        least=max(least, 1),
        # A loop is built as exactly `from` repetitions in front of the looping one.
        most=max(least, 1) if looping or not repeated else times["to"],
        # times(0, n) is an optional times(1, n).
        optional="OPTIONAL" in properties or least == 0,
        greedy="GREEDY" in properties,
        gap=_read_time(times.get("windowTime")) if repeated else None,
        condition=_read_condition(condition) if condition else always,
        until=_read_condition(until) if until else None,
        body=_read_chain(specification) if specification["type"] == "COMPOSITE" else (),
        **_read_window(specification),
    )


def _read_condition(specification: Mapping[str, Any]) -> Condition:
    """SQL text as in the corpus; for tests also PYTHON, with a `condition` of ours, and AND, OR and NOT over `of`."""
    match specification["type"]:
        case "SQL":
            return parse_condition(specification["expression"])
        case "PYTHON":
            condition: Condition = specification["condition"]
            return condition
        case "AND" | "OR" as kind:
            first, second = map(_read_condition, specification["of"])
            return conjunction(first, second) if kind == "AND" else disjunction(first, second)
        case "NOT":
            return negation(_read_condition(specification["of"]))
    raise ValueError(f"unknown condition type {specification['type']!r}")


def _read_window(specification: Mapping[str, Any]) -> dict[str, Any]:
    window = specification.get("window")
    if not window:
        return {}
    return {window["type"].lower(): _read_time(window["time"])}


def _read_time(time: Mapping[str, Any] | None) -> int | None:
    return time["size"] * _MILLISECONDS[time["unit"]] if time else None
