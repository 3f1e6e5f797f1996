"""Windows: ``python -m benchmarks.windows --size M``.

The sum of the amounts and the number of events of each user in tumbling windows (10 minutes) and in sliding ones (10 minutes,
every 2), over the same stream, in one process, alternating:

* ``asterism``: ``window(...).aggregate(...)``;
* ``spark``: Spark's own ``groupBy(window(...)).agg(...)`` in append mode, which fires once and knows no triggers;
* ``by_hand``: the same logic in ``applyInPandasWithState``.

``--keys`` and ``--lateness`` take several values, for how cost and state grow. Spark has no allowed lateness: there a watermark
that comes later by as much keeps windows as long, and gives results later. One JSON line per run on standard output. Results are
compared, on the windows that all of them have closed; different ones make the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from asterism import KeyedStream, SlidingWindows, TumblingWindows, window
from asterism.spark.host.execution import Sink
from benchmarks import harness, streaming
from benchmarks.gen_data import Parameters
from benchmarks.workloads import DISORDER, TIMESTAMP

WINDOWS = {
    "tumbling": (timedelta(minutes=10), timedelta(minutes=10)),
    "sliding": (timedelta(minutes=10), timedelta(minutes=2)),
}
"""Size and slide."""
ASTERISM, SPARK, BY_HAND = "asterism", "spark", "by_hand"
MODES = (ASTERISM, SPARK, BY_HAND)
KEY = "key"
ROWS = "key BIGINT, window_start TIMESTAMP, total BIGINT, n BIGINT"
STATE = "windows BINARY"
"""Four numbers for each: start, sum, count, has it fired. Spark 4.3.0 fails to read a state of ARRAYs."""
MICROSECOND = timedelta(microseconds=1)
MARGIN = timedelta(seconds=1)
"""Windows that end so shortly before the last watermark are not compared: whether it passes their end is a matter of taste."""
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class States(streaming.Progress):
    """Collects the state of the last micro-batches, too."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.memory, self.disk = 0, 0, 0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        operators = event.progress.stateOperators
        self.rows = max(self.rows, sum(one.numRowsTotal for one in operators))
        self.memory = max(self.memory, sum(one.memoryUsedBytes for one in operators))
        self.disk = max(self.disk, sum(one.customMetrics.get("rocksdbSstFileSize", 0) for one in operators))
        super().onQueryProgress(event)

    def largest(self) -> dict[str, int | float]:
        """The largest that Spark reported since the last call: entries of the state store, which mean something else in each
        mode; memory; files of RocksDB. Zero files: all of it is in memory, or in the log of changes.
        """
        found = {
            "state_rows": self.rows,
            "state_memory_mb": round(self.memory / 2**20, 1),
            "state_files_mb": round(self.disk / 2**20, 1),
        }
        self.rows, self.memory, self.disk = 0, 0, 0
        return found


# ------------------------------------------------------------------ the three


def asterism(
    size: timedelta, slide: timedelta, lateness: timedelta, key_groups: int | None, pages: int | None, events: DataFrame,
    sinks: Mapping[str, Sink], checkpoint: str,
) -> None:  # fmt: skip
    stream = KeyedStream(events, key=KEY, time=TIMESTAMP, max_out_of_orderness=DISORDER)
    windows = TumblingWindows.of(size) if size == slide else SlidingWindows.of(size, slide)
    found = window(stream, windows, allowed_lateness=lateness, key_groups=key_groups, pages=pages)
    found.run(
        {"results": sinks["matches"]},
        aggregate=["sum(cents) AS total", "count(*) AS n"],
        checkpoint=checkpoint,
        drain=False,
    )


