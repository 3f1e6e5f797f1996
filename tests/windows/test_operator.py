"""The operator does what the transcripts say, however their steps are carried to it.

Each transcript is carried in three of the nine ways, and each way carries every third transcript. The other pairs are in
``test_operator_slow.py``.
"""

from __future__ import annotations

import pytest

from tests.windows.driver import WAYS, Driver, Way, expected
from tests.windows.transcripts import Case, cases

CASES = [*enumerate(cases())]
EVERY = 3


def check(case: Case, ways: tuple[Way, ...]) -> None:
    steps = [(step.action, step.time) for step in case.steps]
    for way in ways:
        found = [sorted(lines) for lines in Driver(case, way).play()]
        assert list(zip(steps, found, strict=True)) == list(zip(steps, expected(case, way), strict=True)), way.name


@pytest.mark.parametrize(("number", "case"), CASES, ids=[case.name for _, case in CASES])
def test_the_operator_does_what_the_transcript_says(number: int, case: Case) -> None:
    check(case, WAYS[number % EVERY :: EVERY])
