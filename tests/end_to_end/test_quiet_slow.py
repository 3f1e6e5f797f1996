"""Programs with Spark print nothing but their own output, and the lines of a list."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.end_to_end.quiet import run, run_file, unexpected
from tests.kit import EXAMPLES, ROOT

TUTORIAL = ROOT / "docs" / "tutorial"
NEEDS_A_SERVER = {"kafka_to_delta", "live_kafka", "live_web_service", "rules_postgresql"}
PROGRAMS = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted(TUTORIAL.glob("[0-9]_*.md")),
    *(program for program in sorted(EXAMPLES.glob("*.py")) if program.stem not in NEEDS_A_SERVER),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_first_run(program: Path, tmp_path: Path) -> None:
    done = run_file(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\n".join(unexpected(done.stderr)) == ""
    assert [line for line in done.stdout.splitlines() if re.search(r"\bWARN\b|\bERROR\b|^\tat ", line)] == []


@pytest.mark.parametrize("arguments", [["doctor"], ["demo", "--spark"]], ids=lambda words: words[0])
def test_commands_of_the_readme(arguments: list[str], tmp_path: Path) -> None:
    """Progress of slow steps is on standard error."""
    done = run([sys.executable, "-m", "asterism", *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    steps = ("checking", "starting Spark", "matching")
    assert [line for line in unexpected(done.stderr) if not line.startswith(steps)] == []
    assert "\tat " not in done.stdout
