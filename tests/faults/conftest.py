"""Calls of the system that fail, for the tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Faults


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    with monkeypatch.context() as patch:
        found = Faults(tmp_path)
        found.inject(patch)
        yield found
        found.disarm()
