"""What happens where memory is short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(program: str, **environment: str) -> list[str]:
    command = [sys.executable, str(HERE / program)]
    found = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout.splitlines()


def test_every_allocation_may_fail() -> None:
    """A call then fails clean: its state is untouched, and the same call again gives the right answer."""
    lines = run("allocations.py", NUMBA_DISABLE_JIT="1")
    assert len(lines) == 5
    assert all(int(line.split()[-1]) > 20 for line in lines)
