"""Slow: further cases of test_on_spark.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism.conformance.corpus import read_cases
from asterism.conformance.on_spark import run_cases
from tests.conformance.test_on_spark import overflowing
from tests.kit import CORPUS

pytestmark = pytest.mark.spark


def test_errors_belong_to_their_case(spark: SparkSession, tmp_path: Path) -> None:
    good = next(read_cases([CORPUS / "quantifiers.jsonl"]))
    malformed = next(read_cases([CORPUS / "malformed.jsonl"]))
    seen: list[tuple[int, int]] = []
    outcomes = run_cases(
        spark, [overflowing(good), malformed, good], tmp_path, progress=lambda *done: seen.append(done)
    )
    failed, rejected, passed = outcomes
    assert (failed.passed, rejected.passed, passed.passed) == (False, True, True)
    assert "EvaluationFailedError: [EVALUATION_FAILED] an expression could not be computed" in failed.problem
    assert seen[-1][0] == seen[-1][1] == len(seen)
