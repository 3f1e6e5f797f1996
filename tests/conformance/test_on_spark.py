"""Flink's answers come out of Spark too, across a restart. And of many cases in one query, an error of one is its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism.conformance.corpus import pieces, read_cases, rng_for
from asterism.conformance.on_spark import micro_batches, run_cases
from tests.kit import CORPUS

pytestmark = pytest.mark.spark

Case = dict[str, Any]
PER_FILE = 4
ROUNDS = 2
"""Micro-batches before the restart, and after it: each takes half a second. All cuts are tried without Spark."""


def sample() -> list[Case]:
    """The same cases every time, as many of each file."""
    rng = random.Random(0)
    found: list[Case] = []
    for path in sorted(CORPUS.glob("*.jsonl")):
        found += rng.sample(list(read_cases([path])), PER_FILE)
    return found


def test_flinks_answers_come_out_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Cut at random, and with a restart in the middle of every case."""
    outcomes = list(run_cases(spark, sample(), tmp_path, cuts="random", rounds=ROUNDS))
    assert [f"{outcome.case}: {outcome.problem}" for outcome in outcomes if not outcome.passed] == []
    assert len(outcomes) == 64


@pytest.mark.parametrize("rounds", [None, ROUNDS])
def test_the_restart_is_in_the_middle_of_every_case(rounds: int | None) -> None:
    cases = sample()[::4]
    before, after = micro_batches(cases, range(len(cases)), "random", 0, rounds)
    assert rounds is None or (len(before), len(after)) == (rounds, rounds)
    for number, case in enumerate(cases):
        stream = [(row["number"], row["watermark"]) for batch in before + after for row in batch.to_pylist()]
        first = sum(row["number"] == number for batch in before for row in batch.to_pylist())
        watermarks = [watermark for _, watermark in pieces(case, "random", rng_for(case, 0))]
        assert first == len(watermarks) // 2
        assert [watermark for of, watermark in stream if of == number] == watermarks


def overflowing(case: Case) -> Case:
    """The same case with a condition that fails where an integer becomes too large."""
    node = {
        "name": "a",
        "type": "ATOMIC",
        "quantifier": {"properties": ["SINGLE"]},
        "condition": {"type": "SQL", "expression": "id * 9223372036854775807 > ts"},
    }
    return case | {"id": "overflowing", "pattern": {"type": "COMPOSITE", "nodes": [node], "edges": []}}
