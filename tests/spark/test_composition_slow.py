"""The pairs of operators beyond the covering set of ``test_composition.py``."""

from __future__ import annotations

from itertools import product

import pytest

from tests.spark import test_composition
from tests.spark.test_composition import COVERING, OPERATORS, Case, check_deadlines, check_pair

pytestmark = pytest.mark.spark
case = test_composition.case


@pytest.mark.parametrize(("first", "second"), [pair for pair in product(OPERATORS, repeat=2) if pair not in COVERING])
def test_pairs(case: Case, first: str, second: str) -> None:
    check_pair(case, first, second)


def test_deadlines_behind_a_pattern_pass_without_rows(case: Case) -> None:
    check_deadlines(case, "pattern")
