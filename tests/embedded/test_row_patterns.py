"""MATCH_RECOGNIZE over Arrow tables, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from asterism import MatchRecognize, RowPatternStream, match_recognize
from tests.embedded.cases import CLAUSES, TRADES, UNSORTED
from tests.embedded.test_events import SOURCES
from tests.embedded.test_patterns import rows_of

FALLS = (
    "PARTITION BY user ORDER BY ts MEASURES A.price AS high, B.price AS low PATTERN (A B) DEFINE B AS price < A.price"
)


@pytest.mark.parametrize("name", CLAUSES)
def test_cases(name: str) -> None:
    case = CLAUSES[name]
    for table in (TRADES, UNSORTED):
        found = case.matches(table)
        assert isinstance(found, pa.Table)
        if case.expected is not None:
            assert sorted(rows_of(found), key=str) == sorted(case.expected, key=str)


@pytest.mark.parametrize("name", SOURCES)
def test_tables(name: str) -> None:
    found = match_recognize(SOURCES[name](), MatchRecognize(FALLS))
    assert isinstance(found, RowPatternStream)
    assert found.matches.to_pylist() == [{"user": "u", "high": 5.0, "low": 2.0}]


def test_sinks() -> None:
    written: dict[str, Any] = {}
    found = match_recognize(TRADES, CLAUSES["one row"].clause)
    found.run(
        {
            "matches": lambda rows, number: written.update(matches=(rows.num_rows, number)),
            "late": lambda rows, number: written.update(late=(rows, number)),
        }
    )
    assert written == {"matches": (1, 0), "late": (TRADES.slice(0, 0), 0)}
