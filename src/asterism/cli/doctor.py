"""The command ``asterism doctor``: whether this machine can run queries, and what to do if it cannot."""

from __future__ import annotations

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
from asterism.errors import AsterismError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAST_JAVA = 17
LEAST_FREE = 2**30
_SECONDS = 60
"""The maximum duration of another program in seconds."""


class CheckFailedError(Exception):
    """A check has failed. *advice* says what to do."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.advice = advice


@click.command()
@click.option(
    "--spark/--no-spark", default=True, help="Whether to start Spark and run a query, which takes up to a minute."
)
def doctor(spark: bool) -> None:
    """Check that this machine can run queries: Python, packages, Java, the folders for compiled code and temporary files, the
    Python of Spark's workers, and a small query over a table and over a stream.

    The exit status is 1 if a check fails. Each line that begins with FAILED is followed by advice.
    """
    failed = 0
    for name, check in _checks(spark):
        try:
            with status_line(f"checking: {name}") as show:
                description = check(show)
        except CheckFailedError as problem:
            failed += 1
            click.echo(f"FAILED  {name}: {problem}\n        {problem.advice}")
        else:
            click.echo(f"ok      {name}: {description}")
    if failed:
        click.echo(f"{failed} of the checks failed")
        sys.exit(1)
    click.echo("queries can run on this machine")


def _checks(spark: bool) -> Iterator[tuple[str, Callable[[Callable[[str], None]], str]]]:
    """The checks by name. Each gets a function that shows what it is doing."""
    yield "Python", lambda _: _python()
    yield "packages", lambda _: _packages()
    yield "Java", lambda _: _java()
    yield "compiled code", lambda _: _compiled_code()
    yield "temporary files", lambda _: _temporary_files()
    yield "Python of Spark's workers", lambda _: _python_of_workers()
    if spark:
        yield "a query", _query


def _python() -> str:
    return f"{platform.python_version()}, {sys.executable}"


def _packages() -> str:
    """The dependencies without extras."""
    from packaging.requirements import Requirement

    requirements = [Requirement(text) for text in metadata.requires("asterism") or ()]
    installed, wrong = [f"asterism {metadata.version('asterism')}"], []
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed (needed: {requirement.specifier})")
            continue
        installed.append(f"{requirement.name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version} (needed: {requirement.specifier})")
    if wrong:
        raise CheckFailedError(
            "; ".join(wrong), "install asterism with pip in an environment of its own: pip install asterism"
        )
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
    begun = time.monotonic()
    name = "Spark"
    try:
        show("checking a query, step 1 of 3: starting Spark")
        with temporary_folder() as folder, local_spark(_QUICK) as spark:
            took = [f"{name} {spark.version} started in {time.monotonic() - begun:.0f} s"]
            (folder / "events.json").write_text(_EVENTS, "utf-8")
            for name, reader in (("a table", spark.read), ("a stream", spark.readStream)):
                begun = time.monotonic()
                show(f"checking a query, step {len(took) + 1} of 3: a pattern over {name}")
                events = reader.schema("ts BIGINT, kind STRING").json(f"{folder}/*.json")
                _find(events, str(folder / "checkpoint"))
                took.append(f"{name} took {time.monotonic() - begun:.0f} s")
            return ", ".join(took)
    except CheckFailedError:
        raise
    except AsterismError as error:
        reason = "\n        ".join(str(error).splitlines())
    except Exception as error:
        reason = first_paragraph(str(error))
    raise CheckFailedError(
        f"{name} failed: {reason}", "the checks above may say why; otherwise, the reason is that of Spark"
    )


_QUICK = {
    # A JVM that lives for some seconds does not profit from the better compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}
_EVENTS = """
{"ts": 1, "kind": "a"}
{"ts": 2, "kind": "b"}
{"ts": 3, "kind": "a"}
"""


def _find(events: DataFrame, checkpoint: str) -> None:
    """Match a pattern. With a single key group, Spark starts few tasks and processes."""
    from asterism import CEP, KeyedStream, Pattern

    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    times: list[int] = []
    CEP.pattern(KeyedStream(events, time="ts"), pattern, key_groups=1).run(
        {"matches": lambda matches, _: times.extend(row.b for row in matches.collect())},
        select={"matches": ["LAST(b.ts) AS b"]},
        checkpoint=checkpoint,
    )
    if times != [2]:
        raise CheckFailedError(
            f"the matches are {times} instead of [2]", "report this, with the output of this command"
        )
