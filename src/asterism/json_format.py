"""The JSON form of patterns: the graph format that dynamic Flink CEP uses.

A graph has ``nodes`` and ``edges`` that make one chain; a node is ``ATOMIC`` (a stage) or ``COMPOSITE`` (a group, itself a
graph). Conditions are ``{"type": "SQL", "expression": text}``. What arrives here is not trusted: nothing in it is imported or
evaluated as code, and every name is checked.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from asterism.conditions import SqlCondition
from asterism.errors import MalformedPatternError, PatternFormatError
from asterism.pattern import AfterMatchSkipStrategy, Contiguity, Pattern, SkipKind, Stage, WithinType

MAX_BYTES = 1_000_000
MAX_GROUP_DEPTH = 50

_UNITS = {"DAYS": "days", "HOURS": "hours", "MINUTES": "minutes", "SECONDS": "seconds", "MILLISECONDS": "milliseconds"}
_KINDS = ("SINGLE", "LOOPING", "TIMES")
E_ = TypeVar("E_", bound=enum.Enum)


def pattern_from_json(source: str | bytes | Mapping[str, Any]) -> Pattern:
    """The pattern that a JSON graph describes.

    :raises PatternFormatError: the text is not such a graph; the message names the node
    :raises MalformedPatternError: it is, but the pattern means nothing

    >>> graph = '{"name": "", "type": "COMPOSITE", "edges": [], "nodes": [{"name": "a", "type": "ATOMIC",' \\
    ...         ' "quantifier": {"properties": ["SINGLE"]}, "condition": {"type": "SQL", "expression": "x > 1"}}]}'
    >>> pattern_from_json(graph) == Pattern.begin("a").where("x > 1")
    True
    """
    if isinstance(source, Mapping):
        graph: Any = source
    else:
        if len(source) > MAX_BYTES:
            raise PatternFormatError(f"a pattern of {len(source)} bytes is too large (limit {MAX_BYTES})")
        try:
            graph = json.loads(source)
        except RecursionError:
            raise PatternFormatError("the JSON is nested too deeply") from None
        except ValueError as error:
            raise PatternFormatError("this is not JSON", str(error)) from None
    if not isinstance(graph, Mapping) or graph.get("type") != "COMPOSITE":
        raise PatternFormatError("the root must be a graph of type COMPOSITE")
    pattern = _graph(graph, _skip(graph.get("afterMatchStrategy")), "root", 0)
    pattern = _with_window(pattern, graph.get("window"), "root")
    pattern.validate()
    return pattern


def _graph(graph: Mapping[str, Any], skip: AfterMatchSkipStrategy, where: str, depth: int) -> Pattern:
    if depth > MAX_GROUP_DEPTH:
        raise PatternFormatError(f"groups are nested more than {MAX_GROUP_DEPTH} levels deep")
    pattern: Pattern | None = None
    for node, edge in _chain(graph, where):
        name = node["name"]
        stage = replace(_new_stage(node, depth), contiguity=Contiguity.STRICT if edge is None else edge)
        if stage.contiguity.negated and stage.group is not None:
            raise PatternFormatError(f"a {stage.contiguity.value} edge cannot lead to the group {name!r}")
        pattern = Pattern((stage,), skip) if pattern is None else pattern._append(stage)
        pattern = _with_quantifier(pattern, node, name)
        pattern = _with_window(pattern, node.get("window"), name)
    assert pattern is not None
    return pattern


def _chain(graph: Mapping[str, Any], where: str) -> list[tuple[Mapping[str, Any], Contiguity | None]]:
    """The nodes in order, each with the contiguity of the edge that leads to it."""
    nodes: dict[str, Mapping[str, Any]] = {}
    listed = graph.get("nodes")
    if not isinstance(listed, list) or not listed:
        raise PatternFormatError(f"{where}: a graph needs nodes")
    for node in listed:
        name = node.get("name") if isinstance(node, Mapping) else None
        if not isinstance(name, str) or not name:
            raise PatternFormatError(f"{where}: a node without a name")
        if name in nodes:
            raise PatternFormatError(f"{where}: two nodes are named {name!r}")
        nodes[name] = node
    after: dict[str, tuple[str, Contiguity]] = {}
    entered: set[str] = set()
    edges = graph.get("edges") or []
    if not isinstance(edges, list):
        raise PatternFormatError(f"{where}: edges must be a list")
    for edge in edges:
        source, target = (edge.get("source"), edge.get("target")) if isinstance(edge, Mapping) else (None, None)
        if not isinstance(source, str) or not isinstance(target, str) or source not in nodes or target not in nodes:
            raise PatternFormatError(f"{where}: the edge {source!r} -> {target!r} names an unknown node")
        kind = _member(Contiguity, edge.get("type"), "edge type", f"{where}: edge {source!r} -> {target!r}")
        if source in after:
            raise PatternFormatError(f"{where}: two edges leave node {source!r}")
        if target in entered:
            raise PatternFormatError(f"{where}: two edges enter node {target!r}")
        after[source] = (target, kind)
        entered.add(target)
    if len(entered) == len(nodes):
        raise PatternFormatError(f"{where}: the edges go in a circle")
    begins = [name for name in nodes if name not in entered]
    if len(begins) != 1:
        raise PatternFormatError(f"{where}: a graph has one first node, this one has {len(begins)}")
    chain: list[tuple[Mapping[str, Any], Contiguity | None]] = [(nodes[begins[0]], None)]
    at = begins[0]
    while at in after:
        at, kind = after[at]
        chain.append((nodes[at], kind))
    if len(chain) != len(nodes):
        raise PatternFormatError(f"{where}: the edges do not make one chain of all nodes")
    return chain


def _new_stage(node: Mapping[str, Any], depth: int) -> Stage:
    name, kind = node["name"], node.get("type")
    if ":" in name:
        raise MalformedPatternError(f'stage name "{name}" contains a colon', hint="use letters, digits and underscores")
    condition = node.get("condition")
    if kind == "COMPOSITE":
        if condition is not None:
            raise PatternFormatError(f"{name}: a group has no condition")
        return Stage(name, Contiguity.STRICT, group=_graph(node, AfterMatchSkipStrategy(), name, depth + 1))
    if kind != "ATOMIC":
        raise PatternFormatError(f"{name}: unknown node type {kind!r}", hint="ATOMIC or COMPOSITE")
    return Stage(name, Contiguity.STRICT, condition=None if condition is None else _condition(condition, name))


def _condition(condition: Any, where: str) -> SqlCondition:
    if not isinstance(condition, Mapping) or condition.get("type") != "SQL":
        raise PatternFormatError(
            f"{where}: unknown condition type {_type_of(condition)!r}", hint='{"type": "SQL", "expression": text}'
        )
    text = condition.get("expression")
    if not isinstance(text, str) or not text.strip():
        raise PatternFormatError(f"{where}: a condition without an expression")
    return SqlCondition(text)


def _with_quantifier(pattern: Pattern, node: Mapping[str, Any], where: str) -> Pattern:
    quantifier = node.get("quantifier")
    if not isinstance(quantifier, Mapping):
        raise PatternFormatError(f"{where}: a node needs a quantifier")
    properties = quantifier.get("properties")
    if not isinstance(properties, list):
        raise PatternFormatError(f"{where}: a quantifier needs properties")
    unknown = [p for p in properties if p not in (*_KINDS, "OPTIONAL", "GREEDY")]
    if unknown:
        raise PatternFormatError(f"{where}: unknown quantifier property {unknown[0]!r}")
    if not any(kind in properties for kind in _KINDS):
        raise PatternFormatError(f"{where}: a quantifier needs one of SINGLE, LOOPING, TIMES")
    inner_name = quantifier.get("consumingStrategy")
    inner = (
        Contiguity.SKIP_TILL_NEXT
        if inner_name is None
        else _member(Contiguity, inner_name, "consuming strategy", where)
    )
    times = quantifier.get("times")
    if "LOOPING" in properties:
        bounds = _times(times, where, upper=False) if times is not None else (1, 1, None)
        pattern = pattern.times_or_more(bounds[0], within=bounds[2])
    if "TIMES" in properties:
        if times is None:
            raise PatternFormatError(f"{where}: TIMES needs times")
        low, high, gap = _times(times, where, upper=True)
        pattern = pattern.times(low, high, within=gap)
    if "OPTIONAL" in properties:
        pattern = pattern.optional()
    if "GREEDY" in properties:
        pattern = pattern.greedy()
    if inner is Contiguity.STRICT:
        pattern = pattern.consecutive()
    elif inner is Contiguity.SKIP_TILL_ANY:
        pattern = pattern.allow_combinations()
    elif inner.negated:
        raise PatternFormatError(f"{where}: {inner.value} is not a contiguity inside a loop")
    until = quantifier.get("untilCondition")
    return pattern if until is None else pattern.until(_condition(until, where))


def _times(times: Any, where: str, *, upper: bool) -> tuple[int, int, timedelta | None]:
    if not isinstance(times, Mapping):
        raise PatternFormatError(f"{where}: times must be an object")
    low = _integer(times.get("from"), f"{where}: times.from")
    high = _integer(times.get("to"), f"{where}: times.to") if upper else low
    return low, high, _duration(times.get("windowTime"), where)


def _with_window(pattern: Pattern, window: Any, where: str) -> Pattern:
    if window is None:
        return pattern
    if not isinstance(window, Mapping):
        raise PatternFormatError(f"{where}: a window must be an object")
    kind = _member(WithinType, window.get("type"), "window type", where)
    duration = _duration(window.get("time"), where)
    if duration is None:
        raise PatternFormatError(f"{where}: a window needs a time")
    return pattern.within(duration, kind)


def _duration(time: Any, where: str) -> timedelta | None:
    if time is None:
        return None
    unit = time.get("unit") if isinstance(time, Mapping) else None
    if not isinstance(unit, str) or unit not in _UNITS:
        raise PatternFormatError(f"{where}: unknown time unit {unit!r}", hint=", ".join(_UNITS))
    try:
        return timedelta(**{_UNITS[unit]: _integer(time.get("size"), f"{where}: time size")})
    except OverflowError:
        raise PatternFormatError(f"{where}: the time is out of range") from None


def _skip(strategy: Any) -> AfterMatchSkipStrategy:
    if strategy is None:
        return AfterMatchSkipStrategy()
    kind = _member(SkipKind, _type_of(strategy), "after match strategy")
    if kind not in (SkipKind.SKIP_TO_FIRST, SkipKind.SKIP_TO_LAST):
        return AfterMatchSkipStrategy(kind)
    stage = strategy.get("patternName")
    if not isinstance(stage, str):
        raise PatternFormatError(f"{kind.value} needs a patternName")
    return AfterMatchSkipStrategy(kind, stage)


def _type_of(value: Any) -> Any:
    return value.get("type") if isinstance(value, Mapping) else None


def _member(kind: type[E_], value: Any, what: str, where: str | None = None) -> E_:
    names = [member.value for member in kind]
    if value not in names:
        prefix = f"{where}: " if where else ""
        raise PatternFormatError(f"{prefix}unknown {what} {value!r}", hint=", ".join(names))
    return kind(value)


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PatternFormatError(f"{what} must be an integer")
    return value
