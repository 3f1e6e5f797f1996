"""The settings with which a query starts, whoever starts it.

Spark reads them from the session at that moment: the number of stateful tasks, the size of batches for Python, how the files of
a checkpoint are written and compressed. :func:`start` sets them. A streaming DataFrame of an operator has a subclass of Spark's
class, whose ``writeStream`` calls :func:`start`, and whose methods return DataFrames of this subclass (:func:`carrying`). If a
DataFrame has lost the subclass (``groupBy``, a temporary view), and its query has more stateful tasks than key groups, a message
on standard error says what to do.

See docs/decisions/0111.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from asterism.spark.host import versions
from asterism.spark.host.control_source import renamed
from asterism.spark.session.checkpoints import current_checkpoint, restored_batches
from asterism.spark.session.first_batch import show_first_batch
from asterism.spark.session.leases import checked, leased, options_of_source, unprotected
from asterism.spark.session.pipelines import is_pipeline
from asterism.spark.session.progress_listener import observe
from asterism.spark.session.settings import (
    PARTITIONS,
    arrow_batches,
    checkpoint_files,
    hadoop_settings,
    resolved,
    settings,
    state_compression,
    stateful_tasks,
    tasks_of_session,
)

_SECONDS = 0.02
"""Between two checks of a query, which are some calls of the JVM that is preparing the query."""
_STARTS = 3
"""How often a query is started at most."""
_NOT_CONNECTED = "Python worker failed to connect back"
"""In Spark's message if the process of a source did not start in time."""
_CHECKPOINT = "checkpointLocation"
_PLAN_CACHE = "spark.connect.session.planCache.enabled"
_ONE_DAEMON = {"spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false"}
"""The value that Spark takes for a stateful operator in any case. Spark has a daemon for each environment of its workers, so with
the default, those of ``mapInArrow`` would have another one. See docs/decisions/0161.
"""
_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark turns it off in each query with state, and warns of it if it is on when the query starts."""


@dataclass(frozen=True, slots=True)
class QueryTraits:
    """What is known of the operators in the plan of a streaming DataFrame.

    :param key_groups: the largest number of key groups
    :param drains: whether an operator ends its input by itself
    :param timers: whether an operator has timers in processing time, with which a query does not end by itself
    :param operators: how many there are
    :param sources: their control sources, over Spark Connect
    """

    key_groups: int
    drains: bool = False
    timers: bool = False
    operators: int = 1
    sources: tuple[type[versions.DataSource], ...] = ()

    @classmethod
    def of(cls, frames: Iterable[Any]) -> QueryTraits | None:
        """The traits of all *frames* together; None: none of them has any."""
        traits = [frame._asterism_traits for frame in frames if isinstance(frame, _Carrying)]
        if not traits:
            return None
        return cls(
            max(each.key_groups for each in traits),
            any(each.drains for each in traits),
            any(each.timers for each in traits),
            sum(each.operators for each in traits),
            tuple(source for each in traits for source in each.sources),
        )

    def with_operator(
        self, key_groups: int, source: type[versions.DataSource], *, drains: bool, timers: bool
    ) -> QueryTraits:
        """Those of a DataFrame with a further operator."""
        return QueryTraits(
            max(key_groups, self.key_groups),
            drains or self.drains,
            timers or self.timers,
            self.operators + 1,
            (*self.sources, source) if is_remote() else (),
        )


def start(
    spark: SparkSession,
    begin: Callable[[], StreamingQuery],
    *,
    key_groups: int,
    checkpoint: str | None,
    in_parts: bool,
    waiting: Callable[[StreamingQuery], AbstractContextManager[Any]] = nullcontext,
    holding: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> StreamingQuery:
    """Start a query with the settings that suit it, and wait until it has created its sources.

    Spark gives the process of a source in Python ten seconds to start. On a machine that is too busy for that, the query is
    started again, up to two times.

    :param begin: starts it
    :param checkpoint: its checkpoint location, if that is known
    :param in_parts: whether it reads available data in several micro-batches
    :param waiting: makes a context in which to wait
    :param holding: makes the context in which it begins, of :func:`holding_lease`
    :raises CheckpointInUseError: another process runs a query on the checkpoint
    """
    once = partial(_start, spark, begin, key_groups, checkpoint, in_parts=in_parts, waiting=waiting, holding=holding)
    query = once()
    for _ in range(_STARTS - 1):
        if query.isActive or _NOT_CONNECTED not in str(query.exception()) or query.lastProgress is not None:
            break
        sys.stderr.write("asterism: Spark has waited ten seconds for a Python process; the query is started again\n")
        query = once()
    return query


def _start(
    spark: SparkSession,
    begin: Callable[[], StreamingQuery],
    key_groups: int,
    checkpoint: str | None,
    *,
    in_parts: bool,
    waiting: Callable[[StreamingQuery], AbstractContextManager[Any]],
    holding: Callable[[], AbstractContextManager[Any]],
) -> StreamingQuery:
    values = {
        PARTITIONS: str(stateful_tasks(spark, key_groups)),
        **arrow_batches(spark),
        **state_compression(spark),
        **_ONE_DAEMON,
        _ADAPTIVE: "false",
    }
    files = {} if checkpoint is None else checkpoint_files(spark, checkpoint)
    # The sources are created by a thread of the query, which reads these settings from the session later.
    with leased(spark, checkpoint) as keep, settings(spark, {**files, **versions.settings_of_start(in_parts=in_parts)}):
        with settings(spark, values), holding():
            query = begin()
            keep(query)
        with waiting(query):
            while query.isActive and query.status["message"].startswith("Initializing"):
                time.sleep(_SECONDS)
    show_first_batch(query)
    return query


@contextmanager
def holding_lease(spark: SparkSession, traits: QueryTraits | None, checkpoint: str | None) -> Iterator[None]:
    """Inside the block, a query begins whose first control source holds the lease of its checkpoint. Over Spark Connect, the plan
    of a DataFrame is made before its checkpoint is known; the server looks for the source by its name when the query begins.
    """
    lease = {} if checkpoint is None else options_of_source(spark, checkpoint)
    if not lease:
        yield
        return
    sources = () if traits is None else traits.sources
    if not sources:
        sys.stderr.write(unprotected(str(checkpoint), "its DataFrame shows no operator that could hold a lease"))
        yield
        return
    name = sources[0].name()
    spark.dataSource.register(renamed(sources[0], name, lease=lease, hadoop=hadoop_settings(spark)))
    with settings(spark, {_PLAN_CACHE: "false"}):  # it may have the source that was registered before
        yield


# ---------------------------------------------------------------------------------------------------- DataFrames


def carrying(df: DataFrame, traits: QueryTraits | None) -> DataFrame:
    """*df*, whose ``writeStream`` starts queries by :func:`start`."""
    if traits is not None:
        kind: Any = type(df)
        df.__class__ = _subclass(kind)
        df._asterism_traits = traits  # type: ignore[attr-defined] # of the subclass
    return df


def writer_of(df: DataFrame) -> DataStreamWriter:
    """Spark's writer of *df*, for a caller of :func:`start`."""
    writer = df.writeStream
    if isinstance(writer, _Writer):
        kind: Any = type(writer)
        writer.__class__ = kind.__bases__[1]
    return writer


