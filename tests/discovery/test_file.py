"""Files and folders: what is special about them."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.discovery import file as module
from asterism.errors import PatternProcessorError
from asterism.processors import PatternProcessorDiscoverer
from tests.discovery.kit import INTERVAL, Rule, refused, rule, versions, watching


def write(path: Path, *rules: Rule) -> None:
    path.write_text(json.dumps(rules), encoding="utf-8")


def discoverer(path: Path) -> PatternProcessorDiscoverer:
    return FilePatternProcessorDiscovererFactory(path, interval=INTERVAL).create_pattern_processor_discoverer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "one.json", rule("a"), rule("b", 2))
    (tmp_path / "two.yaml").write_text(
        "id: c\nversion: 3\npattern: " + json.dumps(rule("c")["pattern"]), encoding="utf-8"
    )
    return tmp_path


def test_a_folder_has_json_and_yaml_and_nothing_else(folder: Path) -> None:
    write(folder / ".hidden.json", rule("h"))
    write(folder / "rules.json~", rule("h"))
    write(folder / "rules.txt", rule("h"))
    (folder / "sub").mkdir()
    write(folder / "sub" / "rules.json", rule("h"))
    write(folder / "three.yml", rule("d"))
    assert versions(discoverer(folder).initial_pattern_processors()) == {"a": 1, "b": 2, "c": 3, "d": 1}


def test_an_empty_folder_is_an_empty_set(tmp_path: Path) -> None:
    assert discoverer(tmp_path).initial_pattern_processors() == []


def test_a_bad_file_is_refused_alone_and_the_ids_that_it_held_stay(folder: Path) -> None:
    one = discoverer(folder)
    one.initial_pattern_processors()
    with watching(one) as manager:
        (folder / "one.json").write_text('{"processors": [', encoding="utf-8")
        write(folder / "new.json", rule("d"))
        found = manager.wait_for({"c": 3, "d": 1})
        assert [(r.id, r.unidentified, Path(str(r.place)).name) for r in refused(found)] == [
            ("a", False, "one.json"),
            ("b", False, "one.json"),
        ]
        write(folder / "one.json", rule("a", 2))
        assert refused(manager.wait_for({"a": 2, "c": 3, "d": 1})) == []


def test_of_a_file_that_was_never_good_the_ids_are_unknown(folder: Path) -> None:
    """As after a restart: any processor that is in force may be in it."""
    (folder / "one.json").write_text("{", encoding="utf-8")
    found = discoverer(folder).initial_pattern_processors()
    assert versions(found) == {"c": 3}
    assert [(Path(str(r.place)).name, r.unidentified) for r in refused(found)] == [("one.json", True)]


def test_the_same_id_in_two_files_is_refused_the_second_time(folder: Path) -> None:
    write(folder / "zoo.json", rule("a", 9))
    found = discoverer(folder).initial_pattern_processors()
    assert versions(found) == {"a": 1, "b": 2, "c": 3}
    assert [str(r).partition("/zoo.json: ")[2] for r in refused(found)] == [
        "a version 9: two processors have the id 'a'"
    ]


def test_a_removed_file_takes_its_processors_with_it(folder: Path) -> None:
    one = discoverer(folder)
    one.initial_pattern_processors()
    with watching(one) as manager:
        (folder / "one.json").unlink()
        manager.wait_for({"c": 3})


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_that_is_being_written_counts_when_it_is_whole(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written bit by bit it is often a shorter set, in YAML, or no JSON."""
    monkeypatch.setattr(module, "AT_REST", timedelta(seconds=1))  # a busy machine may stop the writer for a moment
    path = tmp_path / f"rules.{suffix}"
    begin, comma, end = ("[", ",", "]") if suffix == "json" else ("", "", "")
    parts = [("- " if suffix == "yaml" else "") + json.dumps(rule(f"r{n}")) + "\n" for n in range(30)]
    path.write_text(begin + comma.join(parts) + end, encoding="utf-8")
    one = discoverer(path)
    assert len(versions(one.initial_pattern_processors())) == 30
    with watching(one) as manager:
        newer = [part.replace('"version": 1', '"version": 2') for part in parts]
        with path.open("w", encoding="utf-8") as file:
            for n, part in enumerate(newer):
                file.write((begin if n == 0 else comma) + part)
                file.flush()
                time.sleep(0.05)
            file.write(end)
        manager.wait_for({f"r{n}": 2 for n in range(30)})
        assert len(manager.updates) == 1


