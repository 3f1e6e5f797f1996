"""What a user of joins of many streams reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism.testing import JoinHarness, OperatorHarness
from tests.joins.test_multi_join import BETWEEN, INPUTS, MINUTE, SCHEMA, harness_of, operator
from tests.kit import Golden, Provocation

OTHER = {**INPUTS, "refunds": {"key": "id", "time": "back", "columns": "id BIGINT, back TIMESTAMP, amount INT"}}
TEXTS: dict[str, Provocation] = {
    "not_a_dict": lambda: JoinHarness.multi_join(["orders"], BETWEEN),  # type: ignore[arg-type]
    "one_input": lambda: JoinHarness.multi_join({"orders": INPUTS["orders"]}, BETWEEN),
    "name": lambda: JoinHarness.multi_join({**INPUTS, "the rest": INPUTS["orders"]}, BETWEEN),
    "no_time": lambda: JoinHarness.multi_join({**INPUTS, "orders": {"key": "id", "columns": "id BIGINT"}}, BETWEEN),
    "keys_differ": lambda: JoinHarness.multi_join({**INPUTS, "orders": {**INPUTS["orders"], "key": "amount"}}, BETWEEN),
    "between": lambda: harness_of(between=MINUTE),
    "between_a_name": lambda: harness_of(between={"orders": (MINUTE, MINUTE)}),
    "between_unknown": lambda: harness_of(between={("orders", "payment"): (MINUTE, MINUTE)}),
    "between_itself": lambda: harness_of(between={("orders", "orders"): (MINUTE, MINUTE)}),
    "between_twice": lambda: harness_of(between={**BETWEEN, ("payments", "orders"): (MINUTE, MINUTE)}),
    "between_missing": lambda: harness_of(between={("orders", "payments"): (MINUTE, MINUTE)}),
    "between_numbers": lambda: harness_of(between={("orders", "payments"): (0, 5)}),
    "how": lambda: harness_of(how="left"),
    "how_of_an_input": lambda: harness_of(how={"payments": "full"}),
    "how_of_the_first_input": lambda: harness_of(how={"orders": "left"}),
    "how_unknown": lambda: harness_of(how={"payment": "left"}),
    "on_of_the_first_input": lambda: harness_of(on={"orders": "amount > 5"}),
    "on_type": lambda: harness_of(on={"payments": "paid + amount"}),
    "on_of_a_later_input": lambda: harness_of(on={"payments": "place = 'x'"}),
    "prefix": lambda: harness_of(prefix={"payments": 5}),
    "equal_names": lambda: JoinHarness.multi_join(OTHER, {**BETWEEN, ("orders", "refunds"): (MINUTE, MINUTE)}),
    "max_rows": lambda: harness_of(max_rows=0),
    "null_time": lambda: OperatorHarness(operator(), keys=["id"]).feed(
        pa.table({"id": [1], "ts": [None], "value": [1]}, SCHEMA), "a"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text(golden: Golden, name: str) -> None:
    golden.error(name, TEXTS[name])
