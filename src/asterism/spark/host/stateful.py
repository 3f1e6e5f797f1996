"""Builds the Spark plan of an operator: hashing, exchange, ``transformWithState``, outputs."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, reduce
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.utils import is_remote

from asterism.columns.groups import KEY_HASH
from asterism.columns.internal import internal
from asterism.columns.time import micros
from asterism.errors import CheckpointMismatchError, StreamDefinitionError
from asterism.expressions.computed_columns import PREFIX
from asterism.files.file_systems import is_path
from asterism.operators.histograms import GREATEST, LEAST, SUM, count_name, value_name
from asterism.operators.operator import Arrival, Operator
from asterism.spark import CHUNKS, RESULTS
from asterism.spark.host import end_of_input as signals
from asterism.spark.host.batch import (
    BATCH_GROUP,
    Answer,
    answered,
    rows_of,
    run_groups,
)
from asterism.spark.host.chaining import OTHER, OURS, behind, goes_on, has_watermark, is_watermarked, marked
from asterism.spark.host.column_types import check_passes, spark_schema
from asterism.spark.host.computed_columns import with_computed
from asterism.spark.host.control_source import NAME as CONTROL_SOURCE
from asterism.spark.host.control_source import ControlSource, check_zone_of, renamed
from asterism.spark.host.evolution import time_mode_of
from asterism.spark.host.exchange import Batches, pack, unpack
from asterism.spark.host.host import BEHIND, EVENT_TIME, NO_TIME, PROCESSING_TIME, WATERMARK, OperatorHost
from asterism.spark.host.keyed_stream import idle_micros, partitioned_by
from asterism.spark.host.outer_measures import OuterProjection
from asterism.spark.host.query_settings import QueryTraits, carrying, observe_tasks
from asterism.spark.host.times import EVENT_TIME as PARTITION_TIME
from asterism.spark.host.times import PARTITION, event_micros, spark_delay
from asterism.spark.host.versions import PASSES_START, DataSource, check_version, named
from asterism.spark.session.pipelines import parsed
from asterism.spark.session.settings import (
    DEFAULT_KEY_GROUPS,
    check_arrow_batches,
    check_worker_memory,
    configure_state_store,
    hadoop_settings,
)
from asterism.spark.session.unwrapping import unwrapping
from asterism.spark.session.worker import task
from asterism.streams.data_streams import Stream
from asterism.streams.keyed_stream import KeyedStream
from asterism.text.printable import quoted_name
from asterism.text.sql import text_literal

OBSERVATION = "asterism"
"""Name of the observation with an operator's counts in a query's progress, and the prefix of the names of further operators.
"""
_WATERMARK_OF = "_watermark"
"""Follows the name of an operator's observation in that of its watermark, which is not a count."""
WATERMARKS = "spark.asterism.watermarks"
"""Configuration of the session: whether the plans of outputs that are DataFrames may contain a Spark watermark. Default:
true.
"""
_numbers = itertools.count(1)
_EVENT_TIME, _MARKED_TIME, _ROW = internal("event_time"), internal("marked_time"), internal("row")


@dataclass(frozen=True)
class Seam:
    """Where the streams of a query begin that has a history.

    :param history: by input, the table that comes before its stream
    :param until: microseconds: the history has the events before, and the stream those from then on; None: all of both
    """

    history: Mapping[str, DataFrame]
    until: int | None


@dataclass(frozen=True)
class Use:
    """The purpose of an operator's plan.

    :param drain: whether it ends its input
    :param final: whether its results go to sinks, and not into a DataFrame, which may be the input of another operator
    :param output: over tables, the output whose rows are computed instead of RESULTS, which saves another pass through Python
    :param observation: the name of the observation with its counts
    :param run: the folder of the run that ends the input after the last data, see :class:`asterism.spark.host.end_of_input.Drain`
    :param last_offset: the last offset of the control source in the checkpoint, if the run knows it
    :param checkpoint: the checkpoint that the run continues, if it has a single operator
    :param seam: where the stream begins, if it has a history
    :param initial: the state after the history, of a new checkpoint
    :param reads_history: whether this is the plan of the history, see :mod:`asterism.spark.histories`
    :param lease: the options with which the control source holds the lease of the checkpoint
    """

    drain: bool
    final: bool = True
    output: str | None = None
    observation: str = OBSERVATION
    run: str | None = None
    last_offset: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    lease: Mapping[str, str] = field(default_factory=dict)
    key_groups: int = DEFAULT_KEY_GROUPS
    seam: Seam | None = None
    initial: DataFrame | None = None
    reads_history: bool = False


