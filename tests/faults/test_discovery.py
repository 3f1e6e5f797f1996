"""Discovery whose n-th I/O call fails, for every n, or all for a while: it continues, reaches the newest set, and reports it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from asterism.discovery import HttpPatternProcessorDiscovererFactory
from asterism.discovery.rest import endpoint as http
from asterism.discovery.sources import file
from asterism.errors import PatternProcessorError
from asterism.rules.publishing import coordinator as coordinators
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets.discovery_status import INITIALIZING, INTERRUPTED, OFF, STALE, VALID, Status
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
)
from asterism.rules.sets.set_store import FolderStore, status_of
from tests.discovery.kit import INTERVAL, Rule, graph, rule
from tests.discovery.places import FilePlace, FolderPlace, Place, SqlitePlace, UrlPlace
from tests.faults.kit import EIO, ENOSPC, Faults
from tests.kit import until
from tests.rules.test_coordinator import compiler_of, version

SOON = timedelta(milliseconds=10)
TOKEN = "a-long-random-secret"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "KILL_LIST_INTERVAL", 0.02)
    monkeypatch.setattr(coordinators, "RESTART", 0.02)
    monkeypatch.setattr(file, "AT_REST", timedelta(milliseconds=1))
    monkeypatch.setattr(http, "RETRY", SOON)


class HttpPlace(Place):
    """The endpoint: a PUT counts when it has been answered with success."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "set.json"
        self.discoverer: Any = None

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        place, made = self, HttpPatternProcessorDiscovererFactory(0, token=TOKEN, state=self.path)

        class Factory(PatternProcessorDiscovererFactory):
            def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
                place.discoverer = made.create_pattern_processor_discoverer()
                return place.discoverer  # type: ignore[no-any-return]

        return Factory()

    def write(self, rules: Any) -> None:
        import json
        from urllib.request import Request, urlopen

        def put() -> bool:
            try:
                address = self.discoverer.address
                headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
                body = json.dumps(list(rules)).encode()
                with urlopen(Request(f"{address}/processors", body, headers, method="PUT")) as answer:
                    return bool(answer.status == 200)
            except (OSError, ValueError):  # it does not listen yet, or not any more
                return False

        until(put)

    def break_it(self) -> None: ...

    def mend(self) -> None: ...


def item(number: int) -> Rule:
    return rule("ab", number, pattern=graph(f"x > {number}"))


class Query:
    """What of a query has to do with discovery."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder / "store"
        self.manager = Coordinator(compiler_of(), FolderStore(str(self.folder)))
        self.manager.start(place.factory(SOON))

    @property
    def status(self) -> Status:
        return FolderStore(str(self.folder)).read_status()

    def has(self, number: int) -> bool:
        status = self.manager.status
        return (status.state, status.processors) == (VALID, {"ab": number})

    def check(self, number: int) -> None:
        """The reported status, and the one on disk."""
        until(lambda: (self.status.state, self.status.processors) == (VALID, {"ab": number}))
        assert FolderStore(str(self.folder)).retained()[-1].processors[0].version == number


def place_of(kind: str, folder: Path) -> Place:
    match kind:
        case "file":
            return FilePlace(folder)
        case "folder":
            return FolderPlace(folder)
        case "sqlite":
            return SqlitePlace(folder)
        case "url":
            return UrlPlace()
    return HttpPlace(folder)


@pytest.mark.parametrize("kind", ["folder"])
@pytest.mark.parametrize("code", [EIO])
def test_discovery_survives_each_failure(tmp_path: Path, faults: Faults, kind: str, code: int) -> None:
    """Of its store, and of what is read by Python itself: files, and those of the endpoint."""
    survive_each_failure(tmp_path, faults, place_of(kind, tmp_path), code)


def survive_each_failure(folder: Path, faults: Faults, place: Place, code: int) -> None:
    is_endpoint = isinstance(place, HttpPlace)
    place.write([item(1)]) if not is_endpoint else None
    query = Query(folder, place)
    place.write([item(1)])
    until(lambda: query.has(1))
    number, hits = 1, 0
    for many in (1, 4):
        for n in range(1, 200):
            number += 1
            if is_endpoint:
                faults.arm(n, many, code)
                place.write([item(number)])
            else:
                place.write([item(number)])
                faults.arm(n, many, code)
            until(lambda number=number: query.has(number))  # type: ignore[misc]
            if not faults.disarm():
                break
            hits += 1
    assert hits > 20
    query.check(number)
    assert any("failed" in line or "cannot" in line or "refused" in line for line in query.status.log)
    query.manager.close()
    place.close()
    assert query.status.state == OFF
    assert Coordinator(compiler_of(), FolderStore(str(query.folder))).status.processors == {"ab": number}


@pytest.mark.parametrize("kind", ["file", "sqlite", "url", "http"])
def test_discovery_survives_a_disk_that_is_full_for_a_while(tmp_path: Path, faults: Faults, kind: str) -> None:
    """The store can be read, and not be written: the status in memory shows it; acknowledged changes come into force later."""
    place = place_of(kind, tmp_path)
    place.write([item(1)]) if kind != "http" else None
    query = Query(tmp_path, place)
    place.write([item(1)])
    until(lambda: query.has(1))
    query.check(1)  # the status on disk is written after the one in memory
    faults.folder = str(query.folder)
    faults.arm(1, 10**9, ENOSPC)
    place.write([item(2)])
    until(lambda: query.manager.status.state == INTERRUPTED)
    assert "No space left on device" in str(query.manager.status.error)
    with faults.off():
        assert query.status.processors == {"ab": 1}
    faults.disarm()
    until(lambda: query.has(2))
    query.check(2)
    query.manager.close()
    place.close()


def test_a_database_that_fails_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is connected to, and at each statement."""
    place = SqlitePlace(tmp_path)
    place.write([item(1)])
    failing = {"at": 0, "calls": 0}

    def call(*_: Any) -> None:
        failing["calls"] += 1
        if failing["calls"] == failing["at"]:
            raise sqlite3.OperationalError("disk I/O error")

    engine = sa.create_engine

    def create(*arguments: Any, **options: Any) -> sa.Engine:
        made = engine(*arguments, **options)
        sa.event.listen(made, "do_connect", lambda *_: call())
        sa.event.listen(made, "before_cursor_execute", call)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(sa, "create_engine", create)
        query = Query(tmp_path, place)
    until(lambda: query.has(1))
    for n in range(1, 12):
        failing.update(at=n, calls=0)
        place.write([item(n + 1)])
        until(lambda n=n: failing["calls"] > n and query.has(n + 1))  # type: ignore[misc]
    query.check(12)
    assert any("disk I/O error" in line for line in query.status.log)
    query.manager.close()


