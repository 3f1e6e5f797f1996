"""User-defined operators over DataFrames of Spark: the plans of their queries."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import NoReturn

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from asterism.columns.internal import internal
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import LiveOptions, not_live
from asterism.operators.multiple_input import MultipleInputOperator
from asterism.operators.stream_operator import StreamOperator
from asterism.spark.histories.plans import at_seam, history_of_inputs
from asterism.spark.host.batch import BATCH_INPUT, BATCH_NUMBER, BATCH_TIME, run_keys
from asterism.spark.host.execution import OperatorOutputs, Sink
from asterism.spark.host.several_inputs import keys_of, over_streams, over_tables, together, wire_of
from asterism.spark.host.stateful import Use, batch_results
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.streams.data_streams import Stream
from asterism.streams.operators import check_co_partitioned
from asterism.streams.run_options import RunOptions
from asterism.text.printable import quoted_name


def hosted_operator(
    operator: StreamOperator,
    streams: Mapping[str, Stream],
    key_groups: int | None,
    pages: int | None,
    drain: bool,
    co_partitioned: bool,
) -> SparkOperator:
    """See :class:`asterism.streams.operators.HostedOperator`."""
    return SparkOperator(operator, streams, key_groups, pages, drain, co_partitioned)


class SparkOperator(OperatorOutputs):
    """An operator over DataFrames."""

    def __init__(
        self,
        operator: StreamOperator,
        streams: Mapping[str, Stream],
        key_groups: int | None,
        pages: int | None,
        drain: bool,
        co_partitioned: bool,
    ) -> None:
        self.spark: SparkSession = next(iter(streams.values())).df.sparkSession
        wires = {name: wire_of(self.spark, stream) for name, stream in streams.items()}
        self.streaming = any(stream.df.isStreaming for stream in streams.values())
        # In batch, state is kept in memory, without pages.
        self.operator = MultipleInputOperator(operator, wires, pages=pages if self.streaming else 1)
        self.streams = {name: streams[name] for name in self.operator.inputs}
        self.key_groups, self.drain, self.co_partitioned = key_groups, drain, co_partitioned
        if co_partitioned:
            check_co_partitioned(not self.streaming, self.operator)

    def rows(self, output: str) -> DataFrame:
        return self._as_dataframe(self.operator, self._results, output)

    def run(self, sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        options = with_savepoint(self.spark, options)
        begin_from_savepoint(self.spark, options, streaming=self.streaming, operator=self.operator)
        return self._write(self.operator, self._results, sinks, options)

    def open(self, options: LiveOptions) -> NoReturn:
        raise not_live()

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
