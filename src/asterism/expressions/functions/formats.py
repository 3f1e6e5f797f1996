"""Functions that format numbers and texts."""

from __future__ import annotations

import pyarrow as pa

from asterism.expressions.functions.table import FUNCTIONS, function, literal_integer, literal_string, string
from asterism.expressions.routines.formats import Specifier, justified, specifiers
from asterism.expressions.routines.number_formats import NumberFormat, number_format
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    INTERVALS,
    MONTHS,
    NULL,
    STRING,
    duckdb_type,
    is_decimal,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import Cost, Sql, UnsupportedError, cast, combined, null, strict, string_constant

_FORMATS = "Formats"
_MAX_PLACES = 300
_PLAIN_SCALE = 6  # Java writes smaller decimals with an exponent


@function(
    _FORMATS,
    "format_number(x, places)",
    note="`1,234.50`; halves to the even digit; at most 300 places; NULL where places < 0",
)
def _format_number(zone: str, x: Sql, places: Sql) -> Sql:
    if places.type == NULL:
        return null(STRING)
    count = literal_integer(places, "the number of places", _MAX_PLACES)
    if count < 0:
        return null(STRING)
    if x.type == NULL:
        x = cast(x, DOUBLE, zone)
    if not is_numeric(x.type):
        raise UnsupportedError(f"a number is needed, not {name_of(x.type)}", "CAST it")
    size = Cost(fixed=count + 450)  # the largest DOUBLE has 309 digits and 102 commas
    if x.type in FLOATS:
        return strict(f"grouped_double({{0}}, {count})", STRING, cast(x, DOUBLE, zone), size=size)
    return strict(f"grouped_decimal(CAST({{0}} AS VARCHAR), {count})", STRING, x, size=size)


@function(
    _FORMATS,
    "format_string('format', a, ...)",
    "printf",
    note="of Java: %s %d %x %o %c %b %f %e; dates and times are numbers in it, as in Spark",
    strict=False,
)
def _format_string(zone: str, template: Sql, *values: Sql) -> Sql:
    if template.type == NULL:
        return null(STRING)
    try:
        parts = specifiers(literal_string(template, "the format"))
    except ValueError as problem:
        raise UnsupportedError(str(problem)) from None
    texts, size = [], Cost()
    used: set[int] = set()
    following = last = 0
    for part in parts:
        if isinstance(part, Specifier) and part.conversion in "%n":
            part = "\n" if part.conversion == "n" else justified("%", part)
        if isinstance(part, str):
            texts.append(string_constant(part).text)
            size += Cost(fixed=len(part.encode()))
            continue
        following += part.index is None
        last = following if part.index is None else part.index or last
        if not 1 <= last <= len(values):
            raise UnsupportedError(f"{part.written} has no argument")
        used.add(last)
        texts.append(_formatted(part, values[last - 1], zone))
        size += values[last - 1].size + Cost(fixed=4 * (part.width + (part.precision or 0)) + 450)
    for number in range(1, len(values) + 1):
        if number not in used:
            raise UnsupportedError(f"argument {number} is not used by the format")
    # A number that is no code point fails.
    raises = any(isinstance(part, Specifier) and part.conversion == "c" for part in parts)
    return combined(f"concat({', '.join(texts or [repr('')])})", STRING, values, (), raises=raises, size=size)


