"""Files that are replaced as a whole: a reader sees the old or the new content, even after a power failure."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asterism.errors import PatternProcessorError

LOCK = ".asterism-rules.lock"
"""The lock file in a folder while a file in it is changed. The dot keeps it from being read as a file of rules."""


class NotWrittenError(PatternProcessorError):
    """A file cannot be written. It has the old content, or the new one, which may not survive a power failure."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any time, even after a failure, it has either the old or the new content.

    A temporary file that an earlier attempt left because its process was killed does no harm.

    :raises NotWrittenError: the file cannot be written
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary.unlink(missing_ok=True)  # of a process with the same id, which in a container is mostly 1
        with temporary.open("xb") as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise NotWrittenError(f"{path} cannot be written", error.strerror) from None


def make_folder(path: Path) -> None:
    """:raises NotWrittenError: the folder, or a parent, cannot be created so that it survives a power failure"""
    if path.is_dir():
        return
    try:
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise NotWrittenError(f"{path} cannot be created", error.strerror) from None


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other command changes files in *folder*, if the system supports locks for that.

    :raises NotWrittenError: the lock cannot be created
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    lock = folder / LOCK
    try:
        while (descriptor := _locked(lock, fcntl.flock, fcntl.LOCK_EX)) is None:
            pass
    except OSError as error:
        raise NotWrittenError(f"{folder} cannot be written", f"{LOCK}: {error.strerror}") from None
    try:
        yield
    finally:
        with suppress(OSError):  # the next command takes over a lock file that remains
            lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path, flock: Callable[[int, int], None], exclusive: int) -> int | None:
    """The descriptor of *lock*, locked; None: the previous holder has removed the file, so no other process would find it."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    is_there = False
    try:
        flock(descriptor, exclusive)
        with suppress(FileNotFoundError):
            is_there = os.path.samestat(os.fstat(descriptor), lock.lstat())
    finally:
        if not is_there:
            os.close(descriptor)
    return descriptor if is_there else None