def test_a_failure_that_passes_without_a_change_is_over(tmp_path: Path) -> None:
    """Nothing new is found then, but the success of the poll is reported."""
    place = UrlPlace()
    place.write([item(1)])
    query = Query(tmp_path, place)
    until(lambda: query.has(1))
    place.break_it()
    until(lambda: query.status.state == INTERRUPTED)
    assert query.manager.version == 1
    place.mend()
    until(lambda: query.status.state == VALID)
    assert (query.manager.version, query.status.error) == (1, None)
    query.manager.close()
    place.close()


# ---------------------------------------------------------------------- discoverers of one's own


class Own(PatternProcessorDiscoverer):
    """Each that is made gives out the next version, and then does what it is told."""

    def __init__(self, number: int, then: Callable[[PatternProcessorManager], None]) -> None:
        self.number, self.then, self.closed = number, then, False

    def initial_pattern_processors(self) -> list[Discovered]:
        return [version(self.number)]

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        self.then(manager)

    def close(self) -> None:
        self.closed = True


class OwnFactory(PatternProcessorDiscovererFactory):
    def __init__(self, then: Callable[[PatternProcessorManager], None]) -> None:
        self.made: list[Own] = []
        self.then = then

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        self.made.append(Own(len(self.made) + 1, self.then))
        return self.made[-1]


def started(folder: Path, then: Callable[[PatternProcessorManager], None]) -> tuple[Coordinator, OwnFactory]:
    factory = OwnFactory(then)
    manager = Coordinator(compiler_of(), FolderStore(str(folder)))
    manager.start(factory)
    return manager, factory


def test_a_discoverer_that_raises_is_made_anew(tmp_path: Path) -> None:
    def fail(manager: PatternProcessorManager) -> None:
        if manager.current_pattern_processors()[0].version < 3:
            raise SystemExit("enough")
        time.sleep(600)

    manager, factory = started(tmp_path, fail)
    until(lambda: manager.status.processors == {"ab": 3} and manager.status.state == VALID)
    assert [one.closed for one in factory.made] == [True, True, False]
    assert any("SystemExit: enough" in line for line in manager.status.log)
    manager.close()
    assert factory.made[-1].closed


def test_a_discoverer_that_returns_has_ended(tmp_path: Path) -> None:
    manager, factory = started(tmp_path, lambda manager: None)
    assert manager._watcher is not None
    manager._watcher.join()
    assert len(factory.made) == 1
    assert (status_of(str(tmp_path)).state, manager.status.state) == (VALID, VALID)
    manager.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was: here the handler of its failure fails, too."""

    def fail(manager: PatternProcessorManager) -> None:
        if manager.current_pattern_processors()[0].version < 2:
            raise MemoryError
        time.sleep(600)

    report = Coordinator.on_discovery_failed

    def fail_too(self: Coordinator, error: BaseException) -> None:
        monkeypatch.setattr(Coordinator, "on_discovery_failed", report)
        sys.exit()  # threads end with it, silently

    monkeypatch.setattr(Coordinator, "on_discovery_failed", fail_too)
    manager, _ = started(tmp_path, fail)
    until(lambda: manager.status.processors == {"ab": 2})
    manager.close()


# ---------------------------------------------------------------------- a status cannot lie


def test_the_status_of_a_process_that_was_killed_is_stale(tmp_path: Path) -> None:
    """With kill -9 it cannot write that it has ended."""
    program = """
