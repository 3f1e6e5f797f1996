"""Columns as arrays, and the types of NumPy arrays that represent columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def from_numpy(values: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Numbers or Booleans as an array of Arrow. ``pa.array`` imports pandas if that is installed, which takes a tenth of the time
    until the first match of a process; see docs/decisions/0187.

    :param valid: where it is FALSE, there is NULL

    >>> from_numpy(np.array([5, 6]), np.array([True, False])).to_pylist()
    [5, None]
    """
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    validity = None if valid is None else _bits(valid)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data])


def _bits(values: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def from_strings(values: Sequence[str]) -> pa.Array:
    """Strings as an array of Arrow, without pandas, as :func:`from_numpy`.

    >>> from_strings(["a", "", "é"]).to_pylist()
    ['a', '', 'é']
    """
    octets = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, octets)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(ends), pa.py_buffer(b"".join(octets)))


def to_numpy(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers or Booleans of which none is NULL as an array of NumPy, without pandas, as :func:`from_numpy`.

    >>> to_numpy(from_numpy(np.array([0.5, 1.5]))).tolist()
    [0.5, 1.5]
    """
    array = one_chunk(column) if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_boolean(array.type):
        values = np.from_dlpack(array)
        values.flags.writeable = False  # also if it is empty: functions are compiled for one kind of arrays
        return values
    bits = np.unpackbits(np.frombuffer(array.buffers()[1] or b"", np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(np.bool_)


def filled(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers or Booleans as an array of NumPy, with 0 and FALSE for NULL.

    >>> filled(from_numpy(np.array([5, 6]), np.array([True, False]))).tolist()
    [5, 0]
    """
    return to_numpy(column.fill_null(_ZERO.cast(column.type)) if column.null_count else column)


_ZERO = from_numpy(np.zeros(1, np.int8))[0]


def empty_table(schema: pa.Schema) -> pa.Table:
    """``schema.empty_table()``, without pandas, as :func:`from_numpy`."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def cast_to(column: Any, kind: pa.DataType) -> Any:
    """A column as *kind*. One that is of this type is returned as it is: Arrow cannot cast some columns to their own type, such
    as a struct that is NULL in some rows and whose fields are NOT NULL, or a map whose values are of no type.

    >>> cast_to(pa.array([1, None], pa.int32()), pa.int64()).type
    DataType(int64)
    """
    return column if column.type.equals(kind) else column.cast(kind)


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the columns of *schema*, in this order, as *schema*; see :func:`cast_to`."""
    columns = [cast_to(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def with_fields(column: pa.Array, kind: pa.StructType) -> pa.Array:
    """A struct column with the fields of another type, which are found by name: those that are new or have another type are NULL.

    >>> column = pa.array([{"a": 1, "b": 2}, None])
    >>> with_fields(column, pa.struct([("b", pa.int64()), ("c", pa.string())])).to_pylist()
    [{'b': 2, 'c': None}, None]
    """
    if column.type.equals(kind):
        return column
    children = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    columns = [
        children[field.name]
        if field.name in children and children[field.name].type.equals(field.type)
        else pa.nulls(len(column), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=column.is_null())


_NUMBERS = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects; a MAP is a dict. The same as ``to_pylist``, which takes 3.5 microseconds for a
    time and 0.4 for a number: this takes less than one and 0.03.

    >>> python_values(pa.chunked_array([pa.array([0, None], pa.timestamp("us"))]))
    [datetime.datetime(1970, 1, 1, 0, 0), None]
    """
    if not column.null_count and column.type in _NUMBERS:
        numbers: list[Any] = column.to_numpy().tolist()
        return numbers
    if not pa.types.is_timestamp(column.type) or column.type.unit == "ns" or column.null_count == len(column):
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
        return values
    micros = column.to_numpy().astype("datetime64[us]")
    ends = np.array(["0001-01-02", "9999-12-31"], "datetime64[us]")  # any zone is less than a day away
    if bool(((micros < ends[0]) | (micros >= ends[1])).any()):  # to_pylist fails, and NumPy returns numbers
        return column.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
    times: list[Any] = micros.tolist()
    if column.type.tz is None:
        return times
    zone = column.drop_null()[0].as_py().tzinfo
    if column.type.tz == "UTC":
        return [None if time is None else time.replace(tzinfo=zone) for time in times]
    return [None if time is None else time.replace(tzinfo=UTC).astimezone(zone) for time in times]
