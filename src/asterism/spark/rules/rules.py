"""Pattern processors on Spark: ``CEP.pattern_processors`` and its outputs (FLIP-200)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from asterism.arguments import expect_outputs
from asterism.columns.arrays import cast_table
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import TIME, micros
from asterism.errors import CheckpointRequiredError, StreamDefinitionError
from asterism.expressions.routines.user_functions import Purpose, checked
from asterism.expressions.types import TIME_ZONE
from asterism.files.file_systems import is_path, use_settings
from asterism.matching.process_function import MatchFunctionLike, PatternProcessFunction
from asterism.operators.operator import EVENTS, Arrival
from asterism.patterns.semantics import Semantics
from asterism.rules.definition.lookup_tables import MAX_ROWS
from asterism.rules.definition.processor import PatternProcessor, with_place
from asterism.rules.definition.registered_conditions import RegisteredCondition, checked_conditions
from asterism.rules.matching.operator import MAX_PARTIAL_MATCHES, PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import LATE, SHADOW
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, Lookup, LookupSource, defined_lookups
from asterism.rules.sets.discovery_status import INITIALIZING, Status
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.kill_list import ALL_SETS, checked_names
from asterism.rules.sets.set_store import STORE, WAIT, FolderStore, SingleSetStore, wait_for
from asterism.spark.host.batch import BATCH_GROUP, copied, sorted_arrival
from asterism.spark.host.chaining import has_watermark
from asterism.spark.host.column_types import arrow_schema, spark_schema
from asterism.spark.host.exchange import MILLISECOND
from asterism.spark.host.execution import OperatorOutputs, Sink, check_checkpoint
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.stateful import Use, bounded, hashed, mapped, packed, stateful
from asterism.spark.host.versions import offset_of
from asterism.spark.progress.rule_progress import CountedQuery, count, counts_of
from asterism.spark.rules.rule_source import Payload
from asterism.spark.session.pipelines import is_pipeline
from asterism.spark.session.settings import hadoop_settings, resolved
from asterism.spelling import PythonNames
from asterism.streams.keyed_stream import KeyedStream
from asterism.text.printable import quoted_name


@dataclass(frozen=True)
class PatternProcessorStream(OperatorOutputs, metaclass=PythonNames):
    """The results of pattern processors: the outputs ``matches``, ``timed_out``, ``shadow``, ``late`` and ``errors``.

    A match has ``processor_id``, ``processor_version``, ``key`` (the values of the key, as strings), ``start_time``,
    ``end_time``, ``match_time`` (timed out: ``timeout_time``), ``match_id`` (the same each time this match is found) and,
    depending on the processor: ``events``, in order, each with its stage; ``measures``, by name, as strings; or ``result``,
    the result of its function, as JSON. ``labels`` are those of the processor when the match is emitted, and
    ``suppressed`` (only of matches) is the number of matches that it has suppressed before this one. ``shadow`` has the matches
    of shadows, which are not in ``matches``.
    """

    stream: KeyedStream
    factory: PatternProcessorDiscovererFactory
    store: str | None
    key_groups: int | None
    drain: bool
    options: RuleOptions
    lookups: tuple[DefinedLookup, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.factory, PatternProcessorDiscovererFactory):
            raise StreamDefinitionError(
                f"the discoverer factory must be a PatternProcessorDiscovererFactory, not {self.factory!r:.60}",
                hint="asterism.discovery has them for files, databases and HTTP: FilePatternProcessorDiscovererFactory(path)",
            )
        if self.store is not None and not isinstance(self.store, str):
            raise StreamDefinitionError(f"store must be the path of a folder, not {self.store!r:.60}")
        check_functions(self.options.functions)
        self._operator(FolderStore(""))  # checks the options that would otherwise fail only when the query runs

    @property
    def spark(self) -> SparkSession:
        return self.stream.df.sparkSession

    def output(self, name: str, *, without: Iterable[str] = ()) -> DataFrame:
        """The rows of one output, as a separate query. A streaming query needs a *store*, which no other query may use;
        :meth:`run` writes several outputs from one query.

        :param without: as for :meth:`run`
        :raises StreamDefinitionError: there is no such output, or no store
        """
        names = checked_names(without)
        if not self.stream.df.isStreaming:
            return self._unpacked(self._current_rules(names), name, names)
        if self.store is None:
            raise StreamDefinitionError(
                "pattern processors require a store for their sets",
                hint="CEP.pattern_processors(..., store=folder)",
            )
        return self._unpacked(self._store(None), name, names)

    def _unpacked(self, store: FolderStore, name: str, without: frozenset[str]) -> DataFrame:
        operator = self._operator(store, [name], without)
        expect_outputs([name], operator.output_schemas)

        def results(use: Use) -> DataFrame:
            if self.stream.df.isStreaming and not is_pipeline(self.spark):
                count(self.spark, None, use.observation, store)
            return self._results(operator, without, use)

        return self._as_dataframe(operator, results, name)

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        without: Iterable[str] = (),
    ) -> StreamingQuery | None:
        """Write outputs to sinks. They are computed only once, as in :meth:`asterism.PatternStream.run`. A stream requires
        a checkpoint. The store is in the checkpoint unless *store* was given.

        :param without: the processors to exclude, by ``id`` (all versions) or ``id@version``. They are not evaluated, not
            even in a micro-batch that failed and is repeated, so that a query can continue after a processor has made it
            fail. Versions that were in force stay disabled in later runs until the next version.
        :raises StreamDefinitionError: there is no such output, or a name in *without* is invalid
        """
        options = self._run_options(sinks, checkpoint, drain, trigger, name)
        names = checked_names(without)
        streaming = self.stream.df.isStreaming
        if streaming:
            check_checkpoint(checkpoint)
        operator = self._operator(self._store(checkpoint) if streaming else self._current_rules(names), sinks, names)
        expect_outputs(sinks, operator.output_schemas)
        counted: list[CountedQuery] = []

        def started(query: StreamingQuery, observation: str) -> None:
            assert isinstance(operator.source, FolderStore)
            for ended in counted:  # another query of this run, which has ended
                ended.wait()
            counted.append(count(self.spark, query, observation, operator.source))

        query = self._write(operator, partial(self._results, operator, names), sinks, options, started)
        if query is None:
            for counted_query in counted:
                counted_query.wait()
        return query

    def check(self, processor: PatternProcessor) -> None:
        """Check a processor against the stream.

        :raises AsterismError: it would be refused
        """
        self._operator(SingleSetStore()).compiler.try_out(with_place(processor, processor.place).as_data())

    def status(self, checkpoint: str | None = None) -> Status:
        """The status of the rules, with their counts, and of their discovery. In another process, use
        :func:`asterism.discovery.status_of`.
        """
        return self._store(checkpoint).read_status()

    def wait_for(
        self, versions: Mapping[str, int], checkpoint: str | None = None, *, timeout: timedelta = WAIT
    ) -> Status:
        """Wait until the running query uses these versions of rules, or later ones. In another process, use
        :func:`asterism.discovery.wait_for`.

        :param versions: maps ids to versions
        :param timeout: how long to wait, by default a minute
        :raises PatternProcessorError: a version was refused or killed, is disabled or has expired
        :raises StateError: the query has ended, or the time is over
        """
        return wait_for(self._store(checkpoint).location, versions, timeout=timeout)

    @staticmethod
    def matches_by_processor(progress: StreamingQueryProgress) -> dict[str, int]:
        """The number of matches per processor in a micro-batch, without those of shadows, from the query's progress."""
        matches: dict[str, int] = {}
        for (name, _), counts in counts_of(progress).versions.items():
            if counts.matches:
                matches[name] = matches.get(name, 0) + counts.matches
        return matches

    @staticmethod
    def discovery(progress: StreamingQueryProgress) -> str:
        """The status of the discovery in a micro-batch, from the query's progress: ``initializing``, ``valid``, or
        ``interrupted`` with the error of the last poll.
        """
        offsets = (offset_of(source.endOffset) for source in progress.sources)
        states = (offset["discovery"] for offset in offsets if offset is not None and "discovery" in offset)
        return next(states, INITIALIZING)

    def _store(self, checkpoint: str | None) -> FolderStore:
        location = self.store
        if location is None and checkpoint is not None:
            location = f"{resolved(self.spark, str(checkpoint))}/{STORE}"
        if location is None:
            raise CheckpointRequiredError(
                "the checkpoint is required to find the store of the query", hint="status(checkpoint=...)"
            )
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
        """The rules that the discoverer currently reads, for a batch run, of which one must be usable."""
        use_settings(hadoop_settings(self.spark))
        store = SingleSetStore()
        coordinator = Coordinator(self._operator(store).compiler, store, without, self.lookups)
        coordinator.read_lookups()
        discoverer = self.factory.create_pattern_processor_discoverer()
        try:
            coordinator.on_pattern_processors_updated(discoverer.initial_pattern_processors())
        finally:
            discoverer.close()
        coordinator.expect_some_rule()
        return store

    def _operator(
        self, store: FolderStore, taken: Collection[str] = (), without: frozenset[str] = frozenset()
    ) -> DynamicCepOperator:
        """*without*: the processors to exclude in this run, in addition to the kill list of the store."""
        killed = store.killed() if store.location else {}
        # Later sets contain the kill list themselves.
        last = max(store.numbers(), default=0) if killed else 0
        return DynamicCepOperator(
            arrow_schema(self.spark, self.stream.df.schema, self.stream.time_unit),
            store,
            replace(
                self.options,
                wants_late=LATE in taken,
                wants_shadow=SHADOW in taken,
                waiting_time=self._waiting_time,
                left_out=dict.fromkeys(killed, last) | dict.fromkeys(without, ALL_SETS),
            ),
        )

    @property
    def _waiting_time(self) -> int | None:
        """See :class:`DynamicCepOperator`. The watermark of a stream that comes from another operator is Spark's."""
        if not self.stream.df.isStreaming:
            return 0
        return None if has_watermark(self.stream.df) else micros(self.stream.max_out_of_orderness) + MILLISECOND

    def _results(self, operator: DynamicCepOperator, without: frozenset[str], use: Use) -> DataFrame:
        store = operator.source
        if isinstance(store, SingleSetStore):
            return bounded_results(self.stream, operator, store, use)
        assert isinstance(store, FolderStore)
        events = hashed(self.stream.df, [], operator.inputs[EVENTS].schema.names, self.stream)
        return stateful(
            operator,
            [packed(self.stream, operator, EVENTS, events, use=use)],
            streams={EVENTS: self.stream},
            use=use,
            time_mode=PROCESSING_TIME if operator.processing_time else NO_TIME,
            zone=operator.schema.metadata[TIME_ZONE].decode(),  # later rules may depend on it
            source=Payload(self.factory, operator.compiler, store, without, self.lookups).source(),
        )


