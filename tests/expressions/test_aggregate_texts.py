"""What a user of SQL aggregates reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism.expressions.aggregates import Aggregates
from tests.kit import Golden

SCHEMA = pa.schema(
    [
        ("item", pa.string()),
        ("amount", pa.int64()),
        ("price", pa.decimal128(38, 2)),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("clock", pa.time64("us")),
    ]
)

BUILT: dict[str, str] = {
    "unknown_function": "count(*) + summ(amount)",
    "unknown_function_inside": "sum(medain(amount))",
    "unsupported_function": "kurtosis(amount)",
    "unknown_column": "sum(amont)",
    "unknown_column_outside": "sum(amount) + amont",
    "unknown_table": "sum(shop.amount)",
    "column_outside": "sum(amount) / Amount",
    "nested": "sum(amount) + max(10 * min(amount))",
    "nested_in_filter": "sum(amount) FILTER (WHERE amount > avg(amount))",
    "window": "sum(amount) OVER (ORDER BY item)",
    "within_group": "mean(amount) WITHIN GROUP (ORDER BY item)",
    "order_by_of_sum": "sum(amount ORDER BY item)",
    "order_by_of_distinct": "array_agg(DISTINCT item ORDER BY amount)",
    "order_by_of_no_aggregate": "upper(item ORDER BY amount)",
    "order_by_array": "array_agg(item ORDER BY tags)",
    "order_by_unknown": "array_agg(item ORDER BY amont)",
    "order_by_aggregate": "array_agg(item ORDER BY sum(amount))",
    "order_by_limit": "array_agg(item ORDER BY amount LIMIT 1)",
    "filter_without_where": "sum(amount) FILTER (ok)",
    "filter_no_condition": "sum(amount) FILTER (WHERE amount)",
    "subquery": "(SELECT sum(amount) FROM sales)",
    "subquery_inside": "sum((SELECT 1))",
    "star": "max(*)",
    "star_inside": "count(amount + *)",
    "star_alone": "*",
    "distinct_star": "count(DISTINCT *)",
    "distinct_array": "count(DISTINCT tags)",
    "no_argument": "count()",
    "too_many_arguments": "max_by(item, amount, ok)",
    "missing_argument": "count(amount,)",
    "name_inside": "sum(amount AS a)",
    "name_missing": "sum(amount) AS",
    "call_as_name": "sum(amount) AS max(amount)",
    "bracket_open": "round(sum(amount), 2",
    "bracket_of_call_open": "2 * (sum(amount",
    "string_open": "max('a)",
    "two_expressions": "sum(amount); max(amount)",
    "too_long": "sum(amount)" + " + 1" * 5000,
    "too_many_calls": " + ".join(["sum(amount)"] * 101),
    "too_deep": "sum(" + "(" * 51 + "amount" + ")" * 52,
    "on_several_lines": "sum(amount)\n  + summ(price)",
    "not_pure": "sum(rand())",
    "not_pure_outside": "count(*) + rand()",
    "sum_of_text": "sum(item)",
    "min_of_array": "min(tags)",
    "condition_needed": "bool_and(amount)",
    "type_without_sql": "last(clock)",
    "types_around": "max(item) + 1",
    "nulls_elsewhere": "sum(amount) IGNORE NULLS",
    "nulls_twice": "first(amount, TRUE) IGNORE NULLS",
    "percentage_of_element": "percentile(amount, price)",
    "percentage_too_large": "percentile(amount, 50)",
    "percentage_null": "percentile(amount, CAST(NULL AS DOUBLE))",
    "percentage_text": "percentile(amount, 'half')",
    "percentile_of_text": "percentile_approx(item, 0.5)",
    "accuracy": "percentile_approx(amount, 0.5, 0)",
    "sketch_error": "approx_count_distinct(item, 0.001)",
    "sketch_error_text": "approx_count_distinct(item, 'small')",
}


def computed(measure: str, **columns: list[Any]) -> Callable[[], object]:
    """The measure of one group."""

    def compute() -> object:
        rows = len(next(iter(columns.values())))
        elements = pa.table([pa.array(columns.get(f.name, [None] * rows), f.type) for f in SCHEMA], schema=SCHEMA)
        aggregates = Aggregates([measure], SCHEMA)
        offsets = np.array([0, rows])
        return aggregates.finish(aggregates.fold(np.zeros(rows, np.int64), 1, elements), offsets, elements)

    return compute


COMPUTED: dict[str, Callable[[], object]] = {
    "sum_too_large": computed("1 + sum(amount)", amount=[2**62, 2**62]),
    "sum_of_decimals_too_large": computed("sum(price)", price=[Decimal(9 * 10**35)] * 2),
    "avg_of_decimals_too_large": computed("avg(price)", price=[Decimal(9 * 10**35)] * 2),
    "avg_without_room": computed("avg(price)", price=[Decimal(9 * 10**35)]),
    "argument_fails": computed("count(*) + sum(1 / amount)", amount=[1, 0]),
    "argument_of_rows_fails": computed("median(1 / amount)", amount=[1, 0]),
    "result_fails": computed("sum(amount) / count_if(ok)", amount=[1, 0]),
}


TEXTS = COMPUTED | {name: partial(Aggregates, [text], SCHEMA) for name, text in BUILT.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
