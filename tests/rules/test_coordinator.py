"""The coordinator: which sets are kept for whom, and what it logs."""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from asterism.columns.time import TimeColumn
from asterism.errors import PatternProcessorError, StateError
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing import acceptance
from asterism.rules.publishing import coordinator as coordinators
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import kill_list
from asterism.rules.sets.discovery_status import INTERRUPTED, OFF, VALID, Status
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    PeriodicPatternProcessorDiscoverer,
    RefusedProcessor,
)
from asterism.rules.sets.rule_counts import WATERMARK, RuleCounts, VersionCounts
from asterism.rules.sets.set_store import KEPT_FILES, FolderStore, status_of
from asterism.rules.sets.used_versions import UsedVersions, versions_from_bytes
from tests.kit import SOON, until
from tests.rules.driver import SCHEMA, at, chain, processor


def compiler_of(**functions: Any) -> ProcessorCompiler:
    return ProcessorCompiler(SCHEMA, ["user"], TimeColumn("ts", SCHEMA.field("ts").type), Semantics.DEFAULT, functions)


def coordinator(folder: Path, without: Sequence[str] = (), **functions: Any) -> Coordinator:
    return Coordinator(compiler_of(**functions), FolderStore(str(folder)), without)


def version(number: int, name: str = "ab", **more: Any) -> PatternProcessor:
    return processor(name, number, chain("a", "b"), **more)


def test_each_update_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asterism.rules.processor")
    manager = coordinator(tmp_path)
    bad = processor("bad", 1, chain("a").where("colour = 1"), place="/rules.json")
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    manager.on_pattern_processors_updated([version(2), bad])
    manager.on_pattern_processors_updated([version(2), bad])
    manager.on_discovery_failed(ConnectionError("gone"))
    manager.on_discovery_failed(ConnectionError("gone"))
    assert [(record.levelname, record.getMessage().partition("; ")[0]) for record in caplog.records] == [
        ("INFO", "pattern processors 1: ab added, version - -> 1, accepted"),
        ("INFO", "pattern processors 1: cd added, version - -> 1, accepted"),
        ("WARNING", "refused: /rules.json: bad version 1: [COLUMN_NOT_FOUND] unknown column 'colour'"),
        ("INFO", "pattern processors 2: ab replaced, version 1 -> 2, accepted"),
        ("INFO", "pattern processors 2: cd removed, version 1 -> -, accepted"),
        ("WARNING", "pattern processors: discovery failed, set 2 stays in force: ConnectionError: gone"),
    ]
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_a_run_over_a_table_fails_if_all_rules_are_refused(tmp_path: Path) -> None:
    """Its result would be empty, and only the log would say why."""
    manager = coordinator(tmp_path)
    manager.expect_some_rule()
    bad = processor("bad", 1, chain("a").where("colour = 1"), place="/rules.json")
    manager.on_pattern_processors_updated([version(1), bad])
    manager.expect_some_rule()
    manager.on_pattern_processors_updated([bad])
    with pytest.raises(
        PatternProcessorError, match=r"the rule cannot be used\n.*bad version 1.*unknown column 'colour'"
    ):
        manager.expect_some_rule()
    manager.on_pattern_processors_updated([processor(f"bad {n}", 1, chain("a").where("colour = 1")) for n in range(12)])
    with pytest.raises(PatternProcessorError, match=r"(?s)none of the 12 rules can be used.*bad 9 .*\n  and 2 more\n"):
        manager.expect_some_rule()


