"""Random queries in processes that are killed at any moment have the rows of a run that is not: none is missing, none differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.killed_runs import QUERIES, differences


@pytest.mark.parametrize("seed", range(len(QUERIES)), ids=list(QUERIES))
def test_a_process_that_is_killed(seed: int, tmp_path: Path) -> None:
    assert [*differences(seed, tmp_path)] == []
