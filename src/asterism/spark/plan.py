"""How an operator of any kind becomes a Spark query, and how its outputs reach their sinks."""

from __future__ import annotations

import io
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from os import PathLike
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, shown
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import MILLISECONDS, TIME_UNIT, micros
from asterism.errors import StateError, StreamDefinitionError
from asterism.expressions.types import TIME_ZONE
from asterism.operators.operator import Arrival, Operator
from asterism.spark import CHUNKS, RESULTS, signals
from asterism.spark.control_source import ControlSource
from asterism.spark.exchange import BATCH_GROUP, Batches, pack, run_groups, unpack
from asterism.spark.host import EVENT_TIME, NO_TIME, PROCESSING_TIME, OperatorHost
from asterism.spark.keyed_stream import BroadcastStream, KeyedStream
from asterism.spark.upstream import OTHER, OURS, goes_on, has_upstream, has_watermark, is_watermarked, marked

Sink = Callable[[DataFrame, int], None]
DEFAULT_KEY_GROUPS = 32
MAX_KEY_GROUPS = 2**15
OBSERVATION = "asterism"
"""Name of the observation that has an operator's counts, in a query's progress; where a query has several operators, those of
the others begin with it."""
WATERMARKS = "spark.asterism.watermarks"
"""Setting of the session: may outputs that are DataFrames have a watermark of Spark's below them? Default: true."""
_numbers = itertools.count(1)
_MARKED_TIME = "__marked_time"

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


@dataclass(frozen=True)
class Use:
    """What the plan of an operator is for.

    :param drain: does it end its input?
    :param final: do its results go to sinks, and not into a DataFrame, behind which another operator may come?
    :param observation: the name of its counts
    """

    drain: bool
    final: bool = True
    observation: str = OBSERVATION

    @classmethod
    def as_dataframe(cls, drain: bool) -> Use:
        return cls(drain, final=False, observation=_unique_observation())


def _unique_observation() -> str:
    """Spark allows a name once in a query, and nobody knows which DataFrames will meet in one."""
    number = next(_numbers)
    return OBSERVATION if number == 1 else f"{OBSERVATION}_{number}"


def observed(progress: StreamingQueryProgress) -> list[Any]:
    """The counts of all operators of a query, as rows."""
    return [row for name, row in progress.observedMetrics.items() if re.fullmatch(rf"{OBSERVATION}(_\d+)?", name)]


def check_key_groups(key_groups: int) -> None:
    if isinstance(key_groups, bool) or not isinstance(key_groups, int):
        raise StreamDefinitionError(f"key_groups is a number, not {key_groups!r}", hint="key_groups=4")
    if not 1 <= key_groups <= MAX_KEY_GROUPS:
        raise StreamDefinitionError(f"key_groups must be between 1 and {MAX_KEY_GROUPS}, not {key_groups}")


def check_checkpoint(checkpoint: str | None) -> None:
    if checkpoint is None:
        raise StreamDefinitionError("a stream needs a checkpoint location", hint="run(..., checkpoint=path)")


def mapped(df: DataFrame, function: Callable[[Batches], Batches], schema: T.StructType | str) -> DataFrame:
    """``mapInArrow``, also over columns that PySpark cannot name there: it takes a dot for the way into a struct."""
    names = df.columns
    if not any("." in name or "`" in name for name in names):
        return df.mapInArrow(function, schema)

    def renamed(batches: Batches) -> Batches:
        return function(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"column_{number}" for number in range(len(names)))).mapInArrow(renamed, schema)


