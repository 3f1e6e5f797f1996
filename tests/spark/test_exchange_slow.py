"""A query uses the sizes of chunks that the session sets."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_exchange import (
    BYTES,
    RECORDS,
    check_chunk_sizes,
)


@pytest.mark.spark
@pytest.mark.parametrize(("mine", "used"), [({BYTES: "1m"}, ("10000", "1m")), ({RECORDS: "50"}, ("50", "67108864b"))])
def test_a_query_sends_rows_without_a_look_at_their_size_unless_the_session_says_so(
    spark: SparkSession, tmp_path: Any, mine: dict[str, str], used: tuple[str, str]
) -> None:
    check_chunk_sizes(spark, tmp_path, mine, used)
