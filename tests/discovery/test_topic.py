"""Rules, rows of templates and of lookups in topics of Kafka: what the contract of all discoverers does not say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from asterism.console.rule_views import ConsoleRules
from asterism.discovery import KafkaLookupSource, KafkaPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.kept_rules import ON, SHADOW, WRONG
from asterism.discovery.sources import compacted_topic
from asterism.discovery.sources.compacted_topic import (
    CompactedTopic,
    KafkaClient,
    RecordName,
    TopicRecord,
    UnknownTopicError,
    _Extent,
)
from asterism.discovery.sources.sources import discovered, factory_of
from asterism.errors import RuleSourceError
from tests.discovery.kit import INTERVAL, refused, rule, travelled, versions, watching
from tests.servers.kafka import SECONDS, Broker

COMPACTED = {"cleanup.policy": "compact"}
_numbers = count(1)


def topic_of(broker: Broker, partitions: int = 2, settings: Mapping[str, str] = COMPACTED) -> str:
    """A new topic."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, partitions, settings)
    return name


def record(key: str, value: Any, partition: int = 0) -> tuple[int, bytes, bytes | None]:
    text = value if isinstance(value, str | None) else json.dumps(value)
    return partition, key.encode(), None if text is None else text.encode()


def test_transactions_are_read_as_a_whole(broker: Broker) -> None:
    topic = topic_of(broker)
    broker.send(topic, [record("a", rule("a"))])
    discoverer: Any = travelled(KafkaPatternProcessorDiscovererFactory(broker.address, topic))
    assert versions(discoverer.poll()) == {"a": 1}
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for commit, expected in ((False, None), (True, {"a": 2, "b": 1})):
        producer.begin_transaction()
        for partition, key, value in (record("a", rule("a", 2)), record("b", rule("b"), 1)):
            producer.produce(topic, value, key, partition)
        producer.flush(SECONDS)
        assert discoverer.poll() is None, "the transaction is open"
        producer.commit_transaction(SECONDS) if commit else producer.abort_transaction(SECONDS)
        polled = discoverer.poll()
        while commit and polled is None:  # the broker writes the end of a transaction after it has answered
            polled = discoverer.poll()
        assert (None if polled is None else versions(polled)) == expected
    discoverer.close()


def test_what_cannot_be_read_is_refused_alone(broker: Broker) -> None:
    topic = topic_of(broker, settings={"cleanup.policy": "delete"})
    broker.send(topic, [record("a", rule("a")), (0, None, b"{}"), record("b", "- {id: b"), record("c", rule("c"))])
    factory = KafkaPatternProcessorDiscovererFactory(broker.address, topic)
    discoverer: Any = travelled(factory)
    with pytest.raises(RuleSourceError, match=r"(?s)is not compacted.*cleanup.policy is delete\n.*--add-config"):
        discoverer.poll()
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    admin = broker.admin()
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
    ).values()
    done.result(SECONDS)
    polled = discoverer.poll()
    assert versions(polled) == {"a": 1, "c": 1}
    assert [(wrong.id, wrong.place, wrong.unidentified) for wrong in refused(polled)] == [
        ("b", f"{topic}, partition 0, offset 2", True),
        ("NULL", f"{topic}, partition 0, offset 1", False),
    ]
    # Now it is known which rule the key has, and the same id is in another partition.
    broker.send(topic, [record("b", None), record("a", "{"), record("c", [rule("c", 2)], 1)])
    polled = discoverer.poll()
    assert versions(polled) == {"c": 1}
    assert [(wrong.id, wrong.unidentified, str(wrong.place)[-11:]) for wrong in refused(polled)] == [
        ("a", False, "0, offset 5"),
        ("c", False, "1, offset 0"),
        ("NULL", False, "0, offset 1"),
    ]
    broker.send(topic, [record("c", None)])
    assert versions(discoverer.poll()) == {"c": 2}
    discoverer.close()


