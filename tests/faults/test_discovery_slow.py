"""Slow: all parameters of tests of test_discovery.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import test_discovery as fast
from tests.faults.kit import EIO, ENOSPC, Faults


@pytest.mark.parametrize("kind", ["file", "folder", "sqlite", "url", "http"])
@pytest.mark.parametrize("code", [EIO, ENOSPC])
def test_discovery_survives_each_failure(tmp_path: Path, faults: Faults, kind: str, code: int) -> None:
    fast.test_discovery_survives_each_failure(tmp_path, faults, kind, code)