def test_the_status_tells_how_it_is(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    assert (manager.status.state, manager.status.processors) == (VALID, {"ab": 1})
    manager.on_discovery_failed(ConnectionError("gone"))
    assert (manager.status.state, manager.status.error) == (INTERRUPTED, "ConnectionError: gone")
    manager.close()
    manager.on_pattern_processors_updated([version(2)])  # the thread that watches ends later
    assert FolderStore(str(tmp_path)).read_status().state == OFF


def test_a_folder_belongs_to_the_query_that_was_started_last(tmp_path: Path) -> None:
    """The one before may not have ended yet, when it is started again; or it is another, which fails."""
    first = coordinator(tmp_path)
    first.on_pattern_processors_updated([version(1)])
    second = coordinator(tmp_path)
    second.on_pattern_processors_updated([version(2)])
    first.close()
    with pytest.raises(StateError, match="another query has started to use the folder"):
        first.on_pattern_processors_updated([version(3)])
    with pytest.raises(StateError, match="another query has started to use the folder"):
        first.committed(1)
    second.committed(2)
    status = FolderStore(str(tmp_path)).read_status()
    assert (status.state, status.processors) == (VALID, {"ab": 2})


def test_sets_are_kept_until_a_micro_batch_has_brought_the_next(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    for number in (1, 2, 3):
        manager.on_pattern_processors_updated([version(number)])
    manager.committed(2)
    assert manager.store.numbers() == [2, 3]
    manager.committed(3)
    assert manager.store.numbers() == [3]
    assert pickle.loads(pickle.dumps(manager.store)).retained()[0].processors == (version(3),)


def test_rules_that_have_searched_a_history_keep_their_counts(tmp_path: Path) -> None:
    """If the rules change before the first micro-batch of the query."""
    manager, kept = coordinator(tmp_path), version(1)
    manager.on_pattern_processors_updated([kept])
    manager.store.write_counts(RuleCounts({("ab", 1): VersionCounts(1, matches=3, partial_matches=2)}, batch=0))
    again = coordinator(tmp_path)
    again.on_pattern_processors_updated([kept, processor("cd", 1, chain("a"))])
    again.planned(2, 0)
    rules = {rule.id: (rule.added, rule.matches, rule.partial_matches) for rule in status_of(str(tmp_path)).rules}
    assert rules == {"ab": (1, 3, 2), "cd": (2, 0, 0)}


def test_a_set_has_the_versions_of_earlier_sets_that_wait(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    scheduled = [version(number, timestamp=at(10 * number)) for number in range(2, 6)]
    manager.on_pattern_processors_updated([version(1)])
    for one in scheduled[:2]:
        manager.on_pattern_processors_updated([one])

    def earlier(manager: Coordinator) -> list[tuple[int, int]]:
        return [(one.added, one.processor.version) for one in manager.store.get(manager.version).earlier]

    assert earlier(manager) == [(1, 1), (2, 2)]
    manager.planned(3, 0)
    states = [(one.version, one.state) for one in manager.current_status().rules]
    assert states == [(1, "in force"), (2, "waiting"), (3, "waiting")]
    again = coordinator(tmp_path)
    again.on_pattern_processors_updated([scheduled[2]])
    assert earlier(again) == [(1, 1), (2, 2), (3, 3)]
    counts = RuleCounts()
    counts.add("query", 1, [{WATERMARK: 30_000_000}])
    again.store.write_counts(counts)
    again.on_pattern_processors_updated([scheduled[3]])
    assert earlier(again) == [(1, 1), (2, 2), (3, 3), (4, 4)], "the query may be reset to an earlier micro-batch"
    counts.add("query", 101, [])
    again.store.write_counts(counts)
    again.on_pattern_processors_updated([scheduled[3], version(1, "cd")])
    assert earlier(again) == [(3, 3), (4, 4)]
    again.on_pattern_processors_updated([version(1)])
    assert earlier(again) == []


def test_a_source_may_have_all_versions_of_a_rule(tmp_path: Path) -> None:
    one, two, three = version(1), version(2, timestamp=at(10)), version(3, timestamp=at(20))
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([three, one, two])
    manager.planned(1, 0)
    waiting = [(1, "in force"), (2, "waiting"), (3, "waiting")]
    assert [(found.version, found.state) for found in manager.current_status().rules] == waiting
    what = [(entry.what, entry.version) for entry in manager.store.history().entries()]
    assert what == [("added", 1), ("added", 2), ("added", 3)]
    manager.on_pattern_processors_updated([one, two, three])
    assert manager.version == 1, "nothing has changed"

    again = coordinator(tmp_path)
    again.on_pattern_processors_updated([one, two, three])
    assert again.version == 1
    again.planned(1, 1)
    assert [(found.version, found.state) for found in again.current_status().rules] == waiting
    again.on_pattern_processors_updated([one, processor("ab", 2, chain("a"), timestamp=at(10)), three])
    assert again.version == 1, "the version that cannot be used leaves the one that there is"
    assert "its definition has changed" in str(again.status.refused["ab"])
    again.on_pattern_processors_updated([one, two, two, three, version(4), version(5, timestamp=at(15))])
    assert again.version == 1
    assert "two processors have the id 'ab'" in str(again.status.refused["ab"])
    again.on_pattern_processors_updated([one, three])
    again.planned(2, 1)
    assert [(found.version, found.state) for found in again.current_status().rules] == [waiting[0], waiting[2]]
    last = [*again.store.history().entries()][-1]
    assert (last.what, last.before) == ("removed", 2)


def test_versions_that_wait_are_killed_one_by_one_and_are_shadows(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    shadows = [version(4, timestamp=at(10), shadow=True), version(5, timestamp=at(20), shadow=True)]
    kill_list.kill(manager.store, ["ab@2"], "no")
    manager._apply_kill_list()
    found = [version(1), version(2, timestamp=at(10)), version(3, timestamp=at(20)), *shadows]
    manager.on_pattern_processors_updated(found)
    manager.planned(manager.version, 0)
    states = [(one.version, one.shadow, one.state) for one in manager.current_status().rules]
    assert states == [(1, False, "in force"), (3, False, "waiting"), (4, True, "waiting"), (5, True, "waiting")]
    kill_list.unkill(manager.store, ["ab@2"])
    manager._apply_kill_list()
    kill_list.kill(manager.store, ["ab@2"], "no")
    manager._apply_kill_list()
    manager.planned(manager.version, 0)
    states = [(one.version, one.shadow, one.state) for one in manager.current_status().rules]
    assert states[:3] == [(1, False, "in force"), (2, False, "killed"), (3, False, "waiting")]


def test_only_so_many_versions_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "MAX_WAITING", 2)
    manager = coordinator(tmp_path)
    scheduled = [version(number, timestamp=at(10 * number)) for number in range(2, 5)]
    manager.on_pattern_processors_updated([version(1)])
    manager.planned(1, 0)
    for one in scheduled:
        manager.on_pattern_processors_updated([one])
    assert "2 earlier versions wait for their timestamps" in str(manager.status.refused["ab"])
    assert [one.version for one in manager.current_pattern_processors()] == [3]
    manager.planned(manager.version, 1)
    manager.on_pattern_processors_updated([])
    manager.on_pattern_processors_updated(scheduled[2:])
    assert [one.version for one in manager.current_pattern_processors()] == [4]


def test_a_version_is_kept_until_the_time_of_the_next(tmp_path: Path) -> None:
    """The coordinator does not know event time: the key groups say which versions are in force until then."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2, timestamp=at(10))])
    manager.on_pattern_processors_updated([version(2, timestamp=at(10)), version(1, "cd")])
    manager.on_pattern_processors_updated([version(3, timestamp=at(20)), version(1, "cd")])
    manager.committed(4)
    assert manager.store.numbers() == [1, 3, 4]
    manager.store.replaced_later(
        3, [("ab", 1)]
    )  # that is what they said last, and the second version may have begun since
    manager.committed(4)
    assert manager.store.numbers() == [1, 3, 4]
    manager.store.replaced_later(4, [("ab", 1)])  # it was withdrawn
    manager.committed(4)
    assert manager.store.numbers() == [1, 4]
    (tmp_path / "replaced.json").write_text('{"set": 4, "proc')
    manager.committed(4)
    assert manager.store.numbers() == [1, 4]
    manager.store.replaced_later(4, [])
    manager.committed(4)
    assert manager.store.numbers() == [4]


@pytest.mark.parametrize("time", [datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
def test_a_version_may_wait_for_any_time(tmp_path: Path, time: datetime) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2, timestamp=time)])
    manager.committed(2)
    assert manager.store.numbers() == [1, 2]


def test_a_discoverer_that_gives_up_is_told_of(tmp_path: Path) -> None:
    class GivesUp(PatternProcessorDiscoverer):
        def initial_pattern_processors(self) -> Sequence[Discovered]:
            return [version(1)]

        def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
            raise SystemExit("\x1b[31menough" + "!" * 5000)

    class Factory(PatternProcessorDiscovererFactory):
        def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
            return GivesUp()

    manager = coordinator(tmp_path)
    manager.start(Factory())
    until(lambda: manager.status.state == INTERRUPTED)
    assert (manager.status.error or "").startswith("SystemExit: \\x1b[31menough!")
    assert len(manager.status.error or "") < 2100
    assert manager.status.processors == {"ab": 1}
    manager.close()  # or it goes on in the log of other tests


# ---------------------------------------------------------------------- what is looked at does not answer


class Blocked(PeriodicPatternProcessorDiscoverer):
    """Looks that wait until they are *free*: the first one, or those *later*."""

    def __init__(self, *, later: bool) -> None:
        super().__init__(interval=timedelta(milliseconds=5))
        self.later, self.free = later, threading.Event()

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        assert self.later or self.free.wait(SOON)
        return [version(1)]

    def check_pattern_processor_update(self) -> bool:
        assert self.free.wait(SOON)
        return True

    def latest_pattern_processors(self) -> Sequence[Discovered]:
        return [version(2)]

    def factory(self) -> PatternProcessorDiscovererFactory:
        made = self

        class Factory(PatternProcessorDiscovererFactory):
            def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
                return made

        return Factory()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MAX_POLL_SECONDS", 1.5)
    monkeypatch.setattr(coordinators, "KILL_LIST_INTERVAL", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_look_that_does_not_return_interrupts_discovery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported once, and ends when the poll returns."""
    manager, blocked = coordinator(tmp_path), Blocked(later=True)
    manager.start(blocked.factory())
    until(lambda: manager.store.read_status().state == INTERRUPTED)
    before_polls = manager.status.last_poll
    assert manager.store.read_status().error == "TimeoutError: a poll has not returned for more than 1.5 seconds"
    for _ in range(3):
        manager._check_poll()
    assert sum("has not returned" in record.getMessage() for record in caplog.records) == 1
    blocked.free.set()
    until(lambda: manager.status.state == VALID and manager.status.processors == {"ab": 2})
    assert manager.status.last_poll > before_polls
    manager.close()


@pytest.mark.usefixtures("impatient")
def test_a_query_whose_first_look_does_not_return_goes_on_with_its_set(tmp_path: Path) -> None:
    coordinator(tmp_path).on_pattern_processors_updated([version(0)])
    manager, blocked = coordinator(tmp_path), Blocked(later=False)
    manager.start(blocked.factory())
    assert (manager.version, manager.status.state, manager.status.processors) == (1, INTERRUPTED, {"ab": 0})
    blocked.free.set()
    until(lambda: manager.status.state == VALID and manager.status.processors == {"ab": 2})
    manager.close()


@pytest.mark.usefixtures("impatient")
def test_a_query_without_a_set_does_not_wait_for_ever(tmp_path: Path) -> None:
    manager, blocked = coordinator(tmp_path), Blocked(later=False)
    with pytest.raises(PatternProcessorError, match=r"could be discovered\n  TimeoutError: .* has not returned"):
        manager.start(blocked.factory())
    blocked.free.set()
    assert manager._watcher is not None
    manager._watcher.join(SOON)
    assert (manager.version, manager._watcher.is_alive()) == (0, False)


@pytest.mark.usefixtures("impatient")
def test_to_take_what_was_found_may_last_longer_than_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, blocked = coordinator(tmp_path), Blocked(later=True)
    blocked.close()
    try_out = manager.compiler.try_out

    def slow(one: PatternProcessor) -> Any:
        time.sleep(1.6)
        return try_out(one)

    monkeypatch.setattr(manager.compiler, "try_out", slow)
    manager.start(blocked.factory())
    assert (manager.status.state, manager.status.processors) == (VALID, {"ab": 1})
    manager.close()


def test_nobody_waits_while_rules_are_tried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To try out thousands takes minutes, in which a rule can be killed, and the query asks for its newest set."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    try_out, tried, free = manager.compiler.try_out, threading.Event(), threading.Event()

    def slow(one: PatternProcessor) -> Any:
        tried.set()
        assert free.wait(SOON)
        return try_out(one)

    monkeypatch.setattr(manager.compiler, "try_out", slow)
    new = [version(2), version(2, "cd"), version(1, "ef")]
    update = threading.Thread(target=manager.on_pattern_processors_updated, args=[new])
    update.start()
    assert tried.wait(SOON)

    def others() -> None:
        kill_list.kill(manager.store, ["cd@1", "ef"])
        manager._apply_kill_list()
        manager.committed(manager.version)
        manager.on_nothing_changed()
        manager._write_status()

    other = threading.Thread(target=others)
    other.start()
    other.join(SOON)
    assert not other.is_alive()
    assert (manager.version, manager.store.retained()[-1].killed) == (2, ("cd@1",))
    assert FolderStore(str(tmp_path)).read_status().processors == {"ab": 1, "cd": 1}
    free.set()
    update.join(SOON)
    assert (manager.version, manager.status.processors) == (3, {"ab": 2, "cd": 2})
    assert manager.status.killed.keys() == {"cd@1", "ef"}


def test_what_is_no_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PatternProcessorError, match="the discoverer returned 5"):
        coordinator(tmp_path).on_pattern_processors_updated([5])  # type: ignore[list-item]


def test_a_version_that_is_replaced_at_once_is_not_kept(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2, timestamp=at(10))])
    manager.on_pattern_processors_updated([version(3)])
    manager.committed(3)
    assert manager.store.numbers() == [3]


