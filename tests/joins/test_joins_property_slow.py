"""Slow: all parameters of tests of test_joins_property.py."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.joins import test_joins_property as fast
from tests.joins.test_joins_property import Case, a_case


@pytest.mark.parametrize(("key_groups", "pages", "small"), [(1, None, True), (3, 1, False), (1, 4, False)])
@given(a_case())
def test_row_by_row_and_restored_after_each(key_groups: int, pages: int | None, small: bool, case: Case) -> None:
    fast.test_row_by_row_and_restored_after_each(key_groups, pages, small, case)
