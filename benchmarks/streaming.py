"""One streaming run of a workload: available now over Parquet files, to the end of the stream."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import asterism
from asterism.spark.host.execution import Sink
from benchmarks.workloads import Workload

OLDEST = 1_700_000_000
MEMORY, PARQUET, NOOP = "memory", "parquet", "noop"
"""Where matches go: into Arrow tables of this process, into Parquet files, or nowhere."""
_SOURCES = ("FileStreamSource", "KafkaV2")
"""What Spark calls the sources of events; the other one is the operator's control source."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark reported of a micro-batch."""

    number: int
    events: int
    """0: it only carries a watermark, or the end of the stream."""
    seconds: float
    durations_ms: dict[str, int]


@dataclass(frozen=True, slots=True)
class StreamRun:
    seconds: float
    batches: list[Batch]
    matches: pa.Table
    """Empty if they go nowhere."""

    def figures(self) -> dict[str, Any]:
        """The times of the run for a record: of the whole, the first micro-batch, the others with events, and those without."""
        first, *others = self.batches
        rest = [batch for batch in others if batch.events]
        rest_per_s = round(sum(b.events for b in rest) / sum(b.seconds for b in rest)) if rest else None
        return {
            "seconds": round(self.seconds, 3),
            "first_batch_s": round(first.seconds, 3),
            "rest_events_per_s": rest_per_s,
            "end_s": round(sum(b.seconds for b in others if not b.events), 3),
            "batches": len(self.batches),
        }


class Progress(StreamingQueryListener):
    """Collects the micro-batches of all queries, the drain's included."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._running = 0
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name, as below
        with self._changed:
            self._running += 1

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        durations: dict[str, int] = dict(progress.durationMs)
        with self._changed:
            if "addBatch" in durations:  # otherwise it only reports that nothing has come
                seconds = durations["triggerExecution"] / 1000
                events = sum(
                    source.numInputRows
                    for source in progress.sources
                    if any(name in source.description for name in _SOURCES)
                )
                self.batches.append(Batch(progress.batchId, events, seconds, durations))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def take(self, timeout: float = 30) -> list[Batch]:
        """The batches so far, in order. Spark reports asynchronously: wait until it has reported every query's end."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running and bool(self.batches), timeout):
                raise TimeoutError("Spark did not report the end of the query")
            batches, self.batches = self.batches, []
        return sorted(batches, key=lambda batch: batch.number)


@contextmanager
def listening(spark: SparkSession) -> Iterator[Progress]:
    progress = Progress()
    spark.streams.addListener(progress)
    try:
        yield progress
    finally:
        spark.streams.removeListener(progress)


def in_order_of_arrival(source: Path, target: Path) -> int:
    """Copy the files such that Spark, which goes by modification time, reads them in order of arrival; returns how many."""
    files = sorted(source.glob("part-*.parquet"))
    target.mkdir(parents=True)
    for index, file in enumerate(files):
        shutil.copyfile(file, target / file.name)
        set_order(target / file.name, index)
    return len(files)


def set_order(file: Path, number: int) -> None:
    """Make *file* the one with this *number* in the order in which Spark reads files."""
    os.utime(file, (OLDEST + number, OLDEST + number))


def stream_of(spark: SparkSession, files: Path, batches: int) -> DataFrame:
    """The Parquet *files* as a stream of some *batches* micro-batches."""
    per_batch = math.ceil(len(list(files.glob("*.parquet"))) / batches)
    schema = spark.read.parquet(str(files)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch).parquet(str(files))


def run(
    spark: SparkSession,
    workload: Workload,
    files: Path,
    batches: int,
    progress: Progress,
    *,
    key_groups: int | None = None,
    as_clause: bool = False,
    as_statement: bool = False,
    into: str = MEMORY,
    **options: Any,
) -> StreamRun:
    """One run over the Parquet *files*, in some *batches* micro-batches (Spark adds some without events).

    :param as_clause: the workload as MATCH_RECOGNIZE
    :param as_statement: the same in a statement, whose DataFrame ``asterism.run`` starts, with 32 key groups by default
    """

    def find(events: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
        if as_statement:
            (sink,) = sinks.values()
            asterism.run(workload.statement(events, key_groups=key_groups), sink, checkpoint=checkpoint, **options)
            return
        if as_clause:
            rows = workload.match_clause(events, key_groups=key_groups)
            rows.run(sinks, checkpoint=checkpoint, drain=True, **options)
            return
        select = None if workload.measures is None else {"matches": workload.measures}
        found = workload.find(events, key_groups=key_groups)
        found.run(sinks, checkpoint=checkpoint, select=select, drain=True, **options)

    return measured(spark, files, batches, progress, find, into=into)


def measured(
    spark: SparkSession,
    files: Path,
    batches: int,
    progress: Progress,
    find: Callable[[DataFrame, Mapping[str, Sink], str], None],
    *,
    into: str = PARQUET,
) -> StreamRun:
    """As :func:`run`, of whatever *find* runs: it is given the events, where matches go, and a checkpoint location."""
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        out = Path(scratch, "matches")
        collected: dict[int, pa.Table] = {}

        def sink(matches: DataFrame, batch_id: int) -> None:
            if into == MEMORY:
                collected[batch_id] = matches.toArrow()
            elif into == PARQUET:
                matches.write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))
            else:
                matches.write.mode("overwrite").format("noop").save()

        begin = time.perf_counter()
        events = stream_of(spark, files, batches)
        find(events, {"matches": sink}, str(Path(scratch, "checkpoint")))
        seconds = time.perf_counter() - begin
        found = [spark.read.parquet(str(out)).toArrow()] if into == PARQUET else list(collected.values())
        return StreamRun(seconds, progress.take(), pa.concat_tables(found) if found else pa.table({}))
