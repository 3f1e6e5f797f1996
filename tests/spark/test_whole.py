"""Rows that are sorted by a column are cut where its value changes, wherever the batches end."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.spark.host import exchange
from asterism.spark.host.batch import whole


@given(st.lists(st.integers(-3, 3), max_size=30), st.lists(st.integers(0, 6), max_size=10), st.integers(1, 6))
def test_values_are_not_divided(values: list[int], cuts: list[int], gather: int) -> None:
    values.sort()
    table = pa.table({"v": pa.array(values, pa.int64()), "n": pa.array(range(len(values)), pa.int64())})
    batches, begin = [], 0
    for size in [*cuts, len(values)]:
        batches += table.slice(begin, size).combine_chunks().to_batches()
        begin += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "GATHER", gather)
        parts = [part.to_pydict() for part in whole(iter(batches), "v")]
    assert [n for part in parts for n in part["n"]] == list(range(len(values)))
    assert all(part["n"] for part in parts)
    found = [value for part in parts for value in dict.fromkeys(part["v"])]
    assert found == list(dict.fromkeys(values))
