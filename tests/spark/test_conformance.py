"""The operator that hosts many cases: an error of one of them is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism.conformance import read_cases
from asterism.spark.conformance import run_cases

pytestmark = pytest.mark.spark

CORPUS = Path(__file__).parent.parent / "conformance"
Case = dict[str, Any]


def overflowing(case: Case) -> Case:
    """The same case with a condition that fails where an integer becomes too large."""
    node = {
        "name": "a",
        "type": "ATOMIC",
        "quantifier": {"properties": ["SINGLE"]},
        "condition": {"type": "SQL", "expression": "id * 9223372036854775807 > ts"},
    }
    return case | {"id": "overflowing", "pattern": {"type": "COMPOSITE", "nodes": [node], "edges": []}}


def test_errors_belong_to_their_case(spark: SparkSession, tmp_path: Path) -> None:
    good = next(read_cases([CORPUS / "quantifiers.jsonl"]))
    malformed = next(read_cases([CORPUS / "malformed.jsonl"]))
    seen: list[tuple[int, int]] = []
    outcomes = run_cases(
        spark, [overflowing(good), malformed, good], tmp_path, progress=lambda *done: seen.append(done)
    )
    failed, rejected, passed = outcomes
    assert (failed.passed, rejected.passed, passed.passed) == (False, True, True)
    assert "InvalidEventError: an expression could not be computed" in failed.problem
    assert seen[-1][0] == seen[-1][1] == len(seen)
