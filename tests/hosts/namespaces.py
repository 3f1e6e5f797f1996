"""Hosts: each has namespaces of its own for the network, mounts, processes and the name, an address, and a folder.

All other folders are read-only on a host: so what one host has written, no other host sees. The code and Python's environment are
there, as if installed on each host. Everything ends with the host's first process, and that with this process, also by kill -9.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.discovery.servers import NoServerError, installed
from tests.hosts.network import CUT, MTU, Link, Network, tun
from tests.kit import until

NET = "10.111.0"
_FIRST = r"""
set -e
mount --bind "$ALL/$NAME" "$HERE"
mount -o remount,bind,ro /
mount --bind "$ALL/$NAME/etc-hosts" /etc/hosts
mount -t tmpfs tmpfs /dev/shm
hostname "$NAME"
ip link set lo up
cd /proc/sys/net/ipv4
echo 5 > tcp_keepalive_time
echo 2 > tcp_keepalive_intvl
echo $ATTEMPTS > tcp_keepalive_probes
echo $ATTEMPTS > tcp_retries2
touch "$HERE/is-up"
exec sleep infinity
"""
"""The first process of a host. With 6 attempts, a connection to a host that is gone ends after 17 s without traffic, or after
25 s with some.
"""


def check_machine() -> None:
    """:raises NoServerError: this machine cannot have hosts"""
    if os.getuid() != 0:
        raise NoServerError("hosts in network namespaces need root")
    if not Path("/dev/net/tun").exists():
        raise NoServerError("hosts in network namespaces need /dev/net/tun")
    installed("ensure_namespaces.sh")
    run = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if run.returncode != 0:
        raise NoServerError("this machine does not allow namespaces")


class Host:
    """:ivar here: its folder, as it sees it, the same path on all hosts; :ivar folder: the same, as this machine sees it"""

    def __init__(self, hosts: Hosts, name: str, number: int) -> None:
        self.name, self.address = name, f"{NET}.{number}"
        self.here, self.folder = hosts.here, hosts.all / name
        self._network = hosts.network
        shutil.rmtree(self.folder, ignore_errors=True)  # of a host of this name that was lost
        for folder in ("tmp", "home"):
            (self.folder / folder).mkdir(parents=True)
        names = [f"{NET}.{other} {name}" for name, other in hosts.numbers.items()]
        (self.folder / "etc-hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        environment = os.environ | {"ALL": str(hosts.all), "HERE": str(hosts.here), "NAME": name}
        environment["ATTEMPTS"] = str(hosts.attempts)
        with (self.folder / "log").open("wb") as log:
            self._first = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", _FIRST],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._programs: list[subprocess.Popen[bytes]] = []
        try:
            until(lambda: (self.folder / "is-up").exists() or self._first.poll() is not None, seconds=30)
            if self._first.poll() is not None:
                raise NoServerError(f"a host does not start: {(self.folder / 'log').read_text()[-300:]}")
            self._process = int(Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()[0])
            device = f"ast{os.getpid() % 10**7}x{number}"
            self._network.attach(self.address, tun(device, self._process))
            self.run("ip", "addr", "add", f"{self.address}/24", "dev", device)
            self.run("ip", "link", "set", device, "mtu", str(MTU), "up")
        except BaseException:
            self._end()
            raise

    def _command(self, command: tuple[str, ...], variables: Mapping[str, str]) -> list[str]:
        return [
            "setpriv", "--pdeathsig", "KILL", "nsenter", "--target", str(self._process), "--net", "--mount", "--uts",
            "--ipc", "--pid", "env", *(f"{name}={value}" for name, value in variables.items()),
            "sh", "-c", f"cd {shlex.quote(str(self.here))} && exec {shlex.join(command)}",
        ]  # fmt: skip

    def run(self, *command: str, **variables: str) -> str:
        """The output of a program on this host, which must succeed."""
        run = subprocess.run(
            self._command(command, self._variables | variables), capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)} on {self.name}: {run.stderr[-2000:]}")
        return run.stdout

    def start(self, name: str, *command: str, **variables: str) -> Program:
        """A program on this host. Its log is *name*.log in the folder of the host."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                self._command(command, self._variables | variables),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self._programs.append(process)
        return Program(self, log, process)

    @property
    def _variables(self) -> dict[str, str]:
        tmp = str(self.here / "tmp")
        return {"TMPDIR": tmp, "HOME": str(self.here / "home"), "SPARK_LOCAL_DIRS": tmp} | {
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp} -XX:-UsePerfData"
        }

    def cut(self, *others: Host) -> None:
        """No packet goes from this host to the *others*, and none back; nobody is told."""
        self.link(CUT, *others)

    def link(self, link: Link, *others: Host) -> None:
        self._network.link([self.address], [other.address for other in others], link)

    def lose(self) -> None:
        """The host is gone, with everything that runs on it; its folder stays for the test."""
        self._network.detach(self.address)
        self._end()

    def _end(self) -> None:
        self._first.kill()  # the kernel then kills all processes of the host
        self._first.wait()
        for program in self._programs:
            program.wait()


class Program:
    """A program on a host."""

    def __init__(self, host: Host, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.host, self.log, self._process = host, log, process

    @property
    def status(self) -> int | None:
        """The exit status, if the program has ended."""
        return self._process.poll()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, condition: object, seconds: float = 300.0) -> None:
        """Wait until a path exists, a text is in the log, or a condition is true, while the program runs."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            if self.status is not None and not self._holds(condition):
                raise AssertionError(f"{self.log} has ended with {self.status}: {self.text()[-4000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"{self.log}: {condition} takes longer than {seconds:g} s: {self.text()[-4000:]}")
            time.sleep(0.05)

    def _holds(self, condition: object) -> bool:
        if isinstance(condition, Path):
            return condition.exists()
        if isinstance(condition, str):
            return condition in self.text()
        assert callable(condition)
        return bool(condition())

    def end(self, seconds: float = 300.0) -> None:
        """Wait for its end, which must be a success."""
        self.wait_for(lambda: self.status is not None, seconds)
        assert self.status == 0, f"{self.log} has ended with {self.status}: {self.text()[-4000:]}"


class Hosts:
    """Hosts by name, in one network. At the end they are gone, and their folders too.

    :param names: that there may be
    :param attempts: of TCP to send a packet, or to see whether the other host is there
    :ivar numbers: the last part of the address of each name
    """

    def __init__(self, names: Collection[str], seed: int = 0, keep: bool = False, attempts: int = 6) -> None:
        self.numbers = {name: number for number, name in enumerate(names, 1)}
        self.keep, self.attempts = keep, attempts
        self.base = Path(tempfile.mkdtemp(prefix="asterism-hosts-"))
        self.all, self.here = self.base / "hosts", self.base / "here"
        self.all.mkdir()
        self.here.mkdir()
        self.network = Network(seed)
        self._hosts: dict[str, Host] = {}
        self._stays = False

    def __enter__(self) -> Self:
        self.network.start()
        return self

    def stay(self) -> None:
        """Leave the hosts as they are at the end of this ``with`` block, and remove them at the next."""
        self._stays = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stays and error is None:
            self._stays = False
            return
        for name in list(self._hosts):
            self.remove(name)
        self.network.close()
        if not self.keep:
            shutil.rmtree(self.base, ignore_errors=True)

    def __contains__(self, name: str) -> bool:
        return name in self._hosts

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def add(self, name: str) -> Host:
        host = Host(self, name, self.numbers[name])
        self._hosts[name] = host
        return host

    def remove(self, name: str) -> None:
        self._hosts.pop(name).lose()
