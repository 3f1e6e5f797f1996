"""Slow: all parameters of tests of test_match_ids.py."""

from __future__ import annotations

import pytest

from tests.matching import test_match_ids as fast
from tests.matching.test_match_ids import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_ids_do_not_depend_on_cuts_and_tell_matches_apart(case: Case) -> None:
    fast.test_ids_do_not_depend_on_cuts_and_tell_matches_apart(case)
