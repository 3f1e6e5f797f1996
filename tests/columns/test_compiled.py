"""Compiled functions: where nothing can be cached, and what runs before they are compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from asterism.loading import COMPILING
from tests.kit import ROOT

HEAD = """
import logging

logging.basicConfig(format="%(message)s")
"""
READ_ONLY = """
import tempfile


def refused(**options):
    raise PermissionError("read-only file system")


tempfile.TemporaryFile = refused  # by which numba tries out whether it can write
"""
FULL = """
import errno

from numba.core.caching import IndexDataCacheFile


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


IndexDataCacheFile.save = full
"""
FUNCTIONS = """
import numpy as np

from asterism.columns import compiled as module
from asterism.columns.compiled import compiled, entry


@compiled
def double(x):
    return 2 * x


@entry
def doubled(values):
    for at in range(len(values)):
        values[at] = double(values[at])
    return values.sum()


@entry
def quadrupled(values):
    return 4 * values.sum()
"""
NO_CACHE = (
    "there is no writable folder for compiled code, so that every process spends up to a minute on it; "
    "set NUMBA_CACHE_DIR to a writable folder\n"
)


PARENT = """
import json, os, runpy, sys, traceback

from numba.core import config

import asterism.columns.compiled

for line in sys.stdin:
    path, argument, variables = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(path + ".stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.environ.update(variables)
        config.reload_config()
        sys.argv, sys.path[0] = [path, argument], os.path.dirname(path)
        status = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs programs, each in a process that it forks from one that has imported numba, and has compiled nothing."""


@pytest.fixture(scope="module")
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


class Programs:
    def __init__(self, parent: subprocess.Popen[str], folder: Path) -> None:
        assert parent.stdin is not None
        assert parent.stdout is not None
        self._asked: IO[str] = parent.stdin
        self._answers: IO[str] = parent.stdout
        self._folder = folder

    def __call__(self, text: str, argument: str = "", **variables: str) -> str:
        """Run a program; its standard error."""
        path = self._folder / "program.py"
        if not path.exists():  # the cache is for one version of a file
            path.write_text(HEAD + text)
        variables = {"NUMBA_CACHE_DIR": str(self._folder / "cache")} | variables
        print(json.dumps([str(path), argument, variables]), file=self._asked, flush=True)
        status, errors = self._answers.readline(), path.with_name("program.py.stderr").read_text()
        assert status == "0\n", errors
        return errors


@pytest.fixture
def program(parent: subprocess.Popen[str], tmp_path: Path) -> Programs:
    return Programs(parent, tmp_path)


@pytest.mark.parametrize("defect", [READ_ONLY, FULL], ids=["read-only", "full"])
def test_nothing_can_be_cached(program: Programs, defect: str) -> None:
    """The functions work, and a message says once what is wrong."""
    text = """
module.SECONDS = 0
values = np.arange(4)
assert (doubled(values), quadrupled(values), double(2)) == (12, 48, 4)
"""
    assert program(defect + FUNCTIONS + text) == NO_CACHE


def test_what_was_compiled_beside_the_package_is_used_where_it_is_read_only(program: Programs) -> None:
    """As in the image of a container, which another user has built. What was not compiled then is compiled in each process."""
    text = """
import sys

if sys.argv[1] == "compiles":
    module.SECONDS = 0
    assert doubled(np.arange(4)) == 12
else:
    assert module.cache_folder() == sys.path[0] + "/__pycache__"
    assert doubled(np.arange(4)) == 12
    assert doubled.compiled.signatures and module._spent == 0
    module.SECONDS = 0
    assert doubled(np.arange(4.0)) == 12
    assert quadrupled(np.arange(4)) == 24
"""
    refused = "import sys\n\nif sys.argv[1] == 'read-only':\n" + textwrap.indent(READ_ONLY, "    ")
    program(refused + FUNCTIONS + text, "compiles", NUMBA_CACHE_DIR="")
    assert program(refused + FUNCTIONS + text, "read-only", NUMBA_CACHE_DIR="") == NO_CACHE


def test_what_is_compiled_and_what_is_not(program: Programs, tmp_path: Path) -> None:
    """First calls are not, and their code is looked for once: numba takes milliseconds for it. Functions of others are compiled
    as usual, for a kernel may call Python, which may use numba, too. Large arrays are for compiled functions.
    """
    text = """
import sys
from pathlib import Path

from numba import njit
from numba.core import event

looks = []
load = doubled.compiled._cache.load_overload
doubled.compiled._cache.load_overload = lambda *arguments: looks.append(arguments) or load(*arguments)
for _ in range(3):
    values = np.arange(4)
    assert doubled(values) == 12
    assert values.tolist() == [0, 2, 4, 6]
assert len(looks) == 1
assert not doubled.compiled.signatures
assert not double.signatures
assert not list(Path(sys.argv[1]).rglob("*.nbc"))

with event.install_listener("numba:compile", module._Compilation(module._refuse)):
    other = njit(lambda x: x + 1)
    assert other(1) == 2
    try:
        double(1)
    except module._NotCompiledError:
        pass
    else:
        raise AssertionError

values = np.ones(module.MAX_ELEMENTS + 1, np.int64)
assert doubled(values) == 2 * len(values)
assert doubled.compiled.signatures
"""
    program(FUNCTIONS + text, str(tmp_path / "cache"))


def test_a_call_that_takes_too_long_is_repeated_compiled(program: Programs, tmp_path: Path) -> None:
    """It changes nothing before."""
    text = """
import sys

if sys.argv[1] == "first":
    module.SECONDS = 0.001
    values = np.arange(100_000)
    assert doubled(values) == 99_999 * 100_000
    assert values[:3].tolist() == [0, 2, 4]
    assert module._spent > 0.001
else:
    assert doubled(np.arange(4)) == 12
    assert module._spent == 0
assert doubled.compiled.signatures
"""
    program(FUNCTIONS + text, "first")
    assert list((tmp_path / "cache").rglob("*.nbc"))
    program(FUNCTIONS + text, "the next process finds the compiled function")


def test_who_waits_for_the_compiler_is_told_once_at_a_terminal(program: Programs, tmp_path: Path) -> None:
    text = """
import sys
from asterism.loading import tell_of_compiling

sys.stderr.isatty = lambda: sys.argv[1] == "terminal"
tell_of_compiling()
module.SECONDS = 0.0
assert doubled(np.arange(4)) == 12
assert quadrupled(np.arange(4)) == 24
assert doubled.compiled.signatures
"""
    assert program(FUNCTIONS + text, "file") == ""
    assert program(FUNCTIONS + text, "terminal") == ""  # the cache has them

    assert program(FUNCTIONS + text, "terminal", NUMBA_CACHE_DIR=str(tmp_path / "other")) == COMPILING + "\n"


def test_the_first_match_on_a_new_machine_compiles_nothing(program: Programs) -> None:
    text = """
from asterism import Pattern
from asterism.matching import kernels
from asterism.testing import match

pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND value > LAST(a.value)")
assert match(pattern, "a1 b2 a3 b1 b4").matches == ["a1 b2", "a3 b4"]
assert not kernels.advance_keys.compiled.signatures
"""
    program(text)


REFERENCES = ["tests/matching/test_page.py"]


def test_as_written_they_give_the_answers_of_the_references(tmp_path: Path) -> None:
    """With kernels that run in Python; nothing is compiled."""
    check_as_written(tmp_path, REFERENCES)


def check_as_written(tmp_path: Path, tests: list[str]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.columns.as_written", *tests],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-5000:]
    assert not list(tmp_path.rglob("*.nbc"))
