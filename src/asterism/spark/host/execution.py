"""Runs queries: sinks, checkpoints, drain, and the required configuration of the session."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from asterism.columns.internal import internal
from asterism.errors import CheckpointRequiredError, StateError, StreamDefinitionError
from asterism.expressions.computed_columns import computed_sql
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.operator import EVENTS
from asterism.operators.sink_functions import check_columns_of_sink, sink_of_output
from asterism.spark.host import end_of_input as signals
from asterism.spark.host import versions
from asterism.spark.host.chaining import ends_by_itself as ends_upstream
from asterism.spark.host.chaining import has_upstream
from asterism.spark.host.evolution import check_checkpoint_of, control_offsets
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.outer_measures import OuterProjection, Projections
from asterism.spark.host.query_settings import QueryTraits, holding_lease, start, writer_of
from asterism.spark.host.stateful import OBSERVATION, Seam, Use, output_of, unique_observation, unpacked
from asterism.spark.session.checkpoints import begins_with_history, current_checkpoint, restored_batches
from asterism.spark.session.history import StoredHistory, results_of
from asterism.spark.session.leases import checked, leased_here, options_of_source
from asterism.spark.session.settings import (
    DEFAULT_KEY_GROUPS,
    EMPTY_BATCHES,
    new_key_groups,
    resolved,
    settings,
)
from asterism.spark.session.unwrapping import explained, unwrapping
from asterism.streams.data_streams import Stream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import QueryHistory, RunOptions

Sink = Callable[[DataFrame, int], None]
_log = logging.getLogger("asterism.spark")
_SECONDS = 0.005
"""Between two checks of a query, and of a question of its control source."""


def check_checkpoint(checkpoint: str | None) -> None:
    if checkpoint is None:
        raise CheckpointRequiredError("a stream needs a checkpoint location", hint="run(..., checkpoint=path)")


class OperatorOutputs:
    """The outputs of an operator: each as a DataFrame, or several in one query."""

    stream: KeyedStream
    key_groups: int | None
    drain: bool

    def _connected(self) -> Mapping[str, Stream]:
        """The streams that the inputs of the operator are connected to: the only one, unless a subclass has several."""
        return {EVENTS: self.stream}

    def _run_options(
        self, sinks: Any, checkpoint: Any, drain: Any, trigger: Any, name: Any, from_savepoint: Any
    ) -> RunOptions:
        """The arguments of ``run``; see :meth:`RunOptions.checked`."""
        return RunOptions.checked(
            sinks,
            checkpoint,
            drain,
            trigger,
            name,
            with_trigger=self.drain,
            key_groups=self.key_groups,
            from_savepoint=from_savepoint,
        )

    def _as_dataframe(
        self,
        operator: KeyGroupOperator,
        results: Callable[[Use], DataFrame],
        output: str,
        takes: int | None = 0,
        projection: OuterProjection | None = None,
    ) -> DataFrame:
        """The rows of one output; *takes* and *projection* as for :func:`asterism.spark.host.stateful.output_of`."""
        groups = self.key_groups or DEFAULT_KEY_GROUPS
        use = Use(self.drain, final=False, output=output, observation=unique_observation(), key_groups=groups)
        schema = operator.output_schemas[output]
        rows = output_of(results(use), output, schema, self._connected().values(), use, takes, projection)
        parts = _parts_of(operator, [] if projection is None else [projection])
        return rows if rows.isStreaming or not parts else unwrapping(rows, parts)

    def _write(
        self,
        operator: KeyGroupOperator,
        results: Callable[[Use], DataFrame],
        sinks: Mapping[str, Sink],
        options: RunOptions,
        started: Callable[[StreamingQuery, str, int], object] | None = None,
        projections: Projections | None = None,
    ) -> StreamingQuery | None:
        """Write the outputs of *results* to their *sinks*. They are computed only once. Errors of this library are raised as
        such.

        :param operator: the operator, which is compared with the state of the checkpoint
        :param started: called with each query that was started, the name of its observation, and the number of micro-batches
            before the first one of its checkpoint
        :param projections: the projections after the operator, by output
        """
        with explained(_parts_of(operator, (projections or {}).values())):
            return self._written(operator, results, sinks, options, started, projections or {})

    def _written(
        self,
        operator: KeyGroupOperator,
        results: Callable[[Use], DataFrame],
        sinks: Mapping[str, Sink],
        options: RunOptions,
        started: Callable[[StreamingQuery, str, int], object] | None,
        after: Projections,
    ) -> StreamingQuery | None:
        schemas = operator.output_schemas

        def rows_of(output: str, rows: DataFrame) -> DataFrame:
            written = unpacked(rows, output, schemas[output])
            return after[output].of(written) if output in after else written

        sinks = {output: sink_of_output(sink, output) for output, sink in sinks.items()}
        destinations = [(sink, partial(rows_of, output)) for output, sink in sinks.items()]
        for output, sink in sinks.items():
            check_columns_of_sink(sink, [*after[output].columns] if output in after else schemas[output].names)
        inputs = {name: stream.df for name, stream in self._connected().items()}
        if not any(df.isStreaming for df in inputs.values()):
            options.check_of_table()
            use = Use(drain=False, key_groups=options.key_groups or DEFAULT_KEY_GROUPS)
            _writing(destinations)(results(use), 0)
            return None
        check_checkpoint(options.checkpoint)
        return _Queries(results, destinations, options, inputs, operator, operator.processing_time, started).run()


def _parts_of(operator: KeyGroupOperator, projections: Iterable[OuterProjection]) -> list[str]:
    """The SQL that Spark computes for the expressions of an operator."""
    schemas = [getattr(operator, "schema", None), *(spec.schema for spec in operator.inputs.values())]
    return computed_parts([schema for schema in schemas if isinstance(schema, pa.Schema)], projections)


_INNER = re.compile(f"`?{internal('')}\\w+`?")
"""The values that the operator computes, in the SQL of a projection after it."""


def computed_parts(schemas: Iterable[pa.Schema], projections: Iterable[OuterProjection]) -> list[str]:
    """The SQL that Spark computes, of the columns before an operator and after it."""
    parts = [sql for schema in schemas for sql in sorted(computed_sql(schema))]
    parts += [sql for projection in projections for sql in projection.columns.values() if sql is not None]
    return list(dict.fromkeys(_INNER.sub("...", part) for part in parts))


@explained(())
def run_frame(df: DataFrame, sinks: Sequence[Sink], options: RunOptions) -> StreamingQuery | None:
    """Write the rows of a streaming DataFrame with operators to *sinks*, one after the other.

    :param options: without a number of key groups
    """
    for sink in sinks:
        check_columns_of_sink(sink, df.columns)
    destinations = [(sink, _unchanged) for sink in sinks]
    check_checkpoint(options.checkpoint)
    traits = QueryTraits.of([df]) or QueryTraits(DEFAULT_KEY_GROUPS)
    options = replace(options, key_groups=traits.key_groups)
    return _Queries(lambda _: df, destinations, options, {EVENTS: df}, None, traits.timers, None).run()


Destination = tuple[Sink, Callable[[DataFrame], DataFrame]]
"""A sink, and the function that makes its rows of the results of an operator."""


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows


def _writing(destinations: Sequence[Destination]) -> Sink:
    """A sink that passes the results of a micro-batch to its *destinations*."""

    def write(rows: DataFrame, batch_id: int) -> None:
        for sink, rows_of_sink in destinations:
            sink(rows_of_sink(rows), batch_id)

    def write_to_several(rows: DataFrame, batch_id: int) -> None:
        rows.persist()  # otherwise they would be computed for each sink
        try:
            write(rows, batch_id)
        finally:
            rows.unpersist()

    return write if len(destinations) == 1 else write_to_several


@contextmanager
def _stopped_if_interrupted(query: StreamingQuery) -> Iterator[None]:
    """Inside the block, the caller waits for a query that nobody else refers to yet."""
    try:
        yield
    except KeyboardInterrupt:
        query.stop()
        _log.warning(
            "the query %s was stopped, because run() was interrupted; its checkpoint can be continued", query.id
        )
        raise


@dataclass(frozen=True)
class _Queries:
    """The queries of a run: it may need several, one after the other, on its checkpoint.

    :param results: makes RESULTS, or, if *operator* is None, the rows of the sinks
    :param inputs: the DataFrames by input
    :param operator: the last operator; None: all operators are in *inputs*
    :param timers: whether an operator has timers in processing time
    """

    results: Callable[[Use], DataFrame]
    destinations: Sequence[Destination]
    options: RunOptions
    inputs: Mapping[str, DataFrame]
    operator: KeyGroupOperator | None
    timers: bool
    started: Callable[[StreamingQuery, str, int], object] | None

    def run(self) -> StreamingQuery | None:
        """Start the query, and wait for its end if it has no trigger."""
        history = self.options.history
        if history is not None:
            self._check_has(history)
            if history.into is not None:
                self._bootstrap(history.into)
                return None
        checkpoint = current_checkpoint(self.spark, resolved(self.spark, str(self.options.checkpoint)))
        return replace(self, options=replace(self.options, checkpoint=checkpoint))._after_history()._run()

    def _check_has(self, history: QueryHistory) -> None:
        """:raises StreamDefinitionError: the query cannot have this history"""
        if any(map(has_upstream, self.inputs.values())):
            raise StreamDefinitionError(
                "a query of several operators, one behind the other, cannot have a history",
                "The first operator would have to read it before the last one can.",
                "write the results of the first operator to a table, which has a history of its own; see docs/savepoints.md",
            )
        history.tables([name for name, df in self.inputs.items() if df.isStreaming])

    def _after_history(self) -> _Queries:
        """Read the history, if there is one and the checkpoint is new."""
        history = self.options.history
        if history is None:
            return self
        checkpoint = str(self.options.checkpoint)
        stored = StoredHistory.of(self.spark, checkpoint)
        if stored.is_over:
            stored.check_begun()
            stored.remove()
            return self
        key_groups = stored.key_groups or self.options.key_groups or new_key_groups(self.spark)
        use = Use(drain=False, key_groups=key_groups, seam=self.seam, reads_history=True)
        with leased_here(self.spark, checkpoint):
            if history.pages is not None:
                stored.prepare_from_savepoint(key_groups, history)
            else:
                stored.prepare(key_groups, history, lambda: self.results(use), _writing(self.destinations))
        return replace(self, options=replace(self.options, key_groups=key_groups))

    @property
    def seam(self) -> Seam | None:
        history = self.options.history
        if history is None:
            return None
        return Seam(history.tables([name for name, df in self.inputs.items() if df.isStreaming]), history.until)

    def initial(self, checkpoint: str, key_groups: int) -> DataFrame | None:
        """The state after the history, of a checkpoint without a complete micro-batch."""
        if self.options.history is None:
            return None
        stored = StoredHistory.of(self.spark, checkpoint)
        if stored.is_over:
            return None
        pages = self.options.history.pages
        return stored.state if pages is None else pages(key_groups)

    def _bootstrap(self, into: Callable[[DataFrame, int, str], DataFrame]) -> None:
        """Pass on the state after the history, and its results, without a query."""
        key_groups = self.options.key_groups or new_key_groups(self.spark)
        if self.options.history is not None and self.options.history.begin is not None:
            self.options.history.begin()
        use = Use(drain=False, key_groups=key_groups, seam=self.seam, reads_history=True)
        time_mode = PROCESSING_TIME if self.timers else NO_TIME
        _writing(self.destinations)(results_of(into(self.results(use), key_groups, time_mode)), 0)

    def _run(self) -> StreamingQuery | None:
        options = self.options
        if options.trigger is not None:
            if options.drain:
                return unwrapping(_until_its_end(partial(self.start, self.trigger_of_end, ending=True)), self.parts)
            return unwrapping(self.start(options.trigger, ending=False), self.parts)
        if self.timers and not options.drain:
            raise StreamDefinitionError(
                "a stream in processing time that is not drained does not end by itself",
                hint='drain=True, or a trigger: run(..., trigger={"processingTime": "1 second"})',
            )
        # With timers in processing time, Spark runs empty micro-batches forever.
        has_ended = not self.timers and _process_available_data(self)
        if options.drain and not has_ended:
            _end_input(self)
        return None

    @property
    def spark(self) -> SparkSession:
        return next(iter(self.inputs.values())).sparkSession

    @property
    def parts(self) -> list[str]:
        """What Spark computes for the expressions of the operator."""
        return [] if self.operator is None else _parts_of(self.operator, [])

    @property
    def trigger_of_end(self) -> Mapping[str, Any]:
        """The trigger of a query that ends its input in a single micro-batch."""
        if self.operator is not None:
            return self.options.trigger or _AVAILABLE_NOW
        # Then Spark asks all sources for all data at once, also those that can divide it.
        return {"once": True}

    @property
    def follow(self) -> bool:
        """Whether there are upstream operators."""
        return self.operator is None or any(map(has_upstream, self.inputs.values()))

    def start(self, trigger: Mapping[str, Any], *, ending: bool, place: str | None = None) -> StreamingQuery:
        """Start a query.

        :param ending: whether it ends its input at once
        :param place: of the :class:`asterism.spark.host.end_of_input.Drain` that ends it after the last data
        """
        checkpoint = str(self.options.checkpoint)
        batches = restored_batches(self.spark, checkpoint)
        if batches and self.options.history is None and begins_with_history(self.spark, checkpoint):
            StoredHistory.of(self.spark, checkpoint).check_unread()
        offsets = control_offsets(self.spark, checkpoint)
        former = [int(offset["keyGroups"]) for offset in offsets]
        key_groups = self.options.key_groups or (former[-1] if former else new_key_groups(self.spark))
        if self.operator is not None:
            check_checkpoint_of(self.spark, checkpoint, offsets, self.operator, key_groups)
        use = Use(
            ending,
            key_groups=key_groups,
            observation=unique_observation() if self.follow else OBSERVATION,
            run=place,
            last_offset=offsets[0] if len(offsets) == 1 else None,
            checkpoint=checkpoint if len(offsets) == 1 else None,
            seam=self.seam,
            initial=self.initial(checkpoint, key_groups),
            lease=options_of_source(self.spark, checkpoint),
        )
        try:
            return self._start(use, trigger, batches)
        except AnalysisException as error:
            if error.getCondition() != "DUPLICATED_METRICS_NAME":
                raise
        # There is an upstream operator, whose mark was lost.
        return self._start(replace(use, observation=unique_observation()), trigger, batches)

    def _holding_lease(self) -> AbstractContextManager[Any]:
        """The source of the last operator holds the lease of a query that this has made the plan of."""
        if self.operator is not None:
            return nullcontext()
        return holding_lease(self.spark, QueryTraits.of(self.inputs.values()), self.options.checkpoint)

    def sent_messages(self) -> dict[int, int]:
        """The number of messages that the control source of each operator has sent, of a checkpoint."""
        offsets = control_offsets(self.spark, str(self.options.checkpoint))
        return {number: offset["messages"] for number, offset in enumerate(offsets)}

    def _start(self, use: Use, trigger: Mapping[str, Any], batches: int) -> StreamingQuery:
        """:param batches: how many micro-batches the sinks have seen before the first of the checkpoint"""
        rows, sink = self.results(use), _writing(self.destinations)
        if len(self.destinations) == 1:
            # In the plan of the query, Spark analyzes this once, and not in each micro-batch. See docs/decisions/0186.
            sink, rows_of_sink = self.destinations[0]
            rows = rows_of_sink(rows)
        write = sink if not batches else lambda rows, batch_id: sink(rows, batches + batch_id)
        writer = writer_of(rows).foreachBatch(checked(write, self.options.checkpoint))
        writer = writer.option("checkpointLocation", self.options.checkpoint).trigger(**trigger)
        if self.options.name is not None:
            writer = writer.queryName(self.options.name)
        if not use.drain:
            versions.wait_for_ends()
        in_parts = "availableNow" in trigger and not use.drain and not any(map(ends_upstream, self.inputs.values()))
        query = start(
            self.spark,
            writer.start,
            key_groups=use.key_groups,
            checkpoint=str(self.options.checkpoint),
            in_parts=in_parts,
            waiting=_stopped_if_interrupted,
            holding=self._holding_lease,
        )
        if self.started is not None:
            self.started(query, use.observation, batches)
        return query


_AVAILABLE_NOW = {"availableNow": True}


def _process_available_data(queries: _Queries) -> bool:
    """Process all available data, and return whether the input was also ended, if the run drains it."""
    drain = queries.options.drain
    # The empty micro-batch with the last watermark is redundant for a query that is drained afterwards.
    empty = {EMPTY_BATCHES: "false"} if drain else {}
    with signals.Drain() as end:
        with settings(queries.spark, empty):
            answers = drain and not queries.follow and versions.PASSES_START
            query = queries.start(_AVAILABLE_NOW, ending=False, place=end.place if answers else None)
        with _ending_after_last_data(query, end), _stopped_if_interrupted(query):
            query.awaitTermination()
    if not drain:
        return False
    # An upstream operator may have ended its input independently; only the end of all of them is that of the query.
    has_ended = _all_end(_ends(query.lastProgress))
    if not has_ended and len(_operators(query)) > 1 and not signals.is_seen():
        raise _not_reached("The input was not ended: the state is that of the last micro-batch.")
    return has_ended


def _end_input(queries: _Queries) -> None:
    """End the input, after the available data, in a single micro-batch.

    :raises StateError: operators before the last one were not reached
    """
    with signals.ending():
        for _ in range(2):  # the only micro-batch of the first query may be one that had failed before
            before = queries.sent_messages()
            query = queries.start(queries.trigger_of_end, ending=True)
            with _stopped_if_interrupted(query):
                query.awaitTermination()
            operators = _operators(query)
            if query.lastProgress is None:  # with numRecentProgressUpdates=1, Spark keeps none
                operators = {n: sent > before.get(n, 0) for n, sent in queries.sent_messages().items()}
            if _all_end(operators) or (queries.operator is None and not operators):  # there may be none in a DataFrame
                return
    if queries.operator is None:
        raise _not_reached("The operators have not ended their input.")
    raise _not_reached("The last operator has ended its input; those before it have not.")


def _until_its_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends its input, and return it. The signal for its upstream operators is set while it runs."""
    with ExitStack() as stack:
        stack.enter_context(signals.ending())
        query = start()
        signal = stack.pop_all()

    def wait() -> None:
        with signal, suppress(Exception):  # the owner of the query gets its exception
            query.awaitTermination()

    threading.Thread(target=wait, name="asterism end of input", daemon=True).start()
    return query