def unique_observation() -> str:
    """A name that is unique in this process. Names must be unique in a query, which may combine any DataFrames."""
    number = next(_numbers)
    return OBSERVATION if number == 1 else f"{OBSERVATION}_{number}"


def operator_observations(progress: StreamingQueryProgress) -> dict[str, dict[str, Any]]:
    """The counts of all operators of a query, by the name of the observation."""
    return {
        name: _columns(row)
        for name, row in progress.observedMetrics.items()
        if re.fullmatch(rf"{OBSERVATION}(_\d+)?", name)
    }


PartitionBehind = tuple[str, Mapping[str, str | None], int]
"""An input, the values of the columns of one of its partitions, and how far it is behind the fastest one, in microseconds."""


def operator_watermarks(progress: StreamingQueryProgress) -> dict[str, int]:
    """The watermarks of the operators of a query after the micro-batch, in microseconds. Operators that were not called are
    missing.
    """
    return {operator: row["micros"] for operator, row in _of_watermarks(progress).items()}


def partitions_behind(progress: StreamingQueryProgress) -> dict[str, list[PartitionBehind]]:
    """The partitions that hold back the watermarks of inputs, of each input the slowest ones, by operator. Operators that were
    not called are missing.
    """
    return {
        operator: [
            (*json.loads(key.removeprefix(BEHIND)), distance)
            for key, distance in json.loads(row.get("behind") or "{}").items()
        ]
        for operator, row in _of_watermarks(progress).items()
    }


def _of_watermarks(progress: StreamingQueryProgress) -> dict[str, dict[str, Any]]:
    rows = {
        name.removesuffix(_WATERMARK_OF): _columns(row)
        for name, row in progress.observedMetrics.items()
        if re.fullmatch(rf"{OBSERVATION}(_\d+)?{_WATERMARK_OF}", name)
    }
    return {operator: row for operator, row in rows.items() if row["micros"] is not None}


def _columns(row: Row) -> dict[str, Any]:
    """A row by its columns. In ``recentProgress`` of Spark Connect, it is a row of the values and of the schema."""
    columns = row.asDict()
    if columns.keys() == {"values", "schema"} and isinstance(columns["schema"], dict):
        return dict(zip((field["name"] for field in columns["schema"]["fields"]), columns["values"], strict=True))
    return columns


def mapped(df: DataFrame, function: Callable[[Batches], Batches], schema: T.StructType | str) -> DataFrame:
    """``mapInArrow``, also for column names with a dot, which PySpark would interpret there as a field of a struct.

    :raises ColumnTypeError: a column cannot be passed to Python
    """
    check_passes(df)
    check_worker_memory(df.sparkSession)
    names = df.columns
    if not any("." in name or "`" in name for name in names):
        return df.mapInArrow(task(function), schema)

    def renamed(batches: Batches) -> Batches:
        return function(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"column_{number}" for number in range(len(names)))).mapInArrow(task(renamed), schema)


def hashed(
    df: DataFrame, keys: Sequence[str | Column], columns: Sequence[str], stream: Stream | None = None
) -> DataFrame:
    """The *columns*, and the hash of the *keys* (names or expressions) as KEY_HASH. If each partition of *stream* has a
    watermark, also the columns of the partitions, and the event time.
    """
    partitions: list[Column] = []
    if stream is not None and stream.time is not None and partitioned_by(stream):
        partitions = [event_micros(df, stream.time, stream.time_unit).alias(PARTITION_TIME)]
        partitions += [
            F.col(quoted_name(name)).alias(f"{PARTITION}{number}") for number, name in enumerate(partitioned_by(stream))
        ]
    return df.select(*[F.col(quoted_name(name)) for name in columns], hash_of(keys).alias(KEY_HASH), *partitions)


def hash_of(keys: Sequence[str | Column]) -> Column:
    """The hash of the *keys*, names or expressions. See docs/decisions/0002."""
    columns = [F.col(quoted_name(key)) if isinstance(key, str) else key for key in keys]
    return F.xxhash64(*columns) if columns else F.lit(0).cast("long")


def key_group_of(keys: Sequence[str], key_groups: int) -> Column:
    """The key group of a row, in batch."""
    return F.pmod(hash_of(keys), F.lit(key_groups)).cast("int")