def test_no_set_is_lost_while_another_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)  # it takes long, and no power fails here
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(0)])
    updates = threading.Thread(
        target=lambda: [manager.on_pattern_processors_updated([version(n)]) for n in range(1, 2 * KEPT_FILES)]
    )
    updates.start()
    while updates.is_alive():
        manager.committed(manager.version)
        assert manager.store.numbers()[-1] >= manager.store.numbers()[0]
    updates.join()
    manager.committed(manager.version)
    assert manager.store.numbers() == [manager.version] == [2 * KEPT_FILES]
    assert len(list((tmp_path / "sets").glob("*.json"))) == KEPT_FILES
    assert not list(tmp_path.rglob("*.new"))


def test_what_fails_in_an_unforeseen_way_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = coordinator(tmp_path)
    compile_ = manager.compiler.compile

    def fail(one: PatternProcessor) -> Any:
        if one.id == "odd":
            raise ZeroDivisionError("how could that happen?")
        return compile_(one)

    monkeypatch.setattr(manager.compiler, "compile", fail)
    manager.on_pattern_processors_updated([version(1, "odd"), version(1)])
    assert manager.status.processors == {"ab": 1}
    assert "ZeroDivisionError: how could that happen?" in manager.status.refused["odd"]


def test_what_cannot_be_identified_may_be_any(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    error = manager._checks.error(processor("bad", 1, chain("a").where("colour = 1")), False)
    assert error is not None
    manager.on_pattern_processors_updated([version(2), RefusedProcessor("#2", error, unidentified=True)])
    assert manager.status.processors == {"cd": 1, "ab": 2}


# ---------------------------------------------------------------------- a version means one thing


def test_a_version_keeps_its_definition_for_the_life_of_a_store(tmp_path: Path) -> None:
    """Also when it was removed or replaced, and after restarts; the same definition may come again."""
    manager = coordinator(tmp_path)
    other = processor("ab", 1, chain("a", "c"))
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2)])
    for _ in range(2):
        manager.on_pattern_processors_updated([other])
        assert "version 1 of 'ab' already had another definition" in manager.status.refused["ab"]
        assert "use a version that has not been used: 3" in manager.status.refused["ab"]
        assert manager.status.processors == {"ab": 2}
        manager.on_pattern_processors_updated([])
        manager.on_pattern_processors_updated([other])
        assert manager.status.processors == {}
        manager.on_pattern_processors_updated([version(2)])
        manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    assert manager.status.processors == {"ab": 1}


