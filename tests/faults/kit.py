"""I/O calls that fail, one after the other: the n-th call on a folder raises, whichever it is."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

ENOSPC, EIO = errno.ENOSPC, errno.EIO


class KilledError(BaseException):
    """The process ends here: nothing that follows in it is done."""


class Faults:
    """Counts the I/O calls on what is in *folder*; those that were asked for fail.

    A write that fails has written a part before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.count = self.first = self.many = 0
        self.code: int | None = None
        self.hit = False
        self.spared: frozenset[int] = frozenset()

    def arm(self, first: int, many: int = 1, code: int | None = EIO) -> None:
        """From now on the calls *first* to *first* + *many* - 1 fail. *code* None: they kill the process."""
        self.count, self.first, self.many, self.code, self.hit = 0, first, many, code, False

    def disarm(self) -> bool:
        """Has a call failed?"""
        self.first = 0
        return self.hit

    @contextmanager
    def off(self) -> Iterator[None]:
        """No call of this thread fails, and it is not counted; those of other threads still are."""
        before = self.spared
        self.spared = before | {threading.get_ident()}
        try:
            yield
        finally:
            self.spared = before

    def call(self, path: Any) -> None:
        if not self.first or threading.get_ident() in self.spared or not self.is_mine(path):
            return
        self.count += 1
        if self.first <= self.count < self.first + self.many:
            self.hit = True
            if self.code is None:
                self.first = 0
                raise KilledError
            raise OSError(self.code, os.strerror(self.code), str(path))

    def is_mine(self, path: Any) -> bool:
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115 - pathlib is what fails here
            except OSError:
                return False
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)

    def inject(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Into everything by which Python gets at files."""
        monkeypatch.setattr(os, "fsync", self._failing(lambda file: None))  # no power fails here, and it takes long
        for name in ("open", "replace", "rename", "stat", "mkdir", "unlink", "listdir", "fstat"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))
        opened = io.open

        def open_(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            mine = bool(self.first) and self.is_mine(path)
            self.call(path)
            file = opened(path, mode, *arguments, **options)
            return FaultyFile(file, self) if mine else file

        monkeypatch.setattr(io, "open", open_)
        monkeypatch.setattr(builtins, "open", open_)

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            self.call(path)
            return function(path, *arguments, **options)

        return call


class FaultyFile:
    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults
        self._name = file.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> FaultyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, *arguments: Any) -> Any:
        self._faults.call(self._name)
        return self._file.read(*arguments)

    def write(self, value: Any) -> Any:
        try:
            self._faults.call(self._name)
        except BaseException:
            self._file.write(value[: len(value) // 2])
            self._file.flush()
            raise
        return self._file.write(value)


class FaultyFileSystem(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system of Arrow, as a store of objects or HDFS is one."""

    def __init__(self, faults: Faults) -> None:
        self.faults, self.files = faults, fs.LocalFileSystem()

    def get_type_name(self) -> str:
        return "faulty"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return [self._do(self.files.get_file_info, path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> Any:
        self.faults.call(selector.base_dir)
        return self.files.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._do(self.files.create_dir, path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self._do(self.files.delete_file, path)

    def move(self, src: str, dest: str) -> None:
        self._do(self.files.move, src, dest)

    def open_input_file(self, path: str) -> Any:
        self.faults.call(path)
        with self.faults.off():
            return pa.PythonFile(io.BytesIO(Path(path).read_bytes()), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self.faults.call(path)
        with self.faults.off():
            return pa.PythonFile(FaultyFile(Path(path).open("wb"), self.faults), mode="w")

    def _do(self, function: Callable[..., Any], path: str, *arguments: Any, **options: Any) -> Any:
        self.faults.call(path)
        return function(path, *arguments, **options)

    def _unused(self, *_: Any) -> Any:
        raise AssertionError("the store needs no such call")

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = _unused
    open_input_stream = open_append_stream = _unused


def store_class(faults: Faults) -> Any:
    """A store whose folder is on such a file system, wherever it is made."""
    from asterism.rules.sets.set_store import FolderStore

    class ArrowStore(FolderStore):
        def _open(self) -> fs.FileSystem:
            self._folder = self.location
            return fs.PyFileSystem(FaultyFileSystem(faults))

    return ArrowStore