def group_column(key_hash: Column, key_groups: int) -> Column:
    """The key group of a key hash, which is a number without a sign."""
    n = F.lit(key_groups)
    beyond = F.when(key_hash < 0, F.lit(2**64 % key_groups)).otherwise(F.lit(0))
    return F.pmod(F.pmod(key_hash, n) + beyond, n)


def bounded(
    rows: DataFrame,
    order: Sequence[str],
    operator: Operator,
    sent: Callable[[pa.Table], list[Arrival]],
    first: Sequence[Arrival] = (),
    *,
    use: Use,
    partitions: int | None = None,
) -> DataFrame:
    """Run the operator in batch on *rows*, by BATCH_GROUP and in *order*: :func:`batch_results`. Spark sorts them, and spills if
    necessary.

    :param sent, first: as for :func:`asterism.spark.host.batch.run_groups`
    :param partitions: the number of partitions of the result; None: that of the session
    """
    rows = rows.repartition(BATCH_GROUP) if partitions is None else rows.repartition(partitions, BATCH_GROUP)
    rows = rows.sortWithinPartitions(BATCH_GROUP, *order)
    return batch_results(rows, partial(run_groups, operator, sent, first=first), operator, use)


def batch_results(
    rows: DataFrame, function: Callable[[int, Answer], Callable[[Batches], Batches]], operator: Operator, use: Use
) -> DataFrame:
    """RESULTS, or the rows of one output, see :attr:`Use.output`.

    :param function: makes the function for ``mapInArrow`` from the processing time in microseconds and the function that makes
        rows
    """
    now = time.time_ns() // 1000
    if use.output is None:
        return mapped(rows, function(now, answered), RESULTS)
    return mapped(rows, function(now, rows_of(use.output)), spark_schema(operator.output_schemas[use.output]))


def packed(
    stream: Stream,
    operator: Operator,
    name: str,
    rows: DataFrame,
    *,
    use: Use,
    watched: bool = False,
) -> DataFrame:
    """The *rows* (hashed) of a stream as CHUNKS of the operator's input *name*.

    :param watched: whether Spark already has a watermark for these rows
    """
    if partitioned_by(stream):  # operators with one input do not know it yet
        spec = replace(operator.inputs[name], watermark_by=partitioned_by(stream), idle_after=idle_micros(stream))
        operator.inputs = {**operator.inputs, name: spec}
    if has_watermark(stream.df):  # the output of an operator has the watermark of that operator
        return mapped(rows, pack(operator, use.key_groups, name, None), CHUNKS)
    chunks = mapped(rows, pack(operator, use.key_groups, name, _delay(stream)), CHUNKS)
    by_partition = any(spec.watermark_by for spec in operator.inputs.values())  # then that of the results is Spark's
    if use.final or watched or stream.time is None or by_partition or not may_be_watched(stream.df, use):
        return chunks
    # For downstream operators. There are few chunks; those without a watermark do not affect Spark's watermark either.
    time = F.timestamp_micros("watermark")
    return chunks.withColumn(_MARKED_TIME, time).withWatermark(_MARKED_TIME, "0 seconds").drop(_MARKED_TIME)


def _delay(stream: Stream) -> int:
    """How far the watermark of an input lies behind that of the stream, in microseconds."""
    return micros(stream.max_out_of_orderness) + (0 if stream.time is None else behind(stream.df))


def may_be_watched(df: DataFrame, use: Use) -> bool:
    """Whether a Spark watermark may be defined on this stream. Spark accepts only one, which the user may need downstream."""
    wanted = use.final or df.sparkSession.conf.get(WATERMARKS, "true") == "true"
    return wanted and df.isStreaming and not is_watermarked(df)


