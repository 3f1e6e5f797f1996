"""What the servers of the tests share: how they are installed, under which user they run, and where they listen."""

from __future__ import annotations

import fcntl
import os
import pwd
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kit import spawned

SCRIPTS = Path(__file__).parents[2] / "scripts"


class NoServerError(Exception):
    """In one line, why there is no server."""


_AnyServer = TypeVar("_AnyServer", bound=Any)


@contextmanager
def or_skipped() -> Iterator[None]:
    """The test is skipped where there cannot be a server that the block needs."""
    try:
        yield
    except NoServerError as error:
        pytest.skip(str(error))


@contextmanager
def running(kind: Callable[[], _AnyServer]) -> Iterator[_AnyServer]:
    """A server, which is removed in the end.

    :raises NoServerError: there cannot be one
    """
    server = kind()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def running_or_skipped(kind: Callable[[], _AnyServer]) -> Iterator[_AnyServer]:
    """:func:`running`; the test is skipped where there cannot be such a server."""
    with ExitStack() as stack:
        with or_skipped():
            server = stack.enter_context(running(kind))
        yield server


def installed(script: str, *arguments: str) -> list[str]:
    """The lines that a script prints, which installs a server if there is none.

    :raises NoServerError: it cannot be installed
    """
    with (Path(tempfile.gettempdir()) / "asterism-servers.lock").open("w") as lock:
        # Tests run in several processes, and a package is installed by one at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = subprocess.run(
            ["sh", str(SCRIPTS / script), *arguments], capture_output=True, text=True, timeout=600, check=False
        )
    if run.returncode != 0:
        raise NoServerError((run.stderr.strip().splitlines() or [f"{script} failed"])[-1])
    return run.stdout.splitlines()


def other_user(*names: str) -> pwd.struct_passwd | None:
    """Servers refuse to run as root."""
    if os.getuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServerError(f"the server does not run as root, and there is no user {' or '.join(names)} to run it as")


def started(
    user: pwd.struct_passwd | None, folder: Path, program: str | Path, *arguments: object
) -> subprocess.Popen[bytes]:
    """A program under another user, in *folder*, which has its output. It ends with this process."""
    with (folder / "log").open("ab") as log:
        return spawned(
            [str(program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            start_new_session=True,
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