class ProcessorOptions(TypedDict, total=False):
    """What pattern processors can refer to, and how they match.

    :param functions: the functions that processors can refer to, by name. Each takes a table of matches and returns a
        table with the same number of rows; or with any number, and the column ``match_id``. The outputs that a
        :class:`asterism.PatternProcessFunction` declares are outputs of the query. Default: none
    :param conditions: the conditions that processors can refer to, by name: a function from a table of events to a Boolean
        array or, with arguments, a :class:`~asterism.RegisteredCondition`. Default: none
    :param udfs: the functions in Python that the SQL of processors can call, by name: a function with type hints, a pair of a
        function and the type of its result in Spark SQL (``(haversine, "double")``), or a ``udf`` or ``pandas_udf`` of PySpark.
        They must be pure. Default: none; a processor cannot call the functions of the session.
    :param lookups: the tables that processors can read by a key of the event, by the name of the column that they are:
        ``amount > limits.max``. Default: none
    :param semantics: the semantics of this library, which are the default, or exactly those of Flink
    :param max_partial_matches: the maximum number of partial matches per processor and key, which also limits the cost of
        an event. A processor can set a lower limit. None: no limit (see docs/limits.md). Default: 10,000
    """

    functions: Mapping[str, MatchFunctionLike] | None
    conditions: Mapping[str, Callable[[pa.Table], Any] | RegisteredCondition] | None
    udfs: Mapping[str, Any] | None
    lookups: Mapping[str, Lookup] | None
    semantics: Semantics
    max_partial_matches: int | None


