"""What a user reads when joins are described wrongly on Spark: the text of every error.

See ``tests/patterns/test_pattern_texts.py``; ``tests/joins/test_join_texts.py`` has the errors that need no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from asterism import KeyedStream, as_of_join, interval_join
from tests.kit import Golden

pytestmark = pytest.mark.spark
BETWEEN = timedelta(0), timedelta(hours=1)


def provocations(spark: SparkSession) -> dict[str, Callable[[], object]]:
    left = KeyedStream(spark.createDataFrame([], "id BIGINT, ts TIMESTAMP"), "id", "ts")
    df = spark.createDataFrame([], "id BIGINT, at TIMESTAMP, version INT")
    right, ordered = KeyedStream(df, "id", "at"), KeyedStream(df, "id", "at", order_by=["version"])
    return {
        "not_a_keyed_stream": lambda: interval_join(left, df, BETWEEN),  # type: ignore[arg-type]
        "order_by": lambda: interval_join(left, ordered, BETWEEN),
        "order_by_of_the_left_side": lambda: as_of_join(ordered, left),
        "no_output": lambda: interval_join(left, right, BETWEEN).run({"late": lambda df, batch_id: None}),
        "drain": lambda: interval_join(left, right, BETWEEN, drain="yes"),  # type: ignore[arg-type]
    }


def test_texts(spark: SparkSession, golden: Golden) -> None:
    found = provocations(spark)
    for name, provocation in found.items():
        golden.error(name, provocation)
    assert golden.names() == set(found)


def test_a_join_is_not_a_dataframe(spark: SparkSession) -> None:
    side = KeyedStream(spark.createDataFrame([], "id BIGINT, ts TIMESTAMP"), "id", "ts")
    joined = as_of_join(side, side, prefix="other_", tolerance=timedelta(hours=1), how="left")
    assert repr(joined) == "JoinedStream(left as-of join: the last version, at most timedelta(hours=1) before)"
    with pytest.raises(
        AttributeError, match=r"a joined stream is not a DataFrame and has no select\(\); its rows are .results"
    ):
        joined.select("id")
