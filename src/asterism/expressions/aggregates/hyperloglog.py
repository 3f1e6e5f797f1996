"""HyperLogLog: the approximate number of distinct values, from a few hundred bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.expressions.aggregates.accumulators import Cell, sort_keys, where_valid


@dataclass(frozen=True)
class Sketch(Cell):
    """HyperLogLog with 2^bits registers of one byte, for values represented by integers.

    The standard error is 1.04 / sqrt(2^bits). The estimate is Ertl's (New cardinality estimation algorithms for HyperLogLog
    sketches, 2017), which needs no tables and is accurate for small numbers, too.
    """

    bits: int

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (pa.binary(2**self.bits),)

    def fold(
        self, groups: Ints, count: int, arguments: Sequence[pa.Array], into: Sequence[pa.Array] | None
    ) -> list[pa.Array]:
        registers = np.zeros((count, 2**self.bits), np.uint8) if into is None else self.registers(into[0]).copy()
        cells, ranks = _observed(self.bits, groups, arguments[0])
        np.maximum.at(registers.reshape(-1), cells, ranks)
        return [self._column(registers)]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        registers = np.zeros((count, 2**self.bits), np.uint8)
        if len(groups):
            order = np.argsort(groups, kind="stable")
            there, starts = np.unique(groups[order], return_index=True)
            registers[there] = np.maximum.reduceat(self.registers(columns[0])[order], starts, axis=0)
        return [self._column(registers)]

    def registers(self, column: pa.Array) -> npt.NDArray[np.uint8]:
        size = 2**self.bits
        array = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        return array[size * column.offset : size * (column.offset + len(column))].reshape(-1, size)

    def _column(self, registers: npt.NDArray[np.uint8]) -> pa.Array:
        return pa.Array.from_buffers(self.kept[0], len(registers), [None, pa.py_buffer(registers.tobytes())])


_RANKS = 46
"""The number of bits of a hash, after those for the register, that are searched for the first 1."""


def _observed(bits: int, groups: Ints, column: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """(register, rank) of each value that is not NULL; the registers of all groups are numbered consecutively."""
    from asterism.columns.hashing import mixed

    valid = where_valid(column)
    hashes = mixed(sort_keys(column)[valid].view(np.uint64) + _GOLDEN)
    place = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    rest = (hashes << np.uint64(bits)) >> np.uint64(64 - _RANKS)
    # A double represents these bits exactly, and its exponent is the index of the highest one.
    return groups[valid] * 2**bits + place, (_RANKS + 1 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def estimate(bits: int, column: pa.Array) -> pa.Array:
    """The estimated number of distinct values of each :class:`Sketch`."""
    registers = Sketch(bits).registers(column)
    groups = np.arange(len(registers)).repeat(2**bits)
    return _estimated(bits, _histogram(groups, registers.reshape(-1), len(registers)))


def estimated(bits: int, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """:func:`estimate` for all elements of the groups at once, which stores no empty registers."""
    cells, ranks = _observed(bits, groups, arguments[0])
    order = np.lexsort((ranks, cells))
    cells, ranks = cells[order], ranks[order]
    highest = np.append(cells[1:] != cells[:-1], True)[: len(cells)]
    histogram = _histogram(cells[highest] >> bits, ranks[highest], count)
    histogram[:, 0] = 2**bits - histogram.sum(axis=1)
    return _estimated(bits, histogram)


def _histogram(groups: Ints, ranks: npt.NDArray[np.uint8], count: int) -> Ints:
    """The number of registers with each rank, per group."""
    return np.bincount(groups * (_RANKS + 2) + ranks, minlength=count * (_RANKS + 2)).reshape(count, _RANKS + 2)


def _estimated(bits: int, histogram: Ints) -> pa.Array:
    size = 2**bits
    total = size * _high_ranks(1 - histogram[:, -1] / size) * 2.0**-_RANKS
    total += histogram[:, 1:-1] @ 0.5 ** np.arange(1, _RANKS + 1)
    with np.errstate(divide="ignore"):
        total += size * _low_ranks(histogram[:, 0] / size)
        return pa.array(np.rint(size * size / (2 * math.log(2) * total)).astype(np.int64))


def _low_ranks(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ertl's sigma: the contribution of empty registers."""
    total, power, weight = x.copy(), x.copy(), 1.0
    for _ in range(30):  # of 2^18 registers one is used: the terms vanish after 24
        power = power * power
        total, weight = total + power * weight, weight * 2
    return np.where(x == 1, np.inf, total)


def _high_ranks(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ertl's tau: the contribution of registers with the highest rank."""
    total, power, weight = 1 - x, x.copy(), 1.0
    for _ in range(60):
        power, weight = np.sqrt(power), weight / 2
        total = total - (1 - power) ** 2 * weight
    return total / 3
