"""64-bit hashes of strings and keys, the same in every process, on every platform and in every release."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.columns.arrays import filled, from_strings, one_chunk, to_numpy
from asterism.columns.compiled import entry
from asterism.columns.groups import as_int64

_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
_EMPTY = from_strings([""])[0]
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@entry
def _hash(offsets: Any, data: Any, out: Any) -> None:
    """FNV-1a over the bytes."""
    for row in range(len(out)):
        value = _BASIS
        for at in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[at])) * _PRIME
        out[row] = value


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64: every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * _MIX1
    values = (values ^ (values >> np.uint64(27))) * _MIX2
    return values ^ (values >> np.uint64(31))


def hash_strings(strings: pa.Array) -> npt.NDArray[np.uint64]:
    """The hash of each string, or of bytes; there are no nulls.

    >>> [hex(value) for value in hash_strings(pa.array(["", "a"]))]
    ['0xf52a15e9a9b5e89b', '0x2c0bdbf481420f8']
    """
    is_narrow = pa.types.is_string(strings.type) or pa.types.is_binary(strings.type)
    if not is_narrow:
        strings = strings.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    at = np.frombuffer(offsets or b"", np.int32 if is_narrow else np.int64)
    at = at[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    at.flags.writeable = values.flags.writeable = (
        False  # as some buffers are: the kernel is compiled for one kind of arrays
    )
    out = np.empty(len(strings), np.uint64)
    _hash(at, values, out)
    return mixed(out)  # distributes short strings over all bits


def hash_keys(keys: pa.Table) -> npt.NDArray[np.uint64]:
    """The hash of each row. It depends only on the values of the row, and is the same for equal rows.

    >>> table = pa.table({"user": ["ann", None, "ann"], "item": [7, 7, 7]})
    >>> [hex(value)[:6] for value in hash_keys(table)]
    ['0x3059', '0x9250', '0x3059']
    """
    hashes = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        array = one_chunk(column)
        values = mixed(_hash_of(array) + _BASIS)
        if array.null_count:
            values[to_numpy(array.is_null())] = _PRIME
        hashes = mixed(hashes * _PRIME ^ values)
    return hashes


def _hash_of(array: pa.Array) -> npt.NDArray[np.uint64]:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return as_int64(array).view(np.uint64)
    if pa.types.is_floating(kind):
        values = filled(array).astype(np.float64)
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)  # one of the many bit patterns of NaN
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)):
        array = pa.array([str(value) for value in array.to_pylist()], pa.string())
    return hash_strings(array.fill_null(_EMPTY.cast(array.type)) if array.null_count else array)
