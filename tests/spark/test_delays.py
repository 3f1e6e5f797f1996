"""Spark's watermark, in milliseconds, is never later than the documented one, in microseconds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from asterism import BroadcastStream, KeyedStream
from asterism.columns.time import micros
from asterism.errors import StreamDefinitionError
from asterism.spark.host.times import spark_delay
from asterism.streams.keyed_stream import MAX_DURATION

MILLISECOND = 1000
MICROSECOND = timedelta(microseconds=1)


@given(
    delay=st.timedeltas(timedelta(0), timedelta(hours=1)) | st.integers(0, 5000).map(lambda n: n * MICROSECOND),
    latest=st.integers(-(2**55), 2**55) | st.integers(-5000, 5000),
)
def test_spark_s_watermark(delay: timedelta, latest: int) -> None:
    documented = latest - micros(delay) - MILLISECOND
    of_spark = (latest // MILLISECOND - spark_delay(delay)) * MILLISECOND  # Spark rounds times down to milliseconds
    assert documented - 2 * MILLISECOND < of_spark <= documented


def test_durations_that_no_time_can_have(spark: SparkSession) -> None:
    df: DataFrame = spark.createDataFrame([], "user STRING, ts TIMESTAMP")
    for name in ("max_out_of_orderness", "idle_after"):
        for stream in (KeyedStream, BroadcastStream):
            stream(df, time="ts", **{name: MAX_DURATION})  # type: ignore[arg-type]
            for value in (MAX_DURATION + MICROSECOND, timedelta.max):
                with pytest.raises(StreamDefinitionError, match=f"{name} can be at most 53,375,994 days"):
                    stream(df, time="ts", **{name: value})  # type: ignore[arg-type]
