"""The numbers of the queries of a session, as their metrics have them."""

from __future__ import annotations

from collections.abc import Mapping

from asterism.discovery.rest.prometheus import DISABLED_KEY_GROUPS, rule_families
from asterism.metrics.query_metrics import QueryNumbers, RuleNumbers
from asterism.operators.state.partition_watermarks import partition_text
from asterism.rules.sets.discovery_status import VALID
from asterism.spark.progress.rule_progress import counts_of_query
from asterism.spark.watching.progress import (
    QueryTotals,
    SessionTotals,
    discovery_of,
    has_rules,
    input_rate,
    lags_of,
    processed_rate,
    query_name,
    seconds_of,
    state_bytes,
    state_rows,
)

_COUNTS = {name: "disabled" if name == DISABLED_KEY_GROUPS else name for name in rule_families(())}
"""The names of the counts of a rule in the progress, by those of its metrics."""


class SessionMetrics:
    """The queries of a session (:class:`asterism.metrics.query_metrics.HostedQueries`)."""

    def __init__(self, totals: SessionTotals) -> None:
        self._totals = totals

    def numbers(self) -> list[QueryNumbers]:
        return [_numbers_of(query) for query in self._totals.queries()]

    def ended(self) -> Mapping[str, int]:
        return self._totals.ended()


def _numbers_of(query: QueryTotals) -> QueryNumbers:
    last = query.last
    return QueryNumbers(
        name=query_name(last),
        batches=query.batches,
        rows=query.rows,
        input_rate=input_rate(last),
        processed_rate=processed_rate(last),
        seconds=seconds_of(last),
        triggered=query.triggered.timestamp(),
        watermark=None if query.watermark is None else query.watermark.timestamp(),
        state_rows=state_rows(last),
        state_bytes=state_bytes(last),
        rules_valid=discovery_of(last) == VALID if has_rules(last) else None,
        numbers=query.numbers,
        lags=lags_of(last),
        behind={
            (operator, name, partition_text(partition)): distance / 1_000_000
            for operator, partitions in query.behind.items()
            for name, partition, distance in partitions
        },
        rules=_rules_of(str(last.id)),
    )


def _rules_of(query: str) -> RuleNumbers:
    """The counts of the rules of a query in all of its runs, given its id."""
    counts = counts_of_query(query)
    return {
        version: {name: getattr(numbers, attribute) for name, attribute in _COUNTS.items()}
        for version, numbers in (counts.versions.items() if counts is not None else ())
    }
