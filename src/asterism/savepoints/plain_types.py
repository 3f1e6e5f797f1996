"""The types of the tables of a savepoint, which every reader of Parquet has, and columns in these types and back.

Parquet files of Spark have no VOID and no lists of a fixed size. Fields are nullable and have no metadata: a VARIANT is a struct.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import one_chunk
from asterism.columns.groups import offsets_of
from asterism.savepoints.rows.nested import sizes_of


def plain_type(kind: pa.DataType) -> pa.DataType:
    """
    >>> plain_type(pa.struct([pa.field("a", pa.uint8(), nullable=False)]))
    StructType(struct<a: int16>)
    """
    types = pa.types
    if types.is_null(kind):
        return pa.int8()
    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32()}.get(kind.bit_width, pa.int64())
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_large_string(kind):
        return pa.string()
    return pa.binary() if types.is_large_binary(kind) else kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def as_plain(table: pa.Table) -> pa.Table:
    schema = plain_schema(table.schema)
    columns = [retyped(one_chunk(column), field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def retyped_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of *schema*, which are found by their names, with its types."""
    return pa.table([retyped(one_chunk(table.column(field.name)), field.type) for field in schema], schema=schema)


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as *kind*: its plain type, or the type of which it has the plain one. Fields are found by their position."""
    if array.type.equals(kind, check_metadata=True):
        return array
    types = pa.types
    mask = pa.array(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None
    if types.is_null(kind) or types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if types.is_struct(kind):
        parts = [retyped(array.field(number), field.type) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_map(kind):
        at = np.asarray(array.offsets)
        first, last = int(at[0]), int(at[-1])
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        parts = [retyped(keys, kind.key_type), retyped(items, kind.item_type)]
        return pa.MapArray.from_arrays(pa.array((at - first).astype(np.int32)), *parts, type=kind, mask=mask)
    if types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(retyped(array.flatten(), kind.value_type), type=kind)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets, values = offsets_of(sizes_of(array)), retyped(array.flatten(), kind.value_type)
        if types.is_large_list(kind):
            return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=kind, mask=mask)
    return array.cast(kind)
