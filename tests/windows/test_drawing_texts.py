"""What a user reads when the steps of a drawing are wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from asterism.windows.assigners import TumblingWindows
from asterism.windows.drawing import MAX_STEPS, draw
from tests.kit import Golden

TEXTS = {
    "unknown_step": "in 1@1\nwatermarks 3",
    "no_element": "in 1@1 !",
    "element_time_without_unit_known": "in 1@3weeks",
    "no_time": "in 1@1\nwatermark soon",
    "time_missing": "in 1@1\nprocessing_time",
    "time_too_long": "in 1@99999999999d",
    "nothing_comes": "watermark 3",
    "too_much_comes": "in" + " 1@1" * (MAX_STEPS + 1),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, lambda: draw(TumblingWindows.of(timedelta(seconds=10)), None, TEXTS[name]))
