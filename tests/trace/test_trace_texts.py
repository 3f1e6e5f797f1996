"""What a user of the trace reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asterism.columns.event_files import read_events
from asterism.trace.report import trace
from tests.expressions.test_sql_texts import SCHEMA
from tests.kit import Golden, Provocation
from tests.patterns.test_pattern_texts import SECOND, begin


def tracing(**options: Any) -> Provocation:
    events = [{"user": f"user{number}", "visits": number, "ts": number} for number in range(20)]
    return lambda: trace(begin().next("b"), options.pop("events", events), **{"time": "ts"} | options)


TEXTS: dict[str, Provocation] = {
    "trace_unknown_key": tracing(key={"user": "user99"}),
    "trace_unknown_key_of_several_columns": tracing(key={"user": "user9", "visits": 8}),
    "trace_key_of_other_type": tracing(key={"visits": "many"}),
    "trace_unknown_key_column": tracing(key={"usr": "user1"}),
    "trace_unknown_time_column": tracing(time="at"),
    "trace_no_events": tracing(events=SCHEMA.empty_table()),
    "trace_negative_out_of_orderness": tracing(max_out_of_orderness=-SECOND),
    "trace_partition_is_a_text": tracing(max_out_of_orderness=SECOND, watermark_by="user"),
    "trace_partition_unknown": tracing(max_out_of_orderness=SECOND, watermark_by=["users"]),
    "trace_partition_without_delay": tracing(watermark_by=["user"]),
    "trace_file_of_unknown_format": lambda: read_events(Path("events.xml")),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
