"""Grouping of rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask, filled, from_numpy, one_chunk, to_numpy
from asterism.columns.internal import internal

KEY_HASH = internal("key_hash")
"""Column with the 64-bit hash of the key, added by the host."""
BUCKET = "__bucket"
"""The bucket of the key of a row of a table. A bucket is a range of key hashes."""
_BITS, _FEW = 63, 1000
"""Of a number that stands for a row; and the number of rows that are sorted by :func:`numpy.lexsort` in as much time."""
_ZEROS_OF_THOUSAND = 3
"""1000 is a multiple of two to this power."""
_SPARSE = 32
"""How many possible numbers there may be for each that occurs, if a table of all of them is faster than a sort."""


def offsets_of(counts: Any) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def consecutive(begins: Ints, sizes: Ints) -> Ints:
    """The numbers from ``begins[i]`` on, ``sizes[i]`` of them, one range after the other.

    >>> consecutive(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    numbers: Ints = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    return numbers


def mask_of(values: pa.ChunkedArray) -> Mask:
    """A Boolean mask of the rows where a condition is TRUE; NULL is not."""
    if pa.types.is_null(values.type) or not pa.types.is_boolean(values.type):
        return np.zeros(len(values), np.bool_)
    return filled(values)


def as_int64(array: pa.Array) -> Ints:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return filled(array).astype(np.int64)


def normalize_nan_and_zero(column: Any) -> Any:
    """The values of a key column as Spark's GROUP BY sees them: -0.0 is 0.0, and every NaN is the same value.

    >>> normalize_nan_and_zero(pa.array([-0.0, 1.5, None])).to_pylist()
    [0.0, 1.5, None]
    """
    if not pa.types.is_float32(column.type) and not pa.types.is_float64(column.type):
        return column
    zero, nan = (pa.scalar(value, column.type) for value in (0.0, float("nan")))
    column = pc.add(column, zero)
    return pc.if_else(pc.is_nan(column), nan, column)


def positions_among_equals(codes: Ints, times: Ints, seen: Mask) -> Ints:
    """For each event, the number of *seen* events before it with the same key and time. Events are sorted by key and time.

    >>> positions_among_equals(np.array([0, 0, 0, 0, 1]), np.array([5, 5, 5, 6, 6]), np.array([True, False, True, True, True]))
    array([0, 1, 1, 0, 0])
    """
    begins = np.ones(len(times), np.bool_)
    begins[1:] = (codes[1:] != codes[:-1]) | (times[1:] != times[:-1])
    if begins.all():
        return np.zeros(len(times), np.int64)
    before: Ints = np.cumsum(seen) - seen
    return before - np.maximum.accumulate(np.where(begins, before, 0))


def positions_of_all(codes: Ints, times: Ints) -> Ints:
    """For each event, in any order, the number of events before it with the same key and time."""
    order = np.lexsort((times, codes))
    positions = np.empty(len(order), np.int64)
    positions[order] = positions_among_equals(codes[order], times[order], np.ones(len(order), np.bool_))
    return positions


def group_codes(keys: pa.Table) -> tuple[Ints, int]:
    """Number the distinct keys in the order of first appearance; null is a value like any other."""
    rows = keys.num_rows
    if keys.num_columns == 0:
        return np.zeros(rows, np.int64), min(rows, 1)
    codes: Ints | None = None
    count = 0
    for column in keys.columns:
        encoded = pc.dictionary_encode(one_chunk(column), null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        column_codes = to_numpy(encoded.indices).astype(np.int64)
        if codes is None:
            codes, count = column_codes, len(encoded.dictionary)
        else:
            again = pc.dictionary_encode(from_numpy(codes * len(encoded.dictionary) + column_codes))
            codes, count = to_numpy(again.indices).astype(np.int64), len(again.dictionary)
    assert codes is not None
    return codes, count


def sorted_rows(*columns: Ints) -> tuple[Ints, Mask]:
    """The indexes of the rows in the order of *columns*, by the first of them first, equal rows in their order; and a mask of
    those, in this order, that differ from the one before. As ``lexsort``, but of many rows in a fourth of the time, if they fit
    into 64 bits. See docs/decisions/0163.

    >>> order, begins = sorted_rows(np.array([2, 1, 2, 1]), np.array([7, 7, 5, 7]))
    >>> order.tolist(), begins.tolist()
    ([1, 3, 2, 0], [True, False, True, True])
    """
    count = len(columns[0])
    bits = max(count - 1, 0).bit_length()
    begins = np.ones(count, np.bool_)
    numbers = _packed(columns, bits) if count > _FEW else None
    if numbers is None:
        order: Ints = np.lexsort(columns[::-1])
        begins[1:] = False
        for column in columns:
            begins[1:] |= column[order][1:] != column[order][:-1]
        return order, begins
    numbers <<= bits
    numbers |= np.arange(count)
    numbers.sort()  # each number occurs once, so any sort is stable
    order = numbers & np.int64((1 << bits) - 1)
    numbers >>= bits
    begins[1:] = numbers[1:] != numbers[:-1]
    return order, begins


def _packed(columns: Sequence[Ints], free: int) -> Ints | None:
    """A number for each row, in the same order as the rows of *columns*, with *free* bits to spare; None: there is none."""
    parts: list[tuple[Ints, int, int]] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if (high - low).bit_length() > _BITS:
            return None
        part = column - low
        used = int(np.bitwise_or.reduce(part))
        zeros = max((used & -used).bit_length() - 1, 0)  # at the end of all of them
        parts.append((part, zeros, (high - low).bit_length() - zeros))
    if free + sum(size for _, _, size in parts) > _BITS:
        parts = [_in_thousands(*part) for part in parts]
    if free + sum(size for _, _, size in parts) > _BITS:
        return None
    numbers = np.zeros(len(columns[0]), np.int64)
    for part, zeros, size in parts:
        numbers <<= size
        numbers |= part >> zeros
    return numbers


def _in_thousands(part: Ints, zeros: int, size: int) -> tuple[Ints, int, int]:
    """The same divided by 1000, if all numbers can be: times in milliseconds are stored as microseconds."""
    if zeros < _ZEROS_OF_THOUSAND or size <= _ZEROS_OF_THOUSAND:
        return part, zeros, size
    thousands = part // 1000
    if not np.array_equal(thousands * 1000, part):
        return part, zeros, size
    return thousands, zeros - _ZEROS_OF_THOUSAND, int(thousands.max()).bit_length() - zeros + _ZEROS_OF_THOUSAND


def narrow(codes: Ints) -> Ints:
    """The same *codes* with 16 bits if they fit, which NumPy sorts by radix."""
    return codes.astype(np.uint16) if codes.max(initial=0) < 2**16 else codes


def distinct(numbers: Ints, end: int) -> tuple[Ints, Ints]:
    """The distinct *numbers*, ascending, and the index among them of each. All are less than *end*, and none is negative.

    >>> distinct(np.array([7, 2, 7]), 9)
    (array([2, 7]), array([1, 0, 1]))
    """
    if end > _SPARSE * len(numbers):
        values, index = np.unique(numbers, return_inverse=True)
        return values, index.reshape(-1)
    occurs = np.zeros(end, np.bool_)
    occurs[numbers] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]


def first_rows(codes: Ints, count: int) -> Ints:
    """The first row of each code.

    :param codes: those of :func:`group_codes`, and *count* their number

    >>> first_rows(np.array([0, 1, 0, 2]), 3)
    array([0, 1, 3])
    """
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last assignment counts
    return first
