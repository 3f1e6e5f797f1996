"""Compiles the kernels by using them: a few events through each kind of operator.

The compiled code is cached, so that a container image or a machine that was prepared with it compiles nothing later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pyarrow as pa

from asterism.expressions.evaluation import Vectorized
from asterism.expressions.math_functions import MathFunction
from asterism.matching import matcher
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.page import Page, together
from asterism.operators.operator import Operator
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import RowPatternOperator
from asterism.rules.binding.text_index import TextIndex
from asterism.rules.definition.processor import PatternProcessor
from asterism.testing.literals import EVENTS
from asterism.testing.operator_harness import OperatorHarness
from asterism.testing.rule_harness import rows_of_rule
from asterism.windows.assigners import SessionWindows, SlidingWindows
from asterism.windows.operator import WindowOperator
from asterism.windows.triggers import CountTrigger, EventTimeTrigger

_EVENTS = pa.table(
    {
        "key": [key for key in ("ann", "bob") for _ in range(6)],
        "ts": pa.array([*range(0, 6_000_000, 1_000_000)] * 2, pa.timestamp("us", "UTC")),
        "kind": [*"abacbc"] * 2,
        "value": [1, 2, 3, 1, 4, 2] * 2,
    },
    schema=EVENTS,
)
_SECOND = timedelta(seconds=1)
_PATTERN = (
    Pattern.begin("a")
    .where("kind = 'a'")
    .followed_by("b")
    .where("kind = 'b' AND value > LAST(a.value)")
    .one_or_more()
    .greedy()
    .not_followed_by("x")
    .where("kind = 'x'")
    .followed_by("c")
    .where("kind = 'c'")
    .within(timedelta(seconds=10))
)
_RULE = PatternProcessor(
    "warm-up", 1, Pattern.begin("a").where("kind = 'a'").followed_by("b").where("value > 1"), key=("key",)
)
_NEAR = (
    "PARTITION BY key ORDER BY ts MEASURES MATCH_NUMBER() AS n, LAST(value) AS v PATTERN (A B*) "
    "DEFINE B AS value > PREV(value)"
)
_FAR = (
    "PARTITION BY key ORDER BY ts MEASURES AVG(value) AS mean, MAX(value) AS largest ALL ROWS PER MATCH PATTERN (A B*) "
    "DEFINE B AS value > A.value AND SUM(value) < 100"
)


def compile_kernels(kind: str) -> None:
    """Compile the kernels of a kind of operators (see :data:`USES`) for this machine, and cache them."""
    from asterism.columns import compiled  # imports numba

    before = compiled.SECONDS, matcher.SLICE
    compiled.SECONDS, matcher.SLICE = 0, 1  # at once; and so that results come in several slices
    try:
        USES[kind]()
    finally:
        compiled.SECONDS, matcher.SLICE = before


def _run(operator: Operator) -> None:
    """In two calls, with state between them, and to the end."""
    harness = OperatorHarness(operator, keys=["key"], key_groups=1)
    harness.feed(_EVENTS.slice(0, 9)).feed(_EVENTS.slice(9)).end()


def _patterns() -> None:
    kinds = {kind.value: OutputSpec(kind) for kind in (OutputKind.MATCHES, OutputKind.TIMED_OUT)}
    _run(CepOperator(_PATTERN, EVENTS, keys=["key"], time="ts", outputs=kinds))
    measured = {"matches": OutputSpec(OutputKind.MATCHES, measures=("COUNT(b.*) AS n", "LAST(b.value) AS v"))}
    operator = CepOperator(_PATTERN, EVENTS, keys=["key"], time="ts", outputs=measured)
    _run(operator)
    # Two keys fill no page, so that no call of the operator divides one, or joins two.
    packed = list(Page.concat([operator.empty_page()] * 2).packed([np.empty(0, np.int64)] * 2))
    together(packed)
    packed[0].to_bytes()


def _rules() -> None:
    from asterism.expressions.kernels import calculate_one, calculate_two  # imports numba
    from asterism.rules.binding.kernels import ranked

    values, results = np.ones(2), np.empty(2)
    calculate_one(int(MathFunction.SINH), values, results)
    calculate_two(int(MathFunction.HYPOT), values, values, results)
    TextIndex(Vectorized(EVENTS, ["(contains(c2, 'a') AND regexp_matches(c2, 'b'))"])).met(_EVENTS)
    ranked(pa.array([0], pa.int32()).to_numpy())
    rows_of_rule(_RULE, EVENTS, [_EVENTS], keys=["key"], time="ts", semantics=Semantics.DEFAULT)


def _windows() -> None:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    for windows in (SlidingWindows.of(4 * _SECOND, 2 * _SECOND), SessionWindows.with_gap(2 * _SECOND)):
        _run(
            WindowOperator(windows, EVENTS, keys=["key"], time="ts", measures=["sum(value) AS total"], trigger=trigger)
        )


def _clauses() -> None:
    for text in (_NEAR, _FAR):
        _run(RowPatternOperator(check(read(text), EVENTS), EVENTS))


USES: dict[str, Callable[[], None]] = {
    "patterns": _patterns,
    "rules": _rules,
    "windows": _windows,
    "row_patterns": _clauses,
}
