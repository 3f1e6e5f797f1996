"""Routines of dates and times."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.time import DAY
from asterism.columns.time_zones import zone_of
from asterism.expressions import udfs
from asterism.expressions.time_patterns import reader, writer
from asterism.expressions.udfs import constant, each, each_row, routine

_MOMENT = pa.timestamp("us")


def _ints(times: pa.ChunkedArray) -> Ints:
    values: Ints = times.cast(pa.int64()).to_numpy()
    return values


@routine("VARCHAR", "VARCHAR", "TIMESTAMP", "TIMESTAMP")
def formatted_time(patterns: pa.ChunkedArray, local_times: pa.ChunkedArray, instants: pa.ChunkedArray) -> pa.Array:
    """Format local times by a pattern; instants tell how far they are ahead of UTC."""
    write = writer(constant(patterns))
    local, ahead = _ints(local_times), (_ints(local_times) - _ints(instants)) // 1_000_000
    pairs = [pa.chunked_array([pa.array(local)]), pa.chunked_array([pa.array(ahead)])]
    return each_row(pairs, write, pa.string())


@routine("TIMESTAMP", "VARCHAR", "VARCHAR", "VARCHAR")
def read_time(patterns: pa.ChunkedArray, zones: pa.ChunkedArray, strings: pa.ChunkedArray) -> pa.Array:
    """The instants of texts that have the form of a pattern; with '' instead of a zone, their local times."""
    return each(strings, _reading(constant(patterns), constant(zones)), pa.int64()).cast(_MOMENT)


@routine("TIMESTAMP", "VARCHAR", "VARCHAR", "VARCHAR", nulls=True)
def try_read_time(patterns: pa.ChunkedArray, zones: pa.ChunkedArray, strings: pa.ChunkedArray) -> pa.Array:
    """:func:`read_time`; null where a text has another form."""
    return _tried(strings, _reading(constant(patterns), constant(zones)), pa.int64()).cast(_MOMENT)


@functools.lru_cache(256)
def _reading(pattern: str, zone: str) -> Callable[[str], int]:
    read = reader(pattern)

    def micros_of(text: str) -> int:
        local, ahead = read(text)
        if abs(local) >= 2**63 - 2 * DAY:
            raise ValueError(f"{text!r} is too far away")
        if not zone:
            return local
        if ahead is not None:
            return local - ahead * 1_000_000
        return local - int(zone_of(zone).at_local_time(np.array([local]))[0])

    return micros_of


def _tried(strings: pa.ChunkedArray, function: Callable[[str], object], data_type: pa.DataType) -> pa.Array:
    """Call *function* once for each distinct text; null where it fails."""

    def tried(text: str) -> object:
        try:
            return function(text)
        except (ValueError, OverflowError):
            return None

    return each(strings, tried, data_type)


@routine("DATE", "VARCHAR", nulls=True)
def try_string_to_date(strings: pa.ChunkedArray) -> pa.Array:
    return _tried(strings, udfs.read_date, pa.int32()).cast(pa.date32())


@routine("TIMESTAMP", "VARCHAR", "VARCHAR", nulls=True)
def try_string_to_time(zones: pa.ChunkedArray, strings: pa.ChunkedArray) -> pa.Array:
    """A TIMESTAMP or, with '' instead of a zone, a TIMESTAMP_NTZ; null for texts that are none in any form.

    The forms that are not read here are errors all the same: Spark has a value.
    """
    zone = constant(zones) or None

    def read(text: str) -> int | None:
        try:
            return udfs.read_timestamp(text, zone)
        except ValueError:
            if _OTHER_FORMS.fullmatch(text.strip(udfs.CONTROL)):
                raise
            return None

    return each(strings, read, pa.int64()).cast(_MOMENT)


_OTHER_FORMS = re.compile(
    r"(?:[+-]?\d{4,6}-\d{1,2}-\d{1,2}[ T]|T)?\d{1,2}(?::\d{1,2}(?::\d{1,2}(?:\.\d*)?)?)?\s*[A-Za-z+-].*|T?\d{1,2}:.*",
    re.ASCII | re.DOTALL,
)
"""What may be a time of the current day, or a time with the name of a zone."""


@routine("VARCHAR", "VARCHAR", "INTEGER", "INTEGER", nulls=True)
def try_string_to_decimal(strings: pa.ChunkedArray, precision: pa.ChunkedArray, scale: pa.ChunkedArray) -> pa.Array:
    digits, places = constant(precision), constant(scale)
    return _tried(strings, lambda text: udfs.read_decimal(text, digits, places), pa.string())


@routine("DOUBLE", "VARCHAR", "TIMESTAMP", "TIMESTAMP", "BOOLEAN")
def months_between_instants(
    zones: pa.ChunkedArray, ends: pa.ChunkedArray, starts: pa.ChunkedArray, rounds: pa.ChunkedArray
) -> pa.Array:
    """Months between two instants, with a fraction of months of 31 days."""
    zone = zone_of(constant(zones))

    def parts(times: pa.ChunkedArray) -> tuple[Ints, Ints, np.ndarray, Ints]:
        values = _ints(times)
        local = values + zone.at_instant(values)
        days = local // DAY
        midnights = days * DAY
        seconds = (values - (midnights - zone.at_local_time(midnights))) // 1_000_000
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        number: Ints = (dates - months.astype("datetime64[D]")).astype(np.int64)
        is_last = (dates + 1).astype("datetime64[M]") != months
        return months.astype(np.int64), number, is_last, seconds

    month, day, is_last, seconds = parts(ends)
    first_month, first_day, first_is_last, first_seconds = parts(starts)
    whole = (month - first_month).astype(np.float64)
    apart = (day - first_day) * 86_400 + seconds - first_seconds
    exact = whole + apart / (31.0 * 86_400)
    if constant(rounds):
        exact = np.floor(exact * 1e8 + 0.5) / 1e8
    return pa.array(np.where((day == first_day) | (is_last & first_is_last), whole, exact))
