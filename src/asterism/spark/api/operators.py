"""Connects a user-defined operator to the DataFrames that are its inputs (FLIP-92)."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any, Unpack

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, expect_outputs
from asterism.columns.internal import internal
from asterism.errors import StreamDefinitionError
from asterism.operators.multiple_input import MultipleInputOperator, check_operator
from asterism.operators.stream_operator import Input, StreamOperator
from asterism.spark.histories.plans import at_seam, history_of_inputs
from asterism.spark.host.batch import BATCH_INPUT, BATCH_NUMBER, BATCH_TIME, run_keys
from asterism.spark.host.execution import OperatorOutputs, Sink
from asterism.spark.host.keyed_stream import BroadcastStream, Stream
from asterism.spark.host.several_inputs import keys_of, over_streams, over_tables, together, wire_of
from asterism.spark.host.stateful import Use, batch_results
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.streams.hosts import check_on_spark
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import BeginOptions, check_use
from asterism.text.printable import quoted_name


def connect(
    operator: StreamOperator,
    inputs: Mapping[str, Stream] | None = None,
    *,
    key_groups: int | None = None,
    pages: int | None = None,
    drain: bool = False,
    co_partitioned: bool = False,
    **more: Stream,
) -> OperatorStream:
    """Connect the inputs of *operator* to streams, by name.

    Streaming and bounded DataFrames can be mixed: bounded inputs are read to their end before the first element of a stream.
    If all inputs are bounded, elements are processed in the order of their event times. Inputs without an event time come
    first, one after the other, broadcast inputs before keyed ones.

    :param inputs: a KeyedStream, DataStream or BroadcastStream for each input; or as keywords:
        ``connect(op, orders=..., payments=...)``
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps that of the checkpoint, or chooses four for each stateful task, up to 32, or one for each core of a
        cluster; a DataFrame has 32.
    :param pages: a fixed number of pages of state per key group, which cannot change either. Default: the number follows the
        size of the state. Needed only for a checkpoint that was created with a number.
    :param drain: whether this run ends the stream (streaming): one micro-batch reads all available data, then every input
        ends
    :param co_partitioned: batch: whether the inputs are tables that are bucketed by their keys in the same way. They are then
        read and processed in one stage, without a shuffle. If they are not bucketed in this way, Spark shuffles them, and a
        warning is issued; the results are the same. Broadcast inputs are not supported.
    :raises StreamDefinitionError, ColumnNotFoundError: an input is missing, connected twice, unknown or mistyped

    Runnable examples: docs/operators.md.
    """
    check_use(key_groups, drain)
    check_operator(operator)
    hint = "connect(operator, orders=stream)"
    expect(StreamDefinitionError, inputs, Mapping | None, "inputs must be a dict of streams by name", hint)
    expect(StreamDefinitionError, co_partitioned, bool, "co_partitioned must be True or False")
    twice = sorted((inputs or {}).keys() & more.keys())
    if twice:
        raise StreamDefinitionError(f'the input "{twice[0]}" is connected twice')
    return OperatorStream(operator, {**(inputs or {}), **more}, key_groups, pages, drain, co_partitioned)


class OperatorStream(OperatorOutputs):
    """The outputs of an operator. Each DataFrame is a separate query; :meth:`run` writes several outputs from one query."""

    def __init__(
        self,
        operator: StreamOperator,
        streams: Mapping[str, Stream],
        key_groups: int | None,
        pages: int | None,
        drain: bool,
        co_partitioned: bool,
    ) -> None:
        for name, stream in streams.items():
            if not isinstance(stream, Stream):
                raise StreamDefinitionError(
                    f'the input "{name}" is connected to a {type(stream).__name__}',
                    hint="KeyedStream(df, key=..., time=...), DataStream(df) or BroadcastStream(df)",
                )
            check_on_spark("connect", stream)
            if isinstance(stream, KeyedStream) and stream.order_by:
                raise StreamDefinitionError(
                    f'the input "{name}" has an order_by',
                    "An operator receives elements with equal times in arrival order.",
                    "remove it; to order elements, collect them in a list state and sort them in a timer",
                )
        if not streams:
            raise StreamDefinitionError("an operator needs inputs", hint="connect(operator, orders=KeyedStream(...))")
        self.spark: SparkSession = next(iter(streams.values())).df.sparkSession
        wires = {name: wire_of(self.spark, stream) for name, stream in streams.items()}
        for name, declared in operator.declared(Input).items():
            if name in streams and not declared.broadcast and isinstance(streams[name], BroadcastStream):
                raise StreamDefinitionError(
                    f'the input "{name}" is keyed, but is connected to a broadcast stream',
                    hint="KeyedStream(df, key=...)",
                )
        self.streaming = any(stream.df.isStreaming for stream in streams.values())
        # In batch, state is kept in memory, without pages.
        self.operator = MultipleInputOperator(operator, wires, pages=pages if self.streaming else 1)
        self.streams = {name: streams[name] for name in self.operator.inputs}
        self.key_groups, self.drain, self.co_partitioned = key_groups, drain, co_partitioned
        if co_partitioned and (self.streaming or any(spec.broadcast for spec in self.operator.inputs.values())):
            raise StreamDefinitionError(
                "co_partitioned is supported only for bounded, keyed inputs",
                hint="join broadcast tables first: multi_broadcast_join",
            )

    def output(self, name: str) -> DataFrame:
        """The rows of one output.

        :raises StreamDefinitionError: there is no output of that name
        """
        expect_outputs([name], self.operator.output_schemas)
        return self._as_dataframe(self.operator, self._results, name)

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        from_savepoint: str | None = None,
        **begin: Unpack[BeginOptions],
    ) -> StreamingQuery | None:
        """Write outputs to sinks. They are computed only once, as in :meth:`asterism.PatternStream.run`. A *history* has a table
        for each input that shall have one, unless there is only one input.

        The query's progress has the operator's counters and the number of late elements, in the observation ``asterism``.
        """
        options = self._run_options(sinks, checkpoint, drain, trigger, name, from_savepoint).begun(begin)
        expect_outputs(sinks, self.operator.output_schemas)
        options = with_savepoint(self.spark, options)
        begin_from_savepoint(self.spark, options, streaming=self.streaming)
        return self._write(self.operator, self._results, sinks, options)

    # ------------------------------------------------------------------ plans

    def _connected(self) -> Mapping[str, Stream]:
        return self.streams

    def _results(self, use: Use) -> DataFrame:
        if self.streaming:
            streams = {name: at_seam(stream, use, name) for name, stream in self.streams.items()}
            if use.reads_history:
                return history_of_inputs(self.operator, self.streams, streams, use=use)
            return over_streams(self.spark, self.operator, streams, use=use)
        if self.co_partitioned:
            return self._co_partitioned(use)
        return over_tables(self.operator, self.streams, use=use)

    def _co_partitioned(self, use: Use) -> DataFrame:
        """All elements, by key and in order. Unlike a repartition, a window does not move rows of bucketed tables."""
        names = list(self.streams)
        for name in names:
            if not keys_of(self.streams[name]):
                raise StreamDefinitionError(f'the input "{name}" has no key by which it can be partitioned')

        def keys(name: str) -> list[Column]:
            return [
                F.col(quoted_name(key)).alias(internal(f"key{n}")) for n, key in enumerate(keys_of(self.streams[name]))
            ]

        rows = together(self.operator, self.streams, names, keys)
        by_key = Window.partitionBy(*[internal(f"key{n}") for n in range(len(self.operator.key_schema))])
        number = F.row_number().over(by_key.orderBy(BATCH_TIME, BATCH_INPUT))
        rows = rows.select(number.alias(BATCH_NUMBER), BATCH_TIME, BATCH_INPUT, *map(quoted_name, names))
        _warn_of_a_shuffle(rows)
        return batch_results(rows, partial(run_keys, self.operator, names), self.operator, use)


def _warn_of_a_shuffle(rows: DataFrame) -> None:
    with redirect_stdout(io.StringIO()) as plan:
        rows.explain()
    if re.search(r"\bExchange\b", plan.getvalue()):
        warnings.warn(
            "co_partitioned=True, but the inputs are not partitioned by their keys: Spark shuffles them. "
            "Bucket all of them by the key, into the same number of buckets.",
            stacklevel=4,
        )
