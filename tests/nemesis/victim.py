"""The program that is killed: runs one query until it is told to finish, and starts it again whenever it fails.

``python -m tests.nemesis.victim FOLDER KIND SEED``, with :mod:`tests.nemesis.inject` on the path. With ``NEMESIS_LAKES``, it also
writes to tables of Delta and Iceberg, in the environment of :mod:`tests.servers.lakes`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from asterism.sinks import DeltaSink, IcebergSink
from tests.kit import JAVA
from tests.nemesis.queries import QUERIES, Query
from tests.nemesis.replay import FINISH, FINISHED, LAKES, insert, keep_operator, write
from tests.nemesis.storages import STORAGE
from tests.servers import lakes

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"{JAVA} {os.environ.get('NEMESIS_JAVA', '')}",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "10000",  # the checker replays from the offset log
}


def session(more: Mapping[str, Any] | None = None) -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SETTINGS, **(more or {})}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def lake_sinks(query: Query, folder: Path) -> dict[str, dict[str, DeltaSink | IcebergSink]]:
    """By output and lake: the rows with an id are appended to the one and merged into the other, by turns."""
    if "NEMESIS_LAKES" not in os.environ:
        return {}
    return {
        output: {
            "delta": DeltaSink(folder / "delta" / output, name=output, key="match_id" if number % 2 else None),
            "iceberg": IcebergSink(f"ice.db.{output}", name=output, key=None if number % 2 else "match_id"),
        }
        for number, output in enumerate(query.ids)
    }


def export_lakes(spark: SparkSession, query: Query, folder: Path) -> None:
    """Write the tables to files, which the checker reads without Spark."""
    (folder / LAKES).mkdir(exist_ok=True)
    for output, tables in lake_sinks(query, folder).items():
        for lake, sink in tables.items():
            if lake == "delta" and Path(sink.table).exists():
                rows = spark.read.format("delta").load(sink.table)
            elif lake == "iceberg" and spark.catalog.tableExists(sink.table):
                rows = spark.table(sink.table)
            else:
                continue
            pq.write_table(rows.toArrow(), folder / LAKES / f"{output}.{lake}")


def sinks(query: Query, folder: Path) -> dict[str, Any]:
    """Each writes a file by batch id, and inserts the ids that are not there yet."""
    import crash_points  # on the path of the victim alone

    tables = lake_sinks(query, folder)

    def sink(output: str) -> Any:
        def written(df: DataFrame, batch_id: int) -> None:
            crash_points.passing("sink.before")
            rows = df.toArrow()
            write(folder, output, batch_id, rows)
            for table in tables.get(output, {}).values():
                table(df, batch_id)
                crash_points.passing("sink.lake")
            crash_points.passing("sink.middle")
            if output in query.ids:
                insert(folder, output, [query.row_id(output, row) for row in rows.to_pylist()])
            crash_points.passing("sink.after")
            if output == query.outputs[-1]:
                crash_points.passing("batch.end")

        return written

    return {output: sink(output) for output in query.outputs}


def main(folder: Path, kind: str, seed: int) -> None:
    query = QUERIES[kind](folder, seed)
    storage = json.loads((folder / STORAGE).read_text())
    query.location = storage["checkpoint"]
    spark = session(storage["settings"] | (lakes.settings(folder) if "NEMESIS_LAKES" in os.environ else {}))
    gateway: Any = spark.sparkContext._gateway
    new = folder / "processes.new"
    new.write_text(json.dumps({"driver": os.getpid(), "jvm": gateway.proc.pid}))
    new.replace(folder / "processes.json")
    parent = os.getppid()
    while os.getppid() == parent:  # else nobody watches any more
        finishing = (folder / FINISH).exists()
        try:
            if finishing:
                query.run(spark, sinks(query, folder))
                export_lakes(spark, query, folder)
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait()
                (folder / FINISHED).touch()
                return
            running = query.run(spark, sinks(query, folder), trigger={"processingTime": "0 seconds"})
            while running.isActive and not (folder / FINISH).exists():
                time.sleep(0.05)
                if os.getppid() != parent:
                    os._exit(4)  # without waiting for the query, which would go on
            if running.exception() is not None:
                raise running.exception()
            running.stop()
        except Exception:
            traceback.print_exc()
            if gateway.proc.poll() is not None:
                os._exit(3)
            with contextlib.suppress(Exception):
                for left in spark.streams.active:
                    left.stop()
            with (folder / "restarts").open("a") as file:
                file.write(".")
            time.sleep(0.1)


if __name__ == "__main__":
    with keep_operator(Path(sys.argv[1])):
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
