"""Slow: all parameters of tests of test_hostile_clauses.py."""

from __future__ import annotations

import pytest

from tests.row_patterns import test_hostile_clauses as fast
from tests.row_patterns.test_hostile_clauses import AS_A_WHOLE


@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_refused_as_a_whole(name: str) -> None:
    fast.test_refused_as_a_whole(name)
