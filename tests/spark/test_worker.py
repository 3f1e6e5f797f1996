"""What Python workers exclude from garbage collection, and when they acknowledge what they receive."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from asterism.matching.operator import CepOperator
from asterism.spark.host import control_source, host
from asterism.spark.host.control_source import ControlReader
from asterism.spark.host.host import OperatorHost
from asterism.spark.session import worker
from tests.spark.streams import SCHEMA, STRICT

FILES = Path("/proc/self/fd")


class Thing:
    """What can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nothing_is_frozen() -> Iterator[None]:
    """Until the test ends: then what was collected before is excluded again, see ``conftest.py``."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.freeze()


def collectable(things: list[Thing]) -> int:
    """The number of *things* that the garbage collector looks at. The count of all excluded objects
    depends on other threads.
    """
    numbers = {id(thing) for thing in things}
    return sum(id(thing) in numbers for thing in gc.get_objects())


@pytest.mark.usefixtures("nothing_is_frozen")
def test_what_earlier_tasks_left_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    worker.settle_memory()
    assert gc.get_freeze_count() > worker.FEW
    worker.settle_memory()
    left = [Thing() for _ in range(worker.FEW + 1)]
    gc.collect()
    worker.settle_memory()
    assert collectable(left) == 0


@pytest.mark.usefixtures("nothing_is_frozen")
def test_little_is_not_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the operators of all tasks, of which each unpickles one, would stay in memory."""
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    worker.settle_memory()
    of_a_task = [Thing() for _ in range(1_000)]
    worker.settle_memory()
    assert collectable(of_a_task) == len(of_a_task)
    seen = weakref.ref(of_a_task[0])
    del of_a_task
    gc.collect()
    assert seen() is None


@pytest.mark.usefixtures("nothing_is_frozen")
def test_excluded_garbage_is_collected_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    thing = Thing()
    worker.settle_memory()
    seen = weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is not None
    monkeypatch.setattr(worker, "_last_full", float("-inf"))
    worker.settle_memory()
    gc.collect()
    assert seen() is None


def test_what_was_received_is_acknowledged() -> None:
    """Every TCP connection of the process; other files stay as they are."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        one, other = socket.socketpair()
        with receiver, one, other:
            receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            files = len(list(FILES.iterdir()))
            worker.receive_at_once()
            assert receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
            assert len(list(FILES.iterdir())) == files
            for source, target in ((sender, receiver), (one, other)):
                source.sendall(b"a")
                assert target.recv(1) == b"a"


@pytest.mark.parametrize(
    "waits",
    [
        lambda: OperatorHost(CepOperator(STRICT, SCHEMA, time="ts", outputs={})),
        lambda: ControlReader({"keyGroups": "2", "definition": "00"}),
    ],
    ids=["host", "reader"],
)
def test_a_worker_acknowledges_what_it_unpickles(waits: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it waits for the input."""
    calls: list[int] = []
    for module in (host, control_source):
        monkeypatch.setattr(module, "receive_at_once", lambda: calls.append(1))
    one = waits()
    again = cloudpickle.loads(cloudpickle.dumps(one))
    assert calls == [1]
    assert again.__dict__.keys() == one.__dict__.keys()


def test_a_task_acknowledges_before_it_waits_for_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(worker, "receive_at_once", lambda: calls.append("acknowledged"))

    def batches() -> Iterator[str]:
        calls.append("waits")
        yield "batch"

    assert list(worker.task(iter)(batches())) == ["batch"]
    assert calls == ["acknowledged", "waits"]
