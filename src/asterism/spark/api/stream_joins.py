"""Joins over DataFrames of Spark: the plans of their queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asterism.errors import ExpressionError
from asterism.joins.conditions import JoinConditions, names_in_conditions
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JoinOperator
from asterism.live.live_options import LiveOptions, not_live
from asterism.operators.sink_functions import Sink
from asterism.spark.histories.plans import at_seam, history_of_inputs
from asterism.spark.host.column_types import zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed, with_computed, with_hint
from asterism.spark.host.execution import OperatorOutputs
from asterism.spark.host.several_inputs import over_streams, over_tables, wire_of
from asterism.spark.host.stateful import Use
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.streams.data_streams import Stream
from asterism.streams.joins import BuildJoin
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import RunOptions

_OF_ONE_SIDE = "Spark computes an expression over the columns of one side: f(x) > other_y instead of f(x, other_y)"


def hosted_join(
    streams: Mapping[str, KeyedStream],
    build: BuildJoin,
    conditions: JoinConditions,
    key_groups: int | None,
    drain: bool,
) -> SparkJoin:
    """See :class:`asterism.streams.joins.HostedJoin`."""
    return SparkJoin(streams, build, conditions, key_groups, drain)


class SparkJoin(OperatorOutputs):
    """A join of DataFrames.

    :param build: creates the operator of its inputs, with the options ``late`` and ``pages``
    """

    rows_class = DataFrame

    def __init__(
        self,
        streams: Mapping[str, KeyedStream],
        build: BuildJoin,
        conditions: JoinConditions,
        key_groups: int | None,
        drain: bool,
    ) -> None:
        self.streams, self.key_groups, self.drain = dict(streams), key_groups, drain
        self._computed: dict[str, tuple[pa.Schema, Mapping[str, str]]] = {}
        """The columns that Spark computes, of the inputs that have any."""
        frames = [stream.df for stream in streams.values()]
        self.spark: SparkSession = frames[0].sparkSession
        self.streaming = any(df.isStreaming for df in frames)
        self._build = build
        self._wires = {name: wire_of(self.spark, stream) for name, stream in streams.items()}
        try:
            self.operator = self._operator([])
        except ExpressionError as error:
            self.operator = self._with_computed(conditions, error)

    def _with_computed(self, conditions: JoinConditions, refusal: ExpressionError) -> JoinOperator | MultiJoinOperator:
        """The operator, after the parts of the conditions that only Spark can evaluate have become columns of the inputs.

        :param refusal: why the conditions cannot be evaluated without them
        :raises ExpressionError: they cannot be evaluated with them
        """
        names = names_in_conditions(self._wires, conditions.prefixes)
        available = [new for columns in names.values() for new in columns.values()]
        unknown_functions: set[str] = set()
        for name, parts in conditions.parts_for_spark(self._wires).items():
            wire = self._wires[name]
            columns = ComputedColumns(self.streams[name].df, wire.schema, names[name])
            columns.available, columns.unknown_functions = available, unknown_functions
            schema = columns.schema_with(parts)
            self._wires[name] = replace(wire, schema=schema)
            self._computed[name] = schema, names[name]
        if not any(has_computed(wire.schema) for wire in self._wires.values()):
            raise with_hint(refusal, unknown_functions, _OF_ONE_SIDE) from None
        try:
            return self._operator([])
        except ExpressionError as error:
            raise with_hint(error, unknown_functions, _OF_ONE_SIDE) from None

    def _operator(self, late: Collection[str], schema: pa.Schema | None = None) -> JoinOperator | MultiJoinOperator:
        """:param schema: instead of that of the first input"""
        wires = dict(self._wires)
        if schema is not None:
            first = next(iter(wires))
            wires[first] = replace(wires[first], schema=schema)
        return self._build(wires, late=late, pages=None if self.streaming else 1)  # in batch, state is kept in memory

    def run(self, late: Sequence[str], sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        operator = self._operator(late)
        begin_from_savepoint(self.spark, options, streaming=self.streaming, operator=operator)
        options = with_savepoint(self.spark, options)
        return self._write(operator, partial(self._results, operator, late), sinks, options)

    def open(self, late: Sequence[str], options: LiveOptions, outputs: Sequence[str]) -> NoReturn:
        raise not_live()

    # ------------------------------------------------------------------ plans

    def _connected(self) -> Mapping[str, Stream]:
        return self.streams

    def rows(self, late: Collection[str], output: str) -> DataFrame:
        operator = self._operator(late)
        return self._as_dataframe(operator, partial(self._results, operator, late), output, operator.outlives)

    def _results(self, operator: JoinOperator | MultiJoinOperator, late: Collection[str], use: Use) -> DataFrame:
        streams = {name: self._with_computed_columns(name, at_seam(s, use, name)) for name, s in self.streams.items()}
        if not self.streaming:
            return over_tables(operator, streams, use=use)
        if use.reads_history:
            return history_of_inputs(operator, self.streams, streams, use=use)
        first = next(iter(self._wires.values())).schema
        computed = any(has_computed(wire.schema) for wire in self._wires.values())
        zone = zone_of(first) if computed else zone_if_used(partial(self._operator, late), first)
        return over_streams(self.spark, operator, streams, use=use, zone=zone)

    def _with_computed_columns(self, name: str, stream: KeyedStream) -> KeyedStream:
        if name not in self._computed:
            return stream
        return replace(stream, df=with_computed(stream.df, *self._computed[name]))