def test_a_file_that_is_written_all_the_time_holds_up_no_other(folder: Path) -> None:
    one = discoverer(folder)
    one.initial_pattern_processors()
    ended = threading.Event()

    def scribble() -> None:
        n = 2
        while not ended.wait(0.02):
            n += 1
            write(folder / "one.json", rule("a", n))

    writer = threading.Thread(target=scribble, daemon=True)
    with watching(one) as manager:
        writer.start()
        time.sleep(0.1)
        write(folder / "new.json", rule("d"))
        manager.wait_for({"a": 1, "b": 2, "c": 3, "d": 1})
        ended.set()
        writer.join()
        last = json.loads((folder / "one.json").read_text())[0]["version"]
        manager.wait_for({"a": last, "c": 3, "d": 1})


def test_the_same_size_and_times_hide_nothing(tmp_path: Path) -> None:
    """Who sets the times back, or writes twice within the resolution of the file system's clock, is seen all the same."""
    path = tmp_path / "rules.json"
    write(path, rule("a", 1))
    os.utime(path, ns=(10**18, 10**18))
    one = discoverer(path)
    one.initial_pattern_processors()
    with watching(one) as manager:
        for version in (2, 3):
            write(path, rule("a", version))
            os.utime(path, ns=(10**18, 10**18))
            manager.wait_for({"a": version})


def test_what_rests_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLED", 0.05)
    path = tmp_path / "rules.json"
    write(path, rule("a"))
    time.sleep(0.1)
    one = module.FileDiscoverer(path, INTERVAL)
    one.initial_pattern_processors()
    reads = []
    monkeypatch.setattr(Path, "open", lambda self, mode: reads.append(self))
    assert one.poll() is None
    assert reads == []


def test_other_times_alone_are_no_change(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    write(path, rule("a"))
    one = module.FileDiscoverer(path, INTERVAL)
    one.initial_pattern_processors()
    os.utime(path, (0, 0))
    assert one.poll() is None


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    """As Kubernetes changes what it mounts."""
    for version in (1, 2):
        (tmp_path / f"v{version}").mkdir()
        write(tmp_path / f"v{version}" / "rules.json", rule("a", version))
    (tmp_path / "now").symlink_to("v1")
    one = discoverer(tmp_path / "now")
    one.initial_pattern_processors()
    with watching(one) as manager:
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").rename(tmp_path / "now")
        manager.wait_for({"a": 2})


@pytest.mark.timeout(20)
def test_what_is_not_a_file_is_refused_alone(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    found = discoverer(folder).initial_pattern_processors()
    assert versions(found) == {"a": 1, "b": 2, "c": 3}
    assert [r.error.message.partition("/")[2].rpartition("/")[2] for r in refused(found)] == [
        "folder.json is not a file",
        "pipe.json is not a file",
    ]


def test_sizes_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(PatternProcessorError, match=r"has 2 files \(limit 1\)"):
        discoverer(folder).initial_pattern_processors()
    monkeypatch.setattr(module, "MAX_FILES", 2)
    monkeypatch.setattr(module, "MAX_TOTAL", 10)
    with pytest.raises(PatternProcessorError, match=r"bytes \(limit 10\)"):
        discoverer(folder).initial_pattern_processors()


def test_a_relative_path_stays_what_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    factory = FilePatternProcessorDiscovererFactory("one.json")
    monkeypatch.chdir("/")
    assert versions(factory.create_pattern_processor_discoverer().initial_pattern_processors()) == {"a": 1, "b": 2}


def test_an_interval_must_be_positive(folder: Path) -> None:
    with pytest.raises(PatternProcessorError, match="must be positive"):
        FilePatternProcessorDiscovererFactory(folder, interval=timedelta(0)).create_pattern_processor_discoverer()