def hashed(df: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """*columns*, and the hash of the *keys* as KEY_HASH."""
    key_hash = F.xxhash64(*[F.col(quoted(key)) for key in keys]) if keys else F.lit(0).cast("long")
    return df.select(*[F.col(quoted(name)) for name in columns], key_hash.alias(KEY_HASH))


def key_group_of(keys: Sequence[str], key_groups: int) -> Column:
    """The key group of a row, for a run over a table."""
    columns = [F.col(quoted(key)) for key in keys]
    return F.pmod(F.xxhash64(*columns), F.lit(key_groups)).cast("int") if columns else F.lit(0)


def bounded(
    rows: DataFrame,
    order: Sequence[str],
    operator: Operator,
    sent: Callable[[pa.Table], list[Arrival]],
    first: Sequence[Arrival] = (),
) -> DataFrame:
    """The operator over a table, as RESULTS: *rows* by BATCH_GROUP and in *order*; Spark sorts, and spills.

    :param sent, first: as for :func:`asterism.spark.exchange.run_groups`
    """
    rows = rows.repartition(BATCH_GROUP).sortWithinPartitions(BATCH_GROUP, *order)
    return mapped(rows, run_groups(operator, sent, time.time_ns() // 1000, first), RESULTS)


def packed(
    stream: KeyedStream | BroadcastStream,
    operator: Operator,
    name: str,
    rows: DataFrame,
    *,
    key_groups: int,
    use: Use,
    watched: bool = False,
) -> DataFrame:
    """The *rows* (hashed) of a stream as CHUNKS of the operator's input *name*.

    :param watched: has Spark a watermark of these rows already?
    """
    if has_watermark(stream.df):  # what comes from an operator is known by the watermark of that
        return mapped(rows, pack(operator, key_groups, name, None), CHUNKS)
    chunks = mapped(rows, pack(operator, key_groups, name, micros(stream.max_out_of_orderness)), CHUNKS)
    if use.final or watched or stream.time is None or not may_be_watched(stream.df, use):
        return chunks
    # For operators that may come behind this one. Chunks are few; those without a watermark have none in Spark's either.
    time = F.timestamp_micros("watermark")
    return chunks.withColumn(_MARKED_TIME, time).withWatermark(_MARKED_TIME, "0 seconds").drop(_MARKED_TIME)


def may_be_watched(df: DataFrame, use: Use) -> bool:
    """May Spark have a watermark of this stream? It takes one, and a user may want to have it behind the operator."""
    wanted = use.final or df.sparkSession.conf.get(WATERMARKS, "true") == "true"
    return wanted and df.isStreaming and not is_watermarked(df)


def _watermark_of(streams: Iterable[KeyedStream | BroadcastStream], use: Use) -> str | None:
    """What Spark's watermark is behind an operator of these."""
    timed = [stream.df for stream in streams if stream.df.isStreaming and stream.time is not None]
    if timed and all(has_watermark(df) or may_be_watched(df, use) for df in timed):
        return OURS
    some = any(is_watermarked(stream.df) for stream in streams) or any(may_be_watched(df, use) for df in timed)
    return OTHER if some else None


def clock() -> Column:
    """What the clock shows, in milliseconds: one time for all tasks of a micro-batch, the same when it is repeated."""
    return F.unix_millis(F.current_timestamp())


def stateful(
    spark: SparkSession,
    operator: Operator,
    chunks: Sequence[DataFrame],
    *,
    streams: Mapping[str, KeyedStream | BroadcastStream],
    use: Use,
    key_groups: int,
    time_mode: str,
    zone: str | None = None,
    first: DataFrame | None = None,
    source: type[DataSource] = ControlSource,
) -> DataFrame:
    """The operator over its packed streaming inputs, as RESULTS; *first* are chunks of bounded inputs, which come before.

    :param streams: what its inputs are connected to
    :param zone: the session's time zone, if the operator asks for it
    :param source: the control source
    """
    if use.drain and not use.final and any(goes_on(stream.df) for stream in streams.values()):
        raise StreamDefinitionError(
            "this stream is to end, and the operator from which it comes goes on",
            "Its deadlines would not fire, and nobody would take what it still holds.",
            "drain=True for that operator too; or run(..., drain=True), which ends all operators of the query",
        )
    upstream = {
        name: micros(stream.max_out_of_orderness) for name, stream in streams.items() if has_watermark(stream.df)
    }
    if upstream and time_mode == NO_TIME:
        time_mode = EVENT_TIME
    configure_state_store(spark)
    spark.dataSource.register(source)
    reader = (
        spark.readStream.format(source.name())
        .option("keyGroups", key_groups)
        .option("definition", operator.fingerprint.hex())
        .option("drain", str(use.drain).lower())
        .option("timers", str(time_mode == PROCESSING_TIME).lower())
        .option("signals", signals.folder())
    )
    control = (reader if zone is None else reader.option("zone", zone)).load()
    results = (
        reduce(DataFrame.unionByName, [*chunks, control])
        .withColumn("clock", clock())
        .groupBy("key_group")
        .transformWithState(
            statefulProcessor=OperatorHost(operator, time_mode, bounded=first is not None, upstream=upstream),
            outputStructType=RESULTS,
            outputMode="Append",
            timeMode=time_mode,
            initialState=None if first is None else first.groupBy("key_group"),
        )
    )
    if not operator.metrics:
        return results
    return results.observe(use.observation, *[_count(name) for name in operator.metrics])


def _count(name: str) -> Column:
    """A count as a column of the observation; a family of counts (``name/*``) as JSON, an object for each key group."""
    if not name.endswith("/*"):
        return F.coalesce(F.sum(F.col("metrics")[name]), F.lit(0)).alias(name)
    family = name.removesuffix("*")
    mine = F.map_filter("metrics", lambda key, _: F.startswith(key, F.lit(family)))
    return F.to_json(F.collect_list(F.when(F.size(mine) > 0, mine))).alias(name.removesuffix("/*"))


def run(
    results: Callable[[Use], DataFrame],
    schemas: Mapping[str, pa.Schema],
    sinks: Mapping[str, Sink],
    *,
    streams: Iterable[KeyedStream | BroadcastStream],
    ends_by_itself: bool,
    checkpoint: str | None,
    drain: bool,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    spark: SparkSession,
) -> StreamingQuery | None:
    """Write the outputs of *results* to their *sinks*, computing once.

    :param streams: where the elements come from
    :param ends_by_itself: does the trigger *available now* end the query?
    """
    streams = list(streams)

    def write(rows: DataFrame, batch_id: int) -> None:
        if len(sinks) > 1:  # else nothing would be computed twice
            rows.persist()
        try:
            for output, sink in sinks.items():
                sink(unpacked(rows, output, schemas[output]), batch_id)
        finally:
            rows.unpersist()

    if not any(stream.df.isStreaming for stream in streams):
        write(results(Use(drain=False)), 0)
        return None
    check_checkpoint(checkpoint)
    follows = any(has_upstream(stream.df) for stream in streams)

    def start(ending: bool, observation: str | None = None, **how: Any) -> StreamingQuery:
        unique = observation or (_unique_observation() if follows else OBSERVATION)
        try:
            rows = results(Use(ending, observation=unique))
            writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
            return (writer if name is None else writer.queryName(name)).trigger(**how).start()
        except AnalysisException as error:
            # An operator comes before this one, and its mark was lost.
            if error.getCondition() != "DUPLICATED_METRICS_NAME" or observation is not None:
                raise
        return start(ending, _unique_observation(), **how)

    if trigger is not None:
        return _until_its_end(partial(start, True, **trigger)) if drain else start(False, **trigger)
    if ends_by_itself:
        with _without_empty_micro_batches(spark, drain):
            query = start(False, availableNow=True)
        query.awaitTermination()
        if drain and len(_operators(query)) > 1 and not signals.is_seen():
            raise _not_reached("Nothing was ended: the state is as the last micro-batch left it.")
    elif not drain:
        # Spark runs empty micro-batches for ever where timers are in processing time.
        raise StreamDefinitionError(
            "a stream in processing time that is not drained does not end by itself",
            hint='drain=True, or a trigger: run(..., trigger={"processingTime": "1 second"})',
        )
    if drain:
        with signals.ending():
            query = start(True, availableNow=True)
            query.awaitTermination()
            if not any(_operators(query).values()):  # its one micro-batch was one that a failure had left unfinished
                query = start(True, availableNow=True)
                query.awaitTermination()
        if not all(_operators(query).values()):
            raise _not_reached("The last operator has ended its input; those before it have not.")
    return None


def _until_its_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends its input, and goes on alone; while it runs the operators before its last one hear of it."""
    with ExitStack() as stack:
        stack.enter_context(signals.ending())
        query = start()
        signal = stack.pop_all()

    def wait() -> None:
        with signal, suppress(Exception):  # whoever has the query is told how it ended
            query.awaitTermination()

    threading.Thread(target=wait, name="asterism end of input", daemon=True).start()
    return query


def _not_reached(what: str) -> StateError:
    return StateError(
        "the end of input cannot reach the operators from which this stream comes",
        f"It is told in a folder of this process, which Spark's driver does not see.\n{what}",
        "run it where Spark's driver runs; or drain=False here, and drain=True for each operator of a last run",
    )


def check_run(sinks: Any, checkpoint: Any, drain: Any, trigger: Any, name: Any) -> None:
    """What every ``run`` takes.

    :raises StreamDefinitionError: one of them is of a wrong type
    """
    expect(StreamDefinitionError, sinks, Mapping, "sinks are functions by output", 'run({"matches": sink})')
    expect(StreamDefinitionError, checkpoint, str | PathLike | None, "the checkpoint is a path")
    expect(StreamDefinitionError, drain, bool, "drain is True or False")
    expect(StreamDefinitionError, trigger, Mapping | None, "a trigger is a dict", 'trigger={"availableNow": True}')
    expect(StreamDefinitionError, name, str | None, "the name of a query is a text")
    if not sinks:
        raise StreamDefinitionError(
            "there is no sink", hint='run({"matches": sink}), where sink(df, batch_id) writes rows'
        )
    for output, sink in sinks.items():
        if not callable(sink):
            raise StreamDefinitionError(
                f'the sink of "{output}" is {sink!r:.60}',
                hint="a function of a DataFrame and a batch id: lambda df, batch_id: df.write.mode('append').parquet(path)",
            )


def function_schema(spark: SparkSession, schema: Any, hint: str) -> pa.Schema:
    """The columns that a function of a user returns.

    :raises StreamDefinitionError: *schema* is none
    """
    expect(StreamDefinitionError, schema, T.StructType | str, "the schema of a function is a text", hint)
    try:
        struct = schema if isinstance(schema, T.StructType) else spark.createDataFrame([], schema).schema
    except ParseException as error:
        raise StreamDefinitionError(f"no schema: {shown(schema)}", str(error).strip(), hint) from None
    return arrow_schema(spark, struct)


def _operators(query: StreamingQuery) -> dict[int, bool]:
    """The control sources of a query's operators, by their places: have they carried the end of input?"""
    found: dict[int, bool] = {}
    for progress in query.recentProgress:
        for place, source in enumerate(progress.sources):
            start, end = _offset(source.startOffset), _offset(source.endOffset)
            if "definition" in end:
                found[place] = found.get(place, False) or end["messages"] > start.get("messages", 0)
    return found


def _offset(text: str) -> dict[str, Any]:
    with suppress(TypeError, ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    return {}


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


def unpacked(results: DataFrame, output: str, schema: pa.Schema) -> DataFrame:
    struct = spark_schema(schema)
    return results.where(F.col("output") == output).select("chunk").mapInArrow(unpack(schema), struct)


def output_of(
    results: DataFrame,
    output: str,
    schema: pa.Schema,
    *,
    streams: Iterable[KeyedStream | BroadcastStream],
    use: Use,
) -> DataFrame:
    """The rows of one output, for whatever comes next.

    :param streams: what the inputs of the operator are connected to
    """
    rows, streams = unpacked(results, output, schema), list(streams)
    if not any(stream.df.isStreaming for stream in streams):
        return rows
    return marked(rows, watermark=_watermark_of(streams, use), drains=use.drain)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(spark: SparkSession, schema: T.StructType, time_unit: str = MILLISECONDS) -> pa.Schema:
    """How Spark hands these columns to Python, with what their types do not tell: the session's time zone, and what an event
    time counts that is an integer.
    """
    arrow: pa.Schema = spark.createDataFrame([], schema).toArrow().schema
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    # Without what else is said about the columns: it is no part of what a checkpoint belongs to.
    return pa.schema(
        [pa.field(field.name, field.type) for field in arrow], metadata={TIME_ZONE: zone, TIME_UNIT: time_unit}
    )


def zone_asked(build: Callable[[pa.Schema], Operator], schema: pa.Schema) -> str | None:
    """The session's time zone, if what an operator computes depends on it; None otherwise.

    :param build: makes the operator for events of a schema
    """

    def made_in(zone: str) -> bytes:
        written = io.BytesIO()
        pickler: Any = _WithoutMetadata(written)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        pickler.dump(build(schema.with_metadata({**schema.metadata, TIME_ZONE: zone.encode()})))
        return written.getvalue()

    return schema.metadata[TIME_ZONE].decode() if made_in("UTC") != made_in("America/St_Johns") else None


class _WithoutMetadata(cloudpickle.Pickler):
    """Writes schemas without what they tell beside their columns."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, pa.Schema):
            return str, (str(obj.remove_metadata()),)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def spark_schema(schema: pa.Schema) -> T.StructType:
    """A timestamp without a zone is one in Spark, too, and not an instant in UTC."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def configure_state_store(spark: SparkSession) -> None:
    """``transformWithState`` needs the RocksDB state store; with changelog checkpointing a commit writes what changed."""
    spark.conf.set(_STATE_STORE, _ROCKSDB)
    spark.conf.set(_CHANGELOG, "true")
