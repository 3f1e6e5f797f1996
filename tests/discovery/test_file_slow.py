"""Slow: all parameters of tests of test_file.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.discovery import test_file as fast


@pytest.mark.parametrize("names", [("1.json", "2.json"), ("2.json", "1.json")])
def test_a_promotion_in_two_files_is_seen_as_one(tmp_path: Path, names: tuple[str, str]) -> None:
    fast.test_a_promotion_in_two_files_is_seen_as_one(tmp_path, names)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_that_is_being_written_counts_when_it_is_whole(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast.test_a_file_that_is_being_written_counts_when_it_is_whole(tmp_path, suffix, monkeypatch)
