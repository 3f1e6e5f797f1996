"""A value of each type that Spark passes to Python, and NULL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.UTC
NOT_NULL = pa.struct([pa.field("x", pa.int32(), nullable=False)])
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
GEOMETRY = pa.struct(
    [
        pa.field("srid", pa.int32(), nullable=False),
        pa.field("wkb", pa.binary(), nullable=False, metadata={"geometry": "true", "srid": "4326"}),
    ]
)
_POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")


def _list_of(kind: pa.DataType, *, nullable: bool = True) -> pa.ListType:
    return pa.list_(pa.field("element", kind, nullable=nullable))


TYPES: dict[str, tuple[str, pa.DataType, Any]] = {
    "BOOLEAN": ("true", pa.bool_(), True),
    "TINYINT": ("1Y", pa.int8(), 1),
    "BIGINT": ("1L", pa.int64(), 1),
    "FLOAT": ("float(0.5)", pa.float32(), 0.5),
    "DOUBLE": ("double('NaN')", pa.float64(), float("nan")),
    "DECIMAL": ("1.50BD", pa.decimal128(3, 2), Decimal("1.50")),
    "STRING": ("'é'", pa.string(), "é"),
    "BINARY": ("X'FF'", pa.binary(), b"\xff"),
    "DATE": ("DATE'2025-01-01'", pa.date32(), dt.date(2025, 1, 1)),
    "TIMESTAMP": (
        "TIMESTAMP'2025-01-01 00:00:00'",
        pa.timestamp("us", "UTC"),
        dt.datetime(2025, 1, 1, tzinfo=UTC),
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ'2025-01-01 00:00:00'", pa.timestamp("us"), dt.datetime(2025, 1, 1)),
    "INTERVAL DAY TO SECOND": ("INTERVAL '1 00:00:00' DAY TO SECOND", pa.duration("us"), dt.timedelta(days=1)),
    "STRUCT with a NOT NULL field": ("struct(1 AS x)", NOT_NULL, {"x": 1}),
    "STRUCT in a STRUCT": (
        "struct(struct(1 AS x) AS s)",
        pa.struct([pa.field("s", NOT_NULL, nullable=False)]),
        {"s": {"x": 1}},
    ),
    "ARRAY": ("array(1, 2)", _list_of(pa.int32(), nullable=False), [1, 2]),
    "ARRAY of STRUCT": ("array(struct(1 AS x), NULL)", _list_of(NOT_NULL), [{"x": 1}, None]),
    "ARRAY of VOID": ("array(NULL)", _list_of(pa.null()), [None]),
    "an empty ARRAY": ("array()", _list_of(pa.null()), []),
    "MAP": ("map('a', 1)", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)), [("a", 1)]),
    "MAP of STRUCT": (
        "map('a', struct(1 AS x), 'b', NULL)",
        pa.map_(pa.string(), NOT_NULL),
        [("a", {"x": 1}), ("b", None)],
    ),
    "MAP of VOID": ("map('a', NULL)", pa.map_(pa.string(), pa.null()), [("a", None)]),
    "VOID": ("NULL", pa.null(), None),
    "STRUCT of VOID": ("struct(NULL AS n)", pa.struct([("n", pa.null())]), {"n": None}),
    "VARIANT": ("parse_json('1')", VARIANT, {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}),
    "GEOMETRY": (
        f"ST_SetSrid(ST_GeomFromWKB(X'{_POINT.hex()}'), 4326)",
        GEOMETRY,
        {"srid": 4326, "wkb": _POINT},
    ),
}
"""By name: SQL, the Arrow type, and the value."""


def value_and_null(name: str) -> pa.Array:
    """The value of a type, and NULL, as Spark passes them: all fields of a struct that is NULL are NULL, also NOT NULL ones."""
    _, kind, value = TYPES[name]
    return _nullified(pa.array([value, None], kind))


def _nullified(array: pa.Array) -> pa.Array:
    if not pa.types.is_struct(array.type):
        return array
    parts = [_nullified(part) for part in array.flatten()]  # takes the NULLs of the struct into account
    return pa.StructArray.from_arrays(parts, fields=list(array.type), mask=array.is_null())
