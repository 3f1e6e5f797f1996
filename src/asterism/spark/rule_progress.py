"""Adds up the counts of pattern processors from the progress of a query, in the process that started the query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

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


class CountsListener(StreamingQueryListener):
    """Writes the counts of one query into its store. A failure is logged once, and the query continues.

    :param query: None: any query that has the observation, which a user starts, until the session ends
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery | None, observation: str, store: FolderStore) -> None:
        self.observation, self.store = observation, store
        self.run = None if query is None else str(query.runId)
        self._counts: RuleCounts | None = None
        self._ended = threading.Event()
        self._has_failed = False
        self._lock = threading.RLock()
        with self._lock:  # micro-batches are counted in order
            spark.streams.addListener(self)
            if query is None:
                return
            # A query may end, or complete a micro-batch, before the listener is added.
            for progress in query.recentProgress:
                self.add(progress)
        if not query.isActive:
            self._ended.set()
        # A listener cannot be removed in its own callback on Spark Connect.
        threading.Thread(target=self._remove, args=[spark], name="asterism counts", daemon=True).start()

    def wait(self) -> None:
        """Wait for the last progress of a query that has ended."""
        self._ended.wait(SECONDS_TO_END)

    def _remove(self, spark: SparkSession) -> None:
        self._ended.wait()
        with suppress(Exception):  # the session may have ended
            spark.streams.removeListener(self)

    def add(self, progress: StreamingQueryProgress) -> None:
        row = progress.observedMetrics.get(self.observation)
        if row is None:
            return
        try:
            with self._lock:
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

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if self.run in (None, str(event.progress.runId)):
            self.add(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if self.run == str(event.runId):
            self._ended.set()