@contextmanager
def _ending_after_last_data(query: StreamingQuery, end: signals.Drain) -> Iterator[None]:
    """Inside the block, a thread informs the control source of a query when its other sources are exhausted. The block can thus
    wait for the query with a single call, which matters on Spark Connect, where each call is a remote one.
    """
    ended = threading.Event()

    def answer() -> None:
        with closing(end), suppress(Exception):  # the owner of the query gets its exception
            _answer(query, end, ended)

    thread = threading.Thread(target=answer, name="asterism end of input", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _answer(query: StreamingQuery, end: signals.Drain, ended: threading.Event) -> None:
    """Answer the control source until the query has *ended*. Return earlier if there are upstream operators, whose control
    sources this does not reach, or if the session keeps no progress of queries.
    """
    while not ended.wait(_SECONDS):
        number = end.asked()
        if number is None:
            continue
        progress = query.lastProgress
        if progress is None:
            return
        sources = [(source, versions.offset_of(source.endOffset) or {}) for source in progress.sources]
        control = [offset for _, offset in sources if "definition" in offset]
        if len(control) > 1:
            return
        if control and control[0].get("starts") == number:
            others = [source for source, offset in sources if "definition" not in offset]
            end.answer(number, exhausted=all(source.startOffset == source.endOffset for source in others))


def _not_reached(what: str) -> StateError:
    return StateError(
        "the end of input cannot be passed to the upstream operators of this stream",
        f"It is signalled in a folder of this process, which Spark's driver cannot read.\n{what}",
        "run it on the machine of Spark's driver; or use drain=False here, and drain=True for each operator in a last run",
    )


def _operators(query: StreamingQuery) -> dict[int, bool]:
    """Whether the control source of each operator of a query has sent the end of input, by the index of the source."""
    ended: dict[int, bool] = {}
    for progress in query.recentProgress:
        for place, ends in _ends(progress).items():
            ended[place] = ended.get(place, False) or ends
    return ended


def _ends(progress: StreamingQueryProgress | None) -> dict[int, bool]:
    """Whether the control source of each operator has sent the end of input in this micro-batch."""
    ended = {}
    for place, source in enumerate(progress.sources if progress is not None else ()):
        start, end = (versions.offset_of(offset) or {} for offset in (source.startOffset, source.endOffset))
        if "definition" in end:
            ended[place] = end["messages"] > start.get("messages", 0)
    return ended


def _all_end(operators: Mapping[int, bool]) -> bool:
    return bool(operators) and all(operators.values())
