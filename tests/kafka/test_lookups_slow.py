"""A lookup in a compacted topic that changes while a query reads it, with rules in a topic, over events in a topic."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from asterism import Lookup
from asterism.discovery import KafkaLookupSource
from tests.kafka.test_rules_slow import WatchOfTopics
from tests.kit import until
from tests.servers.kafka import Broker
from tests.spark.rules import INTERVAL, e
from tests.spark.test_lookups import ABOVE, IN_SQL, TOTAL, found

LIMITS = "looked_up_limits"


def test_a_lookup_changes_while_the_query_runs(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic(LIMITS, 2, {"cleanup.policy": "compact"})

    def publish(**limits: float | str | None) -> None:
        """A text is no JSON; None removes the row."""
        rows = {
            user: None if limit is None else limit if isinstance(limit, str) else json.dumps({"customer": user, "max": limit})
            for user, limit in limits.items()
        }  # fmt: skip
        broker.send(LIMITS, [(0, user.encode(), row.encode() if row else None) for user, row in rows.items()])

    publish(ann=5, ben=50)
    source = KafkaLookupSource(broker.address, LIMITS)
    lookup = Lookup(source, key="customer", on="user", schema="customer STRING, max DOUBLE", interval=INTERVAL)
    query = WatchOfTopics(spark, tmp_path, broker, "looked_up", lookups={"limits": lookup})
    query.rules(ABOVE, TOTAL, IN_SQL)
    with query.running():
        query.wait_for({"above": 1, "sql": 1, "total": 1})
        query.send(e(1, "a", x=6), e(2, "a", "ben", x=6), e(3, "a", "cy", x=100))
        publish(ann=50, ben=5)
        until(lambda: query.status.lookups["limits"].version == 2, query.query)
        query.settle().send(e(11, "a", x=6), e(12, "b", "ben", x=1), e(13, "a", "ben", x=6))
        publish(ann=None)
        until(lambda: query.status.lookups["limits"].rows == 1, query.query)
        query.settle().send(e(21, "a", x=1_000), e(22, "a", "ben", x=6))
        publish(cy="{")
        until(lambda: query.status.lookups["limits"].error is not None, query.query)
        state = query.status.lookups["limits"]
        assert f"the record in {LIMITS}, partition 0, offset 5 is not a JSON object" in (state.error or "")
        assert (state.version, state.rows) == (3, 1)
        query.settle().send(e(31, "a", "ben", x=6))
    publish(cy=None, ben=7)
    query.events(e(41, "a", "ben", x=6), e(42, "a", "ben", x=8), e(43, "tick"))
    query.once()
    assert found(query) == [
        ("above", 1, 1, None), ("above", 13, 13, None), ("above", 22, 22, None), ("above", 31, 31, None), ("above", 42, 42, None),
        ("sql", 1, 1, "5.0"), ("sql", 13, 13, "5.0"), ("sql", 22, 22, "5.0"), ("sql", 31, 31, "5.0"), ("sql", 42, 42, "7.0"),
        ("total", 2, 12, "5.0"),
    ]  # fmt: skip