def test_a_store_of_an_earlier_release_knows_what_it_retains(tmp_path: Path) -> None:
    coordinator(tmp_path).on_pattern_processors_updated([version(1)])
    for path in tmp_path.glob("*versions.json"):
        path.unlink()
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([])
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([processor("ab", 1, chain("a", "c"))])
    assert manager.status.processors == {}


def test_replaced_sets_do_not_stay_in_memory(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    for number in range(1, 6):
        manager.on_pattern_processors_updated([version(number)])
        manager.planned(number, number - 1)
        manager.committed(number)
        assert manager.store._cache.keys() == {number}


def files_of(used: UsedVersions) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    used.write(None, partial(files.__setitem__, "earlier"), partial(files.__setitem__, "recent"))
    return files


def read_again(used: UsedVersions) -> UsedVersions:
    return UsedVersions(*map(versions_from_bytes, files_of(used).values()))


def test_earlier_versions_are_written_only_when_there_are_many_recent_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("asterism.rules.sets.used_versions.MAX_RECENT", 3)
    manager = coordinator(tmp_path)
    written = []
    for number in range(1, 10):
        manager.on_pattern_processors_updated([version(number)])
        written.append((tmp_path / "versions.json").stat().st_mtime_ns)
        assert len(read_again(manager.store.used_versions()[0])) == number
    assert len({*written}) == 3
    manager = coordinator(tmp_path)
    for number in range(1, 10):
        assert manager._used.check(processor("ab", number, chain("a", "c"))) is not None
        assert manager._used.check(version(number)) is None


def test_versions_that_were_written_twice_count_once(tmp_path: Path) -> None:
    """The process ended after it had written the earlier versions."""
    used = UsedVersions().with_([version(1), version(2)])
    for name in ("versions.json", "recent_versions.json"):
        (tmp_path / name).write_bytes(files_of(used)["recent"])
    found, is_stored = FolderStore(str(tmp_path)).used_versions()
    assert (len(found), is_stored) == (2, True)


def test_versions_that_are_not_in_use_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asterism.rules.sets.used_versions.MAX_VERSIONS", 3)
    monkeypatch.setattr("asterism.rules.sets.used_versions.MAX_RECENT", 0)
    used = UsedVersions()
    for number in range(1, 6):
        used = used.with_([version(7, "in use"), version(number)])
    used = read_again(used)
    assert len(used) == 3
    other = [processor("ab", number, chain("a", "c")) for number in (1, 4, 5)]
    assert [used.check(one) is None for one in other] == [True, False, False]
    assert used.check(processor("in use", 7, chain("a", "c"))) is not None


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ELSEWHERE = [NOON, NOON.astimezone(timezone(timedelta(hours=2))), NOON.astimezone(ZoneInfo("America/New_York"))]


def test_an_instant_is_the_same_in_all_zones(tmp_path: Path) -> None:
    """Whether the version is in force, or comes back."""
    manager = coordinator(tmp_path)
    for time_ in ELSEWHERE:
        for late in (version(1, timestamp=time_), version(2)):
            manager.on_pattern_processors_updated([late])
            assert (manager.status.refused, manager.status.processors) == ({}, {"ab": late.version})
    texts = {json.dumps(version(1, timestamp=time_).to_dict()) for time_ in ELSEWHERE}
    assert len(texts) == 1
    assert '"timestamp": "2026-01-31T12:00:00+00:00"' in texts.pop()
    manager.on_pattern_processors_updated([version(1, timestamp=NOON + timedelta(seconds=1))])
    assert "already had another definition" in manager.status.refused["ab"]


@pytest.mark.parametrize("time", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-14, 14])
def test_an_instant_at_the_end_of_time_has_a_text(time: datetime, hours: int) -> None:
    late = version(1, timestamp=time.replace(tzinfo=timezone(timedelta(hours=hours))))
    assert PatternProcessor.from_dict(late.to_dict()) == late


