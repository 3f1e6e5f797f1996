"""What is forgotten in a checkpoint in S3 is in no object of the bucket."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery.servers import or_skipped
from tests.kit import ROOT
from tests.savepoints.on_s3 import FOUND
from tests.servers.jars import jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def test_what_is_forgotten_is_in_no_object(tmp_path: Path) -> None:
    with or_skipped():
        jars("s3a")
    run = subprocess.run(
        [sys.executable, "-m", "tests.savepoints.on_s3", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    found = json.loads((tmp_path / FOUND).read_text())
    assert found["keys"] == 1
    assert found["before"]
    assert found["meanwhile"]
    assert found["removed"] == found["former"]
    assert found["after"] == []
    assert any("/state/" in name for name in found["objects"])
    assert found["users"] > 5
