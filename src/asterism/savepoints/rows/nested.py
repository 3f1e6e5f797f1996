"""Rows as lists by owner, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.groups import offsets_of


def as_structs(rows: pa.Table) -> pa.StructArray:
    """The rows of a table as one column. It has at least one column."""
    columns = [one_chunk(column) for column in rows.columns]
    fields = [pa.field(name, column.type) for name, column in zip(rows.column_names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields)


def as_table(structs: pa.StructArray) -> pa.Table:
    return pa.table(structs.flatten(), schema=pa.schema(list(structs.type)))


def listed(values: pa.Array, owners: Ints, count: int) -> pa.ListArray:
    """For each of *count* owners, the list of its values, in their order.

    :param owners: for each value its owner

    >>> listed(pa.array(["a", "b", "c"]), np.array([1, 0, 1]), 3).to_pylist()
    [['b'], ['a', 'c'], []]
    """
    if len(owners) and (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        values, owners = values.take(pa.array(order)), owners[order]
    offsets = offsets_of(np.bincount(owners, minlength=count))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def sizes_of(lists: pa.ListArray) -> Ints:
    lengths = lists.value_lengths()
    sizes: Ints = (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy().astype(np.int64)
    return sizes


def owners_of(lists: pa.ListArray) -> Ints:
    """For each value in *lists* the index of its list."""
    return np.repeat(np.arange(len(lists)), sizes_of(lists))


def unlisted(lists: pa.ListArray) -> tuple[pa.Table, Ints]:
    """The rows in lists of structs, and the owner of each."""
    return as_table(lists.flatten()), owners_of(lists)


def by_name(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type. Fields of structs, also in lists, are found by their names; those that are new are NULL.

    >>> by_name(pa.array([{"a": 1, "b": 2}, None]), pa.struct({"b": pa.int32(), "c": pa.string()})).to_pylist()
    [{'b': 2, 'c': None}, None]
    """
    if array.type.equals(kind):
        return array
    types = pa.types
    mask = pa.array(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None
    if types.is_struct(kind) and types.is_struct(array.type):
        names = array.type.names
        parts = [
            by_name(array.field(names.index(field.name)), field.type)
            if field.name in names
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        if not parts:
            return array.cast(kind)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_list(kind) and types.is_list(array.type):
        offsets = pa.array(offsets_of(sizes_of(array)).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, by_name(array.flatten(), kind.value_type), type=kind, mask=mask)
    return array.cast(kind)


def without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])


def list_of_rows(schema: pa.Schema) -> pa.DataType:
    return pa.list_(pa.struct(list(schema)))
