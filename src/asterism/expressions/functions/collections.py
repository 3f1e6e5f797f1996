"""Functions that cast, and functions of arrays, maps and structs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from asterism.expressions.functions.arrays import comparable, with_element
from asterism.expressions.functions.table import function, int_of, integer
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVALS,
    MONTHS,
    NULL,
    SMALLINT,
    STRING,
    TINYINT,
    catalog_name_of,
    common_type,
    is_nested,
    name_of,
)
from asterism.expressions.values import Sql, UnsupportedError, cast, combined, error, strict, string_constant


def _cast_function(name: str, to: pa.DataType | None) -> None:
    @function("Casts", f"{name}(a)", note=f"as CAST(a AS {name.upper()})")
    def build(zone: str, value: Sql) -> Sql:
        return replace(cast(value, to or pa.timestamp("us", zone), zone), constant=None)


for _name, _to in (
    ("boolean", BOOLEAN), ("tinyint", TINYINT), ("smallint", SMALLINT), ("int", INT), ("bigint", BIGINT), ("float", FLOAT),
    ("decimal", pa.decimal128(10, 0)), ("double", DOUBLE), ("string", STRING), ("binary", BINARY), ("date", DATE),
    ("timestamp", None),
):  # fmt: skip
    _cast_function(_name, _to)


@function("Casts", "typeof(a)", note="the name of its type: `array<int>`; not of intervals", strict=False)
def _typeof(zone: str, value: Sql) -> Sql:
    if value.type in (*INTERVALS, MONTHS):
        raise UnsupportedError(f"the units of an {name_of(value.type)} are not known")
    name = string_constant(catalog_name_of(value.type))
    return combined(name.text, STRING, [], (), size=name.size)


def _array(value: Sql) -> Sql:
    if not pa.types.is_list(value.type):
        raise UnsupportedError(f"an ARRAY is needed, not {name_of(value.type)}")
    return value


@function("Arrays and maps", "size(a)", "cardinality", note="of an ARRAY or a MAP; NULL of NULL")
def _size(zone: str, value: Sql) -> Sql:
    return int_of(
        "cardinality({0})" if pa.types.is_map(value.type) else "len({0})",
        value if pa.types.is_map(value.type) else _array(value),
    )


@function("Arrays and maps", "array_size(array)")
def _array_size(zone: str, value: Sql) -> Sql:
    return int_of("len({0})", _array(value))


@function("Arrays and maps", "array_contains(array, a)", note="NULL where it is not in an array that holds a NULL")
def _array_contains(zone: str, array: Sql, value: Sql) -> Sql:
    if value.type == NULL:
        raise UnsupportedError(f"{name_of(array.type)} cannot hold NULL", "exists(array, a -> a IS NULL)")
    array, value = with_element(comparable(array), value, zone)
    nulls = "len(list_filter({0}, lambda item: item IS NULL))"
    sql_text = f"CASE WHEN list_contains({{0}}, {{1}}) THEN TRUE WHEN {nulls} = 0 THEN FALSE END"
    return strict(sql_text, BOOLEAN, array, value, nulls=True, guarded=True)


@function("Arrays and maps", "get(array, i)", note="from 0; NULL outside; i is no BIGINT")
def _get(zone: str, array: Sql, i: Sql) -> Sql:
    # As a BIGINT, because one more than the largest INT overflows.
    text = "CASE WHEN {1} >= 0 THEN list_extract({0}, CAST({1} AS BIGINT) + 1) END"
    return _picked(text, _array(array), integer(i, zone))


@function(
    "Arrays and maps",
    "element_at(array, i)",
    note="from 1; a negative i counts from the end; fails outside. element_at(map, key): as map[key]",
)
def _element_at(zone: str, collection: Sql, i: Sql) -> Sql:
    if pa.types.is_map(collection.type):
        return item_of(collection, i, zone)
    outside = f"WHEN {{1}} = 0 OR abs(CAST({{1}} AS BIGINT)) > len({{0}}) THEN {error('there is no such element')}"
    text = f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL {outside} ELSE list_extract({{0}}, {{1}}) END"
    return _picked(text, _array(collection), integer(i, zone), raises=True)


@function("Arrays and maps", "try_element_at(array, i)", note="likewise, but NULL outside; 0 fails")
def _try_element_at(zone: str, collection: Sql, i: Sql) -> Sql:
    if pa.types.is_map(collection.type):
        return item_of(collection, i, zone)
    text = f"CASE WHEN {{0}} IS NOT NULL AND {{1}} = 0 THEN {error('there is no element 0')} ELSE list_extract({{0}}, {{1}}) END"
    return _picked(text, _array(collection), integer(i, zone), raises=not i.constant)


def _picked(text: str, collection: Sql, at: Sql, *, raises: bool = False) -> Sql:
    return strict(f"({text})", collection.type.value_type, collection, at, raises=raises, nulls=True)


def item_of(collection: Sql, at: Sql, zone: str) -> Sql:
    """``collection[at]``"""
    if pa.types.is_map(collection.type):
        key = collection.type.key_type
        if at.type == NULL or is_nested(key) or common_type(key, at.type) != key:
            raise UnsupportedError(f"the keys of a {name_of(collection.type)} are not {name_of(at.type)}")
        at = cast(at, key, zone)
        return strict("map_extract_value({0}, {1})", collection.type.item_type, collection, at, nulls=True)
    at = integer(at, zone, BIGINT)
    outside = f"WHEN {{1}} < 0 OR {{1}} >= len({{0}}) THEN {error('there is no such element')}"
    text = f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL {outside} ELSE list_extract({{0}}, {{1}} + 1) END"
    return _picked(text, _array(collection), at, raises=True)


def field_of(value: Sql, name: str) -> Sql:
    """``value.name``"""
    if not pa.types.is_struct(value.type):
        raise UnsupportedError(f"{name_of(value.type)} has no fields")
    names = [part.name for part in value.type]
    alike = [part for part in names if part == name] or [part for part in names if part.lower() == name.lower()]
    if len(alike) != 1 or names.count(alike[0]) != 1:
        raise UnsupportedError(f"unknown field {name!r}", f"fields: {', '.join(names)}")
    label = "'" + alike[0].replace("'", "''") + "'"
    return strict(
        f"struct_extract({{0}}, {label.replace('{', '{{').replace('}', '}}')})",
        value.type.field(alike[0]).type,
        value,
        nulls=True,
    )
