"""``python_values`` gives the objects of ``to_pylist``."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.arrays import python_values

TIMES = st.none() | st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 30)) | st.datetimes(
    min_value=datetime(2025, 3, 29), max_value=datetime(2025, 3, 31)
)  # fmt: skip


@given(st.lists(TIMES), st.sampled_from(["s", "ms", "us"]), st.sampled_from([None, "UTC", "Europe/Berlin", "-03:30"]))
def test_times(times: list[datetime | None], unit: str, zone: str | None) -> None:
    micros = [None if time is None else (time - datetime(1970, 1, 1)) // timedelta(microseconds=1) for time in times]
    array = pa.array(micros, pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone), safe=False)
    column = pa.chunked_array([array.slice(0, 2), array.slice(2)])
    found, expected = python_values(column), column.to_pylist()
    assert found == expected
    assert [time and (time.utcoffset(), time.tzinfo, time.fold) for time in found] == [
        time and (time.utcoffset(), time.tzinfo, time.fold) for time in expected
    ]


@pytest.mark.parametrize("micros", [-(10**17), 3 * 10**17])
def test_times_that_python_does_not_have(micros: int) -> None:
    with pytest.raises((OverflowError, ValueError)):
        python_values(pa.chunked_array([pa.array([0, micros], pa.timestamp("us", "UTC"))]))


def test_other_types() -> None:
    for values, kind in [
        ([1, None], pa.int64()),
        ([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        ([], pa.timestamp("us")),
    ]:
        column = pa.chunked_array([pa.array(values, kind)])
        assert python_values(column) == column.to_pylist(maps_as_pydicts="lossy")


@given(
    st.sampled_from([pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string()]),
    st.lists(st.none() | st.integers(0, 1), max_size=5),
)
def test_other_values(kind: pa.DataType, numbers: list[int | None]) -> None:
    array = pa.array(numbers, pa.int8()).cast(kind)
    column = pa.chunked_array([array.slice(0, 2), array.slice(2)])
    found, expected = python_values(column), column.to_pylist()
    assert (found, [type(value) for value in found]) == (expected, [type(value) for value in expected])
