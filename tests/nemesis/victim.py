"""The program that is killed: runs one query until it is told to finish, and starts it again whenever it fails.

``python -m tests.nemesis.victim FOLDER KIND SEED``, with :mod:`tests.nemesis.inject` on the path.
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

from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from tests.kit import JAVA
from tests.nemesis.queries import QUERIES, Query
from tests.nemesis.replay import FINISH, FINISHED, insert, keep_operator, write
from tests.nemesis.storages import STORAGE

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


def sinks(query: Query, folder: Path) -> dict[str, Any]:
    """Each writes a file by batch id, and inserts the ids that are not there yet."""
    import crash_points  # on the path of the victim alone

    def sink(output: str) -> Any:
        def written(df: DataFrame, batch_id: int) -> None:
            crash_points.passing("sink.before")
            rows = df.toArrow()
            write(folder, output, batch_id, rows)
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
    spark = session(storage["settings"])
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
