"""The numbers of live engines, as their metrics have them. Names and meaning are those of queries on Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from asterism.arguments import expect_string, shown
from asterism.discovery.rest.prometheus import DISABLED_KEY_GROUPS, rule_families
from asterism.errors import StreamDefinitionError
from asterism.live.engine import OBSERVATION, LiveEngine
from asterism.metrics.query_metrics import EngineNumbers, QueryNumbers
from asterism.operators.state.partition_watermarks import partition_text
from asterism.rules.sets.discovery_status import PENDING, REFUSED, STATES, VALID

_OUTCOMES = ("failed", "finished")
_COUNTS = {name: "disabled_groups" if name == DISABLED_KEY_GROUPS else name for name in rule_families(())}
"""The names of the counts of a rule in its status, by those of its metrics."""


class EngineMetrics:
    """Live engines by name (:class:`asterism.metrics.query_metrics.HostedQueries`).

    :raises StreamDefinitionError: a name is no string, or a value no engine
    """

    def __init__(self, engines: Mapping[str, LiveEngine]) -> None:
        for name, engine in engines.items():
            hint = 'export_metrics({"logins": engine})'
            expect_string(StreamDefinitionError, name, "the name of a live engine must be a string", hint)
            if not isinstance(engine, LiveEngine):
                raise StreamDefinitionError(f'"{name}" must be a live engine, not {shown(engine)}', hint=hint)
        self._engines = dict(engines)

    def numbers(self) -> list[QueryNumbers]:
        return [numbers_of(name, engine) for name, engine in self._engines.items() if engine.meter.outcome is None]

    def ended(self) -> Mapping[str, int]:
        outcomes = Counter(engine.meter.outcome for engine in self._engines.values())
        return {outcome: outcomes[outcome] for outcome in _OUTCOMES}


def numbers_of(name: str, engine: LiveEngine) -> QueryNumbers:
    """The numbers of an engine, also while it is called."""
    meter, progress = engine.meter, engine.progress
    observed = progress["observedMetrics"][OBSERVATION]
    status = engine.status() if engine.has_rules else None
    rules = [] if status is None else [rule for rule in status.rules if rule.state not in (PENDING, REFUSED)]
    states = Counter(rule.state for rule in status.rules) if status is not None else Counter()
    (store,) = progress["stateOperators"]
    mark = engine.watermark
    return QueryNumbers(
        name=name,
        batches=meter.batches,
        rows=meter.events,
        input_rate=meter.last_events / meter.seconds_between if meter.seconds_between else None,
        processed_rate=meter.last_events / meter.last_seconds if meter.last_seconds else None,
        seconds=meter.last_seconds if meter.last_began else None,
        triggered=meter.last_began or None,
        watermark=None if mark is None else mark.timestamp(),
        state_rows=store["numRowsTotal"],
        state_bytes=store["memoryUsedBytes"],
        rules_valid=None if status is None else status.state == VALID,
        numbers={OBSERVATION: {**observed, **meter.counts}},
        behind={
            (OBSERVATION, input, partition_text(json.loads(partition))): micros / 1_000_000
            for input, partitions in meter.behind.items()
            for partition, micros in partitions.items()
        },
        rules={
            (rule.id, rule.version or 0): {name: getattr(rule, attribute) for name, attribute in _COUNTS.items()}
            for rule in rules
        },
        rule_states={} if status is None else {state: states[state] for state in STATES},
        engine=EngineNumbers(
            calls=meter.durations,
            failed_calls=meter.failed_calls,
            snapshots=meter.snapshots,
            failed_snapshots=meter.failed_snapshots,
            snapshot_at=meter.saved_at,
            events_since=max(0, meter.events - meter.saved_events),
        ),
    )
