"""What users' functions answer is kept as a whole, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from asterism.errors import OperatorError
from asterism.testing import OperatorHarness
from asterism.windows.assigners import TumblingWindows
from asterism.windows.operator import WindowOperator
from asterism.windows.plan import FIRINGS
from asterism.windows.user_functions import table_of

N = pa.schema({"n": "int64"})
NESTED = pa.schema({"n": pa.struct({"a": pa.list_(pa.int32()), "b": pa.map_(pa.string(), pa.date32())})})
NOON = datetime(2025, 1, 1, 12)

KEPT: list[tuple[Any, pa.Schema, list[Any]]] = [
    ({"n": 2.0}, N, [2]),
    ([{"n": np.int32(2)}, {"n": None}], N, [2, None]),
    ([], N, []),
    (({"n": 1}, {"n": Decimal(2)}), N, [1, 2]),
    (pa.table({"n": [1.0, None]}), N, [1, None]),
    (pa.RecordBatch.from_pydict({"n": [1]}), N, [1]),
    (pd.DataFrame({"n": [1.0, None]}), N, [1, None]),
    ({"n": {"a": [1, None], "b": {"x": date(2025, 1, 1)}}}, NESTED, [{"a": [1, None], "b": [("x", date(2025, 1, 1))]}]),
    ({"n": datetime(2025, 1, 1)}, pa.schema({"n": pa.date32()}), [date(2025, 1, 1)]),
    ({"n": NOON.replace(tzinfo=UTC)}, pa.schema({"n": pa.timestamp("us", "UTC")}), [NOON.replace(tzinfo=UTC)]),
    ({"n": 0.1}, pa.schema({"n": pa.float32()}), [pytest.approx(0.1)]),
    ({"n": timedelta(seconds=1.5)}, pa.schema({"n": pa.duration("us")}), [timedelta(seconds=1.5)]),
]

LOST: list[tuple[Any, pa.Schema]] = [
    ({"n": 1.9}, N),
    ({"n": Decimal("1.9")}, N),
    ({"n": np.float32(1.5)}, N),
    ({"n": float("nan")}, N),
    ({"n": 2**70}, N),
    (pa.table({"n": [1.9]}), N),
    (pd.DataFrame({"n": [1.9]}), N),
    (pd.DataFrame({"n": pd.Series([1.9], dtype=object)}), N),
    ({"n": {"a": [1.5], "b": {}}}, NESTED),
    ({"n": {"a": [], "b": {"x": NOON}}}, NESTED),
    ({"n": {"a": []}}, NESTED),
    ({"n": {"a": [], "b": {}, "c": 1}}, NESTED),
    ({"n": NOON}, pa.schema({"n": pa.date32()})),
    ({"n": NOON + timedelta(microseconds=5)}, pa.schema({"n": pa.timestamp("ms")})),
    ({"m": 1}, N),
    ({}, N),
    ({"n": 1, "m": 1}, N),
    (pa.table({"n": [1], "m": [1]}), N),
    (pa.table([[1], [2]], names=["n", "n"]), N),
    (pd.DataFrame({"n": [1], "m": [1]}), N),
    (pd.DataFrame({"m": [1]}), N),
    (5, N),
    ([1, 2], N),
    pytest.param(iter([{"n": 1}]), N, id="an iterator"),
]


@pytest.mark.parametrize(("answer", "schema", "kept"), KEPT, ids=str)
def test_what_fits_is_kept(answer: Any, schema: pa.Schema, kept: list[Any]) -> None:
    assert table_of("f", answer, schema).column("n").to_pylist() == kept


@pytest.mark.parametrize(("answer", "schema"), LOST, ids=lambda one: str(one)[:40])
def test_what_would_be_lost_is_refused(answer: Any, schema: pa.Schema) -> None:
    with pytest.raises(OperatorError, match="] f returned"):
        table_of("f", answer, schema)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_each_answer_of_a_reduce_function_is_checked_wherever_micro_batches_end(cut: int) -> None:
    """Also one that another answer follows."""

    def halves(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {**a, "v": (a["v"] + b["v"]) / 2}

    schema = pa.schema({"t": "int64", "v": "int64"})
    operator = WindowOperator(TumblingWindows.of(timedelta(seconds=1)), schema, time="t", reduce=halves)
    elements = pa.table({"t": [1, 2, 3], "v": [1, 2, 1]}, schema)
    with pytest.raises(OperatorError, match=r"returned 1\.5"):
        OperatorHarness(operator).feed(elements.slice(0, cut)).feed(elements.slice(cut)).end()
    whole = pa.table({"t": [1, 2, 3], "v": [1, 3, 2]}, schema)
    found = OperatorHarness(operator).feed(whole.slice(0, cut)).feed(whole.slice(cut)).end().rows(FIRINGS)
    assert [row["v"] for row in found] == [2]
