"""Three brokers, of which one after the other is killed: the query and its rules go on, and no match is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from asterism.discovery import KafkaPatternProcessorDiscovererFactory
from tests.discovery.kit import rule, travelled, versions, watching
from tests.discovery.servers import running_or_skipped
from tests.discovery.test_topic import record
from tests.kafka.test_killed_slow import SECONDS, Victim, ids, send
from tests.kafka.victim import SOURCE, TARGET
from tests.kit import until
from tests.servers.kafka import Broker
from tests.servers.kafka_cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_or_skipped(Cluster) as cluster:
        yield cluster


@pytest.mark.timeout(600)
def test_each_match_once_while_brokers_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic(SOURCE, 2)
    cluster.create_topic(TARGET, 2)
    query = Victim(cluster, tmp_path, "never")
    killed: list[Broker] = []
    try:
        # The leader of the events, then that of the results; each is away while the query goes on.
        for topic in (None, SOURCE, TARGET):
            if topic is not None:
                killed.append(cluster.leader(topic, 0))
                killed[-1].kill()
            sent = 100 * (len(killed) + 1)
            send(cluster, range(sent - 100, sent), 2)
            # The query waits ten hours for late events, in which there are 60 users.
            until(lambda sent=sent: len(set(ids(cluster))) > sent - 70 or query.check(), seconds=SECONDS)  # type: ignore[misc]
            if topic is not None:
                killed[-1].start()
    finally:
        query.kill()
    last = Victim(cluster, tmp_path, "drained")
    try:
        assert last.process.wait(SECONDS) == 0, last.log
    finally:
        last.kill()
    seen = {(key or b"").decode(): json.loads(value or b"")["user"] for _, key, value in cluster.records(TARGET)}
    assert sorted(seen.values()) == sorted(f"user{user}" for user in range(300))


def test_rules_change_while_a_broker_is_away(cluster: Cluster) -> None:
    cluster.create_topic("rules", 2, {"cleanup.policy": "compact"})
    factory = KafkaPatternProcessorDiscovererFactory(cluster.address, "rules", interval=timedelta(milliseconds=50))
    cluster.send("rules", [record("a", rule("a")), record("b", rule("b"), 1)])
    discoverer = travelled(factory)
    assert versions(discoverer.initial_pattern_processors()) == {"a": 1, "b": 1}
    with watching(discoverer) as manager:
        for version, partition in ((2, 0), (3, 1)):
            broker = cluster.leader("rules", partition)
            broker.kill()
            cluster.send("rules", [record("a", rule("a", version)), record("b", rule("b", version), 1)])
            manager.wait_for({"a": version, "b": version})
            broker.start()
