"""The columnar exchange: rows travel between Spark's stages as chunks, one Arrow record batch in a binary column.

PySpark's stateful operators take and give rows one by one, at some 100,000 a second. A chunk is one row: the shuffle and
the stateful call handle a few hundred of them instead of millions of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from asterism.cep import KEY_HASH, CepOperator
from asterism.operator import Now
from asterism.spark.key_groups import label
from asterism.spark.worker import settle_memory
from asterism.state import batch_from_bytes, batch_to_bytes

GATHER = 200_000
"""Rows that are packed together: Spark hands over 10,000 at a time, and every chunk costs some 20 microseconds."""

Batches = Iterator[pa.RecordBatch]


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """The rows of *batches* in larger portions; no empty ones."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= GATHER:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def pack(operator: CepOperator, key_groups: int, name: str) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: events (with KEY_HASH) to one chunk per key group, for input *name*."""

    labels = np.array([label(group) for group in range(key_groups)], np.int32)

    def packer(batches: Batches) -> Batches:
        settle_memory()
        for events in gathered(batches):
            hashes = events.column(KEY_HASH).to_numpy().view(np.uint64)
            groups = (hashes % np.uint64(key_groups)).astype(np.uint16)
            order = np.argsort(groups, kind="stable")  # 16 bits: a radix sort
            prepared = operator.prepare(events).combine_chunks().take(pa.array(order)).combine_chunks()
            sizes = np.bincount(groups, minlength=key_groups)
            used = np.flatnonzero(sizes)
            ends = np.cumsum(sizes)
            batch = prepared.to_batches()[0]
            chunks = [batch.slice(int(ends[g] - sizes[g]), int(sizes[g])).serialize().to_pybytes() for g in used]
            yield pa.RecordBatch.from_arrays(
                [pa.array(labels[used]), pa.array([name] * len(used)), pa.array(chunks, pa.binary())],
                names=["key_group", "input", "chunk"],
            )

    return packer


def results(outputs: dict[str, pa.Table]) -> Iterator[tuple[str, bytes]]:
    """Rows of RESULTS."""
    for name, table in outputs.items():
        if table.num_rows:
            yield name, batch_to_bytes(table)


def unpack(schema: pa.Schema) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: RESULTS of one output to its rows."""

    def unpacker(batches: Batches) -> Batches:
        settle_memory()
        for batch in batches:
            for chunk in batch.column("chunk"):
                yield from batch_from_bytes(chunk.as_buffer(), schema).to_batches()

    return unpacker


def run_sorted(operator: CepOperator, processing_time: int) -> Callable[[Batches], Batches]:
    """For ``mapInArrow`` in batch: events sorted by key and time to RESULTS."""

    def runner(batches: Batches) -> Batches:
        settle_memory()
        carried = operator.empty_page()
        now = Now(processing_time=processing_time)

        def step(events: pa.Table, last: bool) -> Batches:
            nonlocal carried
            outputs, carried = operator.process_sorted(carried, events, last=last, now=now)
            rows = list(results(outputs))
            if rows:
                yield pa.RecordBatch.from_arrays(
                    [pa.array([name for name, _ in rows]), pa.array([chunk for _, chunk in rows], pa.binary())],
                    names=["output", "chunk"],
                )

        for events in gathered(batches):
            yield from step(operator.prepare(events), False)
        yield from step(operator.prepared_schema.empty_table(), True)

    return runner
