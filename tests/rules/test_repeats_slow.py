"""Slow: all parameters of tests of test_repeats.py."""

from __future__ import annotations

import pytest

from tests.rules import test_repeats as fast


@pytest.mark.parametrize("size", [1, 7, 100])
def test_however_many_events_fail_none_but_these_do(size: int) -> None:
    fast.test_however_many_events_fail_none_but_these_do(size)
