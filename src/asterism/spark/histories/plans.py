"""The plan of the batch job that reads the history of a query, and of its streams from the seam on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import END_OF_TIME, TIME, micros
from asterism.errors import StreamDefinitionError
from asterism.operators.operator import EVENTS, Arrival, Operator
from asterism.operators.state.partition_watermarks import check_names, check_partitions, partition_name
from asterism.spark.histories.runner import (
    END_OF_GROUP,
    HISTORY,
    STAGE,
    ToArrivals,
    arrivals_of_events,
    arrivals_of_inputs,
    run_history,
    stages_of,
)
from asterism.spark.host.batch import BATCH_GROUP, BATCH_INPUT, BATCH_ORDER, BATCH_TIME
from asterism.spark.host.exchange import MILLISECOND
from asterism.spark.host.several_inputs import hash_columns, time_mode_of_inputs
from asterism.spark.host.stateful import Use, group_column, hashed, mapped
from asterism.spark.host.times import event_micros
from asterism.streams.data_streams import Stream
from asterism.streams.keyed_stream import KeyedStream
from asterism.text.printable import quoted_name

S = TypeVar("S", bound=Stream)


def at_seam(stream: S, use: Use, name: str = EVENTS) -> S:
    """The stream of an input from the seam on, or its history, as *use* says. A table is read as a whole before both.

    :raises StreamDefinitionError: the history does not fit
    """
    seam = use.seam
    if seam is None or not stream.df.isStreaming:
        return stream
    df = stream.df
    if use.reads_history:
        df = _history_of(stream, seam.history.get(name), name)
    if seam.until is not None and (stream.time is not None or name in seam.history):
        if stream.time is None:
            raise StreamDefinitionError(
                "history_until needs an event time", f'The input "{name}" has none.', 'KeyedStream(..., time="ts")'
            )
        times = event_micros(df, stream.time, stream.time_unit)
        df = df.where((times < seam.until) if use.reads_history else (times >= seam.until) | times.isNull())
    return replace(stream, df=df, idle_after=None) if use.reads_history else replace(stream, df=df)


def _history_of(stream: Stream, history: DataFrame | None, name: str) -> DataFrame:
    """The history with the columns of the stream; without one, it is empty."""
    df: DataFrame = stream.df
    if history is None:
        return df.sparkSession.createDataFrame([], df.schema)
    if isinstance(stream, KeyedStream) and stream.computes_keys:
        raise StreamDefinitionError(
            "a stream with a history cannot compute its keys", hint="add a column to both: df.withColumn(...)"
        )
    of_history = {field.name: field.dataType for field in history.schema.fields}
    for field in df.schema.fields:
        if of_history.get(field.name) != field.dataType:
            has = "no such column" if field.name not in of_history else of_history[field.name].simpleString()
            raise StreamDefinitionError(
                f'the history and the stream differ in the column "{field.name}"',
                f"Stream: {field.dataType.simpleString()}\nHistory: {has}"
                + ("" if name == EVENTS else f"\nInput: {name}"),
            )
    return history.select([quoted_name(column) for column in df.columns])


def history_results(
    stream: KeyedStream,
    operator: Operator,
    rows: DataFrame,
    *,
    use: Use,
    time_mode: str,
    first: Sequence[Arrival] = (),
    prepared: bool = False,
) -> DataFrame:
    """The state after the history of an operator with one stream, and its results: HISTORY.

    :param stream: the history
    :param rows: its rows (hashed), without those that do not affect the result
    :param first: arrivals that every key group gets before all others
    :param prepared: whether the operator has prepared the rows
    :raises StreamDefinitionError: the stream has no event time
    """
    if stream.time is None:
        raise StreamDefinitionError("a history needs an event time", hint='KeyedStream(df, key="user", time="ts")')
    if stream.watermark_by:  # operators with one stream do not know it yet
        spec = replace(operator.inputs[EVENTS], watermark_by=tuple(stream.watermark_by))
        operator.inputs = {**operator.inputs, EVENTS: spec}
    end = _end_of(EVENTS, stream)
    times = F.col(TIME) if prepared else event_micros(rows, stream.time, stream.time_unit)
    rows = rows.select(
        "*",
        group_column(F.col(KEY_HASH), use.key_groups).cast("int").alias(BATCH_GROUP),
        F.lit(0).alias(STAGE),
        times.alias(BATCH_TIME),
        F.monotonically_increasing_id().alias(BATCH_ORDER),
    )
    arrivals = arrivals_of_events(operator, _limit(end), prepared=prepared)
    return _history(
        rows, [BATCH_TIME, BATCH_ORDER], operator, arrivals, [end], use=use, time_mode=time_mode, first=first
    )


def history_of_inputs(
    operator: Operator, streams: Mapping[str, Stream], histories: Mapping[str, Stream], *, use: Use
) -> DataFrame:
    """The same of an operator with several inputs. Tables come first, then the histories of inputs without an event time, one
    after the other and those of broadcast inputs before others, and then all others in the order of their times.

    :param streams: what the inputs are connected to
    :param histories: of those that are streams, the histories (:func:`at_seam`)
    """
    bounded = [name for name, stream in streams.items() if not stream.df.isStreaming]

    stages = stages_of(operator, bounded)
    parts, ends, limits = [], [], {}
    for number, (name, stage) in enumerate(stages.items()):
        end = Arrival(name, None, END_OF_TIME) if name in bounded else _end_of(name, histories[name])
        ends.append(end)
        limits[name] = _limit(end)
        parts.append(_part(operator, name, histories[name], number, stage, key_groups=use.key_groups))
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    arrivals = arrivals_of_inputs(operator, [*stages], limits, bounded)
    order = [BATCH_TIME, BATCH_INPUT, BATCH_ORDER]
    time_mode = time_mode_of_inputs(operator)
    return _history(rows, order, operator, arrivals, ends, use=use, time_mode=time_mode)


def _part(operator: Operator, name: str, stream: Stream, number: int, stage: int, *, key_groups: int) -> DataFrame:
    """The rows of an input: its number, its stage, and a struct."""
    spec = operator.inputs[name]
    columns = spec.schema.names
    is_sorted = stream.time is not None and stage > 0
    times = event_micros(stream.df, str(stream.time), stream.time_unit) if is_sorted else F.lit(None).cast("long")
    df = stream.df.withColumns({BATCH_TIME: times, BATCH_ORDER: F.monotonically_increasing_id()})
    rows = hashed(df, hash_columns(stream, columns), [*columns, BATCH_TIME, BATCH_ORDER])
    group: Column = group_column(F.col(KEY_HASH), key_groups).cast("int")
    if spec.broadcast:
        group = F.explode(F.sequence(F.lit(0), F.lit(key_groups - 1)))
    struct = F.struct(*[F.col(quoted_name(column)) for column in [*columns, KEY_HASH]])
    numbers = F.lit(stage).alias(STAGE), F.lit(number).alias(BATCH_INPUT)
    return rows.select(group.alias(BATCH_GROUP), *numbers, BATCH_TIME, BATCH_ORDER, struct.alias(name))


def _end_of(name: str, stream: Stream) -> Arrival:
    """The watermark after a history, as after a micro-batch with all of its rows (:func:`asterism.spark.host.exchange.pack`)."""
    if stream.time is None:
        return Arrival(name)
    delay = micros(stream.max_out_of_orderness) + MILLISECOND
    latest = F.max(event_micros(stream.df, stream.time, stream.time_unit))
    if not stream.watermark_by:
        row = stream.df.agg(latest).first()
        return Arrival(name) if row is None or row[0] is None else Arrival(name, None, row[0] - delay)
    columns = [F.col(quoted_name(column)) for column in stream.watermark_by]
    found = stream.df.groupBy(*columns).agg(latest.alias(BATCH_TIME)).where(F.col(BATCH_TIME).isNotNull()).toArrow()
    check_partitions(found.num_rows, stream.watermark_by)
    values = zip(*(found.column(column).to_pylist() for column in stream.watermark_by), strict=True)
    partitions = {
        partition_name(each): latest - delay
        for each, latest in zip(values, found.column(BATCH_TIME).to_pylist(), strict=True)
    }
    check_names(partitions, stream.watermark_by)
    return Arrival(name, partitions=partitions)


def _limit(end: Arrival) -> int:
    return min(end.partitions.values(), default=end.watermark) if end.partitions else end.watermark


def _history(
    rows: DataFrame,
    order: Sequence[str],
    operator: Operator,
    arrivals: ToArrivals,
    ends: Sequence[Arrival],
    *,
    use: Use,
    time_mode: str,
    first: Sequence[Arrival] = (),
) -> DataFrame:
    of_groups = rows.sparkSession.range(use.key_groups).select(
        F.col("id").cast("int").alias(BATCH_GROUP), F.lit(END_OF_GROUP).alias(STAGE)
    )
    rows = rows.unionByName(of_groups, allowMissingColumns=True).repartition(BATCH_GROUP)
    rows = rows.sortWithinPartitions(BATCH_GROUP, STAGE, *order)
    now = time.time_ns() // 1000
    return mapped(rows, run_history(operator, arrivals, ends, now, time_mode, first=first), HISTORY)