def spark_windows(
    size: timedelta,
    slide: timedelta,
    lateness: timedelta,
    events: DataFrame,
    sinks: Mapping[str, Sink],
    checkpoint: str,
) -> None:
    found = (
        events.withWatermark(TIMESTAMP, _seconds(DISORDER + lateness))
        .groupBy(KEY, F.window(TIMESTAMP, _seconds(size), _seconds(slide)))
        .agg(F.sum("cents").alias("total"), F.count("*").alias("n"))
        .select(KEY, F.col("window.start").alias("window_start"), "total", "n")
    )
    _run(found, sinks, checkpoint)


def by_hand(
    size: timedelta,
    slide: timedelta,
    lateness: timedelta,
    events: DataFrame,
    sinks: Mapping[str, Sink],
    checkpoint: str,
) -> None:
    fold = partial(_fold, size // MICROSECOND, slide // MICROSECOND, lateness // MICROSECOND)
    found = (
        events.withWatermark(TIMESTAMP, _seconds(DISORDER))
        .groupBy(KEY)
        .applyInPandasWithState(_named(fold), ROWS, STATE, "append", GroupStateTimeout.EventTimeTimeout)
    )
    _run(found, sinks, checkpoint)


def _fold(
    size: int, slide: int, lateness: int, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The windows of one key: starts, sums and counts, and whether a window has fired; times are microseconds."""
    kept = np.frombuffer(state.get[0] if state.exists else b"", np.int64).reshape(4, -1)
    starts, totals, counts, fired = kept[0], kept[1], kept[2], kept[3] != 0
    for frame in frames:
        times = frame[TIMESTAMP].to_numpy("datetime64[us]").astype(np.int64)
        newest = times // slide * slide
        new = (newest[:, None] - np.arange(size // slide) * slide).ravel()
        cents = np.repeat(frame["cents"].to_numpy(), size // slide)
        every, place = np.unique(np.concatenate([starts, new]), return_inverse=True)
        sums, sizes, done = (
            np.zeros(len(every), np.int64),
            np.zeros(len(every), np.int64),
            np.zeros(len(every), np.bool_),
        )
        old = len(starts)
        np.add.at(sums, place, np.concatenate([totals, cents]))
        np.add.at(sizes, place, np.concatenate([counts, np.ones(len(new), np.int64)]))
        done[place[:old]] = fired
        done[place[old:]] = False  # what comes late fires its window again
        starts, totals, counts, fired = every, sums, sizes, done
    watermark = state.getCurrentWatermarkMs() * 1000
    due = (starts + size <= watermark) & ~fired
    if due.any():
        times = starts[due].astype("datetime64[us]")
        yield pd.DataFrame({"key": key[0], "window_start": times, "total": totals[due], "n": counts[due]})
    fired = fired | due
    open_ = starts + size + lateness > watermark
    if not open_.any():
        state.remove()
        return
    starts, totals, counts, fired = starts[open_], totals[open_], counts[open_], fired[open_]
    state.update((np.stack([starts, totals, counts, fired]).astype(np.int64).tobytes(),))
    state.setTimeoutTimestamp(int(np.where(fired, starts + size + lateness, starts + size).min()) // 1000)


def _named(fold: Callable[..., Iterator[pd.DataFrame]]) -> Callable[..., Iterator[pd.DataFrame]]:
    def function(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        return fold(key, frames, state)

    return function


def _run(found: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
    writer = found.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    writer.foreachBatch(sinks["matches"]).trigger(availableNow=True).start().awaitTermination()


def _seconds(length: timedelta) -> str:
    return f"{length // timedelta(seconds=1)} seconds"


# ------------------------------------------------------------------ runs


def answer(rows: pa.Table, size: timedelta, until: int) -> tuple[int, str]:
    """The number of windows that end before *until* (microseconds), and their checksum."""
    starts = rows.column("window_start").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    closed = rows.set_column(rows.schema.get_field_index("window_start"), "window_start", starts)
    closed = closed.filter(pc.less(pc.add(starts, size // MICROSECOND), until))
    columns = [closed.column(name).to_numpy() for name in (KEY, "window_start", "total", "n")]
    offsets = np.arange(0, 4 * closed.num_rows + 1, 4, dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.column_stack(columns).astype(np.int64).ravel()))
    return closed.num_rows, harness.checksum(0, lists)


class Benchmark:
    def __init__(self, spark: SparkSession, args: argparse.Namespace, files: Path, last: int, progress: States) -> None:
        self.spark, self.args, self.files, self.progress = spark, args, files, progress
        self.written = 0
        """bytes of state in the checkpoint, of all its versions"""
        self.last = last
        """the last event time, in milliseconds"""
        self.events = Parameters.of_size(args.size).events

    def run(self, number: int, name: str, mode: str, keys: int | None, lateness: timedelta) -> dict[str, Any]:
        size, slide = WINDOWS[name]
        find = {
            ASTERISM: partial(asterism, size, slide, lateness, self.args.key_groups, self.args.pages),
            SPARK: partial(spark_windows, size, slide, lateness),
            BY_HAND: partial(by_hand, size, slide, lateness),
        }[mode]

        def over(events: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
            user = F.col("user_id") if keys is None else F.pmod("user_id", F.lit(keys))
            cents = F.round(F.col("amount") * 100).cast("bigint")  # sums of whole numbers are the same in any order
            find(events.select(user.alias(KEY), TIMESTAMP, cents.alias("cents")), sinks, checkpoint)
            files = Path(checkpoint, "state").rglob("*")
            self.written = sum(file.stat().st_size for file in files if file.is_file())

        self.progress.largest()
        with harness.PeakMemory() as memory:
            result = streaming.measured(self.spark, self.files, self.args.batches, self.progress, over)
        until = self.last * 1000 - (DISORDER + lateness + MARGIN) // MICROSECOND
        windows, checksum = answer(result.matches, size, until)
        return {
            "windows": name,
            "mode": mode,
            "round": number,
            "events": self.events,
            "keys": keys or Parameters.of_size(self.args.size).users,
            "lateness_s": lateness // timedelta(seconds=1),
            "events_per_s": round(self.events / result.seconds),
            **result.figures(),
            **self.progress.largest(),
            "state_written_mb": round(self.written / 2**20, 2),
            "results": result.matches.num_rows,
            "compared": windows,
            "checksum": checksum,
            "peak_rss_mb": round(memory.mb),
        }


def _names(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = set(names) - set(allowed)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: none of {', '.join(allowed)}")
        return names

    return parse


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("windows", "Measure windows on Spark.")
    cli.add_argument("--windows", type=_names(tuple(WINDOWS)), default=list(WINDOWS), help="default: all")
    cli.add_argument("--modes", type=_names(MODES), default=list(MODES), help="default: all")
    cli.add_argument("--keys", type=_numbers, help="how many keys the users are put into; default: each user is one")
    cli.add_argument("--lateness", type=_numbers, default=[0], help="seconds that windows are kept after their end")
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, help="of asterism")
    cli.add_argument("--pages", type=int, help="of state per key group, of asterism; default: by size")
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    last = json.loads((data / "meta.json").read_text())["last_event_time"]
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # of Spark's workers, about how they use pandas
    spark = harness.session(args.cores, args.memory)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)  # for all three
    progress = States()
    spark.streams.addListener(progress)
    answers: dict[tuple[str, int, int], tuple[int, str]] = {}
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        files = Path(scratch, "files")
        streaming.in_order_of_arrival(data / "parquet", files)
        benchmark = Benchmark(spark, args, files, last, progress)
        cases = list(product(args.windows, args.keys or [None], args.lateness))
        for number in range(args.runs + 1):
            for (name, keys, lateness), mode in product(cases, args.modes):
                record = benchmark.run(number, name, mode, keys, timedelta(seconds=lateness))
                found = (record["compared"], record["checksum"])
                record["ok"] = found == answers.setdefault((name, record["keys"], lateness), found) and found[0] > 0
                ok = ok and record["ok"]
                print(json.dumps(record), flush=True)
    spark.streams.removeListener(progress)
    spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
