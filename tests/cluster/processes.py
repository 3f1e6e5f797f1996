"""Processes of Spark: a standalone cluster on this machine, and a server of Spark Connect."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.kit import JAVA, ROOT, kill_session, spawned, until

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE = 600.0
"""Seconds. Starting some JVMs at once takes long on a machine that is busy with other things."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.ui.enabled": "false",
}
"""What a session needs in a test. All other settings are Spark's defaults."""


class Process:
    """A program that is killed at the end, with all its children. Its log is *name*.log in *folder*, where it runs.

    :param command: a program, or one in Spark's folder ``bin``
    """

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self.log = folder / f"{name}.log"
        environment = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYSPARK_PYTHON": sys.executable,
        }
        program = SPARK_HOME / "bin" / command[0]
        with self.log.open("wb") as log:
            self._process = spawned(
                [str(program) if program.exists() else command[0], *command[1:]],
                env=os.environ | environment, cwd=folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the program and all processes that it has started, by ``kill -9``."""
        kill_session(self._process.pid)
        self._process.wait()

    @property
    def status(self) -> int | None:
        """The exit status, if the program has ended."""
        return self._process.poll()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, path: Path | None = None) -> None:
        """Wait until the program has made a file, or, without one, has ended."""
        until(lambda: self.status is not None or (path is not None and path.exists()), seconds=PATIENCE)
        assert path.exists() if path is not None else self.status == 0, self.text()[-5000:]

    def wait_for_line(self, pattern: str) -> str:
        """Wait for a line of the log, and return the group of the *pattern*."""
        until(lambda: self.status is not None or re.search(pattern, self.text()), seconds=PATIENCE)
        found = re.search(pattern, self.text())
        assert found is not None, self.text()[-5000:]
        return found[1]


class Cluster:
    """A master, and two workers with one core each.

    :param folder: for logs, and the working directories of the executors
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._workers: list[Process] = []
        self._started = 0
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        with self._stack as stack:
            local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            master = stack.enter_context(Process(self.folder, "master", "spark-class", _MASTER, *local))
            self.url = master.wait_for_line(r"Starting Spark master at (spark://\S+)")
            self.start_worker()
            self.start_worker()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def start_worker(self) -> None:
        name = f"worker{self._started}"
        self._started += 1
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--webui-port", "0", "--work-dir", name]
        worker = Process(self.folder, name, "spark-class", _WORKER, *options, self.url)
        self._workers.append(self._stack.enter_context(worker))

    def kill_worker(self) -> None:
        """Kill the oldest worker and its executors."""
        self._workers.pop(0).kill()


def connect_server(folder: Path) -> Process:
    """A server of Spark Connect with two cores, at any port."""
    conf = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    return Process(
        folder, "server", "spark-submit", "--class", _CONNECT, "--master", "local[2]", *conf,
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.connect.grpc.binding.port=0",
        "spark-internal",
    )  # fmt: skip
