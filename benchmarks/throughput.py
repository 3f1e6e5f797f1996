"""W1 to W5: ``python -m benchmarks.throughput --size S``.

One JSON line per run on standard output. Everything runs in one process, alternating, so that times can be compared: each round
is the floor, then for each workload the window query, the batch, the stream, and the stream whose matches are written as Parquet
(``parquet_stream``), and for W1 to W3 the batch and the stream of the same as MATCH_RECOGNIZE (``sql_batch``, ``sql_stream``).
The first rounds, all with the number 0, warm up. A result that is not the expected one makes the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import floors, harness, streaming
from benchmarks.gen_data import Parameters
from benchmarks.harness import PeakMemory, Run
from benchmarks.window_queries import QUERIES
from benchmarks.workloads import WORKLOADS, Workload

FLOOR, BATCH_FLOOR, WINDOW, BATCH, STREAM = "floor", "batch_floor", "window", "batch", "stream"
PARQUET_STREAM, SQL_BATCH, SQL_STREAM = "parquet_stream", "sql_batch", "sql_stream"
STATEMENT = "statement"
"""A statement over a stream, which ``asterism.run`` starts."""
MODES = (FLOOR, BATCH_FLOOR, WINDOW, BATCH, STREAM, PARQUET_STREAM, SQL_BATCH, SQL_STREAM, STATEMENT)


class Benchmark:
    """Runs modes over one data set."""

    def __init__(
        self,
        spark: SparkSession,
        size: str,
        data: Path,
        scratch: Path,
        cores: int,
        batches: int,
        key_groups: int | None,
    ) -> None:
        self.spark, self.size, self.cores, self.batches, self.key_groups = spark, size, cores, batches, key_groups
        self.events = Parameters.of_size(size).events
        self.parquet = str(data / "parquet")
        self.files = scratch / "files"
        streaming.in_order_of_arrival(data / "parquet", self.files)

    def round(
        self, number: int, modes: list[str], workloads: list[Workload], progress: streaming.Progress
    ) -> Iterator[Run]:
        if FLOOR in modes:
            yield self._measured(partial(self._floor, number))
        for workload in workloads:
            if BATCH_FLOOR in modes:
                yield self._measured(partial(self._batch_floor, number, workload))
            if WINDOW in modes:
                yield self._measured(partial(self._window, number, workload))
            if BATCH in modes:
                yield self._measured(partial(self._batch, number, workload))
            if STREAM in modes:
                yield self._measured(partial(self._stream, number, workload, progress))
            if PARQUET_STREAM in modes:
                yield self._measured(partial(self._stream, number, workload, progress, mode=PARQUET_STREAM))
            if SQL_BATCH in modes and workload.clause is not None:
                yield self._measured(partial(self._batch, number, workload, mode=SQL_BATCH))
            if SQL_STREAM in modes and workload.clause is not None:
                yield self._measured(partial(self._stream, number, workload, progress, mode=SQL_STREAM))
            if STATEMENT in modes and workload.clause is not None:
                yield self._measured(partial(self._stream, number, workload, progress, mode=STATEMENT))

    def _measured(self, measure: Callable[[], Run]) -> Run:
        with PeakMemory() as memory:
            run = measure()
        run.peak_rss_mb = round(memory.mb)
        return run

    def _floor(self, number: int) -> Run:
        begin = time.perf_counter()
        floors.floor(self.spark.read.parquet(self.parquet), self.cores)
        return Run("-", FLOOR, number, self.events, time.perf_counter() - begin)

    def _batch_floor(self, number: int, workload: Workload) -> Run:
        begin = time.perf_counter()
        floors.batch_floor(self.spark.read.parquet(self.parquet), workload)
        return Run(workload.name, BATCH_FLOOR, number, self.events, time.perf_counter() - begin)

    def _window(self, number: int, workload: Workload) -> Run:
        begin = time.perf_counter()
        matches = QUERIES[workload.name](self.spark.read.parquet(self.parquet)).toArrow()
        return self._checked(
            Run(workload.name, WINDOW, number, self.events, time.perf_counter() - begin), workload, matches
        )

    def _batch(self, number: int, workload: Workload, *, mode: str = BATCH) -> Run:
        begin = time.perf_counter()
        events = self.spark.read.parquet(self.parquet)
        found = workload.matches(events) if mode == BATCH else workload.match_clause(events).matches
        matches = found.toArrow()
        return self._checked(
            Run(workload.name, mode, number, self.events, time.perf_counter() - begin), workload, matches
        )

    def _stream(self, number: int, workload: Workload, progress: streaming.Progress, *, mode: str = STREAM) -> Run:
        result = streaming.run(
            self.spark,
            workload,
            self.files,
            self.batches,
            progress,
            key_groups=self.key_groups,
            as_clause=mode == SQL_STREAM,
            as_statement=mode == STATEMENT,
            into=streaming.PARQUET if mode == PARQUET_STREAM else streaming.MEMORY,
        )
        run = Run(workload.name, mode, number, self.events, **result.figures())
        return self._checked(run, workload, result.matches)

    def _checked(self, run: Run, workload: Workload, matches: pa.Table) -> Run:
        run.matches = matches.num_rows
        run.checksum = harness.checksum(
            workload.tag, workload.times(matches, as_columns=run.mode not in (BATCH, STREAM, PARQUET_STREAM))
        )
        run.ok = (run.matches, run.checksum) == harness.expected(self.size, workload.name)
        return run


# ------------------------------------------------------------------ command line


def _list(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("throughput", "Measure W1 to W5 on Spark.")
    cli.add_argument("--workloads", type=_list(tuple(WORKLOADS)), default=list(WORKLOADS), help="default: all")
    cli.add_argument("--modes", type=_list(MODES), default=list(MODES), help="default: all")
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    cli.add_argument("--warm-ups", type=int, default=1, help="rounds that warm up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, help="of the streams")
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    cli.add_argument("--settings", choices=harness.SETTINGS, default=harness.DEFAULT, help="of the Spark session")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    spark = harness.session(args.cores, args.memory, args.settings)
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch, streaming.listening(spark) as progress:
        benchmark = Benchmark(spark, args.size, data, Path(scratch), args.cores, args.batches, args.key_groups)
        for number in [*[0] * args.warm_ups, *range(1, args.runs + 1)]:
            for run in benchmark.round(number, args.modes, [WORKLOADS[name] for name in args.workloads], progress):
                runs.append(run)
                print(run.to_json(), flush=True)
    spark.stop()
    wrong = [run for run in runs if not run.ok]
    for run in wrong:
        matches, checksum = harness.expected(args.size, run.workload)
        print(
            f"WRONG: {run.workload} {run.mode}, round {run.round}: {run.matches} matches, checksum {run.checksum};"
            f" expected {matches}, {checksum}",
            file=sys.stderr,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
