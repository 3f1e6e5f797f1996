"""What a user of joins reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from asterism.joins.kinds import AsOfJoin, IntervalJoin, WindowJoin
from asterism.joins.operator import JoinOperator
from asterism.operators.multiple_input import Wire
from asterism.testing import OperatorHarness
from asterism.windows.assigners import GlobalWindows, SessionWindows, TumblingWindows
from tests.kit import Golden, Provocation

SECOND = timedelta(seconds=1)
LEFT = pa.schema({"id": pa.int64(), "ts": pa.int64(), "amount": pa.float64()})
RIGHT = pa.schema({"id": pa.int64(), "at": pa.int64(), "paid": pa.float64()})
NAIVE = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us")})
WIRE, OTHER = Wire(LEFT, ["id"], "ts"), Wire(RIGHT, ["id"], "at")
KIND = IntervalJoin(0, 5)


def join(left: Wire = WIRE, right: Wire = OTHER, **options: object) -> JoinOperator:
    return JoinOperator(left, right, **{"kind": KIND, **options})  # type: ignore[arg-type] # wrong types are the point


def without_time() -> object:
    return OperatorHarness(join(), keys=["id"]).feed(pa.table({"id": [1], "ts": [None], "amount": [1.0]}, LEFT), "left")


TEXTS: dict[str, Provocation] = {
    "between": lambda: IntervalJoin.of(SECOND),
    "between_texts": lambda: IntervalJoin.of((-SECOND, "2 hours")),
    "between_numbers": lambda: IntervalJoin.of((0, 5)),
    "empty_interval": lambda: IntervalJoin.of((5 * SECOND, -5 * SECOND)),
    "exclusive_interval": lambda: IntervalJoin.of((0 * SECOND, 0 * SECOND), upper_exclusive=True),
    "exclusive_type": lambda: IntervalJoin.of((0 * SECOND, SECOND), upper_exclusive=5),  # type: ignore[arg-type]
    "bound_out_of_range": lambda: IntervalJoin.of((timedelta.min, SECOND)),
    "tolerance": lambda: AsOfJoin.of(5),  # type: ignore[arg-type]
    "negative_tolerance": lambda: AsOfJoin.of(-SECOND),
    "not_windows": lambda: WindowJoin(SECOND),  # type: ignore[arg-type]
    "global_windows": lambda: WindowJoin(GlobalWindows()),
    "dynamic_gap": lambda: WindowJoin(SessionWindows.with_dynamic_gap("gap")),
    "zone_of_windows": lambda: join(
        Wire(NAIVE, ["id"], "ts"), kind=WindowJoin(TumblingWindows.of(timedelta(days=1), zone="Europe/Berlin"))
    ),
    "how": lambda: join(how="outer"),
    "how_of_versions": lambda: join(kind=AsOfJoin(), how="full"),
    "prefix": lambda: join(prefix=5),
    "order_by": lambda: join(order_by="paid"),
    "order_by_unknown": lambda: join(order_by=["paid_at"]),
    "no_event_time": lambda: join(right=Wire(RIGHT, ["id"])),
    "keys_differ": lambda: join(right=Wire(RIGHT, ["paid"], "at")),
    "equal_names": lambda: join(right=Wire(LEFT, ["id"], "ts")),
    "equal_names_but_for_case": lambda: join(
        right=Wire(pa.schema({"id": pa.int64(), "at": pa.int64(), "Amount": pa.int64()}), ["id"], "at")
    ),
    "name_of_the_window": lambda: join(
        Wire(pa.schema({"id": pa.int64(), "window_end": pa.int64()}), ["id"], "window_end"),
        kind=WindowJoin(TumblingWindows.of(SECOND)),
    ),
    "condition_type": lambda: join(on=5),
    "condition_not_boolean": lambda: join(on="amount - paid"),
    "condition_unknown_column": lambda: join(on="amount = payed"),
    "condition_syntax": lambda: join(on="amount ="),
    "condition_aggregate": lambda: join(on="sum(amount) > 5"),
    "null_time": without_time,
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(golden: Golden, name: str) -> None:
    golden.error(name, TEXTS[name])
