"""MATCH_RECOGNIZE over DataFrames of Spark: the plans of its queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from asterism.columns.groups import KEY_HASH
from asterism.columns.internal import internal
from asterism.expressions.computed_columns import is_computed
from asterism.operators.key_group import check_pages
from asterism.operators.operator import EVENTS, Result
from asterism.operators.sink_functions import Sink
from asterism.row_patterns.automaton import AT_END
from asterism.row_patterns.checking import CheckedClause, ClauseExpressions, check
from asterism.row_patterns.clause.clause import Clause
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.operator import (
    LATE_ROWS,
    MATCHES,
    MAX_ROWS,
    RowPatternOperator,
    check_limit,
    columns_read,
    event_time_of,
)
from asterism.row_patterns.ordered_rows import columns_beside_words, complete_with_words
from asterism.row_patterns.outer_measures import check_divided
from asterism.spark import RESULTS
from asterism.spark.histories.plans import at_seam, history_results
from asterism.spark.host.batch import Answer, answered, rows_of, whole
from asterism.spark.host.column_types import arrow_schema, plain_columns, spark_schema, zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed, with_computed
from asterism.spark.host.exchange import Batches
from asterism.spark.host.execution import OperatorOutputs, computed_parts
from asterism.spark.host.host import EVENT_TIME, NO_TIME
from asterism.spark.host.outer_measures import OuterProjection
from asterism.spark.host.stateful import (
    Use,
    filtered,
    hash_of,
    hashed,
    mapped,
    packed,
    stateful,
)
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.spark.session.settings import filter_or_none, of_expressions
from asterism.spark.session.unwrapping import unwrapping
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.row_patterns import RowPatternStream, SearchOptions
from asterism.streams.run_options import RunOptions
from asterism.text.printable import quoted_name

_PROCESSING_TIME = internal("processing_time")
"""A column of the rows of a table: Spark's current time, which is one for a query, in microseconds since the epoch."""

_AS_ARGUMENT = (
    "Spark computes an expression over a single row, also as an argument: LAST(f(A.x)) instead of f(LAST(A.x)); of several rows,"
    " DEFINE takes the functions of docs/sql.md"
)


def row_pattern_stream(
    df: DataFrame,
    clause: Clause,
    max_out_of_orderness: timedelta,
    idle_after: timedelta | None,
    watermark_by: Sequence[str],
    key_groups: int | None,
    drain: bool,
    options: SearchOptions,
) -> SparkRowPatternStream:
    """See :func:`asterism.match_recognize`."""
    return SparkRowPatternStream(df, clause, max_out_of_orderness, idle_after, watermark_by, key_groups, drain, options)


