"""Limits that take long to reach."""

from __future__ import annotations

import pytest

from asterism.errors import (
    LimitExceededError,
)
from tests.architecture.test_limits import LONG, MANY, SUBSETS, check_stages, feed, operator
from tests.matching.harness import stage


def test_no_limit() -> None:
    assert feed(operator(SUBSETS, max_partial_matches=None), MANY) == (2**19, 0)


def test_one_event_cannot_fill_memory() -> None:
    """Two hundred stages that may be left out: each event leads each partial match to all that are left."""
    pattern = stage("a")
    for number in range(200):
        pattern = pattern.followed_by(f"s{number}").optional()
    cep = operator(pattern.followed_by("z").where("name = 'z'"), max_partial_matches=10_000, on_limit="drop")
    with pytest.raises(LimitExceededError, match="an event takes more than 10,000,000 steps"):
        feed(cep, "a1 b2 c3 d4 e5 f6 g7 h8")


@pytest.mark.parametrize("kind", ["optional", "strict and optional", "loops", "greedy", "forbidden"])
def test_thousands_of_stages(kind: str) -> None:
    check_stages(kind)


def test_all_kinds_of_stages_are_tested() -> None:
    assert len(LONG) == 8
