"""The manifest of a savepoint has the sizes and checksums of its files: a file that is another one is noticed before its state is
written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from asterism.errors import StateError
from asterism.live.snapshots import is_live_folder
from asterism.live.takeover import create_live_savepoint, restore_live_savepoint
from asterism.operators.operator import EVENTS
from asterism.rules.sets.set_store import STORE
from asterism.savepoints import file_sums
from asterism.savepoints.file_sums import FileSum, below, sums_from_json, sums_to_json
from asterism.savepoints.manifest import MANIFEST, ROWS, SEAM, SOURCES, folder_of_waiting
from asterism.savepoints.rule_sets import RULES
from asterism.spark.savepoints.restoring import StoredSavepoint, read_checked
from tests.savepoints.kit import folder_of
from tests.savepoints.test_damaged_savepoints import keys_of, opened

WAITING = folder_of_waiting(EVENTS)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    with opened("rules", folder / "live") as engine:
        for second in (1, 2):
            row = {"ts": datetime.fromtimestamp(second, UTC), "user": "ann", "kind": "a"}
            engine.process([row], watermark=datetime.fromtimestamp(second - 1, UTC))
    create_live_savepoint(folder / "live", folder / "savepoint")
    return folder / "savepoint"


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def error_of(read: Callable[[], object]) -> str:
    with pytest.raises(StateError) as caught:
        read()
    assert "create the savepoint again, or copy all of its files" in str(caught.value)
    return str(caught.value)


def test_all_files_but_the_manifest_have_one(rules: Path) -> None:
    files = json.loads((rules / MANIFEST).read_text())["files"]
    every = {str(path.relative_to(rules)): path for path in rules.rglob("*") if path.is_file()}
    assert files.keys() == every.keys() - {MANIFEST}
    assert {name.partition("/")[0] for name in files} == {ROWS, WAITING, SEAM, RULES, STORE}
    for name, each in files.items():
        assert FileSum(each["size"], int(each["crc32"], 16)) == FileSum.of(every[name].read_bytes())


@pytest.mark.parametrize("name", [ROWS, SEAM, RULES, STORE])
def test_a_changed_file(rules: Path, tmp_path: Path, name: str) -> None:
    """All are read by a live engine; of tables, what reads on Spark compares the sizes first."""
    for change in (flipped, longer, Path.unlink):
        savepoint = tmp_path / change.__name__
        shutil.copytree(rules, savepoint)
        place = savepoint / name
        file = place if place.is_file() else min(path for path in place.rglob("*") if path.is_file())
        change(file)
        said = error_of(lambda savepoint=savepoint: restore_live_savepoint(savepoint, tmp_path / "live"))
        assert str(file) in said
        assert ("is missing" if change is Path.unlink else "has changed") in said
        assert not is_live_folder(tmp_path / "live")
        if name == RULES or change is Path.unlink or (name == ROWS and change is longer):
            assert str(file) in error_of(lambda savepoint=savepoint: StoredSavepoint.of(folder_of(savepoint)))


@pytest.mark.parametrize("name", [ROWS, WAITING, SEAM, RULES, STORE, SOURCES])
def test_what_was_lost_as_a_whole(rules: Path, tmp_path: Path, name: str) -> None:
    """It is noticed before anything is written, by Spark and by a live engine."""
    savepoint = tmp_path / "savepoint"
    shutil.copytree(rules, savepoint)
    (savepoint / SOURCES / "0").mkdir(parents=True)
    (savepoint / SOURCES / "0" / "0").write_text("v1")
    document = json.loads((savepoint / MANIFEST).read_text())
    document["files"][f"{SOURCES}/0/0"] = {"size": 2}
    (savepoint / MANIFEST).write_text(json.dumps(document))
    StoredSavepoint.of(folder_of(savepoint))
    lost = savepoint / name
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    for read in (
        lambda: StoredSavepoint.of(folder_of(savepoint)),
        lambda: restore_live_savepoint(savepoint, tmp_path / "live"),
    ):
        said = error_of(read)
        assert "a file of the savepoint is missing" in said
        assert str(lost) in said
    assert not is_live_folder(tmp_path / "live")


def test_spark_compares_what_it_reads_as_a_whole_and_what_it_copies(rules: Path, tmp_path: Path) -> None:
    shutil.copytree(rules, tmp_path / "savepoint")
    place = folder_of(tmp_path / "savepoint")
    opened_before = StoredSavepoint.of(place)
    sums = opened_before.manifest.files
    for file in (keys_of(tmp_path / "savepoint"), tmp_path / "savepoint" / SEAM, *(place_of_sets(tmp_path))):
        flipped(file)
    of_keys = opened_before.operators[0].content_of(ROWS)
    file = keys_of(tmp_path / "savepoint")
    said = error_of(lambda: of_keys.check(f"s3a://bucket/keys/{file.name}", pa.py_buffer(file.read_bytes())))
    assert f"{file} has the CRC-32" in said
    assert str(tmp_path / "savepoint" / SEAM) in error_of(lambda: read_checked(place, SEAM, 1_000, sums))
    copied = error_of(lambda: (place / STORE).copy_to(folder_of(tmp_path / "copy"), below(sums, STORE)))
    assert f"{tmp_path / 'savepoint' / STORE}/" in copied


def place_of_sets(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "savepoint" / STORE).rglob("*") if path.is_file())[:1]


def test_a_file_without_an_entry_is_not_compared(rules: Path, tmp_path: Path) -> None:
    """Such as one that another program has changed on purpose."""
    shutil.copytree(rules, tmp_path / "savepoint")
    document = json.loads((tmp_path / "savepoint" / MANIFEST).read_text())
    longer(tmp_path / "savepoint" / SEAM)
    del document["files"][SEAM]
    (tmp_path / "savepoint" / MANIFEST).write_text(json.dumps(document))
    restore_live_savepoint(tmp_path / "savepoint", tmp_path / "live")


def test_a_large_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 9)
    local = fs.LocalFileSystem()
    infos = dict(file_sums.files_below(local, str(tmp_path)))
    whole = file_sums.sums_in(local, infos)
    monkeypatch.setattr(file_sums, "_CHUNK", 100)
    assert file_sums.sums_in(local, infos) == whole == {"a": FileSum.of((tmp_path / "a").read_bytes())}


@pytest.mark.parametrize(
    "files",
    [
        {"a": {"size": -1}},
        {"a": {"size": "1"}},
        {"a": {"size": True}},
        {"a": {"size": 1, "crc32": 5}},
        {"a": {"size": 1, "crc32": "x"}},
        {"a": {"size": 1, "crc32": "123456789"}},
        {"a" * 2_000: {"size": 1}},
        {"a": 3},
        {"a": {}},
        [1],
    ],
)
def test_what_are_no_sizes_and_checksums(rules: Path, tmp_path: Path, files: object) -> None:
    shutil.copytree(rules, tmp_path / "savepoint")
    document = json.loads((tmp_path / "savepoint" / MANIFEST).read_text())
    (tmp_path / "savepoint" / MANIFEST).write_text(json.dumps(document | {"files": files}))
    with pytest.raises(StateError, match=f"there is no savepoint in {tmp_path / 'savepoint'}"):
        StoredSavepoint.of(folder_of(tmp_path / "savepoint"))


def test_they_are_read_as_written() -> None:
    sums = {"keys/a.parquet": FileSum(3, 7), "keys/large.parquet": FileSum(2**40)}
    assert sums_from_json(json.loads(json.dumps(sums_to_json(sums)))) == sums
