"""Queries that write to Delta and Iceberg, or read from them, are killed: each row is there once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery.servers import or_skipped
from tests.kit import ROOT, spawned
from tests.nemesis.life import ALL, DRIVER, ERROR, JVM, KILL, SELF, Fault, Life
from tests.servers.lakes import environment

FAULTS = [
    ("sink.lake", 1, KILL, ALL),  # when the first table has been written
    ("sink.lake", 2, ERROR, SELF),
    ("sink.lake", 3, KILL, JVM),
    ("batch.end", 1, KILL, DRIVER),  # when all have been
]


def test_a_life_with_lakes(tmp_path: Path) -> None:
    """Rows are appended to a table of one lake, and merged into a table of the other one."""
    with or_skipped():
        environment()
    faults = [Fault(number, *fault) for number, fault in enumerate(FAULTS)]
    life = Life(tmp_path, "pattern", 11, faults, lakes=True)
    verdict = life.run()
    assert not verdict.differences, verdict.tell()
    assert [outcome.hit and outcome.recovered for outcome in life.outcomes] == [True] * len(faults)
    for output in life.query.ids:
        assert verdict.rows[f"{output} in delta"] == verdict.rows[f"{output} in iceberg"] == verdict.rows[output] > 0


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_a_table_that_is_compacted_after_a_kill(tmp_path: Path, lake: str) -> None:
    """The micro-batch that was not committed is repeated with the rows that it had."""
    with or_skipped():
        variables = environment()
    for end, status in (("dies", -signal.SIGKILL), ("ends", 0)):
        with (tmp_path / "log").open("wb") as log:
            reader: subprocess.Popen[bytes] = spawned(
                [sys.executable, "-m", "tests.lakes.reader", str(tmp_path), lake, end],
                env=variables, cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            reader.wait(timeout=400)
        assert reader.returncode == status, (tmp_path / "log").read_text()[-5000:]
    batches = sorted(path.name for path in (tmp_path / "out").glob("batch=*"))
    assert batches[:3] == ["batch=0", "batch=1", "batch=2"]
