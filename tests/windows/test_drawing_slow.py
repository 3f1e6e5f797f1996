"""Slow: all parameters of tests of test_drawing.py."""

from __future__ import annotations

import pytest

from tests.windows import test_drawing as fast
from tests.windows.test_drawing import CASES
from tests.windows.transcripts import Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_drawing_of_a_transcript(case: Case) -> None:
    fast.test_the_drawing_of_a_transcript(case)
