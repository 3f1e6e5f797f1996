"""Pattern processors on Spark: the plans of the queries of ``CEP.pattern_processors``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from asterism.columns.arrays import cast_table
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import TIME, micros
from asterism.errors import StreamDefinitionError
from asterism.expressions.types import TIME_ZONE
from asterism.files.file_systems import is_path, use_settings
from asterism.operators.operator import EVENTS, Arrival, sorted_arrival
from asterism.operators.sink_functions import Sink
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.rule_counts import FAMILY
from asterism.rules.sets.set_store import FolderStore, SingleSetStore
from asterism.spark.histories.plans import at_seam, history_results
from asterism.spark.host.batch import BATCH_GROUP, copied
from asterism.spark.host.chaining import has_watermark
from asterism.spark.host.column_types import arrow_schema, spark_schema
from asterism.spark.host.exchange import MILLISECOND
from asterism.spark.host.execution import OperatorOutputs, check_checkpoint
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.stateful import Use, bounded, hashed, mapped, packed, stateful
from asterism.spark.progress.rule_progress import CountedQuery, count
from asterism.spark.rules.rule_source import Payload
from asterism.spark.savepoints.bootstrapping import with_savepoint
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.spark.session.pipelines import is_pipeline
from asterism.spark.session.settings import hadoop_settings, resolved
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_processors import PatternProcessorStream
from asterism.streams.run_options import RunOptions
from asterism.text.printable import quoted_name


@dataclass(frozen=True)
class SparkPatternProcessorStream(PatternProcessorStream[DataFrame], OperatorOutputs):
    """The results of pattern processors over a DataFrame."""

    @property
    def spark(self) -> SparkSession:
        session: SparkSession = self.stream.df.sparkSession
        return session

    def _schema(self) -> pa.Schema:
        return arrow_schema(self.spark, self.stream.df.schema, self.stream.time_unit)

    def _output(self, name: str, without: frozenset[str]) -> DataFrame:
        if not self.stream.df.isStreaming:
            return self._unpacked(self._current_rules(without), name, without)
        if self.store is None:
            raise StreamDefinitionError(
                "pattern processors require a store for their sets",
                hint="CEP.pattern_processors(..., store=folder)",
            )
        return self._unpacked(self._store(None), name, without)

    def _unpacked(self, store: FolderStore, name: str, without: frozenset[str]) -> DataFrame:
        operator = self._checked_operator(store, [name], without)

        def results(use: Use) -> DataFrame:
            if self.stream.df.isStreaming and not is_pipeline(self.spark):
                count(self.spark, None, use.observation, store)
            return self._results(operator, without, use)

        return self._as_dataframe(operator, results, name)

    def _run(self, sinks: Mapping[str, Sink], options: RunOptions, without: frozenset[str]) -> StreamingQuery | None:
        streaming, checkpoint = self.stream.df.isStreaming, options.checkpoint
        if streaming:
            check_checkpoint(checkpoint)
        begin_from_savepoint(self.spark, options, streaming=streaming, store=self.store)
        store = self._store(checkpoint) if streaming else self._current_rules(without)
        operator = self._checked_operator(store, sinks, without)
        if options.history is not None and streaming:
            options = self._with_rules(options, store, without)
        counted: list[CountedQuery] = []

        def started(query: StreamingQuery, observation: str, batches: int) -> None:
            assert isinstance(operator.source, FolderStore)
            for ended in counted:  # another query of this run, which has ended
                ended.wait()
            counted.append(count(self.spark, query, observation, operator.source, batches))

        query = self._write(operator, partial(self._results, operator, without), sinks, options, started)
        if query is None:
            for counted_query in counted:
                counted_query.wait()
        return query

    def _store(self, checkpoint: str | None) -> FolderStore:
        if checkpoint is not None and self.store is None:
            checkpoint = resolved(self.spark, str(checkpoint))
        location = self._location(checkpoint)
        if is_path(location) and not Path(location).is_absolute():
            # Executors have another working directory.
            if is_remote():
                raise StreamDefinitionError(
                    f"the path of the store is relative: {location}",
                    "On Spark Connect, the processes of a query have other working directories than this one.",
                    'checkpoint="/an/absolute/path", or a URI',
                )
            location = str(Path(location).absolute())
        return FolderStore(location, hadoop_settings(self.spark))

    def _current_rules(self, without: frozenset[str]) -> SingleSetStore:
        use_settings(hadoop_settings(self.spark))
        return super()._current_rules(without)

    @property
    def _waiting_time(self) -> int | None:
        """The watermark of a stream that comes from another operator is Spark's."""
        if not self.stream.df.isStreaming:
            return 0
        return None if has_watermark(self.stream.df) else micros(self.stream.max_out_of_orderness) + MILLISECOND

    def _results(self, operator: DynamicCepOperator, without: frozenset[str], use: Use) -> DataFrame:
        store = operator.source
        if isinstance(store, SingleSetStore):
            return bounded_results(self.stream, operator, store, use)
        assert isinstance(store, FolderStore)
        stream = at_seam(self.stream, use)
        if use.reads_history:
            newest = store.retained()[-1]
            first = [Arrival(PROCESSORS, prepared_set(newest.to_bytes()))]
            copies = copies_of_events(stream, operator)
            return history_results(stream, operator, copies, use=use, time_mode=NO_TIME, first=first, prepared=True)
        events = hashed(stream.df, [], operator.inputs[EVENTS].schema.names, stream)
        return stateful(
            operator,
            [packed(stream, operator, EVENTS, events, use=use)],
            streams={EVENTS: stream},
            use=use,
            time_mode=PROCESSING_TIME if operator.processing_time else NO_TIME,
            zone=operator.schema.metadata[TIME_ZONE].decode(),  # later rules may depend on it
            source=Payload(self.factory, operator.compiler, store, without, self.lookups).source(),
        )

    def _with_rules(self, options: RunOptions, store: FolderStore, without: frozenset[str]) -> RunOptions:
        """The options with what concerns the rules of a history."""
        options = with_savepoint(self.spark, options, store.location)
        history = options.history
        if history is None or history.pages is not None:
            return options
        begin, counted = partial(self._begin_history, store, without), partial(_count_history, store)
        return replace(options, history=replace(history, begin=begin, counted=counted))

    def _begin_history(self, store: FolderStore, without: frozenset[str]) -> None:
        """Put the rules that are in force in a history into the store.

        :raises PatternProcessorError: none of them can be used
        """
        use_settings(hadoop_settings(self.spark))
        self._publish(store, without).close()


