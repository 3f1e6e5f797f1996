"""Spark's types as Arrow types, and Spark's type coercion (in ANSI mode, the default).

A TIMESTAMP is a ``timestamp`` with the session time zone, a TIMESTAMP_NTZ one without. Intervals are durations, in seconds
if they count whole days (a date plus such an interval is a date) and otherwise in microseconds, and intervals in months.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

NULL = pa.null()
BOOLEAN = pa.bool_()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
NTZ = pa.timestamp("us")
UNKNOWN = pa.binary_view()
"""The type of a column that expressions do not support, of which they read only whether it is NULL."""
DAYS, TIME, MONTHS = pa.duration("s"), pa.duration("us"), pa.month_day_nano_interval()

TIME_ZONE = b"time_zone"
"""The key of the session time zone in the metadata of a schema, for schemas whose TIMESTAMP columns do not determine it."""

SPARK_TYPE, SPARK_JSON = b"spark_type", b"spark_json"
"""Keys in the metadata of a field: the Spark type of the column, as SQL and as JSON, if the Arrow type does not determine it,
such as a collation. Expressions do not compute with such a column.
"""

INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)
FLOATS = (FLOAT, DOUBLE)
INTERVALS = (DAYS, TIME)
DIGITS = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
"""The precision of the decimal type to which Spark converts an integer."""
MAX_DIGITS = 38
MAX_STRUCTS = 1_000
"""The maximum number of types of STRUCTs that are kept."""
_MIN_SCALE = 6  # the scale that is kept if digits must be dropped

_NAMES = {
    NULL: "NULL", BOOLEAN: "BOOLEAN", TINYINT: "TINYINT", SMALLINT: "SMALLINT", INT: "INT", BIGINT: "BIGINT", FLOAT: "FLOAT",
    DOUBLE: "DOUBLE", STRING: "STRING", BINARY: "BINARY", DATE: "DATE", NTZ: "TIMESTAMP_NTZ", DAYS: "INTERVAL DAY",
    TIME: "INTERVAL DAY TO SECOND", MONTHS: "INTERVAL YEAR TO MONTH",
}  # fmt: skip
_IN_DUCKDB = {
    NULL: "INTEGER", BOOLEAN: "BOOLEAN", TINYINT: "TINYINT", SMALLINT: "SMALLINT", INT: "INTEGER", BIGINT: "BIGINT",
    FLOAT: "FLOAT", DOUBLE: "DOUBLE", STRING: "VARCHAR", BINARY: "BLOB", DATE: "DATE", DAYS: "BIGINT", TIME: "BIGINT",
    MONTHS: "INTEGER",
}  # fmt: skip
_UNSIGNED = {pa.uint8(): SMALLINT, pa.uint16(): INT, pa.uint32(): BIGINT, pa.uint64(): pa.decimal128(20, 0)}


def spark_type(data_type: pa.DataType, zone: str) -> pa.DataType | None:
    """The Spark type of an Arrow type; None if expressions do not support it.

    >>> spark_type(pa.timestamp("ms", "Asia/Tokyo"), "Europe/Madrid")
    TimestampType(timestamp[us, tz=Europe/Madrid])
    """
    types = pa.types
    if data_type in _NAMES and data_type not in (DAYS, MONTHS):
        return data_type
    if data_type in _UNSIGNED:
        return _UNSIGNED[data_type]
    if types.is_float16(data_type):
        return FLOAT
    if types.is_large_string(data_type) or types.is_string_view(data_type):
        return STRING
    if types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type) or types.is_binary_view(data_type):
        return BINARY
    if types.is_date(data_type):
        return DATE
    if types.is_timestamp(data_type):
        return NTZ if data_type.tz is None else pa.timestamp("us", zone)
    if types.is_decimal(data_type):
        fits = data_type.precision <= MAX_DIGITS and 0 <= data_type.scale <= data_type.precision
        return pa.decimal128(data_type.precision, data_type.scale) if fits else None
    if types.is_dictionary(data_type):
        return spark_type(data_type.value_type, zone)
    if types.is_list(data_type) or types.is_large_list(data_type):
        item = spark_type(data_type.value_type, zone)
        return None if item is None else pa.list_(item)
    if types.is_map(data_type):
        key, value = spark_type(data_type.key_type, zone), spark_type(data_type.item_type, zone)
        return None if key is None or value is None else pa.map_(key, value)
    return _spark_struct(data_type, zone) if types.is_struct(data_type) else None


@lru_cache(MAX_STRUCTS)
def _spark_struct(data_type: pa.StructType, zone: str) -> pa.DataType | None:
    """:func:`spark_type` of a STRUCT. Each expression over one of its fields asks for it, and it can have hundreds."""
    parts = [(field.name, spark_type(field.type, zone)) for field in data_type]
    return None if any(part is None for _, part in parts) else pa.struct(parts)


def type_of_column(field: pa.Field, zone: str) -> pa.DataType | None:
    """The Spark type of a column of events; None if expressions do not support it.

    >>> type_of_column(pa.field("k", pa.string(), metadata={SPARK_TYPE: "string collate UTF8_LCASE"}), "UTC") is None
    True
    """
    return None if SPARK_TYPE in (field.metadata or {}) else spark_type(field.type, zone)


def name_of(data_type: pa.DataType) -> str:
    """The type in Spark's notation.

    >>> name_of(pa.list_(pa.decimal128(10, 2)))
    'ARRAY<DECIMAL(10,2)>'
    """
    if data_type in _NAMES:
        return _NAMES[data_type]
    if is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type):
        return "TIMESTAMP"
    if pa.types.is_list(data_type):
        return f"ARRAY<{name_of(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"MAP<{name_of(data_type.key_type)}, {name_of(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        return f"STRUCT<{', '.join(f'{field.name}: {name_of(field.type)}' for field in data_type)}>"
    return str(data_type)


def catalog_name_of(data_type: pa.DataType) -> str:
    """The type as Spark's ``typeof`` writes it.

    >>> catalog_name_of(pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.list_(pa.int32()))]))
    'struct<at:timestamp,n:array<int>>'
    """
    types = pa.types
    if data_type == NULL:
        return "void"
    if types.is_list(data_type):
        return f"array<{catalog_name_of(data_type.value_type)}>"
    if types.is_map(data_type):
        return f"map<{catalog_name_of(data_type.key_type)},{catalog_name_of(data_type.item_type)}>"
    if types.is_struct(data_type):
        return f"struct<{','.join(f'{field.name}:{catalog_name_of(field.type)}' for field in data_type)}>"
    return name_of(data_type).lower()


def duckdb_type(data_type: pa.DataType) -> str:
    """The DuckDB type of the values: both timestamp types are TIMESTAMP, intervals are BIGINT.

    >>> duckdb_type(pa.map_(pa.string(), pa.list_(pa.int32())))
    'MAP(VARCHAR, INTEGER[])'
    """
    if pa.types.is_list(data_type):
        return f"{duckdb_type(data_type.value_type)}[]"
    if pa.types.is_map(data_type):
        return f"MAP({duckdb_type(data_type.key_type)}, {duckdb_type(data_type.item_type)})"
    if pa.types.is_struct(data_type):
        return f"STRUCT({', '.join(f'{quoted_name(field.name)} {duckdb_type(field.type)}' for field in data_type)})"
    if is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return "TIMESTAMP" if pa.types.is_timestamp(data_type) else _IN_DUCKDB[data_type]


def quoted_name(name: str) -> str:
    """A name of a field in SQL for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def given_type(data_type: pa.DataType, label: str) -> pa.DataType:
    """The Arrow type in which values of a type are returned: timestamps have *label* as their time zone."""
    types = pa.types
    if is_instant(data_type):
        return pa.timestamp("us", label)
    if data_type == DAYS:
        return TIME
    if types.is_list(data_type):
        return pa.list_(given_type(data_type.value_type, label))
    if types.is_map(data_type):
        return pa.map_(given_type(data_type.key_type, label), given_type(data_type.item_type, label))
    if types.is_struct(data_type):
        return pa.struct([(field.name, given_type(field.type, label)) for field in data_type])
    return data_type


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type in which values of a type are passed to DuckDB."""
    types = pa.types
    if types.is_timestamp(data_type):
        return NTZ
    if types.is_duration(data_type):
        return BIGINT
    if types.is_list(data_type):
        return pa.list_(stored_type(data_type.value_type))
    if types.is_map(data_type):
        return pa.map_(stored_type(data_type.key_type), stored_type(data_type.item_type))
    if types.is_struct(data_type):
        return pa.struct([(field.name, stored_type(field.type)) for field in data_type])
    return data_type


def is_decimal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(data_type))


def is_numeric(data_type: pa.DataType) -> bool:
    return data_type in INTEGERS or data_type in FLOATS or is_decimal(data_type)


def is_nested(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_nested(data_type))


def holds(data_type: pa.DataType, inner: pa.DataType) -> bool:
    """Whether it is this type, or an array, a map or a struct with it."""
    return data_type == inner or any(
        holds(data_type.field(number).type, inner) for number in range(data_type.num_fields)
    )


def is_instant(data_type: pa.DataType) -> bool:
    """Whether it is a TIMESTAMP, a point in time and not a local time."""
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def is_temporal(data_type: pa.DataType) -> bool:
    return data_type == DATE or bool(pa.types.is_timestamp(data_type))


def bounded(precision: int, scale: int) -> pa.DataType:
    """The decimal type of a result with this precision: beyond 38 the scale is reduced, down to six digits.

    >>> bounded(39, 18)
    Decimal128Type(decimal128(38, 17))
    """
    if precision <= MAX_DIGITS:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_DIGITS, max(MAX_DIGITS - whole, min(scale, _MIN_SCALE)))


def decimal_of(data_type: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    return pa.decimal128(DIGITS[data_type], 0) if data_type in INTEGERS else data_type


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type to which Spark converts two values that are compared or chosen from; None if there is none.

    >>> name_of(common_type(pa.int32(), pa.decimal128(10, 2)))
    'DECIMAL(12,2)'
    """
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if is_numeric(a) and is_numeric(b):
        return _common_number(a, b)
    if is_temporal(a) and is_temporal(b):
        return next((t for t in (a, b) if is_instant(t)), NTZ)
    if is_nested(a) or is_nested(b):
        return _common_nested(a, b)
    if a in INTERVALS and b in INTERVALS:
        return TIME
    if STRING in (a, b):
        other = b if a == STRING else a
        if other in INTEGERS:
            return BIGINT
        if is_numeric(other):
            return DOUBLE
        return other if other == BOOLEAN or is_temporal(other) else None
    return None


