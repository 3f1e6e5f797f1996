"""How often the last digits of mathematical functions differ from Spark's, and by how much: the numbers of ``docs/sql.md``.

``pytest -s tests/expressions/test_last_digits_slow.py`` prints them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from tests.kit import FACTOR

pytestmark = pytest.mark.spark
NUMBERS = 250_000 * FACTOR

LIMITS = {
    "exp(x)": 1, "expm1(x)": 1, "ln(x)": 1, "log10(x)": 2, "log2(x)": 2, "log1p(x)": 1, "log(abs(y), x)": 3,
    "pow(abs(x), y / 1e3)": 1,
    "sin(x)": 1, "cos(x)": 1, "tan(x)": 1, "cot(x)": 2, "sec(x)": 2, "csc(x)": 2, "asin(x / 1e3)": 1, "acos(x / 1e3)": 1,
    "atan(x)": 1, "atan2(x, y)": 1, "sinh(x / 2)": 2, "cosh(x / 2)": 2, "tanh(x / 50)": 3, "asinh(x)": 1, "acosh(x)": 1,
    "atanh(x / 1e3)": 2, "cbrt(x)": 1, "hypot(x, y)": 1, "sqrt(x)": 0, "radians(x)": 0, "degrees(x)": 0, "rint(x)": 0,
}  # fmt: skip
"""The distance that ``docs/sql.md`` promises, in units of the last place, for arguments between -1000 and 1000 of all sizes."""


def arguments(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def column() -> np.ndarray:
        even = rng.uniform(-1000, 1000, NUMBERS // 2)
        of_all_sizes = np.ldexp(rng.uniform(-1, 1, NUMBERS // 2), rng.integers(-40, 10, NUMBERS // 2))
        return np.concatenate([even, of_all_sizes])

    x, y = column(), column()
    rng.shuffle(y)
    return pa.table({"x": x, "y": y})


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In doubles; 0 for two NaN."""
    ranks = [np.where(v.view(np.int64) < 0, np.int64(-(2**63)) - v.view(np.int64), v.view(np.int64)) for v in (a, b)]
    apart = np.abs(ranks[0] - ranks[1])
    apart[np.isnan(a) & np.isnan(b)] = 0
    return apart


def test_last_digits(spark: SparkSession) -> None:
    table = arguments(7)
    frame = spark.createDataFrame(table)
    wrong = []
    for text, limit in LIMITS.items():
        vectorized = Vectorized(table.schema)
        vectorized.add(Scope(table.schema).resolve(parse(text), text), text)
        ours = vectorized.evaluate(table)[0]
        theirs = frame.select(F.expr(text)).toArrow().column(0)
        assert ours.is_null().equals(theirs.is_null()), text
        apart = distance(ours.fill_null(0.0).to_numpy(), theirs.fill_null(0.0).to_numpy())
        print(f"{text:24} differs for {np.mean(apart > 0):.3%}, by at most {apart.max()}")  # noqa: T201
        if apart.max() > limit:
            wrong.append(f"{text}: {apart.max()} > {limit}")
    assert not wrong
