"""Pattern processors: ``python -m benchmarks.dynamic --size S``.

* ``w6``: the hundred rules of W6 over one stream, whose answer must be the expected one;
* ``series``: 1, 10, 100, 1,000 rules over the same stream, to see how cost grows;
* ``latency``: from the commit of a rule in a database to the first match by it, over and over.

One JSON line per run on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern
from asterism.discovery import (
    FilePatternProcessorDiscovererFactory,
    SqlPatternProcessorDiscovererFactory,
    create_pattern_processor_table,
)
from asterism.discovery.editing import Addition, rules_at
from asterism.rules.processor import PatternProcessor
from asterism.spark.execution import Sink
from benchmarks import harness, rules, streaming
from benchmarks.gen_data import SIZES, Parameters
from benchmarks.workloads import DISORDER, KEY, TIME

SERIES = (1, 10, 100, 1000)


def find(path: Path, events: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
    stream = KeyedStream(events, key=KEY, time=TIME, max_out_of_orderness=DISORDER)
    CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(path)).run(sinks, checkpoint=checkpoint)


def run(
    spark: SparkSession, size: str, files: Path, count: int, batches: int, progress: streaming.Progress, number: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="asterism-rules-") as folder:
        path = Path(folder, "rules.json")
        path.write_text(json.dumps([processor.to_dict() for processor in rules.some(count)]), encoding="utf-8")
        with harness.PeakMemory() as memory:
            result = streaming.measured(spark, files, batches, progress, partial(find, path))
    first, *others = result.batches
    rest = [batch for batch in others if batch.events]
    matches, checksum = rules.answer(result.matches)
    expected = harness.expected(size, "W6") if count == len(rules.rules()) else None
    return {
        "workload": "W6",
        "rules": count,
        "round": number,
        "events": Parameters.of_size(size).events,
        "seconds": round(result.seconds, 3),
        "first_batch_s": round(first.seconds, 3),
        "rest_events_per_s": round(sum(b.events for b in rest) / sum(b.seconds for b in rest)) if rest else None,
        "end_s": round(sum(b.seconds for b in others if not b.events), 3),
        "matches": matches,
        "checksum": checksum,
        "ok": expected is None or expected == (matches, checksum),
        "peak_rss_mb": round(memory.mb),
    }


def latency(spark: SparkSession, updates: int, trigger: float, interval: float) -> dict[str, Any]:
    """A stream of 1,000 events/s; one rule after the other is put into a SQLite database."""
    began: dict[str, float] = {}
    seen: dict[str, float] = {}
    arrived = threading.Event()

    def sink(found: DataFrame, batch_id: int) -> None:
        now = time.time()
        for row in found.select("processor_id").distinct().collect():
            if seen.setdefault(row.processor_id, now) == now:
                arrived.set()

    with tempfile.TemporaryDirectory(prefix="asterism-rules-") as folder:
        url = f"sqlite:///{folder}/rules.db"
        create_pattern_processor_table(url)
        events = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        events = events.select(F.col("timestamp").alias("ts"), (F.col("value") % 10).alias("user"))
        stream = KeyedStream(events, key="user", time="ts", max_out_of_orderness=timedelta(0))
        factory = SqlPatternProcessorDiscovererFactory(url, interval=timedelta(seconds=interval))
        query = CEP.pattern_processors(stream, factory).run(
            {"matches": sink}, checkpoint=f"{folder}/checkpoint", trigger={"processingTime": f"{trigger} seconds"}
        )
        assert query is not None
        for number in range(updates + 1):
            name = f"rule {number}"
            pattern = Pattern.begin("a").where(f"user = {number % 10}").next("b").where(f"user = {number % 10}")
            arrived.clear()
            rule = PatternProcessor(name, 1, pattern)
            rules_at(url).add([Addition(rule.to_dict(), rule)])
            began[name] = time.time()
            while name not in seen:
                if not arrived.wait(60):
                    raise TimeoutError(f"no match by {name}; {query.exception()}")
                arrived.clear()
        query.stop()
    waits = sorted(seen[name] - began[name] for name in list(began)[1:])  # the first waits for the query's start
    deciles = statistics.quantiles(waits, n=10)
    return {
        "latency": "update to first match",
        "updates": updates,
        "trigger_s": trigger,
        "poll_s": interval,
        "min_s": round(waits[0], 3),
        "median_s": round(statistics.median(waits), 3),
        "p90_s": round(deciles[-1], 3),
        "max_s": round(waits[-1], 3),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(
        prog="python -m benchmarks.dynamic", description="Measure pattern processors on Spark."
    )
    cli.add_argument("--size", choices=list(SIZES), default="S")
    cli.add_argument(
        "--data", type=Path, help="folder of the data, generated if absent; default: benchmarks/data/<size>"
    )
    cli.add_argument("--what", default="w6,series,latency")
    cli.add_argument("--runs", type=int, default=2, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    cli.add_argument("--updates", type=int, default=20)
    cli.add_argument("--trigger", type=float, default=0.5, help="seconds between micro-batches, for the latency")
    cli.add_argument("--interval", type=float, default=0.2, help="seconds between looks into the database")
    args = cli.parse_args(arguments)
    what = args.what.split(",")
    data = harness.data_folder(args.size, args.data)
    spark = harness.session(args.cores, "6g")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch, streaming.listening(spark) as progress:
        files = Path(scratch, "files")
        streaming.in_order_of_arrival(data / "parquet", files)
        counts = [len(rules.rules())] * ("w6" in what) + [n for n in SERIES if "series" in what]
        for number in range(args.runs + 1):
            for count in dict.fromkeys(counts):
                record = run(spark, args.size, files, count, args.batches, progress, number)
                ok = ok and record["ok"]
                print(json.dumps(record), flush=True)
    if "latency" in what:
        print(json.dumps(latency(spark, args.updates, args.trigger, args.interval)), flush=True)
    spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
