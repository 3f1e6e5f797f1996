"""Slow: all parameters of tests of test_stores.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults import test_stores as fast
from tests.faults.kit import EIO, ENOSPC, Faults


@pytest.mark.parametrize("code", [EIO, ENOSPC])
@pytest.mark.parametrize("many", [1, 7])
def test_a_store_survives_each_failure(tmp_path: Path, kind: Any, faults: Faults, code: int, many: int) -> None:
    fast.test_a_store_survives_each_failure(tmp_path, kind, faults, code, many)


@pytest.mark.parametrize("code", [EIO, ENOSPC, None])
def test_the_set_of_an_endpoint_survives_each_failure(tmp_path: Path, faults: Faults, code: int | None) -> None:
    fast.test_the_set_of_an_endpoint_survives_each_failure(tmp_path, faults, code)
