"""The columnar exchange: Spark's stages exchange rows as chunks. A chunk is an Arrow record batch in a binary column.

PySpark's stateful operators read and write rows one by one, some 100,000 per second. A chunk is a single row: the shuffle and
the stateful operator process a few hundred chunks instead of millions of events.

See docs/decisions/0164 and 0184.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from asterism.columns.arrays import Ints
from asterism.columns.groups import KEY_HASH, first_rows, group_codes
from asterism.columns.time import NO_TIME
from asterism.operators.operator import Operator, closing
from asterism.operators.state.partition_watermarks import check_names, check_partitions, partition_name
from asterism.operators.state.state_store import batch_from_bytes, batch_to_bytes
from asterism.spark.host.partitioning import label
from asterism.spark.host.times import EVENT_TIME, PARTITION

GATHER = 200_000
"""Minimum number of rows that are packed together. Spark's batches have some thousand rows, and a chunk costs some 20
microseconds.
"""
GATHER_BYTES = 1 << 26
"""Rows of more bytes than this are packed earlier."""
CHUNK_BYTES = 1 << 18
"""Maximum size of a chunk of more than one row, on average: Spark sends chunks to Python by the thousand, see
:func:`asterism.spark.session.settings.arrow_batches`.
"""
MILLISECOND = 1000
METRICS, GAUGES = pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.float64())

Batches = Iterator[pa.RecordBatch]


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """The rows of *batches* in larger, non-empty tables."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if rows >= GATHER or size >= GATHER_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def pack(operator: Operator, key_groups: int, name: str, delay: int | None = 0) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from events (with KEY_HASH) of input *name* to CHUNKS.

    Events of a keyed input are sent to the key group of their key, broadcast elements to all key groups. After its last
    event, a task sends the watermark to every key group: the latest time, minus *delay* (microseconds), minus a millisecond,
    since further events may have the same time. If *delay* is None, the watermark comes from Spark, and the task sends only
    the information that the input has data. If each partition of the input has a watermark, the task sends those of the
    partitions of its events.

    :raises LimitExceededError: the input has too many partitions
    """
    spec = operator.inputs[name]
    labels = np.array([label(group) for group in range(key_groups)], np.int32)
    # If an input can become idle, all key groups must get the same information about when data arrived.
    detects_idle = any(other.idle_after is not None for other in operator.inputs.values())

    def packer(batches: Batches) -> Batches:
        with closing(operator):
            yield from packed(batches)

    def packed(batches: Batches) -> Batches:
        seq = partition_id() << 40
        latest = NO_TIME
        partitions: dict[str, int] = {}
        for events in gathered(batches):
            if spec.watermark_by:
                events = _without_partitions(events, partitions, spec.watermark_by)
            prepared = operator.prepare(name, events).combine_chunks()
            if not spec.watermark_by:
                latest = max(latest, operator.latest(name, events, prepared))
            if KEY_HASH in prepared.column_names:
                events, prepared = prepared, prepared.drop_columns([KEY_HASH])
            if not prepared.num_rows:
                continue
            if spec.broadcast:
                for part in divided(prepared):
                    yield chunks(labels, [batch_to_bytes(part)] * key_groups, seq, None)
                    seq += 1
                continue
            hashes = events.column(KEY_HASH).to_numpy().view(np.uint64)
            groups = (hashes % np.uint64(key_groups)).astype(np.uint16)
            for used, slices in _chunks_by_group(prepared, groups, key_groups):
                yield chunks(labels[used], slices, seq, None)
                seq += 1
        if partitions:
            watermarks = {partition: time - (delay or 0) - MILLISECOND for partition, time in partitions.items()}
            yield chunks(labels, [partitions_to_bytes(watermarks)] * key_groups, seq, None)
        elif latest != NO_TIME or (detects_idle and seq & 0xFFFFFFFFFF):
            watermark = None if delay is None or latest == NO_TIME else latest - delay - MILLISECOND
            yield chunks(labels, [None] * key_groups, seq, watermark)

    def chunks(
        to: npt.NDArray[np.int32], values: list[bytes | None] | pa.Array, seq: int, watermark: int | None
    ) -> pa.RecordBatch:
        count = len(to)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(to),
                pa.array([name] * count),
                pa.array([seq] * count, pa.int64()),
                pa.array([watermark] * count, pa.int64()),
                pa.array(values, pa.binary()) if isinstance(values, list) else values,
            ],
            names=["key_group", "input", "seq", "watermark", "chunk"],
        )

    return packer


def _without_partitions(events: pa.Table, partitions: dict[str, int], columns: Sequence[str]) -> pa.Table:
    """The *events* without the columns of partitions.

    :param partitions: the latest time of each partition so far, which is updated
    """
    added = [name for name in events.column_names if name.startswith(PARTITION)]
    codes, count = group_codes(events.select(added))
    check_partitions(count, columns)
    times = pc.fill_null(events.column(EVENT_TIME), NO_TIME).to_numpy()
    latest = np.full(count, NO_TIME)
    np.maximum.at(latest, codes, times)
    first = events.select(added).take(pa.array(first_rows(codes, count)))
    values = zip(*(column.to_pylist() for column in first.columns), strict=True)
    for name, time in zip(map(partition_name, values), latest.tolist(), strict=True):
        if time != NO_TIME:
            partitions[name] = max(time, partitions.get(name, NO_TIME))
    check_partitions(len(partitions), columns)
    check_names(partitions, columns)
    return events.drop_columns([EVENT_TIME, *added])


def partitions_to_bytes(watermarks: Mapping[str, int]) -> bytes:
    """The watermarks of partitions as a chunk, which is distinguished from others by its first byte."""
    return json.dumps(watermarks, ensure_ascii=False).encode()


def partitions_from_bytes(chunk: bytes) -> dict[str, int] | None:
    """None: the chunk contains events."""
    if chunk[:1] != b"{":
        return None
    watermarks: dict[str, int] = json.loads(chunk)
    return watermarks


def _chunks_by_group(
    prepared: pa.Table, groups: npt.NDArray[np.uint16], key_groups: int
) -> Iterator[tuple[Ints, pa.Array]]:
    """Rounds of chunks: in each round, the next chunk of every key group that has one."""
    order = np.argsort(groups, kind="stable")  # 16 bits: a radix sort
    (batch,) = prepared.take(pa.array(order)).combine_chunks().to_batches()
    sizes = np.bincount(groups, minlength=key_groups)
    begins = np.cumsum(sizes) - sizes
    rows = rows_per_chunk(batch)
    while sizes.any():
        used = np.flatnonzero(sizes)
        counts = np.minimum(sizes[used], rows)
        ranges = zip(begins[used].tolist(), counts.tolist(), strict=True)
        yield used, serialized([batch.slice(begin, count) for begin, count in ranges])
        begins[used] += counts
        sizes[used] -= counts


def serialized(batches: Sequence[pa.RecordBatch]) -> pa.Array:
    """Each of the *batches*, which have one schema, as a chunk. All are written into one buffer, and not copied again.

    >>> batch = pa.record_batch({"n": [1, 2]})
    >>> serialized([batch, batch.slice(1)]).to_pylist() == [batch.serialize(), batch.slice(1).serialize()]
    True
    """
    schema = batches[0].schema
    begin = schema.serialize().size  # the writer begins with the schema
    ends = begin + np.cumsum([pa.ipc.get_record_batch_size(batch) for batch in batches])
    buffer = pa.allocate_buffer(int(ends[-1]))
    writer = pa.ipc.new_stream(pa.FixedSizeBufferWriter(buffer), schema)  # never closed, which would write an end
    for batch in batches:
        writer.write_batch(batch)
    offsets = pa.array([begin, *ends.tolist()], pa.int32())
    return pa.Array.from_buffers(pa.binary(), len(batches), [None, offsets.buffers()[1], buffer])


def rows_per_chunk(rows: pa.Table | pa.RecordBatch) -> int:
    count: int = CHUNK_BYTES * rows.num_rows // max(1, rows.nbytes)
    return max(1, count)


def divided(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of a table in parts of about CHUNK_BYTES."""
    count = rows_per_chunk(table)
    if count < table.num_rows:
        table = _without_shared_buffers(table)
    for begin in range(0, table.num_rows, count):
        yield table.slice(begin, count)


