"""The mathematical functions: DuckDB, compiled code and the same code in Python give the same bits."""

from __future__ import annotations

import decimal
import math
import random
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from asterism.columns.compiled import _in_python
from asterism.expressions import kernels
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.math_functions import MathFunction
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse

EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, -1e-9, 5e-324, 2.2e-308, 27.0, 1000.0, -8.0, 1e300, -1e300, 709.7, 709.8, 710.4, 710.5,
    2.0**28, 2.0**29, -(2.0**30), 2.0000001, 1.0000001, 1e22, math.pi, math.inf, -math.inf, math.nan,
]  # fmt: skip


def numbers(seed: int) -> list[float]:
    rng = random.Random(seed)
    spread = [math.ldexp(rng.uniform(-1, 1), rng.randrange(-60, 60)) for _ in range(300)]
    return [*EDGES, *(rng.uniform(-1, 1) for _ in range(300)), *(rng.uniform(-800, 800) for _ in range(300)), *spread]


def by_duckdb(text: str, x: list[float], y: list[float]) -> list[float | None]:
    table = pa.table({"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64())})
    vectorized = Vectorized(table.schema)
    vectorized.add(Scope(table.schema).resolve(parse(text), text), text)
    found: list[float | None] = vectorized.evaluate(table)[0].to_pylist()
    return found


def bits(value: float | None) -> bytes | None:
    """Of one NaN, whichever it is."""
    return None if value is None else struct.pack("<d", math.nan if math.isnan(value) else value)


@pytest.mark.parametrize("function", MathFunction, ids=lambda function: function.name)
def test_evaluators_agree(function: MathFunction) -> None:
    x, y = numbers(1), numbers(2)
    random.Random(3).shuffle(y)
    if function.takes_two:
        entry, arguments = kernels.calculate_two, [np.array(x), np.array(y)]
        is_null = [kernels.is_null_of_two(int(function), a, b) for a, b in zip(x, y, strict=True)]
    else:
        entry, arguments = kernels.calculate_one, [np.array(x)]
        is_null = [kernels.is_null_of(int(function), a) for a in x]
    results, in_python = np.empty(len(x)), np.empty(len(x))
    entry.compiled(int(function), *arguments, results)  # type: ignore[attr-defined]
    _in_python(entry.py_func, (int(function), *arguments, in_python))  # type: ignore[attr-defined]
    name = function.name.lower()
    duckdb = by_duckdb(f"{name}(x, y)" if function.takes_two else f"{name}(x)", x, y)
    compiled = [None if null else value for null, value in zip(is_null, results.tolist(), strict=True)]
    written = [None if null else value for null, value in zip(is_null, in_python.tolist(), strict=True)]
    wrong = [
        (a, b, values)
        for a, b, *values in zip(x, y, compiled, written, duckdb, strict=True)
        if len({bits(value) for value in values}) > 1
    ]
    assert not wrong[:5]


@pytest.mark.parametrize("digits", [-12, -3, -1, 0, 1, 2, 5, 12])
@pytest.mark.parametrize("even", [False, True])
def test_rounding(digits: int, even: bool) -> None:
    """Of the shortest decimal, in both evaluators."""
    rng = random.Random(digits)
    halves = [float(f"{rng.randrange(-(10**6), 10**6)}.{rng.randrange(10**4)}5") for _ in range(200)]
    some = [*numbers(4), *halves, *(value * 10.0**-digits for value in halves)]
    # Near halves whose shortest decimal has 15 to 18 digits.
    units = [rng.randrange(10**14, 2 * 10 ** rng.choice([14, 15, 16])) for _ in range(200)]
    large = [float(f"{unit}.{rng.choice(['5', '5', '49', '45', '51'])}e{-digits}") for unit in units]
    x = [*some, *large, *(math.nextafter(value, rng.choice([0.0, math.inf])) for value in large)]
    kernel = [kernels.round_double(value, digits, even) for value in x]
    duckdb = by_duckdb(f"{'bround' if even else 'round'}(x, {digits})", x, x)
    mode = "ROUND_HALF_EVEN" if even else "ROUND_HALF_UP"
    for value, ours, other in zip(x, kernel, duckdb, strict=True):
        assert bits(ours) == bits(other), value
        if math.isfinite(value) and abs(value) < 1e30:
            exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), mode, decimal.Context(prec=60))
            assert ours == float(exact), value


def test_cube_roots_of_cubes_are_exact() -> None:
    assert [kernels.of_one(int(MathFunction.CBRT), float(n**3)) for n in range(2000)] == list(range(2000))
