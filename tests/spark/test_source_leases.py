"""Over Spark Connect, the control source holds the lease of the checkpoint, in a process of the server, which Spark ends; and
functions for savepoints hold it in the client.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asterism.errors import CheckpointInUseError, LeaseLostError
from asterism.spark.host.control_source import ControlReader, ControlSource, renamed
from asterism.spark.host.versions import ReadMaxRows
from asterism.spark.session import leases
from asterism.spark.session.leases import FOLDER
from tests.kit import ROOT

LIMIT = ReadMaxRows(1)
BUSY = 3.0
"""Seconds of a lease that is not lost on a busy machine."""
FIRST = {"messages": 0, "keyGroups": 2, "definition": "d"}
CALLS: list[Callable[[Any], object]] = [
    lambda reader: reader.initialOffset(),
    lambda reader: reader.latestOffset(FIRST, LIMIT),
    lambda reader: reader.partitions(FIRST, FIRST | {"messages": 1}),
]
"""Each may be the first one of a query."""
HOLDS = """
import sys, time
from asterism.spark.host.control_source import ControlReader
reader = ControlReader({"keyGroups": "2", "definition": "d", "checkpoint": sys.argv[1], "leaseSeconds": sys.argv[2]})
reader.initialOffset()
with reader._lease._lease._lock:  # as if it were about to renew it
    print("holds", flush=True)
    time.sleep(600)
"""


def reader_of(checkpoint: Path, seconds: float) -> ControlReader:
    options = {"keyGroups": "2", "definition": "d", "checkpoint": str(checkpoint), "leaseSeconds": str(seconds)}
    return ControlReader(options)


def claims(checkpoint: Path) -> list[str]:
    return [path.stem.rpartition("-")[2] for path in (checkpoint / FOLDER).iterdir()]


def test_a_second_query_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    """And a source that plans or reads takes no lease: it is a copy."""
    first = reader_of(tmp_path, BUSY)
    copy = pickle.loads(pickle.dumps(first))
    assert not tmp_path.joinpath(FOLDER).exists()
    assert first.initialOffset() == FIRST
    assert pickle.loads(pickle.dumps(first))._lease is None
    for call in CALLS:
        with pytest.raises(CheckpointInUseError, match=f"process {os.getpid()} on"):
            call(reader_of(tmp_path, BUSY))
    first.stop()
    first.stop()
    assert claims(tmp_path) == ["released"]
    assert copy.latestOffset(FIRST, LIMIT) == FIRST
    copy.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="a lease of a process that ended is recognised at once on Linux")
def test_a_process_that_spark_ends_releases_its_lease_and_one_that_was_paused_stops(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", HOLDS, str(tmp_path), "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert claims(tmp_path) == ["released"]

    paused, other = reader_of(tmp_path, 0.5), reader_of(tmp_path, 0.5)
    paused.initialOffset()
    assert paused._lease is not None
    assert paused._lease._lease is not None
    paused._lease._lease._ended.set()  # nothing renews it any more
    time.sleep(0.5)
    other.initialOffset()
    for call in CALLS:
        with pytest.raises(LeaseLostError, match="was taken over by another query"):
            call(paused)
    paused.stop()
    other.stop()


def test_settings_with_passwords_are_no_options() -> None:
    """Those of Hadoop are an attribute of the class, and the reader that goes to executors does not have them."""
    source: Any = renamed(ControlSource, "another", hadoop={"fs.s3a.secret.key": "secret"})
    reader = source(
        {"keyGroups": "2", "definition": "d", "checkpoint": "s3a://b/c", "leaseSeconds": "20"}
    ).streamReader(None)
    assert (reader.hadoop, reader.lease_seconds) == ({"fs.s3a.secret.key": "secret"}, 20.0)
    assert b"secret" not in pickle.dumps(reader)


def test_a_checkpoint_that_is_known_later_is_an_attribute() -> None:
    """Of a DataFrame, whose source has its options before its query starts."""
    lease = {"checkpoint": "/data/checkpoint", "leaseSeconds": "20"}
    source: Any = renamed(renamed(ControlSource, "its_name"), "its_name", lease=lease, hadoop={"a": "b"})
    reader = source({"keyGroups": "2", "definition": "d"}).streamReader(None)
    assert (reader.checkpoint, reader.lease_seconds, reader.hadoop) == ("/data/checkpoint", 20.0, {"a": "b"})
    assert ControlSource({"keyGroups": "2", "definition": "d"}).streamReader(None).checkpoint is None


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session of a client of Spark Connect, as far as leases need one. ``seconds`` are those of its leases."""
    monkeypatch.setattr(leases, "is_remote", lambda: True)
    monkeypatch.setattr(leases, "hadoop_settings", lambda spark: {})
    session = SimpleNamespace(seconds=BUSY)
    session.conf = SimpleNamespace(get=lambda *_: str(session.seconds))
    return session


def test_a_client_that_reads_or_writes_a_checkpoint_itself_holds_its_lease(tmp_path: Path, client: Any) -> None:
    """Once, also in functions that call each other, such as that which creates a savepoint to forget a key."""
    with leases.leased_here(client, str(tmp_path)):
        with leases.leased_here(client, str(tmp_path)) as check:
            check()
        with pytest.raises(CheckpointInUseError, match=f"process {os.getpid()} on"):
            reader_of(tmp_path, BUSY).initialOffset()
    assert claims(tmp_path) == ["released"]


def test_a_client_that_was_taken_over_says_so(tmp_path: Path, client: Any) -> None:
    other, checkpoint = reader_of(tmp_path, 0.5), str(tmp_path)
    client.seconds = 0.5

    def paused() -> None:
        with leases.leased_here(client, checkpoint):
            leases._held[checkpoint].lease._ended.set()  # nothing renews it any more
            time.sleep(0.5)
            other.initialOffset()

    with pytest.raises(LeaseLostError, match="was taken over"):
        paused()
    other.stop()
