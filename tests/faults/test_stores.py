"""Stores whose n-th I/O call fails, for every n: nothing that was taken is lost, nothing torn is read, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.errors import AsterismError, RuleNotFoundError, VersionConflictError
from asterism.files.durable_files import NotWrittenError, replace_file
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import kill_list
from asterism.rules.sets.discovery_status import INTERRUPTED, VALID
from asterism.rules.sets.set_store import FolderStore
from tests.discovery.kit import graph, put, put_all, rule
from tests.faults.kit import EIO, ENOSPC, Faults, KilledError, store_class
from tests.kit import FACTOR
from tests.rules.test_coordinator import version

UPDATES = 2 if FACTOR == 1 else 3
VERSIONS = {number: version(number) for number in range(1, UPDATES + 1)}


class Lenient:
    """In place of a compiler: what is wrong with a rule is not what this is about."""

    conditions: ClassVar[dict[str, Any]] = {}
    udfs: ClassVar[dict[str, Any]] = {}

    def knows(self, processor: PatternProcessor) -> bool:
        return True

    def try_out(self, processor: PatternProcessor) -> None: ...


COMPILER: Any = Lenient()


def nth(faults: Faults, attempt: Callable[[int], None], **how: Any) -> int:
    """Attempts in which the first, the second, ... call fails, until there are no more calls; how many there were."""
    for n in count(1):
        faults.arm(n, **how)
        attempt(n)
        if not faults.disarm():
            return n - 1
    raise AssertionError


@pytest.fixture(params=["local", "arrow"])
def kind(request: pytest.FixtureRequest, faults: Faults) -> Any:
    return FolderStore if request.param == "local" else store_class(faults)


class Life:
    """A coordinator that takes some sets, and tries again what fails, as discoverers do."""

    def __init__(self, folder: Path, kind: Any, faults: Faults) -> None:
        self.folder, self.kind, self.faults = folder, kind, faults
        self.acknowledged = self.attempted = 0
        self.interrupted = 0

    def live(self) -> None:
        manager = self.started()
        for number in range(self.acknowledged + 1, UPDATES + 1):
            self.attempted = number
            while not self.taken(manager, number):
                pass
            self.acknowledged = number
            self.check()
            manager.committed(number)
            if number == 2:
                self.until_done(lambda: kill_list.kill(self.kind(str(self.folder)), ["ab@1"], "it is wrong"))
        manager.on_nothing_changed()
        assert manager.status.state == VALID
        with self.faults.off():
            manager._write_status()
            status = self.kind(str(self.folder)).read_status()
            assert (status.state, status.processors) == (VALID, {"ab": UPDATES})

    def started(self) -> Coordinator:
        while True:
            try:
                return Coordinator(COMPILER, self.kind(str(self.folder)))
            except (OSError, AsterismError):
                self.check()

    def taken(self, manager: Coordinator, number: int) -> bool:
        try:
            manager.on_pattern_processors_updated([VERSIONS[number]])
        except (OSError, AsterismError) as error:
            self.interrupted += 1
            manager.on_discovery_failed(error)  # raises nothing, although the store fails
            assert manager.status.state == INTERRUPTED
            self.check()
            return False
        return True

    def until_done(self, what: Callable[[], None]) -> None:
        while True:
            try:
                return what()
            except (OSError, AsterismError):
                self.check()

    def check(self) -> None:
        """What is on disk can be read as a whole, and has what was acknowledged, or what came next."""
        with self.faults.off():
            store = self.kind(str(self.folder))
            sets = store.retained()
            last = sets[-1].processors[0].version if sets else 0
            assert self.acknowledged <= last <= max(self.attempted, self.acknowledged)
            store.used_versions()
            store.killed()
            store.read_status()


@pytest.mark.parametrize("code", [EIO])
@pytest.mark.parametrize("many", [7])
def test_a_store_survives_each_failure(tmp_path: Path, kind: Any, faults: Faults, code: int, many: int) -> None:
    lives: list[Life] = []

    def attempt(n: int) -> None:
        lives.append(Life(tmp_path / str(n), kind, faults))
        lives[-1].live()

    calls = nth(faults, attempt, many=many, code=code)
    assert calls > 50
    assert sum(life.interrupted for life in lives) > 10


def test_a_store_survives_that_its_process_is_killed_anywhere(tmp_path: Path, kind: Any, faults: Faults) -> None:
    def attempt(n: int) -> None:
        life = Life(tmp_path / str(n), kind, faults)
        try:
            life.live()
        except KilledError:
            life.check()
            life.live()  # another process, which finds what the first one has left

    assert nth(faults, attempt, code=None) > 50


# ---------------------------------------------------------------------- the endpoint's set


STEPS: list[tuple[str, Any]] = [
    ("put", rule("a")),
    ("put", rule("b")),
    ("put", rule("a", 2, pattern=graph("price > 2"))),
    ("put_all", [rule("a", 2, pattern=graph("price > 2")), rule("c")]),
    ("remove", "c"),
]


def done(before: dict[str, Any], step: tuple[str, Any]) -> dict[str, Any]:
    what, value = step
    match what:
        case "put":
            return before | {value["id"]: value}
        case "put_all":
            return {one["id"]: one for one in value}
        case _:
            return {id: one for id, one in before.items() if id != value}


def do(rules: StoredRuleFile, step: tuple[str, Any]) -> None:
    what, value = step
    match what:
        case "put":
            put(rules, dict(value))
        case "put_all":
            put_all(rules, value)
        case _:
            with suppress(
                RuleNotFoundError
            ):  # the attempt before may have removed it, without knowing whether that is on disk
                rules.change(lambda there: there.remove([value]))


def on_disk(path: Path) -> dict[str, Any]:
    return {one["id"]: one for one in json.loads(path.read_bytes())["processors"]} if path.exists() else {}


@pytest.mark.parametrize("code", [ENOSPC])
def test_the_set_of_an_endpoint_survives_each_failure(tmp_path: Path, faults: Faults, code: int | None) -> None:
    def attempt(n: int) -> None:
        path = tmp_path / f"{n}.json"
        rules, state = None, dict[str, Any]()
        for step in STEPS:
            while True:
                try:
                    rules = rules or StoredRuleFile(path)
                    do(rules, step)
                    break
                except (AsterismError, KilledError) as error:
                    with faults.off():
                        assert on_disk(path) in (state, done(state, step))
                        if isinstance(error, KilledError):
                            rules = None
                        elif rules is not None:  # what runs is what would run after a restart
                            assert json.loads(rules.rule_set().text)["processors"] == sorted(
                                on_disk(path).values(), key=lambda one: str(one["id"])
                            )
            state = done(state, step)
            with faults.off():
                assert on_disk(path) == state
        with faults.off(), pytest.raises(VersionConflictError, match="version 1 of 'a' already had another"):
            put(StoredRuleFile(path), rule("a", 1, pattern=graph("price > 99")))

    assert nth(faults, attempt, code=code) > 30


# ---------------------------------------------------------------------- a file


@pytest.mark.parametrize("code", [EIO, None])
def test_a_file_has_the_old_content_or_the_new_one(tmp_path: Path, faults: Faults, code: int | None) -> None:
    path = tmp_path / "rules.json"
    path.write_bytes(b"old" * 1000)

    def attempt(n: int) -> None:
        with faults.off():
            before = path.read_bytes()
        new = b"new%d" % n * 1000
        try:
            replace_file(path, new)
        except (NotWrittenError, KilledError):
            with faults.off():
                assert path.read_bytes() in (before, new)
        else:
            with faults.off():
                assert path.read_bytes() == new

    assert nth(faults, attempt, code=code) > 6
    with faults.off():
        replace_file(path, b"last")
        assert [one.name for one in tmp_path.iterdir()] == ["rules.json"]
