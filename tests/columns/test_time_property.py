"""Event times of every type: what they are in microseconds, and how results show them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.time import END_OF_TIME, FAR, LAST_TIMESTAMP, TIME_UNIT, TIME_UNITS, Described, TimeColumn
from asterism.errors import InvalidEventError, StreamDefinitionError

LONGS = st.integers(-(2**63), 2**63 - 1)


def integers(unit: str) -> TimeColumn:
    return TimeColumn("t", pa.int64(), unit)


def micros(column: TimeColumn, *values: Any, lenient: bool = True) -> list[int | None]:
    return column.to_micros(pa.chunked_array([pa.array(values, column.type)]), lenient=lenient).to_pylist()


@given(value=LONGS, unit=st.sampled_from(list(TIME_UNITS)))
def test_integers_are_cut_down_and_never_wrap(value: int, unit: str) -> None:
    exact = value * TIME_UNITS[unit] // 1000
    (found,) = micros(integers(unit), value)
    limit = FAR // max(TIME_UNITS[unit] // 1000, 1) * max(TIME_UNITS[unit] // 1000, 1)
    assert found == (exact if -limit <= exact <= limit else None)
    if found is not None:
        assert integers(unit).of_integer(value) == found
    else:
        with pytest.raises(InvalidEventError, match="is out of range"):
            integers(unit).of_integer(value)


@given(value=st.integers(-FAR, FAR), unit=st.sampled_from(list(TIME_UNITS)))
def test_times_of_results_are_the_last_ones_before(value: int, unit: str) -> None:
    (found,) = integers(unit).from_micros(np.array([value])).to_pylist()
    if unit != "nanoseconds" or abs(value) < 2**63 // 1000:
        assert found == value * 1000 // TIME_UNITS[unit]
    else:
        assert abs(found) > 2**63 - 2000


@pytest.mark.parametrize("unit", ["seconds", "milliseconds", "microseconds"])
def test_what_is_out_of_range_is_said(unit: str) -> None:
    with pytest.raises(InvalidEventError, match=f'an event time in "t" is out of range\n.*{unit} since 1970'):
        micros(integers(unit), 2**63 - 1, lenient=False)


@pytest.mark.parametrize(
    "day",
    [date(1, 1, 1), date(1582, 10, 15), date(1677, 9, 21), date(1969, 12, 31), date(2025, 3, 9), date(9999, 12, 31)],
)
def test_a_date_is_its_midnight(day: date) -> None:
    column = TimeColumn("t", pa.date32())
    (found,) = micros(column, day)
    assert found == (datetime(day.year, day.month, day.day) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    later = np.array([found, found + 1, found + 86_399_999_999])
    assert column.from_micros(later).to_pylist() == [day] * 3
    assert column.from_micros(np.array([END_OF_TIME])).to_pylist() == [date(9999, 12, 31)]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("year", [1, 1677, 1969, 9999])
def test_timestamps_of_all_years(zone: str | None, year: int) -> None:
    column = TimeColumn("t", pa.timestamp("us", zone))
    moment = datetime(year, 12, 31, 23, 59, 59, 999999)
    exact = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert micros(column, exact) == [exact]
    assert column.from_micros(np.array([exact])).cast(pa.int64()).to_pylist() == [exact]


@given(value=st.integers(-FAR, FAR), event=st.integers(-FAR, FAR))
def test_times_after_the_year_9999_are_those_of_events(value: int, event: int) -> None:
    column = TimeColumn("t", pa.timestamp("us", "UTC"))
    found = column.from_micros(np.array([value, END_OF_TIME]), np.array([event, event])).cast(pa.int64()).to_pylist()
    assert found == [value if event > LAST_TIMESTAMP else min(value, LAST_TIMESTAMP), LAST_TIMESTAMP]


@given(value=LONGS, unit=st.sampled_from(["s", "ms", "us", "ns"]))
def test_timestamps_of_all_units_never_wrap(value: int, unit: str) -> None:
    each = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    exact = value * each // 1000
    (found,) = micros(TimeColumn("t", pa.timestamp(unit)), value)
    limit = FAR // max(each // 1000, 1) * max(each // 1000, 1)
    assert found == (exact if -limit <= exact <= limit else None)


def test_the_unit_is_in_the_metadata_of_the_schema() -> None:
    schema = pa.schema([("t", pa.int64())])
    assert TimeColumn.of("t", schema).unit == "milliseconds"
    assert TimeColumn.of("t", schema.with_metadata({TIME_UNIT: "seconds"})).unit == "seconds"


def test_checkpoints_are_told_of_a_unit_only_if_there_is_a_choice() -> None:
    """Those of earlier releases, which knew milliseconds alone, belong to the same definition."""
    assert repr(Described(TimeColumn("t", pa.int64()))) == "TimeColumn(name='t', type=DataType(int64))"
    assert repr(Described(integers("seconds"))) == "TimeColumn(name='t', type=DataType(int64)) seconds"


def test_other_types_are_refused() -> None:
    with pytest.raises(StreamDefinitionError, match="is of type string"):
        TimeColumn("t", pa.string())
