"""Slow: all parameters of tests of test_key_groups.py."""

from __future__ import annotations

import pytest

from asterism.windows.assigners import GlobalWindows, SessionWindows, TumblingWindows, Windows
from asterism.windows.triggers import Trigger
from tests.windows import test_key_groups as fast
from tests.windows.test_key_groups import POLICIES, SECOND


@pytest.mark.parametrize(
    "windows", [TumblingWindows.of(10 * SECOND), SessionWindows.with_gap(5 * SECOND), GlobalWindows()], ids=repr
)
@pytest.mark.parametrize(("trigger", "early"), POLICIES.values(), ids=POLICIES.keys())
def test_it_does_not_matter_how_keys_are_grouped_or_elements_are_cut(
    windows: Windows, trigger: Trigger, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast.test_it_does_not_matter_how_keys_are_grouped_or_elements_are_cut(windows, trigger, early, monkeypatch)
