"""A PostgreSQL server of the tests' own: on loopback, in a folder of its own, gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from tests.discovery.servers import NoServerError, free_port, installed, other_user, started

USER = "rules"
SECONDS = 180


class Server:
    """Started by :meth:`start`, ended by :meth:`stop`; its data stay until :meth:`remove`."""

    def __init__(self) -> None:
        self.programs = Path(installed("ensure_postgresql.sh")[-1])
        self.password = secrets.token_hex(8)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # Not under pytest's folders, which only their owner can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="asterism-postgresql-"))
        self._user = other_user("postgres")
        password = self.folder / "password"
        password.write_text(self.password, encoding="utf-8")
        if self._user is not None:
            for path in (self.folder, password):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = ["-D", self.data, "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", "-E", "UTF8"]
        made = self._run("initdb", *options, "--locale=C", "--no-sync")
        if made.wait(SECONDS * 2) != 0:
            raise NoServerError(f"initdb failed: {self.log[-300:]!r}")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def address(self) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "fsync": "off", "max_connections": 50}
        settings |= {"unix_socket_directories": self.folder}
        self._process = self._run(
            "postgres", "-D", self.data, *(part for item in settings.items() for part in ("-c", "{}={}".format(*item)))
        )
        until = time.monotonic() + SECONDS
        while True:
            try:
                self.connect("postgres").close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise NoServerError(f"postgres does not start: {error} {self.log[-300:]!r}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        """At once, ending all connections; what was committed is there after the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(SECONDS)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(f"{self.address}/{database}", autocommit=True, connect_timeout=5)

    def _run(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        return started(self._user, self.folder, self.programs / program, *arguments)
