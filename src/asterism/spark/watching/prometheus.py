"""The metrics of queries in the text format of Prometheus, and their HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from asterism.discovery.rest import prometheus
from asterism.discovery.rest.prometheus import DISABLED_KEY_GROUPS, OTHERS, add_versions, rule_families
from asterism.errors import StreamDefinitionError
from asterism.rules.sets.discovery_status import VALID
from asterism.spark.progress.rule_progress import counts_of_query
from asterism.spark.watching.progress import (
    discovery_of,
    has_rules,
    input_rate,
    processed_rate,
    query_name,
    seconds_of,
    state_bytes,
    state_rows,
    watermark_of,
)
from asterism.spark.watching.query_totals import QueryTotals, SessionTotals

_LABELS = ("query", "rule", "version")


def text_of(totals: SessionTotals) -> str:
    return bytes(generate_latest(_registry(totals))).decode()


def serve(totals: SessionTotals, port: int, host: str) -> tuple[WSGIServer, threading.Thread]:
    """:raises StreamDefinitionError: the address cannot be used"""
    try:
        return start_http_server(port, host, _registry(totals))
    except (OSError, UnicodeError) as error:
        raise StreamDefinitionError(f"metrics cannot be served on {host}:{port}: {error}", hint="port=0") from None


def _registry(totals: SessionTotals) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_QueryMetrics(totals))
    return registry


class _QueryMetrics(Collector):
    def __init__(self, totals: SessionTotals) -> None:
        self.totals = totals

    def collect(self) -> Iterator[Metric]:
        queries = self.totals.queries()
        gauges: list[tuple[str, str, Callable[[QueryTotals], float | None]]] = [
            ("input_rows_per_second", "Rows that arrived per second.", lambda query: input_rate(query.last)),
            (
                "processed_rows_per_second",
                "Rows per second of a micro-batch.",
                lambda query: processed_rate(query.last),
            ),
            ("micro_batch_seconds", "The duration of the last micro-batch.", lambda query: seconds_of(query.last)),
            (
                "last_trigger_timestamp_seconds",
                "The time of the last trigger.",
                lambda query: query.triggered.timestamp(),
            ),
            ("watermark_timestamp_seconds", "The watermark.", lambda query: _seconds(watermark_of(query.last))),
            ("state_rows", "The rows of the state store.", lambda query: state_rows(query.last)),
            ("state_bytes", "The memory of the state store.", lambda query: state_bytes(query.last)),
            ("rules_valid", "1 if its rules are up to date.", _rules_valid),
        ]
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"asterism_query_{name}", text, labels=["query"])
            for query in queries:
                number = value(query)
                if number is not None:
                    gauge.add_metric([query_name(query.last)], number)
            yield gauge
        batches = CounterMetricFamily("asterism_query_micro_batches", "Micro-batches.", labels=["query"])
        rows = CounterMetricFamily("asterism_query_input_rows", "Rows that arrived.", labels=["query"])
        counts = CounterMetricFamily(
            "asterism_operator_counts", "What an operator counts.", labels=["query", "operator", "count"]
        )
        set_values = GaugeMetricFamily(
            "asterism_operator_gauge", "What an operator has set last.", labels=["query", "operator", "gauge"]
        )
        distributions = HistogramMetricFamily(
            "asterism_operator_histogram", "A histogram of an operator.", labels=["query", "operator", "histogram"]
        )
        for query in queries:
            batches.add_metric([query_name(query.last)], query.batches)
            rows.add_metric([query_name(query.last)], query.rows)
            for operator, of in query.counts.items():
                for name, total in of.items():
                    counts.add_metric([query_name(query.last), operator, name], total)
            for operator, values_of in query.gauges.items():
                for name, last in values_of.items():
                    set_values.add_metric([query_name(query.last), operator, name], last)
            for operator, histograms in query.histograms.items():
                for name, values in histograms.items():
                    numbers = [(str(bound), float(count)) for bound, count in values.buckets.items()]
                    distributions.add_metric(
                        [query_name(query.last), operator, name], [*numbers, ("+Inf", values.count)], values.sum
                    )
        ended = CounterMetricFamily("asterism_queries_ended", "Queries that have ended.", labels=["outcome"])
        for outcome, number in self.totals.ended().items():
            ended.add_metric([outcome], number)
        yield from (batches, rows, counts, set_values, distributions, ended, *_of_rules(queries))


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


def _rules_valid(totals: QueryTotals) -> float | None:
    return float(discovery_of(totals.last) == VALID) if has_rules(totals.last) else None


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
