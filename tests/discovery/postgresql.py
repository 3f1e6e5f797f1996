"""A PostgreSQL server of the tests' own: on loopback, in a folder of its own, gone afterwards."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_postgresql.sh"
USER = "rules"
SECONDS = 30


class NoServerError(Exception):
    """In one line, why there is no server."""


class Server:
    """Started by :meth:`start`, ended by :meth:`stop`; its data stay until :meth:`remove`."""

    def __init__(self) -> None:
        with (Path(tempfile.gettempdir()) / "asterism-postgresql.lock").open("w") as lock:
            # Tests run in several processes, and a package is installed by one at a time.
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, timeout=240, check=False)
        if found.returncode != 0:
            raise NoServerError((found.stderr.strip().splitlines() or ["the tests need PostgreSQL"])[-1])
        self.programs = Path(found.stdout.splitlines()[-1])
        self.password = secrets.token_hex(8)
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # Not under pytest's folders, which only their owner can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="asterism-postgresql-"))
        self._user = _other_user()
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
        user = self._user
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self.programs / program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )


def _other_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServerError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
