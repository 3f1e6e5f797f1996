"""Measure first results: ``python -m benchmarks.cold_start``.

Each case runs in a new process, some with an empty cache of compiled code, as on a machine that never ran Asterism:

* ``match``: a match without Spark, with the import of the library;
* ``stream``: a pattern over files of 1,000 events each, in a session as Spark makes it by default, or with the number of shuffle
  partitions *tuned* to the cores; *run*: the whole of ``run``, from the construction of the query to the end of the drain, with
  all micro-batches; *again*: the same in the same session, with a new checkpoint;
* ``spark``: Spark's own ``groupBy(window, key).count()`` over the same files, with the same partitions as the tuned session;
* ``state``: Spark's own state in Python, with the same partitions: ``transformWithState`` counts the rows of 8 keys. No operator
  in Python can be faster.

The package is compiled to bytecode before, as pip does when it installs a package; otherwise each process would compile it.
One JSON line per case and round on standard output. Times are seconds.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

BEGIN = time.monotonic()
FILES, EVENTS = 6, 1_000
CASES = {
    "match, nothing compiled": ("match", "", True),
    "match": ("match", "", False),
    "stream, nothing compiled": ("stream", "", True),
    "stream": ("stream", "", False),
    "stream, tuned": ("stream", "2", False),
    "spark": ("spark", "2", False),
    "state": ("state", "2", False),
}
"""What to run, the number of shuffle partitions, and whether the cache of compiled code is empty."""


def match_once() -> dict[str, Any]:
    from asterism import Pattern
    from asterism.testing import match

    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND value > LAST(a.value)")
    assert match(pattern, "a1 b2 a3 b1 b4").matches == ["a1 b2", "a3 b4"]
    return {"first": time.monotonic() - BEGIN}


def session(settings: Mapping[str, str]) -> Any:
    """A session as Spark makes it by default, apart from *settings*."""
    import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.master", "local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream_twice(what: str, partitions: str) -> dict[str, Any]:
    spark = session({"spark.sql.shuffle.partitions": partitions} if partitions else {})
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "in")
        write(folder)
        run = {"stream": run_pattern, "spark": run_window, "state": run_state}[what]
        found = run(spark, folder, Path(scratch, "first"))
        again = run(spark, folder, Path(scratch, "second"))
        return found | {f"{name}, again": value for name, value in again.items()}


def write(folder: Path) -> None:
    """Files of events, one second apart."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(7)
    for number in range(FILES):
        seconds = 1_700_000_000 + number * EVENTS + np.arange(EVENTS)
        table = pa.table(
            {
                "ts": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
                "user": rng.integers(0, 50, EVENTS),
                "kind": rng.choice(["a", "b", "c"], EVENTS),
                "x": rng.random(EVENTS),
            }
        )
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files in this order


def read(spark: Any, folder: Path) -> Any:
    schema = "ts TIMESTAMP, user BIGINT, kind STRING, x DOUBLE"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run_pattern(spark: Any, folder: Path, checkpoint: Path) -> dict[str, Any]:
    from asterism import CEP, KeyedStream, Pattern

    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND x > LAST(a.x)")
    begin = time.monotonic()
    ends = []

    def sink(df: Any, batch_id: int) -> None:
        df.collect()
        ends.append(time.monotonic())

    stream = CEP.pattern(KeyedStream(read(spark, folder), "user", "ts"), pattern.within(timedelta(minutes=5)))
    stream.run({"matches": sink}, checkpoint=str(checkpoint))
    return of_batches(begin, ends)


def run_window(spark: Any, folder: Path, checkpoint: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    begin = time.monotonic()
    events = read(spark, folder).withWatermark("ts", "0 seconds")
    return drained(events.groupBy(F.window("ts", "5 minutes"), "user").count(), begin, checkpoint)


def run_state(spark: Any, folder: Path, checkpoint: Path) -> dict[str, Any]:
    from pyspark.sql import Row
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "count BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's names
            before = self.count.get()
            count = sum(1 for _ in rows) + (0 if before is None else before[0])
            self.count.update((count,))
            yield Row(key=key[0], count=count)

        def close(self) -> None: ...

    begin = time.monotonic()
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    events = read(spark, folder).withWatermark("ts", "0 seconds")
    counts = (
        events.withColumn("key", F.pmod(F.xxhash64("user"), F.lit(8)))
        .groupBy("key")
        .transformWithState(
            statefulProcessor=Count(),
            outputStructType="key BIGINT, count BIGINT",
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    return drained(counts, begin, checkpoint)


def drained(results: Any, begin: float, checkpoint: Path) -> dict[str, Any]:
    ends = []

    def sink(df: Any, batch_id: int) -> None:
        df.collect()
        ends.append(time.monotonic())

    writer = results.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return of_batches(begin, ends)


def of_batches(begin: float, ends: list[float]) -> dict[str, Any]:
    each = [after - before for before, after in pairwise(ends[:FILES])]
    return {"first": ends[0] - begin, "others": statistics.median(each), "run": time.monotonic() - begin}


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description="Measure first results.")
    cli.add_argument("--cases", default=";".join(CASES), help=f"separated by semicolons; default: {';'.join(CASES)}")
    cli.add_argument("--rounds", type=int, default=3)
    cli.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # of a new process
    args = cli.parse_args(arguments)
    if args.only is not None:
        what, partitions = args.only
        print(json.dumps(match_once() if what == "match" else stream_twice(what, partitions)))
        return 0
    compile_package()
    for _ in range(args.rounds):
        for case in args.cases.split(";"):
            print(json.dumps({"case": case} | in_a_new_process(*CASES[case])), flush=True)
    return 0


def compile_package() -> None:
    found = importlib.util.find_spec("asterism")
    assert found is not None
    for folder in found.submodule_search_locations or ():
        compileall.compile_dir(folder, quiet=1)


def in_a_new_process(what: str, partitions: str, nothing_compiled: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as cache:
        environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if nothing_compiled else {})
        command = [sys.executable, "-m", "benchmarks.cold_start", "--only", what, partitions]
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        record: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
        return record


if __name__ == "__main__":
    raise SystemExit(main())
