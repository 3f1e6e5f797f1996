"""The partial aggregates of a group of elements, whatever its size: columns that are folded and merged.

A :class:`Cell` converts each element to a partial of that element, and merges partials that are ordered by the arrival of
their elements; folding elements into a group does both. All of it is columnar: there is no Python object per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask, filled, from_numpy, to_numpy
from asterism.expressions.types import BIGINT, BOOLEAN, DOUBLE, FLOATS, INTEGERS, NULL, is_decimal, is_temporal

# ---------------------------------------------------------------------------------------------------- columns


def where_valid(*columns: pa.Array) -> Mask:
    """A mask of the rows in which no column is NULL; all columns have the same length."""
    valid = columns[0].is_valid()
    for column in columns[1:]:
        valid = pc.and_(valid, column.is_valid())
    return to_numpy(valid)


def words_of(column: pa.Array) -> Ints:
    """The two halves of each decimal, the lower one first; undefined for NULL."""
    words = np.frombuffer(column.buffers()[1] or b"", np.int64)
    return words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)


def taken(column: pa.Array, at: Ints) -> pa.Array:
    """The elements at the indexes *at*, NULL for the index -1."""
    if not len(column):
        return pa.nulls(len(at), column.type)
    return column.take(from_numpy(np.maximum(at, 0), at >= 0))


def sort_keys(column: pa.Array) -> Ints:
    """Integers that sort like the values and are equal for equal values; undefined for NULL."""
    kind = column.type
    if kind == BOOLEAN or kind in INTEGERS:
        return filled(column).astype(np.int64)
    if kind in FLOATS:
        values = filled(column).astype(np.float64) + 0.0  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan  # all NaN get the same bits
        bits = values.view(np.int64)
        return bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    if is_temporal(kind) or pa.types.is_duration(kind):
        return filled(column.cast(pa.int32()) if pa.types.is_date(kind) else column.cast(BIGINT)).astype(np.int64)
    if is_decimal(kind) and kind.precision <= LONG_DIGITS:
        return words_of(column)[:, 0].copy()
    if kind == NULL:
        return np.zeros(len(column), np.int64)
    return filled(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)


LONG_DIGITS = 18  # the digits that fit into 64 bits


# ---------------------------------------------------------------------------------------------------- groups


def totals_of(groups: Ints, count: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum of the values of each group, added one after the other."""
    totals = np.zeros(count, values.dtype)
    # The order of integers does not matter.
    if len(values) and values.dtype == np.int64 and bool((groups[1:] >= groups[:-1]).all()):
        begins = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        totals[groups[begins]] = np.add.reduceat(values, begins)
        return totals
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(totals, groups, values)
    return totals


def present(groups: Ints, count: int) -> Mask:
    """Which groups have rows."""
    mask = np.zeros(count, np.bool_)
    mask[groups] = True
    return mask


def first_places(groups: Ints, count: int, *, last: bool = False) -> Ints:
    """The index of the first or last row of each group, -1 if it is empty."""
    at = np.full(count, -1, np.int64)
    places = np.arange(len(groups))
    # If an index is assigned several times, the last value remains.
    at[groups if last else groups[::-1]] = places if last else places[::-1]
    return at


def _through(rows: Ints, at: Ints) -> Ints:
    """Convert indexes into *rows* to the indexes that *rows* contains."""
    return np.where(at < 0, -1, rows[np.maximum(at, 0)]) if len(rows) else at


def winners(groups: Ints, count: int, column: pa.Array, *, largest: bool, last: bool = False) -> Ints:
    """The index of the largest or smallest non-NULL value of each group; of equal values, the first or the last."""
    rows = np.flatnonzero(where_valid(column))
    keys, groups = sort_keys(column)[rows], groups[rows]
    limits = np.iinfo(np.int64)
    best = np.full(count, limits.min if largest else limits.max)
    (np.maximum if largest else np.minimum).at(best, groups, keys)
    hits = np.flatnonzero(keys == best[groups])
    return _through(rows, _through(hits, first_places(groups[hits], count, last=last)))


def sorted_places(columns: Sequence[tuple[pa.Array, bool, bool]]) -> Ints:
    """The indexes of the rows in the order of columns; equal rows stay in their order.

    :param columns: each with whether it is descending, and whether NULL is first
    """
    keys: list[npt.NDArray[Any]] = []
    for column, descending, nulls_first in columns:
        valid = where_valid(column)
        values = np.where(valid, sort_keys(column), 0)
        keys += [valid if nulls_first else ~valid, ~values if descending else values]
    places: Ints = np.lexsort(keys[::-1])
    return places


def distinct_places(groups: Ints, columns: Sequence[pa.Array]) -> Ints:
    """The indexes of the rows that are the first of equal rows in their group."""
    keys = [from_numpy(sort_keys(column), where_valid(column)) for column in columns]
    names = [str(number) for number in range(len(keys))]
    table = pa.table([from_numpy(groups), *keys, from_numpy(np.arange(len(groups)))], names=["group", *names, "row"])
    firsts = table.group_by(["group", *names], use_threads=False).aggregate([("row", "min")])
    return np.sort(to_numpy(firsts.column("row_min")))


# ---------------------------------------------------------------------------------------------------- cells


class Cell:
    """A partial aggregate of a group, stored in one or more columns."""

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        """The types of the columns."""
        raise NotImplementedError

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        """The partial of each of *count* elements; by default the element itself."""
        return list(arguments)

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """One partial per group, merged from several in order."""
        raise NotImplementedError

    def fold(
        self, groups: Ints, count: int, arguments: Sequence[pa.Array], into: Sequence[pa.Array] | None
    ) -> list[pa.Array]:
        """One partial per group, of elements, and of the partials *into* before them."""
        lifted = self.lift(arguments, len(groups))
        if into is not None:
            groups = np.concatenate([np.arange(count), groups])
            lifted = [pa.concat_arrays([before, after]) for before, after in zip(into, lifted, strict=True)]
        return self.merge(groups, count, lifted)