def rule_options(stream: KeyedStream, given: ProcessorOptions) -> tuple[RuleOptions, tuple[DefinedLookup, ...]]:
    """The options of the operator, and the lookups."""
    conditions, functions = given.get("conditions"), given.get("functions")
    registered = checked_conditions({} if conditions is None else conditions)
    defined = lookups_of(given.get("lookups"), stream)
    options = RuleOptions(
        keys=stream.keys,
        time=stream.time,
        order_by=stream.order_by,
        semantics=given.get("semantics", Semantics.DEFAULT),
        functions={} if functions is None else functions,
        conditions=registered,
        udfs=checked(given.get("udfs"), Purpose.RULES),
        lookups=[lookup.column for lookup in defined],
        max_partial_matches=given.get("max_partial_matches", MAX_PARTIAL_MATCHES),
    )
    return options, defined


def check_functions(functions: Any) -> None:
    """:raises StreamDefinitionError: these are not functions by name"""
    if not isinstance(functions, Mapping):
        raise StreamDefinitionError(
            f"functions must be a dict by name, not a {type(functions).__name__}", hint="functions={name: function}"
        )
    for name, function in functions.items():
        if not isinstance(name, str) or not (callable(function) or isinstance(function, PatternProcessFunction)):
            raise StreamDefinitionError(
                f"functions must map names to functions, not {name!r:.60} to {function!r:.60}",
                hint="functions={name: function}",
            )


