"""The positions of sources: a query continues from a savepoint with the next record, and reads none twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, create_savepoint, restore_savepoint
from asterism.sinks import FileSink
from tests.savepoints.test_savepoints_slow import AB, EVENTS, SECOND, Query, of_pattern, parts
from tests.servers.kafka import Broker

pytestmark = pytest.mark.spark


def run(df: DataFrame, folder: Path, checkpoint: str, *, drain: bool, **options: Any) -> None:
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    stream = CEP.pattern(events, AB, **options)
    sinks = {name: FileSink(str(folder / name)) for name in ("matches", "timed_out")}
    stream.run(sinks, checkpoint=str(folder / checkpoint), drain=drain)


def rows_in(spark: SparkSession, folder: Path) -> Counter[str]:
    names = ("matches", "timed_out")
    rows = {name: spark.read.parquet(str(folder / name)).drop("batch").collect() for name in names}
    assert all(rows.values())
    return Counter(f"{name} {row}" for name, some in rows.items() for row in some)


def moved(spark: SparkSession, folder: Path, number: int) -> None:
    savepoint = str(folder / f"savepoint-{number}")
    create_savepoint(spark, str(folder / str(number)), savepoint)
    restore_savepoint(spark, savepoint, str(folder / str(number + 1)), key_groups=number + 3, tasks=2)


def test_partitions_of_a_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A partition that is added while the query is stopped is read from its beginning."""
    topic = "savepoint-positions"
    broker.create_topic(topic, 2)

    def send(number: int, partitions: int) -> None:
        records = [(json.dumps(row | {"ts": row["ts"].isoformat()}), row["user"]) for row in parts()[number]]
        broker.send(topic, [(int(user[1:]) % partitions, user.encode(), value.encode()) for value, user in records])

    def records() -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
        loaded = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        value = F.from_json(F.col("value").cast("string"), EVENTS)
        return loaded.select(value.alias("event")).select("event.*")

    for number in range(3):
        partitions = 2 if number < 2 else 3
        if number == 2:
            broker.add_partitions(topic, 3)
        for part in (2 * number, 2 * number + 1):
            send(part, partitions)
        run(records(), tmp_path, str(number), drain=number == 2, key_groups=None if number else 4)
        if number < 2:
            moved(spark, tmp_path, number)
    run(records(), tmp_path / "whole", "checkpoint", drain=True, key_groups=3)
    assert rows_in(spark, tmp_path) == rows_in(spark, tmp_path / "whole")


def test_offsets_that_are_numbers(spark: SparkSession, tmp_path: Path) -> None:
    def events() -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=40, numPartitions=2, startTimestamp=1_700_000_000_000, advanceMillisPerBatch=4000
        )
        kind = F.when(F.col("value") % 5 < 2, "a").otherwise("b")
        user = F.concat(F.lit("u"), F.col("value") % 7)
        return reader.load().select(
            F.col("timestamp").alias("ts"), user.alias("user"), kind.alias("kind"), F.col("value").alias("v")
        )

    for number in range(3):
        run(events(), tmp_path, str(number), drain=False, key_groups=None if number else 4)
        run(events(), tmp_path / "whole", "checkpoint", drain=False, key_groups=3)
        if number < 2:
            moved(spark, tmp_path, number)
    names = [spark.read.parquet(str(folder / "matches")).drop("batch") for folder in (tmp_path, tmp_path / "whole")]
    rows = [Counter(map(str, df.collect())) for df in names]
    assert rows[0] == rows[1]
    assert rows[0]


def test_a_folder_of_files_moves(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes another location that is a pattern of paths. The files that were read may be gone."""
    whole, moved = (Query(spark, tmp_path / name, of_pattern) for name in ("whole", "moved"))
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 2:
            moved.write(number, rows)
    whole.run("checkpoint", drain=True)
    moved.run("first", drain=False)
    create_savepoint(spark, str(moved.folder / "first"), str(tmp_path / "savepoint"))
    shutil.rmtree(moved.folder / "events")
    for number in range(2):
        (whole.folder / "events" / f"{number:03d}.parquet").unlink()
    files = spark.readStream.schema(EVENTS).parquet(str(whole.folder / "events" / "*.parquet"))
    stream, outputs = of_pattern(files, {})
    sinks = {output: FileSink(str(moved.folder / output)) for output in outputs}
    stream.run(sinks, checkpoint=str(moved.folder / "second"), drain=True, from_savepoint=str(tmp_path / "savepoint"))
    moved.write(0, [])
    assert moved.rows() == whole.rows()
