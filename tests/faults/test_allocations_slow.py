"""Slow: further cases of test_allocations.py."""

from __future__ import annotations

from tests.faults.test_allocations import run


def test_every_allocation_may_fail() -> None:
    """A call then fails clean: its state is untouched, and the same call again gives the right answer."""
    lines = run("allocations.py", NUMBA_DISABLE_JIT="1")
    assert len(lines) == 5
    assert all(int(line.split()[-1]) > 20 for line in lines)
