"""What a user reads when a call of a table function is wrong: the text of every error.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from asterism import register_function, sql
from tests.kit import Golden
from tests.spark.test_table_functions import ROWS, Big, functions

__all__ = ["functions"]

WRONG = {
    "no_partition_by": "TABLE(big(TABLE clicks ORDER BY ts))",
    "partition_by_of_a_broadcast_input": "TABLE(paid(TABLE a PARTITION BY id, TABLE b PARTITION BY id, TABLE c PARTITION BY id))",
    "no_table": "TABLE(big(5))",
    "unknown_input": "TABLE(big(click => TABLE clicks PARTITION BY user))",
    "unknown_argument": "TABLE(big(TABLE clicks PARTITION BY user, leest => 5))",
    "too_many_tables": "TABLE(big(TABLE clicks PARTITION BY user, TABLE clicks PARTITION BY user))",
    "too_many_constants": "TABLE(paid(TABLE clicks PARTITION BY user, TABLE clicks PARTITION BY user, TABLE clicks, 5))",
    "twice": "TABLE(big(TABLE clicks PARTITION BY user, 5, least => 5))",
    "two_tables": "TABLE(big(clicks => TABLE clicks PARTITION BY user, clicks => TABLE clicks PARTITION BY user))",
    "unknown_column": "TABLE(big(TABLE clicks PARTITION BY usr))",
    "unknown_time": "TABLE(big(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(tx)))",
    "two_times": "TABLE(big(TABLE clicks PARTITION BY user ORDER BY ts, on_time => DESCRIPTOR(ts)))",
    "on_time": "TABLE(big(TABLE clicks PARTITION BY user, on_time => ts))",
    "descriptor": "TABLE(big(TABLE clicks PARTITION BY user, DESCRIPTOR(ts)))",
    "descending": "TABLE(big(TABLE clicks PARTITION BY user ORDER BY ts DESC))",
    "not_a_constant": "TABLE(big(TABLE clicks PARTITION BY user, least => value + 1))",
    "constructor": "TABLE(broken(TABLE clicks PARTITION BY user, 5))",
    "several_outputs": "TABLE(paid(TABLE orders PARTITION BY id, TABLE orders PARTITION BY id, TABLE orders))",
    "unknown_output": "TABLE(big(TABLE clicks PARTITION BY user, output => 'raws'))",
    "partition_by_expression": "TABLE(big(TABLE clicks PARTITION BY (user || 'x')))",
    "no_comma": "TABLE(big(TABLE clicks AS c PARTITION BY user))",
    "empty_argument": "TABLE(big(TABLE clicks PARTITION BY user, ))",
    "around": "TABLE(big(TABLE clicks PARTITION BY user), 5)",
    "no_name": "TABLE(big(TABLE 5 PARTITION BY user))",
    "misspelled_function": "TABLE(bigg(TABLE clicks PARTITION BY user))",
    "case_of_a_view": None,
}  # fmt: skip


def broken(least: int) -> Big:
    raise ValueError(f"least: {least}")


@pytest.mark.spark
def test_texts(spark: SparkSession, golden: Golden) -> None:
    register_function("broken", broken)
    clicks = spark.createDataFrame(ROWS)
    orders = spark.sql("SELECT 1 AS id, 2 AS amount, 3 AS number, 4 AS paid, 5 AS rate")
    for name, call in WRONG.items():
        text = (
            f"SELECT * FROM {call}"
            if call
            else "CREATE TEMP VIEW v AS SELECT * FROM big(TABLE clicks PARTITION BY user)"
        )
        golden.error(name, lambda text=text: sql(text, spark, clicks=clicks, orders=orders))  # type: ignore[misc]
    assert golden.names() == set(WRONG)
