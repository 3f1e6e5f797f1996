"""Hadoop's file systems without Spark and without a server: over a local folder, with a JVM of their own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from py4j import java_gateway
from pyarrow import fs
from pyspark.errors.exceptions.captured import install_exception_handler

from asterism.files import hadoop
from asterism.files.file_systems import is_path, opened
from asterism.files.hadoop import HadoopFiles
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.set_store import FolderStore

LOCAL = HadoopFiles("file://", {})
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


def test_a_missing_file_in_a_program_with_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's handler would ask Spark's JVM about an exception of another JVM: at best it does not have such an object."""
    monkeypatch.setattr(java_gateway, "get_return_value", java_gateway.get_return_value)  # put back at the end
    install_exception_handler()
    with pytest.raises(FileNotFoundError, match="none"):
        LOCAL.open_input_file(f"{tmp_path}/none")


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


def test_two_claims_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is made while the first has written its file and not yet moved it: neither fails, and the last has the store."""
    settings = {"fs.viewfs.mounttable.everything.link./rules": f"file://{tmp_path}"}
    store = FolderStore("viewfs://everything/rules", settings)
    other: FolderStore = pickle.loads(pickle.dumps(store))
    move = HadoopFiles.move

    def late_move(files: HadoopFiles, src: str, dest: str) -> None:
        monkeypatch.setattr(HadoopFiles, "move", move)
        other.claim("1" * 32)
        assert other.belongs_to("1" * 32)
        files.move(src, dest)

    monkeypatch.setattr(HadoopFiles, "move", late_move)
    store.claim("0" * 32)
    assert store.belongs_to("0" * 32)
    assert not other.belongs_to("1" * 32)


def test_a_jvm_that_has_died_is_started_again(tmp_path: Path) -> None:
    LOCAL.write(f"{tmp_path}/one", b"content")
    java = hadoop._started[0].java
    java.kill()
    with pytest.raises(OSError, match="the JVM of Hadoop's file systems: "):
        LOCAL.open_input_file(f"{tmp_path}/one")
    assert LOCAL.open_input_file(f"{tmp_path}/one").readall() == b"content"
    assert java.stdin is not None
    assert java.stdin.closed


def test_a_process_and_its_child_have_each_a_jvm(tmp_path: Path) -> None:
    """The child does not touch the sockets of its parent, also not when objects of Java are collected."""
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
