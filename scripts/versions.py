"""Tries Asterism with the versions of Spark, Python and its dependencies that it supports: ``make versions``.

Each combination gets an environment of its own, with the lowest or the highest versions that ``pyproject.toml`` allows, and runs
the same tests in it. A combination that has passed is not repeated until the code changes, so an interrupted run continues.
A Python that cannot be had is reported and is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SPARK = [
    "test_columns", "test_composition", "test_evolution", "test_joins", "test_key_groups", "test_lookups", "test_operator_texts",
    "test_rules", "test_signals", "test_state_reader", "test_stream_joins", "test_streaming", "test_windows",
]  # fmt: skip
WITHOUT_SPARK = [
    "cli/test_cli.py",
    "cli/test_rule_files.py",
    "columns",
    "conformance/test_corpus.py",
    "expressions",
    "joins",
    "matching",
    "row_patterns",
    "rules/test_rule_templates.py",
    "windows",
]
TESTS = [*WITHOUT_SPARK, "cluster/test_connect_slow.py", *[f"spark/{name}.py" for name in SPARK]]
SHORT = [
    "cli/test_cli.py", "cli/test_rule_files.py", "columns", "conformance/test_corpus.py",
    "expressions/test_expressions.py", "expressions/test_functions.py", "rules/test_rule_templates.py",
    "spark/test_streaming.py::test_a_run_without_drain_waits_and_the_next_run_goes_on",
    "spark/test_streaming.py::test_a_run_that_failed_anywhere_can_be_repeated",
    "spark/test_rules_slow.py::test_after_the_end_of_input_rules_are_told_again",
    "spark/test_stream_joins.py::test_streams_are_joined_as_tables_across_a_restart",
]  # fmt: skip


class Combination(NamedTuple):
    python: str
    spark: str
    dependencies: str

    def __str__(self) -> str:
        return f"Python {self.python}, Spark {self.spark}, {self.dependencies} versions"

    @property
    def name(self) -> str:
        return f"python{self.python}-spark{self.spark}-{self.dependencies}"


LOWEST, HIGHEST = "lowest", "highest"
MATRIX = [
    Combination("3.11", "4.1.4", LOWEST),
    Combination("3.12", "4.1.4", HIGHEST),
    Combination("3.11", "4.2.1", LOWEST),
    Combination("3.13", "4.2.1", HIGHEST),
    Combination("3.12", "4.3.0", LOWEST),
    Combination("3.13", "4.3.0", HIGHEST),
    Combination("3.14", "4.3.0", HIGHEST),
]


class NoInterpreterError(Exception):
    """There is no Python of this version, and uv cannot download one."""


def main() -> None:
    options = argparse.ArgumentParser(description="Try the supported versions of Spark, Python and the dependencies.")
    options.add_argument("--folder", type=Path, default=ROOT / "build" / "versions", help="of environments and results")
    options.add_argument("--only", default="", help="the combinations whose names contain this text, such as spark4.1")
    options.add_argument("--short", action="store_true", help="the most important of the tests")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    wanted = [one for one in MATRIX if given.only in one.name]
    results = {}
    for number, one in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {one}", flush=True)
        results[one] = result_of(one, given.folder, SHORT if given.short else TESTS)
        print(f"    {results[one]['result']}", flush=True)
    print("\n| Python | Spark | dependencies | result |\n|---|---|---|---|")
    for one, found in results.items():
        versions = f"{one.dependencies}{': ' if found['versions'] else ''}{found['versions']}"
        print(f"| {one.python} | {one.spark} | {versions} | {found['result']} |")
    sys.exit(any(found["failed"] for found in results.values()))


def result_of(one: Combination, folder: Path, tests: list[str]) -> dict[str, object]:
    stored = folder / f"{one.name}.json"
    if stored.exists() and stored.stat().st_mtime > newest_change():
        found: dict[str, object] = json.loads(stored.read_text())
        if found["tests"] == tests and not found["failed"]:
            return found
    try:
        python = install(one, folder)
    except NoInterpreterError:
        return {"result": "not tried: no such Python here", "versions": "", "failed": False}
    except subprocess.CalledProcessError as error:
        return {"result": f"cannot be installed: {str(error.stderr).strip()}", "versions": "", "failed": True}
    begun, log = time.monotonic(), folder / f"{one.name}.log"
    # PySpark itself raises warnings with some of the versions, which are errors in the tests otherwise.
    command = [python, "-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", *tests]
    own = {"NUMBA_CACHE_DIR": str(folder / one.name / "numba"), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    with log.open("w") as output:
        done = subprocess.run(
            command, cwd=ROOT / "tests", env=os.environ | own, stdout=output, stderr=output, check=False
        )
    last = next((line for line in reversed(log.read_text().splitlines()) if " in " in line), "no result").strip("= ")
    result = f"{last.rpartition(' in ')[0]}, {(time.monotonic() - begun) / 60:.0f} min"
    if done.returncode:
        result += f", see {log}"
    found = {"result": result, "versions": versions_in(python), "failed": bool(done.returncode), "tests": tests}
    stored.write_text(json.dumps(found))
    return found


def newest_change() -> float:
    files = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    return max(file.stat().st_mtime for file in files)


def install(one: Combination, folder: Path) -> Path:
    """The Python of an environment with this combination."""
    python = folder / one.name / "bin" / "python"
    if not python.exists():
        for interpreter in interpreters(one.python):
            if uv(folder, "venv", "--quiet", "--python", interpreter, str(folder / one.name), check=False):
                break
        else:
            raise NoInterpreterError
    how = [f"--resolution={one.dependencies if one.dependencies == HIGHEST else 'lowest-direct'}", "--upgrade"]
    package = ["--editable", f"{ROOT}[dev]", f"pyspark=={one.spark}"]
    uv(folder, "pip", "install", "--quiet", "--python", str(python), *how, *package)
    return python


def interpreters(version: str) -> Iterator[str]:
    """Those of pyenv, which may be on the PATH only as a program that fails; then what uv finds or downloads."""
    yield from map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    yield version


def uv(folder: Path, *arguments: str, check: bool = True) -> bool:
    """Run uv, which knows how to install the lowest versions."""
    program = folder / "uv" / "bin" / "uv"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "uv"], check=True)
        subprocess.run([folder / "uv" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    cache = {"UV_CACHE_DIR": str(folder / "cache")}  # on the disk of the environments, which then share their files
    done = subprocess.run(
        [program, *arguments], env=os.environ | cache, check=check, stderr=subprocess.PIPE, encoding="utf-8"
    )
    return done.returncode == 0


def versions_in(python: Path) -> str:
    """Those of the packages that a cluster brings itself."""
    program = "from importlib.metadata import version as v; print(', '.join(f'{n} {v(n)}' for n in %r))"
    packages = ["numpy", "pandas", "pyarrow", "numba"]
    return subprocess.run(
        [python, "-c", program % packages], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout.strip()


if __name__ == "__main__":
    main()