def aggregate_type(function: str, data_type: pa.DataType) -> pa.DataType | None:
    """The type of an aggregate over the events of a stage; None if it does not support values of this type.

    >>> name_of(aggregate_type("SUM", pa.int32()))
    'BIGINT'
    """
    if function == "COUNT":
        return BIGINT
    if function in ("SUM", "AVG"):
        if not is_numeric(data_type) and data_type != NULL:
            return None
        if is_decimal(data_type):
            more, scale = (10, 0) if function == "SUM" else (4, 4)
            return pa.decimal128(min(data_type.precision + more, MAX_DIGITS), min(data_type.scale + scale, MAX_DIGITS))
        return BIGINT if function == "SUM" and data_type in INTEGERS else DOUBLE
    return data_type


def _common_nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Parts that are not of the same type must be numbers, or NULL."""

    def part(x: pa.DataType, y: pa.DataType) -> pa.DataType | None:
        wider = is_numeric(x) and is_numeric(y)
        return common_type(x, y) if x == y or wider or NULL in (x, y) or (is_nested(x) and is_nested(y)) else None

    if pa.types.is_list(a) and pa.types.is_list(b):
        item = part(a.value_type, b.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(a) and pa.types.is_map(b):
        key, value = part(a.key_type, b.key_type), part(a.item_type, b.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(a) and pa.types.is_struct(b) and a.names == b.names:
        parts = [(x.name, part(x.type, y.type)) for x, y in zip(a, b, strict=True)]
        return None if any(kind is None for _, kind in parts) else pa.struct(parts)
    return None


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if is_decimal(a) or is_decimal(b):
        if a in FLOATS or b in FLOATS:
            return DOUBLE
        a, b = decimal_of(a), decimal_of(b)
        scale = max(a.scale, b.scale)
        whole = max(a.precision - a.scale, b.precision - b.scale)
        # If both do not fit, the digits before the decimal point are kept.
        return pa.decimal128(
            min(whole + scale, MAX_DIGITS), scale if whole + scale <= MAX_DIGITS else MAX_DIGITS - whole
        )
    if a in INTEGERS and b in INTEGERS:
        return max(a, b, key=INTEGERS.index)
    return FLOAT if a == b == FLOAT else DOUBLE
