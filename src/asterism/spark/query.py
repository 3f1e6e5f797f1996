"""The fluent entry on Spark: describe a keyed stream once, look for a pattern, take the results as DataFrames."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.cep import KEY_HASH, CepOperator
from asterism.compiler import Semantics
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.outputs import OutputKind, OutputSpec
from asterism.pattern import Pattern
from asterism.spark import CHUNKS, RESULTS
from asterism.spark.control_source import NAME, ControlSource
from asterism.spark.exchange import pack, run_sorted, unpack
from asterism.spark.host import OperatorHost

Sink = Callable[[DataFrame, int], None]
DEFAULT_KEY_GROUPS = 32
DEFAULT_PAGES = 1

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_EVENT_TIME = "__event_time"
_KEY_TYPES = (
    T.IntegralType, T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType, T.BinaryType,
)  # fmt: skip


@dataclass(frozen=True)
class KeyedStream:
    """Events, what groups them, and when they happened.

    :param df: a streaming or a batch DataFrame
    :param key: key column or columns; none: all events have one key (and one task does all the work). Null is a key like
        any other.
    :param time: event-time column: TIMESTAMP, TIMESTAMP_NTZ, or BIGINT in milliseconds since the epoch; None: processing time.
        An event whose time is null goes to the late output; without one, the query fails.
    :param max_out_of_orderness: how much later than a younger event an event may arrive and still count (streaming only);
        the watermark is ``max(time) - max_out_of_orderness - 1 ms``, as Flink's ``forBoundedOutOfOrderness``
    :param order_by: order of events with equal times: columns, descending with a leading ``-``; default: order of arrival
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type
    """

    df: DataFrame
    key: str | Sequence[str] = ()
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    order_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        columns = [field.name for field in self.df.schema]
        for name in (*self.keys, *([self.time] if self.time else []), *(c.removeprefix("-") for c in self.order_by)):
            if name not in columns:
                raise ColumnNotFoundError.from_missing_and_available(
                    name, columns, "in the description of the keyed stream"
                )
        for name in self.keys:
            kind = self.df.schema[name].dataType
            if not isinstance(kind, _KEY_TYPES):
                raise StreamDefinitionError(
                    f'the key column "{name}" is of type {kind.simpleString()}, which has no exact equality',
                    hint="CAST it to a string, an integer or a decimal",
                )
        if self.time is not None:
            kind = self.df.schema[self.time].dataType
            if not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.LongType):
                raise StreamDefinitionError(
                    f'the event-time column "{self.time}" is of type {kind.simpleString()}',
                    "It must be TIMESTAMP, TIMESTAMP_NTZ, or BIGINT in milliseconds since 1970-01-01 UTC.",
                    "CAST it, or build it with to_timestamp(...)",
                )
        if self.max_out_of_orderness < timedelta(0):
            raise StreamDefinitionError(f"max_out_of_orderness cannot be negative ({self.max_out_of_orderness})")

    @property
    def keys(self) -> list[str]:
        return [self.key] if isinstance(self.key, str) else list(self.key)


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
    ) -> PatternStream:
        """Look for *pattern* in *stream*.

        :param semantics: the library's own, or Flink's to the letter
        :param key_groups: into how many groups keys are hashed (streaming); fixed for the life of a checkpoint
        :param pages: pages of state per key group (streaming), likewise; more make small micro-batches over much state cheaper
        :param drain: streaming: this run ends the stream: with the trigger *available now*, one micro-batch takes all that is
            available, then every deadline fires and the state is left empty. :meth:`PatternStream.run` does that by itself,
            after a run in as many micro-batches as the sources want.
        :raises MalformedPatternError, ExpressionError: the pattern means nothing, or not for these events

        Examples that run: README.md (batch) and docs/streaming.md.
        """
        if not 1 <= key_groups <= 2**15:
            raise StreamDefinitionError(f"key_groups must be between 1 and 32768, not {key_groups}")
        return PatternStream(stream, pattern, semantics, key_groups, pages, drain)


class PatternStream:
    """What a pattern finds in a stream. Each DataFrame made here is a query of its own, with the columns it needs and no
    others; :meth:`run` writes several outputs from one query.
    """

    def __init__(
        self, stream: KeyedStream, pattern: Pattern, semantics: Semantics, key_groups: int, pages: int, drain: bool
    ) -> None:
        self.stream = stream
        self.pattern = pattern
        self.semantics = semantics
        self.key_groups = key_groups
        self.pages = pages
        self.drain = drain
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = _arrow_schema(self.spark, stream.df.schema)
        # Everything that is wrong with the pattern is said now, not when a result is asked for.
        self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES)})

    # ------------------------------------------------------------------ results

    @property
    def matches(self) -> DataFrame:
        """Key columns, ``start_time``, ``end_time`` (first and last event), ``match_time`` (when it was decided), and a list of
        events per stage, whole and typed as the input.
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
        ``start_time``, ``end_time`` and ``match_time`` (``timeout_time``) can be used too.
        """
        return self._single(OutputSpec(OutputKind(output), measures=measures))

    def process(
        self, function: Callable[[pa.Table], pa.Table], schema: T.StructType | str, *, output: str = "matches"
    ) -> DataFrame:
        """Rows made by *function*: a :class:`pyarrow.Table` of matches in, with the columns of :attr:`matches`, a table with
        the columns of *schema* out. It is called with any number of matches at a time.
        """
        struct = schema if isinstance(schema, T.StructType) else self.spark.createDataFrame([], schema).schema
        spec = OutputSpec(OutputKind(output), function=function, function_schema=_arrow_schema(self.spark, struct))
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
        measures = select or {}
        outputs = {
            sink: OutputSpec(OutputKind(sink), measures=tuple(measures[sink]) if sink in measures else None)
            for sink in sinks
        }
        operator = self._operator(outputs)
        schemas = dict(operator.output_schemas)

        def write(results: DataFrame, batch_id: int) -> None:
            if len(sinks) > 1:  # else nothing would be computed twice
                results.persist()
            try:
                for output, sink in sinks.items():
                    sink(_unpacked(results, output, schemas[output]), batch_id)
            finally:
                results.unpersist()

        if not self.stream.df.isStreaming:
            write(self._results(operator, drain=False), 0)
            return None
        if checkpoint is None:
            raise StreamDefinitionError("a stream needs a checkpoint location", hint="run(..., checkpoint=path)")

        def start(drain: bool, **how: Any) -> StreamingQuery:
            writer = (
                self._results(operator, drain=drain)
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", checkpoint)
            )
            return (writer if name is None else writer.queryName(name)).trigger(**how).start()

        if trigger is not None:
            return start(self.drain, **trigger)
        if self.stream.time is not None:
            with _without_empty_micro_batches(self.spark, drain):
                query = start(False, availableNow=True)
            query.awaitTermination()
        elif not drain:
            # Spark runs empty micro-batches for ever where timers are in processing time.
            raise StreamDefinitionError(
                "a stream in processing time that is not drained does not end by itself",
                hint='drain=True, or a trigger: run(..., trigger={"processingTime": "1 second"})',
            )
        if drain:
            start(True, availableNow=True).awaitTermination()
        return None

    # ------------------------------------------------------------------ plans

    def _single(self, spec: OutputSpec) -> DataFrame:
        name = spec.kind.value
        operator = self._operator({name: spec})
        return _unpacked(self._results(operator, drain=self.drain), name, operator.output_schemas[name])

    def _operator(self, outputs: Mapping[str, OutputSpec]) -> CepOperator:
        stream = self.stream
        return CepOperator(
            self.pattern,
            self.schema,
            keys=stream.keys,
            time=stream.time,
            outputs=outputs,
            semantics=self.semantics,
            order_by=stream.order_by,
            pages=self.pages if stream.df.isStreaming else 1,
        )

    def _results(self, operator: CepOperator, *, drain: bool) -> DataFrame:
        """Results as chunks, with the name of their output."""
        return self._streaming(operator, drain) if self.stream.df.isStreaming else self._batch(operator)

    def _relevant(self, df: DataFrame, operator: CepOperator) -> DataFrame:
        """Leave out what cannot matter, before anything is exchanged. Late events and events without a time are kept where
        somebody wants to see them, or must hear of them.
        """
        condition = operator.matcher.relevance_sql()
        if condition is None or operator.wants_late:
            return df
        # Naming the event time also keeps the filter above the watermark, which is to see every event.
        time = self.stream.time
        return df.where(condition if time is None else f"({condition}) OR {_quoted(time)} IS NULL")

    def _inputs(self, df: DataFrame, operator: CepOperator) -> DataFrame:
        keys = self.stream.keys
        hashed = F.xxhash64(*[F.col(_quoted(key)) for key in keys]) if keys else F.lit(0).cast("long")
        return df.select(*[F.col(_quoted(name)) for name in operator.input_columns], hashed.alias(KEY_HASH))

    def _streaming(self, operator: CepOperator, drain: bool) -> DataFrame:
        stream = self.stream
        configure_state_store(self.spark)
        df = stream.df
        if stream.time is not None:
            column = stream.time
            if isinstance(df.schema[column].dataType, T.LongType):
                df, column = df.withColumn(_EVENT_TIME, F.timestamp_millis(_quoted(column))), _EVENT_TIME
            delay = stream.max_out_of_orderness // timedelta(milliseconds=1) + 1
            df = df.withWatermark(column, f"{delay} milliseconds")
        packed = self._inputs(self._relevant(df, operator), operator).mapInArrow(
            pack(operator, self.key_groups, "events"), CHUNKS
        )
        self.spark.dataSource.register(ControlSource)
        control = (
            self.spark.readStream.format(NAME)
            .option("keyGroups", self.key_groups)
            .option("definition", operator.fingerprint.hex())
            .option("drain", str(drain).lower())
            .load()
        )
        return (
            packed.unionByName(control)
            .groupBy("key_group")
            .transformWithState(
                statefulProcessor=OperatorHost(operator),
                outputStructType=RESULTS,
                outputMode="Append",
                timeMode="EventTime" if stream.time is not None else "ProcessingTime",
            )
        )

    def _batch(self, operator: CepOperator) -> DataFrame:
        stream = self.stream
        df = self._inputs(self._relevant(stream.df, operator), operator)
        order = [F.col(_quoted(key)) for key in stream.keys]
        df = df.repartition(*order) if order else df.coalesce(1)
        order += [F.col(_quoted(stream.time))] if stream.time is not None else []
        for column in stream.order_by:
            name = F.col(_quoted(column.removeprefix("-")))
            order.append(name.desc() if column.startswith("-") else name.asc())
        df = df.sortWithinPartitions(*order) if order else df
        return df.mapInArrow(run_sorted(operator, time.time_ns() // 1000), RESULTS)


@contextmanager
def _without_empty_micro_batches(spark: SparkSession, drained: bool) -> Iterator[None]:
    """A query that is started here and drained afterwards need not announce its last watermark in a micro-batch of its own."""
    before = spark.conf.get(_EMPTY_BATCHES, "true")
    try:
        if drained:
            spark.conf.set(_EMPTY_BATCHES, "false")
        yield
    finally:
        spark.conf.set(_EMPTY_BATCHES, before or "true")


def _unpacked(results: DataFrame, output: str, schema: pa.Schema) -> DataFrame:
    struct = _spark_schema(results.sparkSession, schema)
    return results.where(F.col("output") == output).select("chunk").mapInArrow(unpack(schema), struct)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _arrow_schema(spark: SparkSession, schema: T.StructType) -> pa.Schema:
    """How Spark hands these columns to Python."""
    arrow: pa.Schema = spark.createDataFrame([], schema).toArrow().schema
    return pa.schema([field.with_nullable(True) for field in arrow])


def _spark_schema(spark: SparkSession, schema: pa.Schema) -> T.StructType:
    # Spark Connect infers no schema from a table without rows.
    row = pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)
    return spark.createDataFrame(row).schema


def configure_state_store(spark: SparkSession) -> None:
    """``transformWithState`` needs the RocksDB state store; with changelog checkpointing a commit writes what changed."""
    spark.conf.set(_STATE_STORE, _ROCKSDB)
    spark.conf.set(_CHANGELOG, "true")
