"""Conditions that compare columns with constants, as ranges of the values of columns.

``kind = 'buy' AND amount >= 10`` is TRUE where *kind* is in the range from 'buy' to 'buy' and *amount* is in the range from 10
on. Such conditions cannot fail, and can be looked up in an index instead of being evaluated one by one
(:mod:`asterism.rules.binding.condition_index`). They are recognized by the operations of a typed value, never by its text; any
other condition is evaluated by :mod:`asterism.expressions.evaluation`. Of ``kind = 'buy' AND amount > limit``, which cannot
fail either, only the *rest* is evaluated, ``amount > limit``, which many conditions may share.

The few conditions of a pattern are tested one by one (:class:`RangeTests`). See docs/decisions/0180.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask, filled, from_numpy, from_strings, one_chunk, to_numpy
from asterism.columns.groups import as_int64
from asterism.expressions.names import plain_column
from asterism.expressions.operators import conjunction
from asterism.expressions.types import (
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    STRING,
    is_decimal,
    is_numeric,
    is_temporal,
    spark_type,
)
from asterism.expressions.values import Sql, boolean_constant

MAX_ALTERNATIVES = 64
"""The maximum number of alternatives of a condition, such as the items of an IN."""
MAX_DIGITS = 18
"""The maximum precision of decimals, whose digits are a 64-bit integer."""
LOWEST, HIGHEST = -(2**63), 2**63 - 1
_INVERSE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NOWHERE = from_numpy(np.array([-1], np.int32))[0]
_TRUE, _FALSE = boolean_constant(True), boolean_constant(False)


class Range(NamedTuple):
    """The values of a column from *low* to *high*, both included; NULL is in no range.

    :param column: the number of the column
    :param floating: whether its values are compared as doubles
    :param low: an integer of 64 bits (see :func:`order_of` for doubles), or a string and whether it is excluded; None: no bound
    """

    column: int
    floating: bool
    low: int | tuple[str, bool] | None
    high: int | tuple[str, bool] | None

    @property
    def is_one(self) -> bool:
        """Whether it has exactly one value."""
        return self.low is not None and self.low == self.high

    @property
    def is_empty(self) -> bool:
        low, high = self.low, self.high
        if isinstance(low, tuple) or isinstance(high, tuple):
            return (
                isinstance(low, tuple)
                and isinstance(high, tuple)
                and (low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1])))
            )
        low, high = LOWEST if low is None else low, HIGHEST if high is None else high
        return low > min(high, HIGHEST) or high < LOWEST

    def and_also(self, other: Range) -> Range:
        """The values in both ranges, which are of the same column."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        # Of equal strings, the one that is excluded is the narrower bound.
        low = max(lows, default=None)
        high = min(highs, key=lambda high: (high[0], not high[1]) if isinstance(high, tuple) else high, default=None)
        return self._replace(low=low, high=high)


Alternative = tuple[Range, ...]
"""Ranges of different columns; it holds where all of them do."""
Ranges = tuple[Alternative, ...]
"""A condition: it is TRUE where one of the alternatives holds."""


class Indexable(NamedTuple):
    """A condition that can be looked up: it is TRUE where *ranges* and the *rest* are."""

    ranges: Ranges
    rest: Sql | None = None


def order_of(value: float) -> int:
    """An integer that orders doubles as Spark does: NaN is equal to itself and larger than any other value, and -0.0 is 0.0.

    >>> order_of(-0.0) == order_of(0.0) < order_of(5e-324) < order_of(float("inf")) < order_of(float("nan"))
    True
    """
    bits: int = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value + 0.0))[0]
    return bits if bits >= 0 else bits ^ HIGHEST


def ranges_of(value: Sql) -> Ranges | None:
    """The condition as ranges; None if it is another condition."""
    single = indexable(value)
    return None if single is None or single.rest is not None else single.ranges


