"""Windows over Arrow tables, without Spark."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import KeyedStream, TumblingWindows, WindowedStream, window
from tests.embedded.cases import TRADES, UNSORTED, WINDOWS
from tests.embedded.test_patterns import rows_of


@pytest.mark.parametrize("name", WINDOWS)
def test_cases(name: str) -> None:
    case = WINDOWS[name]
    for table in (TRADES, UNSORTED):
        found = case.rows(case.results(table))
        assert isinstance(found, pa.Table)
        assert found.num_rows or case.expected == []
        if case.expected is not None:
            assert sorted(rows_of(found), key=str) == sorted(case.expected, key=str)


def test_sinks() -> None:
    windowed = window(KeyedStream(TRADES, key="symbol", time="ts"), TumblingWindows.of(timedelta(seconds=8)))
    assert isinstance(windowed, WindowedStream)
    written: dict[str, Any] = {}
    sinks = {
        output: lambda rows, number, output=output: written.update({output: (rows.num_rows, number)})
        for output in ("results", "late")
    }
    windowed.run(sinks, aggregate=["count(*) AS n"])
    assert written == {"results": (5, 0), "late": (0, 0)}


def test_a_table_comes_after_an_aggregate() -> None:
    windowed = window(KeyedStream(TRADES, key="symbol", time="ts"), TumblingWindows.of(timedelta(seconds=8)))
    with pytest.raises(AttributeError, match=r"aggregate\("):
        windowed.to_pandas  # noqa: B018
