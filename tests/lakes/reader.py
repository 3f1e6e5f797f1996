"""A program whose query reads a table of a lake: ``python -m tests.lakes.reader FOLDER LAKE dies`` or ``ends``

The first one kills itself with its JVM and its workers, in its second micro-batch, when the sink has written. The second one goes
on when the table has been compacted and has one more commit, and compares the rows of all micro-batches with those of the table.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from tests.kit import kill_session
from tests.lakes.kit import append, guesses, rewrite, rows_of
from tests.nemesis.victim import session
from tests.servers.lakes import settings

COMMITS = [
    ["1 ann failed", "2 ann failed", "3 bob failed"],
    ["4 ann accepted", "5 bob failed"],
    ["6 bob accepted", "7 cat failed"],
]
LAST = ["8 cat failed", "9 cat accepted"]
LIMIT = {"delta": "maxFilesPerTrigger", "iceberg": "streaming-max-files-per-micro-batch"}


def main(folder: Path, lake: str, dies: bool) -> None:
    spark = session({**settings(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")})
    table = f"delta.`{folder / 'events'}`" if lake == "delta" else "ice.db.events"
    if dies:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
        for lines in COMMITS:
            append(spark, lake, table, lines)
    else:
        rewrite(spark, lake, table)
        append(spark, lake, table, LAST)

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))
        if dies and batch_id == 1:
            kill_session(os.getsid(0))
            os.kill(os.getpid(), signal.SIGKILL)

    guesses(stream_of(spark, lake, folder, table)).run(
        {"matches": write}, checkpoint=str(folder / "checkpoint"), drain=not dies
    )
    compare(spark, folder, table)


def stream_of(spark: SparkSession, lake: str, folder: Path, table: str) -> DataFrame:
    reader = spark.readStream.format(lake).option(LIMIT[lake], 1)
    return reader.load(str(folder / "events")) if lake == "delta" else reader.table(table)


def compare(spark: SparkSession, folder: Path, table: str) -> None:
    expected = guesses(spark.table(table)).matches
    columns = sorted(expected.columns)
    rows = rows_of(spark.read.parquet(str(folder / "out")).select(columns))
    assert rows == rows_of(expected.select(columns)), rows
    assert len(rows) == 3


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "dies")
