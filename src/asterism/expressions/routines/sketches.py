"""Sketches of Apache DataSketches, as Spark's aggregates make them: what their first bytes say."""

from __future__ import annotations

import math
from typing import NamedTuple

import pyarrow as pa

from asterism.expressions.udfs import each, routine

_KLL, _THETA, _TUPLE = 15, 3, 9
_LARGEST = 2**63 - 1
_IS_EMPTY, _IS_SINGLE = 1, 4  # flags of KLL
_COMPRESSED = 4  # the version of theta sketches whose values are packed


class Sample(NamedTuple):
    """Of a theta or tuple sketch: how many values it keeps, and of how large a part of all hashes."""

    kept: int
    part: int

    @property
    def theta(self) -> float:
        return self.part / float(_LARGEST)

    @property
    def estimate(self) -> float:
        return self.kept * (float(_LARGEST) / self.part) if self.kept else 0.0


def _number(octets: bytes, at: int, length: int) -> int:
    if at + length > len(octets):
        raise ValueError("it is shorter than a sketch")
    return int.from_bytes(octets[at : at + length], "little")


def _checked(octets: bytes, family: int, name: str) -> bytes:
    if len(octets) < 8 or octets[2] != family:
        raise ValueError(f"these bytes are no {name} sketch")
    return octets


def _sample(octets: bytes) -> Sample:
    longs, version, flags = octets[0] & 0x3F, octets[1], octets[5]
    if version == _COMPRESSED and octets[2] == _THETA:
        at = 8 * longs
        return Sample(_number(octets, at, octets[4]), _number(octets, 8, 8) if longs > 1 else _LARGEST)
    if longs == 1:
        is_empty = flags & 4
        return Sample(0 if is_empty else int(_number(octets, 8, 8) > 0), _LARGEST)
    return Sample(_number(octets, 8, 4), _number(octets, 16, 8) if longs > 2 else _LARGEST)


@routine("BIGINT", "BLOB")
def theta_estimate(sketches: pa.ChunkedArray) -> pa.Array:
    def estimate(octets: bytes) -> int:
        return math.floor(_sample(_checked(octets, _THETA, "theta")).estimate + 0.5)

    return each(sketches, estimate, pa.int64())


@routine("DOUBLE", "BLOB")
def tuple_estimate(sketches: pa.ChunkedArray) -> pa.Array:
    return each(sketches, lambda octets: _sample(_checked(octets, _TUPLE, "tuple")).estimate, pa.float64())


@routine("DOUBLE", "BLOB")
def tuple_theta(sketches: pa.ChunkedArray) -> pa.Array:
    return each(sketches, lambda octets: _sample(_checked(octets, _TUPLE, "tuple")).theta, pa.float64())


@routine("BIGINT", "BLOB")
def kll_count(sketches: pa.ChunkedArray) -> pa.Array:
    def count(octets: bytes) -> int:
        flags = _checked(octets, _KLL, "KLL")[3]
        return 0 if flags & _IS_EMPTY else 1 if flags & _IS_SINGLE else _number(octets, 8, 8)

    return each(sketches, count, pa.int64())
