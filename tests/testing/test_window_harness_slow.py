"""Slow: all parameters of tests of test_window_harness.py."""

from __future__ import annotations

import pytest

from tests.testing import test_window_harness as fast
from tests.windows import transcripts
from tests.windows.driver import is_dynamic


@pytest.mark.parametrize(
    "case", [case for case in transcripts.cases() if not is_dynamic(case)], ids=lambda one: one.name
)
def test_transcripts_of_the_operator(case: transcripts.Case) -> None:
    fast.test_transcripts_of_the_operator(case)
