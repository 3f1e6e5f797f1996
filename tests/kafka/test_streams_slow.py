"""Topics of Kafka as the input and the output of queries."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern
from tests.servers.kafka import Broker


def test_a_pattern_over_a_topic_of_several_partitions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("logins", 2)
    events = [
        {"ts": f"2025-01-01T12:00:0{second}Z", "user": user, "kind": kind}
        for second, user, kind in ((1, "ann", "failed"), (2, "bob", "failed"), (3, "ann", "accepted"))
    ]
    broker.send(
        "logins", [(event["user"] == "bob", event["user"].encode(), json.dumps(event).encode()) for event in events]
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", "logins")
        .option("startingOffsets", "earliest")
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), "ts TIMESTAMP, user STRING, kind STRING")
    stream = KeyedStream(records.select(value.alias("event")).select("event.*"), key="user", time="ts")
    pattern = Pattern.begin("failed").where("kind = 'failed'").next("accepted").where("kind = 'accepted'")
    users: list[str] = []
    CEP.pattern(stream, pattern, key_groups=2).run(
        {"matches": lambda df, batch_id: users.extend(row.user for row in df.collect())}, checkpoint=str(tmp_path)
    )
    assert users == ["ann"]