def test_a_store_of_an_earlier_release_may_know_an_instant_in_another_zone(tmp_path: Path) -> None:
    """It has a digest of the text with that zone."""
    late = version(1, timestamp=ELSEWHERE[1])
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([late])
    manager.on_pattern_processors_updated([version(2)])
    manager.committed(2)
    shifted = late.text.replace("12:00:00+00:00", "14:00:00+02:00")
    versions = tmp_path / "recent_versions.json"
    digests = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in (late.text, shifted)]
    assert digests[0] in versions.read_text()
    versions.write_text(versions.read_text().replace(*digests))
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([processor("ab", 1, chain("a", "c"), timestamp=ELSEWHERE[1])])
    assert "already had another definition" in manager.status.refused["ab"]
    manager.on_pattern_processors_updated([late])
    assert (manager.status.refused, manager.status.processors) == ({}, {"ab": 1})


# ---------------------------------------------------------------------- files that are broken


@pytest.mark.parametrize("text", ["", "[1, 2", "{}", "[0]", '["1"]', "null"])
def test_the_list_of_sets_is_made_anew_from_the_sets(tmp_path: Path, text: str) -> None:
    manager = coordinator(tmp_path)
    for number in (1, 2, 3):
        manager.on_pattern_processors_updated([version(number)])
    (tmp_path / "retained.json").write_text(text)
    (tmp_path / "sets" / ".4.json.1.1").write_text("what a process that was killed has left")
    (tmp_path / "sets" / "4.json.new").write_text("and one of an earlier release")
    manager = coordinator(tmp_path)
    assert (manager.version, manager.store.numbers()) == (3, [1, 2, 3])
    manager.committed(3)
    assert (tmp_path / "retained.json").read_text() == "[3]"


