"""What Spark charges before any matching: scan, shuffle by key, Arrow to Python and back, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.workloads import COLUMNS, KEY, TIME, Workload


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 0)


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def floor(events: DataFrame, partitions: int) -> None:
    """Scan, shuffle by key, ``mapInArrow`` with the identity; the rows go nowhere."""
    shuffled = events.select(*COLUMNS).repartition(partitions, KEY)
    shuffled.mapInArrow(_identity, shuffled.schema).write.format("noop").mode("overwrite").save()


def batch_floor(events: DataFrame, workload: Workload) -> None:
    """What every batch query in Python includes: scan, filter, shuffle by key, sort, transfer to Python. No rows return."""
    relevant = events if workload.kinds is None else events.where(events.kind.isin(*workload.kinds))
    ordered = relevant.select(TIME, KEY, "kind").repartition(KEY).sortWithinPartitions(KEY)
    ordered.mapInArrow(_nothing, ordered.schema).toArrow()
