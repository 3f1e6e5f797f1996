"""What a user reads when the steps of a drawing are wrong: the text of every error, as a whole.

As in ``test_error_texts.py``; the files are in ``golden/window_drawing``.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from asterism.errors import StreamDefinitionError
from asterism.windows.assigners import TumblingWindows
from asterism.windows.drawing import MAX_STEPS, draw
from tests.errors.conftest import GOLDEN, Golden

STEPS = {
    "unknown_step": "in 1@1\nwatermarks 3",
    "no_element": "in 1@1 !",
    "element_time_without_unit_known": "in 1@3weeks",
    "no_time": "in 1@1\nwatermark soon",
    "time_missing": "in 1@1\nclock",
    "time_too_long": "in 1@99999999999d",
    "nothing_comes": "watermark 3",
    "too_much_comes": "in" + " 1@1" * (MAX_STEPS + 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_error_text(name: str, golden: Golden) -> None:
    with pytest.raises(StreamDefinitionError) as caught:
        draw(TumblingWindows.of(timedelta(seconds=10)), None, STEPS[name])
    golden.check(f"window_drawing/{name}", f"{type(caught.value).__name__}\n{caught.value}")


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in (GOLDEN / "window_drawing").glob("*.txt")} == set(STEPS)
