"""A history before a stream, beside the same events as a table and as a stream: ``python -m benchmarks.histories``.

Each line is JSON: the seconds of CPU of all processes of Spark, and seconds, of a pattern over a table, over the same events
as the history of a new query, as a savepoint that is made from them, and over the same events as its stream, in micro-batches of
some files. Each is run several times in one session, in turn; the first run warms up. With several numbers of events, the
differences are what events cost beside what each start of a query costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, bootstrap_savepoint
from benchmarks.harness import session

PATTERN = (
    Pattern.begin("a")
    .where("kind = 'a'")
    .followed_by("b")
    .where("kind = 'b' AND price > a.price")
    .within(timedelta(hours=1))
)
EVENTS = "ts TIMESTAMP, user BIGINT, kind STRING, price DOUBLE"
MEASURES = ["a.price AS first", "b.price AS last"]
FILES = 16


def cpu_seconds() -> float:
    """Of this process and all its descendants, also of those that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    family: set[int] = set()
    new = {os.getpid()}
    while new:
        family |= new
        new = {pid for pid, parent in parents.items() if parent in family} - family
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def measured(what: Callable[[], object]) -> dict[str, float]:
    cpu, begin = cpu_seconds(), time.perf_counter()
    what()
    return {"cpu": round(cpu_seconds() - cpu, 1), "seconds": round(time.perf_counter() - begin, 1)}


def measure(spark: SparkSession, folder: Path, events: int, names: list[str], runs: int) -> None:
    place, counts = str(folder / "events"), list[int]()
    kinds = "CASE WHEN rand(1) < 0.1 THEN 'a' WHEN rand(2) < 0.1 THEN 'b' ELSE 'c' END"
    moment = "TIMESTAMP_MICROS(1735689600000000 + 20000 * id + CAST(rand(4) * 4000000 AS BIGINT))"
    rows = f"SELECT {moment} AS ts, CAST(rand(3) * 100000 AS BIGINT) AS user, {kinds} AS kind, rand(5) AS price"
    spark.sql(f"{rows} FROM range(0, {events}, 1, {FILES})").write.parquet(place)
    schema = spark.read.parquet(place).schema
    spark.sql("SELECT TIMESTAMP '2026-01-01' AS ts, 1L AS user, 'c' AS kind, 0D AS price").write.parquet(f"{place}-2")

    def stream_of(df: DataFrame) -> Any:
        return CEP.pattern(KeyedStream(df, "user", "ts", max_out_of_orderness=timedelta(seconds=5)), PATTERN)

    def count(df: DataFrame, batch_id: int) -> None:
        counts.append(df.count())

    def table() -> None:
        count(stream_of(spark.read.parquet(place)).select(*MEASURES), 0)

    def run(name: str, df: DataFrame, **options: Any) -> None:
        checkpoint, select = str(folder / f"{name}-{time.monotonic_ns()}"), {"matches": MEASURES}
        stream_of(df).run({"matches": count}, checkpoint=checkpoint, select=select, drain=False, **options)

    def history() -> None:
        run("history", spark.readStream.schema(schema).parquet(f"{place}-2"), history=spark.read.parquet(place))

    def savepoint() -> None:
        target, sinks = str(folder / f"savepoint-{time.monotonic_ns()}"), {"matches": count}
        events_of_stream = spark.readStream.schema(schema).parquet(f"{place}-2")
        matches = stream_of(events_of_stream)
        bootstrap_savepoint(matches, spark.read.parquet(place), target, sinks, select={"matches": MEASURES})

    def stream() -> None:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        run("stream", reader.parquet(place))

    for number in range(runs):
        for what in (each for each in (table, history, savepoint, stream) if each.__name__ in names):
            counts.clear()
            found = {"what": what.__name__, "run": number, "events": events, **measured(what), "matches": sum(counts)}
            print(json.dumps(found), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", default="2000000,10000000", help="one number or several")
    parser.add_argument("--what", default="table,history,savepoint,stream")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="histories"))
    spark = session(2, arguments.memory)
    try:
        for events in map(int, arguments.events.split(",")):
            measure(spark, folder / str(events), events, arguments.what.split(","), arguments.runs)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
