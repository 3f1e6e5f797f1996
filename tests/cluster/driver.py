"""The driver of queries on a cluster, one after the other: ``python -m tests.cluster.driver MASTER FILES FOLDER NAME...``

Each query reads *FILES* in several micro-batches to their end, and writes the rows of each micro-batch to a folder in *FOLDER*.
If the file "hold at call" is in the folder of the query when a stateful task has processed events, the task waits until it is
gone; an argument NAME_2 creates it when micro-batch 2 begins.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from benchmarks import dynamic, rules, windows
from benchmarks.workloads import TIMESTAMP, WORKLOADS
from tests.cluster.processes import SETTINGS
from tests.end_to_end.victim import CALL, arm, holding

FILES_AT_ONCE = 8
KEY_GROUPS = 8
"""Of the windows. The patterns and rules have the default, 32."""


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("asterism on a cluster")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, name: str, files: Path, folder: Path, killed_in: int | None) -> None:
    folder.mkdir()

    def sink(df: DataFrame, batch_id: int) -> None:
        if batch_id == killed_in:
            arm(folder, CALL)
        df.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))

    schema = spark.read.parquet(str(files)).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_AT_ONCE).parquet(str(files))
    # Relative to the working directory of the driver; executors have others.
    sinks, checkpoint = {"matches": sink}, os.path.relpath(folder / "checkpoint")
    with holding(folder):
        if name in WORKLOADS:
            workload = WORKLOADS[name]
            select = None if workload.measures is None else {"matches": workload.measures}
            workload.find(events).run(sinks, checkpoint=checkpoint, select=select)
        elif name == "W6":
            path = folder / "rules.json"
            path.write_text(json.dumps([rules.processor(rule).to_dict() for rule in rules.rules()]), encoding="utf-8")
            dynamic.find(path, events, sinks, checkpoint)
        else:
            cents = F.round(F.col("amount") * 100).cast("bigint").alias("cents")
            events = events.select(F.col("user_id").alias(windows.KEY), TIMESTAMP, cents)
            find = partial(windows.asterism, *windows.WINDOWS[name], timedelta(0), KEY_GROUPS, None)
            find(events, sinks, checkpoint)


def main(master: str, files: Path, folder: Path, names: list[str]) -> None:
    spark = session(master)
    for text in names:
        name, _, killed_in = text.partition("_")
        begin = time.monotonic()
        run(spark, name, files, folder / text, int(killed_in) if killed_in else None)
        (folder / text / "seconds").write_text(f"{time.monotonic() - begin:.1f}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