def _count_history(store: FolderStore, query: str, counted: Iterable[Mapping[str, int]]) -> None:
    """Add what key groups have counted in the history of a query to its counts, as its micro-batch 0."""
    counts = store.counts()
    prefix = f"{FAMILY}/"
    of_rules = ({name: value for name, value in each.items() if name.startswith(prefix)} for each in counted)
    if counts.add(query, 0, of_rules):
        store.write_counts(counts)


def copies_of_events(stream: KeyedStream, operator: DynamicCepOperator) -> DataFrame:
    """The copies of the events of a table, with KEY_HASH, as the operator prepares them."""
    events = hashed(stream.df, [], operator.inputs[EVENTS].schema.names)
    schema = operator.inputs[EVENTS].prepared
    return mapped(events, copied(operator, EVENTS), spark_schema(schema.append(pa.field(KEY_HASH, pa.int64()))))


def bounded_results(
    stream: KeyedStream,
    operator: DynamicCepOperator,
    store: SingleSetStore,
    use: Use,
    partitions: int | None = None,
) -> DataFrame:
    """Results over a table: the operator runs on the copies of the events, by key group and in time order."""
    schema = operator.inputs[EVENTS].prepared
    copies = copies_of_events(stream, operator)
    group = F.pmod(F.col(KEY_HASH), F.lit(use.key_groups)).alias(BATCH_GROUP)
    rows = copies.select(group, *map(quoted_name, schema.names))
    first = [Arrival(PROCESSORS, prepared_set(processor_set.to_bytes())) for processor_set in store.retained()]

    def sent(rows: pa.Table) -> list[Arrival]:
        return sorted_arrival(EVENTS, cast_table(rows.select(schema.names), schema))

    return bounded(rows, [TIME], operator, sent, first, use=use, partitions=partitions)
