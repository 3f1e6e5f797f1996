"""The status of a query's rules in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from asterism.rules.discovery_status import (
    DISABLED,
    EXPIRED,
    IN_FORCE,
    INITIALIZING,
    INTERRUPTED,
    KILLED,
    OFF,
    PENDING,
    REFUSED,
    SHADOW,
    STALE,
    VALID,
    WAITING,
    RuleState,
    Status,
)

MAX_VERSIONS = 1000
"""The maximum number of versions of rules that have series of their own, the first in the set. All others are summed."""
OTHERS = ("(others)", "")
"""The labels of this sum, which no rule has, because a version is a number."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("rule", "version")


def text_of(status: Status) -> bytes:
    """The metrics. The library escapes the ids of rules."""
    registry = CollectorRegistry()
    registry.register(_Metrics(status))
    return bytes(generate_latest(registry))


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
        for state in (PENDING, WAITING, IN_FORCE, SHADOW, DISABLED, EXPIRED, KILLED, REFUSED):
            states.add_metric([state], counts[state])
        yield states
        rules = [rule for rule in status.rules if rule.state not in (PENDING, REFUSED)]
        for name, text, value in (
            ("matches", "Matches, without those of shadows.", lambda rule: rule.matches),
            ("shadow_matches", "Matches of versions while they were shadows.", lambda rule: rule.shadow_matches),
            ("timed_out", "Timed-out partial matches.", lambda rule: rule.timed_out),
            ("errors", "Errors, at most one in each key group.", lambda rule: rule.errors),
            ("events", "Events that were searched for the rule.", lambda rule: rule.events),
        ):
            yield _summed(CounterMetricFamily(f"asterism_rule_{name}", text, labels=_LABELS), rules, value)
        for name, text, value in (
            ("partial_matches", "Partial matches; in SQL, rows of undecided matches.", lambda r: r.partial_matches),
            ("disabled_key_groups", "Key groups in which it is disabled.", lambda rule: rule.disabled_groups),
        ):
            yield _summed(GaugeMetricFamily(f"asterism_rule_{name}", text, labels=_LABELS), rules, value)
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


def _summed(
    family: CounterMetricFamily | GaugeMetricFamily, rules: list[RuleState], value: Callable[[RuleState], int]
) -> Metric:
    return add_versions(family, [(_labels(rule), value(rule)) for rule in rules], OTHERS, MAX_VERSIONS)


def add_versions(
    family: CounterMetricFamily | GaugeMetricFamily,
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
