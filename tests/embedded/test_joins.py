"""Joins of Arrow tables, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import JoinedStream, Side, interval_join, multi_broadcast_join
from asterism.joins.types import JOIN_TYPES
from tests.embedded.cases import JOINS, QUOTES, SECONDS, TRADES, UNSORTED, sides
from tests.embedded.test_patterns import rows_of

PAIRS = {
    "interval": [(1, 2), (2, 3), (4, 3), (4, 1), (6, 1)],
    "left, with a condition": [(1, 2), (2, None), (3, None), (4, None), (5, None), (6, None), (7, None), (8, None)],
    "as of": [(1, 2), (2, 3), (3, None), (4, 3), (5, 2), (6, 1), (7, None), (8, None)],
    "window": [(1, 2), (2, 3), (4, 1), (6, 1)],
    "many": [(1, 2), (2, 3), (3, None), (4, 3), (4, 1), (5, None), (6, 1), (7, None), (8, None)],
    "late": [],
    "small tables": [(1, 2), (1, 5), (2, 1), (2, 3), (4, 1), (4, 3), (5, 2), (5, 5), (6, 1), (6, 3)],
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


def test_small_tables() -> None:
    assert JOINS["small tables that filter"](TRADES, QUOTES).column("id").to_pylist() == [1, 2, 4, 5, 6]
    people = pa.table({"id": [1, 2, 3], "name": ["ann", "bob", "cid"], "boss": [None, 1, 2]})
    joined = multi_broadcast_join(
        people,
        boss=Side(people, on={"boss": "id"}, how="left", prefix="boss_"),
        above=Side(people, on={"boss_boss": "id"}, how="left", select=["name"], prefix="above_"),
    )
    assert joined.column_names == ["id", "name", "boss", "boss_name", "boss_boss", "above_name"]
    assert [tuple(row.values()) for row in joined.to_pylist()] == [
        (1, "ann", None, None, None, None),
        (2, "bob", 1, "ann", None, None),
        (3, "cid", 2, "bob", 1, "ann"),
    ]


@given(
    probe=st.lists(st.none() | st.integers(0, 4), max_size=8),
    table=st.lists(st.none() | st.integers(0, 4), max_size=8),
    how=st.sampled_from(JOIN_TYPES),
)
def test_pairs_property(probe: list[int | None], table: list[int | None], how: str) -> None:
    """Each row of the probe, with each row of the table of the same key, in the order of both."""
    rows = pa.table({"k": pa.array(probe, pa.int64()), "p": list(range(len(probe)))})
    small = pa.table({"k": pa.array(table, pa.int32()), "t": pa.array(range(len(table)), pa.int64())})
    joined = multi_broadcast_join(rows, small=Side(small, on="k", how=how))
    expected: list[tuple[int | None, ...]] = []
    for at, key in enumerate(probe):
        found = [n for n, other in enumerate(table) if key is not None and other == key]
        if how in ("left_semi", "left_anti"):
            expected += [(key, at)] if bool(found) == (how == "left_semi") else []
        else:
            expected += [(key, at, n) for n in found or ([None] if how == "left" else [])]
    assert [tuple(row.values()) for row in joined.to_pylist()] == expected


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
