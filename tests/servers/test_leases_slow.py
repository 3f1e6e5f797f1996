"""One process at a time holds a lease on HDFS and on S3, also when the store refuses every tenth request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.discovery.servers import running_or_skipped
from tests.kit import ROOT, spawned
from tests.servers.faulty_http import Weather
from tests.servers.hdfs import Hdfs
from tests.servers.s3 import BUCKET, S3

EXPIRY = 8.0
PROCESS = """
import json, sys
from asterism.errors import CheckpointInUseError, LeaseLostError
from asterism.files.lease import Lease

location, settings, expiry = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
lease = None
for line in sys.stdin:
    command, _, folder = line.strip().partition(" ")
    try:
        if command == "acquire":
            lease = Lease(f"{location}/{folder}", "the checkpoint", settings, expiry=expiry)
            lease.acquire()
        elif command == "check":
            lease.check()
        else:
            lease.release()
        print("done", flush=True)
    except (CheckpointInUseError, LeaseLostError) as error:
        print(error.code, flush=True)
"""


class Claimant:
    def __init__(self, location: str, settings: Mapping[str, str]) -> None:
        self.process: subprocess.Popen[str] = spawned(
            [sys.executable, "-c", PROCESS, location, json.dumps(settings), str(EXPIRY)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip

    def ask(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    @property
    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def told(self, command: str) -> str:
        self.ask(command)
        return self.answer

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["hdfs", "s3"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    kinds: dict[str, Callable[[], Hdfs | S3]] = {"hdfs": Hdfs, "s3": S3}
    with running_or_skipped(kinds[request.param]) as server:
        if isinstance(server, S3):
            server.weather = Weather(seconds=0.01, broken=10)
            yield f"s3a://{BUCKET}", server.hadoop
        else:
            yield server.uri, {"dfs.replication": "1"}


def test_a_lease_has_one_holder(store: tuple[str, dict[str, str]]) -> None:
    claimants = [Claimant(*store) for _ in range(3)]
    first, second, third = claimants
    try:
        for number in range(5):  # both at once
            for claimant in (first, second):
                claimant.ask(f"acquire races/{number}")
            answers = sorted([first.answer, second.answer])
            assert answers in (["CHECKPOINT_IN_USE", "done"], ["CHECKPOINT_IN_USE"] * 2)
        assert first.told("acquire lease") == "done"
        assert second.told("acquire lease") == "CHECKPOINT_IN_USE"
        first.process.send_signal(signal.SIGSTOP)
        assert second.told("acquire lease") == "done"
        first.process.send_signal(signal.SIGCONT)
        assert first.told("check") == "LEASE_LOST"
        assert second.told("check") == "done"
        second.close()
        assert third.told("acquire lease") == "done"
        assert third.told("release") == "done"
        assert first.told("acquire lease") == "done"
    finally:
        for claimant in claimants:
            claimant.close()
