"""A Kafka broker of the tests' own: on loopback, in a folder of its own, gone afterwards."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.discovery.servers import NoServerError, free_port, started
from tests.kit import JAVA
from tests.servers.jars import jars

SECONDS = 180
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class Topics:
    """What tests do with topics."""

    address: str
    """For ``kafka.bootstrap.servers``."""
    replicas = 1

    def admin(self) -> AdminClient:
        # What the client logs while a broker is down is expected.
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, self.replicas, config=dict(settings or {}))
        admin = self.admin()  # which must live until the result is there
        admin.create_topics([topic])[name].result(SECONDS)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(SECONDS)

    def add_partitions(self, topic: str, total: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(SECONDS)

    def send(self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Send records: (partition, key, value)."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for partition, key, value in records:
            producer.produce(topic, value=value, key=key, partition=partition)
        if producer.flush(SECONDS):
            raise TimeoutError(f"records of {topic} were not sent")

    def records(self, topic: str, *, committed: bool = True) -> list[tuple[int, bytes | None, bytes | None]]:
        """All records of a topic: (partition, key, value), each partition in its order."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "isolation.level": level,
                "enable.auto.commit": False,
            }
            | {"enable.partition.eof": False, "auto.offset.reset": "earliest"}
        )
        try:
            numbers = consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS) for number in numbers
            }
            consumer.assign([TopicPartition(topic, number, begin) for number, (begin, _) in ends.items()])
            rest = {number for number, (begin, end) in ends.items() if begin < end}
            read: list[tuple[int, bytes | None, bytes | None]] = []
            until = time.monotonic() + SECONDS
            while rest and time.monotonic() < until:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    read.append((message.partition() or 0, message.key(), message.value()))
                # Markers of transactions have offsets and are no messages.
                at = {
                    each.partition: each.offset
                    for each in consumer.position([TopicPartition(topic, number) for number in rest])
                }
                rest = {number for number in rest if at[number] < ends[number][1]}
            return sorted(read, key=lambda record: record[0])
        finally:
            consumer.close()


class Broker(Topics):
    """One process that is broker and controller. Started by :meth:`start`, ended by :meth:`stop` or :meth:`kill`; its data
    stay until :meth:`remove`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        settings: Mapping[str, object] | None = None,
        listeners: Mapping[str, int] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """:param listeners: further ones, with their ports; *users*: those of SCRAM, with their passwords"""
        self.classpath = ":".join(map(str, jars("broker")))
        port, controller = free_port(), free_port()
        self.address = f"{host}:{port}"
        self.folder = Path(tempfile.mkdtemp(prefix="asterism-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        addresses = ",".join(
            f"{name}://{host}:{port}" for name, port in {"PLAINTEXT": port, **(listeners or {})}.items()
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{host}:{controller}",
            "listeners": f"{addresses},CONTROLLER://{host}:{controller}",
            "advertised.listeners": addresses,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            # Retention and compaction are seen within seconds.
            "log.retention.check.interval.ms": 500,
            "log.cleaner.backoff.ms": 500,
            "log.initial.task.delay.ms": 500,
            "file.delete.delay.ms": 500,
            **(settings or {}),
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        self.properties = self.folder / "server.properties"
        self.properties.write_text(text, encoding="utf-8")
        scram = [
            text
            for name, password in (users or {}).items()
            for text in ("--add-scram", f"SCRAM-SHA-256=[name={name},password={password}]")
        ]
        made = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self.properties, *scram)
        if made.wait(SECONDS) != 0:
            raise NoServerError(f"the broker's storage cannot be formatted: {self.log[-300:]!r}")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        until = time.monotonic() + SECONDS
        starts = 1
        self._process = self._java("kafka.Kafka", self.properties)
        while not self.answers():
            if self._process.poll() is not None and starts < 3:  # while it was down, a client may have had its port
                self._process = self._java("kafka.Kafka", self.properties)
                starts += 1
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoServerError(f"the broker does not start: {self.log[-300:]!r}")
            time.sleep(0.1)

    def answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except Exception:  # the client's errors have no narrower base
            return False

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _java(self, main: str, *arguments: object) -> subprocess.Popen[bytes]:
        java = shutil.which("java")
        if java is None:
            raise NoServerError("the broker needs Java on PATH")
        return started(None, self.folder, java, *JAVA.split(), "-Xmx512m", "-cp", self.classpath, main, *arguments)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(SECONDS)
        self._process = None