@cache
def _subclass(kind: Any) -> Any:
    if issubclass(kind, _Carrying):
        return kind
    methods = {
        name: _carried(method)
        for name in dir(kind)
        if not name.startswith("_") and inspect.isfunction(method := getattr(kind, name))
    }
    return type(kind.__name__, (_Carrying, kind), {**methods, "__module__": kind.__module__, "__doc__": kind.__doc__})


class _Carrying:
    _asterism_traits: QueryTraits

    @property
    def writeStream(self) -> Any:
        writer = super().writeStream  # type: ignore[misc] # of the other base
        kind: Any = type(writer)
        writer.__class__ = _writer(kind)
        writer._asterism_start = _Start(self._asterism_traits, self.sparkSession)  # type: ignore[attr-defined]
        return writer


def _carried(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        result = method(self, *arguments, **options)
        if isinstance(result, DataFrame):
            return carrying(result, QueryTraits.of([self, *arguments, *options.values()]))
        return result

    return call


# ---------------------------------------------------------------------------------------------------- writers


@dataclass(slots=True)
class _Start:
    """What a ``DataStreamWriter`` was told that matters to the start of its query."""

    traits: QueryTraits
    spark: SparkSession
    checkpoint: str | None = None
    available_now: bool = False

    def __call__(self, begin: Callable[[], StreamingQuery]) -> StreamingQuery:
        checkpoint = self.checkpoint = None if self.checkpoint is None else resolved(self.spark, self.checkpoint)
        return start(
            self.spark,
            begin,
            key_groups=self.traits.key_groups,
            checkpoint=checkpoint,
            in_parts=self.available_now and not self.traits.drains,
            holding=partial(holding_lease, self.spark, self.traits, checkpoint),
        )


@cache
def _writer(kind: Any) -> Any:
    return type(kind.__name__, (_Writer, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class _Writer:
    """The methods of a ``DataStreamWriter`` that matter to the start of its query."""

    _asterism_start: _Start

    def option(self, key: str, value: Any) -> Any:
        if key.lower() == _CHECKPOINT.lower() and value is not None:
            self._asterism_start.checkpoint = str(value)
        return super().option(key, value)  # type: ignore[misc] # of the other base

    def options(self, **options: Any) -> Any:
        for key, value in options.items():
            self.option(key, value)
        return self

    def trigger(self, **trigger: Any) -> Any:
        self._asterism_start.available_now = bool(trigger.get("availableNow"))
        return super().trigger(**trigger)  # type: ignore[misc]

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> Any:
        begun = self._asterism_start

        def write(rows: DataFrame, batch_id: int) -> None:
            checked(func, begun.checkpoint)(rows, batch_id)

        return super().foreachBatch(func if is_remote() or not callable(func) else write)  # type: ignore[misc]

    def start(self, *arguments: Any, **options: Any) -> Any:
        return self._started("start", arguments, options)

    def toTable(self, *arguments: Any, **options: Any) -> Any:
        return self._started("toTable", arguments, options)

    def _started(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if _CHECKPOINT in options:
            self.option(_CHECKPOINT, options.pop(_CHECKPOINT))
        location, spark = self._asterism_start.checkpoint, self._asterism_start.spark
        if location is not None:
            current = current_checkpoint(spark, resolved(spark, location))
            restored_batches(spark, current)  # an incomplete checkpoint is refused
            if current != resolved(spark, location):
                self.option(_CHECKPOINT, current)
        begin = getattr(super(), method)
        return self._asterism_start(lambda: begin(*arguments, **options))


# ---------------------------------------------------------------------------------------------------- queries started otherwise


class _TooManyTasks:
    """Reports a query with more stateful tasks than key groups, once for each run."""

    def __init__(self) -> None:
        self.runs: set[str] = set()

    def add(self, progress: StreamingQueryProgress) -> None:
        run = str(progress.runId)
        if run in self.runs:
            return
        self.runs.add(run)
        offsets = [versions.offset_of(source.endOffset) or {} for source in progress.sources]
        key_groups = max((offset["keyGroups"] for offset in offsets if "definition" in offset), default=None)
        tasks = max((operator.numShufflePartitions for operator in progress.stateOperators), default=0)
        if key_groups is not None and tasks > key_groups:
            sys.stderr.write(_too_many(progress.name or str(progress.id), tasks, key_groups))

    def idle(self, run: str, time: str) -> None:
        """Nothing to do."""

    def end(self, run: str, error: str | None) -> None:
        self.runs.discard(run)


def _too_many(name: str, tasks: int, key_groups: int) -> str:
    return (
        f"asterism: the query {name} has {tasks} stateful tasks for {key_groups} key groups, which takes seconds per "
        f"micro-batch. Start it with asterism.run(df, sink, checkpoint=...), or on a new checkpoint after "
        f'spark.conf.set("{PARTITIONS}", {key_groups}).\n'
    )


def _too_many_in_pipeline(tasks: int, key_groups: int) -> str:
    return (
        f"asterism: {tasks} stateful tasks for {key_groups} key groups take seconds per micro-batch. Unless the table sets "
        f'spark_conf={{"{PARTITIONS}": "{key_groups}"}}, set {PARTITIONS} in the configuration of the pipeline.\n'
    )


_observed: WeakSet[SparkSession] = WeakSet()


def observe_tasks(spark: SparkSession, key_groups: int) -> None:
    """Report queries with too many stateful tasks, if the session would start such queries."""
    if is_pipeline(spark):  # its queries run when this process has ended
        if (tasks := tasks_of_session(spark)) > key_groups:
            sys.stderr.write(_too_many_in_pipeline(tasks, key_groups))
    elif tasks_of_session(spark) > key_groups and spark not in _observed:
        _observed.add(spark)
        observe(spark, _TooManyTasks())
