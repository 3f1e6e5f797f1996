"""A query is fast however it is started: ``asterism.run``, and ``writeStream`` of a DataFrame with operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import asterism
from asterism.errors import CheckpointRequiredError, StreamDefinitionError
from tests.kit import until
from tests.spark.streams import (
    DISORDER,
    Collect,
    events,
    shuffle_partitions,
    stream_of,
    write_files,
)

pytestmark = pytest.mark.spark

COUNTS = """
SELECT user, n FROM events MATCH_RECOGNIZE (
    PARTITION BY user ORDER BY ts MEASURES COUNT(*) AS n PATTERN (a b) DEFINE a AS kind = 'view', b AS kind = 'buy'
)
"""


@pytest.fixture(autouse=True)
def session_as_spark_makes_it(spark: SparkSession) -> Iterator[None]:
    with shuffle_partitions(spark, 200):
        yield


def frame_of(spark: SparkSession, path: Path) -> DataFrame:
    return stream_of(spark, path).df


def tasks_of(query: StreamingQuery) -> set[int]:
    progress = query.lastProgress
    assert progress is not None
    return {operator.numShufflePartitions for operator in progress.stateOperators}


def test_write_stream_has_the_settings_of_a_run(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(400), tmp_path / "in", [])
    counts = asterism.sql(COUNTS, spark, events=frame_of(spark, tmp_path / "in"), key_groups=4)
    seen = counts.where("n > 0").withColumn("twice", F.col("n") * 2).select("user", "twice")
    writer = seen.writeStream.format("memory").queryName("seen").option("checkpointLocation", str(tmp_path / "cp"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert tasks_of(query) == {2}
    assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
    query = seen.writeStream.format("noop").trigger(availableNow=True).start(checkpointLocation=str(tmp_path / "cp2"))
    query.awaitTermination()
    assert tasks_of(query) == {2}


def test_a_run_of_a_statement_gives_the_rows_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """In a run on the first half of the events, and another on the rest that ends the input; each sink gets all rows."""
    table, first, second = events(400), Collect(), Collect()
    write_files(table.slice(0, 200), tmp_path / "in", [100])
    frame = frame_of(spark, tmp_path / "in")
    for drain in (False, True):
        rows = asterism.sql(COUNTS, spark, events=frame, max_out_of_orderness=DISORDER, key_groups=4)
        assert asterism.run(rows, [first, second], checkpoint=str(tmp_path / "cp"), drain=drain) is None
        if not drain:
            write_files(table.slice(200), tmp_path / "in", [], first=7)
    expected = asterism.sql(COUNTS, spark, events=spark.createDataFrame(table)).toArrow().to_pylist()
    assert sorted(first.rows, key=str) == sorted(expected, key=str) != []
    assert first.rows == second.rows


def test_a_query_that_was_started_otherwise_is_reported_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a temporary view, a DataFrame does not know what it is made of."""
    write_files(events(20), tmp_path / "in", [])
    with shuffle_partitions(spark, 5):
        rows = asterism.sql(COUNTS, spark, events=frame_of(spark, tmp_path / "in"), key_groups=2)
        rows.createOrReplaceTempView("counts_of_events")
        writer = spark.table("counts_of_events").writeStream.format("noop").queryName("lost")
        query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        query.awaitTermination()
    told: list[str] = []
    until(lambda: told.append(capsys.readouterr().err) or told[-1])
    assert told[-1] == (
        "asterism: the query lost has 5 stateful tasks for 2 key groups, which takes seconds per micro-batch. Start it with "
        "asterism.run(df, sink, checkpoint=...), or on a new checkpoint after "
        'spark.conf.set("spark.sql.shuffle.partitions", 2).\n'
    )


def test_a_table_is_passed_to_the_sink_once(spark: SparkSession) -> None:
    rows = Collect()
    assert asterism.run(spark.range(3), rows) is None
    assert rows.rows == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_stream_without_operators(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(20), tmp_path / "in", [10])
    rows = Collect()
    assert asterism.run(frame_of(spark, tmp_path / "in").select("id"), rows, checkpoint=str(tmp_path / "cp")) is None
    assert sorted(row["id"] for row in rows.rows) == list(range(20))


def test_bad_arguments(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(StreamDefinitionError, match="the first argument must be a DataFrame"):
        asterism.run("SELECT 1", print)  # type: ignore[arg-type]
    with pytest.raises(CheckpointRequiredError, match="a stream needs a checkpoint location"):
        asterism.run(stream, print)  # type: ignore[arg-type]
    with pytest.raises(StreamDefinitionError, match='the sink of "rows" must be a function'):
        asterism.run(stream, 5, checkpoint=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(StreamDefinitionError, match="cannot end its input, because it does not end"):
        asterism.run(stream, print, checkpoint=str(tmp_path), trigger={"processingTime": "1 second"}, drain=True)  # type: ignore[arg-type]
