"""Functions of arrays."""

from __future__ import annotations

import functools

import pyarrow as pa

from asterism.expressions.udfs import each, routine


@routine("INTEGER[]", "TINYINT[]", "INTEGER")
def sorted_places(signs: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """The places of the elements of an array in order, from 1.

    :param signs: the signs of the comparisons of each element with each, row by row
    :param counts: the numbers of elements
    """

    def places(signs: list[int | None], count: int) -> list[int]:
        def compare(a: int, b: int) -> int:
            sign = signs[(a - 1) * count + b - 1]
            if sign is None:
                raise ValueError("the comparator gives NULL")
            return sign

        return sorted(range(1, count + 1), key=functools.cmp_to_key(compare))

    rows = zip(signs.to_pylist(), counts.to_pylist(), strict=True)
    return pa.array([places(row, count) for row, count in rows], pa.list_(pa.int32()))


@routine("BIGINT", "BLOB")
def bits_in(octets: pa.ChunkedArray) -> pa.Array:
    """The number of bits that are 1."""
    return each(octets, lambda value: int.from_bytes(value).bit_count(), pa.int64())