@pytest.mark.parametrize("text", [None, "", "nobody"])
def test_an_owner_that_is_lost_is_whoever_asks(tmp_path: Path, text: str | None) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    (tmp_path / "owner").unlink() if text is None else (tmp_path / "owner").write_text(text)
    manager.on_pattern_processors_updated([version(2)])
    assert manager.store.belongs_to(manager._name)
    assert not manager.store.belongs_to("0" * 32)


def test_a_status_that_is_broken_is_written_anew(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    (tmp_path / "status.json").write_text("{")
    with pytest.raises(StateError, match=r"status\.json cannot be read"):
        manager.store.read_status()
    manager._write_status()
    assert manager.store.read_status().processors == {"ab": 1}


def test_what_cannot_be_removed_now_does_not_end_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = coordinator(tmp_path)
    for number in (1, 2):
        manager.on_pattern_processors_updated([version(number)])
    with monkeypatch.context() as patch:
        patch.setattr(manager.store, "_write", lambda name, value: (_ for _ in ()).throw(OSError(28, "no space")))
        manager.committed(2)
    assert manager.store.numbers() == [1, 2]
    manager.committed(2)
    assert manager.store.numbers() == [2]


def test_a_status_of_release_0_1_is_read() -> None:
    written = json.loads(Status(state=VALID, last_poll="2026-01-01T00:00:00.000+00:00").to_bytes())
    written["looked"] = written.pop("last_poll")
    assert Status.from_bytes(json.dumps(written).encode()).last_poll == "2026-01-01T00:00:00.000+00:00"


# ---------------------------------------------------------------------- shadows


def found(manager: Coordinator) -> list[tuple[str, int, bool]]:
    return [(one.id, one.version, one.shadow) for one in manager.current_pattern_processors()]


def test_a_shadow_is_told_apart_from_the_version_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asterism.rules.processor")
    manager = coordinator(tmp_path)
    for rules in (
        [version(1), version(2, shadow=True)],
        [version(1), version(3, shadow=True)],
        [version(3)],
        [version(3), version(4, shadow=True)],
        [version(3)],
    ):
        manager.on_pattern_processors_updated(rules)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "ab added, version - -> 1, accepted",
        "shadow of ab added, version - -> 2, accepted",
        "shadow of ab replaced, version 2 -> 3, accepted",
        "ab promoted, version 1 -> 3, accepted",
        "shadow of ab added, version - -> 4, accepted",
        "shadow of ab removed, version 4 -> -, accepted",
    ]


