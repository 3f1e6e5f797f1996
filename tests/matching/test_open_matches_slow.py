"""Slow: all parameters of tests of test_open_matches.py."""

from __future__ import annotations

import pytest

from tests.matching import test_open_matches as fast
from tests.matching.test_open_matches import SKIPS, patterns

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("name", patterns(SKIPS["no_skip"]))
def test_results_are_those_of_the_slow_matcher(name: str, skip: str) -> None:
    fast.test_results_are_those_of_the_slow_matcher(name, skip)
