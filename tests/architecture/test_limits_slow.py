"""Slow: all long conditions."""

from __future__ import annotations

import pytest

from tests.architecture import test_limits as fast


@pytest.mark.parametrize("text", fast.LONG_CONDITIONS, ids=lambda text: f"{text[:12]}... {len(text)}")
def test_long_conditions_are_refused_or_work(text: str) -> None:
    fast.test_long_conditions_are_refused_or_work(text)
