"""The history of a query's rules: every change once, whatever fails, and bounded."""

from __future__ import annotations

from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import pytest

from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, from_text
from asterism.rules.sets import history, kill_list
from asterism.rules.sets.history import History, HistoryEntry
from asterism.rules.sets.set_store import FolderStore
from tests.rules.driver import at, chain, processor
from tests.rules.test_coordinator import coordinator, version


def entries(folder: Path) -> list[tuple[int, str, str, int | None, int | None]]:
    found = FolderStore(str(folder)).history().entries()
    return [(one.set, one.what, one.id, one.before, one.version) for one in found]


def test_each_change_is_an_entry(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    first = version(1, place="/rules.json", changed_by="ann")
    manager.on_pattern_processors_updated([first, version(1, "cd")])
    manager.on_pattern_processors_updated([first, version(1, "cd")])
    manager.on_pattern_processors_updated([version(2, labels={"a": "b"}), version(1, "ef")])
    manager.on_pattern_processors_updated([version(2, labels={"a": "c"}, expires=at(9)), version(1, "ef")])
    kill_list.kill(manager.store, ["ef"], "too loud")
    manager._apply_kill_list()
    kill_list.unkill(manager.store, ["ef"])
    manager._apply_kill_list()
    assert entries(tmp_path) == [
        (1, "added", "ab", None, 1),
        (1, "added", "cd", None, 1),
        (2, "replaced", "ab", 1, 2),
        (2, "added", "ef", None, 1),
        (2, "removed", "cd", 1, None),
        (3, "changed", "ab", 2, 2),
        (3, "changed", "ab", 2, 2),
        (4, "killed", "ef", None, None),
        (5, "admitted", "ef", None, None),
    ]
    found = list(manager.store.history().entries())
    assert (found[0].by, found[0].place, found[0].time[:2]) == ("ann", "/rules.json", "20")
    assert from_text(found[0].definition or "") == first
    assert [one.reason for one in found if one.what == "changed"] == [
        "has other labels",
        "expires at 1970-01-01T00:00:09+00:00",
    ]
    assert found[-2].reason == "too loud"


def test_shadows_and_promotions_are_entries(tmp_path: Path) -> None:
    """Also if the last run ended before it recorded them."""
    manager = coordinator(tmp_path)
    bad = processor("ab", 3, chain("a").where("colour = 1"), shadow=True)
    manager.on_pattern_processors_updated([version(1), version(2, shadow=True)])
    manager.on_pattern_processors_updated([version(1), bad])
    manager.store.write_history(1, b"".join((tmp_path / "history/1.jsonl").read_bytes().splitlines(keepends=True)[:1]))
    again = coordinator(tmp_path)
    again.on_pattern_processors_updated([version(1), bad])
    again.on_pattern_processors_updated([version(2, changed_by="ann")])
    found = list(again.store.history().entries())
    assert [str(one) for one in found] == [
        "ab added, version - -> 1, accepted",
        "shadow of ab version 3 refused",
        "ab promoted, version 1 -> 2, accepted",
    ]
    assert (found[-1].by, found[-1].definition) == ("ann", version(2).as_data().text)
    assert [HistoryEntry.from_dict(one.to_dict()) for one in found] == found


def test_a_refusal_is_an_entry_until_its_reason_changes(tmp_path: Path) -> None:
    """Also after a restart, which checks everything again."""
    bad = processor("bad", 1, chain("a").where("colour = 1"), place="/rules.json", changed_by="bob")
    for _ in range(2):
        manager = coordinator(tmp_path)
        for _ in range(2):
            manager.on_pattern_processors_updated([version(1), bad])
    manager.on_pattern_processors_updated([version(1), version(1, "bad")])
    manager.on_pattern_processors_updated([version(1), replace(bad, version=2)])
    found = [one for one in manager.store.history().entries() if one.id == "bad"]
    assert [(one.what, one.version, one.by, one.reason) for one in found] == [
        ("refused", 1, "bob", "unknown column 'colour'"),
        ("added", 1, None, None),
        ("refused", 2, "bob", "unknown column 'colour'"),
    ]


def test_who_made_a_change_is_not_part_of_the_rule(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1, changed_by="ann")])
    manager.on_pattern_processors_updated([version(1, changed_by="bob")])
    assert len(entries(tmp_path)) == 1
    assert "changedBy" not in version(1, changed_by="ann").text


