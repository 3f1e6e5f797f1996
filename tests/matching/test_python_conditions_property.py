"""Conditions in Python give the answers of the same conditions in SQL: Flink's on the corpus, the slow matcher's at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings

from asterism.conformance.corpus import read_cases
from asterism.errors import AsterismError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import ConditionContext, Event, IterativeCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Stage
from tests.kit import CORPUS
from tests.matching.twin import comparable, run_engine
from tests.patterns.strategies import cases
from tests.reference.event import Event as PlainEvent
from tests.reference.matcher import run_case
from tests.reference.sql import parse_condition


def as_python(stages: tuple[str, ...], text: str) -> IterativeCondition:
    """A function that says what SQL *text* says."""
    holds = parse_condition(text)

    def plain(event: Event) -> PlainEvent:
        return PlainEvent(**event)

    def condition(event: Event, context: ConditionContext) -> bool:
        accepted = tuple((name, plain(earlier)) for name in stages for earlier in context.events_for_pattern(name))
        return holds(plain(event), accepted)

    return IterativeCondition(condition)


def in_python(pattern: Pattern, which: Callable[[], bool] = lambda: True) -> Pattern:
    """The pattern with conditions in Python instead of SQL, where *which* says so."""
    names = tuple(atom.name for atom in pattern.atoms())

    def changed(stage: Stage) -> Stage:
        parts = {}
        for part in ("condition", "until"):
            condition = getattr(stage, part)
            if isinstance(condition, SqlCondition) and which():
                parts[part] = as_python(names, condition.text)
        group = None if stage.group is None else replace(stage.group, stages=tuple(map(changed, stage.group.stages)))
        return replace(stage, group=group, **parts)

    return replace(pattern, stages=tuple(map(changed, pattern.stages)))


FILES = ["iterative_conditions", "until"]
PARTS = 8
"""The parts of the corpus, of which the first one is tested here."""


@pytest.mark.parametrize("name", FILES)
def test_flinks_answers_with_conditions_in_python(name: str) -> None:
    """A part of the corpus, with every condition asked event by event."""
    check_corpus(name, 0)


def check_corpus(name: str, part: int) -> None:
    file = CORPUS / f"{name}.jsonl"
    assert file.exists()
    failing = []
    for case in list(read_cases([file]))[part::PARTS]:
        if "error" in case["expected"]:
            continue
        answer = run_engine(in_python(Pattern.from_json(case["pattern"])), case, Semantics.FLINK, "random")
        if comparable(answer) != comparable(case["expected"]):
            failing.append(case["id"])
    assert failing == []


@pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
@settings(max_examples=max(1, settings().max_examples // 3))
@given(case=cases())
def test_python_instead_of_sql_changes_nothing(semantics: Semantics, case: dict[str, Any]) -> None:
    """Random patterns and streams, with some of the conditions in Python."""
    try:
        pattern = Pattern.from_json(case["pattern"])
        compile_pattern(pattern, semantics)
    except AsterismError:
        assume(False)
    mixed = in_python(pattern, partial(random.Random(len(case["events"])).choice, [True, True, False]))
    options = {"order_by": case["order_by"]} if "order_by" in case else {}
    answer = run_engine(mixed, case, semantics, "random", **options)
    assert comparable(answer) == comparable(run_case(case, semantics.value))
