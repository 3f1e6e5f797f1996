"""Compiled functions where nothing can be cached."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging
import tempfile

logging.basicConfig(format="%(message)s")


def refused(**options):
    raise PermissionError("read-only file system")


tempfile.TemporaryFile = refused  # by which numba tries out whether it can write
from asterism.columns.compiled import compiled


@compiled
def double(x):
    return 2 * x


@compiled
def triple(x):
    return 3 * x


assert (double(2), triple(2)) == (4, 6)
"""


def test_nothing_can_be_cached(tmp_path: Path) -> None:
    """The functions work, and a message says once what is wrong."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    found = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stderr == (
        "there is no writable folder for compiled code, so that every process spends up to a minute on it; "
        "set NUMBA_CACHE_DIR to a writable folder\n"
    )
