"""The engine beside the slow matcher of :mod:`tests.reference`, for what the corpus cannot say: Python conditions, limits.

Streams are words: ``a1=5`` is an event of name ``a`` at 1 ms with the price 5, ``|`` a watermark at the last time so far. The
end of time follows.
"""

from __future__ import annotations

import random
import re
from datetime import timedelta
from typing import Any, cast

from pyspark import cloudpickle

from asterism.conformance.corpus import CUTS, SCHEMA, events_of, normalized, pieces
from asterism.conformance.engines import Collected
from asterism.matching.operator import DROPPED, CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.conditions import (
    AndCondition,
    Condition,
    IterativeCondition,
    NotCondition,
    OrCondition,
    SqlCondition,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import QuantifierKind, Stage
from tests.reference.matcher import run_case
from tests.reference.python import asking

Json = dict[str, Any]
WORD = re.compile(r"(?P<name>[a-z]+)(?P<ts>\d+)(?:=(?P<price>[\d.]+))?")
OUTPUTS = {kind.value: OutputSpec(kind) for kind in OutputKind}


# ---------------------------------------------------------------------------------------------------- patterns


def graph_of(pattern: Pattern) -> Json:
    """A pattern in the form that the slow matcher reads."""
    nodes = [_node(stage) for stage in pattern.stages]
    edges = [
        {"source": before.name, "target": stage.name, "type": stage.contiguity.value}
        for before, stage in zip(pattern.stages, pattern.stages[1:], strict=False)
    ]
    strategy = {"type": pattern.skip.kind.value, "patternName": pattern.skip.stage}
    return {"type": "COMPOSITE", "nodes": nodes, "edges": edges, "afterMatchStrategy": strategy}


def _node(stage: Stage) -> Json:
    quantifier = stage.quantifier
    properties = [quantifier.kind.value]
    properties += ["OPTIONAL"] if quantifier.optional else []
    properties += ["GREEDY"] if quantifier.greedy else []
    described: Json = {"properties": properties, "consumingStrategy": quantifier.inner.value}
    if quantifier.kind is not QuantifierKind.SINGLE:
        described["times"] = {
            "from": quantifier.at_least,
            "to": quantifier.at_most,
            "windowTime": _time(quantifier.gap),
        }
    if stage.until is not None:
        described["untilCondition"] = condition_of(stage.until)
    node: Json = {"name": stage.name, "type": "ATOMIC", "quantifier": described}
    if stage.group is not None:
        node |= {
            "type": "COMPOSITE",
            **{part: graph_of(cast(Pattern, stage.group))[part] for part in ("nodes", "edges")},
        }
    if stage.condition is not None:
        node["condition"] = condition_of(stage.condition)
    for kind, length in (("FIRST_AND_LAST", stage.window), ("PREVIOUS_AND_CURRENT", stage.gap_window)):
        if length is not None:
            node["window"] = {"type": kind, "time": _time(length)}
    return node


def _time(length: timedelta | None) -> Json | None:
    return None if length is None else {"unit": "MILLISECONDS", "size": length // timedelta(milliseconds=1)}


def condition_of(condition: Condition) -> Json:
    match condition:
        case SqlCondition(text):
            return {"type": "SQL", "expression": text}
        case IterativeCondition():
            return {"type": "PYTHON", "condition": asking(condition.function)}
        case AndCondition(left, right):
            return {"type": "AND", "of": [condition_of(left), condition_of(right)]}
        case OrCondition(left, right):
            return {"type": "OR", "of": [condition_of(left), condition_of(right)]}
        case NotCondition(inner):
            return {"type": "NOT", "of": condition_of(inner)}
    raise AssertionError(condition)


# ---------------------------------------------------------------------------------------------------- streams


def case_of(pattern: Pattern, text: str) -> Json:
    rows: list[list[Any]] = []
    steps: list[Json] = [{"events": []}]
    for word in text.split():
        if word == "|":
            steps[-1]["watermark"] = rows[-1][1]
            steps.append({"events": []})
            continue
        match = WORD.fullmatch(word)
        assert match, f"not an event: {word}"
        price = None if match["price"] is None else float(match["price"])
        rows.append([len(rows) + 1, int(match["ts"]), match["name"], price, None])
        steps[-1]["events"].append(len(rows))
    steps[-1]["watermark"] = 2**63 - 1
    return {"id": "twin", "pattern": graph_of(pattern), "events": rows, "steps": steps}


def run_engine(pattern: Pattern, case: Json, semantics: Semantics, cuts: str, **options: Any) -> Json:
    """The operator's answers. Each call has an operator of its own, as it comes out of a pickle, and reads the state that the
    one before it wrote as bytes: every cut is a snapshot and a restore.
    """
    operator = CepOperator(pattern, SCHEMA, time="ts", outputs=OUTPUTS, semantics=semantics, **options)
    pickled = cloudpickle.dumps(operator)
    store, answer, dropped = MemoryStore(), Collected(), 0
    for ids, watermark in pieces(case, cuts, random.Random(7)):
        operator = cloudpickle.loads(pickled)
        arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events_of(case, ids)))] if ids else []
        result = operator.process(store, arrivals, Now(watermark))
        answer.add(result.outputs)
        dropped += result.metrics.get(DROPPED, 0)
    found = answer.as_json()
    return found | {"dropped": dropped} if "max_partial_matches" in options else found


def comparable(answer: Json) -> Any:
    """Matches and timeouts up to the order among equal times."""
    return normalized(answer["matches"]), normalized(answer["timeouts"]), answer["late"], answer.get("dropped")


def found(pattern: Pattern, text: str, limit: int | None = None) -> list[str]:
    """The matches, as words, where engine and slow matcher agree in both semantics, whatever the cuts; those of the default."""
    case = case_of(pattern, text)
    options: Json = {} if limit is None else {"max_partial_matches": limit, "on_limit": "drop"}
    for semantics in (Semantics.FLINK, Semantics.DEFAULT):
        expected = run_case(case, semantics.value, limit)
        for cuts in CUTS:
            answer = run_engine(pattern, case, semantics, cuts, **options)
            assert comparable(answer) == comparable(expected), f"{semantics}, cut {cuts}"
    words = {row[0]: f"{row[2]}{row[1]}" for row in case["events"]}
    return sorted(" ".join(words[i] for ids in match.values() for i in ids) for _, match in answer["matches"])
