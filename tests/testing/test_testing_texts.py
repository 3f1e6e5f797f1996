"""What a user of the test kit reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from asterism.testing import match
from tests.expressions.test_sql_texts import SCHEMA
from tests.kit import Golden, Provocation
from tests.patterns.test_pattern_texts import begin


def sending(events: Any, **options: Any) -> Provocation:
    return lambda: match(begin().next("b"), events, **options)


TEXTS: dict[str, Provocation] = {
    "pattern_same_name_in_match": lambda: match(begin().next("a"), "a1"),
    "pattern_is_text": lambda: match("a b", "a1"),  # type: ignore[arg-type]
    "semantics_is_text": lambda: match(begin(), "a1", semantics="flink"),
    "kit_events_of_other_type": lambda: match(begin(), 5),  # type: ignore[arg-type]
    "kit_keys_are_text": lambda: match(begin(), "a1", keys="key"),
    "kit_not_an_event": sending("a1 b2c"),
    "kit_brackets_without_a_column": sending("a1 b2(ann)"),
    "kit_unknown_column_in_word": sending("a1(prize=2)"),
    "kit_value_of_other_type": sending("a1.5"),
    "kit_not_a_time": sending("a1@soon"),
    "kit_unknown_column": sending([{"ts": 1, "prize": 2}], columns=SCHEMA),
    "kit_value_does_not_fit": sending([{"ts": 1, "price": "much"}], columns=SCHEMA),
    "kit_bar_in_processing_time": sending("a1 | b2", time=None),
    "kit_sent_after_the_end": lambda: match(begin(), "a1").send("a2"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
