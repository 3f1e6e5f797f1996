"""Functions of numbers; ``mathematics`` and ``bits`` have more of them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from asterism.expressions.functions.table import function, literal_integer, number
from asterism.expressions.operators import arithmetic, attempt, choose, compare, negative, try_divide
from asterism.expressions.types import (
    BIGINT,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT,
    INTEGERS,
    INTERVALS,
    MONTHS,
    NULL,
    decimal_of,
    duckdb_type,
    is_decimal,
)
from asterism.expressions.values import Sql, cast, made_by, null, number_constant, strict, unify

_MAX_DIGITS = 30  # that round, ceil and floor are asked for


@function("Numbers", "abs(x)", note="fails for the smallest integer of a type")
def _abs(zone: str, x: Sql) -> Sql:
    if x.type not in (*INTERVALS, MONTHS):
        x = number(x, zone, DOUBLE if x.type == NULL else x.type)
    return made_by("ABS", strict("abs({0})", x.type, x, raises=x.type in (*INTEGERS, *INTERVALS, MONTHS)), x)


@function("Numbers", "sign(x)", "signum", note="a DOUBLE")
def _sign(zone: str, x: Sql) -> Sql:
    # The sign of a zero, of either sign, and of NaN is the value itself.
    text = "CASE WHEN {0} = 0 OR isnan({0}) THEN {0} WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 END"
    x = number(x, zone)
    return made_by("SIGN", strict(f"CAST({text} AS DOUBLE)", DOUBLE, x), x)


@function("Numbers", "negative(x)", note="as - x")
def _negative(zone: str, x: Sql) -> Sql:
    return negative(x, zone)


@function("Numbers", "positive(x)", note="x itself")
def _positive(zone: str, x: Sql) -> Sql:
    return replace(x, constant=None) if x.type in (*INTERVALS, MONTHS) else number(x, zone, _own_type(x))


def _own_type(x: Sql) -> pa.DataType:
    return DOUBLE if x.type == NULL else x.type


@function("Numbers", "zeroifnull(x)", note="as coalesce(x, 0)")
def _zeroifnull(zone: str, x: Sql) -> Sql:
    x, zero = unify([x, _zero()], zone, "ZEROIFNULL", texts=False)
    return made_by("COALESCE", strict("COALESCE({0}, {1})", x.type, x, zero, nulls=True), x, zero)


@function("Numbers", "nullifzero(x)", note="as nullif(x, 0)")
def _nullifzero(zone: str, x: Sql) -> Sql:
    if x.type == NULL:
        return null()
    x = number(x, zone, x.type)
    return choose([(compare("=", x, _zero(), zone), null(x.type))], x, zone)


def _zero() -> Sql:
    return number_constant(Decimal(0), INT)


@function(
    "Numbers",
    "ceil(x[, digits])",
    "ceiling",
    note="a BIGINT, or a DECIMAL for a DECIMAL; NaN becomes 0; with digits, a literal of -30 to 30, a DECIMAL",
)
def _ceil(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _whole("ceil", x, zone) if digits is None else _whole_digits("CEILING", x, digits, zone)


@function("Numbers", "floor(x[, digits])", note="likewise")
def _floor(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _whole("floor", x, zone) if digits is None else _whole_digits("FLOOR", x, digits, zone)


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
    return made_by(name.upper(), strict(f"CAST({text} AS BIGINT)", BIGINT, x, raises=True), x)


_AS_DECIMAL = {FLOAT: pa.decimal128(14, 7), DOUBLE: pa.decimal128(30, 15), NULL: pa.decimal128(30, 15)}
"""The decimals to which Spark converts numbers that ceil and floor round to a digit."""


def _whole_digits(mode: str, x: Sql, digits: Sql, zone: str) -> Sql:
    places = literal_integer(digits, "the number of digits", _MAX_DIGITS)
    x = number(x, zone, _AS_DECIMAL.get(x.type) or decimal_of(x.type))
    return _decimal_rounded(x, places, mode)


def _decimal_rounded(x: Sql, places: int, mode: str) -> Sql:
    kind, scale = x.type, min(x.type.scale, max(places, 0))
    whole = kind.precision - kind.scale + 1
    to = pa.decimal128(min(max(whole, 1 - places) if places < 0 else whole + scale, 38), scale)
    if scale == kind.scale and places >= 0 and to.precision >= kind.precision:
        return cast(replace(x, constant=None), to, "")
    if mode == "HALF_UP" and places >= 0:
        return strict(f"CAST({{0}} AS {duckdb_type(to)})", to, x, raises=to.precision == 38)
    text = f"CAST(rounded_decimal('{mode}', CAST({{0}} AS VARCHAR), {places}) AS {duckdb_type(to)})"
    return strict(text, to, x, raises=to.precision == 38)


@function("Numbers", "round(x[, digits])", note="halves away from zero; digits is a literal of -30 to 30")
def _round(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=False)


@function("Numbers", "bround(x[, digits])", note="likewise, but halves to the even digit")
def _bround(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=True)


def _rounded(zone: str, x: Sql, digits: Sql | None, *, even: bool) -> Sql:
    places = 0 if digits is None else literal_integer(digits, "the number of digits", _MAX_DIGITS)
    mode = "HALF_EVEN" if even else "HALF_UP"
    x = number(x, zone, _own_type(x))
    if x.type in INTEGERS:
        if places >= 0:
            return replace(x, constant=None)
        text = f"CAST(rounded_decimal('{mode}', CAST({{0}} AS VARCHAR), {places}) AS {duckdb_type(x.type)})"
        return strict(text, x.type, x, raises=True)
    if is_decimal(x.type):
        return _decimal_rounded(x, places, mode)
    if x.type in FLOATS:
        double = cast(x, DOUBLE, zone)
        rounded = strict(f"rounded({{0}}, {places}, {even})", DOUBLE, double)
        if x.type == FLOAT:
            return cast(rounded, FLOAT, zone)
        amount = number_constant(Decimal(places), INT)
        return made_by("BROUND" if even else "ROUND", rounded, double, amount)
    return x


@function("Numbers", "mod(a, b)", note="as a % b")
def _mod(zone: str, a: Sql, b: Sql) -> Sql:
    return arithmetic("%", a, b, zone)


@function("Numbers", "pmod(a, b)", note="the remainder with the sign of b, or 0")
def _pmod(zone: str, a: Sql, b: Sql) -> Sql:
    return arithmetic("PMOD", a, b, zone)


@function("Numbers", "try_add(a, b)", note="as a + b, but NULL where the result does not fit")
def _try_add(zone: str, a: Sql, b: Sql) -> Sql:
    return attempt("+", a, b, zone)


@function("Numbers", "try_subtract(a, b)", note="likewise")
def _try_subtract(zone: str, a: Sql, b: Sql) -> Sql:
    return attempt("-", a, b, zone)


@function("Numbers", "try_multiply(a, b)", note="likewise")
def _try_multiply(zone: str, a: Sql, b: Sql) -> Sql:
    return attempt("*", a, b, zone)


@function("Numbers", "try_mod(a, b)", note="as a % b, but NULL where b is 0")
def _try_mod(zone: str, a: Sql, b: Sql) -> Sql:
    return attempt("%", a, b, zone)


@function("Numbers", "try_divide(a, b)", note="NULL where b is 0; other failures stay")
def _try_divide(zone: str, a: Sql, b: Sql) -> Sql:
    return try_divide(a, b, zone)
