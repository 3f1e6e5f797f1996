"""The results of pattern processors over a keyed stream, on every host: ``CEP.pattern_processors`` (FLIP-200)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack

import pyarrow as pa

from asterism.arguments import expect_outputs, shown
from asterism.errors import CheckpointRequiredError, StreamDefinitionError
from asterism.expressions.routines.user_functions import Purpose, checked
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions, not_live
from asterism.matching.process_function import MatchFunctionLike, PatternProcessFunction
from asterism.operators.sink_functions import Sink
from asterism.patterns.semantics import Semantics
from asterism.rules.definition.lookup_tables import MAX_ROWS
from asterism.rules.definition.processor import PatternProcessor, with_place
from asterism.rules.definition.registered_conditions import RegisteredCondition, checked_conditions
from asterism.rules.matching.operator import MAX_PARTIAL_MATCHES, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import LATE, MATCHES, SHADOW
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, Lookup, LookupSource, defined_lookups
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.kill_list import ALL_SETS, checked_names
from asterism.rules.sets.set_store import STORE, WAIT, FolderStore, SingleSetStore, wait_for
from asterism.spelling import PythonNames
from asterism.streams.hosts import is_of_spark, module_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import Rows
from asterism.streams.run_options import BeginOptions, RunOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from asterism.live.engine import LiveEngine


@dataclass(frozen=True)
class PatternProcessorStream(Generic[Rows], metaclass=PythonNames):
    """The results of pattern processors: the outputs ``matches``, ``timed_out``, ``shadow``, ``late`` and ``errors``. They are
    DataFrames of Spark, or Arrow tables if the events are a table.

    A match has ``processor_id``, ``processor_version``, ``key`` (the values of the key, as strings), ``start_time``,
    ``end_time``, ``match_time`` (timed out: ``timeout_time``), ``match_id`` (the same each time this match is found) and,
    depending on the processor: ``events``, in order, each with its stage; ``measures``, by name, as strings; or ``result``,
    the result of its function, as JSON. ``labels`` are those of the processor when the match is emitted, and
    ``suppressed`` (only of matches) is the number of matches that it has suppressed before this one. ``shadow`` has the matches
    of shadows, which are not in ``matches``.
    """

    stream: KeyedStream[Any]
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

    # ------------------------------------------------------------------ what a host does

    @abstractmethod
    def _schema(self) -> pa.Schema:
        """The columns of the events."""

    @abstractmethod
    def _output(self, name: str, without: frozenset[str]) -> Rows:
        """The rows of one output."""

    @abstractmethod
    def _run(self, sinks: Mapping[str, Sink], options: RunOptions, without: frozenset[str]) -> StreamingQuery | None:
        """Write outputs to sinks."""

    @abstractmethod
    def _store(self, checkpoint: str | None) -> FolderStore:
        """The folder for the sets of a stream."""

    @property
    def _waiting_time(self) -> int | None:
        """See :class:`~asterism.rules.matching.operator.RuleOptions`; that of a table."""
        return 0

    def _open(self, options: LiveOptions, without: frozenset[str]) -> LiveEngine:
        """A live engine with the outputs of *options*."""
        raise not_live()

    # ------------------------------------------------------------------ results

    def output(self, name: str, *, without: Iterable[str] = ()) -> Rows:
        """The rows of one output, as a separate query. A streaming query needs a *store*, which no other query may use;
        :meth:`run` writes several outputs from one query.

        :param without: as for :meth:`run`
        :raises StreamDefinitionError: there is no such output, or no store
        """
        return self._output(name, checked_names(without))

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        without: Iterable[str] = (),
        from_savepoint: str | None = None,
        **begin: Unpack[BeginOptions],
    ) -> StreamingQuery | None:
        """Write outputs to sinks. They are computed only once, as in :meth:`asterism.PatternStream.run`. A stream requires
        a checkpoint. The store is in the checkpoint unless *store* was given.

        :param without: the processors to exclude, by ``id`` (all versions) or ``id@version``. They are not evaluated, not
            even in a micro-batch that failed and is repeated, so that a query can continue after a processor has made it
            fail. Versions that were in force stay disabled in later runs until the next version.
        :param from_savepoint: as there. The sets of rules are those of the savepoint.
        :param begin: as there. Over the whole *history*, the rules are in force that the discoverer reads when the query is
            started for the first time, each in its own time (``timestamp``, ``expires``). Later ones are in force from
            the seam on.
        :raises StreamDefinitionError: there is no such output, or a name in *without* is invalid
        """
        options = RunOptions.checked(
            sinks,
            checkpoint,
            drain,
            trigger,
            name,
            with_trigger=self.drain,
            key_groups=self.key_groups,
            from_savepoint=from_savepoint,
        ).begun(begin)
        return self._run(sinks, options, checked_names(without))

    def open(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        snapshot_every: timedelta | int | None = SNAPSHOT_EVERY,
        without: Iterable[str] = (),
    ) -> LiveEngine:
        """Open a live engine for the stream of a schema, without Spark, as :meth:`asterism.PatternStream.open`. Rules are
        discovered while it is open, and change between two calls, all at once. Its ``status()`` has those in force.

        :param folder: where the state is kept, and the rule sets unless there is a *store*; *sinks*, *snapshot_every*: as there
        :param outputs: the outputs that calls return. Default: those of *sinks*, or else ``matches``
        :param without: as for :meth:`run`
        :raises PatternProcessorError: rules cannot be discovered, and there are none of an earlier run
        :raises StreamDefinitionError: an argument is invalid, or the stream is a table or a DataFrame
        :raises StateError: the folder has the state of another query, is in use, or cannot be used
        """
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every)
        return self._open(replace(options, outputs=options.outputs or (MATCHES,)), checked_names(without))

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
        matches: dict[str, int] = module_of(*_PROGRESS).matches_by_processor(progress)
        return matches

    @staticmethod
    def discovery(progress: StreamingQueryProgress) -> str:
        """The status of the discovery in a micro-batch, from the query's progress: ``initializing``, ``valid``, or
        ``interrupted`` with the error of the last poll.
        """
        status: str = module_of(*_PROGRESS).discovery(progress)
        return status

    # ------------------------------------------------------------------ sets and operators

    def _location(self, checkpoint: str | None) -> str:
        """The folder for the sets, of a query with an absolute *checkpoint*."""
        if self.store is None and checkpoint is None:
            raise CheckpointRequiredError(
                "the checkpoint is required to find the store of the query", hint="status(checkpoint=...)"
            )
        return f"{checkpoint}/{STORE}" if self.store is None else self.store

    def _current_rules(self, without: frozenset[str]) -> SingleSetStore:
        """The rules that the discoverer currently reads, for a run over a table, of which one must be usable."""
        store = SingleSetStore()
        self._publish(store, without)
        return store

    def _publish(self, store: FolderStore, without: frozenset[str]) -> Coordinator:
        """Put the rules that the discoverer currently reads into a store, of which one must be usable."""
        coordinator = Coordinator(self._operator(store).compiler, store, without, self.lookups)
        coordinator.read_lookups()
        discoverer = self.factory.create_pattern_processor_discoverer()
        try:
            coordinator.on_pattern_processors_updated(discoverer.initial_pattern_processors())
        finally:
            discoverer.close()
        coordinator.expect_some_rule()
        return coordinator

    def _operator(
        self, store: FolderStore, taken: Collection[str] = (), without: frozenset[str] = frozenset()
    ) -> DynamicCepOperator:
        """*without*: the processors to exclude in this run, in addition to the kill list of the store."""
        killed = store.killed() if store.location else {}
        # Later sets contain the kill list themselves.
        last = max(store.numbers(), default=0) if killed else 0
        return DynamicCepOperator(
            self._schema(),
            store,
            replace(
                self.options,
                wants_late=LATE in taken,
                wants_shadow=SHADOW in taken,
                waiting_time=self._waiting_time,
                left_out=dict.fromkeys(killed, last) | dict.fromkeys(without, ALL_SETS),
            ),
        )

    def _checked_operator(
        self, store: FolderStore, taken: Collection[str], without: frozenset[str]
    ) -> DynamicCepOperator:
        """The operator with the outputs *taken*, which it must have."""
        operator = self._operator(store, taken, without)
        expect_outputs(taken, operator.output_schemas)
        return operator


_PROGRESS = "asterism.spark.progress", "rule_progress"
"""The module that reads the progress of queries of Spark."""


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


def rule_options(
    stream: KeyedStream[Any], events: pa.Schema, given: ProcessorOptions
) -> tuple[RuleOptions, tuple[DefinedLookup, ...]]:
    """The options of the operator, and the lookups.

    :param events: the columns of the events
    """
    conditions, functions = given.get("conditions"), given.get("functions")
    registered = checked_conditions({} if conditions is None else conditions)
    lookups = given.get("lookups")
    defined = () if lookups is None else defined_lookups(lookups, events, _source_of)
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


def _source_of(lookup: Lookup) -> LookupSource:
    """The source of a lookup; a DataFrame of Spark is read now."""
    from asterism.discovery.sources.lookup_sources import source_of  # imports SQLAlchemy, which few queries need

    if is_of_spark(lookup.source) and hasattr(lookup.source, "toArrow"):
        lookup = replace(lookup, source=lookup.source.limit(MAX_ROWS + 1).toArrow())
    return source_of(lookup)


def check_given(on_error: Any, on_limit: Any) -> None:
    """Check the options of ``CEP.pattern_processors`` for failures.

    :raises StreamDefinitionError: one has another value
    """
    for name, value in (("on_error", on_error), ("on_limit", on_limit)):
        # Check the type first: a comparison of a Column with == or != does not return a Boolean.
        if not isinstance(value, str) or value not in ("fail", "disable"):
            raise StreamDefinitionError(f'{name} must be "fail" or "disable", not {shown(value)}')


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
