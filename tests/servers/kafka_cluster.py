"""A Kafka cluster of three brokers on loopback, with three replicas of each partition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.discovery.servers import free_port
from tests.servers.kafka import Broker, Topics

COUNT = 3


class Cluster(Topics):
    """Each broker is a controller, too. A record is written when two of the three have it.

    :ivar brokers: by their node ids minus one
    """

    replicas = COUNT

    def __init__(self, host: str = "127.0.0.1") -> None:
        ports = [(free_port(), free_port()) for _ in range(COUNT)]
        voters = ",".join(f"{number}@{host}:{controller}" for number, (_, controller) in enumerate(ports, 1))
        self.brokers: list[Broker] = []
        for number, (port, controller) in enumerate(ports, 1):
            settings = {
                "node.id": number,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{host}:{port}",
                "min.insync.replicas": 2,
                "broker.session.timeout.ms": 3_000,  # after which another one is the leader
                "broker.heartbeat.interval.ms": 500,
                "offsets.topic.replication.factor": COUNT,
                "transaction.state.log.replication.factor": COUNT,
                "transaction.state.log.min.isr": 2,
            }
            broker = Broker(host, settings)
            broker.address = f"{host}:{port}"
            self.brokers.append(broker)
        self.address = ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        with ThreadPoolExecutor(COUNT) as threads:  # none of them answers before there is a majority
            list(threads.map(Broker.start, self.brokers))

    def leader(self, topic: str, partition: int) -> Broker:
        admin = self.admin()
        return self.brokers[admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader - 1]

    def remove(self) -> None:
        for broker in self.brokers:
            broker.remove()
