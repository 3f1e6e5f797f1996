"""Functions that format numbers and texts."""

from __future__ import annotations

import pyarrow as pa

from asterism.expressions.functions.table import function, literal_integer, literal_string
from asterism.expressions.routines import formats  # noqa: F401
from asterism.expressions.routines.formats import Specifier, justified, specifiers
from asterism.expressions.types import (
    BIGINT,
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
    is_decimal,
    is_numeric,
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
    return combined(f"concat({', '.join(texts or [repr('')])})", STRING, values, (), size=size)


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
        shown = value.text if kind == BOOLEAN else f"CASE WHEN {value.is_null} THEN NULL ELSE TRUE END"
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