def filtered(stream: KeyedStream, condition: str | None, use: Use, schema: pa.Schema) -> tuple[DataFrame, bool]:
    """(the rows that satisfy *condition* or have no event time, whether they have a Spark watermark for it). Rows without a time
    are kept, because a query that has no output for them fails.

    :param condition: Spark SQL that is TRUE or FALSE for each row; None: all rows
    :param schema: the columns of the events, whose computed columns the rows get
    """
    df, column = stream.df, stream.time
    if column is None:
        return _where(df, condition, schema), False
    # The reference to the event time also prevents Spark from pushing the filter below the watermark, which needs every row.
    condition = None if condition is None else f"({condition}) OR {quoted_name(column)} IS NULL"
    watched = df.isStreaming and not has_watermark(df)
    if watched:
        # Spark does not allow the time mode of a checkpoint to change, as a new output for late events or a new pattern would.
        before = None if use.checkpoint is None else time_mode_of(df.sparkSession, use.checkpoint)
        # If Spark cannot have a watermark for these rows, the operator must see the times of all of them: no filter.
        unfiltered = (
            use.seam is not None
            or before == NO_TIME
            or not may_be_watched(df, use)
            or (condition is None and before != EVENT_TIME)
        )
        if unfiltered or partitioned_by(stream):
            return with_computed(df, schema), False
        # The operator sees only the times of the remaining rows. Spark's watermark covers all rows, one micro-batch later: see
        # docs/decisions/0003.
        if not isinstance(df.schema[column].dataType, T.TimestampType):
            time = F.timestamp_micros(event_micros(df, column, stream.time_unit))
            df, column = df.withColumn(_EVENT_TIME, time), _EVENT_TIME
        delay = spark_delay(stream.max_out_of_orderness + timedelta(microseconds=behind(df)))
        df = df.withWatermark(quoted_name(column), f"{delay} milliseconds")
    return _where(df, condition, schema), watched


def _where(df: DataFrame, condition: str | None, schema: pa.Schema) -> DataFrame:
    """The rows that satisfy *condition*, with the computed columns of *schema*; all rows if this version of Spark lacks a
    function of the condition.
    """
    df = with_computed(df, schema)
    if condition is None:
        return df
    if PREFIX in condition:
        # Spark moves a filter below a projection, and would compute the columns of the condition twice. It does not if the
        # projection is not deterministic.
        df, condition = df.withColumn(_ROW, F.spark_partition_id()), f"({condition}) AND {_ROW} >= 0"
    try:
        return df.where(condition)
    except AnalysisException as error:
        if "UNRESOLVED_ROUTINE" not in str(error):  # Spark 3.5 has no getCondition()
            raise
        return df


def _watermark_of(streams: Iterable[Stream], use: Use) -> str | None:
    """The kind of Spark's watermark downstream of an operator with these inputs."""
    streams = list(streams)
    timed = [stream.df for stream in streams if stream.df.isStreaming and stream.time is not None]
    if timed and all(has_watermark(df) or may_be_watched(df, use) for df in timed):
        return OURS
    some = any(is_watermarked(stream.df) for stream in streams) or any(may_be_watched(df, use) for df in timed)
    return OTHER if some else None


def processing_time_column() -> Column:
    """The processing time in milliseconds. It is the same in all tasks of a micro-batch, and when the micro-batch is
    repeated.
    """
    # A literal would make the code that Spark generates for a micro-batch different from that of all others, so that each
    # compiles its own. Spark generates no code for the argument of this function.
    now = "array(current_timestamp())"
    return F.expr(f"get(zip_with({now}, {now}, (time, _) -> unix_millis(time)), 0)")


