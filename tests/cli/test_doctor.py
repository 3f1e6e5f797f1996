"""``asterism doctor``: each check, on a machine on which it fails."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from asterism.cli import doctor as checks
from asterism.cli.main import main
from asterism.columns import compiled


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *(options or ["--no-spark"])])


def failures(result: Result) -> list[str]:
    """The lines that begin with FAILED, without that word, each with the line that follows."""
    lines = result.output.splitlines()
    return [
        f"{line.removeprefix('FAILED  ')} -> {following.strip()}"
        for line, following in itertools.pairwise(lines)
        if line.startswith("FAILED")
    ]


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def test_a_machine_that_has_everything() -> None:
    result = run()
    assert failures(result) == []
    assert result.exit_code == 0
    assert result.output.endswith("queries can run in this process\n")
    for text in (sys.executable, f"asterism {metadata.version('asterism')}", "pyarrow ", "__pycache__"):
        assert text in result.output
    assert "ok      a query in this process: a table took" in result.output
    assert "Java" not in result.output


@pytest.fixture
def without_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_query", lambda show: "")
    monkeypatch.setattr(checks, "_query_on_spark", lambda show: "")


@pytest.mark.usefixtures("without_queries")
def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "install Java 17 or later (a JRE is enough), and put it on the PATH or set JAVA_HOME"
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = tmp_path / "bin" / "java"
    for text, problem in [
        ("""echo 'openjdk version "1.8.0_402"' >&2""", f"{java} is Java 8"),
        ("""echo 'openjdk version "11.0.2"' >&2""", f"{java} is Java 11"),
        ("echo hello", f"{java} does not tell its version: hello"),
        ("echo broken >&2; exit 3", f"{java} failed: broken"),
    ]:
        program(tmp_path / "bin", "java", text)
        assert failures(run("--spark")) == [f"Java: {problem} -> {advice}"]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    result = run("--spark")
    assert failures(result) == [f"Java: there is none on the PATH, and JAVA_HOME is not set -> {advice}"]
    assert result.exit_code == 1
    assert result.output.splitlines()[-2:] == [
        "1 of the checks failed",
        "queries can run in this process, but not on Spark; --no-spark leaves out what only Spark needs",
    ]


@pytest.mark.usefixtures("without_queries")
def test_python_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = (
        "set PYSPARK_PYTHON to the Python of the driver, or to one of the same minor version with the same packages"
    )
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for text, problem in [
        ("echo 3.9", f"PYSPARK_PYTHON={tmp_path}/python is Python 3.9, and the driver is {own}"),
        ("echo ModuleNotFoundError >&2; exit 1", f"{tmp_path}/python failed: ModuleNotFoundError"),
    ]:
        monkeypatch.setenv("PYSPARK_PYTHON", str(program(tmp_path, "python", text)))
        assert failures(run("--spark")) == [f"Python of Spark's workers: {problem} -> {advice}"]
    monkeypatch.setenv("PYSPARK_PYTHON", str(program(tmp_path, "python", f"echo {own}")))
    result = run("--spark")
    assert result.output.endswith("queries can run on this machine\n")


@pytest.mark.usefixtures("without_queries")
def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def other(name: str) -> str:
        if name == "duckdb":
            raise metadata.PackageNotFoundError(name)
        return "3.4.0" if name == "pyspark" else version(name)

    monkeypatch.setattr(metadata, "version", other)
    (found,) = failures(run())
    assert found.startswith("packages: duckdb is not installed (needed: ")
    assert found.endswith("', or install asterism with pip in an environment of its own")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    of_spark = next(line for line in failures(run("--spark")) if line.startswith("packages for Spark: "))
    assert re.sub(r"[<>=]+[\d.]+,?", "", of_spark) == (
        "packages for Spark: pyspark is 3.4.0 (needed: ) -> "
        "pip install 'pyspark', or install asterism with pip in an environment of its own"
    )


@pytest.mark.usefixtures("without_queries")
def test_without_the_packages_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def other(name: str) -> str:
        if name in ("pyspark", "pandas"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", other)
    result = run()
    assert (failures(result), result.exit_code) == ([], 0)
    assert "; not installed: pyspark, pandas, which only Spark needs\n" in result.output


@pytest.mark.usefixtures("without_queries")
def test_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "cache_folder", lambda: None)
    monkeypatch.setattr(checks, "LEAST_FREE", 2**80)
    found = failures(run())
    assert [line.partition(":")[0] for line in found] == ["compiled code", "temporary files"]
    assert "set NUMBA_CACHE_DIR to a writable folder, on executors, too" in found[0]


def test_a_query_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(settings: Any) -> Any:
        raise RuntimeError("Spark is not here\n\nand more")

    monkeypatch.setattr(checks, "local_spark", fails)
    result = run("--spark")
    assert failures(result) == [
        "a query on Spark: Spark failed: Spark is not here -> "
        "the checks above may say why; otherwise, the reason is that of Spark"
    ]
    assert result.exit_code == 1
