"""Slow: all parameters of tests of test_operator.py."""

from __future__ import annotations

import pytest

from tests.row_patterns import test_operator as fast
from tests.row_patterns.test_operator import HEAVY


@pytest.mark.parametrize("text", HEAVY)
def test_limit_of_steps_does_not_depend_on_cuts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast.test_limit_of_steps_does_not_depend_on_cuts(text, monkeypatch)
