"""The engine and the slow matcher of :mod:`tests.reference` answer alike, whatever the pattern, stream and cuts."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, event, given, settings

from asterism.conformance.corpus import CUTS, normalized
from asterism.conformance.engines import run_kernel
from asterism.errors import AsterismError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from tests.patterns.strategies import cases
from tests.reference.matcher import run_case

BOTH = pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)

Json = dict[str, Any]


def is_accepted(case: Json, semantics: Semantics) -> bool:
    """Patterns that mean nothing are not what this is about."""
    try:
        compile_pattern(Pattern.from_json(case["pattern"]), semantics)
    except AsterismError:
        return False
    return True


def comparable(answer: Json) -> tuple[Counter[str], Counter[str], list[int]]:
    """Matches and timeouts up to the order among equal times, late events exactly."""
    return normalized(answer["matches"]), normalized(answer["timeouts"]), answer["late"]


def described(case: Json, **answers: Json) -> str:
    """A failure as one can paste it: the case, then who answered what."""
    lines = [json.dumps(case), *(f"{name}: {json.dumps(answer)}" for name, answer in answers.items())]
    return "\n".join(["", *lines])


@BOTH
@given(case=cases())
def test_kernel_equals_reference(semantics: Semantics, case: Json) -> None:
    """Random patterns over random streams, in pieces; what comes out first is first in both."""
    assume(is_accepted(case, semantics))
    reference = run_case(case, semantics.value)
    kernel = run_kernel(case, semantics, "random", random.Random(1))
    event("matches" if reference["matches"] else "no match")
    assert comparable(kernel) == comparable(reference), described(case, kernel=kernel, reference=reference)
    assert times(kernel) == times(reference), described(case, kernel=kernel, reference=reference)


def node(name: str, text: str, **quantifier: Any) -> Json:
    condition = {"type": "SQL", "expression": text}
    return {
        "name": name,
        "type": "ATOMIC",
        "condition": condition,
        "quantifier": {"properties": ["SINGLE"], **quantifier},
    }


def graph(nodes: list[Json], links: str, name: str = "root", **quantifier: Any) -> Json:
    edges = [
        {"source": source["name"], "target": target["name"], "type": kind}
        for (source, target), kind in zip(pairwise(nodes), links.split(), strict=True)
    ]
    quantifier = {"properties": ["SINGLE"], **quantifier}
    return {"name": name, "type": "COMPOSITE", "nodes": nodes, "edges": edges, "quantifier": quantifier}


OPTIONAL = {"properties": ["SINGLE", "OPTIONAL"]}
LOOPING = {"properties": ["LOOPING"]}
SMALL: dict[str, tuple[Json, str]] = {
    # A stop state that the start state reaches takes the start state away: nothing can begin any more.
    "forbidden at the start": (
        graph(
            [graph([node("a", "name = 'a'", **OPTIONAL)], "", "g"), node("b", "name = 'b'"), node("c", "TRUE")],
            "NOT_NEXT STRICT",
        ),
        "x b x x",
    ),
    # The until condition of the outer group holds back what is forbidden, also inside the inner group.
    "forbidden by an event that ends the outer group": (
        graph(
            [
                graph(
                    [
                        graph([node("x", "name = 'a'", **LOOPING)], "", "inner"),
                        node("n", "name IN ('n', 'u')"),
                        node("y", "name = 'b'"),
                    ],
                    "NOT_FOLLOW SKIP_TILL_NEXT",
                    "outer",
                    **LOOPING,
                    untilCondition={"type": "SQL", "expression": "name = 'u'"},
                )
            ],
            "",
        ),
        "a u a b a n a b",
    ),
}


@BOTH
@pytest.mark.parametrize("name", SMALL)
def test_small_cases(semantics: Semantics, name: str) -> None:
    """Corners that a random search is unlikely to meet; one event a millisecond, by name."""
    pattern, names = SMALL[name]
    rows = [[number, number, word, None, None] for number, word in enumerate(names.split(), 1)]
    steps = [{"events": [row[0] for row in rows], "watermark": 2**63 - 1}]
    case: Json = {"id": name, "pattern": pattern, "events": rows, "steps": steps}
    reference = run_case(case, semantics.value)
    kernel = run_kernel(case, semantics, "rows", random.Random(6))
    assert comparable(kernel) == comparable(reference), described(case, kernel=kernel, reference=reference)


def times(answer: Json) -> list[int]:
    return [time for time, _ in answer["matches"]]


@BOTH
@settings(max_examples=max(1, settings().max_examples // 3))
@given(case=cases())
def test_cuts_do_not_matter(semantics: Semantics, case: Json) -> None:
    """However the events between two watermarks arrive, the answers are the same, and in the same order."""
    assume(is_accepted(case, semantics))
    whole, rows, pieces = (run_kernel(case, semantics, cuts, random.Random(2)) for cuts in CUTS)
    assert rows == whole, described(case, whole=whole, rows=rows)
    assert pieces == whole, described(case, whole=whole, random=pieces)


@BOTH
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("strategy", ["NO_SKIP"])
def test_many_partial_matches(semantics: Semantics, cuts: str, strategy: str) -> None:
    """Every subset of nine events, thrice: more than fits where a few are expected."""
    loop = {"properties": ["LOOPING"], "consumingStrategy": "SKIP_TILL_ANY"}
    nodes = [
        {"name": "a", "type": "ATOMIC", "quantifier": loop, "condition": {"type": "SQL", "expression": "name = 'a'"}},
        {
            "name": "b",
            "type": "ATOMIC",
            "quantifier": {"properties": ["SINGLE"]},
            "condition": {"type": "SQL", "expression": "name = 'b'"},
        },
    ]
    window = {"type": "FIRST_AND_LAST", "time": {"unit": "MILLISECONDS", "size": 40}}
    pattern = {
        "type": "COMPOSITE",
        "nodes": nodes,
        "edges": [{"source": "a", "target": "b", "type": "SKIP_TILL_ANY"}],
        "window": window,
    }
    pattern["afterMatchStrategy"] = {"type": strategy}
    rows = [[number, number, "b" if number in (7, 10, 12) else "a", None, None] for number in range(1, 13)]
    steps = [
        {"events": [1, 2, 3, 4, 5, 6, 7]},
        {"events": [8, 9, 10], "watermark": 9},
        {"events": [11, 12], "watermark": 30},
    ]
    case: Json = {
        "id": "many",
        "pattern": pattern,
        "events": rows,
        "steps": [*steps, {"events": [], "watermark": 2**63 - 1}],
    }
    reference = run_case(case, semantics.value)
    kernel = run_kernel(case, semantics, cuts, random.Random(5))
    assert comparable(kernel) == comparable(reference)
    assert len(reference["timeouts"]) > 10 or strategy != "NO_SKIP"
