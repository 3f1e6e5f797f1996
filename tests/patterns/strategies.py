"""Random patterns in JSON graph form, and random streams, as cases of the conformance corpus.

With *beyond_flink*, the patterns also have parts that Flink lacks: for tests with the default semantics only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

END_OF_INPUT = 2**63 - 1
STAGES = ("a", "b", "c", "d", "e", "f", "g", "h")
LETTERS = "abbaacx"
EDGES = ("STRICT", "SKIP_TILL_NEXT", "SKIP_TILL_ANY")
NOT_EDGES = ("NOT_NEXT", "NOT_FOLLOW")
SKIPS = ("NO_SKIP", "SKIP_TO_NEXT", "SKIP_PAST_LAST_EVENT", "SKIP_TO_FIRST", "SKIP_TO_LAST")
TAKING = ("GREEDY", "GIVE_BACK", "LONGEST", "RELUCTANT")
GREEDY = {"GREEDY", "LONGEST"}
"""An optional stage cannot follow these."""


def weighted(**weights: int) -> st.SearchStrategy[str]:
    """One of the names, as often as its weight says; the first is the simplest."""
    return st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])


def chance(percent: int) -> st.SearchStrategy[bool]:
    return st.integers(0, 99).map(lambda number: number >= 100 - percent)


# ---------------------------------------------------------------------------------------------------- conditions


def pure_conditions(letter: str) -> st.SearchStrategy[str | None]:
    """Conditions on the current event, most of them about *letter*; None: every event fits."""
    return st.sampled_from(
        [
            *3 * [f"name = '{letter}'"],
            f"name IN ('{letter}', 'c')",
            f"name = '{letter}' AND price > 2",
            f"name = '{letter}' OR volume = 1",
            "NOT (price BETWEEN 1 AND 2)",
            "price IS NULL OR name <> 'x'",
            "name IN ('a', 'b')",
            None,
        ]
    )


def iterative_conditions(letter: str, names: Sequence[str]) -> st.SearchStrategy[str]:
    """Conditions that look at what a stage has accepted so far."""
    return st.builds(
        str.format,
        st.sampled_from(
            [
                "name = '{letter}' AND price > LAST({stage}.price)",
                "price >= FIRST({stage}.price)",
                "COUNT({stage}.id) < 2",
                "COUNT({stage}.price) = 0 OR price + 1 > AVG({stage}.price)",
                "name = LAST({stage}.name)",
                "name <> FIRST({stage}.name)",
                "price >= LAST({stage}.price, 1)",
                "name = FIRST({stage}.name, 1) OR price > 1",
                "LAST({stage}.price) IN (0, 1, 2.5, 3, 4, 5)",
                "FIRST({stage}.name, 1) NOT IN ('a', 'b', 'c', 'd', NULL) OR name IN (LAST({stage}.name), 'a', 'b', 'x', 'y')",
                "LAST({stage}.volume) IN (1, 2, 3, NULL, 5)",
                "SUM({stage}.volume) <= 2 OR name = '{letter}'",
                "MAX({stage}.volume) * 2 - MIN({stage}.volume) > volume",
                "LAST({stage}.id) IS NULL OR id - LAST({stage}.id) < 3",
                "NOT (LAST({stage}.price) IN (1.0, price)) AND name = '{letter}'",
            ]
        ),
        letter=st.just(letter),
        stage=st.sampled_from(names),
    )


@st.composite
def conditions(draw: st.DrawFn, letter: str, names: Sequence[str]) -> Json | None:
    text = draw(iterative_conditions(letter, names) if draw(chance(20)) else pure_conditions(letter))
    return None if text is None else {"type": "SQL", "expression": text}


# ---------------------------------------------------------------------------------------------------- patterns


def milliseconds(low: int = 2, high: int = 30) -> st.SearchStrategy[Json]:
    return st.integers(low, high).map(lambda size: {"unit": "MILLISECONDS", "size": size})


def windows(beyond_flink: bool = False) -> st.SearchStrategy[Json]:
    return st.builds(
        lambda kind, time, inclusive: {"type": kind, "time": time} | ({"inclusive": True} if inclusive else {}),
        st.sampled_from(["FIRST_AND_LAST", "PREVIOUS_AND_CURRENT"]),
        milliseconds(),
        chance(30) if beyond_flink else st.just(False),
    )


@st.composite
def quantifiers(
    draw: st.DrawFn,
    letter: str,
    names: Sequence[str],
    *,
    group: bool,
    may_be_optional: bool,
    may_loop: bool,
    beyond_flink: bool = False,
) -> Json:
    kinds = weighted(SINGLE=4, TIMES=2, LOOPING=3) if may_loop else weighted(SINGLE=3, TIMES=1)
    kind = draw(kinds)
    properties = [kind]
    quantifier: Json = {"properties": properties}
    if kind != "SINGLE":
        least = draw(st.integers(1, 2))
        quantifier["times"] = {"from": least, "to": least + (draw(st.integers(0, 2)) if kind == "TIMES" else 0)}
        if draw(chance(20)) and not group:
            quantifier["times"]["windowTime"] = draw(milliseconds(2, 12))
        quantifier["consumingStrategy"] = draw(st.sampled_from(["SKIP_TILL_NEXT", "STRICT", "SKIP_TILL_ANY"]))
        if draw(chance(25)) and not group:
            properties.append(draw(st.sampled_from(TAKING)) if beyond_flink else "GREEDY")
        if kind == "LOOPING" and draw(chance(25)):
            until = draw(conditions(draw(st.sampled_from(LETTERS)), names))
            if until is not None:
                quantifier["untilCondition"] = until
    if may_be_optional and draw(chance(25)):
        properties.append("OPTIONAL")
        if kind == "SINGLE" and beyond_flink and not group and draw(chance(30)):
            properties.append("RELUCTANT")
    return quantifier


def is_optional(node: Json) -> bool:
    return "OPTIONAL" in node["quantifier"]["properties"]


def may_be_empty(nodes: Sequence[Json], edges: Sequence[Json]) -> bool:
    """Can a chain match without taking an event? A group like that may not loop: nothing would end it."""
    negated = {edge["target"] for edge in edges if edge["type"] in NOT_EDGES}
    return all(
        node["name"] in negated
        or is_optional(node)
        or (node["type"] == "COMPOSITE" and "edges" in node and may_be_empty(node["nodes"], node["edges"]))
        for node in nodes
    )


@st.composite
def chains(
    draw: st.DrawFn, names: list[str], used: Sequence[str], *, longest: int, depth: int, beyond_flink: bool = False
) -> tuple[list[Json], list[Json]]:
    """Nodes and edges; takes names for its stages away from *names*. *used* are names that conditions may speak of."""
    nodes: list[Json] = []
    edges: list[Json] = []
    length = draw(st.sampled_from([2, 1, 2, 3, 3, 4][: 2 * longest - 2]))
    for place in range(length):
        previous = nodes[-1] if nodes else None
        is_group = depth > 0 and len(names) > 2 and draw(chance(15))
        edge = draw(st.sampled_from(EDGES))
        if previous is not None and not is_optional(previous) and not is_group and draw(chance(20)):
            edge = draw(st.sampled_from(NOT_EDGES))
        after_greedy = previous is not None and not GREEDY.isdisjoint(previous["quantifier"]["properties"])
        node: Json
        if is_group:
            name = "g" + str(len(names)) + str(depth)
            if beyond_flink and draw(chance(50)):
                content = draw(combinations(names, used, depth=depth - 1))
            else:
                inner = draw(chains(names, used, longest=2, depth=depth - 1, beyond_flink=beyond_flink))
                content = dict(zip(("nodes", "edges"), inner, strict=True))
            quantifier = draw(
                quantifiers(
                    "b",
                    used,
                    group=True,
                    may_be_optional=not after_greedy,
                    may_loop="edges" not in content or not may_be_empty(content["nodes"], content["edges"]),
                    beyond_flink=beyond_flink,
                )
            )
            node = {"name": name, "type": "COMPOSITE", **content, "quantifier": quantifier}
        else:
            name = names.pop(0)
            letter = draw(st.sampled_from("abbac"))
            negated = edge in NOT_EDGES
            node = {"name": name, "type": "ATOMIC", "condition": draw(conditions(letter, used))}
            node["quantifier"] = (
                {"properties": ["SINGLE"]}
                if negated
                else draw(
                    quantifiers(
                        letter,
                        used,
                        group=False,
                        may_be_optional=not after_greedy,
                        may_loop=True,
                        beyond_flink=beyond_flink,
                    )
                )
            )
            if draw(chance(10)):
                node["window"] = draw(windows(beyond_flink))
        if previous is not None:
            edges.append({"source": previous["name"], "target": name, "type": edge})
        nodes.append(node)
        if place + 1 < length and not names:
            break
    return nodes, edges


@st.composite
def combinations(draw: st.DrawFn, names: list[str], used: Sequence[str], *, depth: int) -> Json:
    """Two or three alternatives, or elements in any order: the fields of a group."""
    kind = draw(st.sampled_from(["ANY_OF", "IN_ANY_ORDER"]))
    nodes: list[Json] = []
    for _ in range(min(len(names), draw(st.integers(2, 3)))):
        node: Json
        if depth > 0 and len(names) > 3 and draw(chance(25)):
            inner, edges = draw(chains(names, used, longest=2, depth=0, beyond_flink=True))
            node = {"name": "e" + str(len(names)), "type": "COMPOSITE", "nodes": inner, "edges": edges}
            node["quantifier"] = {"properties": ["SINGLE"]}
        else:
            letter = draw(st.sampled_from("abbac"))
            node = {"name": names.pop(0), "type": "ATOMIC", "condition": draw(conditions(letter, used))}
            node["quantifier"] = draw(
                quantifiers(letter, used, group=False, may_be_optional=False, may_loop=True, beyond_flink=True)
            )
        nodes.append(node)
    combination = {"type": kind}
    if kind == "IN_ANY_ORDER" and draw(chance(50)):
        combination["consumingStrategy"] = draw(st.sampled_from(["SKIP_TILL_NEXT", "STRICT"]))
    return {"combination": combination, "nodes": nodes}


@st.composite
def skip_strategies(draw: st.DrawFn, nodes: Sequence[Json], beyond_flink: bool = False) -> Json | None:
    if draw(chance(50)):
        return None
    kind = draw(st.sampled_from((*SKIPS, "FIRST_MATCH_ONLY") if beyond_flink else SKIPS))
    if not kind.startswith(("SKIP_TO_FIRST", "SKIP_TO_LAST")):
        return {"type": kind}
    stages = [node["name"] for node in nodes if node["type"] == "ATOMIC"]
    return {"type": kind, "patternName": draw(st.sampled_from(stages))} if stages else None


@st.composite
def patterns(draw: st.DrawFn, beyond_flink: bool = False) -> Json:
    """A graph of one to four stages or groups."""
    nodes, edges = draw(chains(list(STAGES), STAGES[:3], longest=4, depth=2, beyond_flink=beyond_flink))
    stages = list(_stages(nodes))
    for condition in _conditions(nodes):
        if not any(f"({stage}." in condition["expression"] for stage in stages):
            # It spoke of a stage that was not made.
            condition["expression"] = _about(condition["expression"], stages[0])
    pattern: Json = {"name": "root", "type": "COMPOSITE", "version": 1, "nodes": nodes, "edges": edges}
    if draw(chance(40)):
        pattern["window"] = draw(windows(beyond_flink))
    strategy = draw(skip_strategies(nodes, beyond_flink))
    if strategy is not None:
        pattern["afterMatchStrategy"] = strategy
    if beyond_flink:
        draw(_beyond_flink(pattern, stages))
    return pattern


@st.composite
def _beyond_flink(draw: st.DrawFn, pattern: Json, stages: Sequence[str]) -> None:
    """Add what applies to a whole pattern."""
    if draw(chance(20)):
        text = draw(pure_conditions(draw(st.sampled_from(LETTERS))))
        absent: Json = {"name": "n", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}
        absent |= {} if text is None else {"condition": {"type": "SQL", "expression": text}}
        if draw(chance(70)):
            absent["window"] = draw(windows(beyond_flink=True)) | {"type": "FIRST_AND_LAST"}
        pattern["edges"].append({"source": "n", "target": pattern["nodes"][0]["name"], "type": "NOT_BEFORE"})
        pattern["nodes"].insert(0, absent)
    for anchor in ("startsWithFirstEvent", "endsWithLastEvent"):
        if draw(chance(15)):
            pattern[anchor] = True
    if draw(chance(25)):
        members = draw(st.lists(st.sampled_from(stages), min_size=1, max_size=3, unique=True))
        pattern["subsets"] = [{"name": "u", "stages": members}]


def _stages(nodes: Sequence[Json]) -> list[str]:
    return [
        name for node in nodes for name in (_stages(node["nodes"]) if node["type"] == "COMPOSITE" else [node["name"]])
    ]


def _conditions(nodes: Sequence[Json]) -> list[Json]:
    found = []
    for node in nodes:
        found += [c for c in (node.get("condition"), node["quantifier"].get("untilCondition")) if c is not None]
        found += _conditions(node.get("nodes", ()))
    return found


def _about(text: str, stage: str) -> str:
    for name in STAGES[:3]:
        text = text.replace(f"({name}.", f"({stage}.")
    return text


# ---------------------------------------------------------------------------------------------------- streams


@st.composite
def events(draw: st.DrawFn, shortest: int = 4, longest: int = 9) -> list[list[Any]]:
    """Rows [id, ts, name, price, volume], in the order of arrival, which is not always that of time."""
    rows: list[list[Any]] = []
    ts = draw(st.sampled_from([1000, 0, -5]))
    for number in range(1, draw(st.integers(shortest, longest)) + 1):
        ts += draw(st.sampled_from([1, 1, 0, 3, 7, -2]))
        name = draw(st.sampled_from(LETTERS))
        rows.append(
            [number, ts, name, draw(st.sampled_from([1.0, 2.5, 4.0, None])), draw(st.sampled_from([1, 2, None]))]
        )
    return rows


@st.composite
def steps(draw: st.DrawFn, rows: Sequence[list[Any]]) -> list[Json]:
    """The events cut into steps, with watermarks that trail behind, now and then ahead of, what has arrived."""
    result: list[Json] = []
    at = 0
    while at < len(rows):
        count = draw(st.integers(1, 4))
        piece = rows[at : at + count]
        at += count
        step: Json = {"events": [row[0] for row in piece]}
        if draw(chance(70)):
            step["watermark"] = max(row[1] for row in piece) + draw(st.sampled_from([0, 0, -3, -3, 1, 20]))
        result.append(step)
    last = max((row[1] for row in rows), default=1000)
    if draw(chance(40)):
        result.append({"events": [], "watermark": last + draw(st.integers(0, 40))})
    if draw(chance(80)):
        result.append({"events": [], "watermark": END_OF_INPUT})
    return result


@st.composite
def cases(draw: st.DrawFn) -> Json:
    """A pattern, events and steps."""
    pattern = draw(patterns())
    rows = draw(events())
    case: Json = {"id": "random", "pattern": pattern, "events": rows, "steps": draw(steps(rows))}
    if draw(chance(10)):
        case["order_by"] = [draw(st.sampled_from(["price", "-volume", "name"]))]
    return case
