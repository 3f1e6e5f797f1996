"""Runs cases of the conformance corpus: a pattern, a stream cut by watermarks, and the answers of Flink CEP."""

from __future__ import annotations

import importlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism.cep import CepOperator
from asterism.compiler import Semantics
from asterism.errors import AsterismError, StreamDefinitionError
from asterism.json_format import pattern_from_json
from asterism.operator import BEFORE_TIME, END_OF_TIME, Now
from asterism.outputs import OutputKind, OutputSpec
from asterism.state import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("volume", pa.int64())])
CUTS = ("whole", "rows", "random")
Answer = dict[str, Any]
Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    passed: bool
    problem: str = ""


def read_cases(paths: Sequence[Path]) -> Iterator[Case]:
    """The cases of files, in order."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise StreamDefinitionError(f"{path}, line {number}: not a case", str(error)) from None


def operator_for(case: Case, semantics: Semantics) -> CepOperator:
    pattern = pattern_from_json(case["pattern"])
    outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    return CepOperator(pattern, SCHEMA, time="ts", outputs=outputs, semantics=semantics, order_by=case.get("order_by") or ())


def events_of(case: Case, ids: Sequence[int]) -> pa.Table:
    by_id = {event[0]: event for event in case["events"]}
    rows = [by_id[number] for number in ids]
    return pa.table([[row[column] for row in rows] for column in range(len(SCHEMA))], schema=SCHEMA)


def cut(events: Sequence[int], cuts: str, rng: random.Random) -> list[list[int]]:
    """The events of one step, in the pieces in which they arrive."""
    if cuts == "rows":
        return [[event] for event in events]
    if cuts == "random" and len(events) > 1:
        places = sorted(rng.sample(range(1, len(events)), rng.randint(0, len(events) - 1)))
        return [list(events[a:b]) for a, b in zip([0, *places], [*places, len(events)], strict=True)]
    return [list(events)] if events else []


def run_kernel(case: Case, semantics: Semantics, cuts: str, rng: random.Random) -> Answer:
    """The operator's answers. Its state goes through bytes between any two pieces, so every cut is a snapshot and restore."""
    operator = operator_for(case, semantics)
    store = MemoryStore()
    answer = Collected()
    watermark = BEFORE_TIME
    for step in case["steps"]:
        for piece in cut(step["events"], cuts, rng):
            prepared = operator.prepare(events_of(case, piece))
            answer.add(operator.process(store, [prepared], Now(watermark)).outputs)
        if "watermark" in step:
            watermark = max(watermark, to_micros(step["watermark"]))
            answer.add(operator.process(store, [], Now(watermark)).outputs)
    return answer.as_json()


def to_micros(watermark: int) -> int:
    return END_OF_TIME if watermark >= 2**63 - 1 else watermark * 1000


class Collected:
    """Outputs of the operator, in the form of a case's ``expected``."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {kind.value: [] for kind in OutputKind}

    def add(self, outputs: Any) -> None:
        for name, table in outputs.items():
            self.tables[name] += table.to_pylist()

    def as_json(self) -> Answer:
        return {
            "matches": [_as_match(row, "match_time") for row in self.tables["matches"]],
            "timeouts": [_as_match(row, "timeout_time") for row in self.tables["timed_out"]],
            "late": [row["id"] for row in self.tables["late"]],
        }


def _as_match(row: dict[str, Any], time: str) -> list[Any]:
    stages = {name: [event["id"] for event in events] for name, events in row.items() if isinstance(events, list) and events}
    return [row[time], stages]


def run_reference(case: Case, semantics: Semantics, cuts: str, rng: random.Random) -> Answer:  # noqa: ARG001 - it knows no cuts
    """The answers of the slow matcher of the test suite, which a source checkout has."""
    try:
        reference = importlib.import_module("tests.reference.matcher")
    except ImportError:
        raise StreamDefinitionError(
            "the reference matcher is not installed", hint="it is part of the source: run the command in the project's folder"
        ) from None
    pattern_from_json(case["pattern"])  # it trusts definitions; this one may be malformed
    answer: Answer = reference.run_case(case, semantics.value)
    return answer


ENGINES: dict[str, Callable[[Case, Semantics, str, random.Random], Answer]] = {"kernel": run_kernel, "reference": run_reference}


def normalized(results: Sequence[Sequence[Any]]) -> Counter[str]:
    """A list of matches up to the order among equal times."""
    return Counter(json.dumps([time, dict(sorted(stages.items()))]) for time, stages in results)


def judge(case: Case, answer: Answer | AsterismError) -> Outcome:
    """Compare with the recorded answer: matches and timeouts up to ties, late events exactly."""
    expected = case["expected"]
    if "error" in expected:
        if isinstance(answer, AsterismError):
            return Outcome(case["id"], True)
        return Outcome(case["id"], False, f"should have been rejected: {expected['error']}")
    if isinstance(answer, AsterismError):
        return Outcome(case["id"], False, f"{type(answer).__name__}: {answer}")
    for part in ("matches", "timeouts"):
        if normalized(expected[part]) != normalized(answer[part]):
            return Outcome(case["id"], False, f"{part}: expected {expected[part]}, got {answer[part]}")
        times = [time for time, _ in answer[part]]
        if part == "matches" and times != sorted(times):
            return Outcome(case["id"], False, f"matches out of order: {times}")
    if expected["late"] != answer["late"]:
        return Outcome(case["id"], False, f"late: expected {expected['late']}, got {answer['late']}")
    return Outcome(case["id"], True)


def run_case(case: Case, engine: str = "kernel", semantics: Semantics = Semantics.FLINK, cuts: str = "whole", seed: int = 0) -> Outcome:
    """Run one case and compare."""
    try:
        answer: Answer | AsterismError = ENGINES[engine](case, semantics, cuts, random.Random(f"{seed}/{case['id']}"))
    except AsterismError as error:
        answer = error
    return judge(case, answer)