def test_the_status_has_shadows_and_their_states(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True), version(1, "cd", shadow=True)])
    assert (manager.status.processors, manager.status.shadows) == ({"ab": 1}, {"ab": 2, "cd": 1})
    manager.planned(1, 0)
    manager.store.write_counts(RuleCounts({("ab", 2): VersionCounts(1, shadow_matches=4, partial_matches=1)}))

    def states() -> list[tuple[str, int | None, str, int]]:
        return [(one.id, one.version, one.state, one.shadow_matches) for one in manager.current_status().rules]

    assert states() == [("ab", 1, "in force", 0), ("ab", 2, "shadow", 4), ("cd", 1, "shadow", 0)]
    since = manager.current_status().rules[1].since
    assert Status.from_bytes(manager.current_status().to_bytes()).rules == manager.current_status().rules
    manager.on_pattern_processors_updated([version(2), version(1, "cd", shadow=True)])
    assert states()[-1] == ("ab", 2, "pending", 0)
    manager.planned(2, 1)
    assert states() == [("ab", 2, "in force", 4), ("cd", 1, "shadow", 0)]
    assert (manager.current_status().rules[0].since, manager.current_status().rules[0].added) == (since, 1)
    manager.close()
    assert coordinator(tmp_path).current_status().shadows == {"cd": 1}


