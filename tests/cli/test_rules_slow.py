"""The command ``asterism rules`` on sources of other kinds: all tests of ``test_rules.py`` that are about any source."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

from tests.cli import test_rules

new = test_rules.new
globals().update(
    {
        name: test
        for name, test in vars(test_rules).items()
        if name.startswith("test_") and "source" in signature(test).parameters
    }
)


@pytest.fixture(params=["json", "postgresql"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return test_rules.source_of(request, tmp_path)
