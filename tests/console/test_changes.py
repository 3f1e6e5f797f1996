"""Clicks that change a rule, in random order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.change_model import check_changes
from tests.kit import examples


@pytest.mark.parametrize("in_table", [True, False], ids=["table", "file"])
@pytest.mark.parametrize("seed", range(examples(1, usual=3)))
def test_what_is_in_force_after_any_clicks(tmp_path: Path, seed: int, in_table: bool) -> None:
    check_changes(tmp_path, seed, in_table=in_table)
