"""Joins of two streams: ``python -m benchmarks.joins --size M``.

The two streams are events of two kinds, in files of their own. Events of the same user are joined:

* ``interval``: each view with the carts of the ten minutes after it;
* ``window``: views and carts of the same ten minutes;
* ``as of``: each purchase with the last view before it.

In one process, alternating:

* ``asterism``: ``interval_join``, ``window_join`` and ``as_of_join``;
* ``spark``: Spark's own stream-stream join, with the interval or the equal windows as its condition. It has no as-of join.

Asterism emits a pair when the watermark has passed both rows, and ends with a drain; Spark emits it when the second row arrives.
One JSON line per run on standard output. The number of pairs and their checksum are compared with those that DuckDB finds in the
same rows; others make the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import JoinedStream, KeyedStream, TumblingWindows, as_of_join, interval_join, window_join
from asterism.spark.host.execution import Sink
from benchmarks import harness, streaming
from benchmarks.windows import ROCKS_DB
from benchmarks.workloads import DISORDER, KEY, TIMESTAMP

LENGTH = timedelta(minutes=10)
_MINUTES = LENGTH // timedelta(minutes=1)
LEFT, RIGHT = "left", "right"
COLUMNS = (KEY, "event_time", TIMESTAMP)
PREFIX = "r_"
"""Before the names of the columns of the right side in results."""
ASTERISM, SPARK = "asterism", "spark"


@dataclass(frozen=True, slots=True)
class Join:
    """
    :param kinds: of the events of the left and of the right side
    :param asterism: the join, with a number of key groups
    :param spark: the time of a row, and the condition on the times ``t`` and ``r_t`` of both sides; None: Spark has no such join
    :param sql: the same in DuckDB's SQL, over the tables ``l`` and ``r``: the event times of both sides
    """

    kinds: tuple[str, str]
    asterism: Callable[[KeyedStream, KeyedStream, int], JoinedStream]
    spark: tuple[str, str] | None
    sql: str


def _interval(left: KeyedStream, right: KeyedStream, key_groups: int | None) -> JoinedStream:
    return interval_join(left, right, (timedelta(0), LENGTH), prefix=PREFIX, key_groups=key_groups)


def _window(left: KeyedStream, right: KeyedStream, key_groups: int | None) -> JoinedStream:
    return window_join(left, right, TumblingWindows.of(LENGTH), prefix=PREFIX, key_groups=key_groups)


def _as_of(left: KeyedStream, right: KeyedStream, key_groups: int | None) -> JoinedStream:
    return as_of_join(left, right, prefix=PREFIX, key_groups=key_groups)


_MS = LENGTH // harness.MILLISECOND
_OF_BOTH = f"SELECT l.event_time, r.event_time AS {PREFIX}event_time FROM l"
JOINS = {
    "interval": Join(
        ("view", "cart"),
        _interval,
        (TIMESTAMP, f"{PREFIX}t BETWEEN t AND t + INTERVAL {_MINUTES} MINUTES"),
        f"{_OF_BOTH} JOIN r ON l.{KEY} = r.{KEY} AND r.event_time BETWEEN l.event_time AND l.event_time + {_MS}",
    ),
    "window": Join(
        ("view", "cart"),
        _window,
        (f"window({TIMESTAMP}, '{_MINUTES} minutes')", f"t = {PREFIX}t"),
        f"{_OF_BOTH} JOIN r ON l.{KEY} = r.{KEY} AND l.event_time // {_MS} = r.event_time // {_MS}",
    ),
    "as of": Join(
        ("buy", "view"),
        _as_of,
        None,
        f"{_OF_BOTH} ASOF JOIN r ON l.{KEY} = r.{KEY} AND r.event_time <= l.event_time",
    ),
}


# ------------------------------------------------------------------ answers


def answer(pairs: pa.Table) -> tuple[int, str]:
    """The number of pairs and their checksum."""
    columns = [pairs.column(name).to_numpy() for name in ("event_time", PREFIX + "event_time")]
    offsets = np.arange(0, 2 * pairs.num_rows + 1, 2, dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.column_stack(columns).astype(np.int64).ravel()))
    return pairs.num_rows, harness.checksum(0, lists)


def expected(join: Join, left: pa.Table, right: pa.Table) -> tuple[int, str]:
    """The answer of SQL."""
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        return answer(connection.sql(join.sql).to_arrow_table())


# ------------------------------------------------------------------ runs


def divide(source: Path, target: Path, kinds: tuple[str, str]) -> None:
    """Write the events of each side to files of its own, as many as there are, so that both streams advance together."""
    for number, file in enumerate(sorted(source.glob("part-*.parquet"))):
        events = pq.read_table(file)
        for side, kind in zip((LEFT, RIGHT), kinds, strict=True):
            path = target / side / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(events.filter(pc.equal(events.column("kind"), kind)).select(COLUMNS), path)
            streaming.set_order(path, number)


class Benchmark:
    """
    :param join: one of JOINS
    :param files: of the streams, in a folder for each side
    """

    def __init__(
        self, spark: SparkSession, join: str, files: Path, progress: streaming.Progress, args: argparse.Namespace
    ) -> None:
        self.spark, self.name, self.join, self.files, self.progress = spark, join, JOINS[join], files, progress
        self.batches, self.key_groups = args.batches, args.key_groups
        left, right = (pq.read_table(files / side) for side in (LEFT, RIGHT))
        self.events = left.num_rows + right.num_rows
        self.expected = expected(self.join, left, right)

    def run(self, number: int, mode: str) -> dict[str, Any]:
        def over(left: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
            right = streaming.stream_of(self.spark, self.files / RIGHT, self.batches)
            (self._asterism if mode == ASTERISM else self._spark)(left, right, sinks, checkpoint)

        with harness.PeakMemory() as memory:
            result = streaming.measured(self.spark, self.files / LEFT, self.batches, self.progress, over)
        found = answer(result.matches)
        return {
            "join": self.name,
            "mode": mode,
            "round": number,
            "events": self.events,
            "events_per_s": round(self.events / result.seconds),
            **result.figures(),
            "results": found[0],
            "checksum": found[1],
            "ok": found == self.expected and found[0] > 0,
            "peak_rss_mb": round(memory.mb),
        }

    def _asterism(self, left: DataFrame, right: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
        keyed = partial(KeyedStream, key=KEY, time=TIMESTAMP, max_out_of_orderness=DISORDER)
        joined = self.join.asterism(keyed(left), keyed(right), self.key_groups)
        joined.run({"results": sinks["matches"]}, checkpoint=checkpoint)

    def _spark(self, left: DataFrame, right: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
        assert self.join.spark is not None
        time, condition = self.join.spark
        seconds = f"{DISORDER // timedelta(seconds=1)} seconds"
        left, right = (
            side.withWatermark(TIMESTAMP, seconds).select(KEY, "event_time", F.expr(time).alias("t"))
            for side in (left, right)
        )
        right = right.withColumnsRenamed({name: PREFIX + name for name in right.columns})
        joined = left.join(right, F.expr(f"{KEY} = {PREFIX}{KEY} AND {condition}")).drop(PREFIX + KEY)
        writer = joined.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
        writer.foreachBatch(sinks["matches"]).trigger(availableNow=True).start().awaitTermination()


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("joins", "Measure joins of streams on Spark.")
    cli.add_argument("--joins", nargs="+", choices=list(JOINS), default=list(JOINS), help="default: all")
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, help="of asterism")
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    spark = harness.session(args.cores, args.memory)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)  # for both
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch, streaming.listening(spark) as progress:
        benchmarks = []
        for name in args.joins:
            files = Path(scratch, name.replace(" ", "_"))
            divide(data / "parquet", files, JOINS[name].kinds)
            benchmarks.append(Benchmark(spark, name, files, progress, args))
        for number in range(args.runs + 1):
            for benchmark, mode in product(benchmarks, (ASTERISM, SPARK)):
                if mode == SPARK and benchmark.join.spark is None:
                    continue
                record = benchmark.run(number, mode)
                ok = ok and record["ok"]
                print(json.dumps(record), flush=True)
    spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
