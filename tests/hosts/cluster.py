"""A standalone cluster of Spark on hosts: a master, workers, drivers, and HDFS. Nothing else is shared."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.processes import SPARK_HOME
from tests.hosts import services
from tests.hosts.hdfs import Hdfs
from tests.hosts.namespaces import Host, Hosts, Program
from tests.kit import JAVA, ROOT

MASTER_PORT = 7077
WORKERS = ("worker1", "worker2", "worker3")
_NAMES = ("storage", "master", "driver1", "driver2", *WORKERS, "worker4", "kafka", "s3")
_CLASS = "org.apache.spark.deploy"
LOST_AFTER = 10
"""After so many seconds without an answer, a host counts as lost. Spark's default is two minutes."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.network.timeoutInterval": "2s",
    "spark.rpc.io.enableTcpKeepAlive": "true",  # else nobody notices that the host of the driver is gone
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.task.maxFailures": "8",
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.timeout": "30s",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "1",
    "spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "2",
    "spark.hadoop.dfs.client.use.datanode.hostname": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.minBatchesToRetain": "10000",  # the checker replays from the offset log
}
"""Of a session. The address of the driver and the default file system are not among them."""


def timeouts(seconds: int) -> Mapping[str, str]:
    """The settings of a session with which a host counts as lost that does not answer for so long."""
    return {
        "spark.network.timeout": f"{seconds}s",
        "spark.executor.heartbeatInterval": f"{seconds // 5}s",
        "spark.files.fetchTimeout": f"{seconds}s",
        # Of Hadoop's client, to reach a name node or data node.
        "spark.hadoop.ipc.client.connect.timeout": str(seconds * 300),
        "spark.hadoop.ipc.client.rpc-timeout.ms": str(seconds * 500),
        "spark.hadoop.dfs.client.socket-timeout": str(seconds * 500),
    }


class Cluster:
    """Hosts with a running HDFS, a master and three workers with one core each.

    :param seconds: after which a host counts as lost that does not answer
    """

    def __init__(self, seconds: int = LOST_AFTER, seed: int = 0, keep: bool = False) -> None:
        self.seconds = seconds
        self.hosts = Hosts(_NAMES, seed, keep, attempts=6 if seconds == LOST_AFTER else 15)
        self.here = self.hosts.here
        self.runs = 0
        """How many queries there have been."""

    def __enter__(self) -> Self:
        with self.hosts:
            self.storage = self.hosts.add("storage")
            self.hdfs = Hdfs(self.storage)
            self.hdfs.start()
            self.master = self.hosts.add("master")
            address = ("--host", "master", "--port", str(MASTER_PORT), "--webui-port", "8080")
            program = self._spark(self.master, "master", f"{_CLASS}.master.Master", *address)
            self.url = f"spark://master:{MASTER_PORT}"
            program.wait_for("New state: ALIVE")
            workers = [self._start_worker(name) for name in WORKERS]
            for worker in workers:
                worker.wait_for("Successfully registered with master")
            self.hosts.stay()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hosts.__exit__(kind, error, traceback)

    def add_worker(self, name: str) -> None:
        self._start_worker(name).wait_for("Successfully registered with master")

    def remove_worker(self, name: str) -> None:
        """The host is gone."""
        self.hosts.remove(name)

    def _start_worker(self, name: str) -> Program:
        options = ["--host", name, "--cores", "1", "--memory", "1g", "--webui-port", "8081"]
        options += ["--work-dir", str(self.here / "work"), f"spark://master:{MASTER_PORT}"]
        return self._spark(self.hosts.add(name), name, f"{_CLASS}.worker.Worker", *options)

    def _spark(self, host: Host, name: str, *arguments: str) -> Program:
        return host.start(name, str(SPARK_HOME / "bin" / "spark-class"), *arguments, **self.variables(host))

    def serve(self, name: str, folder: Path) -> Mapping[str, str]:
        """A server of :mod:`tests.hosts.services` on a host of its own, for *folder*; the settings to reach it."""
        if name in self.hosts:  # of another query
            self.hosts.remove(name)
        host = self.hosts.add(name)
        if folder.exists():
            shutil.copytree(folder, host.folder / folder.name)
        program = self.run(name, "server", "tests.hosts.services", name, str(self.here / folder.name))
        program.wait_for(host.folder / folder.name / services.SETTINGS)
        settings: Mapping[str, str] = json.loads((host.folder / folder.name / services.SETTINGS).read_text())
        return settings

    def variables(self, host: Host) -> Mapping[str, str]:
        """The environment of Spark on a host."""
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_DAEMON_JAVA_OPTS": (
                f"{JAVA} -Dspark.worker.timeout={self.seconds} -Dspark.network.timeout={self.seconds}s"
                " -Dspark.network.timeoutInterval=2s -Dspark.rpc.io.enableTcpKeepAlive=true"
            ),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, driver: str, name: str, module: str, *arguments: str) -> Program:
        """A Python program on the host of a driver."""
        host = self.hosts[driver]
        return host.start(name, sys.executable, "-m", module, *arguments, **self.variables(host))
