"""A query from a topic to a topic, in a process that is killed: ``python -m tests.kafka.victim ADDRESS CHECKPOINT END``.

END says how it ends: ``sent``, by ``kill -9`` after a micro-batch was sent and before it is committed; ``never``; ``drained``,
when all records were read.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern
from asterism.sinks import KafkaSink
from asterism.sources import kafka_events
from asterism.streams.pattern_stream import PatternStream
from tests.servers.jars import jars

SOURCE, TARGET = "killed_in", "killed_out"
SELECT = {"matches": ["match_id"]}


def matches_of(records: DataFrame) -> PatternStream:
    events = kafka_events(records, "ts TIMESTAMP, user STRING, kind STRING", time="ts").events
    stream = KeyedStream(events, key="user", time="ts", max_out_of_orderness=timedelta(hours=10))
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    return CEP.pattern(stream, pattern, key_groups=1)


def main(address: str, checkpoint: str, end: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars("kafka"))))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 1)
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": address, "kafka.metadata.max.age.ms": "500"})
        # How long the client waits for a broker that is gone, before it asks another one; a minute by default.
        .options(**{"kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "3000"})
        .options(subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=60)
        .load()
    )
    send = KafkaSink(address, TARGET)

    def sink(df: DataFrame, batch_id: int) -> None:
        send(df, batch_id)
        if end == "sent" and df.count():
            os.killpg(0, signal.SIGKILL)

    query = matches_of(records).run(
        {"matches": sink},
        select=SELECT,
        checkpoint=checkpoint,
        trigger={"processingTime": "200 milliseconds"} if end != "drained" else None,
        drain=end == "drained",
    )
    if query is not None:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
