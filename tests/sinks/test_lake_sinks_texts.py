"""The texts of what the sinks for Delta and Iceberg refuse without Spark; ``tests/lakes`` has the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asterism.sinks import DeltaSink, IcebergSink
from tests.kit import Golden

ERRORS: dict[str, Callable[[], object]] = {
    "no_table_name": lambda: IcebergSink("lake.my alarms"),
    "statement": lambda: DeltaSink("alarms; DROP TABLE alarms"),
    "no_key": lambda: DeltaSink("lake.alarms", key=[]),
    "order_without_key": lambda: IcebergSink("lake.alarms", order_by="updated"),
    "rows_without_match_id": lambda: DeltaSink("lake.alarms", key="match_id").check_columns(["user"]),
    "rows_without_order": lambda: DeltaSink("/data/alarms", key="user", order_by="updated").check_columns(["user"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_text_of_an_error(name: str, golden: Golden) -> None:
    golden.error(name, ERRORS[name])


TEXTS = set(ERRORS)


def test_sinks_of_outputs() -> None:
    sink = DeltaSink("/data/it's here", key="match_id")
    assert repr(sink.for_output("late")) == """DeltaSink("/data/it's here", name='late', key=('match_id',))"""
    assert sink.name is None
