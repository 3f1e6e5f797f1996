"""Routines of functions of numbers. The code that is compiled is imported when it is needed: it needs numba."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa

from asterism.expressions.udfs import constant, each, each_row, routine

_EXACT = decimal.Context(prec=100)


@routine("DOUBLE", "INTEGER", "DOUBLE")
def math_of_one(functions: pa.ChunkedArray, x: pa.ChunkedArray) -> pa.Array:
    """A :class:`~asterism.expressions.math_functions.MathFunction` of one argument."""
    from asterism.expressions.kernels import calculate_one

    values = x.to_numpy().astype(np.float64)
    results = np.empty_like(values)
    calculate_one(int(constant(functions)), values, results)
    return pa.array(results)


@routine("DOUBLE", "INTEGER", "DOUBLE", "DOUBLE")
def math_of_two(functions: pa.ChunkedArray, x: pa.ChunkedArray, y: pa.ChunkedArray) -> pa.Array:
    """A :class:`~asterism.expressions.math_functions.MathFunction` of two arguments."""
    from asterism.expressions.kernels import calculate_two

    values, others = x.to_numpy().astype(np.float64), y.to_numpy().astype(np.float64)
    results = np.empty_like(values)
    calculate_two(int(constant(functions)), values, others, results)
    return pa.array(results)


@routine("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER")
def rounded_decimal(modes: pa.ChunkedArray, numbers: pa.ChunkedArray, digits: pa.ChunkedArray) -> pa.Array:
    """Round decimals, which are passed and returned as strings, to digits after the point, or before it."""
    mode, unit = f"ROUND_{constant(modes)}", decimal.Decimal(1).scaleb(-constant(digits))

    def rounded(number: str) -> str:
        return f"{decimal.Decimal(number).quantize(unit, mode, _EXACT):f}"

    return each(numbers, rounded, pa.string())


@routine("BIGINT", "VARCHAR", "INTEGER", "BIGINT", "INTEGER")
def shifted(
    operators: pa.ChunkedArray, widths: pa.ChunkedArray, values: pa.ChunkedArray, amounts: pa.ChunkedArray
) -> pa.Array:
    """Move the bits of integers of 32 or 64 bits."""
    operator, width = constant(operators), constant(widths)
    whole = values.to_numpy().astype(np.int32 if width == 32 else np.int64)
    amount = (amounts.to_numpy() & (width - 1)).astype(whole.dtype)
    if operator == "<<":
        result = np.left_shift(whole, amount)
    elif operator == ">>":
        result = np.right_shift(whole, amount)
    else:
        unsigned = np.uint32 if width == 32 else np.uint64
        result = np.right_shift(whole.view(unsigned), amount.view(unsigned)).view(whole.dtype)
    return pa.array(result.astype(np.int64))


@routine("BIGINT", "DOUBLE", "DOUBLE", "DOUBLE", "BIGINT", nulls=True)
def width_bucket(
    values: pa.ChunkedArray, lows: pa.ChunkedArray, highs: pa.ChunkedArray, counts: pa.ChunkedArray
) -> pa.Array:
    """The bucket of a number, from 1, among buckets of the same width; beyond them 0, or one more than there are."""
    return each_row([values, lows, highs, counts], _bucket, pa.int64())


def _bucket(value: float | None, low: float | None, high: float | None, count: int | None) -> int | None:
    if value is None or low is None or high is None or count is None or not 0 < count < 2**63 - 1:
        return None
    if np.isnan(value) or low == high or not np.isfinite(low) or not np.isfinite(high):
        return None
    if low > high:  # downwards: the same with other signs
        value, low, high = -value, -low, -high
    if value < low:
        return 0
    if value >= high:
        return count + 1
    share = count * (value - low) / (high - low)
    if share >= 2.0**63:
        return -(2**63)  # Java adds 1 to the largest BIGINT
    return (0 if np.isnan(share) else int(share)) + 1


@routine("VARCHAR", "VARCHAR", "INTEGER", "INTEGER", nulls=True)
def conv(strings: pa.ChunkedArray, bases: pa.ChunkedArray, targets: pa.ChunkedArray) -> pa.Array:
    """The digits of numbers of 64 bits in another base."""
    return each_row([strings, bases, targets], _converted, pa.string())


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD = 2**64


def _converted(text: str | None, base: int | None, target: int | None) -> str | None:
    if text is None or base is None or target is None:
        return None
    text = text.strip(" ")
    if not 2 <= base <= 36 or not 2 <= abs(target) <= 36 or not text:
        return None
    negative, number = text[0] == "-", 0
    for character in text[negative:]:
        digit = _DIGITS.find(character.upper()) if character.isascii() else -1
        if not 0 <= digit < base:
            break
        number = number * base + digit
        if number >= _WORD:
            raise OverflowError(f"{text!r:.80} does not fit into 64 bits")
    if negative and target > 0:
        number = _WORD - 1 if number >= _WORD // 2 else -number % _WORD
    if target < 0 and number >= _WORD // 2:
        number, negative = _WORD - number, True
    written = ""
    while number or not written:
        number, digit = divmod(number, abs(target))
        written = _DIGITS[digit] + written
    return f"-{written}" if negative and target < 0 else written
