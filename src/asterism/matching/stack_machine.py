"""The operations of the stack machine, compiled for both kernels: that of patterns and the search of MATCH_RECOGNIZE.

:mod:`asterism.matching.condition_programs` emits programs, :mod:`asterism.matching.instructions` has the operations. The kernels
push what depends on events and on the match so far; this module computes with it.

An operation that cannot be computed (a sum that does not fit, a division by zero) does not end a program: its result is an
error instead of a value. AND, OR, CASE and COALESCE ignore an error where Spark does not evaluate the operand. All other
operations pass it on, in the order in which Spark evaluates their operands.

See docs/decisions/0095.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asterism.columns.compiled import inlined, uncounted
from asterism.expressions.kernels import is_null_of, is_null_of_two, of_one, of_two, round_double
from asterism.matching.instructions import Op

VALUES, STATES = 0, 1
"""Rows of the stack: the 64 bits of the values, and whether there is one."""
VALID, NULL_VALUE = 0, 1
"""States of a value; larger numbers are errors."""
DIVISION_BY_ZERO, OVERFLOW = 2, 11
"""Errors, which are error codes of the kernel of patterns, too."""

# numba compares against plain integers faster than against enum members, and caches better
_O = {op.name: int(op) for op in Op}
CONST, NULL, TO_FLOAT, SCALED_TO_FLOAT = _O["CONST"], _O["NULL"], _O["TO_FLOAT"], _O["SCALED_TO_FLOAT"]
ADD, SUB, MUL, NEG, ABS = _O["ADD"], _O["SUB"], _O["MUL"], _O["NEG"], _O["ABS"]
ADD_F, SUB_F, MUL_F, DIV_F, NEG_F, ABS_F = _O["ADD_F"], _O["SUB_F"], _O["MUL_F"], _O["DIV_F"], _O["NEG_F"], _O["ABS_F"]
EQ, LT, LE, EQ_F, LT_F, LE_F = _O["EQ"], _O["LT"], _O["LE"], _O["EQ_F"], _O["LT_F"], _O["LE_F"]
NOT, AND, OR, IS_NULL, COALESCE, SELECT = _O["NOT"], _O["AND"], _O["OR"], _O["IS_NULL"], _O["COALESCE"], _O["SELECT"]
IN = _O["IN"]
MATH, FLOOR, CEIL, ROUND = _O["MATH"], _O["FLOOR"], _O["CEIL"], _O["ROUND"]
_OF_ONE = (IS_NULL, IN, NOT, TO_FLOAT, SCALED_TO_FLOAT, NEG, ABS, NEG_F, ABS_F, FLOOR, CEIL, ROUND)
_OF_INTEGERS = (EQ, LT, LE, ADD, SUB, MUL)
_SURELY_FITS = 9.2e18
LOWEST, LARGEST = -(2**63), 2**63 - 1


@inlined
def double(bits: int) -> Any:
    return np.int64(bits).view(np.float64)


@inlined
def bits_of(value: float) -> Any:
    return np.float64(value).view(np.int64)


@inlined
def less(a: float, b: float) -> bool:
    """Compare doubles in Spark's order: NaN is equal to itself and larger than every other value."""
    if np.isnan(a):
        return False
    return np.isnan(b) or a < b


@inlined
def same(a: float, b: float) -> bool:
    return a == b or (np.isnan(a) and np.isnan(b))


@uncounted
def is_in(ops: Any, at: int, x: int) -> bool:
    """Whether a value is in the sorted table of the IN at *at*."""
    floating = ops[at, 4] == 1
    low = at + ops[at, 5]
    end = low + ops[at, 2]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if less(double(ops[middle, 1]), double(x)) if floating else ops[middle, 1] < x:
            low = middle + 1
        else:
            high = middle
    return low < end and (same(double(ops[low, 1]), double(x)) if floating else ops[low, 1] == x)


# The compiler assumes that signed integers do not overflow, so the checks look at the operands and not at the result.


@inlined
def carry(x: int, y: int) -> int:
    """1 or -1 if ``x + y`` exceeds 64 bits upwards or downwards, otherwise 0."""
    if y > 0:
        return 1 if x > LARGEST - y else 0
    return -1 if x < LOWEST - y else 0


@inlined
def wrapped(x: int, y: int) -> Any:
    """``x + y``, without the bits that exceed 64."""
    return np.uint64(np.int64(x).view(np.uint64) + np.int64(y).view(np.uint64)).view(np.int64)


