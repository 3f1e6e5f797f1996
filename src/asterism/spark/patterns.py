"""The fluent entry on Spark: describe a keyed stream once, look for a pattern, take the results as DataFrames."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, expect_texts, shown
from asterism.columns.groups import KEY_HASH
from asterism.errors import StreamDefinitionError
from asterism.matching.operator import EVENTS, MAX_PARTIAL_MATCHES, CepOperator, OnLimit
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.patterns.compiler import check_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.warnings import warn
from asterism.rules.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.operator import MAX_PARTIAL_MATCHES as MAX_OF_A_PROCESSOR
from asterism.spark import RESULTS
from asterism.spark.batch import run_sorted
from asterism.spark.execution import Sink, check_run, run
from asterism.spark.host import EVENT_TIME, NO_TIME, PROCESSING_TIME
from asterism.spark.keyed_stream import KeyedStream
from asterism.spark.row_schemas import arrow_schema, function_schema, quoted, zone_asked
from asterism.spark.rules import PatternProcessorStream
from asterism.spark.stateful import (
    DEFAULT_KEY_GROUPS,
    Use,
    check_key_groups,
    hashed,
    mapped,
    may_be_watched,
    output_of,
    packed,
    stateful,
)
from asterism.spark.times import event_micros
from asterism.spark.upstream import has_watermark

DEFAULT_PAGES = 1
_EVENT_TIME = "__event_time"
_STREAM = 'KeyedStream(df, key="user", time="ts")'


def _kind(output: Any) -> OutputKind:
    known = [kind.value for kind in OutputKind]
    if not isinstance(output, str) or output not in known:
        raise StreamDefinitionError(f"there is no output {shown(output)}", f"Outputs: {', '.join(known)}")
    return OutputKind(output)


def _check_select(select: Any) -> None:
    hint = 'select={"matches": ["COUNT(a.*) AS n"]}'
    expect(StreamDefinitionError, select, Mapping | None, "select is measures by output", hint)
    for texts in (select or {}).values():
        expect_texts(StreamDefinitionError, texts, "measures are a list of SQL texts", hint)


class CEP:
    """Where patterns and streams meet."""

    @staticmethod
    def pattern(
        stream: KeyedStream,
        pattern: Pattern,
        *,
        semantics: Semantics = Semantics.DEFAULT,
        key_groups: int = DEFAULT_KEY_GROUPS,
        pages: int = DEFAULT_PAGES,
        drain: bool = False,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> PatternStream:
        """Look for *pattern* in *stream*.

        :param semantics: the library's own, or Flink's to the letter
        :param key_groups: into how many groups keys are hashed (streaming); fixed for the life of a checkpoint
        :param pages: pages of state per key group (streaming), likewise; more make small micro-batches over much state cheaper
        :param drain: streaming: this run ends the stream: with the trigger *available now*, one micro-batch takes all that is
            available, then every deadline fires and the state is left empty. :meth:`PatternStream.run` does that by itself,
            after a run in as many micro-batches as the sources want.
        :param max_partial_matches: how many partial matches a key may have; what one event may cost is limited with it. None:
            any number (see docs/limits.md)
        :param on_limit: what happens at that limit: "error" fails the query with
            :class:`~asterism.errors.LimitExceededError`, "drop" drops the partial matches that began last
        :raises MalformedPatternError, ExpressionError: the pattern means nothing, or not for these events

        Warns with :class:`~asterism.errors.PatternWarning` where the pattern surely does not mean what it says.

        Examples that run: README.md (batch) and docs/streaming.md.
        """
        check_key_groups(key_groups)
        expect(StreamDefinitionError, stream, KeyedStream, "the stream is a KeyedStream", _STREAM)
        expect(StreamDefinitionError, drain, bool, "drain is True or False")
        check_pattern(pattern)
        warn(pattern)
        return PatternStream(
            stream, pattern, semantics, key_groups, pages, drain,
            max_partial_matches=max_partial_matches, on_limit=on_limit,
        )  # fmt: skip

    @staticmethod
    def pattern_processors(
        stream: KeyedStream,
        factory: PatternProcessorDiscovererFactory,
        *,
        store: str | None = None,
        functions: Mapping[str, Callable[[pa.Table], pa.Table]] | None = None,
        on_error: str = "fail",
        semantics: Semantics = Semantics.DEFAULT,
        key_groups: int = DEFAULT_KEY_GROUPS,
        drain: bool = False,
        max_partial_matches: int | None = MAX_OF_A_PROCESSOR,
        on_limit: str = "disable",
    ) -> PatternProcessorStream:
        """Look for the patterns of many processors, which change while the stream runs (FLIP-200).

        :param stream: its key is that of processors without one of their own; it may have none
        :param factory: makes the discoverer, on Spark's driver
        :param store: a folder for the sets of processors that driver and executors can reach; default: one in the checkpoint
        :param functions: what processors may name as their function: from a table of matches to a table of as many rows
        :param on_error: what happens if a processor fails: "fail", the query; "disable", the processor in the key group where it
            failed, until its next version, with a row in the output ``errors``
        :param max_partial_matches: how many partial matches of a processor a key may have; a processor may ask for fewer. What
            one event may cost is limited with it. None: any number (see docs/limits.md)
        :param on_limit: what happens at that limit, whatever *on_error* says: "disable" the processor, as above; or "fail", the
            query with :class:`~asterism.errors.LimitExceededError`
        :raises StreamDefinitionError: an option is unknown
        """
        check_key_groups(key_groups)
        expect(StreamDefinitionError, stream, KeyedStream, "the stream is a KeyedStream", _STREAM)
        expect(StreamDefinitionError, drain, bool, "drain is True or False")
        for name, value in (("on_error", on_error), ("on_limit", on_limit)):
            # A Column is equal to nothing, not even unequal.
            if not isinstance(value, str) or value not in ("fail", "disable"):
                raise StreamDefinitionError(f'{name} is "fail" or "disable", not {shown(value)}')
        return PatternProcessorStream(
            stream, factory, store, semantics, {} if functions is None else functions, key_groups, on_error == "disable", drain,
            max_partial_matches, on_limit == "disable",
        )  # fmt: skip


class PatternStream:
    """What a pattern finds in a stream. Each DataFrame made here is a query of its own, with the columns it needs and no
    others; :meth:`run` writes several outputs from one query.
    """

    def __init__(
        self,
        stream: KeyedStream,
        pattern: Pattern,
        semantics: Semantics,
        key_groups: int,
        pages: int,
        drain: bool,
        *,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> None:
        self.stream = stream
        self.pattern = pattern
        self.semantics = semantics
        self.key_groups = key_groups
        self.pages = pages
        self.drain = drain
        self.max_partial_matches = max_partial_matches
        self.on_limit = on_limit
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        # Everything that is wrong with the pattern is said now, not when a result is asked for.
        self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES)})

    # ------------------------------------------------------------------ results

    @property
    def matches(self) -> DataFrame:
        """Key columns, ``start_time``, ``end_time`` (first and last event), ``match_time`` (when it was decided), ``match_id``
        (the same whenever this match is found again), and a list of events per stage, whole and typed as the input.
        """
        return self._single(OutputSpec(OutputKind.MATCHES))

    @property
    def timed_out(self) -> DataFrame:
        """Partial matches that ran out of time, as :attr:`matches`, with ``timeout_time``."""
        return self._single(OutputSpec(OutputKind.TIMED_OUT))

    @property
    def late(self) -> DataFrame:
        """Events that came too late to be matched, and events without a time, as they came in."""
        return self._single(OutputSpec(OutputKind.LATE))

    def select(self, *measures: str, output: str = "matches") -> DataFrame:
        """One row per match (or, with ``output="timed_out"``, partial match): the key columns and *measures*.

        A measure is SQL over the stages, ``LAST(b.price) - FIRST(a.price) AS rise``: FIRST, LAST, SUM, COUNT, AVG, MIN and
        MAX of a stage's events, NULL (COUNT: 0) where it took none; ``a.price`` alone is ``LAST(a.price)``. Key columns,
        ``start_time``, ``end_time``, ``match_time`` (``timeout_time``) and ``match_id`` can be used too.
        """
        expect_texts(StreamDefinitionError, measures, "measures are SQL texts", 'select("COUNT(a.*) AS n")')
        return self._single(OutputSpec(_kind(output), measures=measures))

    def process(
        self, function: Callable[[pa.Table], pa.Table], schema: T.StructType | str, *, output: str = "matches"
    ) -> DataFrame:
        """Rows made by *function*: a :class:`pyarrow.Table` of matches in, with the columns of :attr:`matches`, a table with
        the columns of *schema* out. It is called with any number of matches at a time.
        """
        if not callable(function):
            raise StreamDefinitionError(
                f"process takes a function, not {shown(function)}", hint="process(f, 'n BIGINT')"
            )
        returned = function_schema(self.spark, schema, "process(f, 'n BIGINT')")
        spec = OutputSpec(_kind(output), function=function, function_schema=returned)
        return self._single(spec)

    # ------------------------------------------------------------------ several outputs, one query

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        select: Mapping[str, Sequence[str]] | None = None,
        drain: bool = True,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery | None:
        """Write outputs (``matches``, ``timed_out``, ``late``) to sinks, computing once.

        A sink is called as ``sink(dataframe, batch_id)`` for every micro-batch, and must read all of the DataFrame; a batch id
        that comes again after a failure brings the same rows, so a sink that overwrites by batch id gets each row exactly once.

        :param checkpoint: checkpoint location, needed for a stream
        :param select: measures per output; default: the rows of :attr:`matches` and its like
        :param drain: with the default trigger, end the stream when everything available has been processed
        :param trigger: arguments of ``DataStreamWriter.trigger``; default: process what is available and return
        :return: the running query if *trigger* was given, otherwise None, when all is done
        """
        check_run(sinks, checkpoint, drain, trigger, name)
        _check_select(select)
        measures = select or {}
        outputs = {
            sink: OutputSpec(_kind(sink), measures=tuple(measures[sink]) if sink in measures else None)
            for sink in sinks
        }
        operator = self._operator(outputs)
        return run(
            partial(self._results, operator),
            operator.output_schemas,
            sinks,
            streams=[self.stream],
            ends_by_itself=self.stream.time is not None,
            checkpoint=checkpoint,
            drain=drain if trigger is None else self.drain,
            trigger=trigger,
            name=name,
            spark=self.spark,
        )

    # ------------------------------------------------------------------ plans

    def _single(self, spec: OutputSpec) -> DataFrame:
        name = spec.kind.value
        operator = self._operator({name: spec})
        use = Use.as_dataframe(self.drain)
        return output_of(
            self._results(operator, use), name, operator.output_schemas[name], streams=[self.stream], use=use
        )

    def _operator(self, outputs: Mapping[str, OutputSpec], schema: pa.Schema | None = None) -> CepOperator:
        stream = self.stream
        return CepOperator(
            self.pattern,
            self.schema if schema is None else schema,
            keys=stream.keys,
            time=stream.time,
            outputs=outputs,
            semantics=self.semantics,
            order_by=stream.order_by,
            pages=self.pages if stream.df.isStreaming else 1,
            max_partial_matches=self.max_partial_matches,
            on_limit=self.on_limit,
        )

    def _results(self, operator: CepOperator, use: Use) -> DataFrame:
        """Results as chunks, with the name of their output."""
        return self._streaming(operator, use) if self.stream.df.isStreaming else self._batch(operator)

    def _relevant(self, df: DataFrame, operator: CepOperator) -> DataFrame:
        """Leave out what cannot matter, before anything is exchanged. Late events and events without a time are kept where
        somebody wants to see them, or must hear of them.
        """
        condition = operator.pattern.relevance_sql()
        if condition is None or operator.wants_late:
            return df
        # Naming the event time also keeps the filter above the watermark, which is to see every event.
        time = self.stream.time
        return df.where(condition if time is None else f"({condition}) OR {quoted(time)} IS NULL")

    def _inputs(self, df: DataFrame, operator: CepOperator) -> DataFrame:
        return hashed(df, self.stream.keys, operator.inputs[EVENTS].schema.names)

    def _streaming(self, operator: CepOperator, use: Use) -> DataFrame:
        stream, df = self.stream, self.stream.df
        relevant = self._relevant(df, operator)
        time_mode = NO_TIME if stream.time is not None else PROCESSING_TIME
        # Where Spark can have no watermark of these events, nothing may be left out before the operator sees their times.
        if stream.time is not None and not has_watermark(df) and not may_be_watched(df, use):
            relevant = df
        watched = stream.time is not None and relevant is not df and not has_watermark(df)
        if watched:
            assert stream.time is not None
            # The operator sees only the times of the events that are left; Spark's watermark, a micro-batch later, those of all.
            time_mode = EVENT_TIME
            column = stream.time
            kind = df.schema[column].dataType
            if not isinstance(kind, T.TimestampType):
                time = F.timestamp_micros(event_micros(quoted(column), kind, stream.time_unit))
                df, column = df.withColumn(_EVENT_TIME, time), _EVENT_TIME
            delay = stream.max_out_of_orderness // timedelta(milliseconds=1) + 1
            relevant = self._relevant(df.withWatermark(quoted(column), f"{delay} milliseconds"), operator)
        chunks = packed(
            stream, operator, EVENTS, self._inputs(relevant, operator),
            key_groups=self.key_groups, use=use, watched=watched,
        )  # fmt: skip
        return stateful(
            self.spark, operator, [chunks], streams={EVENTS: stream}, use=use,
            zone=zone_asked(partial(self._operator, operator.outputs), self.schema),
            key_groups=self.key_groups, time_mode=time_mode,
        )  # fmt: skip

    def _batch(self, operator: CepOperator) -> DataFrame:
        stream = self.stream
        df = self._inputs(self._relevant(stream.df, operator), operator)
        order = [F.col(quoted(key)) for key in stream.keys]
        # By the hash: where a table is bucketed by the keys, Spark drops a repartition by them, and then the buckets as well.
        df = df.repartition(KEY_HASH) if order else df.coalesce(1)
        order += [F.col(quoted(stream.time))] if stream.time is not None else []
        for column in stream.order_by:
            name = F.col(quoted(column.removeprefix("-")))
            order.append(name.desc() if column.startswith("-") else name.asc())
        df = df.sortWithinPartitions(*order) if order else df
        return mapped(df, run_sorted(operator, time.time_ns() // 1000), RESULTS)
