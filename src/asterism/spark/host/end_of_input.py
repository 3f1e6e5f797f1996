"""Signals the end of input from a run to the control sources of its query, which are in other processes of the driver's host.

A query that reads all available data and then ends its input must not send the end before its other sources are exhausted. Only
the run that started it knows this, from the query's progress. Before each micro-batch, its control source writes a request into a
folder of this run, and waits for the answer (:class:`Drain`).

If the output of an operator is a DataFrame, its control source does not know whether the query that contains it is to end
its input. A query that ends its input creates a file in a folder on the driver's host while it starts. Control sources check
the folder when Spark requests all available data at once, which it does only when it plans a single micro-batch.

This module must be quick to import, since the processes of control sources import it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_READERS, _ENDING, _DRAINS = "readers", "ending", "drains"
_ASKED = ".asked"
_SECONDS = 0.005
"""Between two checks for an answer."""
_PATIENCE = 60.0
"""Seconds after which a reader no longer expects an answer."""
_lock = threading.Lock()
_folder: str | None = None


def folder() -> str:
    """The folder of this process for the signals of queries that end."""
    global _folder  # noqa: PLW0603 - one folder per process
    with _lock:
        if _folder is None:
            _folder = tempfile.mkdtemp(prefix="asterism-")
            atexit.register(shutil.rmtree, _folder, ignore_errors=True)
            for name in (_READERS, _ENDING, _DRAINS):
                (Path(_folder) / name).mkdir()
        return _folder


@contextmanager
def ending() -> Iterator[None]:
    """Sets the signal, while a query that ends its input starts and plans its micro-batch."""
    signal = Path(folder()) / _ENDING / uuid.uuid4().hex
    signal.touch()
    try:
        yield
    finally:
        signal.unlink(missing_ok=True)


def is_ending(place: str) -> bool:
    """Whether a query ends its input now; called by readers."""
    try:
        return any((Path(place) / _ENDING).iterdir())
    except OSError:
        return False


def announce(place: str) -> None:
    """Record that a reader has access to the folder of the driver; called by readers."""
    try:
        (Path(place) / _READERS / "seen").touch()
    except OSError:
        return


def is_seen() -> bool:
    """Whether any reader has access to the folder of this process."""
    return (Path(folder()) / _READERS / "seen").exists()


class Drain:
    """A run that ends the input of its query when the other sources are exhausted. It answers its control source."""

    def __enter__(self) -> Drain:
        self._path = Path(folder()) / _DRAINS / uuid.uuid4().hex
        self._path.mkdir()
        return self

    @property
    def place(self) -> str:
        """The folder, an option of the control source."""
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering. Waiting and later readers continue without a reply."""
        shutil.rmtree(self._path, ignore_errors=True)

    def asked(self) -> int | None:
        """The number of the micro-batch after which the control source waits for an answer."""
        asked = (int(path.stem) for path in self._path.glob(f"*{_ASKED}"))
        return next(asked, None)

    def answer(self, number: int, *, exhausted: bool) -> None:
        """Answer whether no other source had data in this micro-batch."""
        new = self._path / "new"
        new.write_text(str(exhausted))
        new.replace(self._path / str(number))
        (self._path / f"{number}{_ASKED}").unlink()


def is_exhausted(place: str, number: int) -> bool | None:
    """Ask the run whether no other source had data in this micro-batch, and wait for its answer; called by readers. None: the run
    was interrupted.
    """
    asked, answer, parent = Path(place) / f"{number}{_ASKED}", Path(place) / str(number), os.getppid()
    end = time.monotonic() + _PATIENCE
    try:
        asked.touch()
        while not answer.exists():
            if os.getppid() != parent or not asked.parent.is_dir() or time.monotonic() > end:
                return None
            time.sleep(_SECONDS)
        return answer.read_text() == str(True)
    except FileNotFoundError:
        return None