@uncounted
def product_fits(x: int, y: int) -> bool:
    """Whether a product fits into 64 bits."""
    if abs(float(x) * float(y)) < _SURELY_FITS:
        return True
    if x == LOWEST or y == LOWEST:  # neither is 0
        return x == 1 or y == 1
    if y in (1, -1):
        return True
    return abs(x) <= (LARGEST // abs(y) if (x < 0) == (y < 0) else LOWEST // -abs(y))


@uncounted
def mean(total: int, count: int) -> int:
    """A mean with four digits more than *total*, rounded half away from zero."""
    quotient, rest = divmod(abs(total) * 10_000, count)
    if 2 * rest >= count:
        quotient += 1
    return quotient if total >= 0 else -quotient


@inlined
def in_range(value: int, bits: int) -> bool:
    """Whether an integer of 64 bits fits into a type; 0: it has 64 bits."""
    if bits == 0 or bits == 64:
        return True
    limit = 1 << (bits - 1)
    return -limit <= value < limit


@inlined
def combine(op: int, stack: Any, n: int) -> int:
    """Do AND, OR, SELECT or COALESCE, which do not pass on every error of their operands. Returns the number of values."""
    last = n - 1
    if op in (AND, OR):
        a = n - 2
        decides = 0 if op == AND else 1
        if stack[STATES, a] == VALID and stack[VALUES, a] == decides:
            return last
        if stack[STATES, a] > NULL_VALUE:
            return last
        if stack[STATES, last] > NULL_VALUE or (stack[STATES, last] == VALID and stack[VALUES, last] == decides):
            stack[VALUES, a], stack[STATES, a] = stack[VALUES, last], stack[STATES, last]
        else:
            stack[VALUES, a], stack[STATES, a] = 1 - decides, stack[STATES, a] | stack[STATES, last]
        return last
    if op == SELECT:
        condition = n - 3
        chosen = n - 2 if (stack[STATES, condition] == VALID and stack[VALUES, condition] == 1) else n - 1
        if stack[STATES, condition] <= NULL_VALUE:
            stack[VALUES, condition], stack[STATES, condition] = stack[VALUES, chosen], stack[STATES, chosen]
        return n - 2
    if stack[STATES, n - 2] == NULL_VALUE:
        stack[VALUES, n - 2], stack[STATES, n - 2] = stack[VALUES, last], stack[STATES, last]
    return last


@uncounted
def mathematical(ops: Any, at: int, stack: Any, last: int) -> None:
    """Do MATH with one value, FLOOR, CEIL or ROUND."""
    if stack[STATES, last] != VALID:
        return
    op, x = ops[at, 0], double(stack[VALUES, last])
    if op == MATH:
        if is_null_of(ops[at, 1], x):
            stack[STATES, last] = NULL_VALUE
        else:
            stack[VALUES, last] = bits_of(of_one(ops[at, 1], x))
    elif op == ROUND:
        stack[VALUES, last] = bits_of(round_double(x, ops[at, 1], ops[at, 2] == 1))
    elif np.isnan(x):
        stack[VALUES, last] = 0
    else:
        whole = np.floor(x) if op == FLOOR else np.ceil(x)
        if -(2.0**63) <= whole < 2.0**63:
            stack[VALUES, last] = np.int64(whole)
        else:
            stack[STATES, last] = OVERFLOW


@uncounted
def mathematical_of_two(function: int, stack: Any, a: int, x: float, y: float) -> None:
    """Do MATH with two values."""
    if is_null_of_two(function, x, y):
        stack[STATES, a] = NULL_VALUE
    else:
        stack[VALUES, a] = bits_of(of_two(function, x, y))


@inlined
def change(ops: Any, at: int, stack: Any, last: int) -> None:
    """Do an operation with one operand."""
    op = ops[at, 0]
    if op == IS_NULL:
        if stack[STATES, last] <= NULL_VALUE:
            stack[VALUES, last], stack[STATES, last] = stack[STATES, last], VALID
    elif op == IN:
        if stack[STATES, last] == VALID:
            found = is_in(ops, at, stack[VALUES, last])
            stack[VALUES, last], stack[STATES, last] = 1 if found else 0, VALID if found else ops[at, 3]
    elif op == NOT:
        stack[VALUES, last] = 1 - stack[VALUES, last]
    elif op == TO_FLOAT:
        stack[VALUES, last] = bits_of(float(stack[VALUES, last]))
    elif op == SCALED_TO_FLOAT:  # up to 2**53, the quotient is that of the exact numbers
        if stack[STATES, last] == VALID and abs(stack[VALUES, last]) > 2**53:
            stack[STATES, last] = OVERFLOW
        stack[VALUES, last] = bits_of(float(stack[VALUES, last]) / 10.0 ** ops[at, 1])
    elif op in (NEG, ABS):
        x = stack[VALUES, last]
        if x < 0 or op == NEG:
            if stack[STATES, last] == VALID and (x == LOWEST or not in_range(-x, ops[at, 2])):
                stack[STATES, last] = OVERFLOW
            stack[VALUES, last] = -x
    elif op == NEG_F:
        stack[VALUES, last] = bits_of(-double(stack[VALUES, last]))
    elif op == ABS_F:
        stack[VALUES, last] = bits_of(abs(double(stack[VALUES, last])))
    else:
        mathematical(ops, at, stack, last)


@inlined
def calculate_integers(ops: Any, at: int, stack: Any, a: int, x: int, y: int) -> None:
    op = ops[at, 0]
    if op == EQ:
        stack[VALUES, a] = 1 if x == y else 0
    elif op == LT:
        stack[VALUES, a] = 1 if x < y else 0
    elif op == LE:
        stack[VALUES, a] = 1 if x <= y else 0
    elif op == ADD:
        total = x + y
        if carry(x, y) != 0 or not in_range(total, ops[at, 2]):
            stack[STATES, a] = OVERFLOW
        stack[VALUES, a] = total
    elif op == SUB:
        total = x - y
        if (x > LARGEST + y if y < 0 else x < LOWEST + y) or not in_range(total, ops[at, 2]):
            stack[STATES, a] = OVERFLOW
        stack[VALUES, a] = total
    elif op == MUL:
        total = x * y
        if not product_fits(x, y) or not in_range(total, ops[at, 2]):
            stack[STATES, a] = OVERFLOW
        stack[VALUES, a] = total


@inlined
def calculate_doubles(ops: Any, at: int, stack: Any, a: int, x: float, y: float) -> None:
    op = ops[at, 0]
    if op == EQ_F:
        stack[VALUES, a] = 1 if same(x, y) else 0
    elif op == LT_F:
        stack[VALUES, a] = 1 if less(x, y) else 0
    elif op == LE_F:
        stack[VALUES, a] = 0 if less(y, x) else 1
    elif op == ADD_F:
        stack[VALUES, a] = bits_of(x + y)
    elif op == SUB_F:
        stack[VALUES, a] = bits_of(x - y)
    elif op == MUL_F:
        stack[VALUES, a] = bits_of(x * y)
    elif op == DIV_F and stack[STATES, a] == VALID:
        if y != 0.0:
            stack[VALUES, a] = bits_of(x / y)
        else:
            stack[STATES, a] = DIVISION_BY_ZERO if ops[at, 1] == 0 else NULL_VALUE


@inlined
def calculate(ops: Any, at: int, stack: Any, n: int) -> int:
    """Do the operation at *at* with a stack of *n* values. Returns their number afterwards."""
    op = ops[at, 0]
    if op == CONST:
        stack[VALUES, n], stack[STATES, n] = ops[at, 1], VALID
        return n + 1
    if op == NULL:
        stack[VALUES, n], stack[STATES, n] = 0, NULL_VALUE
        return n + 1
    if op in (AND, OR, SELECT, COALESCE):
        return combine(op, stack, n)
    last = n - 1
    if op in _OF_ONE or (op == MATH and ops[at, 2] == 0):
        change(ops, at, stack, last)
        return n
    a, b = n - 2, last
    if op == DIV_F:  # Spark evaluates the divisor first
        if stack[STATES, b] != VALID:
            stack[STATES, a] = stack[STATES, b]
            return last
    elif stack[STATES, a] != VALID:
        return last
    elif stack[STATES, b] != VALID:
        stack[STATES, a] = stack[STATES, b]
        return last
    x, y = stack[VALUES, a], stack[VALUES, b]
    if op in _OF_INTEGERS:
        calculate_integers(ops, at, stack, a, x, y)
    elif op == MATH:
        mathematical_of_two(ops[at, 1], stack, a, double(x), double(y))
    else:
        calculate_doubles(ops, at, stack, a, double(x), double(y))
    return last
