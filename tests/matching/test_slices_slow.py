"""Slow: all parameters of tests of test_slices.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asterism import Semantics
from tests.matching import test_slices as fast
from tests.matching.test_slices import CASE_FILES, PATTERNS


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_the_corpus_in_slices(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast.test_the_corpus_in_slices(path, monkeypatch)


@pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("options", [{}, {"pages": 3}, {"max_partial_matches": 4, "on_limit": "drop"}], ids=str)
def test_random_streams_in_slices(
    name: str, semantics: Semantics, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast.test_random_streams_in_slices(name, semantics, options, monkeypatch)
