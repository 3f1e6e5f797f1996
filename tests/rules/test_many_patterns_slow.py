"""Slow: all parameters of tests of test_many_patterns.py."""

from __future__ import annotations

import pytest

from asterism.patterns.semantics import Semantics
from tests.rules import test_many_patterns as fast
from tests.rules.test_many_patterns import FILES


@pytest.mark.parametrize("semantics", list(Semantics))
@pytest.mark.parametrize("name", FILES)
def test_together_as_alone(name: str, semantics: Semantics) -> None:
    fast.test_together_as_alone(name, semantics)