def indexable(value: Sql) -> Indexable | None:
    """The condition as ranges and a rest that must also be TRUE; None if it has no ranges, or can fail."""
    if value.raises or value.type != BOOLEAN:
        return None
    alternatives_of_all: list[tuple[Range, ...]] | None = None
    rest: list[Sql] = []
    for part in _conjuncts(value):
        try:
            alternatives = _alternatives(part, negated=False)
            alternatives_of_all = (
                alternatives if alternatives_of_all is None else _all([alternatives_of_all, alternatives])
            )
        except _OtherError:
            rest.append(part)
    if alternatives_of_all is None:
        return None
    ranges = tuple(dict.fromkeys(kept for kept in map(_merged, alternatives_of_all) if kept is not None))
    # Without the operations of its parts, which are not needed any more.
    return Indexable(ranges, replace(conjunction(rest), operation=None) if rest else None)


def complement(ranges: Ranges) -> Ranges | None:
    """Alternatives, of which one holds where none of *ranges* does, of rows without NULL; None: there would be too many."""
    try:
        outside = _all([[(part,) for limits in alternative for part in _outside(limits)] for alternative in ranges])
    except _OtherError:
        return None
    return tuple(dict.fromkeys(kept for kept in map(_merged, outside) if kept is not None))


def orders_strings(ranges: Ranges) -> bool:
    """Whether it compares a string other than for equality, so that all strings have to be sorted."""
    return any(
        isinstance(bound, tuple) and not r.is_one for alternative in ranges for r in alternative for bound in r[2:]
    )


def _outside(limits: Range) -> Iterator[Range]:
    """The values below and above a range."""
    low, high = limits.low, limits.high
    if low is not None:
        yield limits._replace(low=None, high=(low[0], not low[1]) if isinstance(low, tuple) else low - 1)
    if high is not None:
        yield limits._replace(low=(high[0], not high[1]) if isinstance(high, tuple) else high + 1, high=None)


def _conjuncts(value: Sql) -> Iterator[Sql]:
    if value.operation is not None and value.operation.name == "AND":
        for operand in value.operation.operands:
            yield from _conjuncts(operand)
    else:
        yield value


class _OtherError(Exception):
    """The condition is not made of ranges."""


def _merged(ranges: Sequence[Range]) -> Alternative | None:
    """The ranges with one for each column; None if no value is in all of them."""
    intersected: dict[tuple[int, bool], Range] = {}
    for limits in ranges:
        key = limits.column, limits.floating
        intersected[key] = limits if key not in intersected else intersected[key].and_also(limits)
    return (
        None
        if any(narrowed.is_empty for narrowed in intersected.values())
        else tuple(intersected[key] for key in sorted(intersected))
    )


def _alternatives(value: Sql, *, negated: bool) -> list[tuple[Range, ...]]:
    """The alternatives of which one must hold so that the value is TRUE; *negated*: so that it is FALSE."""
    if value.operation is None:
        return [(_of_boolean(value, negated),)]
    name, operands = value.operation
    match name:
        case "NOT":
            return _alternatives(operands[0], negated=not negated)
        case "AND" | "BETWEEN" | "OR":
            parts = [_alternatives(operand, negated=negated) for operand in operands]
            return _any(parts) if (name == "OR") != negated else _all(parts)
        case "IN":
            of, *choices = operands
            tests = [_comparison("<>" if negated else "=", of, choice) for choice in choices]
            return _all(tests) if negated else _any(tests)
        case "IS NOT NULL" if not negated:
            column, _ = _column(operands[0])
            return [(column,)]
        case "IS TRUE" | "IS FALSE" if not negated:
            return _alternatives(operands[0], negated=name == "IS FALSE")
        case "IS NOT DISTINCT FROM" if not negated:
            return _comparison("=", *operands)
    if name not in _INVERSE:
        raise _OtherError
    return _comparison(_INVERSE[name] if negated else name, *operands)


def _any(parts: Iterable[list[tuple[Range, ...]]]) -> list[tuple[Range, ...]]:
    return _limited([alternative for part in parts for alternative in part])


def _all(parts: Iterable[list[tuple[Range, ...]]]) -> list[tuple[Range, ...]]:
    products: list[tuple[Range, ...]] = [()]
    for part in parts:
        products = _limited([before + alternative for before in products for alternative in part])
    return products


def _limited(alternatives: list[tuple[Range, ...]]) -> list[tuple[Range, ...]]:
    if len(alternatives) > MAX_ALTERNATIVES:
        raise _OtherError
    return alternatives


