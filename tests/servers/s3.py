"""A server with the protocol of S3, behind a proxy that can disturb it: on loopback, its objects in memory."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from pyarrow import fs

from tests.discovery.servers import NoServerError, free_port, started
from tests.servers.faulty_http import FaultyProxy, Weather
from tests.servers.jars import jars

SECONDS = 180
BUCKET = "asterism"
KEY, SECRET = "a-key", "a-secret"


class S3:
    """One bucket. Programs use :attr:`endpoint`, which *weather* disturbs; :meth:`files` asks the server itself."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        if find_spec("moto") is None or find_spec("flask") is None:
            raise NoServerError("tests with S3 need moto[server], which is in the extra dev")
        self.host, self.port = host, free_port()
        self.folder = tempfile.TemporaryDirectory(prefix="asterism-s3-")
        self.proxy = FaultyProxy(self.port, host)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return self.proxy.address

    @property
    def weather(self) -> Weather:
        return self.proxy.weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self.proxy.weather = weather

    def start(self) -> None:
        folder = Path(self.folder.name)
        self._server = started(None, folder, sys.executable, "-m", "moto.server", "-H", self.host, "-p", self.port)
        until = time.monotonic() + SECONDS
        while not self._has_bucket():
            if self._server.poll() is not None or time.monotonic() > until:
                raise NoServerError(f"the server of S3 does not start: {(folder / 'log').read_text()[-300:]!r}")
            time.sleep(0.1)
        self.proxy.start()

    def _has_bucket(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request(
                "PUT", f"/{BUCKET}", headers={"Host": "s3.amazonaws.com", "Authorization": authorization()}
            )
            return connection.getresponse().status in (200, 409)
        except OSError:
            return False
        finally:
            connection.close()

    def remove(self) -> None:
        self.proxy.stop()
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGKILL)
            self._server.wait(SECONDS)
        self.folder.cleanup()

    def files(self) -> fs.S3FileSystem:
        """As Arrow has them, past the proxy."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"{self.host}:{self.port}",
        )

    @property
    def hadoop(self) -> dict[str, str]:
        """Hadoop's settings with which S3A uses this server."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }

    @property
    def spark(self) -> dict[str, str]:
        """Spark's settings with which S3A uses this server."""
        return {
            "spark.jars": ",".join(map(str, jars("s3a"))),
            **{f"spark.hadoop.{name}": value for name, value in self.hadoop.items()},
        }


def authorization() -> str:
    """Of a request to S3, which the server does not check but from which it takes that it is one."""
    return f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
