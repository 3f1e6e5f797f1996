"""A call in which only watermarks advance changes the header alone, in the same way as any other call."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.operator import Arrival, Now, Result
from asterism.operators.state.state_store import StateStore
from asterism.testing.operator_harness import OperatorHarness
from tests.kit import small_pages
from tests.savepoints.test_regrouping import CASES, FEWER_CASES, feed, steps

quick = KeyGroupOperator._moved


def run(case: str, seed: int, *, quickly: bool) -> tuple[list[Any], int]:
    """The state after each step and the rows, and how many calls were quick."""
    taken = 0

    def moved(
        operator: KeyGroupOperator, store: StateStore, stored: bytes, arrivals: Sequence[Arrival], now: Now
    ) -> Result | None:
        nonlocal taken
        result = quick(operator, store, stored, arrivals, now) if quickly else None
        taken += result is not None
        return result

    rng, harness = random.Random(seed), CASES[case](5)
    seen: list[Any] = []
    with mock.patch.object(KeyGroupOperator, "_moved", moved):
        for number, step in enumerate(steps(seed)):
            feed(harness, number, step)
            for _ in range(rng.randrange(3)):
                feed(harness, 1, ("watermark", (4 * (number // 2) + rng.randrange(8)) * 1_000_000))
            seen.append(state_of(harness))
        harness.end()
    rows = Counter(f"{name} {row}" for name in harness.operator.output_schemas for row in harness.rows(name))
    return [*seen, rows], taken


def state_of(harness: OperatorHarness) -> list[Any]:
    stores = [(store.header, dict(store.pages)) for store in harness.stores]
    return [stores, list(harness.next_times), list(harness.next_processing_times)]


@pytest.mark.parametrize("case", FEWER_CASES)
def test_quick_calls_are_as_others(case: str) -> None:
    with small_pages():
        expected, _ = run(case, 7, quickly=False)
        found, taken = run(case, 7, quickly=True)
    assert found == expected
    assert taken > 20
