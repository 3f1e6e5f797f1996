"""One process at a time holds a lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow import fs

from asterism.errors import CheckpointInUseError, LeaseLostError
from asterism.files import lease as lease_module
from asterism.files.hadoop import HadoopFiles
from asterism.files.lease import Lease
from tests.kit import examples

EXPIRY = 1.0
HOLD = """
import sys, time
from asterism.files.lease import Lease
lease = Lease(sys.argv[1], "the checkpoint", expiry=float(sys.argv[2]))
lease.acquire()
print("holds", flush=True)
sys.stdin.readline()
lease.check()
print("still holds", flush=True)
"""


def holder(folder: Path, expiry: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(expiry)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    expiry = 10 * EXPIRY  # it is renewed five times as often, also on a busy machine
    with holder(tmp_path, expiry) as process:
        lease = Lease(str(tmp_path), "the checkpoint /c", expiry=expiry)
        messages: list[str] = []
        with pytest.raises(CheckpointInUseError, match=rf"(?s)/c is in use.*process {process.pid} on"):
            lease.acquire(messages.append)
        process.kill()  # without releasing it
        process.wait()
        messages.clear()
        lease = Lease(str(tmp_path), "the checkpoint /c", expiry=600)
        lease.acquire(messages.append)
        lease.release()
        assert messages == []  # it is known to have ended
    (released,) = tmp_path.iterdir()  # the next number is above that of the last holder
    assert released.name.endswith("-released.json")


def test_a_process_that_was_paused_has_lost_its_lease(tmp_path: Path) -> None:
    with holder(tmp_path, EXPIRY) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            lease = Lease(str(tmp_path), "the checkpoint", expiry=EXPIRY)
            messages: list[str] = []
            lease.acquire(messages.append)
            assert "has not released it; waiting up to 1 s" in messages[0]
        finally:
            process.send_signal(signal.SIGCONT)
        _, errors = process.communicate("\n", timeout=60)
        assert "LEASE_LOST] the checkpoint was taken over by another query" in errors
        lease.check()
        lease.release()


@pytest.mark.parametrize("kind", ["claims", "holds"])
def test_a_claim_that_cannot_be_written_leaves_nothing(tmp_path: Path, kind: str) -> None:
    """As on a full disk: others would wait until it expires."""

    class Full(Lease):
        def _write(self, claim: lease_module._Claim) -> None:
            super()._write(claim)
            if claim.state == kind:
                raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Full(str(tmp_path), "the checkpoint").acquire()
    assert [*tmp_path.iterdir()] == []


def test_files_that_are_no_claims_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "1-x.json").write_text("{}")
    (tmp_path / f"7-{'0' * 32}-holds.json").write_text("not JSON")
    os.utime(tmp_path / f"7-{'0' * 32}-holds.json", (1, 1))
    lease = Lease(str(tmp_path), "the checkpoint", expiry=EXPIRY)
    lease.acquire()
    (own,) = (path.name for path in tmp_path.glob("*-holds.json"))
    assert own.startswith("8-")
    assert json.loads((tmp_path / own).read_text())["process"] == os.getpid()
    lease.release()


def test_slow_storage_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal takes longer than half of the expiry: on a network that loses packets, or a busy machine."""
    expiry, now = 10.0, 0.0
    monkeypatch.setattr(lease_module, "_now", lambda: now)
    lease = Lease(str(tmp_path), "the checkpoint /c", expiry=expiry)
    monkeypatch.setattr(Lease, "_keep_renewing", lambda lease: None)
    lease.acquire()
    seconds, looked = 0.6 * expiry, 0

    def slow(lease: Lease) -> list[lease_module._Claim]:
        nonlocal looked, now
        looked += 1
        now += seconds
        return lease._local_claims()

    monkeypatch.setattr(Lease, "_claims", slow)
    now += seconds
    lease.check()
    assert looked == 1
    seconds = 1.1 * expiry  # then it says nothing about the present
    now += expiry
    monkeypatch.setattr(lease_module, "_PATIENCE", expiry)
    with pytest.raises(TimeoutError, match="the lease of the checkpoint /c cannot be renewed in"):
        lease.check()
    lease.release()


# ---------------------------------------------------------------------- any order of steps of several processes


class _Ended(BaseException):
    """The simulation is over."""


