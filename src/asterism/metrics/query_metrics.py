"""The metrics of queries as families of Prometheus, and the exporter that users have.

Each host says what the numbers of its queries are, see :class:`HostedQueries`. Names and meaning are the same on all hosts.
See docs/decisions/0155.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from wsgiref.simple_server import WSGIServer

from prometheus_client import generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from asterism.discovery.rest import prometheus
from asterism.discovery.rest.prometheus import OTHERS, Family, add_versions, registry_of, rule_families
from asterism.errors import StreamDefinitionError
from asterism.operators.histograms import HistogramStatistics, Number
from asterism.text.printable import one_line

MAX_PARTITION = 300
"""The maximum number of characters of the label of a partition."""
_LABELS = ("query", "rule", "version")
RuleNumbers = Mapping[tuple[str, int], Mapping[str, int]]
"""The counts of versions of rules, by id and version, then by the names of :func:`rule_families`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNumbers:
    """What only a live engine has. Times are seconds since 1970.

    :param calls: the durations of its calls, in seconds
    :param failed_calls: those without effect
    :param snapshots: those that were written
    :param failed_snapshots: those that could not be written
    :param snapshot_at: when the last one was written
    :param events_since: the events that the last one does not contain
    """

    calls: HistogramStatistics
    failed_calls: int
    snapshots: int
    failed_snapshots: int
    snapshot_at: float | None
    events_since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryNumbers:
    """The numbers of a running query. A micro-batch of a live engine is a call. Times are seconds since 1970.

    :param batches: the number of micro-batches, and *rows* those of the input, since the export or the query began
    :param input_rate, processed_rate, seconds, triggered: of the last micro-batch
    :param state_rows, state_bytes: of the state store
    :param rules_valid: whether the rules are up to date; None: there are none
    :param numbers: the counts, gauges and histograms of operators
    :param lags: of each source, how many records of a partition were not read: on average, at most, at least
    :param behind: (operator, input, partition): how many seconds it is behind the fastest one
    :param rules: the counts of rules
    :param rule_states: how many versions of rules are in each state; empty: not known
    """

    name: str
    batches: int
    rows: int
    input_rate: float | None
    processed_rate: float | None
    seconds: float | None
    triggered: float | None
    watermark: float | None
    state_rows: int
    state_bytes: int
    rules_valid: bool | None
    numbers: Mapping[str, Mapping[str, Number]]
    lags: Mapping[str, Sequence[float]] = field(default_factory=dict)
    behind: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    rules: RuleNumbers = field(default_factory=dict)
    rule_states: Mapping[str, int] = field(default_factory=dict)
    engine: EngineNumbers | None = None


class HostedQueries(Protocol):
    """The queries of a host."""

    def numbers(self) -> list[QueryNumbers]:
        """Those of the running queries, which have different names."""

    def ended(self) -> Mapping[str, int]:
        """How many queries have ended, by outcome."""


class MetricsExporter:
    """The metrics of queries. Created by :func:`asterism.export_metrics`."""

    def __init__(self, queries: HostedQueries, port: int | None, host: str, opened: ExitStack | None = None) -> None:
        """
        :param opened: closed with the exporter
        :raises StreamDefinitionError: the address cannot be used
        """
        self.port: int | None = None
        """The port that serves the metrics, if there is one."""
        with opened or ExitStack() as stack:
            self._registry = registry_of(_QueryMetrics(queries))
            if port is not None:
                server, thread = self._serve(port, host)
                for end in (thread.join, server.server_close, server.shutdown):  # the last one is called first
                    stack.callback(end)
                self.port = server.server_port
            self._open = stack.pop_all()

    def _serve(self, port: int, host: str) -> tuple[WSGIServer, threading.Thread]:
        try:
            return start_http_server(port, host, self._registry)
        except (OSError, UnicodeError) as error:
            raise StreamDefinitionError(f"metrics cannot be served on {host}:{port}: {error}", hint="port=0") from None

    def text(self) -> str:
        """The metrics in the text format of Prometheus, for a program that serves or pushes them itself."""
        return bytes(generate_latest(self._registry)).decode()

    def close(self) -> None:
        """Stop serving the metrics and listening to the queries. The queries continue."""
        self.port = None
        self._open.close()


_Numbers = TypeVar("_Numbers")
_Families = tuple[tuple[type[Family], str, str, Callable[[_Numbers], float | None]], ...]
_OF_A_QUERY: _Families[QueryNumbers] = (
    (GaugeMetricFamily, "input_rows_per_second", "Rows that arrived per second.", lambda query: query.input_rate),
    (
        GaugeMetricFamily,
        "processed_rows_per_second",
        "Rows per second of a micro-batch.",
        lambda query: query.processed_rate,
    ),
    (GaugeMetricFamily, "micro_batch_seconds", "The duration of the last micro-batch.", lambda query: query.seconds),
    (
        GaugeMetricFamily,
        "last_trigger_timestamp_seconds",
        "The time of the last trigger.",
        lambda query: query.triggered,
    ),
    (GaugeMetricFamily, "watermark_timestamp_seconds", "The watermark.", lambda query: query.watermark),
    (GaugeMetricFamily, "state_rows", "The rows of the state store.", lambda query: query.state_rows),
    (GaugeMetricFamily, "state_bytes", "The memory of the state store.", lambda query: query.state_bytes),
    (GaugeMetricFamily, "rules_valid", "1 if its rules are up to date.", lambda query: query.rules_valid),
    (CounterMetricFamily, "micro_batches", "Micro-batches.", lambda query: query.batches),
    (CounterMetricFamily, "input_rows", "Rows that arrived.", lambda query: query.rows),
)
_OF_AN_ENGINE: _Families[EngineNumbers] = (
    (CounterMetricFamily, "failed_calls", "Calls that failed, without effect.", lambda engine: engine.failed_calls),
    (CounterMetricFamily, "snapshots", "Snapshots that were written.", lambda engine: engine.snapshots),
    (
        CounterMetricFamily,
        "failed_snapshots",
        "Snapshots that could not be written.",
        lambda engine: engine.failed_snapshots,
    ),
    (
        GaugeMetricFamily,
        "last_snapshot_timestamp_seconds",
        "When a snapshot was last written.",
        lambda engine: engine.snapshot_at,
    ),
    (
        GaugeMetricFamily,
        "events_since_snapshot",
        "Events that the last snapshot does not contain.",
        lambda engine: engine.events_since,
    ),
)


