"""Operators in batch: the whole input of a key group is processed in one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from asterism.columns.arrays import Ints
from asterism.columns.groups import BUCKET
from asterism.columns.internal import internal
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.matching.operator import CepOperator
from asterism.operators.operator import EVENTS, Arrival, Now, Operator, Result, closing, watermark_of_table
from asterism.operators.state.state_store import MemoryStore
from asterism.spark.host.exchange import GAUGES, METRICS, Batches, divided, gathered, results

BATCH_GROUP, BATCH_NUMBER, BATCH_TIME = internal("group"), internal("number"), internal("time")
BATCH_INPUT, BATCH_ORDER = internal("input"), internal("order")
ORDER, TIME_BITS, STEP_BITS = internal("bucket_and_time"), 50, 4
ENDED = Now(END_OF_TIME, END_OF_TIME)
Answer = Callable[[Iterable[Result]], Batches]
"""Makes rows of results: :func:`answered`, or :func:`rows_of`."""
_NOTHING = pa.table({})


def copied(operator: Operator, name: str) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from events of input *name* to the events that the operator prepares, with KEY_HASH."""

    def copier(batches: Batches) -> Batches:
        with closing(operator):
            for events in gathered(batches):
                yield from operator.prepare(name, events).combine_chunks().to_batches()

    return copier


def order_of_table(key_hash: Column, micros: Column | None) -> Column:
    """The column ORDER: the bucket of the key, then the time in steps of 16 microseconds, from 1685 to 2255.

    Spark sorts a single BIGINT by radix, and several columns by comparisons. See docs/decisions/0081.
    """
    bucket = key_hash.bitwiseAND(F.lit(-1 << TIME_BITS))
    if micros is None:
        return bucket.alias(ORDER)
    half = 1 << (TIME_BITS - 1)
    steps = F.greatest(F.lit(-half), F.least(F.lit(half - 1), F.shiftright(micros, STEP_BITS)))
    return (bucket + F.coalesce(steps, F.lit(-half)) + F.lit(half)).alias(ORDER)


def run_table(operator: CepOperator, processing_time: int, answer: Answer) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from events, sorted by ORDER, to the rows that *answer* computes from the results."""

    def runner(batches: Batches) -> Batches:
        state = operator.initial_table_state()
        now = Now(processing_time=processing_time)

        def step(events: pa.Table, buckets: Ints) -> Iterator[Mapping[str, pa.Table]]:
            nonlocal state
            state = yield from operator.process_table(state, events.append_column(BUCKET, pa.array(buckets)), now)

        with closing(operator):
            for events in whole(batches, ORDER):
                buckets = events.column(ORDER).to_numpy() >> TIME_BITS
                for outputs in step(operator.prepare(EVENTS, events), buckets):
                    yield from answer([Result(outputs)])
            for outputs in step(operator.inputs[EVENTS].prepared.empty_table(), np.empty(0, np.int64)):
                yield from answer([Result(outputs)])

    return runner


def whole(batches: Batches, column: str) -> Iterator[pa.Table]:
    """The rows of *batches*, which are sorted by an integer *column*, in tables that have all rows of each value."""
    waiting: list[pa.Table] = []
    for rows in gathered(batches):
        values = rows.column(column).to_numpy()
        others = np.flatnonzero(values != values[-1])
        begin = int(others[-1]) + 1 if len(others) else 0
        if begin or (waiting and waiting[-1].column(column)[-1].as_py() != values[0]):
            yield pa.concat_tables([*waiting, rows.slice(0, begin)])
            waiting = []
        waiting.append(rows.slice(begin))
    if waiting:
        yield pa.concat_tables(waiting)


def run_groups(
    operator: Operator,
    sent: Callable[[pa.Table], list[Arrival]],
    processing_time: int,
    answer: Answer,
    *,
    first: Sequence[Arrival] = (),
) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from elements, sorted by key group, time and input, to the rows that *answer* computes from
    the results.

    :param sent: converts rows of one key group to arrivals
    :param first: arrivals that every key group gets before all others
    """

    def runner(batches: Batches) -> Batches:
        operator.open()
        store, group = MemoryStore(), None
        now = Now(processing_time=processing_time)
        # As in a stream, functions see the time of the query, unless there are timers in processing time.
        ended = ENDED if operator.processing_time else replace(ENDED, processing_time=processing_time)
        with closing(operator):
            for rows in gathered(batches):
                groups = rows.column(BATCH_GROUP).to_numpy()
                cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
                for begin, end in pairwise(cuts):
                    if groups[begin] != group:
                        if group is not None:
                            yield from answer(operator.slices(store, [], replace(ended, key_group=group)))
                        store, group = MemoryStore(), int(groups[begin])
                        now = replace(now, key_group=group)
                        yield from answer(operator.slices(store, first, now))
                    yield from answer(operator.slices(store, sent(rows.slice(begin, end - begin)), now))
            if group is not None:
                yield from answer(operator.slices(store, [], replace(ended, key_group=group)))

    return runner


