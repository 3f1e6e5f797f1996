"""The mathematical functions on DOUBLE that both evaluators compute with the same code, by their numbers.

:mod:`asterism.expressions.kernels` has the code.
"""

from __future__ import annotations

import enum


class MathFunction(enum.IntEnum):
    """Kernels are compiled with these numbers, so they must not change. Those from :attr:`POW` on take two arguments."""

    SQRT = 0
    EXP = 1
    LN = 2
    LOG10 = 3
    LOG2 = 4
    LOG1P = 5
    EXPM1 = 6
    SIN = 7
    COS = 8
    TAN = 9
    COT = 10
    SEC = 11
    CSC = 12
    ASIN = 13
    ACOS = 14
    ATAN = 15
    SINH = 16
    COSH = 17
    TANH = 18
    ASINH = 19
    ACOSH = 20
    ATANH = 21
    CBRT = 22
    RADIANS = 23
    DEGREES = 24
    SIGN = 25
    RINT = 26
    POW = 40
    ATAN2 = 41
    HYPOT = 42
    LOG = 43

    @property
    def takes_two(self) -> bool:
        return self >= MathFunction.POW


MATH_FUNCTIONS = {function.name: function for function in MathFunction}
"""The functions by the names of the operations of values."""
