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


def test_what_a_call_makes_need_not_fit_in_memory() -> None:
    """Three million matches, in address space for a fraction of them."""
    (line,) = run("many_matches.py")
    assert line == "3000000 matches"
