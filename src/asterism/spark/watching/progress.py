"""The numbers in the progress of a query, and their totals, as the monitor and the exporter of metrics show them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

from asterism.columns.time import EPOCH
from asterism.operators.histograms import HistogramStatistics, Number
from asterism.rules.sets.discovery_status import INITIALIZING
from asterism.rules.sets.rule_counts import FAMILY
from asterism.spark.host.stateful import PartitionBehind, operator_observations, operator_watermarks, partitions_behind
from asterism.spark.host.versions import offset_of
from asterism.spark.progress.rule_progress import discovery


def query_name(progress: StreamingQueryProgress) -> str:
    """The name of the query, or its id if it has none."""
    return progress.name or str(progress.id)


def time_of(progress: StreamingQueryProgress) -> datetime:
    """When the micro-batch began."""
    return datetime.fromisoformat(progress.timestamp)


def newest_of(progress: StreamingQueryProgress) -> datetime | None:
    """The greatest event time of the micro-batch, if the progress has it."""
    newest = progress.eventTime.get("max")
    return None if newest is None else datetime.fromisoformat(newest)


def _spark_watermark(progress: StreamingQueryProgress) -> datetime | None:
    if "watermark" not in progress.eventTime:
        return None
    watermark = datetime.fromisoformat(progress.eventTime["watermark"])
    return watermark if watermark > EPOCH else None  # until there is one, Spark reports the epoch


def has_rules(progress: StreamingQueryProgress) -> bool:
    """Whether an operator of the query matches rules."""
    return any(isinstance(row.get(FAMILY), str) for row in operator_observations(progress).values())


def discovery_of(progress: StreamingQueryProgress) -> str:
    """The status of the discovery of rules, see :meth:`asterism.PatternProcessorStream.discovery`."""
    try:
        return discovery(progress)
    except ValueError:  # the offset of another source is not JSON
        return INITIALIZING


def numbers_of_operators(progress: StreamingQueryProgress) -> dict[str, dict[str, Number]]:
    """The counts, the gauges that were set and the histograms of a micro-batch, by the observation of the operator. The counts of
    rules are not included.
    """
    return {
        name: {
            column: _statistics(value) if isinstance(value, Row | dict) else value
            for column, value in row.items()
            if isinstance(value, int | float | Row | dict)
        }
        for name, row in sorted(operator_observations(progress).items())
    }


def _statistics(value: Row | dict[str, Any]) -> HistogramStatistics:
    row = value.asDict(recursive=True) if isinstance(value, Row) else value
    buckets = {bucket["le"]: bucket["count"] for bucket in row["buckets"]}
    return HistogramStatistics(row["count"], row["sum"], row["min"], row["max"], buckets)


def input_rows(progress: StreamingQueryProgress) -> int:
    """The rows of the user's sources. Spark's number also counts those by which a query controls its operators."""
    return sum(source.numInputRows for source in _sources(progress))


def input_rate(progress: StreamingQueryProgress) -> float | None:
    """Rows that arrived per second. The first micro-batch has none."""
    return _sum(source.inputRowsPerSecond for source in _sources(progress))


def processed_rate(progress: StreamingQueryProgress) -> float | None:
    """Rows per second of a micro-batch."""
    return _sum(source.processedRowsPerSecond for source in _sources(progress))


def _sources(progress: StreamingQueryProgress) -> list[SourceProgress]:
    """The sources of the user."""
    of_control = {"definition", "messages"}
    return [source for source in progress.sources if not of_control <= (offset_of(source.endOffset) or {}).keys()]


def _sum(rates: Iterable[float]) -> float | None:
    known = [rate for rate in map(_finite, rates) if rate is not None]
    return sum(known) if known else None


LAG = ("avgOffsetsBehindLatest", "maxOffsetsBehindLatest", "minOffsetsBehindLatest")
"""The names under which Spark's source for Kafka reports how many records of a partition were not read: on average, at most, at
least.
"""


def lags_of(progress: StreamingQueryProgress) -> dict[str, tuple[float, float, float]]:
    """How far the sources are behind, by the description of the source, in the order of :data:`LAG`."""
    lags = {}
    for source in progress.sources:
        metrics = source.metrics or {}
        with suppress(KeyError, TypeError, ValueError):  # another source, whose metrics have any names
            average, most, least = (float(metrics[name]) for name in LAG)
            lags[source.description] = average, most, least
    return lags


def seconds_of(progress: StreamingQueryProgress) -> float:
    """The duration of the micro-batch."""
    return progress.durationMs.get("triggerExecution", progress.batchDuration) / 1000


def state_rows(progress: StreamingQueryProgress) -> int:
    return sum(operator.numRowsTotal for operator in progress.stateOperators)


def state_bytes(progress: StreamingQueryProgress) -> int:
    return sum(operator.memoryUsedBytes for operator in progress.stateOperators)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ---------------------------------------------------------------------- totals


MAX_QUERIES = 200
"""The maximum number of queries with series: those whose last micro-batch is the newest."""


@dataclass(slots=True)
class QueryTotals:
    """The totals of a running query.

    :param triggered: when the last trigger was
    :param numbers: the counts of its operators, the last values of their gauges, and their histograms, by their observations
    :param watermarks: of its operators, in microseconds, by their observations
    :param behind: the partitions that hold these back
    """

    last: StreamingQueryProgress
    triggered: datetime
    batches: int = 0
    rows: int = 0
    numbers: dict[str, dict[str, Number]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    behind: dict[str, list[PartitionBehind]] = field(default_factory=dict)

    @property
    def watermark(self) -> datetime | None:
        """Spark's watermark or, without one, that of the operator which is furthest behind: the last one of the query."""
        of_spark = _spark_watermark(self.last)
        if of_spark is not None or not self.watermarks:
            return of_spark
        try:
            return EPOCH + timedelta(microseconds=min(self.watermarks.values()))
        except OverflowError:  # a time that Python does not have
            return None

    def add(self, progress: StreamingQueryProgress) -> None:
        """Add a micro-batch."""
        self.last, self.triggered = progress, time_of(progress)
        self.batches += 1
        self.rows += input_rows(progress)
        # In a micro-batch without data, perhaps no key group of an operator is called.
        self.watermarks |= operator_watermarks(progress)
        self.behind |= partitions_behind(progress)
        for operator, numbers in numbers_of_operators(progress).items():
            totals = self.numbers.setdefault(operator, {})
            for name, value in numbers.items():
                totals[name] = _total(totals[name], value) if name in totals else value

    def copied(self) -> QueryTotals:
        """A copy that does not change."""
        numbers = {operator: dict(numbers) for operator, numbers in self.numbers.items()}
        return replace(self, numbers=numbers, watermarks=dict(self.watermarks), behind=dict(self.behind))


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