class _QueryMetrics(Collector):
    def __init__(self, queries: HostedQueries) -> None:
        self.queries = queries

    def collect(self) -> Iterator[Metric]:
        queries = self.queries.numbers()
        yield from _families("query", _OF_A_QUERY, [(query.name, query) for query in queries])
        yield from _of_sources(queries)
        yield _of_partitions(queries)
        yield from _of_operators(queries)
        ended = CounterMetricFamily("asterism_queries_ended", "Queries that have ended.", labels=["outcome"])
        for outcome, count in self.queries.ended().items():
            ended.add_metric([outcome], count)
        yield ended
        yield from _of_rules(queries)
        yield from _of_engines(queries)


def _of_operators(queries: list[QueryNumbers]) -> Iterator[Metric]:
    labels = ["query", "operator"]
    counts = CounterMetricFamily("asterism_operator_counts", "What an operator counts.", labels=[*labels, "count"])
    gauges = GaugeMetricFamily("asterism_operator_gauge", "What an operator has set last.", labels=[*labels, "gauge"])
    histograms = HistogramMetricFamily(
        "asterism_operator_histogram", "A histogram of an operator.", labels=[*labels, "histogram"]
    )
    for query in queries:
        for operator, numbers in query.numbers.items():
            for name, value in numbers.items():
                place = [query.name, operator, name]
                if isinstance(value, HistogramStatistics):
                    _add_histogram(histograms, place, value)
                else:
                    (gauges if isinstance(value, float) else counts).add_metric(place, value)
    yield from (counts, gauges, histograms)


def _add_histogram(family: HistogramMetricFamily, labels: Sequence[str], values: HistogramStatistics) -> None:
    buckets = [(str(bound), float(count)) for bound, count in values.buckets.items()]
    family.add_metric(labels, [*buckets, ("+Inf", values.count)], values.sum)


def _of_sources(queries: list[QueryNumbers]) -> Iterator[Metric]:
    """How far the sources are behind."""
    families = [
        GaugeMetricFamily(f"asterism_query_offsets_behind_latest_{name}", text, labels=["query", "source"])
        for name, text in (
            ("avg", "Records of a partition that were not read yet, on average."),
            ("max", "Records that were not read yet, of the partition with the most."),
            ("min", "Records that were not read yet, of the partition with the fewest."),
        )
    ]
    for query in queries:
        for source, lag in query.lags.items():
            for family, number in zip(families, lag, strict=True):
                family.add_metric([query.name, source], number)
    yield from families


def _of_partitions(queries: list[QueryNumbers]) -> Metric:
    """How far the slowest partitions are behind."""
    family = GaugeMetricFamily(
        "asterism_query_partition_behind_seconds",
        "How far a partition that holds back the watermark is behind the fastest one.",
        labels=["query", "operator", "input", "partition"],
    )
    behind = {
        (query.name, operator, name, one_line(partition, MAX_PARTITION)): seconds
        for query in queries
        for (operator, name, partition), seconds in query.behind.items()
    }
    for labels, seconds in behind.items():  # a series must not occur twice
        family.add_metric(labels, seconds)
    return family


def _of_rules(queries: list[QueryNumbers]) -> Iterator[Metric]:
    """The metrics of rules. In all queries together, as many versions have separate series as at the endpoint for rules."""
    for name, family in rule_families(_LABELS).items():
        limit = prometheus.MAX_VERSIONS
        for query in queries:
            numbers = [
                ((query.name, rule, str(version)), counts[name]) for (rule, version), counts in query.rules.items()
            ]
            add_versions(family, numbers, (query.name, *OTHERS), limit)
            limit = max(0, limit - len(numbers))
        yield family
    states = GaugeMetricFamily("asterism_query_rules", "The number of versions of rules.", labels=["query", "state"])
    for query in queries:
        for state, count in query.rule_states.items():
            states.add_metric([query.name, state], count)
    yield states


def _of_engines(queries: list[QueryNumbers]) -> Iterator[Metric]:
    """The metrics of live engines alone."""
    calls = HistogramMetricFamily("asterism_live_call_seconds", "The durations of calls.", labels=["query"])
    engines = [(query.name, query.engine) for query in queries if query.engine is not None]
    for name, engine in engines:
        _add_histogram(calls, [name], engine.calls)
    yield calls
    yield from _families("live", _OF_AN_ENGINE, engines)


def _families(prefix: str, families: _Families[_Numbers], numbers: Sequence[tuple[str, _Numbers]]) -> Iterator[Metric]:
    """Families with one number for each query, where it is known."""
    for kind, name, text, number_of in families:
        family = kind(f"asterism_{prefix}_{name}", text, labels=["query"])
        for query, of_query in numbers:
            number = number_of(of_query)
            if number is not None:
                family.add_metric([query], float(number))
        yield family
