"""The status of a query's rules in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from asterism.rules.sets.discovery_status import (
    INITIALIZING,
    INTERRUPTED,
    OFF,
    PENDING,
    REFUSED,
    STALE,
    STATES,
    VALID,
    RuleState,
    Status,
)

MAX_VERSIONS = 1000
"""The maximum number of versions of rules that have separate series, the first in the set. All others are summed."""
OTHERS = ("(others)", "")
"""The labels of this sum, which no rule has, because a version is a number."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Family = CounterMetricFamily | GaugeMetricFamily
DISABLED_KEY_GROUPS = "disabled_key_groups"
_LABELS = ("rule", "version")
_OF_A_RULE: tuple[tuple[type[Family], str, str], ...] = (
    (CounterMetricFamily, "matches", "Matches, without those of shadows."),
    (CounterMetricFamily, "shadow_matches", "Matches of versions while they were shadows."),
    (CounterMetricFamily, "timed_out", "Timed-out partial matches."),
    (CounterMetricFamily, "errors", "Errors, at most one in each key group."),
    (CounterMetricFamily, "events", "Events that were searched for the rule."),
    (GaugeMetricFamily, "partial_matches", "Partial matches; in SQL, rows of undecided matches."),
    (GaugeMetricFamily, DISABLED_KEY_GROUPS, "Key groups in which it is disabled."),
)


def text_of(status: Status) -> bytes:
    """The metrics. The library escapes the ids of rules."""
    return bytes(generate_latest(registry_of(_Metrics(status))))


def registry_of(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


class _Metrics(Collector):
    def __init__(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        discovery = GaugeMetricFamily("asterism_discovery", "1 for the state of the discovery.", labels=["state"])
        for state in (INITIALIZING, VALID, INTERRUPTED, STALE, OFF):
            discovery.add_metric([state], float(status.state == state))
        yield discovery
        if status.last_poll:
            polled = _seconds(status.last_poll)
            yield GaugeMetricFamily("asterism_last_poll_timestamp_seconds", "The last successful poll.", value=polled)
        yield GaugeMetricFamily("asterism_rule_set", "The number of the newest set.", value=status.version)
        states = GaugeMetricFamily("asterism_rules", "The number of versions of rules.", labels=["state"])
        counts = Counter(rule.state for rule in status.rules)
        for state in STATES:
            states.add_metric([state], counts[state])
        yield states
        rules = [rule for rule in status.rules if rule.state not in (PENDING, REFUSED)]
        for name, family in rule_families(_LABELS).items():
            attribute = "disabled_groups" if name == DISABLED_KEY_GROUPS else name
            values = [(_labels(rule), getattr(rule, attribute)) for rule in rules]
            yield add_versions(family, values, OTHERS, MAX_VERSIONS)
        last = GaugeMetricFamily("asterism_rule_last_match_timestamp_seconds", "The latest match_time.", labels=_LABELS)
        for rule in rules[:MAX_VERSIONS]:
            if rule.last_match:
                last.add_metric(_labels(rule), _seconds(rule.last_match))
        yield last
        if status.lookups:
            yield from self._of_lookups()

    def _of_lookups(self) -> Iterator[Metric]:
        rows = GaugeMetricFamily("asterism_lookup_rows", "The rows of the table in force.", labels=["lookup"])
        read = GaugeMetricFamily(
            "asterism_lookup_last_read_timestamp_seconds",
            "When the table could last be read and used.",
            labels=["lookup"],
        )
        for name, lookup in self.status.lookups.items():
            rows.add_metric([name], lookup.rows)
            if lookup.read_at:
                read.add_metric([name], _seconds(lookup.read_at))
        yield rows
        yield read


def rule_families(labels: Sequence[str]) -> dict[str, Family]:
    """The families of the counts of rules, without values, by the name of the count."""
    return {name: kind(f"asterism_rule_{name}", text, labels=labels) for kind, name, text in _OF_A_RULE}


def add_versions(
    family: Family,
    values: Sequence[tuple[tuple[str, ...], int]],
    others: tuple[str, ...],
    limit: int,
) -> Metric:
    """Add the values of versions, given with their labels. Those beyond the *limit* are summed, with the labels *others*."""
    for labels, value in values[:limit]:
        family.add_metric(labels, value)
    if len(values) > limit:
        family.add_metric(others, sum(value for _, value in values[limit:]))
    return family


def _labels(rule: RuleState) -> tuple[str, str]:
    return rule.id, str(rule.version)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
