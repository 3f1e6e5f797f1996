"""The totals of the queries of a session while they run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from asterism.operators.histograms import HistogramStatistics
from asterism.spark.watching.progress import (
    add_counts,
    counts_of_operators,
    gauges_of_operators,
    histograms_of_operators,
    query_name,
    time_of,
)

MAX_QUERIES = 200
"""The maximum number of queries with series: those whose last micro-batch is the newest."""


@dataclass(slots=True)
class QueryTotals:
    """The totals of a running query.

    :param last: its last micro-batch
    :param triggered: when the last trigger was
    :param batches: the number of its micro-batches
    :param rows: the number of their rows
    :param counts: the counts of its operators, by their observations
    :param gauges: the last values of their gauges
    :param histograms: their histograms
    """

    last: StreamingQueryProgress
    triggered: datetime
    batches: int = 0
    rows: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    gauges: dict[str, dict[str, float]] = field(default_factory=dict)
    histograms: dict[str, dict[str, HistogramStatistics]] = field(default_factory=dict)

    def add(self, progress: StreamingQueryProgress) -> None:
        """Add a micro-batch."""
        self.last, self.triggered = progress, time_of(progress)
        self.batches += 1
        self.rows += progress.numInputRows
        for operator, counts in counts_of_operators(progress).items():
            add_counts(self.counts.setdefault(operator, {}), counts)
        for operator, gauges in gauges_of_operators(progress).items():
            self.gauges.setdefault(operator, {}).update(gauges)
        for operator, histograms in histograms_of_operators(progress).items():
            totals = self.histograms.setdefault(operator, {})
            for name, values in histograms.items():
                totals[name] = totals[name].plus(values) if name in totals else values

    def copied(self) -> QueryTotals:
        """A copy that does not change."""

        def copy(of: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
            return {name: dict(values) for name, values in of.items()}

        return replace(self, counts=copy(self.counts), gauges=copy(self.gauges), histograms=copy(self.histograms))


class SessionTotals:
    """The totals of all queries of a session, which it observes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryTotals] = {}  # by run, the newest last
        self._ended = {"failed": 0, "finished": 0}

    def queries(self) -> list[QueryTotals]:
        """The totals of the running queries, by name."""
        with self._lock:
            totals = [each.copied() for each in self._by_name()]
        return sorted(totals, key=lambda each: query_name(each.last))

    def ended(self) -> dict[str, int]:
        """How many queries have ended, by outcome."""
        with self._lock:
            return dict(self._ended)

    def add(self, progress: StreamingQueryProgress) -> None:
        run = str(progress.runId)
        with self._lock:
            totals = self._queries.pop(run, None) or QueryTotals(progress, time_of(progress))
            totals.add(progress)
            self._queries[run] = totals
            if len(self._queries) > MAX_QUERIES:
                del self._queries[next(iter(self._queries))]

    def idle(self, run: str, time: str) -> None:
        with self._lock:
            if run in self._queries:
                self._queries[run].triggered = datetime.fromisoformat(time)

    def end(self, run: str, error: str | None) -> None:
        with self._lock:
            self._queries.pop(run, None)
            self._ended["finished" if error is None else "failed"] += 1

    def _by_name(self) -> list[QueryTotals]:
        """The queries, one for each name: a series must not occur twice, so the newer query with a name counts."""
        return list({query_name(totals.last): totals for totals in self._queries.values()}.values())
