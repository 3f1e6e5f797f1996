"""Functions of sketches, which Spark's aggregates make of many values, and of bitmaps of 32,768 bits, in which counts of distinct
numbers are kept.
"""

from __future__ import annotations

import pyarrow as pa

from asterism.expressions.functions.table import function, integer
from asterism.expressions.routines import sketches as _routines  # noqa: F401 - registers them
from asterism.expressions.types import BIGINT, BINARY, DOUBLE, NULL, name_of
from asterism.expressions.values import Sql, UnsupportedError, null, strict


def _of_sketch(names: str, routine: str, result: pa.DataType, note: str) -> None:
    for name in names.split():

        @function("Sketches", f"{name}(sketch)", note=note)
        def build(zone: str, value: Sql) -> Sql:
            if value.type not in (BINARY, NULL):
                raise UnsupportedError(f"a BINARY is needed, not {name_of(value.type)}")
            value = null(BINARY) if value.type == NULL else value
            return strict(f"{routine}({{0}})", result, value, raises=True)


_of_sketch(
    "theta_sketch_estimate", "theta_estimate", BIGINT, "how many different values; fails for what is no such sketch"
)
_of_sketch(
    "tuple_sketch_estimate_double tuple_sketch_estimate_integer",
    "tuple_estimate",
    DOUBLE,
    "how many different keys; likewise",
)
_of_sketch(
    "tuple_sketch_theta_double tuple_sketch_theta_integer",
    "tuple_theta",
    DOUBLE,
    "the part of the keys that the sketch keeps",
)
_of_sketch(
    "kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float", "kll_count", BIGINT, "how many values"
)


_BITS = "Bits"
_SIZE = 32_768


@function(_BITS, "bitmap_bit_position(n)", note="the bit of n in its bitmap, from 0")
def _bit_position(zone: str, n: Sql) -> Sql:
    wide = "CAST({0} AS HUGEINT)"
    text = f"CAST(CASE WHEN {{0}} > 0 THEN ({wide} - 1) % {_SIZE} ELSE (- {wide}) % {_SIZE} END AS BIGINT)"
    return strict(text, BIGINT, integer(n, zone, BIGINT), guarded=True)


@function(_BITS, "bitmap_bucket_number(n)", note="the number of the bitmap of n, from 1 for n from 1 on")
def _bucket_number(zone: str, n: Sql) -> Sql:
    text = f"CASE WHEN {{0}} > 0 THEN 1 + ({{0}} - 1) // {_SIZE} ELSE {{0}} // {_SIZE} END"
    return strict(f"CAST({text} AS BIGINT)", BIGINT, integer(n, zone, BIGINT), guarded=True)


@function(_BITS, "bitmap_count(bitmap)", note="of a BINARY: the number of its bits that are 1")
def _count(zone: str, value: Sql) -> Sql:
    if value.type != BINARY:
        raise UnsupportedError(f"a BINARY is needed, not {name_of(value.type)}", "X'0AFF'")
    return strict("bits_in({0})", BIGINT, value)
