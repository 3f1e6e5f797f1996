"""The metrics of queries in the text format of Prometheus, and their HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from asterism.discovery.rest import prometheus
from asterism.discovery.rest.prometheus import (
    DISABLED_KEY_GROUPS,
    OTHERS,
    Family,
    add_versions,
    registry_of,
    rule_families,
)
from asterism.errors import StreamDefinitionError
from asterism.operators.histograms import HistogramStatistics
from asterism.rules.sets.discovery_status import VALID
from asterism.spark.progress.rule_progress import counts_of_query
from asterism.spark.watching.progress import (
    QueryTotals,
    SessionTotals,
    discovery_of,
    has_rules,
    input_rate,
    lags_of,
    partition_text,
    processed_rate,
    query_name,
    seconds_of,
    state_bytes,
    state_rows,
)
from asterism.text.printable import one_line

MAX_PARTITION = 300
"""The maximum number of characters of the label of a partition."""
_LABELS = ("query", "rule", "version")


def text_of(totals: SessionTotals) -> str:
    return bytes(generate_latest(registry_of(_QueryMetrics(totals)))).decode()


def serve(totals: SessionTotals, port: int, host: str) -> tuple[WSGIServer, threading.Thread]:
    """:raises StreamDefinitionError: the address cannot be used"""
    try:
        return start_http_server(port, host, registry_of(_QueryMetrics(totals)))
    except (OSError, UnicodeError) as error:
        raise StreamDefinitionError(f"metrics cannot be served on {host}:{port}: {error}", hint="port=0") from None


def _rules_valid(totals: QueryTotals) -> float | None:
    return float(discovery_of(totals.last) == VALID) if has_rules(totals.last) else None


def _watermark_seconds(totals: QueryTotals) -> float | None:
    return None if totals.watermark is None else totals.watermark.timestamp()


_OF_A_QUERY: tuple[tuple[type[Family], str, str, Callable[[QueryTotals], float | None]], ...] = (
    (GaugeMetricFamily, "input_rows_per_second", "Rows that arrived per second.", lambda query: input_rate(query.last)),
    (
        GaugeMetricFamily,
        "processed_rows_per_second",
        "Rows per second of a micro-batch.",
        lambda query: processed_rate(query.last),
    ),
    (
        GaugeMetricFamily,
        "micro_batch_seconds",
        "The duration of the last micro-batch.",
        lambda query: seconds_of(query.last),
    ),
    (
        GaugeMetricFamily,
        "last_trigger_timestamp_seconds",
        "The time of the last trigger.",
        lambda query: query.triggered.timestamp(),
    ),
    (GaugeMetricFamily, "watermark_timestamp_seconds", "The watermark.", _watermark_seconds),
    (GaugeMetricFamily, "state_rows", "The rows of the state store.", lambda query: state_rows(query.last)),
    (GaugeMetricFamily, "state_bytes", "The memory of the state store.", lambda query: state_bytes(query.last)),
    (GaugeMetricFamily, "rules_valid", "1 if its rules are up to date.", _rules_valid),
    (CounterMetricFamily, "micro_batches", "Micro-batches.", lambda query: query.batches),
    (CounterMetricFamily, "input_rows", "Rows that arrived.", lambda query: query.rows),
)


class _QueryMetrics(Collector):
    def __init__(self, totals: SessionTotals) -> None:
        self.totals = totals

    def collect(self) -> Iterator[Metric]:
        queries = self.totals.queries()
        for kind, name, text, number_of in _OF_A_QUERY:
            family = kind(f"asterism_query_{name}", text, labels=["query"])
            for query in queries:
                number = number_of(query)
                if number is not None:
                    family.add_metric([query_name(query.last)], number)
            yield family
        labels = ["query", "operator"]
        counts = CounterMetricFamily("asterism_operator_counts", "What an operator counts.", labels=[*labels, "count"])
        gauges = GaugeMetricFamily(
            "asterism_operator_gauge", "What an operator has set last.", labels=[*labels, "gauge"]
        )
        histograms = HistogramMetricFamily(
            "asterism_operator_histogram", "A histogram of an operator.", labels=[*labels, "histogram"]
        )
        for query in queries:
            for operator, numbers in query.numbers.items():
                for name, value in numbers.items():
                    place = [query_name(query.last), operator, name]
                    if isinstance(value, HistogramStatistics):
                        buckets = [(str(bound), float(count)) for bound, count in value.buckets.items()]
                        histograms.add_metric(place, [*buckets, ("+Inf", value.count)], value.sum)
                    else:
                        (gauges if isinstance(value, float) else counts).add_metric(place, value)
        yield from _of_sources(queries)
        yield _of_partitions(queries)
        ended = CounterMetricFamily("asterism_queries_ended", "Queries that have ended.", labels=["outcome"])
        for outcome, number in self.totals.ended().items():
            ended.add_metric([outcome], number)
        yield from (counts, gauges, histograms, ended, *_of_rules(queries))


def _of_sources(queries: list[QueryTotals]) -> Iterator[Metric]:
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
        for source, lag in lags_of(query.last).items():
            for family, number in zip(families, lag, strict=True):
                family.add_metric([query_name(query.last), source], number)
    yield from families


def _of_partitions(queries: list[QueryTotals]) -> Metric:
    """How far the slowest partitions are behind."""
    family = GaugeMetricFamily(
        "asterism_query_partition_behind_seconds",
        "How far a partition that holds back the watermark is behind the fastest one.",
        labels=["query", "operator", "input", "partition"],
    )
    behind = {
        (query_name(query.last), operator, name, one_line(partition_text(partition), MAX_PARTITION)): distance
        for query in queries
        for operator, partitions in query.behind.items()
        for name, partition, distance in partitions
    }
    for labels, distance in behind.items():
        family.add_metric(labels, distance / 1_000_000)
    return family


def _of_rules(queries: list[QueryTotals]) -> Iterator[Metric]:
    """The metrics of rules. In all queries together, as many versions have separate series as at the endpoint for rules."""
    counted = [(query_name(totals.last), counts_of_query(str(totals.last.id))) for totals in queries]
    versions = [
        (
            query,
            [((query, rule, str(version)), rule_counts) for (rule, version), rule_counts in counts.versions.items()],
        )
        for query, counts in counted
        if counts is not None
    ]
    for name, family in rule_families(_LABELS).items():
        attribute = "disabled" if name == DISABLED_KEY_GROUPS else name
        limit = prometheus.MAX_VERSIONS
        for query, rules in versions:
            numbers = [(labels, getattr(rule_counts, attribute)) for labels, rule_counts in rules]
            add_versions(family, numbers, (query, *OTHERS), limit)
            limit = max(0, limit - len(rules))
        yield family
