"""The driver of a query on hosts: ``python -m tests.hosts.driver FOLDER``

Events, the checkpoint and the rows are in HDFS, in *FOLDER*; or the checkpoint is elsewhere. The folder of this name on the host
of the driver has what the test and the driver tell each other, and the file of the rules. A query that fails is started again.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from tests.hosts.cluster import SETTINGS
from tests.hosts.queries import HOST_QUERIES
from tests.nemesis.queries import Query
from tests.nemesis.replay import FINISH, FINISHED, keep_operator

MOST_FAILURES = 10
JOB, PROGRESS = "job.json", "progress"
"""Files: the query, its checkpoint and the settings of Spark; the number of the last micro-batch that has ended."""


def session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("asterism on hosts")
    for name, value in {**SETTINGS, "spark.driver.host": socket.gethostname(), **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def sinks(query: Query) -> dict[str, Any]:
    """Each overwrites a folder by batch id. The executors write it."""

    def sink(output: str) -> Any:
        def written(df: DataFrame, batch_id: int) -> None:
            df.write.mode("overwrite").parquet(str(query.folder / "out" / output / f"{batch_id}.parquet"))

        return written

    return {output: sink(output) for output in query.outputs}


def run(spark: SparkSession, query: Query) -> None:
    """Until the test says that the input ends, and to its end."""
    running = query.run(spark, sinks(query), trigger={"processingTime": "0 seconds"})
    last = -1
    while running.isActive and not (query.folder / FINISH).exists():
        time.sleep(0.1)
        progress = running.lastProgress
        if progress is not None and progress.batchId > last:
            last = progress.batchId
            (query.folder / PROGRESS).write_text(str(last))
            sys.stderr.write(f"micro-batch {last}: {json.dumps(progress.durationMs)}\n")
    if running.exception() is not None:
        raise running.exception()
    running.stop()
    query.run(spark, sinks(query))


def main(folder: Path) -> None:
    job = json.loads((folder / JOB).read_text())
    query = HOST_QUERIES[job["kind"]](folder, job["seed"])
    query.location = job["checkpoint"]
    spark = session(job["settings"])
    for _ in range(MOST_FAILURES):
        try:
            run(spark, query)
            break
        except Exception:
            traceback.print_exc()
            sys.stderr.write("the query is started again\n")
            for left in spark.streams.active:
                left.stop()
            time.sleep(1)
    else:
        sys.exit(3)
    spark.stop()
    (folder / FINISHED).touch()


if __name__ == "__main__":
    with keep_operator(Path(sys.argv[1])):
        main(Path(sys.argv[1]))
