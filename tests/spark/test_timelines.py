"""Timelines of DataFrames."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from asterism import timeline
from asterism.errors import StreamDefinitionError
from asterism.trace.timeline import MAX_ROWS

pytestmark = pytest.mark.spark


def test_the_first_matches_of_a_data_frame(spark: SparkSession) -> None:
    found = spark.range(MAX_ROWS + 10, 0, -1).selectExpr(
        "id % 2 AS user", "timestamp_seconds(id) AS `from`", "timestamp_seconds(id + 5) AS `to`"
    )
    drawn = timeline(found, "user", start="from", end="to")
    assert drawn.rows.num_rows == MAX_ROWS
    assert drawn.has_more
    assert "more than 1,000 matches" in drawn.to_svg()
    assert [time.timestamp() for time in drawn.rows["from"].slice(0, 2).to_pylist()] == [1, 2]


def test_a_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(StreamDefinitionError, match="a stream cannot be drawn"):
        timeline(spark.readStream.format("rate").load())