# ---------------------------------------------------------------------------------------------------- comparisons


def _column(value: Sql) -> tuple[Range, int]:
    """All values of a column that are not NULL, if *value* is the column or a cast of it that keeps the order, and the scale
    of its integers.
    """
    target, source = value, value
    if value.operation is not None and value.operation.name == "CAST":
        (source,) = value.operation.operands
    number = plain_column(source.text)
    if number is None or source.operation is not None or value.raises:
        raise _OtherError
    have, to = source.type, target.type
    floating = to in FLOATS
    if is_decimal(have):
        if have.precision > MAX_DIGITS or not is_decimal(to):
            raise _OtherError
        if to.scale < have.scale or to.precision - to.scale < have.precision - have.scale:
            raise _OtherError
        return Range(number, False, None, None), have.scale
    widens = have in INTEGERS and (to in INTEGERS or is_decimal(to) or to == DOUBLE)
    if have != to and not widens and not (have in FLOATS and to == DOUBLE):
        raise _OtherError
    if not (is_numeric(have) or is_temporal(have) or have in (BOOLEAN, STRING)):
        raise _OtherError
    return Range(number, floating, None, None), 0


def _of_boolean(value: Sql, negated: bool) -> Range:
    column, _ = _column(value)
    return column._replace(low=int(not negated), high=int(not negated))


def _comparison(operator: str, a: Sql, b: Sql) -> list[tuple[Range, ...]]:
    """A column compared with a constant. Both have the same type."""
    if plain_column(a.text) is None and (a.operation is None or a.operation.name != "CAST"):
        operator, a, b = _MIRRORED[operator], b, a
    column, scale = _column(a)
    constant = _constant(b)
    if isinstance(constant, str):
        at, beyond = (constant, False), (constant, True)
        bounds = {"=": (at, at), "<": (None, beyond), "<=": (None, at), ">": (beyond, None), ">=": (at, None)}
    elif isinstance(constant, float):
        order = order_of(constant)
        bounds = _around(Fraction(order))
    else:
        bounds = _around(constant * 10**scale)
    which = ("<", ">") if operator == "<>" else (operator,)
    return [(column._replace(low=low, high=high),) for low, high in (bounds[one] for one in which)]


def _around(value: Fraction) -> dict[str, tuple[Any, Any]]:
    """By operator, the first and the last of the integers that are equal to a number, less, greater ..."""
    at, above = math.floor(value), math.ceil(value)
    return {"=": (above, at), "<": (None, above - 1), "<=": (None, at), ">": (at + 1, None), ">=": (above, None)}


def _constant(value: Sql) -> str | float | Fraction:
    """The value of a literal."""
    if value.operation is not None or value.nulls != ():
        raise _OtherError
    if value.type == STRING and isinstance(value.constant, str):
        return value.constant
    if value.type == BOOLEAN and value in (_TRUE, _FALSE):
        return Fraction(value == _TRUE)
    if value.number is not None and (value.type == DOUBLE or is_temporal(value.type)):
        return value.number if isinstance(value.number, float) else Fraction(value.number)
    if isinstance(value.constant, Decimal):
        if value.type == DOUBLE:
            return float(value.constant)
        if value.type in INTEGERS or is_decimal(value.type):
            return Fraction(value.constant)
    raise _OtherError


# ---------------------------------------------------------------------------------------------------- rows


class RangeTests:
    """Tests conditions that are made of ranges, one after the other. Of thousands of conditions there is an index
    (:mod:`asterism.rules.binding.condition_index`).

    :param schema: of the rows
    """

    def __init__(self, schema: pa.Schema, conditions: Sequence[Ranges]) -> None:
        ranges = [range_ for condition in conditions for alternative in condition for range_ in alternative]
        columns = dict.fromkeys(range_[:2] for range_ in ranges)
        self._encoders = {
            column: RangeEncoder(schema, column, [range_ for range_ in ranges if range_[:2] == column])
            for column in columns
        }
        self._conditions = [
            [
                [(range_[:2], *self._encoders[range_[:2]].bounds(range_)) for range_ in alternative]
                for alternative in condition
            ]
            for condition in conditions
        ]

    def masks(self, rows: pa.Table) -> list[Mask]:
        """For each condition the rows for which it is TRUE."""
        columns = {column: encoder.encoded(rows.column(column[0])) for column, encoder in self._encoders.items()}
        masks = []
        for alternatives in self._conditions:
            mask = np.zeros(rows.num_rows, np.bool_)
            for ranges in alternatives:
                mask |= reduce(np.logical_and, (_within(*columns[column], low, high) for column, low, high in ranges))
            masks.append(mask)
        return masks


