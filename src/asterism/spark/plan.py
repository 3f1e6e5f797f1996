"""How an operator of any kind becomes a Spark query, and how its outputs reach their sinks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from asterism.errors import StreamDefinitionError
from asterism.key_group import KEY_HASH
from asterism.operator import Arrival, Operator
from asterism.spark import RESULTS
from asterism.spark.control_source import ControlSource
from asterism.spark.exchange import BATCH_GROUP, Batches, run_groups, unpack
from asterism.spark.host import PROCESSING_TIME, OperatorHost
from asterism.sql.types import TIME_ZONE

Sink = Callable[[DataFrame, int], None]
DEFAULT_KEY_GROUPS = 32
MAX_KEY_GROUPS = 2**15
OBSERVATION = "asterism"
"""Name of the observation that has an operator's counts, in a query's progress."""

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


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


def stateful(
    spark: SparkSession,
    operator: Operator,
    packed: Sequence[DataFrame],
    *,
    key_groups: int,
    time_mode: str,
    drain: bool,
    first: DataFrame | None = None,
    source: type[DataSource] = ControlSource,
) -> DataFrame:
    """The operator over its *packed* streaming inputs, as RESULTS; *first* are chunks of bounded inputs, which come before.

    :param source: the control source
    """
    configure_state_store(spark)
    spark.dataSource.register(source)
    control = (
        spark.readStream.format(source.name())
        .option("keyGroups", key_groups)
        .option("definition", operator.fingerprint.hex())
        .option("drain", str(drain).lower())
        .option("timers", str(time_mode == PROCESSING_TIME).lower())
        .load()
    )
    results = (
        reduce(DataFrame.unionByName, [*packed, control])
        .groupBy("key_group")
        .transformWithState(
            statefulProcessor=OperatorHost(operator, time_mode, bounded=first is not None),
            outputStructType=RESULTS,
            outputMode="Append",
            timeMode=time_mode,
            initialState=None if first is None else first.groupBy("key_group"),
        )
    )
    if not operator.metrics:
        return results
    return results.observe(OBSERVATION, *[_count(name) for name in operator.metrics])


def _count(name: str) -> Column:
    """A count as a column of the observation; a family of counts (``name/*``) as JSON, an object for each key group."""
    if not name.endswith("/*"):
        return F.coalesce(F.sum(F.col("metrics")[name]), F.lit(0)).alias(name)
    family = name.removesuffix("*")
    mine = F.map_filter("metrics", lambda key, _: F.startswith(key, F.lit(family)))
    return F.to_json(F.collect_list(F.when(F.size(mine) > 0, mine))).alias(name.removesuffix("/*"))


def run(
    results: Callable[[bool], DataFrame],
    schemas: Mapping[str, pa.Schema],
    sinks: Mapping[str, Sink],
    *,
    streaming: bool,
    ends_by_itself: bool,
    checkpoint: str | None,
    drain: bool,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    spark: SparkSession,
) -> StreamingQuery | None:
    """Write the outputs of *results* (called with: is this the drain?) to their *sinks*, computing once.

    :param ends_by_itself: does the trigger *available now* end the query?
    """

    _check_sinks(sinks, trigger)

    def write(rows: DataFrame, batch_id: int) -> None:
        if len(sinks) > 1:  # else nothing would be computed twice
            rows.persist()
        try:
            for output, sink in sinks.items():
                sink(unpacked(rows, output, schemas[output]), batch_id)
        finally:
            rows.unpersist()

    if not streaming:
        write(results(False), 0)
        return None
    check_checkpoint(checkpoint)

    def start(ending: bool, **how: Any) -> StreamingQuery:
        try:
            writer = results(ending).writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
            return (writer if name is None else writer.queryName(name)).trigger(**how).start()
        except AnalysisException as error:
            if error.getCondition() != "DUPLICATED_METRICS_NAME":
                raise
            raise StreamDefinitionError(
                "the stream is itself a result of Asterism",
                "One streaming query holds one operator.",
                "write the first result to a sink, and read the second stream from there",
            ) from None

    if trigger is not None:
        return start(drain, **trigger)
    if ends_by_itself:
        with _without_empty_micro_batches(spark, drain):
            query = start(False, availableNow=True)
        query.awaitTermination()
    elif not drain:
        # Spark runs empty micro-batches for ever where timers are in processing time.
        raise StreamDefinitionError(
            "a stream in processing time that is not drained does not end by itself",
            hint='drain=True, or a trigger: run(..., trigger={"processingTime": "1 second"})',
        )
    if drain:
        query = start(True, availableNow=True)
        query.awaitTermination()
        if not _has_ended(query):  # its one micro-batch was an old one, which a failure had left unfinished
            start(True, availableNow=True).awaitTermination()
    return None


def _check_sinks(sinks: Mapping[str, Sink], trigger: Mapping[str, Any] | None) -> None:
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
    if trigger is not None and not isinstance(trigger, Mapping):
        raise StreamDefinitionError(f"the trigger is {trigger!r:.60}", hint='trigger={"processingTime": "1 second"}')


def _has_ended(query: StreamingQuery) -> bool:
    """Has the query carried the end of input?"""

    def messages(offset: str) -> int:
        found = json.loads(offset)
        return int(found.get("messages", 0)) if isinstance(found, dict) else 0

    sources = [source for progress in query.recentProgress for source in progress.sources]
    return any(messages(source.endOffset) > messages(source.startOffset) for source in sources)


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


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(spark: SparkSession, schema: T.StructType) -> pa.Schema:
    """How Spark hands these columns to Python, with the session's time zone, which their types do not tell."""
    arrow: pa.Schema = spark.createDataFrame([], schema).toArrow().schema
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    return pa.schema([field.with_nullable(True) for field in arrow], metadata={TIME_ZONE: zone})


def spark_schema(schema: pa.Schema) -> T.StructType:
    """A timestamp without a zone is one in Spark, too, and not an instant in UTC."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def configure_state_store(spark: SparkSession) -> None:
    """``transformWithState`` needs the RocksDB state store; with changelog checkpointing a commit writes what changed."""
    spark.conf.set(_STATE_STORE, _ROCKSDB)
    spark.conf.set(_CHANGELOG, "true")
