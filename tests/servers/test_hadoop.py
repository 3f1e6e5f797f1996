"""Hadoop's file systems without Spark and without a server: over a local folder, with a JVM of their own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyarrow import fs

from asterism.errors import StateError
from asterism.files import hadoop
from asterism.files.file_systems import is_path, opened
from asterism.files.hadoop import HadoopFiles
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.set_store import FolderStore
from tests.kit import Golden

LOCAL = HadoopFiles("file://", {})
JARS = hadoop._jars()
FORK = """
import os, sys
from asterism.files.hadoop import HadoopFiles
files, name = HadoopFiles("file://", {}), sys.argv[1]
files.write(name, b"parent")
child = os.fork()
if not child:
    files.write(name, b"child")
    files = None
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert files.open_input_file(name).readall() == b"child"
"""


@pytest.fixture
def files() -> fs.FileSystem:
    return fs.PyFileSystem(LOCAL)


def test_files(files: fs.FileSystem, tmp_path: Path) -> None:
    """Written whole, replaced, listed, removed. One is larger than what is sent to the JVM at a time."""
    content = bytes(range(256)) * 4097
    with files.open_output_stream(f"{tmp_path}/one") as file:
        file.write(b"old")
    with files.open_output_stream(f"{tmp_path}/one.new") as file:
        file.write(content[:1000])
        file.write(content[1000:])
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["one", "one.new"]
    files.move(f"{tmp_path}/one.new", f"{tmp_path}/one")
    files.create_dir(f"{tmp_path}/folder/below", recursive=True)
    assert (tmp_path / "one").read_bytes() == content
    with files.open_input_file(f"{tmp_path}/one") as file:
        assert file.readall() == content
    listed = files.get_file_info(fs.FileSelector(str(tmp_path), recursive=True))
    assert sorted((info.base_name, info.type.name, info.size) for info in listed) == [
        ("below", "Directory", None),
        ("folder", "Directory", None),
        ("one", "File", len(content)),
    ]
    files.delete_file(f"{tmp_path}/one")
    assert files.get_file_info(f"{tmp_path}/one").type is fs.FileType.NotFound


def test_files_that_are_not_there(files: fs.FileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        files.open_input_file(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError, match="none"):
        files.delete_file(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError, match="none"):
        files.get_file_info(fs.FileSelector(f"{tmp_path}/none"))
    assert files.get_file_info(fs.FileSelector(f"{tmp_path}/none", allow_not_found=True)) == []
    with pytest.raises(OSError, match="FileAlreadyExistsException|ParentNotDirectoryException|Mkdirs failed"):
        (tmp_path / "file").touch()
        files.open_output_stream(f"{tmp_path}/file/below").close()


def test_a_store_of_rules(tmp_path: Path) -> None:
    """On a scheme that only Hadoop has. The file system is opened once, also for the copies of the store that tasks have."""
    settings = {"fs.viewfs.mounttable.everything.link./rules": f"file://{tmp_path}"}
    store = FolderStore("viewfs://everything/rules/pattern_processors", settings)
    assert not store.exists()
    store.claim("0" * 32)
    for version in (1, 2):  # the second replaces the first
        store.write_status(Status(version=version))
        of_a_task: FolderStore = pickle.loads(pickle.dumps(store))
        assert of_a_task.read_status().version == version
        assert of_a_task._open() is store._open()
    assert store.belongs_to("0" * 32)
    assert not store.belongs_to("1" * 32)
    assert sorted(path.name for path in (tmp_path / "pattern_processors").glob("[!.]*")) == ["owner", "status.json"]


def test_a_jvm_that_has_died_is_started_again(tmp_path: Path) -> None:
    LOCAL.write(f"{tmp_path}/one", b"content")
    hadoop._started[0].java.kill()
    with pytest.raises(OSError, match="the JVM of Hadoop's file systems: "):
        LOCAL.open_input_file(f"{tmp_path}/one")
    assert LOCAL.open_input_file(f"{tmp_path}/one").readall() == b"content"


def test_a_process_and_its_child_have_each_a_jvm(tmp_path: Path) -> None:
    """The child does not touch the sockets of its parent, also not for what Python's garbage collection does with Java's objects."""
    command = [sys.executable, "-W", "error", "-c", FORK, str(tmp_path / "one")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("location", "is_hadoops"),
    [
        ("/data/rules", False),
        ("file:///data/rules", False),
        ("hdfs://namenode:8020/rules", True),
        ("viewfs://everything/rules", True),
        ("dbfs:/rules", True),
        ("WASBS://data@account.net/rules", True),
    ],
)
def test_who_reads_a_location(location: str, is_hadoops: bool) -> None:
    """No JVM is started before a file is."""
    files, path = opened(location, {})
    assert path == ("/data/rules" if "data/" in location else "/rules")
    assert isinstance(files, fs.PyFileSystem) == is_hadoops
    if is_hadoops:
        assert files.handler.root == location.partition(":")[0] + "://" + urlsplit(location).netloc
    assert is_path(location) == location.startswith("/")


# ---------------------------------------------------------------------- what cannot be started


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The environment of a process that has not started one yet: a folder that is JAVA_HOME, and one that is SPARK_HOME."""
    running = hadoop._started.copy()
    hadoop._started.clear()
    (tmp_path / "bin").mkdir()
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    yield tmp_path
    assert not hadoop._started
    hadoop._started.extend(running)


def java(folder: Path, script: str) -> None:
    (folder / "jars" / "py4j-1.jar").touch()
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "java").chmod(0o755)


def read() -> object:
    return LOCAL.open_input_file("/etc/hostname")


def test_no_java(no_jvm: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setenv("PATH", "")
    golden.error("no_java", read)


def test_no_jars(no_jvm: Path) -> None:
    with pytest.raises(StateError, match=r"jars has no py4j-\*\.jar"):
        read()


def test_jars_without_hadoop(no_jvm: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    """Those of a Spark "without Hadoop"."""
    monkeypatch.delenv("JAVA_HOME")
    of_py4j = next(JARS.glob("py4j-*.jar"))
    (no_jvm / "jars" / of_py4j.name).symlink_to(of_py4j)
    golden.error("jars_without_hadoop", read)


def test_java_ends(no_jvm: Path, golden: Golden) -> None:
    java(no_jvm, "echo 'Error: Could not create the Java Virtual Machine.' >&2; exit 1")
    golden.error("java_ends", read)


def test_java_says_nothing(no_jvm: Path, golden: Golden) -> None:
    java(no_jvm, "exit 3")
    golden.error("java_says_nothing", read)


def test_java_takes_too_long(no_jvm: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    """The process is ended."""
    monkeypatch.setattr(hadoop, "START_SECONDS", 0.2)
    java(no_jvm, f"echo $$ > {no_jvm}/pid; exec sleep 100")
    golden.error("java_takes_too_long", read)
    with pytest.raises(ProcessLookupError):
        os.kill(int((no_jvm / "pid").read_text()), 0)


def test_an_unknown_scheme(golden: Golden) -> None:
    golden.error("unknown_scheme", lambda: HadoopFiles("nowhere://host", {}).open_input_file("/rules"))
