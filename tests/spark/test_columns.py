"""Columns by any name, and what is no name of a column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
)
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.spark.host.column_types import arrow_schema

pytestmark = pytest.mark.spark

NAMES = {"ts": "event.ts", "who": "who`s", "kind": "kind of.event"}
PAIR = (
    Pattern.begin("a").where("`kind of.event` = 'a'").followed_by("b").where("`kind of.event` = 'b'")
).within(timedelta(minutes=1))  # fmt: skip


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "events"
    spark.sql("""
        SELECT timestamp_seconds(id) AS ts, 'ann' AS who, substring('abxab', CAST(id AS INT) + 1, 1) AS kind FROM range(5)
    """).coalesce(1).write.parquet(str(path))
    return path


def streams(spark: SparkSession, folder: Path) -> list[KeyedStream]:
    """A table and a stream of the same events."""
    plain = "ts TIMESTAMP, who STRING, kind STRING"
    found = (spark.read.schema(plain).parquet(str(folder)), spark.readStream.schema(plain).parquet(str(folder)))
    return [KeyedStream(df.toDF(*NAMES.values()), NAMES["who"], NAMES["ts"]) for df in found]


def test_columns_have_the_types_in_which_spark_passes_them_to_python(spark: SparkSession) -> None:
    df = spark.sql("""
        SELECT true AS a, 1Y AS b, 1S AS c, 1 AS d, 1L AS e, float(1) AS f, 1D AS g, 1.5 AS h, 'x' AS i, X'00' AS j,
            current_date() AS k, current_timestamp() AS l, TIMESTAMP_NTZ '2025-01-01' AS m,
            array(current_timestamp(), NULL) AS n, map('x', current_timestamp()) AS o,
            named_struct('x', 1, 'y', NULLIF(1, 1)) AS p, INTERVAL '1' DAY AS q
    """)

    def schema(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"schema": [batch.schema.serialize().to_pybytes()]})

    (row,) = df.mapInArrow(schema, "schema BINARY").collect()
    passed, found = pa.ipc.read_schema(pa.py_buffer(row.schema)), arrow_schema(spark, df.schema)
    assert dict(zip(found.names, found.types, strict=True)) == dict(zip(passed.names, passed.types, strict=True))


def test_what_is_no_column_is_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([], "ts TIMESTAMP, who STRING")
    with pytest.raises(StreamDefinitionError, match="key must be a column or a list of columns"):
        KeyedStream(df, key=F.col("who"))  # type: ignore[arg-type]
    for options in ({"key": "who", "time": F.col("ts")}, {"key": ["who", 1]}):
        with pytest.raises(StreamDefinitionError, match="a column name must be a string"):
            KeyedStream(df, **options)
    with pytest.raises(StreamDefinitionError, match='"who" is named twice'):
        KeyedStream(df, key=["who", "who"])
    with pytest.raises(ColumnNotFoundError, match="did you mean 'who'"):
        KeyedStream(df, key="WHO")
    assert KeyedStream(df, key=None).keys == []


def test_what_is_no_sink_is_refused(spark: SparkSession, folder: Path) -> None:
    pattern = CEP.pattern(streams(spark, folder)[1], PAIR)
    for sinks, options, expected in (
        ({}, {}, "there is no sink"),
        ({"matches": "/path"}, {}, "the sink of \"matches\" must be a function, not '/path'"),
        ({"matches": print}, {"trigger": "1 second"}, "a trigger must be a dict, not '1 second'"),
    ):
        with pytest.raises(StreamDefinitionError, match=expected):
            pattern.run(sinks, checkpoint="unused", **options)  # type: ignore[arg-type]
