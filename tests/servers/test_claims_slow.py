"""Two processes that write the same file at the same time, and must not both succeed: on HDFS and on S3.

What storages promise to those who ask for it, what Spark asks for, and how a store of rules is claimed. Without a session of
Spark: its file managers are used by themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.discovery.servers import running_or_skipped
from tests.kit import ROOT, spawned
from tests.servers.faulty_http import Weather
from tests.servers.hdfs import Hdfs
from tests.servers.jars import jars
from tests.servers.s3 import BUCKET, S3

RACES = 200


class Race:
    """Two claimants.

    :param root: the scheme and the authority of URIs; *folder* is their folder there
    """

    def __init__(self, root: str, folder: str, settings: dict[str, str], classpath: str = "") -> None:
        self.folder = folder
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", "tests.servers.claimant", root, json.dumps(settings)]
        self.claimants = [
            spawned(
                command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path, "CLASSPATH": classpath},
            )
            for _ in range(2)
        ]  # fmt: skip

    def run(self, way: str, name: str) -> list[str]:
        """The answers of both."""
        for claimant in self.claimants:
            assert claimant.stdin is not None
            claimant.stdin.write(f"{way} {self.folder}/{name}\n")
        for claimant in self.claimants:
            assert claimant.stdin is not None
            claimant.stdin.flush()
        answers = []
        for claimant in self.claimants:
            assert claimant.stdout is not None
            answers.append(claimant.stdout.readline().strip())
        return answers

    def winners(self, way: str) -> Counter[int]:
        """How often none, one or both have won."""
        begin = time.monotonic()
        seen = [self.run(way, f"{way}/{number}") for number in range(RACES)]
        lost = Counter(answer for answers in seen for answer in answers if answer != "won")
        found = Counter(answers.count("won") for answers in seen)
        sys.stdout.write(f"{way}: winners {dict(found)}, losers {dict(lost)}, {time.monotonic() - begin:.0f} s\n")
        return found

    def close(self) -> None:
        for claimant in self.claimants:
            claimant.kill()
            claimant.communicate()


@contextmanager
def racing(root: str, folder: str, settings: dict[str, str], classpath: str = "") -> Iterator[Race]:
    race = Race(root, folder, settings, classpath)
    try:
        yield race
    finally:
        race.close()


@pytest.fixture
def on_hdfs() -> Iterator[Race]:
    with (
        running_or_skipped(Hdfs) as server,
        racing(server.uri, "/races", {"dfs.replication": "1"}) as race,
    ):
        yield race


def test_on_hdfs(on_hdfs: Race) -> None:
    """The name node gives a file that is not overwritten to one of two, and so do Spark's logs."""
    assert on_hdfs.winners("create") == {1: RACES}
    assert on_hdfs.winners("spark") == {1: RACES}
    the_last_has_it(on_hdfs)


def the_last_has_it(race: Race) -> None:
    """Both claim a store of rules, and then one of them has it: the last."""
    for number in range(RACES):
        assert race.run("claim", f"stores/{number}") == ["won", "won"]
        assert sorted(race.run("owner", f"stores/{number}")) == ["another", "won"]


@pytest.fixture
def server() -> Iterator[S3]:
    with running_or_skipped(S3) as server:
        yield server


def test_on_s3(server: S3) -> None:
    """A conditional write gives an object to one of two. Spark does not ask for it: it looks whether there is an object, and then
    writes it, so that both can succeed.
    """
    server.weather = Weather(seconds=0.005)  # as far as a store is that is near
    classpath = os.pathsep.join(map(str, jars("s3a")))
    with racing(f"s3a://{BUCKET}", "/races", server.hadoop, classpath) as race:
        assert race.winners("conditional") == {1: RACES}
        assert race.winners("create")[2] > 0
        assert race.winners("spark_on_s3")[2] > 0
        the_last_has_it(race)
