"""What a user reads when a clause over a stream is wrong, or its search cannot go on: the text of every error, as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import RowPatternOperator
from asterism.testing import OperatorHarness
from tests.kit import Golden, Provocation

SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()})


def streamed(text: str, *rows: tuple[str, int | None, int], **options: Any) -> Callable[[], object]:
    def run() -> object:
        harness = OperatorHarness(RowPatternOperator(check(read(text), SCHEMA), SCHEMA, **options))
        columns = zip(*rows, strict=True) if rows else ([],) * 3
        return harness.feed(pa.table([*map(list, columns)], schema=SCHEMA)).end()

    return run


ORDER = "PARTITION BY k ORDER BY ts, v"
FOUR = [("x", 1000 * n, n) for n in range(4)]
TEXTS: dict[str, Provocation] = {
    "no_order": streamed("MEASURES A.v AS v PATTERN (A)"),
    "order_by_a_string": streamed("ORDER BY k, ts MEASURES A.v AS v PATTERN (A)"),
    "order_by_an_expression": streamed("ORDER BY ts + 1 MEASURES A.v AS v PATTERN (A)"),
    "order_descending": streamed("ORDER BY ts DESC MEASURES A.v AS v PATTERN (A)"),
    "too_many_rows": streamed(
        f"{ORDER} MEASURES COUNT(*) AS n PATTERN (A X* B) DEFINE A AS v = 0, B AS v = 9", *FOUR, max_rows=2
    ),
    "too_many_rows_without_keys": streamed(
        "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A X* B) DEFINE A AS v = 0, B AS v = 9", *FOUR, max_rows=2
    ),
    "skip_fails": streamed(f"{ORDER} AFTER MATCH SKIP TO LAST B PATTERN (A B?) DEFINE B AS FALSE", *FOUR),
    "time_is_null": streamed(f"{ORDER} PATTERN (A)", ("x", None, 1)),
    "max_rows_is_0": streamed(f"{ORDER} PATTERN (A)", max_rows=0),
    "max_rows_is_text": streamed(f"{ORDER} PATTERN (A)", max_rows="many"),
    "on_limit_is_unknown": streamed(f"{ORDER} PATTERN (A)", on_limit="maybe"),
    "pages_are_negative": streamed(f"{ORDER} PATTERN (A)", pages=-1),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