def stateful(
    operator: Operator,
    chunks: Sequence[DataFrame],
    *,
    streams: Mapping[str, Stream],
    use: Use,
    time_mode: str,
    zone: str | None = None,
    first: DataFrame | None = None,
    source: type[DataSource] = ControlSource,
) -> DataFrame:
    """Run the operator on its packed streaming inputs, to RESULTS.

    :param streams: the streams that its inputs are connected to
    :param zone: the session's time zone, if the operator depends on it
    :param first: chunks of bounded inputs, which are processed before those of streams
    """
    if use.drain and not use.final and any(goes_on(stream.df) for stream in streams.values()):
        raise StreamDefinitionError(
            "this stream is drained, but its upstream operator is not",
            "The deadlines of that operator would not fire, and the rest of its results would be lost.",
            "use drain=True for that operator, too; or run(..., drain=True), which drains all operators of the query",
        )
    upstream = {name: _delay(stream) for name, stream in streams.items() if has_watermark(stream.df)}
    if upstream and time_mode == NO_TIME:
        time_mode = EVENT_TIME
    if any(spec.watermark_by and spec.idle_after is not None for spec in operator.inputs.values()):
        time_mode = PROCESSING_TIME
    spark = chunks[0].sparkSession
    _check_partitioned(spark, operator, bool(upstream), time_mode, use)
    if any(isinstance(stream, KeyedStream) and stream.computes_keys for stream in streams.values()):
        zone = spark.conf.get("spark.sql.session.timeZone")  # a key may depend on it
    if use.last_offset is not None:
        check_zone_of(use.last_offset, zone)
    check_version(spark, chunks[0])
    configure_state_store(spark)
    if not use.final:
        check_arrow_batches(spark)
        observe_tasks(spark, use.key_groups)
    begins = use.initial is not None  # then it has the bounded inputs, too
    initial = use.initial if begins else first
    host = OperatorHost(operator, time_mode, bounded=first is not None, upstream=upstream, begins=begins)
    known = QueryTraits.of(chunks) or QueryTraits(0, operators=0)
    registered = _registered(spark, source, use)
    reader = named(spark, spark.readStream.format(registered.name()), CONTROL_SOURCE, known.operators)
    control = _control_rows(reader, operator, use, time_mode, zone)
    results = (
        reduce(DataFrame.unionByName, [*chunks, control])
        .withColumn("processing_time", processing_time_column())
        .groupBy("key_group")
        .transformWithState(
            statefulProcessor=host,
            outputStructType=parsed(spark, RESULTS),
            outputMode="Append",
            timeMode=time_mode,
            initialState=None if initial is None else initial.groupBy("key_group"),
        )
    )
    columns = [F.expr(f"max(metrics['{WATERMARK}']) AS micros")]  # the same in all key groups that were called
    if any(spec.watermark_by for spec in operator.inputs.values()):
        behind = F.map_filter("metrics", lambda key, _: F.startswith(key, F.lit(BEHIND)))
        columns.append(F.max_by(F.to_json(behind), F.col("metrics")[WATERMARK]).alias("behind"))
    results = results.observe(use.observation + _WATERMARK_OF, *columns)
    timers = time_mode == PROCESSING_TIME
    results = carrying(results, known.with_operator(use.key_groups, registered, drains=use.drain, timers=timers))
    return results.observe(use.observation, *_counts(operator)) if operator.metrics else results


def _counts(operator: Operator) -> list[Column]:
    """What a query observes of the results of an operator."""
    return [
        *(_count(name) for name in operator.metrics),
        *(getattr(F, aggregate)(F.col("gauges")[name]).alias(name) for name, aggregate in operator.gauges.items()),
        *(_histogram(name, bounds) for name, bounds in operator.histograms.items()),
    ]


def _check_partitioned(spark: SparkSession, operator: Operator, has_upstream: bool, time_mode: str, use: Use) -> None:
    """Check whether an operator of which an input has a watermark for each partition can run."""
    if not any(spec.watermark_by for spec in operator.inputs.values()):
        return
    if has_upstream and not use.final:
        raise StreamDefinitionError(
            "an operator with another one before it and with an input with watermark_by cannot be followed by a third one",
            "Spark has one watermark in a query, which would be that of the first operator.",
            "write its result to a table, and read that as a stream; or remove watermark_by",
        )
    before = None if use.checkpoint is None else time_mode_of(spark, use.checkpoint)
    if before not in (None, time_mode):
        raise CheckpointMismatchError(
            "watermark_by cannot be added to the query of this checkpoint",
            "Before, the watermark or the idle time came in another way, and Spark does not allow the time mode of a "
            f"checkpoint to change ({before} to {time_mode}).",
            "use a new checkpoint location",
        )


def _control_rows(
    reader: DataStreamReader, operator: Operator, use: Use, time_mode: str, zone: str | None
) -> DataFrame:
    """The rows of the control source of an operator."""
    start = None if PASSES_START or use.last_offset is None else json.dumps(use.last_offset)
    options: dict[str, str | int | None] = {
        "keyGroups": use.key_groups,
        "definition": operator.fingerprint.hex(),
        "drain": str(use.drain).lower(),
        "timers": str(time_mode == PROCESSING_TIME).lower(),
        "idle": str(any(spec.idle_after is not None for spec in operator.inputs.values())).lower(),
        "signals": signals.folder(),
        "zone": zone,
        "run": use.run,
        "start": start,
        **use.lease,
    }
    return reader.options(**{name: value for name, value in options.items() if value is not None}).load()


def bootstrap_source(spark: SparkSession) -> DataFrame:
    """CHUNKS without rows, in one partition, of a control source that begins one micro-batch. No query continues its offset."""
    reader = spark.readStream.format(_registered(spark, ControlSource).name())
    return reader.options(keyGroups=0, definition="", timers="true", idle="true").load()