def test_a_restart_completes_the_history(tmp_path: Path) -> None:
    """A set is stored before its entries are: here, the process ended in between."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    manager._history = History(_FullStore())
    manager.on_pattern_processors_updated([version(2)])
    assert len(entries(tmp_path)) == 2
    for _ in range(2):
        coordinator(tmp_path)
        assert entries(tmp_path)[2:] == [(2, "replaced", "ab", 1, 2), (2, "removed", "cd", 1, None)]


class _FullStore:
    """A disk that is full."""

    def history_numbers(self) -> list[int]:
        return []

    def read_history(self, number: int) -> bytes | None:
        return None

    def write_history(self, number: int, value: bytes) -> None:
        raise OSError(ENOSPC, "No space left on device")

    def remove_history(self, number: int) -> None: ...


def test_entries_wait_until_they_can_be_written(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    good, manager._history = manager._history, History(_FullStore())
    manager.on_pattern_processors_updated([version(1)])
    assert manager.version == 1, "the set counts without its history"
    assert any("cannot write the history now" in line for line in manager.status.log)
    manager._history = good
    manager.on_pattern_processors_updated([version(2)])
    assert entries(tmp_path) == [(1, "added", "ab", None, 1), (2, "replaced", "ab", 1, 2)]


def test_the_store_of_a_release_without_a_history(tmp_path: Path) -> None:
    """It begins with what is there."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2)])
    (tmp_path / "history" / "1.jsonl").unlink()
    coordinator(tmp_path)
    assert entries(tmp_path) == [(2, "added", "ab", None, 2)]


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_FILE", 500)
    monkeypatch.setattr(history, "MAX_FILES", 4)
    store = FolderStore(str(tmp_path))
    all_ = [HistoryEntry("2026-01-01", n, "added", f"r{n}", 1) for n in range(200)]
    log = store.history()
    for n in range(0, 200, 3):
        if n % 20 == 0:
            log = store.history()  # a restart
        log.append(all_[n : n + 3])
    found = list(store.history().entries())
    assert found == all_[-len(found) :]
    assert 4 * 4 <= len(found) <= 4 * 8
    assert all(len(file.read_bytes()) <= 500 for file in (tmp_path / "history").iterdir())
    assert len(list((tmp_path / "history").iterdir())) == 4


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.history().append([HistoryEntry("t", 1, "added", "a", 1)])
    file = tmp_path / "history" / "1.jsonl"
    file.write_bytes(file.read_bytes() + b'[]\n{"time": 1}\n{"time": "t"}\n' + b"[" * 100_000 + b'\n\xff\n{"time": "t"')
    store.history().append([HistoryEntry("t", 2, "added", "b", 1)])
    assert [one.id for one in store.history().entries()] == ["a", "b"]


def test_a_long_definition_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_DEFINITION", len(version(1).text))
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "longer")])
    assert [entry.definition for entry in manager.store.history().entries()] == [version(1).text, None]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, 5, "\ud800"])
def test_bad_names(name: object) -> None:
    with pytest.raises(PatternProcessorError, match="changedBy must be"):
        PatternProcessor.from_dict({"id": "a", "version": 1, "sql": "PATTERN (A) DEFINE A AS x > 1", "changedBy": name})


def test_the_item_of_a_version_is_the_last_one_and_no_shadow() -> None:
    shadow = version(2, shadow=True)
    log = [
        HistoryEntry("t", 1, "added", "ab", 1, definition=version(1).text),
        HistoryEntry("t", 2, "added", "ab", 2, definition=shadow.text, shadow=True),
        HistoryEntry("t", 3, "replaced", "ab", 1, 2, definition=version(1, labels={"a": "b"}).text),
        HistoryEntry("t", 3, "removed", "ab", before=1),
    ]
    assert history.item_of_version(log, "ab", 2) == version(2).to_dict()
    assert history.item_of_version(log, "ab", 1) == version(1, labels={"a": "b"}).to_dict()
    assert history.item_of_version(log, "ab", 3) is None
