"""A job to begin with: events in Kafka, rules in a compacted topic, and what they find in tables of Delta.

``make example-kafka`` starts a broker, sends the log of an SSH server and rules to it, and runs this file. With your own broker:

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1 \\
        examples/kafka_to_delta.py --servers broker:9092 --events logins --rules login_rules \\
        --tables s3a://lake/logins --checkpoint s3a://lake/checkpoints/logins
"""

import argparse
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from asterism import CEP, KafkaPatternProcessorDiscovererFactory, KeyedStream, PatternProcessorStream
from asterism.sinks import DeltaSink
from asterism.sources import dead_letters, kafka_events

EVENT = (
    "event_id INT, ts TIMESTAMP, pid INT, ip STRING, port INT, event STRING, method STRING, user STRING, valid_user INT"
)
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def alarms(spark: SparkSession, servers: str, topic: str, rule_topic: str) -> PatternProcessorStream:
    """What the rules find in the events. A record that holds no event is a dead letter, and stops nothing."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")  # of a new query; later, the checkpoint has the offsets
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )
    logins = KeyedStream(
        kafka_events(records, EVENT, time="ts").all,
        key="ip",
        time="ts",
        order_by=["partition", "offset"],  # all events of an address are in one partition
        watermark_by=["topic", "partition"],  # events of a partition that is behind are not late
        idle_after=timedelta(minutes=10),  # a partition without events holds back the others for ten minutes
    )
    return CEP.pattern_processors(logins, KafkaPatternProcessorDiscovererFactory(servers, rule_topic), key_groups=4)


def run(found: PatternProcessorStream, tables: str, checkpoint: str, **how: Any) -> StreamingQuery | None:
    """Each row is in its table once, also after a failure. *how*: a trigger, for a query that does not end."""
    dead, late = DeltaSink(f"{tables}/dead_letters", name="dead_letters"), DeltaSink(f"{tables}/late", name="late")

    def write_late(rows: DataFrame, batch_id: int) -> None:
        dead(dead_letters(rows), batch_id)
        late(rows.where("dead_letter IS NULL").drop("dead_letter"), batch_id)

    sinks = {"matches": DeltaSink(f"{tables}/alarms"), "errors": DeltaSink(f"{tables}/errors"), "late": write_late}
    return found.run(sinks, checkpoint=checkpoint, **how)


def session() -> SparkSession:
    builder = SparkSession.builder.appName("Kafka to Delta")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("servers", "events", "rules", "tables", "checkpoint"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    job = alarms(session(), given.servers, given.events, given.rules)
    query = run(job, given.tables, given.checkpoint, trigger={"processingTime": "10 seconds"})
    query.awaitTermination()
