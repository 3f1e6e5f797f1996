"""The engines that run the cases of the conformance corpus: the kernel, and other registered engines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from asterism.conformance.corpus import SCHEMA, Answer, Case, Outcome, events_of, judge, pieces, rng_for, with_doubles
from asterism.errors import StreamDefinitionError
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

Engine = Callable[[Case, Semantics, str, random.Random], Answer]
"""A function from a case, the semantics, the division of the stream (one of CUTS) and its random numbers to the result."""


def operator_for(case: Case, semantics: Semantics) -> CepOperator:
    pattern = Pattern.from_json(with_doubles(case["pattern"]))
    outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    order_by = case.get("order_by") or ()
    return CepOperator(pattern, SCHEMA, time="ts", outputs=outputs, semantics=semantics, order_by=order_by)


def run_kernel(case: Case, semantics: Semantics, cuts: str, rng: random.Random) -> Answer:
    """The results of the operator. Its state is serialized between two calls: each division is a snapshot and restore."""
    operator = operator_for(case, semantics)
    store = MemoryStore()
    answer = Collected()
    for ids, watermark in pieces(case, cuts, rng):
        arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events_of(case, ids)))] if ids else []
        answer.add(operator.process(store, arrivals, Now(watermark)).outputs)
    return answer.as_json()


class Collected:
    """The outputs of the operator, in the format of ``expected`` of a case."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {kind.value: [] for kind in OutputKind}

    def add(self, outputs: Mapping[str, pa.Table]) -> None:
        for name, table in outputs.items():
            self.tables[name] += table.to_pylist()

    def as_json(self) -> Answer:
        return {
            "matches": [_as_match(row, "match_time") for row in self.tables["matches"]],
            "timeouts": [_as_match(row, "timeout_time") for row in self.tables["timed_out"]],
            "late": [row["id"] for row in self.tables["late"]],
        }


def _as_match(row: dict[str, Any], time: str) -> list[Any]:
    stages = {
        name: [event["id"] for event in events] for name, events in row.items() if isinstance(events, list) and events
    }
    return [row[time], stages]


ENGINES: dict[str, Engine] = {"kernel": run_kernel}
"""Engines by name."""


def register(name: str, engine: Engine) -> None:
    """Register an engine under a name for :func:`run_case` and ``asterism conformance --engine``."""
    ENGINES[name] = engine


def engine_named(name: str) -> Engine:
    """
    :raises StreamDefinitionError: there is no engine of this name

    >>> engine_named("kernel") is run_kernel
    True
    """
    if name not in ENGINES:
        raise StreamDefinitionError(f"there is no engine {name!r}", f"Engines: {', '.join(sorted(ENGINES))}.")
    return ENGINES[name]


_SMALLEST: Case = {
    "pattern": {
        "type": "COMPOSITE",
        "nodes": [{"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}],
        "edges": [],
    },
    "events": [[1, 1, "a", None, None]],
    "steps": [{"events": [1], "watermark": 2**63 - 1}],
}


def warm_up(engine: str = "kernel") -> None:
    """Compile or load the kernel, which is done once per process."""
    engine_named(engine)(_SMALLEST, Semantics.DEFAULT, "whole", random.Random(0))


def run_case(
    case: Case, engine: str = "kernel", semantics: Semantics = Semantics.FLINK, cuts: str = "whole", seed: int = 0
) -> Outcome:
    """Run one case and compare its result. If an engine raises an exception, the case fails, not the run."""
    run = engine_named(engine)
    try:
        answer: Answer | Exception = run(case, semantics, cuts, rng_for(case, seed))
    except Exception as error:
        answer = error
    return judge(case, answer)
