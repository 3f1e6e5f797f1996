"""The example with two processes finds what one engine finds, and goes on where it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.live_processes import batches, part_of
from tests.kit import EXAMPLES


def test_two_processes_and_a_second_start(tmp_path: Path) -> None:
    parts = {part for batch, _ in batches() for part in part_of(batch["ip"]).to_pylist()}
    assert parts == {0, 1}
    command = [sys.executable, str(EXAMPLES / "live_processes.py"), str(tmp_path)]
    found = [subprocess.run(command, capture_output=True, text=True, check=True, timeout=300) for _ in range(2)]
    assert found[0].stdout == "24.151.103.17: 147 failures, then a login as elastic_user_0\n"
    assert [each.stderr for each in found] == ["", ""]
    assert found[1].stdout == ""
