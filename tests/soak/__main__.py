"""``make soak ARGS="--minutes 60"``: the events of a day in an hour, with rules that change; nothing may grow.

A file with the events of 20 seconds comes when the last but one has been processed, so an hour has those of a day if a
micro-batch takes 0.8 s. Memory, files and latency are measured as it goes; lines through them after a warm-up must not rise.
In the end the stream is drained, and no row of state may be left.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism.rules.sets.set_store import STORE
from tests.nemesis.queries import QUERIES, SECONDS, Query
from tests.nemesis.victim import session
from tests.soak.judge import LIMITS, judged

SETTINGS: dict[str, int | str] = {
    # What Spark keeps of the past, for its UI and to go back, is to be full after some dozen micro-batches.
    "spark.sql.streaming.minBatchesToRetain": 10,
    "spark.sql.streaming.fileSource.log.cleanupDelay": 10_000,
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": 50,
}
STATES = ("header", "pages", "first")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of each kind (default: 60)")
    parser.add_argument("--kinds", default="rules", help=f"default: rules; there are {', '.join(QUERIES)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=200, help="events in a file (default: 200)")
    options = parser.parse_args()
    spark = session({"spark.sql.ui.retainedExecutions": 20, "spark.ui.retainedJobs": 50, "spark.ui.retainedStages": 50})
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    grows = False
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            query = QUERIES[kind](Path(name), options.seed, size=options.size)
            grows |= soaked(spark, query, options.minutes)
    return 1 if grows else 0


def soaked(spark: SparkSession, query: Query, minutes: float) -> bool:
    """Does anything grow, or is anything left?"""
    rng = random.Random(query.seed)
    counts = dict.fromkeys(query.outputs, 0)

    def sink(output: str) -> Any:
        def count(df: DataFrame, batch_id: int) -> None:
            counts[output] += df.toArrow().num_rows

        return count

    sinks = {output: sink(output) for output in query.outputs}
    query.change_rules(rng, 0)
    query.feed(0)
    running = query.run(spark, sinks, trigger={"processingTime": "0 seconds"})
    begin = measured = time.monotonic()
    every = min(10.0, minutes * 60 / 40)
    samples: list[dict[str, float]] = []
    fed, changes = 1, 0
    while time.monotonic() - begin < 60 * minutes:
        if running.exception() is not None:
            raise running.exception()
        done = _batches(query)
        if fed < done + 2:
            query.feed(fed)
            (query.folder / "events" / f"{fed - 50:05}.parquet").unlink(missing_ok=True)  # long read
            fed += 1
            if rng.random() < 0.1:
                query.change_rules(rng, fed * SECONDS)
                changes += 1
        if done and time.monotonic() - measured > every:
            measured = time.monotonic()
            samples.append(_measured(spark, query, running, done))
        time.sleep(0.02)
    running.processAllAvailable()
    running.stop()
    query.run(spark, sinks)
    left = {name: rows for name, rows in _rows_of_state(spark, query) if rows}
    hours = fed * SECONDS / 3600
    print(
        f"{query.kind}: {_batches(query)} micro-batches, {hours:.1f} h of events, {changes} changes of rules, rows: {counts}"
    )
    print(f"  rows of state after the drain: {left or 0}")
    print(f"  {'':<20}{'first':>10}{'last':>10}{'per 1000 micro-batches':>24}  limit")
    findings = judged(samples)
    for one in findings:
        limit = LIMITS[one.name]
        allowed = f"{1000 * limit.slope:g} {limit.unit} ({limit.why})"
        mark = "GROWS" if one.grows else ""
        print(f"  {one.name:<20}{one.first:>10.2f}{one.last:>10.2f}{1000 * one.slope:>24.2f}  {allowed} {mark}")
    return bool(left) or any(one.grows for one in findings)


def _batches(query: Query) -> int:
    commits = (int(path.name) for path in (query.checkpoint / "commits").glob("[0-9]*"))
    return max(commits, default=-1) + 1


def _measured(spark: SparkSession, query: Query, running: Any, batch: int) -> dict[str, float]:
    gc.collect()
    jvm: Any = spark.sparkContext._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    memory = list(_memory(spark.sparkContext._gateway.proc.pid))  # type: ignore[union-attr]
    files = [path.stat().st_size for path in _files(query.checkpoint)]
    store = query.checkpoint / STORE
    times = [
        progress.durationMs["triggerExecution"] / 1000 for progress in running.recentProgress if progress.numInputRows
    ]
    found = {
        "batch": float(batch),
        "jvm_heap": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        "worker_rss": max(memory, default=0.0),
        "python_rss": sum(memory),
        "checkpoint_files": float(len(files)),
        "checkpoint_mb": sum(files) / 1e6,
        "store_files": float(sum(1 for _ in _files(store))),
    }
    return found | ({"latency": median(times[-20:])} if times else {})


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path


def _memory(jvm: int) -> Iterator[float]:
    """Resident MB of each process below the JVM."""
    parents: dict[int, int] = {}
    resident: dict[int, float] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line
            )
        except (ProcessLookupError, FileNotFoundError):
            continue
        parents[int(process.name)] = int(status["PPid"])
        resident[int(process.name)] = int(status.get("VmRSS", "0 kB").split()[0]) / 1000
    for number in resident:
        ancestor = number
        while ancestor in parents and ancestor != jvm:
            ancestor = parents[ancestor]
        if ancestor == jvm and number != jvm:
            yield resident[number]


def _rows_of_state(spark: SparkSession, query: Query) -> Iterator[tuple[str, int]]:
    for name in STATES:
        reader = spark.read.format("statestore").option("stateVarName", name)
        if name == "first":
            reader = reader.option("flattenCollectionTypes", "true")
        yield name, reader.load(str(query.checkpoint)).count()


if __name__ == "__main__":
    sys.exit(main())
