"""The command ``asterism doctor``: whether this machine can run queries, and what to do if it cannot."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asterism.cli.common.local_spark import local_spark, temporary_folder
from asterism.cli.common.terminal import first_paragraph, status_line
from asterism.errors import OF_SPARK, AsterismError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asterism import Pattern

LEAST_JAVA = 17
LEAST_FREE = 2**30
_SECONDS = 60
"""The maximum duration of another program in seconds."""


Check = tuple[str, Callable[[Callable[[str], None]], str]]
"""The name of a check, and what describes its success. It gets a function that shows what it is doing."""


class CheckFailedError(Exception):
    """A check has failed. *advice* says what to do."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.advice = advice


@click.command()
@click.option(
    "--spark/--no-spark",
    default=True,
    help="Whether to check what only Spark needs, Java included, and to run a query on Spark, which takes up to a minute.",
)
def doctor(spark: bool) -> None:
    """Check that this machine can run queries: Python, packages, the folders for compiled code and temporary files, and a small
    query in this process; then Java, the Python of Spark's workers, and a small query on Spark.

    The exit status is 1 if a check fails. Each line that begins with FAILED is followed by advice.
    """
    failed = _number_of_failures(_checks())
    of_spark = _number_of_failures(_checks_of_spark()) if spark else 0
    if failed or of_spark:
        click.echo(f"{failed + of_spark} of the checks failed")
        if not failed:
            click.echo("queries can run in this process, but not on Spark; --no-spark leaves out what only Spark needs")
        sys.exit(1)
    click.echo("queries can run on this machine" if spark else "queries can run in this process")


def _number_of_failures(checks: Iterator[Check]) -> int:
    """Run the checks, and write a line for each."""
    failed = 0
    for name, check in checks:
        try:
            with status_line(f"checking: {name}") as show:
                description = check(show)
        except CheckFailedError as problem:
            failed += 1
            click.echo(f"FAILED  {name}: {problem}\n        {problem.advice}")
        else:
            click.echo(f"ok      {name}: {description}")
    return failed


def _checks() -> Iterator[Check]:
    """The checks of what every query needs."""
    yield "Python", lambda _: _python()
    yield "packages", lambda _: _packages()
    yield "compiled code", lambda _: _compiled_code()
    yield "temporary files", lambda _: _temporary_files()
    yield "a query in this process", _query


def _checks_of_spark() -> Iterator[Check]:
    """The checks of what only Spark needs."""
    yield "packages for Spark", lambda _: _installed(of_spark=True)
    yield "Java", lambda _: _java()
    yield "Python of Spark's workers", lambda _: _python_of_workers()
    yield "a query on Spark", _query_on_spark


def _python() -> str:
    return f"{platform.python_version()}, {sys.executable}"


def _packages() -> str:
    """The dependencies without extras that every query needs. Those of Spark may be missing."""
    missing = [name for name in OF_SPARK if _version(name) is None]
    note = f"; not installed: {', '.join(missing)}, which only Spark needs" if missing else ""
    return f"asterism {_version('asterism')}, {_installed(of_spark=False)}{note}"


