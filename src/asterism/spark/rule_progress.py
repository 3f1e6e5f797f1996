"""Adds up the counts of pattern processors from the progress of a query, in the process that started the query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from asterism.rules.rule_counts import FAMILY, RuleCounts
from asterism.rules.set_store import FolderStore
from asterism.spark.stateful import observed

SECONDS_TO_END = 10.0
"""How long a run waits for the last progress of its query."""
_log = logging.getLogger("asterism.spark")


def groups_of(row: Any) -> list[Mapping[str, int]]:
    """The counts of processors in an observation, one object for each key group."""
    groups: list[Mapping[str, int]] = json.loads(row[FAMILY]) if FAMILY in row else []
    return groups


def counts_of(progress: StreamingQueryProgress) -> RuleCounts:
    """The counts of one micro-batch."""
    counts = RuleCounts()
    counts.add("", progress.batchId, [group for row in observed(progress) for group in groups_of(row)])
    return counts


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

    def add(self, progress: StreamingQueryProgress) -> None:
        row = progress.observedMetrics.get(self.observation)
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


class CountsListener(StreamingQueryListener):
    """Passes the progress of queries to those that are counted.

    There is one for each session, because Spark converts the progress of every query once for every listener.
    """

    def __init__(self) -> None:
        self.queries: list[CountedQuery] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for query in list(self.queries):
            query.add(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for query in list(self.queries):
            if query.run == str(event.runId):
                query.ended.set()


_listeners: WeakKeyDictionary[SparkSession, CountsListener] = WeakKeyDictionary()
_lock = threading.Lock()


def count(spark: SparkSession, query: StreamingQuery | None, observation: str, store: FolderStore) -> CountedQuery:
    """Write the counts of a query into its store, from its first micro-batch.

    :param query: None: any query that has the observation, which a user starts, until the session ends
    """
    counted = CountedQuery(None if query is None else str(query.runId), observation, store)
    with counted.lock:
        with _lock:
            if spark not in _listeners:
                _listeners[spark] = CountsListener()
                spark.streams.addListener(_listeners[spark])
            _listeners[spark].queries.append(counted)
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
    with _lock:
        _listeners[spark].queries.remove(counted)
        if not _listeners[spark].queries:
            listener = _listeners.pop(spark)
            with suppress(Exception):  # the session may have ended
                spark.streams.removeListener(listener)
