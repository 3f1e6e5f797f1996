"""The contract of discoverers in the places that the fast tests leave out: files of the kinds of others, and other databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.discovery import test_contract as fast
from tests.discovery.places import Place

globals().update({name: test for name, test in vars(fast).items() if name.startswith("test_")})


@pytest.fixture(params=["json", "folder", "sqlite", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from fast.opened(request, tmp_path)
