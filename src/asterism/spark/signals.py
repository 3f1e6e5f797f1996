"""How the end of input reaches the operators upstream in a query.

The control source of an operator whose output is taken as a DataFrame cannot know whether the query that it will be part of is to
end its input. The query that does says so in a folder on the driver's host while it starts; control sources look there when
Spark asks them for all that is available, at once, which it does only where it plans a single micro-batch.

Imports nothing heavy: the processes of control sources do.
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
    """The folder of this process, in which queries that end say so."""
    global _folder  # noqa: PLW0603 - a fact about this process
    with _lock:
        if _folder is None:
            _folder = tempfile.mkdtemp(prefix="asterism-")
            atexit.register(shutil.rmtree, _folder, ignore_errors=True)
            for name in (_READERS, _ENDING):
                (Path(_folder) / name).mkdir()
        return _folder


@contextmanager
def ending() -> Iterator[None]:
    """While a query that ends its input starts, and plans its micro-batch."""
    signal = Path(folder()) / _ENDING / uuid.uuid4().hex
    signal.touch()
    try:
        yield
    finally:
        signal.unlink(missing_ok=True)


def is_ending(place: str) -> bool:
    """Called by readers: does a query end now?"""
    try:
        return any((Path(place) / _ENDING).iterdir())
    except OSError:
        return False


def announce(place: str) -> None:
    """Called by readers, to tell the driver that they see its folder."""
    try:
        (Path(place) / _READERS / "seen").touch()
    except OSError:
        return


def is_seen() -> bool:
    """Has any reader found this process's folder?"""
    return (Path(folder()) / _READERS / "seen").exists()