class SparkRowPatternStream(RowPatternStream[DataFrame], OperatorOutputs):
    """The results of a row pattern over a DataFrame."""

    def __init__(
        self,
        df: DataFrame,
        clause: Clause,
        max_out_of_orderness: timedelta,
        idle_after: timedelta | None,
        watermark_by: Sequence[str],
        key_groups: int | None,
        drain: bool,
        options: SearchOptions,
    ) -> None:
        super().__init__(key_groups, drain)
        df = plain_columns(df)
        self.spark: SparkSession = df.sparkSession
        self.schema = arrow_schema(self.spark, df.schema)
        self._options = options
        computed = ComputedColumns(df, self.schema)
        divided = computed.bind(partial(check_divided, clause), [ClauseExpressions(clause)], _AS_ARGUMENT)
        self._checked = divided.checked
        self._projections: dict[str, OuterProjection] = {}
        if divided.measures is not None:
            self._projections[MATCHES] = OuterProjection.checked(
                self.spark, self._checked.output, divided.measures, self.schema.names
            )
        check_limit(options.get("max_rows", MAX_ROWS), options.get("on_limit", "error"))
        check_pages(options.get("pages"))
        self.stream = KeyedStream(
            df,
            time=event_time_of(self._checked) if df.isStreaming else None,
            max_out_of_orderness=max_out_of_orderness,
            idle_after=idle_after if df.isStreaming else None,
            watermark_by=watermark_by if df.isStreaming else (),
        )

    @property
    def operator(self) -> RowPatternOperator:
        """The operator of its matches."""
        return self._operator([MATCHES])

    def _run(self, sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        outputs, options = list(sinks), with_savepoint(self.spark, options)
        operator = self._operator(outputs)
        begin_from_savepoint(self.spark, options, streaming=self.stream.df.isStreaming, operator=operator)
        return self._write(operator, partial(self._results, outputs), sinks, options, projections=self._projections)

    # ------------------------------------------------------------------ plans

    def _single(self, output: str) -> DataFrame:
        projection = self._projections.get(output)
        if not self.stream.df.isStreaming:
            if output == LATE_ROWS:
                return self.stream.df.limit(0)
            with of_expressions(self.spark):
                rows = self._by_key()
            found = mapped(rows, _matcher(self._checked, rows_of(MATCHES)), spark_schema(self._checked.output))
            parts = computed_parts([self._checked.rows.input], [] if projection is None else [projection])
            return unwrapping(found if projection is None else projection.of(found), parts)
        takes, results = _longest_wait(self._checked) if output == MATCHES else 0, partial(self._results, [output])
        return self._as_dataframe(self._operator([output]), results, output, takes, projection)

    def _operator(self, outputs: Collection[str], schema: pa.Schema | None = None) -> RowPatternOperator:
        """:param schema: another one than that of the rows"""
        checked = self._checked if schema is None else check(self._checked.clause, schema)
        return RowPatternOperator(checked, checked.rows.input, outputs=outputs, **self._options)

    def _results(self, outputs: Collection[str], use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        with of_expressions(self.spark):
            return self._plan(outputs, use)

    def _plan(self, outputs: Collection[str], use: Use) -> DataFrame:
        if not self.stream.df.isStreaming:
            return mapped(self._by_key(), _matcher(self._checked, answered), RESULTS)
        operator, stream = self._operator(outputs), at_seam(self.stream, use)
        # If late rows are an output, no row is dropped before the operator has compared its time with the watermark.
        matter = None if operator.wants_late else filter_or_none(operator.current_row.matter_sql)
        df, watched = filtered(stream, matter, use, operator.schema)
        names, words = operator.inputs[EVENTS].schema.names, operator.current_row.words_sql
        if words is not None:  # then the columns of conditions stay in Spark: see docs/decisions/0174
            df, names = df.withColumn(WORDS, F.expr(words)), [*operator.columns_beside_words, WORDS]
        rows = hashed(df, self._keys, names, stream)
        if use.reads_history:
            return history_results(stream, operator, rows, use=use, time_mode=NO_TIME)
        chunks = packed(stream, operator, EVENTS, rows, use=use, watched=watched)
        # What Spark computes may depend on the time zone.
        build, schema = partial(self._operator, outputs), operator.schema
        zone = zone_of(schema) if has_computed(schema) else zone_if_used(build, schema)
        return stateful(
            operator, [chunks], streams={EVENTS: stream}, use=use, zone=zone,
            time_mode=EVENT_TIME if watched else NO_TIME,
        )  # fmt: skip

    @property
    def _keys(self) -> list[Column]:
        checked, columns = self._checked, []
        for key, number in zip(checked.clause.partition_by, checked.partition_by, strict=True):
            name = checked.rows.plain_name(number)
            columns.append(F.expr(quoted_name(name) if name is not None and is_computed(name) else key.expression.text))
        return columns

    def _by_key(self) -> DataFrame:
        """The rows of a table, those of a partition of the clause one after the other."""
        checked = self._checked
        df = with_computed(self.stream.df, checked.rows.input)
        current_row = CurrentRow(checked)
        if (matter := filter_or_none(current_row.matter_sql)) is not None:
            condition = F.expr(matter)
            if checked.within is not None:  # which fails without a time
                condition |= F.expr(checked.clause.order_by[0].expression.text).isNull()
            df = df.where(condition)
        words = current_row.words_sql
        needed = columns_read(checked) if words is None else columns_beside_words(checked, current_row)
        names, keys = [name for name in checked.rows.input.names if name in needed], self._keys
        if words is not None:
            df, names = df.withColumn(WORDS, F.expr(words)), [*names, WORDS]
        if keys:
            # The hash is computed again after the exchange, which takes less time than to exchange it.
            df = hashed(df.repartition(hash_of(keys)), keys, names).sortWithinPartitions(KEY_HASH)
        else:
            df = hashed(df.coalesce(1), keys, names)
        if checked.uses_processing_time:
            df = df.withColumn(_PROCESSING_TIME, F.unix_micros(F.current_timestamp()))
        return df


def _longest_wait(clause: CheckedClause) -> int | None:
    """How far the times of the rows of a match may lie behind the watermark when it is emitted, in microseconds; None: any
    time.
    """
    waits_for_rows = clause.reach_of_conditions[1] or clause.reach_of_measures[1]
    waits_for_end = (clause.automaton.edges[:, 1] & AT_END).any()
    return None if waits_for_rows or waits_for_end or clause.reach_of_measures[0] else clause.within


def _matcher(clause: CheckedClause, answer: Answer) -> Any:
    """A function for ``mapInArrow``: from rows sorted by KEY_HASH to the rows that *answer* computes from the result of the
    clause.
    """
    schema = clause.rows.input

    def matcher(batches: Batches) -> Iterator[pa.RecordBatch]:
        from asterism.row_patterns.result_rows import TableMatcher

        matched = TableMatcher(clause)
        for rows in whole(batches, KEY_HASH):
            now = rows.column(_PROCESSING_TIME)[0].as_py() if _PROCESSING_TIME in rows.column_names else 0
            for matches in matched.match(complete_with_words(rows, schema), now):
                yield from answer([Result({MATCHES: matches})])

    return matcher
