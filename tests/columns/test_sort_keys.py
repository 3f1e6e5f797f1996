"""The order of rows by columns."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.sort_keys import SortKey, check_order, order_of
from asterism.errors import ColumnTypeError
from tests.reference.matcher import rank

VALUES = {
    "long": (pa.int64(), st.integers(-2, 2)),
    "double": (pa.float64(), st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan])),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "é"])),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 3)),
}


@given(st.data())
def test_rows_are_in_the_order_of_spark(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    count = data.draw(st.integers(0, 8))
    columns = {name: data.draw(st.lists(st.none() | VALUES[name][1], min_size=count, max_size=count)) for name in names}
    rows = pa.table({name: pa.array(columns[name], VALUES[name][0]) for name in names})
    flag = st.booleans()
    keys = [SortKey(name, data.draw(flag), data.draw(st.none() | flag)) for name in names]
    expected = list(range(count))
    for name, descending, nulls_first in reversed(keys):  # a stable sort by each column, the last one first
        expected.sort(key=lambda row, name=name: rank(columns[name][row]), reverse=descending)  # type: ignore[misc]
        if nulls_first is not None:
            expected.sort(key=lambda row, name=name, first=nulls_first: (columns[name][row] is None) != first)  # type: ignore[misc]
    assert order_of(rows, keys).tolist() == expected
    written = [SortKey.of(str(key)) for key in keys]
    assert order_of(rows, written).tolist() == expected


@pytest.mark.parametrize(("descending", "expected"), [(False, [1, 3, 0, 2]), (True, [2, 0, 3, 1])])
def test_null_is_the_smallest_value_and_nan_the_largest(descending: bool, expected: list[int]) -> None:
    rows = pa.table({"x": [2.0, None, math.nan, 1.0]})
    assert np.array_equal(order_of(rows, [SortKey("x", descending)]), expected)


def test_what_has_no_order_is_refused() -> None:
    schema = pa.schema({"s": pa.struct([("x", pa.int32())]), "a": pa.list_(pa.int32()), "x": pa.int32()})
    check_order(schema, [SortKey.of("-x NULLS LAST")])
    for name in "sa":
        with pytest.raises(ColumnTypeError, match=f'events cannot be ordered by "{name}"'):
            check_order(schema, [SortKey.of(f"-{name}")])
