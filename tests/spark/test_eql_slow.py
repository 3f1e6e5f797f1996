"""EQL over DataFrames: the conditions that Spark evaluates itself, and a stream."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import eql
from asterism.elastic.events import EventPlan, plan_of
from tests.elastic.kit import CASES, EVENTS


def test_conditions_are_those_over_tables(spark: SparkSession) -> None:
    df = spark.createDataFrame(EVENTS)
    plans = {query: plan_of(query, EVENTS.schema, time="n") for query in CASES}
    simple = {query: plan for query, plan in plans.items() if isinstance(plan, EventPlan) and not plan.pipes}
    columns = [
        F.coalesce(F.expr(plan.condition), F.lit(False)).alias(f"c{number}")
        for number, plan in enumerate(simple.values())
    ]
    rows = df.select("n", *columns).orderBy("n").collect()
    for number, query in enumerate(simple):
        assert [row["n"] for row in rows if row[f"c{number}"]] == CASES[query], query


def test_sequences_of_a_stream_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Two micro-batches with a restart between them, and keys that differ between the events."""
    seconds = [0, 1, 2, 2, 3, 5, 6, 9, 20, 21]
    events = pa.table(
        {
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "pid": [1, 2, 3, 4, 5, 1, 6, 7, 8, 9],
            "ppid": [0, 1, 1, 2, 2, 0, 1, 6, 0, 8],
        }
    )
    query = "sequence with maxspan=8s [any where true] by pid [any where true] by ppid [any where ppid > 0] by ppid"
    columns = ["sequence", "event_number", "pid"]
    expected = eql(query, events, time="ts").select(columns).to_pylist()
    assert expected
    folder = tmp_path / "events"
    folder.mkdir()
    for number, part in enumerate((events.slice(0, 5), events.slice(5))):
        pq.write_table(part, folder / f"{number}.parquet")  # type: ignore[no-untyped-call]
        stream = spark.readStream.schema("ts TIMESTAMP, pid BIGINT, ppid BIGINT").parquet(str(folder))
        found = eql(query, stream, time="ts", key_groups=2).select(*columns)
        options = {"path": str(tmp_path / "found"), "checkpointLocation": str(tmp_path / "checkpoint")}
        running = found.writeStream.format("parquet").options(**options).trigger(availableNow=True).start()
        assert running.awaitTermination(120)
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / "found")).collect()]
    key = lambda row: (row["pid"], row["event_number"], row["sequence"])  # noqa: E731
    decided = [row for row in expected if row["pid"] not in (8, 9)]  # the others wait for the watermark
    assert sorted(rows, key=key) == sorted(decided, key=key)
