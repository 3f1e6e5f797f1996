"""A consumer of Kafka that finds attacks in a topic of logins, without Spark: a live engine and ``confluent-kafka``.

    python -m examples.live_kafka localhost:9092 logins attacks --folder attacks-state

The positions of the batches are the offsets of the partitions. After a failure, the consumer seeks to those of the last snapshot,
so that no record is lost; a match that is produced twice has the same id, its key in the topic.

Several processes, on one machine or on several, share the partitions of a topic whose records are divided by user. Each has a
folder with the state of its part:

    python -m examples.live_kafka localhost:9092 logins attacks --part 1/2 --folder attacks-state-1 &
    python -m examples.live_kafka localhost:9092 logins attacks --part 2/2 --folder attacks-state-2
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from datetime import timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from asterism import CEP, KeyedStream, Pattern

LOGINS: Any = KeyedStream(
    pa.schema([("user", pa.string()), ("ts", pa.int64()), ("event", pa.string()), ("partition", pa.int32())]),
    key="user",
    time="ts",
    max_out_of_orderness=timedelta(seconds=1),
    watermark_by=["partition"],
    idle_after=timedelta(seconds=30),
)
ATTACK = (
    Pattern.begin("fails").where("event = 'failed'").times_or_more(3).consecutive()
    .next("login").where("event = 'accepted'").within(timedelta(minutes=10))
)  # fmt: skip


def run(servers: str, source: str, target: str, folder: str, part: tuple[int, int], stopped: threading.Event) -> None:
    """Read until *stopped* is set.

    :param part: (the number of this process, from 1 on; how many there are)
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "attacks", "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    select = {"matches": ["match_id", "COUNT(fails.*) AS failures", "login.ts AS at"]}
    with CEP.pattern(LOGINS, ATTACK).open(folder, select=select) as engine:
        position = dict(engine.position or {})  # the offsets to read next, by partition
        number, parts = part
        every = consumer.list_topics(source, timeout=30).topics[source].partitions
        partitions = [partition for partition in every if partition % parts == number - 1]
        if not position.keys() <= {str(partition) for partition in partitions}:
            raise SystemExit(f"the state in {folder} is that of other partitions: {', '.join(position)}")
        consumer.assign([TopicPartition(source, n, position.get(str(n), OFFSET_BEGINNING)) for n in partitions])
        try:
            while not stopped.is_set():
                events = []
                for message in consumer.consume(1000, timeout=0.1):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    position[str(message.partition())] = message.offset() + 1
                    events.append(json.loads(message.value()) | {"partition": message.partition()})
                # Without events, partitions become idle.
                rows = engine.process(events, position=position) if events else engine.advance_processing_time()
                for match in rows["matches"].to_pylist():
                    producer.produce(target, key=match["match_id"], value=json.dumps(match))
                # The next call says that these rows are written.
                if producer.flush(30):
                    raise RuntimeError("matches could not be written")
        finally:
            consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--folder", default="attacks-state")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three processes; default: 1/1")
    arguments = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    number, parts = map(int, arguments.part.split("/"))
    run(arguments.servers, arguments.source, arguments.target, arguments.folder, (number, parts), stopped)


if __name__ == "__main__":
    main()
