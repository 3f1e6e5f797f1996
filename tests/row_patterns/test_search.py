"""The search for matches whose conditions depend on the match so far: its limits, and what it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism.errors import LimitExceededError
from asterism.row_patterns import kernels, search
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table


def matches(clause: str, count: int) -> int:
    rows = pa.table({"ts": range(count), "v": [n * 7 % 1000 for n in range(count)]})
    return match_table(check(read(f"ORDER BY ts MEASURES COUNT(*) AS n {clause}"), rows.schema), rows).num_rows


def arrays(value: object) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from arrays(item)


@pytest.mark.parametrize("more", ["", "WITHIN INTERVAL '3' SECOND"])
def test_the_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """A read-only array, or one with gaps, is of another type for the compiler."""
    seen: list[np.ndarray] = []
    find_matches = kernels.find_matches

    def watched(tables: kernels.SearchTables, *others: Any) -> int:
        seen.extend(arrays(tables))
        return find_matches(tables, *others)

    monkeypatch.setattr(kernels, "find_matches", watched)
    assert matches(f"PATTERN (A B+) {more} DEFINE B AS v > A.v", 20) > 0
    assert len(seen) > 40
    assert all(array.flags.writeable and array.flags.c_contiguous for array in seen)


@pytest.mark.parametrize("condition", ["v > A.v + 2000", "MAX(A.ts) < 0"])
def test_failures_are_remembered_from_start_to_start(monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    """Without a memory, each start would try all rows behind it. Of how many rows there is a maximum does not matter."""
    clause = f"PATTERN (A+ B) DEFINE B AS {condition}"
    monkeypatch.setattr(search, "MAX_STEPS", 300_000)
    assert matches(clause, 20_000) == 0
    monkeypatch.setattr(search, "MEMORY", 1)
    with pytest.raises(LimitExceededError, match="too many steps"):
        matches(clause, 20_000)


@pytest.mark.parametrize(
    "define",
    [
        "C AS SUM(A.v * A.ts) = -1",
        "C AS LAST(CLASSIFIER(), 20) = 'X'",
        "C AS array_agg(A.v) IS NULL",
        "A AS COUNT(DISTINCT A.v) > 0, C AS MAX(A.v) < 0",
    ],
)
def test_exponential_search_is_given_up(monkeypatch: pytest.MonkeyPatch, define: str) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", 200_000)
    with pytest.raises(LimitExceededError, match="too many steps"):
        matches(f"PATTERN ((A | B)+ C) DEFINE {define}", 60)


def test_one_long_match() -> None:
    assert matches("PATTERN (A+) DEFINE A AS SUM(A.v) >= 0 AND FIRST(ts) = 0", 5_000) == 1


@pytest.mark.parametrize(
    "define",
    ["B AS FIRST(v) < 0", "B AS FIRST(A.v) < 0 AND v > 1", "B AS MATCH_NUMBER() < 0", "B AS FIRST(v) + 1 = -1"],
)
def test_what_only_the_first_row_decides_is_decided_once_for_each_start(
    monkeypatch: pytest.MonkeyPatch, define: str
) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", 1_000)
    assert matches(f"PATTERN (A+ B) DEFINE {define}", 15_000) == 0
    assert matches(f"PATTERN (A+ (B | C)) DEFINE {define}, C AS v > 1 AND MATCH_NUMBER() < 3", 500) == 1
