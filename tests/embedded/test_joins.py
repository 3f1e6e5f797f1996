"""Joins of Arrow tables, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from asterism import JoinedStream, interval_join
from tests.embedded.cases import JOINS, QUOTES, SECONDS, TRADES, UNSORTED, sides
from tests.embedded.test_patterns import rows_of

PAIRS = {
    "interval": [(1, 2), (2, 3), (4, 3), (4, 1), (6, 1)],
    "left, with a condition": [(1, 2), (2, None), (3, None), (4, None), (5, None), (6, None), (7, None), (8, None)],
    "as of": [(1, 2), (2, 3), (3, None), (4, 3), (5, 2), (6, 1), (7, None), (8, None)],
    "window": [(1, 2), (2, 3), (4, 1), (6, 1)],
    "many": [(1, 2), (2, 3), (3, None), (4, 3), (4, 1), (5, None), (6, 1), (7, None), (8, None)],
    "late": [],
}
"""The ids of trades and of quotes."""


@pytest.mark.parametrize("name", JOINS)
def test_cases(name: str) -> None:
    found = JOINS[name](TRADES, QUOTES)
    assert isinstance(found, pa.Table)
    assert sorted(map(str, rows_of(JOINS[name](UNSORTED, QUOTES)))) == sorted(map(str, rows_of(found)))
    if name in PAIRS:
        pairs = [(row["id"], row.get("q_quote")) for row in found.to_pylist()]
        assert sorted(pairs, key=str) == sorted(PAIRS[name], key=str)


def test_sinks() -> None:
    joined = interval_join(*sides(TRADES, QUOTES), SECONDS, prefix="q_")
    assert isinstance(joined, JoinedStream)
    written: dict[str, Any] = {}
    sinks = {
        output: lambda rows, number, output=output: written.update({output: (rows.num_rows, number)})
        for output in ("results", "late_left")
    }
    joined.run(sinks)
    assert written == {"results": (5, 0), "late_left": (0, 0)}
    with pytest.raises(AttributeError, match="its rows are"):
        joined.to_pandas  # noqa: B018
