"""Slow: all parameters of tests of test_kernel_property.py."""

from __future__ import annotations

import pytest

from asterism.conformance.corpus import CUTS
from asterism.patterns.semantics import Semantics
from tests.matching import test_kernel_property as fast
from tests.matching.test_kernel_property import BOTH


@BOTH
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("strategy", ["NO_SKIP", "SKIP_TO_NEXT", "SKIP_PAST_LAST_EVENT"])
def test_many_partial_matches(semantics: Semantics, cuts: str, strategy: str) -> None:
    fast.test_many_partial_matches(semantics, cuts, strategy)