def test_a_topic_that_is_created_again_is_read_again(broker: Broker) -> None:
    topic = topic_of(broker, 1)
    broker.send(topic, [record("a", rule("a")), record("b", rule("b"))])
    discoverer: Any = travelled(KafkaPatternProcessorDiscovererFactory(broker.address, topic))
    assert versions(discoverer.poll()) == {"a": 1, "b": 1}
    broker.delete_topic(topic)
    broker.create_topic(topic, 1, COMPACTED)
    broker.send(
        topic,
        [record("c", "# YAML\nid: c\nversion: 1\nsql: PATTERN (A) DEFINE A AS price > 1"), record("d", rule("d"))],
    )
    assert versions(discoverer.poll()) == {"c": 1, "d": 1}, "with as many records as before"
    discoverer.close()


def test_rows_of_templates_in_a_second_topic(broker: Broker) -> None:
    topic = topic_of(broker)
    template = {
        "id": "high",
        "version": 1,
        "parameters": {"limit": "number"},
        "sql": "PATTERN (A) DEFINE A AS price > :limit",
    }
    broker.send(topic, [record("high", template), record("a", rule("a"))])
    discoverer = travelled(KafkaPatternProcessorDiscovererFactory(broker.address, topic, interval=INTERVAL))
    initial = discoverer.initial_pattern_processors()
    assert versions(initial) == {"a": 1}
    assert "a template needs rows" in str(refused(initial)[0])
    with watching(discoverer) as manager:
        broker.create_topic(f"{topic}_rows", 1, COMPACTED)
        rows = [{"template": "high", "id": id, "limit": limit} for id, limit in (("eu", 5), ("us", 7))]
        broker.send(f"{topic}_rows", [record(str(row["id"]), row) for row in rows])
        manager.wait(lambda: manager.updates and len(versions(manager.last)) == 3)
        assert {each.id: each.sql for each in manager.last if each.id != "a"} == {  # type: ignore[union-attr]
            f"high/{row['id']}": f"PATTERN (A) DEFINE A AS price > {row['limit']}" for row in rows
        }
        broker.send(f"{topic}_rows", [record("us", "{"), record("eu", None), record("uk", {"template": "high"})])
        manager.wait(lambda: versions(manager.last) == {"a": 1})
        assert [(wrong.id, wrong.unidentified) for wrong in refused(manager.last)] == [("uk", True), ("high/us", False)]


def test_a_lookup(broker: Broker) -> None:
    topic = topic_of(broker)
    source = KafkaLookupSource(broker.address, topic)
    columns = pa.schema([("name", pa.string()), ("max", pa.int64()), ("since", pa.timestamp("us", "UTC"))])
    assert source.read(columns).to_pylist() == []
    rows = [
        {"name": "ann", "max": 3, "since": "2026-01-31T12:00:00Z"},
        {"name": "bob", "max": 5, "since": None, "x": {}},
    ]
    broker.send(topic, [record(str(row["name"]), json.dumps(row, indent=1), n) for n, row in enumerate(rows)])
    state = source.state()
    assert (source.state(), source.schema().names[:2]) == (state, ["name", "max"])
    at_noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    ann, bob = {"name": "ann", "max": 3, "since": at_noon}, {"name": "bob", "max": 5, "since": None}
    assert sorted(source.read(columns).to_pylist(), key=str) == sorted([ann, bob], key=str)
    broker.send(topic, [record("ann", None)])
    assert (source.read(columns).to_pylist(), source.state() == state) == ([bob], False)
    broker.send(topic, [record("eve", '{"name": "eve"} {"name": "mal"}')])
    with pytest.raises(RuleSourceError, match=f"the record in {topic}, partition 0, offset 2 is not a JSON object"):
        source.read(columns)


