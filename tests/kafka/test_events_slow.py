"""Topics whose records are not simply one event after the other: compacted, in transactions, with headers, in Avro."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern
from asterism.sources import dead_letters, kafka_events
from tests.kafka.test_offsets import records_of
from tests.kit import until
from tests.servers.kafka import Broker

SCHEMA = "ts TIMESTAMP, user STRING, kind STRING"
PAIR = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1000",
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "user", "type": "string"},
            {"name": "kind", "type": "string"},
        ],
    }
)


def event(second: int, user: str, kind: str) -> bytes:
    return json.dumps({"ts": f"2025-01-01T12:{second // 60:02}:{second % 60:02}Z", "user": user, "kind": kind}).encode()


class Query:
    """A pattern over a topic; each :meth:`run` continues the one before."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path, **options: object) -> None:
        self.spark, self.broker, self.topic, self.folder, self.options = spark, broker, topic, folder, options
        self.matched: list[tuple[Any, ...]] = []
        self.letters: list[tuple[int, int, str]] = []

    def run(
        self,
        *measures: str,
        event: str | Column = SCHEMA,
        headers: tuple[str, ...] = (),
        pattern: Pattern = PAIR,
        drain: bool = True,
    ) -> None:
        records = records_of(self.spark, self.broker, self.topic, **self.options)
        events = kafka_events(records, event, time="ts", headers=headers).all
        stream = KeyedStream(events, key="user", time="ts", watermark_by=["topic", "partition"])
        names = [f"m{number}" for number in range(len(measures))]

        def matches(df: DataFrame, batch_id: int) -> None:
            self.matched.extend(tuple(row) for row in df.select("user", *names).collect())

        def late(df: DataFrame, batch_id: int) -> None:
            self.letters.extend((row.partition, row.offset, row.reason) for row in dead_letters(df).collect())

        CEP.pattern(stream, pattern, key_groups=1).run(
            {"matches": matches, "late": late},
            select={"matches": [f"{measure} AS {name}" for measure, name in zip(measures, names, strict=True)]},
            checkpoint=str(self.folder / "checkpoint"),
            drain=drain,
        )


def test_a_compacted_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Offsets have gaps, some of them longer than a micro-batch, before the query reads them and meanwhile."""
    topic = "events_compacted"
    broker.create_topic(topic, 2, COMPACTED)

    def send(first: int, count: int) -> None:
        """An event of each user, again and again; then one user is deleted."""
        records: list[tuple[int, bytes | None, bytes | None]] = []
        for second in range(first, first + count):
            for partition in range(2):
                user = f"user{partition}{second % 3}"
                records.append((partition, user.encode(), event(second, user, "a")))
        broker.send(topic, [*records, (0, b"user02", None)])

    def is_compacted() -> bool:
        # The last segment is not compacted.
        broker.send(topic, [(partition, b"last", event(0, "last", "x")) for partition in range(2)])
        return len(broker.records(topic)) <= 30

    def stored() -> set[tuple[Any, ...]]:
        events = [json.loads(value) for _, _, value in broker.records(topic) if value is not None]
        return {(event["user"], event["ts"]) for event in events if event["kind"] == "a"}

    text_of_time = """date_format(a.ts, "yyyy-MM-dd'T'HH:mm:ss'Z'")"""
    query = Query(spark, broker, topic, tmp_path, maxOffsetsPerTrigger=20)
    before, after = set(), set()
    for first in (0, 60):
        send(first, 60)
        until(is_compacted)
        before |= stored()
        query.run(text_of_time, pattern=Pattern.begin("a").where("kind = 'a'"), drain=first > 0)
        after |= stored()
    assert after <= set(query.matched) <= before
    assert len(query.matched) == len(set(query.matched)) < 60
    assert {partition for partition, _, _ in query.letters} == {0}
    assert {reason for _, _, reason in query.letters} == {"the value is NULL (a tombstone)"}


def test_transactions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = "events_transactions"
    broker.create_topic(topic, 2)
    committed = {"kafka.isolation.level": "read_committed"}
    query = Query(spark, broker, topic, tmp_path, maxOffsetsPerTrigger=4, **committed)

    def producer(name: str) -> Producer:
        made = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
        made.init_transactions(60)
        return made

    def send(to: Producer, partition: int, *events: bytes) -> None:
        to.begin_transaction()
        for value in events:
            to.produce(topic, value=value, partition=partition)
        to.flush(60)

    first, second = producer("first"), producer("second")
    send(first, 0, event(1, "ann", "a"))
    first.commit_transaction(60)
    for n in range(5):  # more than a micro-batch of records that nobody may see
        send(first, n % 2, event(2, "ann", "x"), event(2, "bob", "a"), b"poison", event(3, "bob", "b"))
        first.abort_transaction(60)
    send(first, 0, event(4, "ann", "b"))
    first.commit_transaction(60)
    send(second, 1, event(5, "eve", "a"), event(6, "eve", "b"))
    # Records after an open transaction wait for it, even if they are committed.
    send(first, 1, event(7, "zoe", "a"), event(8, "zoe", "b"))
    first.commit_transaction(60)
    query.run("b.offset", drain=False)
    assert query.matched == []

    second.commit_transaction(60)
    query.run("b.offset", drain=False)
    query.run("b.offset")
    assert sorted(user for user, *_ in query.matched) == ["ann", "eve", "zoe"]
    assert query.letters == []


def test_avro_with_headers(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Also in the format of Confluent's serializers, whose values begin with five bytes."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    topic = "events_avro"
    broker.create_topic(topic, 2)
    rows = spark.sql(
        "SELECT TIMESTAMP'2025-01-01 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) AS ts, 'ann' AS user,"
        " substr('ab', id + 1, 1) AS kind FROM range(2)"
    )
    values = [
        bytes(row.value) for row in rows.select(to_avro(F.struct("ts", "user", "kind"), AVRO).alias("value")).collect()
    ]
    producer = Producer({"bootstrap.servers": broker.address})
    for index, value in enumerate([values[0], b"\x00\xff", None, values[1], values[0][:5]]):
        framed = None if value is None else b"\x00\x00\x00\x00\x01" + value
        producer.produce(topic, value=framed, partition=0, headers=[("tenant", f"t{index}"), ("trace", b"\x01")])
    producer.flush(60)
    query = Query(spark, broker, topic, tmp_path, includeHeaders=True, maxOffsetsPerTrigger=2)
    parsed = from_avro(F.expr("substring(value, 6)"), AVRO, {"mode": "PERMISSIVE"})
    query.run("a.tenant", "b.tenant", event=parsed, headers=("tenant",))
    assert query.matched == [("ann", "t0", "t3")]
    assert sorted(query.letters) == [
        (0, 1, "the value cannot be parsed"),
        (0, 2, "the value is NULL (a tombstone)"),
        (0, 4, "the value cannot be parsed"),
    ]
