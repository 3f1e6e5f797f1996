"""Listens to the progress of queries, and adds up the counts of pattern processors, in the process that started the query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from asterism.rules.rule_counts import FAMILY, RuleCounts
from asterism.rules.set_store import FolderStore
from asterism.spark.stateful import observed, operator_observations

SECONDS_TO_END = 10.0
"""How long a run waits for the last progress of its query."""
_log = logging.getLogger("asterism.spark")


def groups_of(row: Mapping[str, Any]) -> list[Mapping[str, int]]:
    """The counts of processors in an observation, one object for each key group."""
    if FAMILY not in row or not isinstance(row[FAMILY], str):  # a counter of a user may have this name
        return []
    groups: list[Mapping[str, int]] = json.loads(row[FAMILY])
    return groups


def counts_of(progress: StreamingQueryProgress) -> RuleCounts:
    """The counts of one micro-batch."""
    counts = RuleCounts()
    counts.add("", progress.batchId, [group for row in observed(progress) for group in groups_of(row)])
    return counts


class Observer(Protocol):
    """What a listener passes the progress of queries to. Calls come from one thread, in order."""

    def add(self, progress: StreamingQueryProgress) -> None:
        """A query has completed a micro-batch."""

    def idle(self, run: str, time: str) -> None:
        """A query has found no data."""

    def end(self, run: str, error: str | None) -> None:
        """A query has ended."""


class CountedQuery:
    """Adds up the counts of a query into its store. A failure is logged once, and the query continues.

    :param run: the run of the query; None: any query that has the observation
    """

    def __init__(self, run: str | None, observation: str, store: FolderStore) -> None:
        self.run, self.observation, self.store = run, observation, store
        self.lock = threading.RLock()  # micro-batches are counted in order
        self.ended = threading.Event()
        self._counts: RuleCounts | None = None
        self._has_failed = False

    def wait(self) -> None:
        """Wait for the last progress of a query that has ended."""
        self.ended.wait(SECONDS_TO_END)

    def idle(self, run: str, time: str) -> None:
        """Nothing to do."""

    def end(self, run: str, error: str | None) -> None:
        if run == self.run:
            self.ended.set()

    def counts_of(self, query: str) -> RuleCounts | None:
        """The counts of all runs of a query, given its id; None: it is another one."""
        with self.lock:
            return deepcopy(self._counts) if self._counts is not None and self._counts.query == query else None

    def add(self, progress: StreamingQueryProgress) -> None:
        row = operator_observations(progress).get(self.observation)
        if row is None or self.run not in (None, str(progress.runId)):
            return
        try:
            with self.lock:
                if self._counts is None:
                    if not self.store.exists():  # it is on another machine
                        raise FileNotFoundError(f"{self.store.location} does not exist")
                    self._counts = self.store.counts()
                if self._counts.add(str(progress.id), progress.batchId, groups_of(row)):
                    self.store.write_counts(self._counts)
        except Exception as error:
            if not self._has_failed:
                _log.warning("the counts of pattern processors cannot be written: %s", error)
            self._has_failed = True


class ProgressListener(StreamingQueryListener):
    """Passes the progress of queries to observers.

    There is one for each session, because Spark converts the progress of every query once for every listener.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for observer in list(self.observers):
            observer.add(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        for observer in list(self.observers):
            observer.idle(str(event.runId), event.timestamp)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for observer in list(self.observers):
            observer.end(str(event.runId), event.exception)


_listeners: WeakKeyDictionary[SparkSession, ProgressListener] = WeakKeyDictionary()
_lock = threading.Lock()


def count(spark: SparkSession, query: StreamingQuery | None, observation: str, store: FolderStore) -> CountedQuery:
    """Write the counts of a query into its store, from its first micro-batch.

    :param query: None: any query that has the observation, which a user starts, until the session ends
    """
    counted = CountedQuery(None if query is None else str(query.runId), observation, store)
    with counted.lock:
        observe(spark, counted)
        if query is None:
            return counted
        # A query may end, or complete a micro-batch, before it is counted.
        for progress in query.recentProgress:
            counted.add(progress)
    if not query.isActive:
        counted.ended.set()
    # A listener cannot be removed in its own callback on Spark Connect.
    threading.Thread(target=_remove, args=[spark, counted], name="asterism counts", daemon=True).start()
    return counted


def _remove(spark: SparkSession, counted: CountedQuery) -> None:
    counted.ended.wait()
    forget(spark, counted)


def observe(spark: SparkSession, observer: Observer) -> None:
    """Pass the progress of all queries of a session to *observer*."""
    with _lock:
        if spark not in _listeners:
            listener = ProgressListener()
            spark.streams.addListener(listener)
            _listeners[spark] = listener
        _listeners[spark].observers.append(observer)


def forget(spark: SparkSession, observer: Observer) -> None:
    """The opposite of :func:`observe`. Not to be called by the observer itself."""
    with _lock:
        if spark not in _listeners or observer not in _listeners[spark].observers:
            return
        _listeners[spark].observers.remove(observer)
        if not _listeners[spark].observers:
            listener = _listeners.pop(spark)
            with suppress(Exception):  # the session may have ended
                spark.streams.removeListener(listener)


def counts_of_query(query: str) -> RuleCounts | None:
    """The counts of the rules of a query in all of its runs, given its id; None: this process does not count them."""
    with _lock:
        observers = [observer for listener in _listeners.values() for observer in listener.observers]
    found = [counts for one in observers if isinstance(one, CountedQuery) and (counts := one.counts_of(query))]
    return max(found, key=lambda counts: counts.batch, default=None)
