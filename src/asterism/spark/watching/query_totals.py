"""The totals of the queries of a session while they run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from asterism.operators.histograms import HistogramStatistics
from asterism.spark.watching.progress import Number, numbers_of_operators, query_name, time_of

MAX_QUERIES = 200
"""The maximum number of queries with series: those whose last micro-batch is the newest."""


@dataclass(slots=True)
class QueryTotals:
    """The totals of a running query.

    :param last: its last micro-batch
    :param triggered: when the last trigger was
    :param batches: the number of its micro-batches
    :param rows: the number of their rows
    :param numbers: the counts of its operators, the last values of their gauges, and their histograms, by their observations
    """

    last: StreamingQueryProgress
    triggered: datetime
    batches: int = 0
    rows: int = 0
    numbers: dict[str, dict[str, Number]] = field(default_factory=dict)

    def add(self, progress: StreamingQueryProgress) -> None:
        """Add a micro-batch."""
        self.last, self.triggered = progress, time_of(progress)
        self.batches += 1
        self.rows += progress.numInputRows
        for operator, numbers in numbers_of_operators(progress).items():
            totals = self.numbers.setdefault(operator, {})
            for name, value in numbers.items():
                totals[name] = _total(totals[name], value) if name in totals else value

    def copied(self) -> QueryTotals:
        """A copy that does not change."""
        return replace(self, numbers={operator: dict(numbers) for operator, numbers in self.numbers.items()})


def _total(before: Any, value: Number) -> Number:
    """The sum of counts or of histograms; of a gauge, the last value."""
    match value:
        case HistogramStatistics():
            return value.plus(before)
        case float():
            return value
    return value + int(before)


class SessionTotals:
    """The totals of all queries of a session, which it observes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryTotals] = {}  # by run, the newest last
        self._ended = {"failed": 0, "finished": 0}

    def queries(self) -> list[QueryTotals]:
        """The totals of the running queries, by name."""
        with self._lock:
            # A series must not occur twice, so the newer query with a name counts.
            by_name = {query_name(totals.last): totals for totals in self._queries.values()}
            return [by_name[name].copied() for name in sorted(by_name)]

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
