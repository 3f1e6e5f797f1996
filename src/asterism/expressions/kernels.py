"""The mathematical functions on DOUBLE, compiled for the stack machine and for the routines of DuckDB.

Results are those of the C library of the operating system, or of formulas over them. Spark computes with Java's ``StrictMath``
and, for sin, cos and tan, with instructions of the processor, so that the last digits may differ (``docs/sql.md``).

The functions also run in Python (:func:`asterism.columns.compiled.entry`), whose :mod:`math` raises errors where C returns NaN
or infinity. So each function looks at such arguments first. A change of a function needs one of the files of its callers, too:
the kernels of ``matching`` and ``row_patterns``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asterism.columns.compiled import entry, uncounted
from asterism.expressions.math_functions import MathFunction

# numba compares against plain integers faster than against enum members, and caches better
_F = {function.name: int(function) for function in MathFunction}
SQRT, EXP, LN, LOG10, LOG2, LOG1P, EXPM1 = (
    _F["SQRT"],
    _F["EXP"],
    _F["LN"],
    _F["LOG10"],
    _F["LOG2"],
    _F["LOG1P"],
    _F["EXPM1"],
)
SIN, COS, TAN, COT, SEC, CSC = _F["SIN"], _F["COS"], _F["TAN"], _F["COT"], _F["SEC"], _F["CSC"]
ASIN, ACOS, ATAN, SINH, COSH, TANH = _F["ASIN"], _F["ACOS"], _F["ATAN"], _F["SINH"], _F["COSH"], _F["TANH"]
ASINH, ACOSH, ATANH, CBRT, RADIANS, DEGREES = (
    _F["ASINH"],
    _F["ACOSH"],
    _F["ATANH"],
    _F["CBRT"],
    _F["RADIANS"],
    _F["DEGREES"],
)
SIGN, RINT, POW, ATAN2, HYPOT, LOG = _F["SIGN"], _F["RINT"], _F["POW"], _F["ATAN2"], _F["HYPOT"], _F["LOG"]

_MAX_EXP = 709.782712893384  # the largest numbers of which exp and sinh are finite
_MAX_SINH = 710.4758600739439
_LN_2 = math.log(2.0)
_LARGE, _SMALL = 2.0**28, 2.0**-28
_PI_REST = 1.2246467991473532e-16  # what pi has beyond its double
_SPLITTER = 2.0**27 + 1.0
_TINY, _SCALE, _ROOT_OF_SCALE = 1e-200, 2.0**300, 2.0**100
_RADIAN = 57.29577951308232  # the constants of Java
_DEGREE = 0.017453292519943295


@uncounted
def is_null_of(function: int, x: float) -> bool:
    """Whether a function of one argument is NULL: a logarithm, where it does not exist."""
    if function == LOG1P:
        return x <= -1.0
    return function in (LN, LOG10, LOG2) and x <= 0.0


@uncounted
def is_null_of_two(function: int, x: float, y: float) -> bool:
    """The same of two arguments."""
    return function == LOG and (x <= 0.0 or y <= 0.0)


@uncounted
def of_one(function: int, x: float) -> Any:
    """A function of one argument; NaN where it is NULL."""
    if np.isnan(x) or is_null_of(function, x):
        return math.nan
    if function in (SIN, COS, TAN, COT, SEC, CSC):
        return _of_angle(function, x)
    if function in (ASIN, ACOS, ATAN):
        if function == ATAN:
            return math.atan(x)
        if abs(x) > 1.0:
            return math.nan
        return math.asin(x) if function == ASIN else math.acos(x)
    if function in (SINH, COSH, TANH, ASINH, ACOSH, ATANH):
        return _of_hyperbola(function, x)
    if function in (EXP, EXPM1):
        if x > _MAX_EXP:
            return math.inf
        return math.exp(x) if function == EXP else math.expm1(x)
    if function == LN:
        return math.log(x)
    if function == LOG10:
        return math.log10(x)
    if function == LOG2:
        return math.log(x) / _LN_2
    if function == LOG1P:
        return math.log1p(x)
    if function == SQRT:
        return math.sqrt(x) if x >= 0.0 else math.nan
    if function == CBRT:
        return _cube_root(x)
    if function == RADIANS:
        return x * _DEGREE
    if function == DEGREES:
        return x * _RADIAN
    if function == SIGN:
        return x if x == 0.0 else math.copysign(1.0, x)
    return np.rint(x)


@uncounted
def _of_angle(function: int, x: float) -> Any:
    if np.isinf(x):
        return math.nan
    if function == SIN:
        return math.sin(x)
    if function == COS:
        return math.cos(x)
    if function == TAN:
        return math.tan(x)
    if function == SEC:
        return 1.0 / math.cos(x)
    if x == 0.0:
        return math.copysign(math.inf, x)
    return 1.0 / (math.tan(x) if function == COT else math.sin(x))


@uncounted
def _of_hyperbola(function: int, x: float) -> Any:
    size = abs(x)
    if function == TANH:
        return math.tanh(x)
    if function in (SINH, COSH):
        if size > _MAX_SINH:
            return math.copysign(math.inf, x) if function == SINH else math.inf
        return math.sinh(x) if function == SINH else math.cosh(x)
    # The formulas of Spark.
    if function == ATANH:
        if size >= 1.0:
            return math.copysign(math.inf, x) if size == 1.0 else math.nan
        return 0.5 * (math.log1p(x) - math.log1p(-x))
    if function == ACOSH:
        if x < 1.0:
            return math.nan
        if x >= _LARGE:
            return math.log(x) + _LN_2
        if x > 2.0:
            return math.log(2.0 * x - 1.0 / (x + math.sqrt(x * x - 1.0)))
        t = x - 1.0
        return math.log1p(t + math.sqrt(2.0 * t + t * t))
    if size < _SMALL or np.isinf(x):
        return x
    square = x * x
    if size > _LARGE:
        result = math.log(size) + _LN_2
    elif size > 2.0:
        result = math.log(2.0 * size + 1.0 / (math.sqrt(square + 1.0) + size))
    else:
        result = math.log1p(size + square / (1.0 + math.sqrt(1.0 + square)))
    return math.copysign(result, x)


@uncounted
def _rounding_error(x: float, y: float, product: float) -> Any:
    """What ``x * y`` has beyond its double *product*."""
    a = x * _SPLITTER
    x_high = a - (a - x)
    x_low = x - x_high
    b = y * _SPLITTER
    y_high = b - (b - y)
    y_low = y - y_high
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


@uncounted
def _cube_root(x: float) -> Any:
    """The nearest double in all but rare cases. That of the C library is not even exact for cubes."""
    size = abs(x)
    if size == 0.0 or np.isinf(x):
        return x
    scale = 1.0
    if size < _TINY:
        size, scale = size * _SCALE, _ROOT_OF_SCALE
    root = math.pow(size, 1.0 / 3.0)
    square = root * root
    cube = square * root
    beyond = _rounding_error(square, root, cube) + _rounding_error(root, root, square) * root
    root += ((size - cube) - beyond) / (3.0 * square)
    return math.copysign(root / scale, x)


@uncounted
def of_two(function: int, x: float, y: float) -> Any:
    """A function of two arguments, both of which may be NaN."""
    if function == POW:
        # Unlike C, Java returns NaN for 1 to the power of NaN or infinity, and for -1 to the power of infinity.
        if np.isnan(y) or (abs(x) == 1.0 and np.isinf(y)):
            return math.nan
        return np.float64(x) ** np.float64(y)
    if function == HYPOT:
        return np.hypot(x, y)
    if function == LOG:  # of y, to the base x
        if is_null_of_two(function, x, y):
            return math.nan
        base, power = math.log(x), math.log(y)
        if base == 0.0:
            return math.nan if power == 0.0 or np.isnan(power) else math.copysign(math.inf, power)
        return power / base
    x, y = x + 0.0, y + 0.0  # Spark knows no negative zero here
    if x == 0.0 or y == 0.0 or np.isinf(x) or np.isinf(y) or np.isnan(x) or np.isnan(y):
        return math.atan2(x, y)
    angle = math.atan(abs(x / y))  # as in Java, which rounds twice
    if y < 0.0:
        angle = math.pi - (angle - _PI_REST)
    return math.copysign(angle, x)


_EXACT, _NO_FRACTION = 1e14, 2.0**53
"""Up to 15 digits, a number is halfway between two others exactly if it is the nearest double to the decimal between them."""


@uncounted
def round_double(x: float, digits: int, even: bool) -> Any:
    """Round the shortest decimal that is this double, with halves away from zero or to the even digit.

    :param digits: from -12 to 12
    """
    if np.isnan(x) or np.isinf(x) or (digits == 0 and abs(x) >= 2.0**52):
        return x + 0.0
    unit, size = 10.0 ** abs(digits), abs(x)
    scaled = size * unit if digits >= 0 else size / unit
    if digits != 0 and scaled >= _EXACT:
        return math.copysign(_round_large(size, scaled, digits, unit, even), x)
    below = np.floor(scaled)
    half = _half_after(below, digits, unit)
    if size > half or (size == half and not (even and below % 2.0 == 0.0)):
        below += 1.0
    return math.copysign(below / unit if digits >= 0 else below * unit, x) + 0.0


@uncounted
def _round_large(size: float, scaled: float, digits: int, unit: float, even: bool) -> Any:
    """Round a number with 15 or more digits up to the last one that is kept; *scaled* is the number in units of that digit.

    Its shortest decimal has at most two digits more, which may be 5 although the double is not halfway. All sums are exact.
    """
    if scaled >= _NO_FRACTION:
        return size  # the shortest decimal has no more digits
    below, whole = np.floor(scaled), 1.0 if digits > 0 else unit
    if digits > 0:
        rest = (scaled - below) + _rounding_error(size, unit, scaled)
    else:
        rest = (size - below * unit) - _rounding_error(below, unit, below * unit)
    if rest < 0.0:  # *scaled* was rounded up to the next number
        below, rest = below - 1.0, rest + whole
    above = below + 1.0
    lower, upper = (below / unit, above / unit) if digits > 0 else (below * unit, above * unit)
    if size in (lower, upper):
        return size
    apart = 0.5 * whole - rest
    is_half = np.rint(10.0 * rest / whole) == 5.0 and size + (apart / unit if digits > 0 else apart) == size
    if is_half:
        return lower if even and below % 2.0 == 0.0 else upper
    return upper if apart < 0.0 else lower


@uncounted
def _half_after(below: float, digits: int, unit: float) -> Any:
    """The nearest double to the decimal halfway after *below* units."""
    if digits == 0:
        return below + 0.5
    if digits > 0:
        return (10.0 * below + 5.0) / (10.0 * unit)
    return (10.0 * below + 5.0) * (unit / 10.0)


@entry
def calculate_one(function: int, values: Any, results: Any) -> None:
    """Fill *results* with a function of *values*."""
    for at in range(len(values)):
        results[at] = of_one(function, values[at])


@entry
def calculate_two(function: int, x: Any, y: Any, results: Any) -> None:
    """Fill *results* with a function of the pairs of *x* and *y*."""
    for at in range(len(x)):
        results[at] = of_two(function, x[at], y[at])
