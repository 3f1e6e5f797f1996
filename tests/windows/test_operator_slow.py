"""The transcripts, carried in the ways in which ``test_operator.py`` does not carry them."""

from __future__ import annotations

import pytest

from tests.windows.driver import WAYS
from tests.windows.test_operator import CASES, EVERY, check
from tests.windows.transcripts import Case


@pytest.mark.parametrize(("number", "case"), CASES, ids=[case.name for _, case in CASES])
def test_the_operator_does_what_the_transcript_says(number: int, case: Case) -> None:
    check(case, tuple(way for at, way in enumerate(WAYS) if at % EVERY != number % EVERY))