def _formatted(part: Specifier, value: Sql, zone: str) -> str:
    kind = value.type
    written = string_constant(part.written).text
    if kind == DATE:
        value = strict("({0} - DATE '1970-01-01')", INT, value)
    elif pa.types.is_timestamp(kind):
        value = strict("epoch_us({0})", BIGINT, value)
    elif kind in INTERVALS or kind == MONTHS:
        value = strict("CAST({0} AS BIGINT)", BIGINT, value)
    whole = value.type in INTEGERS
    if part.conversion == "b":
        is_null = f"{value.text} IS NULL" if value.raises else value.is_null
        shown = value.text if kind == BOOLEAN else f"CASE WHEN {is_null} THEN NULL ELSE TRUE END"
        return f"formatted_text(CAST({shown} AS VARCHAR), {written})"
    if part.conversion == "s" and not (is_decimal(kind) and kind.scale > _PLAIN_SCALE):
        text = cast(value, STRING, zone)  # not of a DOUBLE
        return f"formatted_text({text.text}, {written})"
    if part.conversion in "dxo" and (whole or kind == NULL):
        bits = value.type.bit_width if whole else 64
        return f"formatted_integer(CAST({value.text} AS BIGINT), {written}, {bits})"
    if part.conversion == "c" and ((whole and value.type != BIGINT) or kind == NULL):
        return f"formatted_integer(CAST({value.text} AS BIGINT), {written}, 32)"
    if part.conversion in "fe" and (kind in FLOATS or kind == NULL):
        return f"formatted_double(CAST({value.text} AS DOUBLE), {written})"
    hint = (
        "CAST(... AS DOUBLE)" if part.conversion in "fe" else "CAST(... AS STRING)" if part.conversion == "s" else None
    )
    raise UnsupportedError(f"{part.written} does not take {name_of(kind)}", hint)


# ---------------------------------------------------------------------------------------------------- formats of numbers


@function(
    _FORMATS,
    "to_number(text, 'format')",
    note="a DECIMAL; `000`, `9,999.99`, `$99.9S`, `99MI`, `99PR`; fails for others",
)
def _to_number(zone: str, value: Sql, form: Sql) -> Sql:
    return _number_in(zone, value, form, tried=False)


@function(_FORMATS, "try_to_number(text, 'format')", note="likewise; NULL for others")
def _try_to_number(zone: str, value: Sql, form: Sql) -> Sql:
    return _number_in(zone, value, form, tried=True)


def _number_format(form: Sql) -> NumberFormat:
    try:
        return number_format(literal_string(form, "the format"))
    except ValueError as problem:
        raise UnsupportedError(str(problem)) from None


def _number_in(zone: str, value: Sql, form: Sql, *, tried: bool) -> Sql:
    parsed = _number_format(form)
    kind = pa.decimal128(parsed.precision, parsed.scale)
    text = f"CAST(read_number({{0}}, {{1}}, {tried}) AS {duckdb_type(kind)})"
    return strict(text, kind, string(value, zone), form, raises=not tried, nulls=tried)


@function(
    _FORMATS,
    "to_char(a, 'format')",
    "to_varchar",
    note="of an integer or a DECIMAL, in such a format; of BINARY, `base64`, `hex` or `utf-8`; of a date or time, as date_format",
)
def _to_char(zone: str, value: Sql, form: Sql) -> Sql:
    if value.type == BINARY:
        return _bytes_in(zone, value, literal_string(form, "the format").lower())
    if is_temporal(value.type):
        return FUNCTIONS["date_format"](zone, [value, form])
    parsed = _number_format(form)
    if value.type == NULL:
        return null(STRING)
    if value.type not in INTEGERS and not is_decimal(value.type):
        hint = "CAST(... AS DECIMAL(20,6))" if value.type in FLOATS else None
        raise UnsupportedError(f"an integer or a DECIMAL is needed, not {name_of(value.type)}", hint)
    size = Cost(fixed=2 * parsed.precision + 8)
    return strict("written_number(CAST({0} AS VARCHAR), {1})", STRING, value, form, size=size)


def _bytes_in(zone: str, value: Sql, form: str) -> Sql:
    if form in ("base64", "hex"):
        return FUNCTIONS[form](zone, [value])
    if form in ("utf-8", "utf8"):
        return FUNCTIONS["decode"](zone, [value, string_constant("utf-8")])
    raise UnsupportedError(f"unknown format {form!r:.60}", "'hex', 'utf-8' or 'base64'")
