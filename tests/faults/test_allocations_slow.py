"""Slow: further cases of test_allocations.py."""

from __future__ import annotations

from tests.faults.test_allocations import run


def test_what_a_call_makes_need_not_fit_in_memory() -> None:
    """Three million matches, in address space for a fraction of them."""
    (line,) = run("many_matches.py")
    assert line == "3000000 matches"
