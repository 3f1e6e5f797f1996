"""What a user reads when matching fails: the text of every error, as a whole."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pyarrow as pa
import pytest

from asterism.row_patterns import automaton, match_items, search
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from tests.kit import Golden, Provocation

ROWS = pa.table(
    {"k": ["x", "x", "x", "y"], "ts": pa.array([1, 2, None, 4]), "c": ["a", "b", "b", "a"], "v": [1, 0, 2, 3]}
)


def matched(text: str) -> Callable[[], object]:
    return lambda: match_table(check(read(text), ROWS.schema), ROWS)


def limited(text: str, limit: str, value: int) -> Callable[[], object]:
    def run() -> object:
        module, name = limit.split(".")
        limited_module = {"search": search, "match_items": match_items, "automaton": automaton}[module]
        with mock.patch.object(limited_module, name, value), mock.patch.object(search, "AT_FIRST", 1):
            return matched(text)()

    return run


ORDER = "PARTITION BY k ORDER BY ts"
TEXTS: dict[str, Provocation] = {
    "skip_to_absent_variable": matched(f"{ORDER} AFTER MATCH SKIP TO LAST C PATTERN (A C?) DEFINE C AS FALSE"),
    "skip_to_own_start": matched(f"{ORDER} AFTER MATCH SKIP TO FIRST U PATTERN (A B) SUBSET U = (A, B)"),
    "skip_after_empty_match": matched(
        "ORDER BY ts ALL ROWS PER MATCH AFTER MATCH SKIP TO A PATTERN (A*) DEFINE A AS c = 'z'"
    ),
    "time_is_null": matched(f"{ORDER} PATTERN (A B) WITHIN INTERVAL '1' SECOND"),
    "condition_fails": matched(f"{ORDER} PATTERN (A B) DEFINE B AS 1 DIV v = 2"),
    "measure_fails": matched(f"{ORDER} MEASURES 1 DIV v AS m PATTERN (A)"),
    "partition_too_large": limited(f"{ORDER} PATTERN (A B)", "search.MAX_TABLE", 20),
    "running_aggregates_too_long": limited(
        f"{ORDER} MEASURES array_agg(v) AS m ALL ROWS PER MATCH PATTERN (A+)", "match_items.MAX_RUNNING", 2
    ),
    "too_many_steps": limited(
        f"{ORDER} PATTERN ((A | B)+ C) DEFINE A AS c = 'b', C AS SUM(v) = 100 AND COUNT(B.*) >= 0",
        "search.MAX_STEPS",
        20,
    ),
    "match_too_long_for_the_search": limited(
        f"{ORDER} PATTERN (A+) DEFINE A AS SUM(v) < 100", "search.MAX_WORKSPACE", 100
    ),
    "too_many_edges": limited(f"{ORDER} PATTERN ({'A? ' * 100} B)", "automaton.MAX_EDGES", 2_000),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
