"""The interpreter of the trace and the kernel answer alike, also in their order; the end of every partial match is reported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asterism.columns.time import END_OF_TIME, TimeColumn
from asterism.conformance.corpus import CUTS, SCHEMA, Answer, Case, events_of, pieces, read_cases, with_doubles
from asterism.conformance.engines import Collected, operator_for
from asterism.errors import AsterismError
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.trace import What
from asterism.trace.conditions import TraceConditions
from asterism.trace.interpreter import Interpreter
from asterism.trace.recorder import Recorder
from asterism.trace.report import ranks
from tests.kit import CORPUS
from tests.patterns.strategies import cases
from tests.trace.strategies import patterns, streams

FILES = sorted(CORPUS.glob("*.jsonl"))
EVERY = 160
"""Of the corpus, one case of so many is compared."""
BOTH = pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)


def traced(pattern: Pattern, case: Case, semantics: Semantics) -> tuple[Answer, Recorder, Interpreter]:
    ids = [number for step in case["steps"] for number in step["events"]]
    events = events_of(case, ids)
    times = events.column("ts").to_numpy() * 1000
    nfa = compile_pattern(pattern, semantics)
    conditions = TraceConditions(nfa, events, times, allows_unknown_stages=semantics is Semantics.FLINK)
    recorder = Recorder(pattern, nfa, times, TimeColumn("ts", SCHEMA.field("ts").type), conditions)
    interpreter = Interpreter(nfa, pattern.skip, times, conditions, semantics, recorder)
    rank = ranks(events, case.get("order_by") or ())
    arrived = 0
    for piece, watermark in pieces(case, "whole", random.Random(0)):
        interpreter.arrive(range(arrived, arrived + len(piece)))
        arrived += len(piece)
        interpreter.watermark(watermark, rank)
    recorder.finish(interpreter.runs, interpreter.complete)
    answer: Answer = {
        name: [
            [
                END_OF_TIME if one.time is None else one.time,
                {s: [ids[n - 1] for n in numbers] for s, numbers in one.took},
            ]
            for one in found
        ]
        for name, found in (("matches", recorder.matches), ("timeouts", recorder.timeouts))
    }
    return answer | {"late": [ids[number - 1] for number in recorder.late_events]}, recorder, interpreter


def kernel(pattern: Pattern, case: Case, semantics: Semantics, cuts: str) -> Answer:
    """As :func:`~asterism.conformance.engines.run_kernel`, for a pattern that need not have a JSON form."""
    outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    order_by = case.get("order_by") or ()
    operator = CepOperator(pattern, SCHEMA, time="ts", outputs=outputs, semantics=semantics, order_by=order_by)
    store, answer = MemoryStore(), Collected()
    for ids, watermark in pieces(case, cuts, random.Random(0)):
        arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events_of(case, ids)))] if ids else []
        answer.add(operator.process(store, arrivals, Now(watermark)).outputs)
    return answer.as_json()


def check_case(case: Case, semantics: Semantics) -> None:
    check(Pattern.from_json(with_doubles(case["pattern"])), case, semantics)


def check(pattern: Pattern, case: Case, semantics: Semantics, cuts: str = "whole") -> None:
    expected = kernel(pattern, case, semantics, cuts)
    answer, recorder, interpreter = traced(pattern, case, semantics)
    assert answer == expected, json.dumps(case)
    assert not interpreter.stopped
    began: set[Any] = set()
    ended = {step.partial for step in recorder.waiting}
    for step in recorder.steps:
        if step.what in (What.BEGAN, What.ADVANCED):
            assert step.partial not in began
            began.add(step.partial)
            ended |= {step.parent} - {None}
        elif step.what in (What.DROPPED, What.MATCHED, What.DISCARDED):
            ended.add(step.partial)
        if step.what not in (What.BEGAN, What.ADVANCED):
            assert step.reason, step
    assert began == ended, json.dumps(case)


@BOTH
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_corpus(path: Path, semantics: Semantics) -> None:
    check_cases(list(read_cases([path]))[::EVERY], semantics)


def check_cases(cases: list[Case], semantics: Semantics) -> None:
    for case in cases:
        try:
            operator_for(case, semantics)
        except AsterismError:
            continue  # refused in these semantics
        check_case(case, semantics)


@BOTH
@settings(max_examples=max(1, settings().max_examples // 3))
@given(case=cases())
def test_random_patterns(semantics: Semantics, case: Case) -> None:
    try:
        compile_pattern(Pattern.from_json(case["pattern"]), semantics)
    except AsterismError:
        assume(False)
    check_case(case, semantics)


@settings(max_examples=max(1, settings().max_examples // 3))
@given(pattern=patterns(), case=streams(), cuts=st.sampled_from(CUTS))
def test_random_patterns_beyond_flink(pattern: Pattern, case: Case, cuts: str) -> None:
    try:
        compile_pattern(pattern)
    except AsterismError:
        assume(False)
    check(pattern, case, Semantics.DEFAULT, cuts)


@settings(max_examples=max(1, settings().max_examples // 3))
@given(pattern=patterns(like_flink=True), case=streams())
def test_random_expressions_beyond_flink(pattern: Pattern, case: Case) -> None:
    """In Flink's semantics, results may depend on how a stream is divided into calls."""
    try:
        compile_pattern(pattern, Semantics.FLINK)
    except AsterismError:
        assume(False)
    check(pattern, case, Semantics.FLINK)