def _within(values: Ints, nulls: Mask | None, low: int, high: int) -> Mask:
    within: Mask = values == low if low == high else (values >= low) & (values <= high)
    return within if nulls is None else within & ~nulls


class RangeEncoder:
    """Encodes the values of a column, and the bounds of its *ranges*, as integers in the same order.

    :param column: its number, and whether its values are compared as doubles

    Of a string, only its place among the constants matters: 2n + 1 if it is the constant number n, and 2n if it is less than that
    and greater than the one before.
    """

    def __init__(self, schema: pa.Schema, column: tuple[int, bool], ranges: Sequence[Range]) -> None:
        number, self.floating = column
        self.type = spark_type(schema.field(number).type, "UTC")
        texts = {bound[0] for range_ in ranges for bound in (range_.low, range_.high) if isinstance(bound, tuple)}
        self.constants = sorted(texts)
        self.is_string = pa.types.is_string(self.type)
        self.only_equality = all(range_.is_one for range_ in ranges)

    def bounds(self, range_: Range) -> tuple[int, int]:
        low, high = range_.low, range_.high
        if isinstance(low, tuple):
            low = 2 * bisect_left(self.constants, low[0]) + 1 + low[1]
        if isinstance(high, tuple):
            high = 2 * bisect_left(self.constants, high[0]) + 1 - high[1]
        return max(LOWEST if low is None else low, LOWEST), min(HIGHEST if high is None else high, HIGHEST)

    def encoded(self, column: pa.ChunkedArray) -> tuple[Ints, Mask | None]:
        """The values of the column, and which of them are NULL; None: none is."""
        array = one_chunk(column)
        if array.type != self.type:
            array = array.cast(self.type, safe=False)
        nulls = to_numpy(array.is_null()) if array.null_count else None
        return self._integers(array), nulls

    def _integers(self, array: pa.Array) -> Ints:
        if self.is_string:
            return self._places(array)
        if self.floating:
            if array.type != pa.float64():  # the call takes time
                array = array.cast(pa.float64(), safe=False)
            doubles = filled(array)
            bits: Ints = np.where(np.isnan(doubles), np.nan, doubles + 0.0).view(np.int64)
            ordered: Ints = np.where(bits >= 0, bits, bits ^ HIGHEST)
            return ordered
        if is_decimal(self.type) and len(array):
            words: Ints = np.frombuffer(array.buffers()[1], np.int64)
            return words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
        return as_int64(array) if len(array) else np.empty(0, np.int64)

    def _places(self, array: pa.Array) -> Ints:
        constants = from_strings(self.constants)
        if self.only_equality:
            positions: Ints = to_numpy(pc.fill_null(pc.index_in(array, constants), _NOWHERE)).astype(np.int64)
            return 2 * positions + 1
        values = pc.dictionary_encode(array)
        both = pa.concat_arrays([constants, values.dictionary])
        order = pc.sort_indices(both).to_numpy()
        is_constant = order < len(constants)
        before = np.empty(len(both), np.int64)
        before[order] = np.cumsum(is_constant)
        before = before[len(constants) :]  # for each value the number of constants that are not greater
        equal = np.zeros(len(before), np.bool_)
        some = np.flatnonzero(before > 0)
        same = pc.equal(values.dictionary.take(from_numpy(some)), constants.take(from_numpy(before[some] - 1)))
        equal[some] = same.to_numpy(zero_copy_only=False)
        places = np.append(2 * before - equal, 0)
        of_rows: Ints = places[pc.fill_null(values.indices, len(before)).to_numpy(zero_copy_only=False)]
        return of_rows
