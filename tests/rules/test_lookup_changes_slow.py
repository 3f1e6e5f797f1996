"""Slow: all parameters of tests of test_lookup_changes.py."""

from __future__ import annotations

import pytest

from tests.rules import test_lookup_changes as fast
from tests.rules.test_lookup_changes import KEEPS


@pytest.mark.parametrize("change", KEEPS)
def test_rules_go_on_where_they_were(change: str) -> None:
    fast.test_rules_go_on_where_they_were(change)