def _without_shared_buffers(table: pa.Table) -> pa.Table:
    """The same rows. ``pa.nulls`` has one buffer for all parts of a nested column, as large as the offsets of all rows, and Arrow
    writes all of it with each slice.
    """
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if field.type.num_fields and any(map(_shares_buffers, column.chunks)):
            table = table.set_column(number, field, column.take(pa.array(np.arange(len(column)))))
    return table


def _shares_buffers(array: pa.Array) -> bool:
    addresses = [buffer.address for buffer in array.buffers() if buffer is not None and buffer.size]
    return len(set(addresses)) < len(addresses)


def partition_id() -> int:
    """The index of this task's partition, which is the same when the task is repeated."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def results(outputs: Mapping[str, pa.Table], *, compressed: bool = False) -> Iterator[tuple[str, bytes]]:
    """The output and the chunk of rows of RESULTS."""
    for name, table in outputs.items():
        for part in divided(table):
            yield name, batch_to_bytes(part, compressed=compressed)


def unpack(schema: pa.Schema, output: str | None = None) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from RESULTS to the rows of an *output*; None: the only one."""

    def unpacker(batches: Batches) -> Batches:
        for batch in batches:
            if output is not None:
                batch = batch.filter(pc.equal(batch.column("output"), output))
            for chunk in batch.column("chunk"):
                yield from batch_from_bytes(chunk.as_buffer(), schema).to_batches()

    return unpacker
