"""Signals the end of input to the upstream operators of a query.

If the output of an operator is a DataFrame, its control source does not know whether the query that contains it is to end
its input. A query that ends its input creates a file in a folder on the driver's host while it starts. Control sources check
the folder when Spark requests all available data at once, which it does only when it plans a single micro-batch.

This module must be quick to import, since the processes of control sources import it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_READERS, _ENDING = "readers", "ending"
_lock = threading.Lock()
_folder: str | None = None


def folder() -> str:
    """The folder of this process for the signals of queries that end."""
    global _folder  # noqa: PLW0603 - one folder per process
    with _lock:
        if _folder is None:
            _folder = tempfile.mkdtemp(prefix="asterism-")
            atexit.register(shutil.rmtree, _folder, ignore_errors=True)
            for name in (_READERS, _ENDING):
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