def test_a_topic_that_is_too_large_is_not_read(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topic_of(broker)
    broker.send(topic, [record(str(n), "{}") for n in range(6)])
    client = KafkaClient(broker.address, {})
    for limits in ((5, 100), (100, 17)):
        with pytest.raises(RuleSourceError, match="is too large"):
            CompactedTopic(client, topic, *limits).poll()
    assert len(CompactedTopic(client, topic, 6, 18).poll()) == 6
    client.close()


def test_closes_while_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for an answer: `watching` would not wait that long for its thread."""
    monkeypatch.setattr(compacted_topic, "TIMEOUT", 3600.0)
    discoverer = travelled(KafkaPatternProcessorDiscovererFactory("127.0.0.1:1", "rules", interval=INTERVAL))
    with watching(discoverer):
        time.sleep(10 * INTERVAL.total_seconds())


def test_commands_read_a_topic(broker: Broker) -> None:
    topic = topic_of(broker)
    broker.send(topic, [record("a", [rule("a"), rule("a", 2, shadow=True)]), record("b", "- {id: b", 1)])
    url = f"kafka://{broker.address}/{topic}"
    assert [(each.id, each.state, each.where) for each in rules_at(url).all()] == [
        ("a", ON, f"{topic}, partition 0, offset 0"),
        ("a", SHADOW, f"{topic}, partition 0, offset 0"),
        ("b", WRONG, f"{topic}, partition 1, offset 0"),
    ]
    assert len(discovered(factory_of(url))) == 3
    stored = rules_at(url).rule_set({"a", "b"})
    assert [(each.id, each.shadow, each.version) for each in stored.rules] == [("a", False, 1), ("a", True, 2)]
    assert ConsoleRules(url, "").details("a")["tag"] == stored.tag("a") is not None
    with pytest.raises(RuleSourceError, match=f"the rules in the topic '{topic}' are changed by producers"):
        rules_at(url).remove(["a"])


# ---------------------------------------------------------------------- against a slow reference


class Log(KafkaClient):
    """A topic in memory: for each partition, records with their offsets."""

    class Message:
        def __init__(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
            self.partition, self.offset = (lambda: partition), (lambda: offset)
            self.key, self.value = (lambda: key), (lambda: value)

    def __init__(self) -> None:
        super().__init__("localhost", {})
        self.fails = False
        self.number = 0
        self.create()

    def create(self) -> None:
        self.number += 1
        self.partitions: list[list[tuple[int, bytes, bytes | None]]] = [[], []]
        self.begins, self.ends = [0, 0], [0, 0]

    def add(self, partition: int, key: bytes, value: bytes | None) -> None:
        self.partitions[partition].append((self.ends[partition], key, value))
        self.ends[partition] += 2  # a marker of a transaction follows

    def compact(self, *, tombstones: bool) -> None:
        for number, records in enumerate(self.partitions):
            newest = {key: offset for offset, key, _ in records}
            self.partitions[number] = [
                each for each in records if newest[each[1]] == each[0] and not (tombstones and each[2] is None)
            ]

    def extent(self, topic: str) -> _Extent:
        if self.fails:
            self.fails = False
            raise UnknownTopicError("gone")
        return _Extent(str(self.number), dict(enumerate(self.begins)), dict(enumerate(self.ends)))

    def max_age(self, topic: str) -> float:
        return 600.0

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], until: float) -> Iterator[Any]:
        for number, records in enumerate(self.partitions):
            for offset, key, value in records:
                if begins[number] <= offset < ends[number]:
                    yield self.Message(number, offset, key, value)

    def table(self) -> dict[tuple[bytes, int], bytes]:
        return {
            (key, number): value
            for number, records in enumerate(self.partitions)
            for offset, key, value in records
            if value is not None
            and offset >= self.begins[number]
            and not any(later > offset and other == key for later, other, _ in records)
        }


def values_in(records: Mapping[RecordName, TopicRecord]) -> dict[RecordName, bytes]:
    return {name: each.value for name, each in records.items()}


ADD = st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"1", b"2", None]))
OTHERS = st.sampled_from(["poll", "compact", "compact and wait", "create", "fail", "delete"])


@given(st.lists(ADD | OTHERS, min_size=5, max_size=40))
def test_a_poll_has_what_a_reader_from_the_beginning_has(actions: Sequence[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compacted_topic, "AT_REST", 0.0)
        log = Log()
        topic = CompactedTopic(log, "rules")
        for action in [*actions, "poll"]:
            match action:
                case "poll":
                    before = topic._records
                    polled = topic.poll()
                    assert values_in(polled) == log.table()
                    assert (polled is before) == (before is not None and values_in(polled) == values_in(before))
                case "compact":
                    log.compact(tombstones=False)
                case "compact and wait":  # for longer than tombstones are kept
                    log.compact(tombstones=True)
                    topic._read_at -= 1_000
                case "create":
                    log.create()
                case "fail":
                    log.fails = True
                    with pytest.raises(RuleSourceError):
                        topic.poll()
                case "delete":
                    log.begins[0] = log.ends[0]
                case partition, key, value:
                    log.add(partition, key, value)