def lookups_of(given: Any, stream: KeyedStream) -> tuple[DefinedLookup, ...]:
    """The lookups of a query over a stream; a DataFrame is read now."""

    def source(lookup: Lookup) -> LookupSource:
        from asterism.discovery.sources.lookup_sources import source_of  # imports SQLAlchemy, which few queries need

        if isinstance(lookup.source, DataFrame):
            lookup = replace(lookup, source=lookup.source.limit(MAX_ROWS + 1).toArrow())
        return source_of(lookup)

    if given is None:
        return ()
    events = arrow_schema(stream.df.sparkSession, stream.df.schema, stream.time_unit)
    return defined_lookups(given, events, source)


def bounded_results(
    stream: KeyedStream,
    operator: DynamicCepOperator,
    store: SingleSetStore,
    use: Use,
    partitions: int | None = None,
) -> DataFrame:
    """Results over a table: the operator runs on the copies of the events, by key group and in time order."""
    events = hashed(stream.df, [], operator.inputs[EVENTS].schema.names)
    schema = operator.inputs[EVENTS].prepared
    copied_schema = spark_schema(schema.append(pa.field(KEY_HASH, pa.int64())))
    copies = mapped(events, copied(operator, EVENTS), copied_schema)
    group = F.pmod(F.col(KEY_HASH), F.lit(use.key_groups)).alias(BATCH_GROUP)
    rows = copies.select(group, *map(quoted_name, schema.names))
    first = [Arrival(PROCESSORS, prepared_set(processor_set.to_bytes())) for processor_set in store.retained()]

    def sent(rows: pa.Table) -> list[Arrival]:
        return sorted_arrival(EVENTS, cast_table(rows.select(schema.names), schema))

    return bounded(rows, [TIME], operator, sent, first, use=use, partitions=partitions)
