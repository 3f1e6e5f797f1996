"""What Spark charges before any matching: scan, shuffle by key, Arrow to Python and back, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.workloads import COLUMNS, KEY


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def floor(events: DataFrame, partitions: int) -> None:
    """Scan, shuffle by key, ``mapInArrow`` with the identity; the rows go nowhere."""
    shuffled = events.select(*COLUMNS).repartition(partitions, KEY)
    shuffled.mapInArrow(_identity, shuffled.schema).write.format("noop").mode("overwrite").save()
