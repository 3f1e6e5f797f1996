"""Adds up the counts of pattern processors from the progress of a query, in the process that started the query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from asterism.rules.sets.discovery_status import INITIALIZING
from asterism.rules.sets.rule_counts import FAMILY, MAX_PAST, RuleCounts
from asterism.rules.sets.set_store import FolderStore
from asterism.spark.host.stateful import operator_observations
from asterism.spark.host.versions import offset_of
from asterism.spark.session.progress_listener import forget, observe, observers

SECONDS_TO_END = 10.0
"""How long a run waits for the last progress of its query."""
_log = logging.getLogger("asterism.spark")


def groups_of(row: Mapping[str, Any]) -> list[Mapping[str, int]]:
    """The counts of processors in an observation, one object for each key group."""
    if FAMILY not in row or not isinstance(row[FAMILY], str):  # a counter of a user may have this name
        return []
    groups: list[Mapping[str, int]] = json.loads(row[FAMILY])
    return groups


def groups_in(progress: StreamingQueryProgress) -> list[Mapping[str, int]]:
    """The counts of processors in a micro-batch, one object for each key group and operator."""
    return [group for row in operator_observations(progress).values() for group in groups_of(row)]


def counts_of(progress: StreamingQueryProgress) -> RuleCounts:
    """The counts of one micro-batch."""
    counts = RuleCounts()
    counts.add("", progress.batchId, groups_in(progress))
    return counts


class CountedQuery:
    """Adds up the counts of a query into its store. A failure is logged once, and the query continues.

    :param run: the run of the query; None: any query that has the observation
    :param batches: how many micro-batches the query had before the first one of its checkpoint, which was made from a savepoint
    """

    def __init__(self, run: str | None, observation: str, store: FolderStore, batches: int = 0) -> None:
        self.run, self.observation, self.store, self.batches = run, observation, store, batches
        self.lock = threading.RLock()  # micro-batches are counted in order
        self.ended = threading.Event()
        self._counts: RuleCounts | None = None
        self._forget_at = 2 * MAX_PAST
        """The number of versions at which those that are not in use are forgotten; finding out which are takes long."""
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
        """The counts of all runs of the query with this id; None: this object counts another query."""
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
                if self._counts.add(str(progress.id), self.batches + progress.batchId, groups_of(row)):
                    self._forget(self._counts)
                    self.store.write_counts(self._counts)
        except Exception as error:
            if not self._has_failed:
                _log.warning("the counts of pattern processors of query %s cannot be written: %s", progress.id, error)
            self._has_failed = True

    def _forget(self, counts: RuleCounts) -> None:
        if len(counts.versions) > self._forget_at:
            sets = self.store.retained()
            counts.forget(
                {(processor.id, processor.version) for processor_set in sets for processor in processor_set.processors}
            )
            self._forget_at = len(counts.versions) + MAX_PAST


def count(
    spark: SparkSession, query: StreamingQuery | None, observation: str, store: FolderStore, batches: int = 0
) -> CountedQuery:
    """Write the counts of a query into its store, from its first micro-batch.

    :param query: None: any query that has the observation, which a user starts, until the session ends
    :param batches: see :class:`CountedQuery`
    """
    counted = CountedQuery(None if query is None else str(query.runId), observation, store, batches)
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


def wait_for_counts(location: str) -> None:
    """Wait until the counts of the queries of this process that have ended are in the store at *location*."""
    for observer in observers():
        if isinstance(observer, CountedQuery) and observer.run is not None and observer.store.location == location:
            observer.wait()


def counts_of_query(query: str) -> RuleCounts | None:
    """The counts of the rules of a query in all of its runs, given its id; None: this process does not count them."""
    counts_of_runs = [
        counts
        for observer in observers()
        if isinstance(observer, CountedQuery) and (counts := observer.counts_of(query))
    ]
    return max(counts_of_runs, key=lambda counts: counts.batch, default=None)


def matches_by_processor(progress: StreamingQueryProgress) -> dict[str, int]:
    """See :meth:`asterism.PatternProcessorStream.matches_by_processor`."""
    matches: dict[str, int] = {}
    for (name, _), counts in counts_of(progress).versions.items():
        if counts.matches:
            matches[name] = matches.get(name, 0) + counts.matches
    return matches


def discovery(progress: StreamingQueryProgress) -> str:
    """See :meth:`asterism.PatternProcessorStream.discovery`."""
    offsets = (offset_of(source.endOffset) for source in progress.sources)
    states = (offset["discovery"] for offset in offsets if offset is not None and "discovery" in offset)
    return next(states, INITIALIZING)
