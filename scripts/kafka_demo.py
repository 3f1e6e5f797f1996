"""What ``scripts/kafka_demo.sh`` runs beside a broker: ``examples/kafka_to_delta.py``, with events, and a rule that changes."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from asterism import AfterMatchSkipStrategy, Pattern, PatternProcessor
from examples import kafka_to_delta

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

LOG = Path(__file__).parents[1] / "examples" / "data" / "ssh_auth.csv"
NUMBERS = {"event_id", "pid", "port", "valid_user"}
CHANGE = "2017-04-01"
"""A rule is changed when the events before this day have been processed."""


def rule(id: str, version: int, pattern: Pattern) -> tuple[str, str]:
    """A record of the topic of rules."""
    select = ("COUNT(fails.*) AS failures", "LAST(fails.user) AS user")
    return id, json.dumps(PatternProcessor(id, version, pattern, select=select).to_dict())


def failures(times: int) -> Pattern:
    return Pattern.begin("fails", AfterMatchSkipStrategy.skip_past_last_event()).where("event = 'failed'").times(times)


def guessed() -> Pattern:
    return failures(10).followed_by("login").where("event = 'accepted'").within(timedelta(minutes=10))


def many(times: int) -> Pattern:
    return failures(times).within(timedelta(hours=1))


def wait_for(servers: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)
            return
        except KafkaException:
            if time.monotonic() > until:
                raise


def create(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic("logins", 2, 1), NewTopic("login_rules", 1, 1, config={"cleanup.policy": "compact"})]
    for created in admin.create_topics(topics).values():
        created.result(60)


def send(servers: str, topic: str, records: Iterable[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    if producer.flush(60):
        raise TimeoutError(f"records were not sent to {topic}")


def log() -> list[tuple[str, str]]:
    """The events as records; the key is the address. A field that is empty is left out."""
    with LOG.open(encoding="utf-8", newline="") as file:
        rows = [
            {name: int(value) if name in NUMBERS else value for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]
    return [(str(row["ip"]), json.dumps(row)) for row in rows]


def wait_until_read(query: StreamingQuery, records: int) -> None:
    """Wait until the query has processed this number of records, and two more micro-batches, for what waits for the watermark.
    ``processAllAvailable`` would not return: a query with ``idle_after`` has a micro-batch at each trigger.
    """
    while True:
        if error := query.exception():
            raise error
        progress = query.recentProgress
        complete = [each.batchId for each in progress if records_read(each) == records]
        if complete and progress[-1].batchId >= complete[0] + 2:
            return
        time.sleep(0.2)


def records_read(progress: StreamingQueryProgress) -> int:
    offsets = [
        source["endOffset"] for source in json.loads(progress.json)["sources"] if "KafkaV2" in source["description"]
    ]
    return sum(sum(offset["logins"].values()) for offset in offsets if offset)


def main(servers: str, folder: str) -> None:
    def show(table: str, *columns: str) -> None:
        rows = spark.read.format("delta").load(f"{folder}/tables/{table}").selectExpr(*columns)
        print(f"\n{table}: {rows.count()} rows")
        rows.orderBy(*rows.columns).show(truncate=False)

    wait_for(servers)
    create(servers)
    events = log()
    before = [(ip, value) for ip, value in events if json.loads(value)["ts"] < CHANGE]
    print("rules: 10 failed logins and then a login within ten minutes; 100 failed logins within an hour")
    first = [rule("guessed", 1, guessed()), rule("many failures", 1, many(100))]
    send(servers, "login_rules", first)
    print(f"events until {CHANGE}, and two records that hold no event", flush=True)
    send(servers, "logins", [*before, ("127.0.0.1", "hello"), ("127.0.0.1", '{"ts": "yesterday", "ip": "127.0.0.1"}')])

    print("Spark starts; the first micro-batch may compile some functions ...", flush=True)
    spark = kafka_to_delta.session()
    alarms = kafka_to_delta.alarms(spark, servers, "logins", "login_rules")
    checkpoint = f"{folder}/checkpoint"
    query = kafka_to_delta.run(alarms, f"{folder}/tables", checkpoint, trigger={"processingTime": "1 second"})
    wait_until_read(query, len(before) + 2)
    print("these events are processed; the rule for many failures becomes version 2: 30 failed logins", flush=True)
    send(servers, "login_rules", [rule("many failures", 2, many(30))])
    alarms.wait_for({"many failures": 2}, checkpoint)
    send(servers, "logins", events[len(before) :])
    wait_until_read(query, len(events) + 2)
    query.stop()
    print("the input ends: a last run also decides what waits for later events", flush=True)
    try:
        kafka_to_delta.run(alarms, f"{folder}/tables", checkpoint)
    except Exception as error:
        # Kafka's source of Spark 4.1 fails after a micro-batch that is repeated because the query was stopped in it. The
        # micro-batch is complete then. Spark 4.2 has repaired this.
        if "scala.Option.get() is null" not in str(error).replace('"', ""):
            raise
        kafka_to_delta.run(alarms, f"{folder}/tables", checkpoint)
    show(
        "alarms", "start_time", "match_time", "processor_id AS rule", "processor_version AS version", "key[0] AS ip",
        "measures['failures'] AS failures", "measures['user'] AS user",
    )  # fmt: skip
    show("dead_letters", "topic", "CAST(value AS STRING) AS value", "reason")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
