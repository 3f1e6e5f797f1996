"""A MariaDB server of the tests' own: on loopback, in a folder of its own, gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from tests.discovery.servers import NoServerError, free_port, installed, other_user, started

USER = "rules"
SECONDS = 180


class MariadbServer:
    """Started by :meth:`start`, ended by :meth:`stop`; its data stay until :meth:`remove`."""

    def __init__(self) -> None:
        self._install, self._server = installed("ensure_mariadb.sh")[-2:]
        self.password = secrets.token_hex(8)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # Not under pytest's folders, which only their owner can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="asterism-mariadb-"))
        self._user = other_user("mysql")
        first = self.folder / "first.sql"
        first.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        if self._user is not None:
            for path in (self.folder, first):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = ["--no-defaults", f"--datadir={self.folder / 'data'}", "--auth-root-authentication-method=normal"]
        made = started(self._user, self.folder, self._install, *options, "--skip-test-db", "--cross-bootstrap")
        if made.wait(SECONDS) != 0:
            raise NoServerError(f"mariadb-install-db failed: {self.log[-300:]!r}")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def address(self) -> str:
        return f"mariadb://{USER}:{self.password}@127.0.0.1:{self.port}"

    def start(self) -> None:
        options = [
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
        ]
        options += [f"--socket={self.socket}", f"--init-file={self.folder / 'first.sql'}"]
        options += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--skip-name-resolve"]
        self._process = started(self._user, self.folder, self._server, *options)
        until = time.monotonic() + SECONDS
        while True:
            try:
                self.connect().close()
                return
            except pymysql.Error as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise NoServerError(f"mariadbd does not start: {error} {self.log[-300:]!r}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, database=database, autocommit=True,
            connect_timeout=5,
        )  # fmt: skip