def chunks_of(answers: Iterable[Result]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The outputs of results that have rows, with their rows as bytes."""
    for result in answers:
        rows = list(results(result.outputs))
        if rows:
            names, chunks = zip(*rows, strict=True)
            yield pa.array(names, pa.string()), pa.array(chunks, pa.binary())


def run_keys(
    operator: Operator, names: Sequence[str], processing_time: int, answer: Answer
) -> Callable[[Batches], Batches]:
    """As :func:`run_groups` with :func:`arrivals`, but for elements sorted by key, time and input. BATCH_NUMBER is the number
    of the row within its key, from 1.
    """

    def runner(batches: Batches) -> Batches:
        operator.open()
        store: MemoryStore | None = None
        now = Now(processing_time=processing_time)

        def send(to: MemoryStore, rows: pa.Table, *, in_order: bool = True) -> Batches:
            return answer(operator.slices(to, arrivals(operator, names, rows, in_order=in_order), now))

        with closing(operator):
            for rows in gathered(batches):
                begins = np.flatnonzero(rows.column(BATCH_NUMBER).to_numpy() == 1).tolist()
                # Further rows of the last key; then complete keys; then a key that may continue in the next rows.
                first, last = (begins[0], begins[-1]) if begins else (rows.num_rows, rows.num_rows)
                if store is not None:
                    if first:
                        yield from send(store, rows.slice(0, first))
                    if begins:
                        yield from answer(operator.slices(store, [], ENDED))
                if first < last:
                    store = MemoryStore()
                    yield from send(store, rows.slice(first, last - first), in_order=False)
                    yield from answer(operator.slices(store, [], ENDED))
                if begins:
                    store = MemoryStore()
                    yield from send(store, rows.slice(last))
            if store is not None:
                yield from answer(operator.slices(store, [], ENDED))

    return runner


def arrivals(operator: Operator, names: Sequence[str], rows: pa.Table, *, in_order: bool = True) -> list[Arrival]:
    """The elements of sorted *rows*; with watermarks, if they are *in_order* of time.

    A row has a struct column for each input, of which one is not null. BATCH_INPUT is the index of this input in *names*.
    """
    inputs = rows.column(BATCH_INPUT).to_numpy()
    time = rows.column(BATCH_TIME)[-1].as_py()
    elements = []
    for number, name in enumerate(names):
        spec = operator.inputs[name]
        events = prepared_rows(operator, name, number, rows)
        # The next rows may have the same time, or belong to the same input.
        passed = time is not None or number < inputs[-1]
        watermark = watermark_of_table(spec, time, passed) if in_order else BEFORE_TIME
        elements.append(Arrival(name, events, watermark))
    return elements


def prepared_rows(operator: Operator, name: str, number: int, rows: pa.Table) -> pa.Table | None:
    """The prepared elements of an input, of which BATCH_INPUT is the *number*; None: there are none."""
    of_input = rows.column(BATCH_INPUT).to_numpy() == number
    if not of_input.any():
        return None
    struct = rows.column(name).filter(pa.array(of_input)).combine_chunks()
    return operator.prepare(name, pa.Table.from_struct_array(struct))


def rows_of(output: str) -> Answer:
    """A function that makes the rows of one output of results."""

    def rows(answers: Iterable[Result]) -> Batches:
        for result in answers:
            for part in divided(result.outputs.get(output, _NOTHING)):
                yield from part.combine_chunks().to_batches()

    return rows


def answered(answers: Iterable[Result]) -> Batches:
    """Rows of RESULTS, without counts."""
    for names, chunks in chunks_of(answers):
        counts = [pa.nulls(len(names), METRICS), pa.nulls(len(names), GAUGES)]
        yield pa.RecordBatch.from_arrays([names, chunks, *counts], names=["output", "chunk", "metrics", "gauges"])
