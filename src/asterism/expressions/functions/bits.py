"""Functions of the bits of integers."""

from __future__ import annotations

from asterism.expressions.functions.table import function, int_of, integer
from asterism.expressions.operators import shift_bits
from asterism.expressions.types import BIGINT, BOOLEAN, NULL, STRING, TINYINT
from asterism.expressions.values import Cost, Sql, cast, error, strict

_GROUP = "Bits"


@function(_GROUP, "bit_count(n)")
def _bit_count(zone: str, n: Sql) -> Sql:
    # For negative numbers of any type, the bits of a BIGINT are counted.
    return int_of("bit_count({0})", cast(n, BIGINT, zone) if n.type == BOOLEAN else integer(n, zone, BIGINT))


@function(
    _GROUP, "bit_get(n, position)", "getbit", note="a TINYINT; from 0, the lowest bit; fails outside of the type of n"
)
def _bit_get(zone: str, n: Sql, position: Sql) -> Sql:
    number = integer(n, zone, BIGINT)
    bits = 64 if n.type == NULL else n.type.bit_width
    outside = error(f"a position of a bit must be from 0 to {bits - 1}")
    text = f"CASE WHEN {{1}} BETWEEN 0 AND {bits - 1} THEN ({{0}} >> {{1}}) & 1 ELSE {outside} END"
    return strict(
        f"CAST({text} AS TINYINT)",
        TINYINT,
        number,
        integer(position, zone),
        raises=True,
        guarded=True,
    )


@function(_GROUP, "bin(n)", note="the binary digits as a STRING; of a negative number those of a BIGINT")
def _bin(zone: str, n: Sql) -> Sql:
    return strict("bin({0})", STRING, integer(n, zone, BIGINT), size=Cost(fixed=64))


@function(_GROUP, "shiftleft(n, bits)", note="as n << bits")
def _shiftleft(zone: str, n: Sql, bits: Sql) -> Sql:
    return shift_bits("<<", n, bits, zone)


@function(_GROUP, "shiftright(n, bits)", note="as n >> bits")
def _shiftright(zone: str, n: Sql, bits: Sql) -> Sql:
    return shift_bits(">>", n, bits, zone)


@function(_GROUP, "shiftrightunsigned(n, bits)", note="as n >>> bits")
def _shiftrightunsigned(zone: str, n: Sql, bits: Sql) -> Sql:
    return shift_bits(">>>", n, bits, zone)


@function(
    _GROUP,
    "conv(number, from, to)",
    note="the digits of a number in another base of 2 to 36, as a STRING; a negative base `to` has a sign",
)
def _conv(zone: str, value: Sql, base: Sql, to: Sql) -> Sql:
    parts = [cast(value, STRING, zone), integer(base, zone), integer(to, zone)]
    return strict("conv({0}, {1}, {2})", STRING, *parts, raises=True, nulls=True, size=Cost(fixed=65))
