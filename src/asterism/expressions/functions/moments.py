"""Functions that make dates and times of numbers, and move them between time zones."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from asterism.columns.time import DAY
from asterism.columns.time_zones import zone_of
from asterism.expressions.functions.table import day, function, integer, literal_string, moment, number
from asterism.expressions.types import BIGINT, DATE, DAYS, DOUBLE, INT, MONTHS, NTZ, NULL, STRING, TIME, name_of
from asterism.expressions.values import (
    Cost,
    Sql,
    UnsupportedError,
    boolean_constant,
    cast,
    error,
    instant,
    local_time,
    micros_of,
    number_constant,
    quoted,
    strict,
)

_WHEN = "Dates and times"
_ZONE = re.compile(r"[+-][0-9]{2}:[0-9]{2}|UTC|GMT|Z|[A-Za-z_]+/[A-Za-z0-9_+/-]+")


@function(_WHEN, "dayname(day)", note="Mon, Tue ...")
def _dayname(zone: str, when: Sql) -> Sql:
    return strict("substr(dayname({0}), 1, 3)", STRING, day(when, zone), size=Cost(fixed=3))


@function(_WHEN, "monthname(day)", note="Jan, Feb ...")
def _monthname(zone: str, when: Sql) -> Sql:
    return strict("substr(monthname({0}), 1, 3)", STRING, day(when, zone), size=Cost(fixed=3))


_WEEK = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


@function(_WHEN, "next_day(day, 'name')", note="the first such day after it: 'MO', 'MON' or 'MONDAY'")
def _next_day(zone: str, when: Sql, name: Sql) -> Sql:
    written = literal_string(name, "the name of the day").upper()
    numbers = [at for at, word in enumerate(_WEEK, 1) if written in (word, word[:2], word[:3])]
    if not numbers:
        raise UnsupportedError(f"{written!r} is not a day of the week", ", ".join(_WEEK))
    text = f"({{0}} + CAST((({numbers[0]} - isodow({{0}}) + 6) % 7 + 1) AS INTEGER))"
    return strict(text, DATE, day(when, zone), raises=True)


@function(
    _WHEN,
    "months_between(end, start[, round])",
    note="a DOUBLE, of months of 31 days; rounded to 8 digits unless `FALSE`",
)
def _months_between(zone: str, end: Sql, start: Sql, rounds: Sql | None = None) -> Sql:
    rounds = boolean_constant(True) if rounds is None else rounds
    if rounds.text not in ("TRUE", "FALSE"):
        raise UnsupportedError("round must be TRUE or FALSE")
    times = [cast(moment(when, zone), pa.timestamp("us", zone), zone) for when in (end, start)]
    return strict(f"months_between_instants({quoted(zone)}, {{0}}, {{1}}, {rounds.text})", DOUBLE, *times)


# ---------------------------------------------------------------------------------------------------- time zones


def _zone(value: Sql) -> str:
    name = literal_string(value, "the time zone")
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError(name)
        zone_of(name)
    except (KeyError, ValueError):
        raise UnsupportedError(f"unknown time zone {name!r}", "a name such as Europe/Madrid, or +02:00") from None
    return name


@function(_WHEN, "from_utc_timestamp(timestamp, 'zone')", note="a TIMESTAMP moved by the offset of the zone")
def _from_utc_timestamp(zone: str, when: Sql, name: Sql) -> Sql:
    when = cast(moment(when, zone), pa.timestamp("us", zone), zone)
    return replace(local_time(when, _zone(name)), type=when.type)


@function(_WHEN, "to_utc_timestamp(timestamp, 'zone')", note="the other way round")
def _to_utc_timestamp(zone: str, when: Sql, name: Sql) -> Sql:
    when = cast(moment(when, zone), pa.timestamp("us", zone), zone)
    return replace(instant(replace(when, type=NTZ), _zone(name)), type=when.type)


@function(
    _WHEN,
    "convert_timezone(['from', ]'to', local_time)",
    note="a TIMESTAMP_NTZ in another zone; from the session's zone, if none is given",
)
def _convert_timezone(zone: str, source: Sql, target: Sql, when: Sql | None = None) -> Sql:
    if when is None:
        given, to, when = zone, _zone(source), target
    else:
        given, to = _zone(source), _zone(target)
    local = cast(moment(when, zone), NTZ, zone)
    return replace(local_time(instant(local, given), to), type=NTZ)


# ---------------------------------------------------------------------------------------------------- of numbers

_SECONDS = pa.decimal128(16, 6)


def _made(zone: str, parts: tuple[Sql, ...], *, attempted: bool) -> Sql:
    """The local time of year, month, day, hour, minute and seconds."""
    if attempted and any(part.raises for part in parts):
        raise UnsupportedError("its arguments must not fail")
    whole = [integer(part, zone) for part in parts[:5]]
    seconds = cast(number(parts[5], zone, DOUBLE if parts[5].type == NULL else parts[5].type), _SECONDS, zone)
    valid = "{3} BETWEEN 0 AND 23 AND {4} BETWEEN 0 AND 59 AND ({5} >= 0 AND {5} < 60 OR {5} = 60)"
    midnight = "CAST(make_date({0}, {1}, {2}) AS TIMESTAMP)"
    micros = f"epoch_us({midnight}) + CAST({{3}} * 60 + {{4}} AS BIGINT) * 60000000 + CAST({{5}} * 1000000 AS BIGINT)"
    made = f"make_timestamp({micros})"
    text = f"TRY({made})" if attempted else made
    otherwise = "NULL" if attempted else error("a field of a time is out of its range")
    return strict(
        f"(CASE WHEN {valid} THEN {text} ELSE {otherwise} END)",
        NTZ,
        *whole,
        seconds,
        raises=not attempted,
        nulls=attempted,
        guarded=True,
    )


def _maker(name: str, note: str, *, local: bool, attempted: bool) -> None:
    usage = f"{name}(year, month, day, hour, minute, seconds{'' if local else ', [zone]'})"
    usage = usage.replace("seconds, [zone]", "seconds[, 'zone']")

    def build(
        zone: str, year: Sql, month: Sql, day_: Sql, hour: Sql, minute: Sql, seconds: Sql, given: Sql | None = None
    ) -> Sql:
        made = _made(zone, (year, month, day_, hour, minute, seconds), attempted=attempted)
        if local:
            return made
        return replace(instant(made, zone if given is None else _zone(given)), type=pa.timestamp("us", zone))

    def build_local(zone: str, year: Sql, month: Sql, day_: Sql, hour: Sql, minute: Sql, seconds: Sql) -> Sql:
        return build(zone, year, month, day_, hour, minute, seconds)

    function(_WHEN, usage, note=note)(build_local if local else build)


_maker("make_timestamp", "a TIMESTAMP; fails where there is no such time", local=False, attempted=False)
_maker("make_timestamp_ltz", "likewise", local=False, attempted=False)
_maker("make_timestamp_ntz", "a TIMESTAMP_NTZ, likewise", local=True, attempted=False)
_maker("try_make_timestamp", "NULL where there is no such time", local=False, attempted=True)
_maker("try_make_timestamp_ltz", "likewise", local=False, attempted=True)
_maker("try_make_timestamp_ntz", "likewise", local=True, attempted=True)


def _zero() -> Sql:
    return number_constant(Decimal(0), INT)


@function(_WHEN, "make_dt_interval([days[, hours[, minutes[, seconds]]]])", note="an interval of days to seconds")
def _make_dt_interval(
    zone: str, days: Sql | None = None, hours: Sql | None = None, minutes: Sql | None = None, seconds: Sql | None = None
) -> Sql:
    whole = [cast(integer(part or _zero(), zone), BIGINT, zone) for part in (days, hours, minutes)]
    seconds = seconds or _zero()
    seconds = cast(number(seconds, zone, DOUBLE if seconds.type == NULL else seconds.type), pa.decimal128(18, 6), zone)
    text = f"({{0}} * {DAY} + {{1}} * 3600000000 + {{2}} * 60000000 + CAST(CAST({{3}} AS DECIMAL(28,6)) * 1000000 AS BIGINT))"
    return strict(text, TIME, *whole, seconds, raises=True, guarded=True)


@function(_WHEN, "make_ym_interval([years[, months]])", note="an interval of months, to add to a date or time")
def _make_ym_interval(zone: str, years: Sql | None = None, months: Sql | None = None) -> Sql:
    parts = [integer(part or _zero(), zone) for part in (years, months)]
    return strict("({0} * 12 + {1})", MONTHS, *parts, raises=True, guarded=True)


# ---------------------------------------------------------------------------------------------------- buckets


@function(
    _WHEN,
    "time_bucket(interval, time[, origin])",
    note="the beginning of the bucket; the interval is a literal: less than a day, whole days or months; no origin for months",
)
def _time_bucket(zone: str, width: Sql, when: Sql, origin: Sql | None = None) -> Sql:
    length = re.fullmatch(r"CAST\((\d+) AS (?:BIGINT|INTEGER)\)", width.text)
    if width.type not in (DAYS, TIME, MONTHS) or length is None or not int(length.group(1)):
        raise UnsupportedError("the interval must be a positive literal", "INTERVAL 15 MINUTES")
    if not pa.types.is_timestamp(when.type):
        raise UnsupportedError(f"a TIMESTAMP is needed, not {name_of(when.type)}", "CAST(... AS TIMESTAMP)")
    if origin is not None and (origin.type != when.type or origin.number is None or width.type == MONTHS):
        raise UnsupportedError("an origin is a literal of the type of the time, and is not supported for months")
    size, local = int(length.group(1)), local_time(when, zone)
    if width.type != MONTHS and size > DAY and size % DAY:
        raise UnsupportedError("an interval of more than a day must be whole days")
    if width.type == MONTHS:
        months = "(year({0}) * 12 + month({0}) - 23641)"  # since 1970
        text = f"CAST((DATE '1970-01-01' + to_months({months} - {_rest(months, size)})) AS TIMESTAMP)"
        return instant_of(strict(text, NTZ, local), when, zone)
    if size % DAY == 0:
        since = Sql("CAST(0 AS BIGINT)", BIGINT, ()) if origin is None else micros_of(local_time(origin, zone))
        return instant_of(_bucket(micros_of(local), since, size, NTZ), when, zone)
    if origin is not None:
        since = micros_of(origin)
    elif when.type == NTZ:
        since = Sql("CAST(0 AS BIGINT)", BIGINT, ())
    else:
        midnight = -int(zone_of(zone).at_local_time(np.array([0]))[0])
        since = Sql(f"CAST({midnight} AS BIGINT)", BIGINT, ())
    return _bucket(micros_of(when), since, size, when.type)


def instant_of(local: Sql, like: Sql, zone: str) -> Sql:
    """A local time as a value of the type of *like*."""
    return local if like.type == NTZ else instant(local, zone)


def _bucket(micros: Sql, since: Sql, size: int, data_type: pa.DataType) -> Sql:
    passed = "({0} - {1})"
    return strict(f"make_timestamp({{0}} - {_rest(passed, size)})", data_type, micros, since, raises=True)


def _rest(number: str, size: int) -> str:
    """The remainder of a division that is rounded down."""
    return f"((({number} % {size}) + {size}) % {size})"
