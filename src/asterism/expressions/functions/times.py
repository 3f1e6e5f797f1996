"""Functions of dates and times."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from asterism.expressions.functions.table import day, function, int_of, integer, literal_string, moment
from asterism.expressions.operators import add_days, shift
from asterism.expressions.types import (
    BIGINT,
    DATE,
    MONTHS,
    NTZ,
    NULL,
    TIME,
    duckdb_type,
    is_instant,
    is_temporal,
    name_of,
)
from asterism.expressions.values import (
    Sql,
    UnsupportedError,
    cast,
    instant_near,
    local_time,
    micros_of,
    null,
    seconds_of,
    strict,
)


def _field(group: str, name: str, template: str, *others: str, note: str = "") -> None:
    @function(group, f"{name}(when)", *others, note=note)
    def build(zone: str, when: Sql) -> Sql:
        return field(name, when, zone)

    _FIELDS[name] = template


_FIELDS: dict[str, str] = {}
_TIME_FIELDS = ("hour", "minute", "second", "seconds")


def field(name: str, when: Sql, zone: str) -> Sql:
    """A field of a date or time, in the session time zone."""
    if name == "seconds":
        kind = pa.decimal128(8, 6)
        return strict(f"CAST(({_FIELDS[name]}) AS {duckdb_type(kind)})", kind, local_time(moment(when, zone), zone))
    if name in _TIME_FIELDS:
        return int_of(_FIELDS[name], local_time(moment(when, zone), zone))
    if when.type == NULL or when.constant is not None:
        when = day(when, zone)
    if not is_temporal(when.type):
        raise UnsupportedError(f"a DATE or a TIMESTAMP is needed, not {name_of(when.type)}", "CAST it")
    return int_of(_FIELDS[name], local_time(when, zone))


_WHEN = "Dates and times"
_field(_WHEN, "year", "year({0})")
_field(_WHEN, "quarter", "quarter({0})")
_field(_WHEN, "month", "month({0})")
_field(_WHEN, "day", "day({0})", "dayofmonth")
_field(_WHEN, "dayofweek", "dayofweek({0}) + 1", note="1 is Sunday")
_field(_WHEN, "weekday", "isodow({0}) - 1", note="0 is Monday")
_field(_WHEN, "dayofyear", "dayofyear({0})")
_field(_WHEN, "weekofyear", "weekofyear({0})", note="of ISO 8601")
_field(_WHEN, "hour", "hour({0})")
_field(_WHEN, "minute", "minute({0})")
_field(_WHEN, "second", "second({0})", note="without the fraction")

_FIELDS |= {
    "yearofweek": "isoyear({0})", "dayofweek_iso": "isodow({0})",
    "seconds": "microsecond({0}) * CAST(0.000001 AS DECIMAL(7,6))",
}  # fmt: skip
EXTRACTED = {
    word: name
    for name, words in {
        "year": "YEAR Y YEARS YR YRS", "yearofweek": "YEAROFWEEK", "quarter": "QUARTER QTR", "month": "MONTH MON MONS MONTHS",
        "weekofyear": "WEEK W WEEKS", "day": "DAY D DAYS", "dayofweek": "DAYOFWEEK DOW", "dayofweek_iso": "DAYOFWEEK_ISO DOW_ISO",
        "dayofyear": "DOY", "hour": "HOUR H HOURS HR HRS", "minute": "MINUTE M MIN MINS MINUTES",
        "seconds": "SECOND S SEC SECONDS SECS",
    }.items()
    for word in words.split()
}  # fmt: skip
"""The fields of EXTRACT, with the functions that compute them."""


@function(_WHEN, "date_part('field', when)", "datepart", note="as EXTRACT(field FROM when)")
def _date_part(zone: str, name: Sql, when: Sql) -> Sql:
    return extracted(literal_string(name, "the field"), when, zone)


def extracted(name: str, when: Sql, zone: str) -> Sql:
    """EXTRACT."""
    if name.upper() not in EXTRACTED:
        raise UnsupportedError(f"EXTRACT({name.upper()} ...) is not supported", f"fields: {', '.join(EXTRACTED)}")
    return field(EXTRACTED[name.upper()], when, zone)


_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MON": "month", "MM": "month",
    "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
    "MILLISECOND": "millisecond", "MICROSECOND": "microsecond",
}  # fmt: skip


def _unit(value: Sql, allowed: int) -> str:
    name = literal_string(value, "the unit").upper()
    units = dict(list(_UNITS.items())[:allowed])
    if name not in units:
        raise UnsupportedError(f"unknown unit {name!r}", ", ".join(units))
    return units[name]


@function(
    _WHEN,
    "date_trunc('unit', when)",
    note="YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND",
)
def _date_trunc(zone: str, unit: Sql, when: Sql) -> Sql:
    name = _unit(unit, len(_UNITS))
    when = cast(moment(when, zone), pa.timestamp("us", zone), zone)
    if name in ("second", "millisecond", "microsecond"):
        return strict(f"date_trunc('{name}', {{0}})", when.type, when)
    cut = strict(f"date_trunc('{name}', {{0}})", NTZ, local_time(when, zone))
    if name in ("day", "hour", "minute"):
        return instant_near(cut, when, zone)
    return cast(cut, when.type, zone)


@function(_WHEN, "trunc(when, 'unit')", note="a DATE; YEAR, QUARTER, MONTH, WEEK")
def _trunc(zone: str, when: Sql, unit: Sql) -> Sql:
    return strict(f"CAST(date_trunc('{_unit(unit, 8)}', {{0}}) AS DATE)", DATE, day(when, zone))


_MICROS = {
    "MICROSECOND": 1, "MILLISECOND": 10**3, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6, "DAY": 86_400 * 10**6,
    "DAYOFYEAR": 86_400 * 10**6, "WEEK": 7 * 86_400 * 10**6,
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
UNIT_FIRST = ("timestampdiff", "timestampadd", "datediff", "date_diff", "dateadd", "date_add")
"""Functions whose first argument may be a unit as a keyword."""


def _time_unit(value: Sql) -> str:
    name = literal_string(value, "the unit").upper()
    if name not in _MICROS and name not in _MONTHS:
        raise UnsupportedError(f"unknown unit {name!r}", ", ".join([*_MICROS, *_MONTHS]))
    return name


@function(
    _WHEN, "timestampadd(unit, n, when)", note="a time moved by n of MICROSECOND ... WEEK, MONTH, QUARTER or YEAR"
)
def _timestampadd(zone: str, unit: Sql, n: Sql, when: Sql) -> Sql:
    name, n, when = _time_unit(unit), replace(integer(n, zone), constant=None), moment(when, zone)
    if when.type == DATE:
        when = cast(when, pa.timestamp("us", zone), zone)
    if name in _MONTHS:
        length = strict(f"({{0}} * {_MONTHS[name]})", MONTHS, n, raises=True)
    else:
        length = strict(f"({{0}} * CAST({_MICROS[name]} AS BIGINT))", TIME, cast(n, BIGINT, zone), raises=True)
    moved = shift(when, length, zone)
    if when.raises:  # Spark looks at the number first
        return replace(moved, text=f"(CASE WHEN {n.text} IS NULL THEN NULL ELSE {moved.text} END)")
    return moved


@function(_WHEN, "timestampdiff(unit, start, end)", note="whole units between what the clocks show, a BIGINT")
def _timestampdiff(zone: str, unit: Sql, start: Sql, end: Sql) -> Sql:
    name = _time_unit(unit)
    if name == "DAYOFYEAR":
        raise UnsupportedError("the difference of times has no unit DAYOFYEAR", "DAY")
    local_times = [local_time(cast(moment(when, zone), pa.timestamp("us", zone), zone), zone) for when in (start, end)]
    if name in _MONTHS:
        return strict(f"(months_between_times({{0}}, {{1}}) // {_MONTHS[name]})", BIGINT, *local_times)
    a, b = (micros_of(local) for local in local_times)
    return strict(f"(({{1}} - {{0}}) // {_MICROS[name]})", BIGINT, a, b, raises=True)


@function(
    _WHEN,
    "date_add(day, n)",
    "dateadd",
    note="fails beyond the days of a DATE, where Spark's wrap; date_add(unit, n, when): as timestampadd",
)
def _date_add(zone: str, when: Sql, n: Sql, moved: Sql | None = None) -> Sql:
    if moved is not None:
        return _timestampadd(zone, when, n, moved)
    return add_days(day(when, zone), integer(n, zone), zone)


@function(_WHEN, "date_sub(day, n)", note="likewise")
def _date_sub(zone: str, when: Sql, n: Sql) -> Sql:
    return add_days(day(when, zone), integer(n, zone), zone, "-")


@function(_WHEN, "datediff(end, start)", "date_diff", note="days; datediff(unit, start, end): as timestampdiff")
def _datediff(zone: str, end: Sql, start: Sql, last: Sql | None = None) -> Sql:
    if last is not None:
        return _timestampdiff(zone, end, start, last)
    return int_of("({0} - {1})", day(end, zone), day(start, zone), raises=True)


@function(_WHEN, "add_months(day, n)")
def _add_months(zone: str, when: Sql, n: Sql) -> Sql:
    return shift(day(when, zone), replace(integer(n, zone), type=MONTHS, constant=None), zone)


@function(_WHEN, "last_day(day)", note="of the month")
def _last_day(zone: str, when: Sql) -> Sql:
    return strict("last_day({0})", DATE, day(when, zone))


@function(_WHEN, "make_date(year, month, day)", note="fails where there is no such day")
def _make_date(zone: str, year: Sql, month: Sql, number: Sql) -> Sql:
    parts = [integer(part, zone) for part in (year, month, number)]
    return strict("make_date({0}, {1}, {2})", DATE, *parts, raises=True)


def _timestamp(value: Sql) -> Sql:
    if not is_instant(value.type) and value.type != NULL:
        raise UnsupportedError(f"a TIMESTAMP is needed, not {name_of(value.type)}", "CAST(... AS TIMESTAMP)")
    return value if value.type != NULL else replace(null(NTZ))


@function(_WHEN, "unix_seconds(timestamp)", note="since 1970 UTC, rounded down")
def _unix_seconds(zone: str, value: Sql) -> Sql:
    return seconds_of(_timestamp(value))


@function(_WHEN, "unix_millis(timestamp)", note="since 1970 UTC, rounded down")
def _unix_millis(zone: str, value: Sql) -> Sql:
    return strict("(epoch_us(date_trunc('millisecond', {0})) // 1000)", BIGINT, _timestamp(value))


@function(_WHEN, "unix_micros(timestamp)", note="since 1970 UTC")
def _unix_micros(zone: str, value: Sql) -> Sql:
    return micros_of(_timestamp(value))


@function(_WHEN, "unix_date(day)", note="days since 1970")
def _unix_date(zone: str, value: Sql) -> Sql:
    if pa.types.is_timestamp(value.type):
        raise UnsupportedError(f"a DATE is needed, not {name_of(value.type)}", "CAST(... AS DATE)")
    return int_of("({0} - DATE '1970-01-01')", day(value, zone))


def _from_epoch(usage: str, micros: int) -> None:
    @function(_WHEN, usage, note="an integer since 1970 UTC")
    def build(zone: str, value: Sql) -> Sql:
        value = integer(value, zone, BIGINT)
        return strict(f"make_timestamp(({{0}} * {micros}))", pa.timestamp("us", zone), value, raises=micros > 1)


_from_epoch("timestamp_seconds(n)", 1_000_000)
_from_epoch("timestamp_millis(n)", 1000)
_from_epoch("timestamp_micros(n)", 1)


@function(_WHEN, "date_from_unix_date(n)", note="days since 1970")
def _date_from_unix_date(zone: str, value: Sql) -> Sql:
    return strict("make_date({0})", DATE, integer(value, zone))