class Simulation:
    """Processes that take turns at each access to files, at a simulated time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.wakes: dict[threading.Thread, float] = {}
        self.turn: dict[threading.Thread, threading.Semaphore] = {}
        self.yielded = threading.Semaphore(0)
        self.is_over = False
        self.files: dict[str, tuple[int, bytes]] = {}
        self.failure: BaseException | None = None

    def sleep(self, seconds: float) -> None:
        thread = threading.current_thread()
        self.wakes[thread] = self.now + seconds
        self.yielded.release()
        self.turn[thread].acquire()
        if self.is_over:
            raise _Ended

    def step(self) -> None:
        """Before each access to a file: others may run in between, and a process is sometimes paused."""
        draw = self.random.random()
        self.sleep(self.random.uniform(5, 60) if draw < 0.02 else self.random.uniform(0, 0.5) if draw < 0.5 else 0.0)

    def start(self, run: Callable[[], None]) -> None:
        def body() -> None:
            self.turn[thread].acquire()
            try:
                if not self.is_over:
                    run()
            except _Ended:
                pass
            except BaseException as error:
                self.failure = error
            self.wakes.pop(thread, None)
            self.yielded.release()

        thread = threading.Thread(target=body, daemon=True)
        self.turn[thread] = threading.Semaphore(0)
        self.wakes[thread] = self.now
        thread.start()

    def run(self, seconds: float) -> None:
        while self.wakes and self.now < seconds and self.failure is None:
            first = min(self.wakes.values())
            self.now = max(self.now, first)
            self._give_turn(self.random.choice([thread for thread, wake in self.wakes.items() if wake <= self.now]))
        self.is_over = True
        while self.wakes:
            self._give_turn(next(iter(self.wakes)))
        if self.failure is not None:
            raise self.failure

    def _give_turn(self, thread: threading.Thread) -> None:
        self.turn[thread].release()
        self.yielded.acquire()


class SimulatedFiles(HadoopFiles):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__("sim://", {})
        self.simulation = simulation

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        self.simulation.step()
        return [
            fs.FileInfo(path, fs.FileType.File, size=len(content), mtime_ns=written)
            for path, (written, content) in self.simulation.files.items()
        ]

    def open_input_file(self, path: str) -> pa.NativeFile:
        self.simulation.step()
        if path not in self.simulation.files:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.simulation.files[path][1])

    def write(self, path: str, content: bytes) -> None:
        self.simulation.step()
        self.simulation.files[path] = int(self.simulation.now * 1e9), content

    def create_dir(self, path: str, recursive: bool) -> None:
        pass

    def delete_file(self, path: str) -> None:
        self.simulation.step()
        if self.simulation.files.pop(path, None) is None:
            raise FileNotFoundError(path)


@pytest.mark.parametrize("seed", range(examples(20, usual=60)))
def test_two_processes_never_hold_it_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that start, are refused, are paused, end and fail at any access to a file."""
    simulation = Simulation(seed)
    random = simulation.random
    files = fs.PyFileSystem(SimulatedFiles(simulation))

    class Clock:
        sleep = staticmethod(simulation.sleep)

    monkeypatch.setattr(lease_module, "opened", lambda location, hadoop: (files, "/lease"))
    monkeypatch.setattr(lease_module, "_now", lambda: simulation.now)
    monkeypatch.setattr(lease_module, "time", Clock)
    monkeypatch.setattr(Lease, "_keep_renewing", lambda lease: None)  # the simulated processes do it themselves
    monkeypatch.setattr(lease_module, "_this_process", lambda: {"boot": ""})
    leases: list[Lease] = []
    counts = {"held": 0, "refused": 0, "lost": 0}

    def works(lease: Lease) -> bool:
        """Whether its process would write now: it would not ask again."""
        return lease._claim is not None and lease._lost is None and simulation.now - lease._checked <= lease.expiry / 2

    def check_alone() -> None:
        holders = [lease for lease in leases if works(lease)]
        assert len(holders) <= 1, (seed, simulation.now, simulation.files)

    def process() -> None:
        while True:
            lease = Lease("sim://lease", "the checkpoint", expiry=5)
            leases.append(lease)
            try:
                lease.acquire()
                counts["held"] += 1
                for _ in range(random.randrange(1, 40)):
                    check_alone()
                    simulation.sleep(1)
                    lease._renew_once()
                    lease.check()
                    assert not any(works(other) for other in leases if other is not lease), (seed, simulation.now)
                if random.random() < 0.5:
                    lease.release()
            except CheckpointInUseError:
                counts["refused"] += 1
            except LeaseLostError:
                counts["lost"] += 1
            leases.remove(lease)  # its process ends
            simulation.sleep(random.uniform(0, 10))

    for _ in range(3):
        simulation.start(process)
    simulation.run(600)
    assert counts["held"] > 5, counts
    assert counts["refused"] > 0, counts
