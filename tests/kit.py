"""What tests of all packages share: where things are, golden files, and waiting for a condition."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from asterism.errors import AsterismError
from asterism.operators.state import pages, waiting_events

Provocation = Callable[[], object]
Item = TypeVar("Item")

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CORPUS = ROOT / "tests" / "corpus"
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a JVM that runs small jobs on few cores: they do not live long enough for the better compiler, and the first one
has little room for its code by default. To verify the classes of Spark takes a fifth of the time of a start.
"""
FACTOR = int(os.environ.get("ASTERISM_EXAMPLES", "1"))
"""The factor for the number of random examples; above 1, each run has others.

``ASTERISM_EXAMPLES=100 pytest tests/*/test_*_property.py`` looks further; ``make test-all`` sets it.
"""


def examples(few: int, *, usual: int) -> int:
    """How many random examples, or seeds, there are: *few* in ``make test``, otherwise *usual* times :data:`FACTOR`.

    See docs/decisions/0171.
    """
    return few if FACTOR == 1 else usual * FACTOR


def some(items: Iterable[Item], *, every: int) -> list[Item]:
    """*Every* so-manieth item in ``make test``, otherwise all."""
    return [*items][:: every if FACTOR == 1 else 1]


SOON = 300.0
"""Seconds; what must come, comes within, also on a machine that is busy with other things."""


class Golden:
    """The golden files of a module of tests: ``test_sql_texts.py`` has ``golden/sql/<name>.txt`` beside it.

    ``ASTERISM_REWRITE=1 pytest tests/*/test_*_texts.py`` writes them anew; then read the difference.
    ``tests/architecture/test_golden_files.py`` looks for files that no test reads.
    """

    def __init__(self, module: Path) -> None:
        self.folder = module.parent / "golden" / module.stem.removeprefix("test_").removesuffix("_texts")

    def check(self, name: str, text: str) -> None:
        """Compare a text with the file that holds it, or write the file."""
        path = self.folder / f"{name}.txt"
        if os.environ.get("ASTERISM_REWRITE"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert path.exists(), f"no golden file for {name}: ASTERISM_REWRITE=1 makes it"
        assert text == path.read_text(encoding="utf-8").removesuffix("\n")

    def error(self, name: str, provocation: Provocation) -> AsterismError:
        """The whole text and the type, which a program can catch; an error of a worker reads the same on the driver."""
        with pytest.raises(AsterismError) as caught:
            provocation()
        error = caught.value
        text = message_of(error)
        assert message_of(pickle.loads(pickle.dumps(error))) == text
        self.check(name, text)
        return error

    def names(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.txt")}


@contextmanager
def small_pages() -> Iterator[None]:
    """State is divided into pages however small it is, if their number is not fixed, and so are waiting events."""
    with (
        mock.patch.object(pages, "PAGE_BYTES", 64),
        mock.patch.object(pages, "_CALM", 2),
        mock.patch.object(waiting_events, "CHUNK_BYTES", 400),
    ):
        yield


def message_of(error: AsterismError) -> str:
    """The type and the whole text."""
    return f"{type(error).__name__}\n{error}"


def until(condition: Callable[[], object], query: Any = None, *, seconds: float = SOON) -> None:
    """Wait until *condition* holds; if a streaming query has ended meanwhile, the error says why."""
    end = time.monotonic() + seconds
    while not condition():
        if query is not None and not query.isActive:
            raise AssertionError("the query has ended") from query.exception()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


@contextmanager
def bounded(seconds: float = 60.0) -> Iterator[None]:
    """The block takes no more *seconds* of CPU time, in all threads.

    Within them is whatever takes five seconds on a usual machine, also on a slow one. What is not bounded takes hours.
    """
    begin = time.process_time()
    yield
    assert time.process_time() - begin < seconds


_spawner = ThreadPoolExecutor(1, "spawner")


def spawned(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """A program that ends with this process, also if that is killed: the kernel then kills it.

    :param options: of :class:`subprocess.Popen`
    """
    ending = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # Linux has it
    # For the kernel, the parent is the thread that starts a program. This one lives as long as the process.
    return _spawner.submit(lambda: subprocess.Popen([*ending, *command], **options)).result()


def clean_up_on_sigterm() -> None:
    """Let ``timeout`` and ``kill`` end this program as an error would: what it has started and written is removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def kill_session(session: int) -> None:
    """Kill all processes of a session, except this one, by ``kill -9``."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == session and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGKILL)
        except ProcessLookupError:
            continue
