"""Rows as records of a topic."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism.errors import SinkError
from asterism.sinks import KafkaSink
from tests.discovery.servers import free_port
from tests.servers.kafka import Broker


def headers_of(broker: Broker, topic: str) -> object:
    """Of the first record."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "headers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = None
        while message is None:
            message = consumer.poll(10)
        return message.headers()
    finally:
        consumer.close()


def test_rows_are_records_with_ids(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("sink_ids", 2)
    rows = spark.createDataFrame(
        [("1f", None, datetime(2025, 1, 1, 12, 0, 0, 250_000)), ("2f", "ann", datetime(2025, 1, 1))],
        "match_id STRING, user STRING, `the time` TIMESTAMP",
    )
    sink = KafkaSink(broker.address, "sink_ids", options={"kafka.linger.ms": 1})
    sink(rows, 0)
    sink(rows, 0)  # a micro-batch that is repeated
    records = broker.records("sink_ids")
    assert len(records) == 4
    assert len({partition for partition, key, _ in records if key == b"1f"}) == 1
    assert {key: json.loads(value or b"") for _, key, value in records} == {
        b"1f": {"match_id": "1f", "user": None, "the time": "2025-01-01T12:00:00.250000Z"},
        b"2f": {"match_id": "2f", "user": "ann", "the time": "2025-01-01T00:00:00.000000Z"},
    }

    broker.create_topic("sink_headers")
    changed = rows.select("*", F.lit(b"\x01").alias("avro")).where("user = 'ann'")
    KafkaSink(broker.address, "sink_headers", key=["user", "match_id"], header="match_id", value="avro")(changed, 0)
    assert broker.records("sink_headers") == [(0, b'{"user":"ann","match_id":"2f"}', b"\x01")]
    assert headers_of(broker, "sink_headers") == [("match_id", b"2f")]

    # An id is never missing; the topic must exist; a broker must be there.
    with pytest.raises(SinkError, match=r"a row has no user, which is its id in the topic 'sink_headers'$"):
        KafkaSink(broker.address, "sink_headers", key=None, header="user")(rows.drop("match_id"), 0)
    quick: dict[str, str | int] = {"kafka.max.block.ms": 500, "kafka.retries": 0}
    with pytest.raises(
        SinkError, match="no record could be sent to the topic 'sink_absent': it does not exist"
    ) as error:
        KafkaSink(broker.address, "sink_absent", options=quick)(rows, 0)
    assert error.value.detail == "Topic sink_absent not present in metadata after 500 ms"
    with pytest.raises(SinkError, match=r"or no broker of 'localhost:\d+' responds"):
        KafkaSink(f"localhost:{free_port()}", "sink_ids", options=quick)(rows, 0)
    with pytest.raises(SinkError, match="Kafka refuses what is sent to the topic 'sink_ids': RecordTooLarge"):
        KafkaSink(broker.address, "sink_ids", options={"kafka.max.request.size": 10})(rows, 0)
