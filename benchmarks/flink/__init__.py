"""Flink CEP and Flink SQL on the same data: its jars, the Java programs of this folder, and their runs.

The programs are compiled with ``javac`` against the jars of Flink, which are found in the folder ``FLINK_LIB``, or else where
:func:`download` puts them. Nothing is downloaded unless that function is called.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness

VERSION = "2.3.0"
HERE = Path(__file__).parent
CACHE = harness.HERE / "data" / "flink"
_LIBRARY = Path("pyflink", "lib")
_DIST = f"flink-dist-{VERSION}.jar"
# What Flink's own scripts open to it.
_OPENED = (
    "java.lang", "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.net", "java.io", "java.nio",
    "java.math", "java.time", "java.text", "java.lang.reflect", "java.lang.invoke", "sun.nio.ch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variant:
    """How Flink runs a workload."""

    name: str
    arguments: tuple[str, ...]
    workloads: tuple[str, ...]


STREAM, FILTERED, BATCH, SQL = "flink", "flink filtered", "flink batch", "flink sql"
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(STREAM, (), ("W1", "W2", "W3", "W4", "W5", "W6")),
        # W2 is contiguous, so that no event may be dropped.
        Variant(FILTERED, ("filter=true",), ("W1", "W3", "W4", "W5")),
        Variant(BATCH, ("mode=batch",), ("W1", "W2", "W3", "W4", "W5")),
        Variant(SQL, ("sql=true",), ("W1", "W2", "W3")),
    )
}


# ------------------------------------------------------------------ jars


def library() -> Path | None:
    """The folder of Flink's jars; None: they are not there."""
    folder = Path(os.environ.get("FLINK_LIB", CACHE / _LIBRARY))
    return folder if (folder / _DIST).exists() else None


def download() -> Path:
    """Download the package of Flink's jars (330 MB) into ``benchmarks/data/flink``; returns the folder of the jars."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        package = f"apache-flink-libraries=={VERSION}"
        options = ("--no-deps", "--only-binary", ":all:", "--dest", scratch)
        subprocess.run([sys.executable, "-m", "pip", "download", *options, package], check=True, stdout=sys.stderr)
        (wheel,) = Path(scratch).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(CACHE)
    return CACHE / _LIBRARY


def build(library: Path, classes: Path) -> None:
    """Compile the programs into *classes*."""
    javac = shutil.which("javac")
    if javac is None:
        raise SystemExit("javac is not there: install a JDK, version 17")
    sources = [str(source) for source in sorted((HERE / "src").rglob("*.java"))]
    subprocess.run([javac, "-nowarn", "-d", str(classes), "-cp", f"{library}/*", *sources], check=True)
    shutil.copy(HERE / "src" / "log4j2.properties", classes)


# ------------------------------------------------------------------ runs


def run(
    library: Path, classes: Path, workload: str, variant: Variant, *, data: Path, runs: int, cores: int, heap: str,
    limit: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a record per run, the first of which warms up. A program that has not ended after *limit* seconds is ended; the last
    record is then ``{"more_than_s": limit}``.
    """
    command = [
        "java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseParallelGC",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-cp", f"{classes}:{library}/*", "cepbench.Bench",
        f"data={data}", f"workload={workload}", f"rules={harness.HERE / 'rules_w6.json'}", f"runs={runs}", f"cores={cores}",
        *variant.arguments,
    ]  # fmt: skip
    found = {"workload": workload, "mode": variant.name}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield found | json.loads(line)
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if late.is_set():
        yield found | {"more_than_s": limit}
    elif status:
        raise SystemExit(f"Flink ended with status {status}: {workload}, {variant.name}")
