"""What a user reads when a timeline cannot be drawn: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from asterism import timeline
from tests.kit import Golden, Provocation

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOOD = pa.table({"user": ["ann"], "start_time": [NOON], "end_time": [NOON]})


TEXTS: dict[str, Provocation] = {
    "timeline_of_a_list": lambda: timeline([1]),
    "timeline_without_end": lambda: timeline(GOOD.drop_columns("end_time")),
    "timeline_of_strings": lambda: timeline(GOOD, start="user"),
    "timeline_of_an_unknown_key": lambda: timeline(GOOD, "item"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
