"""Rows are sorted as by ``lexsort``, whatever their numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from asterism.columns.arrays import Ints
from asterism.columns.groups import sorted_rows

COUNT = 3000
LIMITS = np.iinfo(np.int64)


def column(rng: np.random.Generator, low: int, high: int, step: int = 1) -> Ints:
    return rng.integers(low, high, COUNT, endpoint=True) * step


@pytest.mark.parametrize(
    "columns",
    [
        [(0, 300)],
        [(0, 300), (-10, 10, 600_000_000)],
        [(5, 5), (-(2**40), 2**40, 1024), (7, 7)],
        [(0, 2**30), (0, 2**30)],  # they do not fit into 64 bits
        [(0, 1), (LIMITS.min, LIMITS.max)],
        [(0, 1), (LIMITS.min, LIMITS.min + 3), (LIMITS.max - 3, LIMITS.max)],
        [(0, 2**51 - 1)],  # with the indexes of the rows, 63 bits
        [(0, 2**52 - 1)],
        [(0, 2**10), (-(2**31), 2**31, 1000), (0, 3)],  # they fit if the times are divided by 1000
        [(0, 2**20), (0, 2**40, 8)],
        [(0, 2**20), (0, 2**36, 8000)],
    ],
)
@pytest.mark.parametrize("count", [0, 1, 10, COUNT])
def test_the_order_is_that_of_lexsort(columns: list[tuple[int, ...]], count: int) -> None:
    rng = np.random.default_rng(len(columns))
    rows = [column(rng, *bounds)[:count] for bounds in columns]
    order, begins = sorted_rows(*rows)
    assert order.tolist() == np.lexsort(rows[::-1]).tolist()
    ordered = list(zip(*(each[order].tolist() for each in rows), strict=True))
    assert begins.tolist() == [number == 0 or ordered[number - 1] != row for number, row in enumerate(ordered)]
