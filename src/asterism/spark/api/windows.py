"""Windows over DataFrames of Spark: the plans of their queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asterism.expressions.aggregates import FUNCTIONS
from asterism.expressions.parts_for_spark import Expression
from asterism.operators.operator import EVENTS, Arrival, sorted_arrival
from asterism.operators.sink_functions import Sink
from asterism.spark.histories.plans import at_seam, history_results
from asterism.spark.host.batch import BATCH_GROUP
from asterism.spark.host.column_types import arrow_schema, function_schema, zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed, with_computed
from asterism.spark.host.execution import OperatorOutputs
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.stateful import Use, bounded, hashed, key_group_of, packed, stateful
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import RunOptions
from asterism.streams.windows import NO_CONTENTS, Build, WindowedStream
from asterism.text.printable import quoted_name
from asterism.windows.assigners import Windows
from asterism.windows.operator import WindowOperator
from asterism.windows.spec import (
    WindowOptions,
)
from asterism.windows.triggers import DeltaTrigger, Trigger, walk


def windowed_stream(
    stream: KeyedStream,
    windows: Windows,
    trigger: Trigger | None,
    allowed_lateness: timedelta,
    in_order: bool | None,
    key_groups: int | None,
    drain: bool,
    options: WindowOptions,
) -> SparkWindowedStream:
    """See :func:`asterism.window`."""
    return SparkWindowedStream(stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, options)


class SparkWindowedStream(WindowedStream[DataFrame], OperatorOutputs):
    """The windows of a DataFrame."""

    _rows_class = DataFrame

    def __init__(
        self,
        stream: KeyedStream,
        windows: Windows,
        trigger: Trigger | None,
        allowed_lateness: timedelta,
        in_order: bool | None,
        key_groups: int | None,
        drain: bool,
        options: WindowOptions,
    ) -> None:
        super().__init__(stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, options)
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        self._computed = ComputedColumns(stream.df, self.schema)
        # Validate everything except the aggregates now, not when a result is requested.
        operator = self._bound(partial(self._operator, NO_CONTENTS, False))
        self.trigger = operator.spec.effective_trigger
        if not self.is_streaming:
            self.in_order = stream.time is not None
        elif in_order is None:
            self.in_order = stream.time is not None and not operator.processing_time

    @property
    def is_streaming(self) -> bool:
        return bool(self.stream.df.isStreaming)

    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        return function_schema(self.spark, schema, hint)

    def _run(
        self, build: Build, operator: WindowOperator, sinks: Mapping[str, Sink], options: RunOptions
    ) -> StreamingQuery | None:
        options = with_savepoint(self.spark, options)
        begin_from_savepoint(self.spark, options, streaming=self.stream.df.isStreaming, operator=operator)
        return self._write(operator, partial(self._results, build, operator), sinks, options)

    def _bound(self, build: Build, measures: Any = None) -> WindowOperator:
        """The operator, for the columns of the stream and those that Spark computes for its expressions."""
        return self._computed.bind(build, self._expressions(measures))

    def _expressions(self, measures: Any) -> Iterator[Expression]:
        """The SQL of the windows, the trigger, the evictor and the measures."""
        triggers = [] if self.trigger is None else walk(self.trigger)
        deltas = [trigger.delta for trigger in triggers if isinstance(trigger, DeltaTrigger)]
        evictor, gap = self._options.get("evictor"), getattr(self.windows, "dynamic_gap", None)
        for text in (gap, *deltas, getattr(evictor, "distance", None)):
            if isinstance(text, str):
                yield Expression(text)
        for text in measures or ():
            yield Expression(text, aggregates=FUNCTIONS)

    def _single(self, build: Build, output: str, measures: Any = None) -> DataFrame:
        operator = self._bound(build, measures)
        return self._as_dataframe(operator, partial(self._results, build, operator), output)

    def _results(self, build: Build, operator: WindowOperator, use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        return self._streaming(build, operator, use) if self.stream.df.isStreaming else self._batch(operator, use)

    def _streaming(self, build: Build, operator: WindowOperator, use: Use) -> DataFrame:
        stream = at_seam(self.stream, use)
        df = with_computed(stream.df, operator.schema)
        rows = hashed(df, stream.keys, operator.inputs[EVENTS].schema.names, stream)
        time_mode = PROCESSING_TIME if operator.processing_time else NO_TIME
        if use.reads_history:
            return history_results(stream, operator, rows, use=use, time_mode=time_mode)
        chunks = packed(stream, operator, EVENTS, rows, use=use)
        zone = zone_of(operator.schema) if has_computed(operator.schema) else zone_if_used(build, self.schema)
        return stateful(operator, [chunks], streams={EVENTS: stream}, use=use, zone=zone, time_mode=time_mode)

    def _batch(self, operator: WindowOperator, use: Use) -> DataFrame:
        """All elements, by key group and in time order. Memory usage is that of the open windows of one key group."""
        stream = self.stream
        group = key_group_of(stream.keys, use.key_groups)
        df = with_computed(stream.df, operator.schema)
        rows = df.select(group.alias(BATCH_GROUP), *map(quoted_name, operator.inputs[EVENTS].schema.names))
        order = [] if stream.time is None else [quoted_name(stream.time)]

        def sent(rows: pa.Table) -> list[Arrival]:
            return sorted_arrival(EVENTS, operator.prepare(EVENTS, rows))

        return bounded(rows, order, operator, sent, use=use)
