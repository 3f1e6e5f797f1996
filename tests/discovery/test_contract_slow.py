"""The contract of discoverers in the places that the fast tests leave out: other files and databases, and topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.discovery import test_contract as fast
from tests.discovery.places import Place

globals().update({name: test for name, test in vars(fast).items() if name.startswith("test_")})


@pytest.fixture(params=["json", "folder", "sqlite", "mariadb", "topic"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from fast.opened(request, tmp_path)
