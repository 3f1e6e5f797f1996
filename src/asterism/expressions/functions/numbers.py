"""Functions of numbers."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from asterism.expressions.functions.table import function, int_of, integer, literal_integer, number
from asterism.expressions.operators import arithmetic, choose, compare, remainder, try_divide
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    INTERVALS,
    NULL,
    TINYINT,
    common_type,
    duckdb_type,
    is_decimal,
    name_of,
)
from asterism.expressions.values import Sql, UnsupportedError, cast, made_by, strict


@function("Numbers", "abs(x)", note="fails for the smallest integer of a type")
def _abs(zone: str, x: Sql) -> Sql:
    if x.type not in INTERVALS:
        x = number(x, zone, DOUBLE if x.type == NULL else x.type)
    return made_by("ABS", strict("abs({0})", x.type, x, raises=x.type in (*INTEGERS, *INTERVALS)), x)


@function("Numbers", "sign(x)", "signum", note="a DOUBLE")
def _sign(zone: str, x: Sql) -> Sql:
    # The sign of a zero, of either sign, and of NaN is the value itself.
    text = "CASE WHEN {0} = 0 OR isnan({0}) THEN {0} WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 END"
    return strict(f"CAST({text} AS DOUBLE)", DOUBLE, number(x, zone))


@function("Numbers", "ceil(x)", "ceiling", note="a BIGINT, or a DECIMAL for a DECIMAL; NaN becomes 0")
def _ceil(zone: str, x: Sql) -> Sql:
    return _whole("ceil", x, zone)


@function("Numbers", "floor(x)", note="likewise")
def _floor(zone: str, x: Sql) -> Sql:
    return _whole("floor", x, zone)


def _whole(name: str, x: Sql, zone: str) -> Sql:
    if is_decimal(x.type):
        kind = pa.decimal128(max(x.type.precision - x.type.scale + (x.type.scale > 0), 1), 0)
        if x.type.scale == 0:
            return cast(x, kind, zone)
        return strict(f"CAST({name}({{0}}) AS {duckdb_type(kind)})", kind, x)
    if x.type in INTEGERS:
        return cast(x, BIGINT, zone)
    x = number(x, zone)
    text = f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({name}({{0}}) AS BIGINT) END"
    return strict(f"CAST({text} AS BIGINT)", BIGINT, x, raises=True)


@function("Numbers", "round(x[, digits])", note="halves away from zero; digits from 0 to 30; not for FLOAT")
def _round(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=False)


@function("Numbers", "bround(x[, digits])", note="halves to the even digit; for DOUBLE and integers")
def _bround(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=True)


def _rounded(zone: str, x: Sql, digits: Sql | None, *, even: bool) -> Sql:
    places = 0 if digits is None else literal_integer(digits, "the number of digits", 30)
    if places < 0:
        raise UnsupportedError("the number of digits cannot be negative")
    if x.type in INTEGERS:
        return replace(x, constant=None)
    if is_decimal(x.type) and not even:
        scale = min(x.type.scale, places)
        kind = pa.decimal128(min(x.type.precision - x.type.scale + 1 + scale, 38), scale)
        if scale == x.type.scale and kind.precision >= x.type.precision:
            return cast(replace(x, constant=None), kind, zone)
        return strict(f"CAST({{0}} AS {duckdb_type(kind)})", kind, x, raises=kind.precision == 38)
    if x.type in (DOUBLE, NULL):
        return strict(f"rounded({{0}}, {places}, {even})", DOUBLE, number(x, zone))
    raise UnsupportedError(f"{'bround' if even else 'round'} does not support {name_of(x.type)}", "CAST(... AS DOUBLE)")


@function("Numbers", "sqrt(x)", note="NaN for a negative number")
def _sqrt(zone: str, x: Sql) -> Sql:
    return strict("sqrt({0})", DOUBLE, number(x, zone))


_LAST_DIGIT = "may differ from Spark in the last digit of a DOUBLE"


@function("Numbers", "exp(x)", note=_LAST_DIGIT)
def _exp(zone: str, x: Sql) -> Sql:
    return strict("exp({0})", DOUBLE, number(x, zone))


@function("Numbers", "ln(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _ln(zone: str, x: Sql) -> Sql:
    return _logarithm("ln", x, zone)


@function("Numbers", "log10(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _log10(zone: str, x: Sql) -> Sql:
    return _logarithm("log10", x, zone)


@function("Numbers", "log2(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _log2(zone: str, x: Sql) -> Sql:
    return _logarithm("log2", x, zone)


def _logarithm(name: str, x: Sql, zone: str) -> Sql:
    return strict(f"CASE WHEN {{0}} > 0 THEN {name}({{0}}) END", DOUBLE, number(x, zone), nulls=True)


@function("Numbers", "pow(x, y)", "power", note=_LAST_DIGIT)
def _pow(zone: str, x: Sql, y: Sql) -> Sql:
    # Unlike C, Java returns NaN for 1 to the power of NaN or infinity, and for -1 to the power of infinity.
    unknown = "isnan({1}) OR (abs({0}) = 1 AND isinf({1}))"
    text = f"CASE WHEN {unknown} THEN CAST('nan' AS DOUBLE) ELSE pow({{0}}, {{1}}) END"
    return strict(f"CAST({text} AS DOUBLE)", DOUBLE, number(x, zone), number(y, zone), guarded=True)


@function("Numbers", "mod(a, b)", note="as a % b")
def _mod(zone: str, a: Sql, b: Sql) -> Sql:
    return arithmetic("%", a, b, zone)


@function("Numbers", "pmod(a, b)", note="the remainder with the sign of b, or 0; not for DECIMAL")
def _pmod(zone: str, a: Sql, b: Sql) -> Sql:
    kind = common_type(a.type, b.type)
    if kind is None or (kind not in INTEGERS and kind not in FLOATS):
        raise UnsupportedError("pmod takes integers and floating point numbers", "CAST(... AS DOUBLE)")
    a, b = cast(a, kind, zone), cast(b, kind, zone)
    rest = remainder(a, b)
    again = remainder(strict("({0} + {1})", kind, rest, b, raises=kind in INTEGERS), b)
    zero = cast(Sql("CAST(0 AS TINYINT)", TINYINT, ()), kind, zone)
    return choose([(compare("<", rest, zero, zone), again)], rest, zone)


@function("Numbers", "try_divide(a, b)", note="NULL where b is 0; other failures stay")
def _try_divide(zone: str, a: Sql, b: Sql) -> Sql:
    return try_divide(a, b, zone)


@function("Numbers", "bit_count(n)")
def _bit_count(zone: str, n: Sql) -> Sql:
    # For negative numbers of any type, the bits of a BIGINT are counted.
    return int_of("bit_count({0})", cast(n, BIGINT, zone) if n.type == BOOLEAN else integer(n, zone, BIGINT))