_sources: WeakKeyDictionary[SparkSession, WeakSet[type[DataSource]]] = WeakKeyDictionary()
"""The sources that sessions have."""


def _registered(spark: SparkSession, source: type[DataSource], use: Use | None = None) -> type[DataSource]:
    """Register a source, and return it with its name in this session."""
    if use is not None and use.lease and not is_path(use.lease["checkpoint"]):
        source = renamed(source, f"{source.name()}_{uuid4().hex}", hadoop=hadoop_settings(spark))
    elif use is not None and not use.final and is_remote():  # see holding_lease
        source = renamed(source, f"{source.name()}_{uuid4().hex}")
    name = source.name()
    known = _sources.setdefault(spark, WeakSet())
    if source in known and not is_remote():
        return source  # Spark would log a warning
    for number in itertools.count(2):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # In a session that was created by newSession(), Spark refuses the name after a query of another session: it looks for
            # installed sources in a Python process, and finds the classes that this process has loaded. But it cannot load them.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
            source = renamed(source, f"{name}_{number}")
        else:
            known.add(source)
            break
    return source


def _count(name: str) -> Column:
    """A count as a column of the observation. A family of counts (``name/*``) is JSON, with one object per key group."""
    if not name.endswith("/*"):
        return F.expr(f"{_sum(name)} AS {quoted_name(name)}")
    family = name.removesuffix("*")
    family_counts = F.map_filter("metrics", lambda key, _: F.startswith(key, F.lit(family)))
    return F.to_json(F.collect_list(F.when(F.size(family_counts) > 0, family_counts))).alias(name.removesuffix("/*"))


def _sum(name: str) -> str:
    """The sum of a count, in SQL. It takes a tenth of the calls of the JVM that functions and methods of columns take."""
    return f"coalesce(sum(metrics[{text_literal(name)}]), 0)"


def _histogram(name: str, bounds: Sequence[float]) -> Column:
    """A histogram as a column of the observation, with the fields of HistogramStatistics."""

    def count(bucket: int) -> Column:
        return F.expr(_sum(count_name(name, bucket)))

    values = {what: F.col("gauges")[value_name(name, what)] for what in (SUM, LEAST, GREATEST)}
    buckets = [F.struct(F.lit(bound).alias("le"), count(bucket).alias("count")) for bucket, bound in enumerate(bounds)]
    return F.struct(
        count(len(bounds)).alias("count"),
        F.coalesce(F.sum(values[SUM]), F.lit(0.0)).alias("sum"),
        F.min(values[LEAST]).alias("min"),
        F.max(values[GREATEST]).alias("max"),
        F.array(*buckets).alias("buckets"),
    ).alias(name)


def unpacked(results: DataFrame, output: str, schema: pa.Schema, *, watched: bool = False) -> DataFrame:
    """The rows of an *output*.

    :param watched: whether the watermark of the operator becomes that of Spark
    """
    struct = spark_schema(schema)
    if watched:
        time = F.timestamp_micros(F.col("metrics")[WATERMARK])
        results = results.withColumn(_MARKED_TIME, time).withWatermark(_MARKED_TIME, "0 seconds")
        # Spark would move a filter below the watermark, where the rows with watermarks would be missing.
        return results.select("output", "chunk").mapInArrow(task(unpack(schema, output)), struct)
    return results.where(f"output = {text_literal(output)}").select("chunk").mapInArrow(task(unpack(schema)), struct)


def output_of(
    results: DataFrame,
    output: str,
    schema: pa.Schema,
    streams: Collection[Stream],
    use: Use,
    takes: int | None,
    projection: OuterProjection | None = None,
) -> DataFrame:
    """The rows of one output, which may be the input of another operator.

    :param results: RESULTS; over tables, :func:`batch_results` with the output
    :param takes: how far the time of a row may lie behind the watermark of the operator when the row is emitted, in
        microseconds; None: any time
    :param projection: after the operator
    """
    if not any(stream.df.isStreaming for stream in streams):
        return unwrapping(results if projection is None else projection.of(results))
    watermark = _watermark_of(streams, use)
    watched = watermark == OURS and any(map(partitioned_by, streams))
    rows = unpacked(results, output, schema, watched=watched)
    rows = rows if projection is None else projection.of(rows)
    inputs = max((_delay(stream) for stream in streams if has_watermark(stream.df)), default=0)
    late = None if takes is None else inputs + takes
    return marked(rows, watermark=watermark, drains=use.drain, behind=late)