def test_a_shadow_waits_for_its_time_and_replaces_another_one(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True)])
    manager.planned(1, 0)
    manager.on_pattern_processors_updated([version(1), version(3, shadow=True, timestamp=at(10))])
    manager.planned(2, 1)
    manager.committed(2)
    assert manager.store.numbers() == [1, 2]
    for reached, expected in (
        (9, [(1, "in force"), (2, "shadow"), (3, "waiting")]),
        (10, [(1, "in force"), (3, "shadow")]),
    ):
        manager.store.write_counts(RuleCounts(watermark=reached * 1_000_000))
        assert [(one.version, one.state) for one in manager.current_status().rules] == expected
    manager.close()


def test_an_invalid_version_leaves_the_shadow_and_the_one_in_force_as_they_are(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True)])
    bad = chain("a").where("colour = 1")
    manager.on_pattern_processors_updated([version(1), processor("ab", 3, bad, shadow=True)])
    assert found(manager) == [("ab", 1, False), ("ab", 2, True)]
    assert list(manager.status.refused) == ["ab@3"]
    [refused] = [one for one in manager.current_status().rules if one.state == "refused"]
    assert (refused.version, refused.shadow) == (3, True)
    manager.on_pattern_processors_updated([processor("ab", 4, bad), version(2, shadow=True)])
    assert sorted(found(manager)) == [("ab", 1, False), ("ab", 2, True)]
    assert list(manager.status.refused) == ["ab"]
    manager.on_pattern_processors_updated([RefusedProcessor("ab", PatternProcessorError("no"), shadow=None)])
    assert found(manager) == [("ab", 1, False), ("ab", 2, True)]
    manager.on_pattern_processors_updated([RefusedProcessor("ab", PatternProcessorError("no"), 5, shadow=True)])
    assert found(manager) == [("ab", 2, True)]


def test_a_refused_processor_is_distinguished_from_a_shadow_whose_version_it_is_named_like(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = coordinator(tmp_path)
    one = processor("ab@3", 1, chain("a").where("colour = 1"))
    shadow = processor("ab", 3, chain("a").where("taste = 1"), shadow=True)
    for _ in range(2):
        manager.on_pattern_processors_updated([version(1), one, shadow])
        reasons = {rule.id: rule.reason or "" for rule in manager.current_status().rules if rule.state == "refused"}
        assert "unknown column 'colour'" in reasons["ab@3"]
        assert "unknown column 'taste'" in reasons["ab"]
        assert list(manager.status.refused) == ["ab@3@", "ab@3"]
    assert [record.getMessage().partition(" version")[0] for record in caplog.records] == [
        "refused: ab@3",
        "refused: ab",
    ]
    manager.close()
    caplog.clear()
    # The next run has read in the history what was refused.
    again = coordinator(tmp_path)
    again.on_pattern_processors_updated([version(1), one, shadow])
    assert len(again.status.refused) == 2
    assert caplog.records == []


def test_the_version_in_force_cannot_be_a_shadow_too(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, shadow=True)])
    assert found(manager) == [("ab", 1, False)]
    assert manager.status.refused["ab@1"].startswith(
        "[PATTERN_PROCESSOR] version 1 is in force, so it cannot be a shadow, too"
    )
    unidentified = RefusedProcessor("#2", PatternProcessorError("no"), unidentified=True)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True)])
    manager.on_pattern_processors_updated([version(2), unidentified])
    assert found(manager) == [("ab", 2, False)]
    manager.on_pattern_processors_updated([processor("ab", 3, chain("a").where("colour = 1")), version(2, shadow=True)])
    assert found(manager) == [("ab", 2, False)]


def test_a_version_keeps_its_definition_when_it_is_promoted(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True)])
    manager.on_pattern_processors_updated([processor("ab", 2, chain("a", "c"))])
    assert "its definition has changed, but its version has not (2)" in manager.status.refused["ab"]
    assert found(manager) == [("ab", 1, False)]


def test_a_shadow_alone_is_killed(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    rules = [version(1), version(2, shadow=True)]
    manager.on_pattern_processors_updated(rules)
    kill_list.kill(manager.store, ["ab@2"], "too dear")
    manager._apply_kill_list()
    manager.planned(manager.version, 1)
    states = {one.version: one.state for one in manager.current_status().rules}
    assert states == {1: "in force", 2: "killed"}
    manager.on_pattern_processors_updated([version(2)])
    assert found(manager) == [("ab", 1, False)], "a version that was killed is not promoted"
    manager.close()
