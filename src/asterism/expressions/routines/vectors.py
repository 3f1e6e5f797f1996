"""Functions of vectors, arrays of FLOAT. As in Spark, sums are DOUBLE, of eight elements at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from asterism.expressions.udfs import routine

_Vector = Sequence[float | None] | None


def _sum(terms: Iterable[float]) -> float:
    total, values = 0.0, list(terms)
    whole = len(values) // 8 * 8
    for start in range(0, whole, 8):
        part = values[start]
        for term in values[start + 1 : start + 8]:
            part += term
        total += part
    for term in values[whole:]:
        total += term
    return total


def _known(*vectors: _Vector) -> list[list[float]] | None:
    """Vectors of numbers; None if one of them is null or has a null."""
    known = [[x for x in vector if x is not None] for vector in vectors if vector is not None]
    given = [len(vector) for vector in vectors if vector is not None]
    return known if len(known) == len(vectors) and given == list(map(len, known)) else None


def _single(value: float | None) -> float | None:
    with np.errstate(over="ignore"):
        return None if value is None else float(np.float32(value))


def _of_two(calculate: Callable[[list[float], list[float]], float | None], *columns: pa.ChunkedArray) -> pa.Array:
    def result(a: _Vector, b: _Vector) -> float | None:
        if a is not None and b is not None and len(a) != len(b):
            raise ValueError(f"the vectors have {len(a)} and {len(b)} elements")
        known = _known(a, b)
        return None if known is None else _single(calculate(*known))

    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([result(*row) for row in rows], pa.float32())


def _inner_product(a: list[float], b: list[float]) -> float:
    return _sum(x * y for x, y in zip(a, b, strict=True))


def _cosine(a: list[float], b: list[float]) -> float | None:
    lengths = math.sqrt(_inner_product(a, a) * _inner_product(b, b))
    return _inner_product(a, b) / lengths if a and lengths else None


def _distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(_sum((x - y) * (x - y) for x, y in zip(a, b, strict=True)))


@routine("FLOAT", "FLOAT[]", "FLOAT[]", nulls=True)
def inner_product(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.Array:
    return _of_two(_inner_product, a, b)


@routine("FLOAT", "FLOAT[]", "FLOAT[]", nulls=True)
def cosine_similarity(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.Array:
    return _of_two(_cosine, a, b)


@routine("FLOAT", "FLOAT[]", "FLOAT[]", nulls=True)
def euclidean_distance(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.Array:
    return _of_two(_distance, a, b)


def _norm(vector: _Vector, degree: float | None) -> float | None:
    if vector is None or degree is None:
        return None
    if degree not in (1.0, 2.0, math.inf):
        raise ValueError(f"the degree of a norm is 1, 2 or infinity, not {degree}")
    known = _known(vector)
    if known is None:
        return None
    if degree == 2.0:
        return math.sqrt(_sum(x * x for x in known[0]))
    sizes = [abs(x) for x in known[0]]
    if degree == 1.0:
        return _sum(sizes)
    return math.nan if any(map(math.isnan, sizes)) else max(sizes, default=0.0)


@routine("FLOAT", "FLOAT[]", "FLOAT", nulls=True)
def norm_of(vectors: pa.ChunkedArray, degrees: pa.ChunkedArray) -> pa.Array:
    rows = zip(vectors.to_pylist(), degrees.to_pylist(), strict=True)
    return pa.array([_single(_norm(*row)) for row in rows], pa.float32())


@routine("FLOAT[]", "FLOAT[]", "FLOAT", nulls=True)
def normalized(vectors: pa.ChunkedArray, degrees: pa.ChunkedArray) -> pa.Array:
    def divided(vector: _Vector, degree: float | None) -> list[float | None] | None:
        norm = _norm(vector, degree)
        if not vector or norm is None:
            return [] if vector == [] and norm is not None else None
        return [_single(x / norm) for x in vector if x is not None] if norm else None

    rows = zip(vectors.to_pylist(), degrees.to_pylist(), strict=True)
    return pa.array([divided(*row) for row in rows], pa.list_(pa.float32()))
