"""What is said when Hadoop's file systems cannot be used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from asterism.errors import StateError
from asterism.files import hadoop
from asterism.files.hadoop import HadoopFiles
from tests.kit import Golden

LOCAL = HadoopFiles("file://", {})
JARS = hadoop._jars()
TEXTS = {"no_java", "jars_without_hadoop", "java_ends", "java_says_nothing", "java_takes_too_long", "unknown_scheme"}


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
