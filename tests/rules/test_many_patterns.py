"""Patterns matched together find what each finds alone: those of the conformance corpus, over its streams."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.groups import KEY_HASH
from asterism.conformance.corpus import SCHEMA, Case, events_of, pieces, read_cases
from asterism.errors import AsterismError
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.rules.definition.lookup_tables import LookupVersion
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.sets import ProcessorSet
from tests.kit import CORPUS

FILES = sorted(path.stem for path in CORPUS.glob("*.jsonl") if path.stem != "malformed")
TOGETHER = 8
KINDS = (OutputKind.MATCHES.value, OutputKind.TIMED_OUT.value)
Found = Counter[tuple[str, Any, tuple[tuple[str, tuple[int, ...]], ...]]]


class Sets:
    def __init__(self, only: ProcessorSet) -> None:
        self.only = only

    def retained(self) -> list[ProcessorSet]:
        return [self.only]

    def expired(self, time: int) -> None:
        """Do nothing, since there is no log."""

    def read_lookup(self, version: LookupVersion) -> bytes:
        raise AssertionError("there are no lookups")

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        raise AssertionError("nothing is")


def alone(pattern: Pattern, case: Case, semantics: Semantics, seed: int) -> Found:
    outputs = {kind: OutputSpec(OutputKind(kind)) for kind in KINDS}
    operator = CepOperator(pattern, SCHEMA, time="ts", outputs=outputs, semantics=semantics)
    store, found = MemoryStore(), Found()
    stages = [stage.name for stage in pattern.atoms()]
    for ids, watermark in pieces(case, "random", random.Random(seed)):
        arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events_of(case, ids)))] if ids else []
        for name, table in operator.process(store, arrivals, Now(watermark)).outputs.items():
            for row in table.to_pylist():
                taken = {stage: tuple(event["id"] for event in row[stage]) for stage in stages if row[stage]}
                found[name, row.get("match_time", row.get("timeout_time")), tuple(sorted(taken.items()))] += 1
    return found


def together(
    patterns: dict[str, Pattern], case: Case, semantics: Semantics, seed: int, *, timed_out: bool = True
) -> dict[str, Found]:
    processors = tuple(PatternProcessor(name, 1, pattern, timed_out=timed_out) for name, pattern in patterns.items())
    only = ProcessorSet(1, processors)
    operator = DynamicCepOperator(SCHEMA, Sets(only), RuleOptions(time="ts", semantics=semantics))
    store, found = MemoryStore(), {name: Found() for name in patterns}
    arrivals = [Arrival(PROCESSORS, prepared_set(only.to_bytes()))]
    for ids, watermark in pieces(case, "random", random.Random(seed)):
        if ids:
            copies = operator.prepare(EVENTS, events_of(case, ids)).drop_columns([KEY_HASH])
            arrivals.append(Arrival(EVENTS, copies))
        for name, table in operator.process(store, arrivals, Now(watermark)).outputs.items():
            for row in table.to_pylist() if name in KINDS else ():
                taken: dict[str, tuple[int, ...]] = {}
                for event in row["events"]:
                    taken[event["stage"]] = (*taken.get(event["stage"], ()), event["event"]["id"])
                decided = row.get("match_time", row.get("timeout_time"))
                found[row["processor_id"]][name, decided, tuple(sorted(taken.items()))] += 1
        arrivals = []
    return found


@pytest.mark.parametrize(
    ("name", "semantics"), [(name, [*Semantics][number % 2]) for number, name in enumerate(FILES[::4])], ids=str
)
def test_together_as_alone(name: str, semantics: Semantics) -> None:
    rng = random.Random(name)
    cases = [case for case in read_cases([CORPUS / f"{name}.jsonl"]) if "error" not in case["expected"]]
    chosen = rng.sample(cases, TOGETHER)
    patterns: dict[str, Pattern] = {}
    for case in chosen:
        try:
            pattern = Pattern.from_json(case["pattern"])
            CepOperator(pattern, SCHEMA, time="ts", outputs={}, semantics=semantics)
        except AsterismError:  # what only Flink accepts
            continue
        if not pattern.skip.throw_on_miss:
            patterns[case["id"]] = pattern
    assert len(patterns) > 1
    for case in rng.sample(chosen, 3):
        found = together(patterns, case, semantics, 1)
        matches = together(patterns, case, semantics, 1, timed_out=False)
        for which, pattern in patterns.items():
            expected = alone(pattern, case, semantics, 1)
            assert found[which] == expected, (which, case["id"])
            # Without timed-out partial matches, events that are in vain do not matter.
            assert matches[which] == Found({row: n for row, n in expected.items() if row[0] == KINDS[0]}), (
                which,
                case["id"],
            )


def test_conditions_are_evaluated_before_the_exchange_once() -> None:
    """Copies have the conditions that their event meets, and equal conditions one number. Those in the index are not listed."""
    pattern = Pattern.begin("a").where("upper(name) = 'A'").followed_by("b").where("abs(price) > 1")
    other = (
        Pattern.begin("x")
        .where("abs(price) > 1")
        .followed_by("y")
        .where("upper(name) = 'A'")
        .followed_by("z")
        .where("id = 7")
    )
    only = ProcessorSet(1, (PatternProcessor("p", 1, pattern), PatternProcessor("q", 1, other)))
    operator = DynamicCepOperator(SCHEMA, Sets(only), RuleOptions(time="ts", waiting_time=0))
    events = pa.table([[1, 2, 3], [1, 2, 3], ["a", "b", "a"], [0.0, 0.0, 2.0], [0, 0, 0]], schema=SCHEMA)
    copies = operator.prepare(EVENTS, events)
    assert [len(met) for met in copies.column("__met").to_pylist()] == [1, 2]
    assert copies.column("e:id").to_pylist() == [1, 3]
