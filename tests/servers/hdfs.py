"""HDFS of the tests' own: a name node and a data node on loopback, in a folder of their own, gone afterwards."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.discovery.servers import NoServerError, free_port, started
from tests.servers.jars import jars

SECONDS = 180
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


class Hdfs:
    """Two processes. Started by :meth:`start`; the name node can be killed and started again. Data stay until :meth:`remove`.

    :param settings: more of Hadoop's settings
    """

    def __init__(self, host: str = "127.0.0.1", settings: Mapping[str, object] | None = None) -> None:
        java = shutil.which("java")
        if java is None:
            raise NoServerError("HDFS needs Java on PATH")
        self.java, self.host, self.port = java, host, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="asterism-hdfs-"))
        self.configuration = self.folder / "conf"
        for pages in ("hdfs", "datanode", "static"):  # which are in no jar, and without which nothing starts
            (self.configuration / "webapps" / pages).mkdir(parents=True)
        self.classpath = ":".join(map(str, [self.configuration, *jars("hdfs")]))
        self.http = f"{host}:{free_port()}"
        self._name_node: subprocess.Popen[bytes] | None = None
        self._data_node: subprocess.Popen[bytes] | None = None
        self._configure(
            {
                "fs.defaultFS": self.uri,
                "dfs.replication": 1,
                "dfs.permissions.enabled": "false",
                "dfs.namenode.name.dir": self.folder / "name",
                "dfs.datanode.data.dir": self.folder / "data",
                "dfs.namenode.http-address": self.http,
                "dfs.datanode.address": f"{host}:{free_port()}",
                "dfs.datanode.ipc.address": f"{host}:{free_port()}",
                "dfs.datanode.http.address": f"{host}:{free_port()}",
                # A name node that has started again is told of all blocks within a second or two.
                "dfs.namenode.safemode.extension": 0,
                "dfs.heartbeat.interval": 1,
                **(settings or {}),
            }
        )
        (self.configuration / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%d %p %m%n\n",
            encoding="utf-8",
        )
        if self._java(NAME_NODE, "-format", "-nonInteractive").wait(SECONDS) != 0:
            raise NoServerError(f"the name node cannot be formatted: {self.log[-300:]!r}")

    def _configure(self, values: Mapping[str, object]) -> None:
        entries = "".join(
            f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
            for name, value in values.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self.configuration / name).write_text(f"<configuration>{entries}</configuration>", encoding="utf-8")

    @property
    def uri(self) -> str:
        return f"hdfs://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        self._data_node = self._java(DATA_NODE)
        self.start_name_node()

    def start_name_node(self) -> None:
        """Also after :meth:`kill_name_node`: returns when files can be written."""
        self._name_node = self._java(NAME_NODE)
        until = time.monotonic() + SECONDS
        while not self.answers():
            if self._name_node.poll() is not None or time.monotonic() > until:
                raise NoServerError(f"the name node does not start: {self.log[-300:]!r}")
            time.sleep(0.1)

    def answers(self) -> bool:
        """Whether the name node knows a data node, and is not in safe mode."""
        bean = f"http://{self.http}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with socket.create_connection((self.host, self.port), 1), urllib.request.urlopen(bean, timeout=2) as answer:
                state = answer.read().decode()
        except (OSError, urllib.error.URLError):
            return False
        return '"FSState" : "Operational"' in state and '"NumLiveDataNodes" : 1' in state

    def kill_name_node(self) -> None:
        _kill(self._name_node)
        self._name_node = None

    def remove(self) -> None:
        self.kill_name_node()
        _kill(self._data_node)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _java(self, main: str, *arguments: object) -> subprocess.Popen[bytes]:
        return started(None, self.folder, self.java, "-Xmx256m", "-cp", self.classpath, main, *arguments)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
