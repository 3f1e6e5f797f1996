"""Patterns and rules over DataFrames of Spark: the plans of their queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect_options
from asterism.errors import ExpressionError
from asterism.expressions.aggregates import CALLS_OF_MATCHES
from asterism.expressions.names import Scope
from asterism.expressions.outer_parts import DividedMeasures, divided_measures
from asterism.expressions.parts_for_spark import Expression
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import VALUES_OF_MATCH, OutputKind, OutputSpec
from asterism.matching.process_function import ProcessSpec
from asterism.matching.spec import MatchOptions
from asterism.operators.operator import EVENTS
from asterism.operators.sink_functions import Sink
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.spark.histories.plans import at_seam, history_results
from asterism.spark.host.batch import ORDER, order_of_table, run_table
from asterism.spark.host.column_types import arrow_schema, function_schema, zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed
from asterism.spark.host.execution import OperatorOutputs
from asterism.spark.host.host import EVENT_TIME, NO_TIME, PROCESSING_TIME
from asterism.spark.host.outer_measures import OuterProjection, Projections
from asterism.spark.host.stateful import (
    Use,
    batch_results,
    filtered,
    hash_of,
    hashed,
    packed,
    stateful,
)
from asterism.spark.host.times import event_micros
from asterism.spark.rules.rules import SparkPatternProcessorStream
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.spark.session.settings import filter_or_none, of_expressions
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_processors import ProcessorOptions, check_given, rule_options
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.run_options import RunOptions
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from asterism.streams.backtests import Backtest


def pattern_stream(
    stream: KeyedStream, pattern: Pattern, key_groups: int | None, drain: bool, options: MatchOptions
) -> SparkPatternStream:
    """See :meth:`asterism.CEP.pattern`."""
    return SparkPatternStream(stream, pattern, key_groups, drain, options)


def pattern_processors(
    stream: KeyedStream,
    factory: PatternProcessorDiscovererFactory,
    *,
    store: str | None = None,
    on_error: str = "fail",
    on_limit: str = "disable",
    key_groups: int | None,
    drain: bool,
    **options: Unpack[ProcessorOptions],
) -> SparkPatternProcessorStream:
    """See :meth:`asterism.CEP.pattern_processors`."""
    check_given(on_error, on_limit)
    expect_options("pattern_processors", options, ProcessorOptions)
    of_rules, lookups = rule_options(stream, _schema_of(stream), options)
    of_rules = replace(of_rules, disable_on_error=on_error == "disable", disable_on_limit=on_limit == "disable")
    return SparkPatternProcessorStream(stream, factory, store, key_groups, drain, of_rules, lookups)


def backtest(
    stream: KeyedStream,
    rules: Any,
    against: Any,
    *,
    key_groups: int | None,
    examples: int,
    label: str | None,
    **options: Unpack[ProcessorOptions],
) -> Backtest:
    """See :meth:`asterism.CEP.backtest`."""
    from asterism.spark.rules import backtest as backtests  # imports SQLAlchemy, which few queries need

    expect_options("backtest", options, ProcessorOptions)
    of_rules, lookups = rule_options(stream, _schema_of(stream), options)
    return backtests.backtest(
        stream, rules, against, of_rules, lookups, key_groups=key_groups, examples=examples, label=label
    )


def _schema_of(stream: KeyedStream) -> pa.Schema:
    return arrow_schema(stream.df.sparkSession, stream.df.schema, stream.time_unit)


class SparkPatternStream(PatternStream[DataFrame], OperatorOutputs):
    """The results of a pattern over a DataFrame."""

    def __init__(
        self,
        stream: KeyedStream,
        pattern: Pattern,
        key_groups: int | None,
        drain: bool,
        options: MatchOptions,
    ) -> None:
        super().__init__(stream, pattern, key_groups, drain, options)
        if not stream.df.isStreaming:
            self._options["pages"] = 1
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        self._computed = ComputedColumns(stream.df, self.schema)
        # Validate the pattern now, not when a result is requested. Names of columns depend on the result.
        self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=())})

    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        return function_schema(self.spark, schema, hint)

    def _run(
        self, operator: CepOperator, projections: Projections, sinks: Mapping[str, Sink], options: RunOptions
    ) -> StreamingQuery | None:
        options = with_savepoint(self.spark, options)
        begin_from_savepoint(self.spark, options, streaming=self.stream.df.isStreaming, operator=operator)
        return self._write(operator, partial(self._results, operator), sinks, options, projections=projections)

    def _output(self, operator: CepOperator, projections: Projections, name: str) -> DataFrame:
        results = partial(self._results, operator)
        return self._as_dataframe(operator, results, name, projection=projections.get(name))

    def _bound(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None
    ) -> tuple[CepOperator, Projections]:
        """The operator, and the projections after it."""
        build = partial(self._divided_for, outputs, process)
        operator, measures = self._computed.bind(build, self._expressions(outputs))
        return operator, {
            name: OuterProjection.checked(self.spark, operator.output_schemas[name], divided, self.schema.names)
            for name, divided in measures.items()
        }

    def _divided_for(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None, schema: pa.Schema
    ) -> tuple[CepOperator, Mapping[str, DividedMeasures]]:
        """The operator for these columns of the events, and the outputs whose measures have outer parts."""
        try:
            return self._operator_for(outputs, process, schema), {}
        except ExpressionError as error:
            refusal = error
        self._operator_for({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=())}, process, schema)
        measures: dict[str, DividedMeasures] = {}
        divided_outputs = dict(outputs)
        for name, spec in outputs.items():
            if spec.measures is not None:

                def check(text: str, spec: OutputSpec = spec) -> None:
                    self._operator_for({spec.kind.value: replace(spec, measures=(text,))}, None, schema)

                names = Scope(schema, tuple(self._stages())).names(CALLS_OF_MATCHES)
                texts, measures[name] = divided_measures(spec.measures, names, VALUES_OF_MATCH, check)
                divided_outputs[name] = replace(spec, measures=tuple(texts))
        measures = {name: divided for name, divided in measures.items() if divided.outer}
        if not measures:
            raise refusal
        return self._operator_for(divided_outputs, process, schema), measures

    def _expressions(self, outputs: Mapping[str, OutputSpec]) -> Iterator[Expression]:
        """The SQL of conditions and measures."""
        stages = self._stages()
        for condition in compile_pattern(self.pattern, self._options["semantics"]).conditions:
            if isinstance(condition, SqlCondition):
                yield Expression(condition.text, stages)
        for output in outputs.values():
            for text in output.measures or ():
                yield Expression(text, stages, CALLS_OF_MATCHES)

    def _results(self, operator: CepOperator, use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        with of_expressions(self.spark):
            return self._streaming(operator, use) if self.stream.df.isStreaming else self._batch(operator, use)

    def _relevance(self, operator: CepOperator) -> str | None:
        """A condition for the events that can affect the result, which filters them before the exchange. Late events are kept if
        the output ``late`` is requested.
        """
        return None if operator.wants_late else filter_or_none(operator.pattern.relevance_sql())

    def _inputs(self, df: DataFrame, operator: CepOperator) -> tuple[DataFrame, list[str]]:
        """The columns that the operator prepares. Spark evaluates the conditions, if it can, and then need not transfer their
        columns. See docs/decisions/0083.
        """
        names, pattern = operator.inputs[EVENTS].schema.names, operator.pattern
        if pattern.bits_sql is None:
            return df, names
        bits = {field.name: F.expr(text) for field, text in zip(pattern.bit_fields, pattern.bits_sql, strict=True)}
        return df.withColumns(bits), [*operator.columns_beside_bits, *bits]

    def _streaming(self, operator: CepOperator, use: Use) -> DataFrame:
        stream = at_seam(self.stream, use)
        relevant, watched = filtered(stream, self._relevance(operator), use, operator.schema)
        relevant, names = self._inputs(relevant, operator)
        time_mode = PROCESSING_TIME if stream.time is None else EVENT_TIME if watched else NO_TIME
        rows = hashed(relevant, stream.keys, names, stream)
        if use.reads_history:
            return history_results(stream, operator, rows, use=use, time_mode=NO_TIME)
        chunks = packed(stream, operator, EVENTS, rows, use=use, watched=watched)
        # What Spark computes may depend on the time zone.
        build = partial(self._operator_for, operator.outputs, operator.process_spec)
        zone = zone_of(operator.schema) if has_computed(operator.schema) else zone_if_used(build, operator.schema)
        return stateful(operator, [chunks], streams={EVENTS: stream}, use=use, zone=zone, time_mode=time_mode)

    def _batch(self, operator: CepOperator, use: Use) -> DataFrame:
        stream = self.stream
        relevant, _ = filtered(stream, self._relevance(operator), use, operator.schema)
        df, names = self._inputs(relevant, operator)
        df = df.select([quoted_name(name) for name in names])
        micros = None if stream.time is None else event_micros(df, stream.time, stream.time_unit)
        # Repartition by the hash: if a table is bucketed by the keys, Spark removes a repartition by them, and then the
        # bucketing. The hash is computed again after the exchange, which takes less time than to exchange it.
        key_hash = hash_of(stream.keys)
        df = df.repartition(key_hash) if stream.keys else df.coalesce(1)
        df = df.withColumn(ORDER, order_of_table(key_hash, micros)).sortWithinPartitions(ORDER)
        return batch_results(df, partial(run_table, operator), operator, use)
