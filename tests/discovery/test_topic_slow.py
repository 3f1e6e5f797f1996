"""A topic of rules whose broker is killed, and whose records are compacted."""

from __future__ import annotations

import pytest

from asterism.discovery import KafkaPatternProcessorDiscovererFactory
from asterism.errors import RuleSourceError
from tests.discovery.kit import INTERVAL, rule, travelled, versions, watching
from tests.discovery.test_topic import record
from tests.kit import until
from tests.servers.kafka import Broker

QUICKLY = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}


def test_the_broker_is_killed_and_records_are_compacted(own_broker: Broker) -> None:
    own_broker.create_topic("rules", 1, QUICKLY)
    factory = KafkaPatternProcessorDiscovererFactory(own_broker.address, "rules", interval=INTERVAL)
    discoverer = travelled(factory)
    own_broker.send("rules", [record("a", rule("a")), record("b", rule("b"))])
    assert versions(discoverer.initial_pattern_processors()) == {"a": 1, "b": 1}
    with watching(discoverer) as manager:
        own_broker.kill()
        assert isinstance(manager.wait_for_failure(), RuleSourceError)
        assert manager.updates == []
        with pytest.raises(RuleSourceError, match=r"the topic .rules. at .* cannot be read"):
            travelled(factory).initial_pattern_processors()
        own_broker.start()
        for version in range(2, 5):  # each in a segment of its own
            own_broker.send("rules", [record("a", rule("a", version))])
            manager.wait_for({"a": version, "b": 1})
        own_broker.send("rules", [record("b", None)])
        manager.wait_for({"a": 4})

        def is_compacted() -> bool:
            own_broker.send("rules", [record("c", rule("c"))])  # the last segment is not compacted
            return [key for _, key, _ in own_broker.records("rules") if key != b"c"] == [b"a"]

        until(is_compacted)
        assert versions(manager.wait_for({"a": 4, "c": 1})) == {"a": 4, "c": 1}
    assert versions(travelled(factory).initial_pattern_processors()) == {"a": 4, "c": 1}
