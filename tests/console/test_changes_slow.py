"""Many clicks that change a rule, in random order."""

from __future__ import annotations

from pathlib import Path

from tests.console.change_model import check_changes


def test_what_is_in_force_after_any_clicks(tmp_path: Path) -> None:
    for seed in range(100, 120):
        check_changes(tmp_path, seed)
