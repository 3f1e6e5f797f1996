"""A name node and a data node of Hadoop's file system on a host."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hosts.namespaces import Host, Program
from tests.servers.jars import jars

PORT = 9000
_LOG = """
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_FORMAT = ("-format", "-nonInteractive", "-force")
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_SHELL = "org.apache.hadoop.fs.FsShell"


class Hdfs:
    """Runs on *host* until that ends. Its files are in the folder of the host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.uri = f"hdfs://{host.name}:{PORT}"
        classpath = ":".join([str(host.here / "conf"), *map(str, jars("hdfs"))])
        self._java = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath)
        for pages in ("hdfs", "datanode", "static"):  # which are in no jar, and without which nothing starts
            (host.folder / "conf" / "webapps" / pages).mkdir(parents=True)
        (host.folder / "conf" / "log4j.properties").write_text(_LOG)
        name = host.name
        core = {"fs.defaultFS": self.uri, "hadoop.tmp.dir": host.here / "hadoop"}
        hdfs = {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.rpc-address": f"{name}:{PORT}",
            "dfs.namenode.http-address": f"{name}:9870",
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.address": f"{name}:9866",
            "dfs.datanode.ipc.address": f"{name}:9867",
            "dfs.datanode.http.address": f"{name}:9864",
            "dfs.datanode.hostname": name,
            "dfs.client.use.datanode.hostname": "true",
        }
        for file, properties in (("core-site", core), ("hdfs-site", hdfs)):
            (host.folder / "conf" / f"{file}.xml").write_text(_xml(properties))

    def start(self) -> list[Program]:
        self.host.run(*self._java, _NAMENODE, *_FORMAT)
        namenode = self.host.start("namenode", *self._java, _NAMENODE)
        datanode = self.host.start("datanode", *self._java, _DATANODE)
        namenode.wait_for("IPC Server Responder: starting")
        datanode.wait_for("Successfully sent block report")
        return [namenode, datanode]

    def shell(self, *arguments: str) -> str:
        """The output of ``hdfs dfs`` on the host, whose own folder is the local one."""
        return self.host.run(*self._java, _SHELL, *arguments)


def _xml(properties: Mapping[str, object]) -> str:
    rows = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()]
    return "\n".join(["<configuration>", *rows, "</configuration>", ""])