def _version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _installed(*, of_spark: bool) -> str:
    """The dependencies without extras that only Spark needs, or the others."""
    from packaging.requirements import Requirement

    installed, problems, needed = [], [], []
    for requirement in map(Requirement, metadata.requires("asterism") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if (requirement.name in OF_SPARK) != of_spark:
            continue
        version = _version(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            is_what = "is not installed" if version is None else f"is {version}"
            problems.append(f"{requirement.name} {is_what} (needed: {requirement.specifier})")
            needed.append(f"'{requirement.name}{requirement.specifier}'")
        else:
            installed.append(f"{requirement.name} {version}")
    if problems:
        advice = f"pip install {' '.join(needed)}, or install asterism with pip in an environment of its own"
        raise CheckFailedError("; ".join(problems), advice)
    return ", ".join(installed)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")  # comes before the PATH, as in Spark
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {LEAST_JAVA} or later (a JRE is enough), and put it on the PATH or set JAVA_HOME"
    if java is None:
        raise CheckFailedError("there is none on the PATH, and JAVA_HOME is not set", advice)
    text = _output_of([java, "-version"], advice)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    if version is None:
        raise CheckFailedError(f"{java} does not tell its version: {first_paragraph(text)}", advice)
    if int(version[1]) < LEAST_JAVA:
        raise CheckFailedError(f"{java} is Java {version[1]}", advice)
    return f"{version[1]}, {java}"


def _compiled_code() -> str:
    import asterism.columns.hashing  # noqa: F401 - has compiled functions
    from asterism.columns.compiled import cache_folder

    folder = cache_folder()
    if folder is None:
        raise CheckFailedError(
            "there is no writable folder, so that every process compiles for up to a minute",
            "set NUMBA_CACHE_DIR to a writable folder, on executors, too",
        )
    return str(folder)


def _temporary_files() -> str:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise CheckFailedError(
            f"{folder} has {free / 2**20:.0f} MiB left", "free space there, or set TMPDIR to another folder"
        )
    return f"{folder}, {free / 2**30:.0f} GiB free"


def _python_of_workers() -> str:
    python = os.environ.get("PYSPARK_PYTHON")
    if not python or python == sys.executable:
        return "this one"
    advice = (
        "set PYSPARK_PYTHON to the Python of the driver, or to one of the same minor version with the same packages"
    )
    program = "import sys, asterism; print('%d.%d' % sys.version_info[:2])"
    version = _output_of([python, "-c", program], advice).strip().splitlines()[-1]
    expected = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != expected:
        raise CheckFailedError(f"PYSPARK_PYTHON={python} is Python {version}, and the driver is {expected}", advice)
    return f"{python}, Python {version}"


def _output_of(command: list[str], advice: str) -> str:
    """Both outputs of a program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckFailedError(f"{command[0]} cannot be run: {error}", advice) from None
    written = (done.stdout + done.stderr).strip()
    if done.returncode:
        last = written.splitlines()[-1] if written else f"exit status {done.returncode}"
        raise CheckFailedError(f"{command[0]} failed: {last}", advice)
    return written


def _query(show: Callable[[str], None]) -> str:
    import pyarrow as pa

    from asterism import CEP, KeyedStream

    begun, took = time.monotonic(), []
    table = pa.Table.from_pylist([json.loads(line) for line in _EVENTS.splitlines()])

    def of_table() -> pa.Table:
        return CEP.pattern(KeyedStream(table, time="ts"), _pattern()).select(_MEASURE)

    def of_engine() -> pa.Table:
        with CEP.pattern(KeyedStream(table.schema, time="ts"), _pattern()).open(
            select={"matches": [_MEASURE]}
        ) as engine:
            return engine.process(table, watermark=3)["matches"]

    for name, find in (("a table", of_table), ("a live engine", of_engine)):
        show(f"checking a query in this process: a pattern over {name}")
        try:
            times = find()["b"].to_pylist()
        except Exception as error:
            raise CheckFailedError(f"{name} failed: {_reason(error)}", _REPORT) from error
        _expect_match(times)
        took.append(f"{name} took {time.monotonic() - begun:.1f} s")
        begun = time.monotonic()
    return ", ".join(took)


def _query_on_spark(show: Callable[[str], None]) -> str:
    begun = time.monotonic()
    name = "Spark"
    try:
        show("checking a query on Spark, step 1 of 3: starting Spark")
        with temporary_folder() as folder, local_spark(_QUICK) as spark:
            took = [f"{name} {spark.version} started in {time.monotonic() - begun:.0f} s"]
            (folder / "events.json").write_text(_EVENTS, "utf-8")
            for name, reader in (("a table", spark.read), ("a stream", spark.readStream)):
                begun = time.monotonic()
                show(f"checking a query on Spark, step {len(took) + 1} of 3: a pattern over {name}")
                events = reader.schema("ts BIGINT, kind STRING").json(f"{folder}/*.json")
                _find(events, str(folder / "checkpoint"))
                took.append(f"{name} took {time.monotonic() - begun:.0f} s")
            return ", ".join(took)
    except CheckFailedError:
        raise
    except Exception as error:
        advice = "the checks above may say why; otherwise, the reason is that of Spark"
        raise CheckFailedError(f"{name} failed: {_reason(error)}", advice) from error


def _reason(error: Exception) -> str:
    if isinstance(error, AsterismError):
        return "\n        ".join(str(error).splitlines())
    return first_paragraph(str(error))


_QUICK = {
    # A JVM that lives for some seconds does not profit from the better compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}
_EVENTS = """\
{"ts": 1, "kind": "a"}
{"ts": 2, "kind": "b"}
{"ts": 3, "kind": "a"}
"""
_MEASURE = "LAST(b.ts) AS b"
_REPORT = "report this, with the output of this command"


def _pattern() -> Pattern:
    from asterism import Pattern

    return Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")


def _find(events: DataFrame, checkpoint: str) -> None:
    """Match a pattern. With a single key group, Spark starts few tasks and processes."""
    from asterism import CEP, KeyedStream

    times: list[int] = []
    CEP.pattern(KeyedStream(events, time="ts"), _pattern(), key_groups=1).run(
        {"matches": lambda matches, _: times.extend(row.b for row in matches.collect())},
        select={"matches": [_MEASURE]},
        checkpoint=checkpoint,
    )
    _expect_match(times)


def _expect_match(times: list[int]) -> None:
    if times != [2]:
        raise CheckFailedError(f"the matches are {times} instead of [2]", _REPORT)
