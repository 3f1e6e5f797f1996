"""Many clicks that change a rule, in random order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.change_model import check_changes


@pytest.mark.parametrize("in_table", [True, False], ids=["table", "file"])
def test_what_is_in_force_after_any_clicks(tmp_path: Path, in_table: bool) -> None:
    for seed in range(100, 120):
        check_changes(tmp_path, seed, in_table=in_table)
