"""Files and folders: what is special about them."""

from __future__ import annotations

import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism.discovery import FilePatternProcessorDiscovererFactory, SqlPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.sources import documents
from asterism.discovery.sources import file as module
from asterism.errors import PatternProcessorError
from asterism.rules.sets.interfaces import PatternProcessorDiscoverer
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


@pytest.mark.parametrize("names", [("1.json", "2.json")])
def test_a_promotion_in_two_files_is_seen_as_one(tmp_path: Path, names: tuple[str, str]) -> None:
    """Whenever a query looks, the version is there, so its partial matches stay."""
    write(tmp_path / names[0], rule("a"))
    write(tmp_path / names[1], rule("a", 2, shadow=True))
    one = discoverer(tmp_path)
    one.initial_pattern_processors()
    with watching(one) as manager:
        for version in range(2, 5):
            assert rules_at(str(tmp_path)).promote(["a"]) == [f"a version {version} promoted"]
            manager.wait_for({"a": version})
            manager.wait(lambda: len(manager.last) == 1)
            seen = [{each.version for each in update} for update in manager.updates]
            assert all(version in each for each in seen), seen
            manager.updates.clear()
            write(tmp_path / names[1], rule("a", version + 1, shadow=True))
            manager.wait(lambda: manager.updates and len(manager.last) == 2)
            manager.updates.clear()


def test_the_promotion_of_a_template_in_two_files_is_seen_as_one(tmp_path: Path) -> None:
    def template(limit: int, **more: Any) -> dict[str, Any]:
        sql = "PATTERN (A) DEFINE A AS price > :limit"
        rows = [{"id": "de", "limit": 1}, {"id": "uk", "limit": limit}]
        return {"id": "t", "parameters": {"limit": "number"}, "rows": rows, "sql": sql, **more}

    write(tmp_path / "1.json", template(2))
    write(tmp_path / "2.json", template(3, shadow=True))
    one = discoverer(tmp_path)
    first = {(each.id, each.shadow): each.version for each in one.initial_pattern_processors()}
    assert first["t/de", False] == first["t/de", True]
    with watching(one) as manager:
        assert rules_at(str(tmp_path)).promote(["t"]) == ["t promoted"]
        manager.wait_for({"t/de": first["t/de", False], "t/uk": first["t/uk", True]})
        manager.wait(lambda: len(manager.last) == 2)
        seen = [{each.version for each in update} for update in manager.updates]
        assert all(first["t/uk", True] in each for each in seen), seen


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
    [text] = [str(r).partition("/zoo.json: ")[2] for r in refused(found)]
    why = f"a version 9: [PATTERN_PROCESSOR] two processors have the id 'a'; The other is in {folder / 'one.json'}."
    assert text.startswith(why)


def test_of_several_files_that_counts_which_had_an_id_first(folder: Path) -> None:
    """Also if another one comes before it by name, or it is wrong for a while; not, if it lets the id go."""
    one = module.FileDiscoverer(folder, INTERVAL)
    one.initial_pattern_processors()
    write(folder / "abc.json", rule("a", 9), rule("d"))
    assert versions(one.poll() or []) == {"a": 1, "b": 2, "c": 3, "d": 1}
    write(folder / "one.json", rule("a", 2, pattern={}), rule("b", 3))
    found = one.poll() or []
    assert versions(found) == {"b": 3, "c": 3, "d": 1}
    assert sorted((r.id, r.version) for r in refused(found)) == [("a", 2), ("a", 9)]
    (folder / "one.json").write_text("{", encoding="utf-8")
    assert versions(one.poll() or []) == {"c": 3, "d": 1}
    write(folder / "one.json", rule("a", 2, enabled=False))
    assert versions(one.poll() or []) == {"a": 9, "c": 3, "d": 1}
    write(folder / "one.json", rule("a", 2))
    assert versions(one.poll() or []) == {"a": 9, "c": 3, "d": 1}


def test_a_removed_file_takes_its_processors_with_it(folder: Path) -> None:
    one = discoverer(folder)
    one.initial_pattern_processors()
    with watching(one) as manager:
        (folder / "one.json").unlink()
        manager.wait_for({"c": 3})