import sys, time
from pathlib import Path
from asterism.rules.publishing import coordinator
coordinator.HEARTBEAT, coordinator.KILL_LIST_INTERVAL = 0.3, 0.05
from tests.faults.test_discovery import started
started(Path(sys.argv[1]), lambda manager: time.sleep(600))
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    until((tmp_path / "status.json").exists)
    try:
        until(lambda: status_of(str(tmp_path)).state == VALID)
        first = status_of(str(tmp_path))

        def lives_on() -> bool:
            now = status_of(str(tmp_path))
            return now.alive > first.alive and now.state == VALID

        until(lives_on)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: status_of(str(tmp_path)).state == STALE)
    found = status_of(str(tmp_path))
    assert (found.error or "").startswith(f"no heartbeat since {found.alive}; it was valid")
    assert found.processors == {"ab": 1}


def test_a_status_is_stale_after_three_heartbeats_that_are_missing(tmp_path: Path) -> None:
    status = Status(VALID, alive="2026-01-31T12:00:00.000+00:00", heartbeat=10.0)
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert status.seen_at(at + timedelta(seconds=30)).state == VALID
    assert status.seen_at(at + timedelta(seconds=31)).state == STALE
    assert status.seen_at(at - timedelta(seconds=30)).state == VALID
    early = status.seen_at(at - timedelta(seconds=31))
    assert (early.state, str(early.error).endswith("which is in the future: the clocks differ; it was valid")) == (
        STALE,
        True,
    )
    status.state = OFF
    assert status.seen_at(at + timedelta(days=31)).state == OFF
    assert Status(VALID).seen_at(at).state == VALID  # an earlier release said nothing of its heart


def test_a_run_has_a_status_before_its_first_look(tmp_path: Path) -> None:
    """It may never return, or kill the process: then what an earlier run has written would stay."""
    manager, _ = started(tmp_path, lambda manager: time.sleep(600))
    manager.close()
    before = status_of(str(tmp_path))
    Coordinator(compiler_of(), FolderStore(str(tmp_path)))
    status = status_of(str(tmp_path))
    assert (before.state, status.state, status.processors) == (OFF, INITIALIZING, {"ab": 1})
    assert status.alive >= status.since >= before.since
    assert status.seen_at(datetime.now(UTC) + timedelta(minutes=1)).state == STALE


def test_a_process_gives_signs_of_life_during_its_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "HEARTBEAT", 0.5)
    began, free = threading.Event(), threading.Event()

    class Waits(OwnFactory):
        def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
            began.set()
            free.wait()
            return super().create_pattern_processor_discoverer()

    manager = Coordinator(compiler_of(), FolderStore(str(tmp_path)))
    thread = threading.Thread(target=manager.start, args=[Waits(lambda manager: time.sleep(600))])
    thread.start()
    began.wait()
    first = status_of(str(tmp_path))

    def lives_on() -> bool:
        now = status_of(str(tmp_path))
        return now.alive > first.alive and now.state == INITIALIZING

    until(lives_on)
    assert manager.version == 0
    free.set()
    thread.join()
    until(lambda: status_of(str(tmp_path)).state == VALID)
    manager.close()


def test_a_run_that_could_not_begin_says_why(tmp_path: Path) -> None:
    class Fails(OwnFactory):
        def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
            raise ConnectionError("gone")

    manager = Coordinator(compiler_of(), FolderStore(str(tmp_path)))
    with pytest.raises(PatternProcessorError, match="could be discovered\n  ConnectionError: gone"):
        manager.start(Fails(lambda manager: None))
    status = status_of(str(tmp_path))
    assert (status.state, "ConnectionError: gone" in str(status.error)) == (OFF, True)


def test_the_newest_status_is_written_when_the_store_can_be_written_again(tmp_path: Path, faults: Faults) -> None:
    manager, _ = started(tmp_path, lambda manager: time.sleep(600))
    faults.arm(1, 10**9, ENOSPC)
    manager.on_discovery_failed(ConnectionError("gone"))
    assert manager.status.state == INTERRUPTED
    with faults.off():
        assert status_of(str(tmp_path)).state != INTERRUPTED
    faults.disarm()
    until(lambda: status_of(str(tmp_path)).state == INTERRUPTED)
    assert status_of(str(tmp_path)).error == "ConnectionError: gone"
    manager.close()
