"""The set of an endpoint: changes that arrive together are written together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from asterism.discovery.editing.rule_set import RuleSet
from asterism.discovery.rest import rule_file
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.errors import PatternProcessorError, RuleNotFoundError, VersionConflictError
from asterism.files.durable_files import NotWrittenError
from tests.discovery.kit import graph, put, put_all, rule
from tests.kit import ROOT, until


class SlowDisk:
    """Holds the first write until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[str] = []
        self.fails = False
        self._released = threading.Event()
        self._write = rule_file.replace_file
        monkeypatch.setattr(rule_file, "replace_file", self)

    def __call__(self, path: Path, content: bytes) -> None:
        self.writes.append(path.name)
        self._released.wait()
        if self.fails:
            raise NotWrittenError(f"{path} cannot be written", "no space")
        self._write(path, content)

    def together(self, rules: StoredRuleFile, changes: list[Callable[[], Any]]) -> list[Future[Any]]:
        """Make *changes* in this order, all of them while the first one is being written."""
        with ThreadPoolExecutor(len(changes)) as threads:
            try:
                found = [threads.submit(changes[0])]
                until(lambda: self.writes)
                for number, change in enumerate(changes[1:], 1):
                    found.append(threads.submit(change))
                    until(lambda number=number: len(rules.waiting) == number)
            finally:
                self._released.set()
        return found


def in_file(path: Path) -> dict[str, int]:
    return {one["id"]: one["version"] for one in json.loads(path.read_bytes())["processors"]}


def test_versions_that_wait_are_read_again(tmp_path: Path) -> None:
    """As by a new query."""
    path = tmp_path / "set.json"
    rules = StoredRuleFile(path)
    put(rules, rule("a"))
    put(rules, rule("a", 3, timestamp="2031-01-01"))
    put(rules, rule("a", 2, timestamp="2030-01-01"))
    assert [one.version for one in StoredRuleFile(path).processors()] == [1, 2, 3]
    path.write_text(json.dumps([rule("a"), rule("a")]))
    with pytest.raises(PatternProcessorError):
        StoredRuleFile(path)


def test_changes_that_wait_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sees the changes before it, and the refused ones affect no others."""
    path = tmp_path / "set.json"
    disk, rules = SlowDisk(monkeypatch), StoredRuleFile(path)
    before = rules.rule_set()
    found = disk.together(
        rules,
        [
            lambda: put(rules, rule("a")),
            lambda: put(rules, rule("b")),
            lambda: put(rules, rule("b", pattern=graph("price > 2"))),
            lambda: put(rules, rule("b", 2)),
            lambda: rules.change(lambda there: (there, [one.version for one in there.rules])),
            lambda: put(rules, rule("c")),
            lambda: rules.change(lambda there: there.remove(["c"])),
            lambda: put(rules, rule("c", key=["user"])),
            lambda: rules.change(lambda there: there.remove(["d"])),
            lambda: put_all(rules, [rule("a", 2), rule("b", 2)]),
        ],
    )
    results = [(one.exception() and type(one.exception())) or one.result() for one in found]
    assert before == RuleSet((), str(path))
    assert results == [
        ["a version 1 added"], ["b version 1 added"], VersionConflictError,
        ["b version 2 added, in place of version 1"], [1, 2], ["c version 1 added"], ["c removed"],
        VersionConflictError, RuleNotFoundError,
        ["a version 2 added, in place of version 1", "b version 2 already exists"],
    ]  # fmt: skip
    assert disk.writes == [".set.json.recent_versions", "set.json"] * 2
    assert in_file(path) == {"a": 2, "b": 2}
    assert "even if the version was removed" in str(found[7].exception())


def test_changes_that_cannot_be_written_together_all_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused because of a change that is not on disk is not answered as refused."""
    path = tmp_path / "set.json"
    disk, rules = SlowDisk(monkeypatch), StoredRuleFile(path)
    disk.fails = True
    found = disk.together(
        rules,
        [
            lambda: put(rules, rule("a")),
            lambda: put(rules, rule("b")),
            lambda: put(rules, rule("b", pattern=graph("price > 2"))),
        ],
    )
    assert [type(one.exception()) for one in found] == [NotWrittenError] * 3
    assert (len(rules.rule_set()), path.exists()) == (0, False)
    disk.fails = False
    assert put(rules, rule("b", pattern=graph("price > 2")))
    assert in_file(path) == {"b": 1}
    with pytest.raises(PatternProcessorError, match="another definition"):
        put(rules, rule("b"))


VICTIM = """
import sys, threading
from pathlib import Path
from asterism.discovery.rest.rule_file import StoredRuleFile
from tests.discovery.kit import put, rule

rules = StoredRuleFile(Path(sys.argv[1]))

def change(id):
    for version in range(rules_of.get(id, 0) + 1, 10**6):
        put(rules, rule(id, version))
        print(f"{id} {version}\\n", end="", flush=True)

rules_of = {one.id: one.version for one in rules.processors()}
for number in range(8):
    threading.Thread(target=change, args=[f"r{number}"]).start()
"""


def test_no_answered_change_is_lost_if_the_process_is_killed(tmp_path: Path) -> None:
    path, answered = tmp_path / "set.json", dict[str, int]()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    for life in range(1, 3):
        command = [sys.executable, "-c", VICTIM, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as victim:
            assert victim.stdout is not None
            for count, line in enumerate(victim.stdout):
                id, version = line.split()
                assert int(version) > answered.get(id, 0)
                answered[id] = int(version)
                if count == 50 * life:
                    victim.kill()
        found = in_file(path)
        assert all(found[id] >= version for id, version in answered.items())
        assert all(found[id] <= answered.get(id, 0) + 1 for id in found)
    assert {one.id for one in StoredRuleFile(path).processors()} == set(answered)
