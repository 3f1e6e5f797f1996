"""The operator does what the transcripts say, however their steps are carried to it."""

from __future__ import annotations

import pytest

from tests.windows.driver import WAYS, Driver, expected
from tests.windows.transcripts import Case, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_operator_does_what_the_transcript_says(case: Case) -> None:
    steps = [(step.action, step.time) for step in case.steps]
    for way in WAYS:
        found = [sorted(lines) for lines in Driver(case, way).play()]
        assert list(zip(steps, found, strict=True)) == list(zip(steps, expected(case, way), strict=True)), way.name