@pytest.mark.parametrize("suffix", ["yaml"])
def test_a_file_that_is_being_written_counts_when_it_is_whole(tmp_path: Path, suffix: str) -> None:
    """Written bit by bit it is often a shorter set, in YAML, or no JSON."""
    path = tmp_path / f"rules.{suffix}"
    begin, comma, end = ("[", ",", "]") if suffix == "json" else ("", "", "")
    parts = [("- " if suffix == "yaml" else "") + json.dumps(rule(f"r{n}")) + "\n" for n in range(30)]
    path.write_text(begin + comma.join(parts) + end, encoding="utf-8")
    one = discoverer(path)
    assert len(versions(one.initial_pattern_processors())) == 30
    newer = [part.replace('"version": 1', '"version": 2') for part in parts]
    closed = one._closed
    with path.open("w", encoding="utf-8") as file:

        class Written(threading.Event):
            """A look that waits for the file to rest: meanwhile its writer goes on."""

            def wait(self, timeout: float | None = None) -> bool:
                file.write((begin if len(newer) == 30 else comma) + newer.pop(0))
                file.flush()
                return False

        one._closed = Written()
        while newer:
            assert one.poll() is None
        one._closed = closed
        file.write(end)
    assert versions(one.poll() or []) == {f"r{n}": 2 for n in range(30)}


def test_the_same_bytes_do_not_mean_that_a_file_was_not_written(folder: Path) -> None:
    """A writer empties its file each time: two reads may both find it empty."""
    one = discoverer(folder)
    one.initial_pattern_processors()
    path = folder / "one.json"
    closed = one._closed

    class Written(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            os.utime(path, ns=(10**18, 10**18))
            return closed.wait(0)

    path.write_text("", encoding="utf-8")
    one._closed = Written()
    assert one.poll() is None
    one._closed = closed
    assert sorted(r.id for r in refused(one.poll() or [])) == ["a", "b"]


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
    monkeypatch.setattr(module, "SETTLED", -1)  # as if time had passed
    path = tmp_path / "rules.json"
    write(path, rule("a"))
    one = module.FileDiscoverer(path, INTERVAL)
    one.initial_pattern_processors()
    reads: list[Path] = []
    monkeypatch.setattr(module, "read_file", reads.append)
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


@pytest.mark.timeout(120)
def test_what_is_not_a_file_is_refused_alone(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    found = discoverer(folder).initial_pattern_processors()
    assert versions(found) == {"a": 1, "b": 2, "c": 3}
    assert [r.error.message.partition("/")[2].rpartition("/")[2] for r in refused(found)] == [
        "folder.json is not a file",
        "pipe.json is not a file",
    ]


def test_a_link_that_leads_nowhere_is_refused_alone(folder: Path) -> None:
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "through.json").symlink_to("one.json/none.json")
    found = discoverer(folder).initial_pattern_processors()
    assert versions(found) == {"a": 1, "b": 2, "c": 3}
    assert [(Path(str(r.place)).name, r.unidentified) for r in refused(found)] == [
        ("loop.json", True),
        ("through.json", True),
    ]


def test_the_rules_of_a_link_stay_while_what_it_leads_to_is_away(folder: Path, tmp_path_factory: Any) -> None:
    target = tmp_path_factory.mktemp("elsewhere") / "rules.json"
    write(target, rule("linked"))
    (folder / "link.json").symlink_to(target)
    one = module.FileDiscoverer(folder, INTERVAL)
    assert versions(one.initial_pattern_processors()) == {"a": 1, "b": 2, "c": 3, "linked": 1}
    target.rename(target.with_name("away"))
    found = one.poll() or []
    assert [(r.id, r.unidentified, r.error.detail) for r in refused(found)] == [
        ("linked", False, "No such file or directory")
    ]
    assert one.poll() is None
    target.with_name("away").rename(target)
    assert versions(one.poll() or []) == {"a": 1, "b": 2, "c": 3, "linked": 1}
    (folder / "link.json").unlink()
    found = one.poll() or []
    assert (versions(found), refused(found)) == ({"a": 1, "b": 2, "c": 3}, [])


def test_sizes_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_FILES", 1)
    with pytest.raises(PatternProcessorError, match=r"has 2 files \(limit 1\)"):
        discoverer(folder).initial_pattern_processors()
    monkeypatch.setattr(documents, "MAX_FILES", 2)
    monkeypatch.setattr(module, "MAX_TOTAL", 10)
    with pytest.raises(PatternProcessorError, match="more than 10 bytes in its files"):
        discoverer(folder).initial_pattern_processors()


def test_a_relative_path_stays_what_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    factory = FilePatternProcessorDiscovererFactory("one.json")
    monkeypatch.chdir("/")
    assert versions(factory.create_pattern_processor_discoverer().initial_pattern_processors()) == {"a": 1, "b": 2}


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1), timedelta.max, 5, None])
def test_an_interval_is_positive(folder: Path, interval: Any) -> None:
    with pytest.raises(PatternProcessorError, match="an interval"):
        FilePatternProcessorDiscovererFactory(folder, interval=interval)
    with pytest.raises(PatternProcessorError, match="an interval"):
        SqlPatternProcessorDiscovererFactory("sqlite:///rules.db", interval=interval)
