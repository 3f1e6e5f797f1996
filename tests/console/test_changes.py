"""Clicks that change a rule, in random order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.change_model import check_changes
from tests.kit import examples


@pytest.mark.parametrize("seed", range(examples(1, usual=3)))
def test_what_is_in_force_after_any_clicks(tmp_path: Path, seed: int) -> None:
    check_changes(tmp_path, seed)