@dataclass(frozen=True)
class Count(Cell):
    """The number of elements of which no argument is NULL; with *true*, of which the argument is TRUE."""

    true: bool = False

    kept = (BIGINT,)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        if not arguments:
            return [from_numpy(np.ones(count, np.int64))]
        return [from_numpy((filled(arguments[0]) if self.true else where_valid(*arguments)).astype(np.int64))]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        return [from_numpy(totals_of(groups, count, filled(columns[0])))]


@dataclass(frozen=True)
class FloatingSum(Cell):
    """The sum of numbers as DOUBLE, NULL if there are none."""

    kept = (DOUBLE,)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return [arguments[0].cast(DOUBLE, safe=False)]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        valid = where_valid(columns[0])
        groups, values = groups[valid], filled(columns[0])[valid]
        return [from_numpy(totals_of(groups, count, values), present(groups, count))]


@dataclass(frozen=True)
class ExactSum(Cell):
    """The sum of integers, or of the unscaled values of decimals, of any size; NULL if there are no numbers.

    It is kept in pieces of 32 bits, the lowest first. The highest one is a signed 64-bit integer, which has
    room for the sum of four billion pieces of 32 bits.
    """

    pieces: int

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (*[pa.uint32()] * (self.pieces - 1), BIGINT)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        column = arguments[0]
        words = words_of(column) if is_decimal(column.type) else filled(column).astype(np.int64).reshape(-1, 1)
        halves = [half for n in range((self.pieces + 1) // 2) for half in (words[:, n] & _LOW, words[:, n] >> 32)]
        if self.pieces == 1:
            halves = [words[:, 0]]
        else:
            halves[1:-1] = [half & _LOW for half in halves[1:-1]]
        return self._columns(halves, where_valid(column) if column.null_count else None)

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        values = [filled(column).astype(np.int64) for column in columns]
        if columns[-1].null_count:
            valid = where_valid(columns[-1])
            groups, values = groups[valid], [column[valid] for column in values]
        sums = [totals_of(groups, count, column) for column in values]
        for number in range(self.pieces - 1):
            sums[number + 1] += sums[number] >> 32
            sums[number] &= _LOW
        return self._columns(sums, present(groups, count))

    def _columns(self, pieces: Sequence[Ints], valid: Mask | None) -> list[pa.Array]:
        lower = [from_numpy(piece.astype(np.uint32)) for piece in pieces[:-1]]
        return [*lower, from_numpy(pieces[-1], valid)]


_LOW = np.int64(2**32 - 1)


@dataclass(frozen=True)
class Extreme(Cell):
    """The smallest or largest value, the first of equal ones; with *by*, the value next to that of *by*, the last of equal
    ones.
    """

    type: pa.DataType
    largest: bool
    by: pa.DataType | None = None

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (self.type,) if self.by is None else (self.type, self.by)

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        at = winners(groups, count, columns[-1], largest=self.largest, last=self.by is not None)
        return [taken(column, at) for column in columns]


@dataclass(frozen=True)
class FirstOrLast(Cell):
    """The first or last value, and whether there is one, because it may be NULL; or the first or last that is not NULL."""

    type: pa.DataType
    last: bool
    known: bool
    """skip NULL"""

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        return (self.type,) if self.known else (self.type, BOOLEAN)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        return [arguments[0]] if self.known else [arguments[0], from_numpy(np.ones(count, np.bool_))]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        rows = np.flatnonzero(where_valid(columns[0]) if self.known else filled(columns[1]))
        at = _through(rows, first_places(groups[rows], count, last=self.last))
        values = taken(columns[0], at)
        return [values] if self.known else [values, from_numpy(at >= 0)]


@dataclass(frozen=True)
class Moments(Cell):
    """The count of numbers, the first of them, and the sums of the differences from it and of their squares.

    The first number does not change when more arrive, so the sums do not depend on when they arrived. It is one of the
    numbers whose variance is computed, so the variance cannot be small if it is far from the others. The relative error is
    about n times that of a DOUBLE; n squared times in the worst case, a first number that is an outlier.
    """

    kept = (BIGINT, DOUBLE, DOUBLE, DOUBLE)

    def lift(self, arguments: Sequence[pa.Array], count: int) -> list[pa.Array]:
        numbers, zeros = arguments[0].cast(DOUBLE, safe=False), from_numpy(np.zeros(count))
        return [from_numpy(where_valid(numbers).astype(np.int64)), numbers, zeros, zeros]

    def merge(self, groups: Ints, count: int, columns: Sequence[pa.Array]) -> list[pa.Array]:
        rows = np.flatnonzero(filled(columns[0]))
        groups = groups[rows]
        n, origins, sums, squares = (filled(column)[rows] for column in columns)
        at = first_places(groups, count)
        origin = np.where(at < 0, 0.0, origins[np.maximum(at, 0)]) if len(rows) else np.zeros(count)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = origins - origin[groups]
            squares = squares + np.where(sums == 0, 0.0, 2 * moved * sums) + n * moved * moved
            sums = sums + n * moved
        totals = [totals_of(groups, count, values) for values in (n, sums, squares)]
        return [from_numpy(totals[0]), from_numpy(origin, at >= 0), from_numpy(totals[1]), from_numpy(totals[2])]
