"""Measure what a micro-batch of 1,000 events costs over more and more open partial matches:
``python -m benchmarks.state --open 1000,1000000``.

Each series is one streaming query: files with an ``a`` of every key open the partial matches, then each file has 1,000 events,
an ``a`` of a new key or the ``b`` that completes the match of a random one. One JSON line per series on standard output:
the duration of these micro-batches (median), and the bytes of state that they write, as sizes of the changelog files of Spark's
state store.

``--groups 8,32,128,512`` measures what key groups cost instead: the same micro-batches with one event (*idle*: all key groups but
one get the watermark alone) and with 10,000 (*busy*), by number of key groups. Wall and CPU seconds of a micro-batch (of all
processes, medians), and what one more key group adds to both, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from asterism import CEP, KeyedStream, Pattern
from benchmarks import harness

SCHEMA = "ts TIMESTAMP, user BIGINT, kind STRING"
PATTERN = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(days=30))
EVENTS, FILE = 1_000, 1_000_000
SECOND = 1_000_000


def write(folder: Path, number: int, users: Any, kinds: Any) -> None:
    """A file of events, one second after those of the file before."""
    times = np.full(len(users), 1_700_000_000 * SECOND + number * SECOND) + np.arange(len(users)) % SECOND
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "user": users, "kind": kinds})
    path = folder / f"{number:05}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files in this order


def write_series(folder: Path, count: int, batches: int) -> int:
    """The events of a series; returns the number of files that open the partial matches."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    files = 0
    for begin in range(0, count, FILE):
        users = np.arange(begin, min(begin + FILE, count))
        write(folder, files, users, pa.array(["a"] * len(users)))
        files += 1
    for number in range(batches):
        closed = rng.choice(count, EVENTS // 2, replace=count < EVENTS)
        opened = count + number * EVENTS + np.arange(EVENTS // 2)
        kinds = ["b"] * len(closed) + ["a"] * len(opened)
        write(folder, files + number, np.concatenate([closed, opened]), pa.array(kinds))
    return files


def written(checkpoint: Path, batch: int) -> int:
    """The bytes of state that a micro-batch has written."""
    return sum(path.stat().st_size for path in checkpoint.glob(f"state/0/*/{batch + 1}*.changelog"))


def price(spark: Any, key_groups: int, events: int, batches: int) -> dict[str, Any]:
    """What a micro-batch costs, after the first ten."""
    warm_up, open_matches = 10, 20_000
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "in")
        folder.mkdir()
        write(folder, 0, np.arange(open_matches), pa.array(["a"] * open_matches))
        rng = np.random.default_rng(7)
        for number in range(1, 1 + warm_up + batches):
            write(folder, number, rng.choice(open_matches, events, replace=False), pa.array(["a"] * events))
        df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        stream = CEP.pattern(KeyedStream(df, "user", "ts"), PATTERN, key_groups=key_groups)
        times = []

        def sink(df: DataFrame, batch_id: int) -> None:
            df.write.format("noop").mode("overwrite").save()
            times.append((time.perf_counter(), harness.family_seconds()))

        checkpoint = str(Path(scratch, "checkpoint"))
        query = stream.run({"matches": sink}, checkpoint=checkpoint, trigger={"availableNow": True})
        assert query is not None
        query.awaitTermination()
        wall, cpu = np.diff(np.array(times), axis=0)[warm_up:].T
        return {
            "key_groups": key_groups,
            "events": events,
            "wall_s": round(float(np.median(wall)), 4),
            "cpu_s": round(float(np.mean(cpu)), 4),
        }


def prices(spark: Any, groups: list[int], batches: int) -> None:
    """Prints what micro-batches cost, and what each key group adds, over the first number of key groups."""
    price(spark, groups[-1], 1, 10)  # warms up
    for events in (1, 10_000):
        first = None
        for number in groups:
            found = price(spark, number, events, batches)
            if first is not None:
                more = number - first["key_groups"]
                for name in ("wall", "cpu"):
                    found[f"{name}_ms_each"] = round(1000 * (found[f"{name}_s"] - first[f"{name}_s"]) / more, 2)
            first = first or found
            print(json.dumps(found), flush=True)


def run(spark: Any, count: int, batches: int, pages: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-", ignore_cleanup_errors=True) as scratch:
        folder, checkpoint = Path(scratch, "in"), Path(scratch, "checkpoint")
        files = write_series(folder, count, batches)
        events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        stream = CEP.pattern(KeyedStream(events, "user", "ts"), PATTERN, pages=pages)
        found = 0

        def sink(df: DataFrame, batch_id: int) -> None:
            nonlocal found
            found += df.count()

        query = stream.run({"matches": sink}, checkpoint=str(checkpoint), trigger={"availableNow": True})
        assert query is not None
        query.awaitTermination()
        small = [p for p in query.recentProgress if p.batchId >= files + 2 and p.numInputRows]
        return {
            "open": count,
            "pages": pages,
            "matches": found,
            "seconds": statistics.median(p.durationMs["triggerExecution"] for p in small) / 1000,
            "stateful_seconds": statistics.median(p.durationMs["addBatch"] for p in small) / 1000,
            "bytes_written": int(statistics.median(written(checkpoint, p.batchId) for p in small)),
            "each": [p.durationMs["triggerExecution"] / 1000 for p in small],
        }


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.state", description="Measure small micro-batches.")
    cli.add_argument("--open", default="1000,10000,100000,1000000", help="numbers of open partial matches")
    cli.add_argument("--batches", type=int, default=12, help="micro-batches of 1,000 events")
    cli.add_argument("--pages", default="", help="also with these fixed numbers of pages per key group")
    cli.add_argument("--groups", default="", help="what these numbers of key groups cost, instead")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    args = cli.parse_args(arguments)
    spark = harness.session(args.cores, args.memory)
    if args.groups:
        prices(spark, [int(n) for n in args.groups.split(",")], args.batches)
        return 0
    numbers: list[int | None] = [None, *(int(n) for n in args.pages.split(",") if n)]
    run(spark, 1_000, 4, None)  # warms up
    for count in (int(n) for n in args.open.split(",")):
        for pages in numbers:
            print(json.dumps(run(spark, count, args.batches, pages)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
