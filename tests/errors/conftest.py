"""Golden files: ``ASTERISM_REWRITE=1 pytest tests/errors`` writes them anew; then read the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Golden:
    return Golden()


class Golden:
    """Compares a text with the file that holds it, or writes the file."""

    def check(self, name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("ASTERISM_REWRITE"):
            path.write_text(text + "\n", encoding="utf-8")
        assert path.exists(), f"no golden file for {name}: ASTERISM_REWRITE=1 makes it"
        assert text == path.read_text(encoding="utf-8").removesuffix("\n")

    def names(self) -> set[str]:
        return {path.stem for path in GOLDEN.glob("*.txt")}
