"""The operator does what the transcripts say, however their steps are carried to it."""

from __future__ import annotations

import pytest

from tests.windows.driver import WAYS, Driver, Way, expected
from tests.windows.transcripts import Case, cases

CASES = cases()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_operator_does_what_the_transcript_says(case: Case, way: Way) -> None:
    found = [sorted(one) for one in Driver(case, way).play()]
    steps = [(step.action, step.time) for step in case.steps]
    assert list(zip(steps, found, strict=True)) == list(zip(steps, expected(case, way), strict=True))
