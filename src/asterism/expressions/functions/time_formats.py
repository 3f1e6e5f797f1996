"""Functions that format and read dates and times by a pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from asterism.expressions import time_patterns
from asterism.expressions.functions.table import FUNCTIONS, function, integer, literal_string, moment, string
from asterism.expressions.types import BIGINT, DATE, NTZ, NULL, STRING, is_instant, is_temporal
from asterism.expressions.values import (
    Cost,
    Sql,
    UnsupportedError,
    cast,
    error,
    local_time,
    micros_of,
    quoted,
    retyped,
    strict,
    string_constant,
)

_WHEN = "Dates and times"
_DEFAULT = "yyyy-MM-dd HH:mm:ss"
_LITERAL = "the pattern"


def _pattern(value: Sql, check: Callable[[str], object]) -> str:
    pattern = literal_string(value, _LITERAL)
    try:
        check(pattern)
    except time_patterns.TimePatternError as problem:
        raise UnsupportedError(str(problem), "docs/sql.md lists the letters of patterns") from None
    return pattern


def _formatted(when: Sql, pattern: Sql, zone: str) -> Sql:
    written = _pattern(pattern, time_patterns.writer)
    local = local_time(when, zone)
    instant = when if is_instant(when.type) else cast(when, pa.timestamp("us", zone), zone)
    inside = "{1} BETWEEN TIMESTAMP '0001-01-01 00:00:00' AND TIMESTAMP '9999-12-31 23:59:59.999999'"
    outside = error("a year before 1 or after 9999 cannot be formatted")
    text = f"CASE WHEN NOT {inside} THEN {outside} ELSE formatted_time({quoted(written)}, {{1}}, {{0}}) END"
    size = Cost(fixed=8 * len(written) + 8)
    return strict(f"CAST({text} AS VARCHAR)", STRING, instant, local, raises=True, guarded=True, size=size)


@function(_WHEN, "date_format(when, 'pattern')", note="a STRING; see [patterns](#patterns-of-dates-and-times)")
def _date_format(zone: str, when: Sql, pattern: Sql) -> Sql:
    return _formatted(cast(moment(when, zone), pa.timestamp("us", zone), zone), pattern, zone)


@function(
    _WHEN,
    "from_unixtime(seconds[, 'pattern'])",
    note="as date_format(timestamp_seconds(seconds), 'pattern'), which fails for times that Spark lets wrap around",
)
def _from_unixtime(zone: str, seconds: Sql, pattern: Sql | None = None) -> Sql:
    when = FUNCTIONS["timestamp_seconds"](zone, [integer(seconds, zone, BIGINT)])
    return _formatted(when, pattern or string_constant(_DEFAULT), zone)


def _read(text: Sql, pattern: Sql, zone: str, to: pa.DataType, *, attempted: bool) -> Sql:
    written = _pattern(pattern, time_patterns.reader)
    name = "try_read_time" if attempted else "read_time"
    target = "" if to == NTZ else zone
    return strict(
        f"{name}({quoted(written)}, {quoted(target)}, {{0}})",
        to,
        replace(string(text, zone), constant=None),
        raises=not attempted,
        nulls=attempted,
    )


def _to_time(value: Sql, pattern: Sql | None, zone: str, to: pa.DataType, *, attempted: bool = False) -> Sql:
    """A date or time of a text, or of another date or time."""
    if pattern is None:
        return try_cast(value, to, zone) if attempted else cast(value, to, zone)
    if is_temporal(value.type):
        # What the pattern is does not matter, but with one, Spark takes a local time as one of UTC, and the other way round.
        string(pattern, zone)
        when = cast(value, pa.timestamp("us", zone), zone) if value.type == DATE else value
        return when if when.type == to else retyped(when, to)
    return _read(value, pattern, zone, to, attempted=attempted)


def try_cast(value: Sql, to: pa.DataType, zone: str) -> Sql:
    return cast(replace(value, constant=None), to, zone, safe=True)


def _reading(usage: str, note: str, to: Callable[[str], pa.DataType], *, attempted: bool = False) -> None:
    @function(_WHEN, usage, note=note)
    def build(zone: str, value: Sql, pattern: Sql | None = None) -> Sql:
        instant = pa.timestamp("us", zone)
        if to(zone) == DATE:
            if pattern is None:
                return _to_time(value, None, zone, DATE, attempted=attempted)
            return cast(_to_time(value, pattern, zone, instant, attempted=attempted), DATE, zone)
        return _to_time(value, pattern, zone, to(zone), attempted=attempted)


def _instant(zone: str) -> pa.DataType:
    return pa.timestamp("us", zone)


_reading(
    "to_date(a[, 'pattern'])",
    "as CAST(a AS DATE), or of a text of this form; with a pattern, a local time is one of UTC",
    lambda zone: DATE,
)
_reading("to_timestamp(a[, 'pattern'])", "a TIMESTAMP, likewise", _instant)
_reading("to_timestamp_ltz(a[, 'pattern'])", "likewise", _instant)
_reading("to_timestamp_ntz(a[, 'pattern'])", "a TIMESTAMP_NTZ, likewise", lambda zone: NTZ)
_reading("try_to_date(a[, 'pattern'])", "NULL where to_date fails", lambda zone: DATE, attempted=True)
_reading("try_to_timestamp(a[, 'pattern'])", "NULL where to_timestamp fails", _instant, attempted=True)


@function(
    _WHEN,
    "unix_timestamp(a[, 'pattern'])",
    "to_unix_timestamp",
    note=f"seconds since 1970 UTC, rounded towards 1970; of a date or time, or of a text, as '{_DEFAULT}'",
)
def _unix_timestamp(zone: str, value: Sql, pattern: Sql | None = None) -> Sql:
    instant = pa.timestamp("us", zone)
    if is_temporal(value.type) or value.type == NULL:
        if pattern is not None:
            string(pattern, zone)
        when = value if value.type == NTZ else cast(value, instant, zone)  # Spark takes a local time as one of UTC
    else:
        when = _read(value, pattern or string_constant(_DEFAULT), zone, instant, attempted=False)
    return strict("({0} // 1000000)", BIGINT, micros_of(when))
