"""Pattern processors in a file or a folder, on the local file system or in an object store."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from asterism.arguments import expect
from asterism.discovery.sources.documents import (
    MAX_BYTES,
    MAX_TOTAL,
    SUFFIXES,
    check_number,
    paths_at,
    read_document,
    read_file,
    unreadable,
)
from asterism.discovery.sources.polling import PollingDiscoverer
from asterism.discovery.sources.several_documents import SeveralDocuments, WatchedDocument
from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.files.file_systems import NO_CREDENTIALS, has_credentials, is_path, opened
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    checked_interval,
)

_SCHEMES = (
    "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "file",
    "hdfs", "viewfs", "webhdfs", "swebhdfs", "dbfs", "wasb", "wasbs", "adl", "ofs", "o3fs", "oss", "cosn", "obs", "alluxio",
)  # fmt: skip
"""The schemes of the URIs that Arrow supports."""
AT_REST = timedelta(milliseconds=200)
"""The time for which a file must not have changed, because it may be in the middle of being written."""
PATIENCE = 25
"""How often the first poll is repeated if files change during it."""
SETTLED = 2.0
"""Seconds after which another write cannot leave the times of a file unchanged, on any usual file system."""


def is_in_store(location: str) -> bool:
    """Whether this is a URI of an object store or a file system."""
    return not is_path(location) and location.partition(":")[0].lower() in _SCHEMES


def absolute_location(
    path: str | os.PathLike[str], example: str, detail: str | None = None, hint: str | None = None
) -> str:
    """The absolute path, or the URI, of a file or folder: it may be read in another working directory.

    :param example: of a path; *detail* and *hint*: of the error for other URLs
    :raises PatternProcessorError: it is not a path, contains credentials, or is another URL
    """
    expect(PatternProcessorError, path, str | os.PathLike, "a path must be a string or a Path", example)
    location = os.fspath(path)
    if has_credentials(location):
        raise PatternProcessorError("the URI of a file or folder contains credentials", hint=NO_CREDENTIALS)
    if is_path(location):
        return str(Path(location).absolute())
    if not is_in_store(location):
        raise RuleSourceError(f"a file or folder cannot be at {location!r:.120}", detail, hint)
    return location


@dataclass(frozen=True)
class FilePatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Watches a file with pattern processors, or a folder of such files.

    :param path: a file in JSON, or in YAML if its name ends in ``.yaml`` or ``.yml``; or a folder, of which the files
        ``*.json``, ``*.yaml`` and ``*.yml`` are read whose names do not begin with a dot. Also as a URI in an object store or in
        HDFS: ``s3://bucket/rules``, ``gs://``, ``abfss://``, ``hdfs://``. Credentials are found as Arrow finds them, for example
        in environment variables.
    :param interval: the polling interval
    :raises PatternProcessorError: the path is another URL, or the interval is not a positive timedelta

    A file that cannot be read is refused without affecting others, and its processors stay in force. If a file is removed
    from the folder, its processors are removed. If the path does not exist, discovery is interrupted, and all processors stay
    in force. A file that is being written is read once it has not changed for a fifth of a second. Links are followed; a
    broken link is a file that cannot be read. If several files have the same id, the first one that had it counts; of files
    that appear at the same time, the first by name.

    >>> FilePatternProcessorDiscovererFactory("/etc/rules")
    FilePatternProcessorDiscovererFactory(path=PosixPath('/etc/rules'), interval=datetime.timedelta(seconds=1))
    """

    path: Path | str
    interval: timedelta = timedelta(seconds=1)

    def __init__(self, path: str | os.PathLike[str], *, interval: timedelta = timedelta(seconds=1)) -> None:
        schemes = f"Schemes: {', '.join(_SCHEMES)}."
        for_urls = "for http:// and https://, use UrlPatternProcessorDiscovererFactory"
        location = absolute_location(path, 'Path("rules.json")', schemes, for_urls)
        object.__setattr__(self, "path", Path(location) if is_path(location) else location)
        object.__setattr__(self, "interval", checked_interval(interval))

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return FileDiscoverer(self.path, self.interval)


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file at one point in time. Two contents are equal if their bytes are.

    :param times: inode, size and times; if they are unchanged, so are the bytes, unless the file was written just before it
        was read
    """

    digest: bytes
    times: tuple[int, int, int, int] = field(compare=False)
    read_at: float = field(compare=False)
    text: bytes = field(compare=False, repr=False)
    problem: PatternProcessorError | None = field(default=None, compare=False)

    def kept(self) -> FileContent:
        """The content without the text, which has been parsed."""
        return replace(self, text=b"") if self.text else self

    def is_still(self, times: tuple[int, int, int, int]) -> bool:
        return self.times == times and self.read_at - max(times[2:]) / 1e9 > SETTLED

    @classmethod
    def of(cls, times: tuple[int, int, int, int], known: FileContent | None, read: Callable[[], bytes]) -> FileContent:
        # A file that could not be read is tried again even if its times are unchanged, because a disk may recover.
        if known is not None and known.problem is None and known.is_still(times):
            return known
        now = time.time()
        try:
            text = read()
        except PatternProcessorError as error:
            return cls.unreadable(error, times, now)
        return cls(hashlib.sha256(text).digest(), times, now, text)

    @classmethod
    def unreadable(
        cls, problem: PatternProcessorError, times: tuple[int, int, int, int] = (0, 0, 0, 0), read_at: float = 0.0
    ) -> FileContent:
        digest = hashlib.sha256(str(problem).encode("utf-8", "surrogateescape")).digest()
        return cls(b"unreadable" + digest, times, read_at, b"", problem)


def _read_local(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None


class LocalFiles:
    """A local file, or the files of a local folder.

    :param names: finds the files, and returns the path itself if it is one
    """

    def __init__(self, path: Path, names: Callable[[Path], list[Path]] = paths_at) -> None:
        self.path, self.location, self._names = path, str(path), names

    def contents(self, known: Mapping[str, FileContent]) -> dict[str, FileContent]:
        """:raises PatternProcessorError: the path cannot be read, or the files are too large"""
        by_path: dict[str, FileContent] = {}
        size = 0
        for path in self._names(self.path):
            try:
                status = path.stat()
                times = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                content = FileContent.of(times, known.get(str(path)), partial(_read_local, path))
            except OSError as error:
                if path == self.path:
                    raise unreadable(path, error) from None
                if isinstance(error, FileNotFoundError) and not os.path.lexists(path):
                    continue  # only for a file in a folder is it certain that it was removed
                # A broken or circular link.
                content = FileContent.unreadable(unreadable(path, error))
            size += min(content.times[1], MAX_BYTES)
            _check_size(self.location, size)
            by_path[str(path)] = content
        return by_path


class StoredFiles:
    """A file, or the files of a folder, in an object store or a distributed file system. An object is replaced as a whole."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._opened: tuple[fs.FileSystem, str] | None = None

    def contents(self, known: Mapping[str, FileContent]) -> dict[str, FileContent]:
        try:
            if self._opened is None:
                self._opened = opened(self.location)
            files, path = self._opened
            infos = self._infos(files, path)
            _check_size(self.location, sum(min(info.size or 0, MAX_BYTES) for info in infos))
            return {info.path: self._content(files, info, known.get(info.path)) for info in infos}
        except (OSError, pa.ArrowException) as error:
            raise RuleSourceError(f"{self.location} cannot be read", str(error)[:500]) from None

    def _infos(self, files: fs.FileSystem, path: str) -> list[fs.FileInfo]:
        info = files.get_file_info(path)
        if info.type is fs.FileType.NotFound:
            raise RuleSourceError(f"there is no file or folder {self.location}")
        if info.type is not fs.FileType.Directory:
            return [info]
        entries = [
            entry
            for entry in files.get_file_info(fs.FileSelector(path))
            if entry.type is fs.FileType.File
            and entry.base_name.endswith(SUFFIXES)
            and not entry.base_name.startswith(".")
        ]
        check_number(self.location, entries)
        return sorted(entries, key=lambda entry: str(entry.path))

    @staticmethod
    def _content(files: fs.FileSystem, info: fs.FileInfo, known: FileContent | None) -> FileContent:
        def read() -> bytes:
            try:
                with files.open_input_file(info.path) as file:
                    return bytes(file.read(MAX_BYTES + 1))
            except (OSError, pa.ArrowException) as error:
                raise RuleSourceError(f"{info.path} cannot be read", str(error)[:500]) from None

        # Without a time of change, a file is always read.
        changed = info.mtime_ns if info.mtime_ns is not None else time.time_ns()
        return FileContent.of((0, info.size or 0, changed, changed), known, read)


def _check_size(location: str, size: int) -> None:
    if size > MAX_TOTAL:
        raise RuleSourceError(f"{location} has more than {MAX_TOTAL:,} bytes in its files")


@dataclass(slots=True)
class WatchedFile:
    content: FileContent
    document: WatchedDocument


class FileDiscoverer(PollingDiscoverer):
    """See :class:`FilePatternProcessorDiscovererFactory`."""

    def __init__(self, path: Path | str, interval: timedelta) -> None:
        # Polling is cheap, and with a short interval a path that reappears is found soon.
        super().__init__(interval=interval, max_interval=max(interval, timedelta(seconds=10)))
        self.place: LocalFiles | StoredFiles = LocalFiles(path) if isinstance(path, Path) else StoredFiles(path)
        self._files: dict[str, WatchedFile] | None = None
        self._documents: SeveralDocuments[str] = SeveralDocuments()

    def poll(self) -> Sequence[Discovered] | None:
        files = dict(self._files or {})
        taken = {name: file.content for name, file in files.items()}
        before = self.place.contents(taken)
        if self._files is not None and before == taken:
            # The next poll needs the times at which they were last read.
            self._files = {name: replace(files[name], content=before[name].kept()) for name in files}
            return None
        self._closed.wait(AT_REST.total_seconds())
        after = self.place.contents(before)
        for _ in range(PATIENCE if self._files is None else 0):  # for the first set, it is worth waiting a moment
            if not _being_written(before, after):
                break
            self._closed.wait(AT_REST.total_seconds())
            before, after = after, self.place.contents(after)
        being_written = _being_written(before, after)
        if self._files is None and being_written:
            raise RuleSourceError(f"{self.place.location} is being written")
        for name in (before.keys() | after.keys() | taken.keys()) - being_written:  # those are read by the next poll
            content = after.get(name)
            if content is None:
                del files[name]
            elif content != taken.get(name):
                files[name] = self._read(name, content, files.get(name))
        if self._files is not None and {name: file.content for name, file in files.items()} == taken:
            return None
        self._files = files
        return self._documents.combined(self._read_documents(files))

    def _read(self, name: str, content: FileContent, last: WatchedFile | None) -> WatchedFile:
        """Read a file that has changed."""

        def items() -> Sequence[Any]:
            if content.problem is not None:
                raise content.problem
            return read_document(content.text, name).items

        document = WatchedDocument.of(name, items, None if last is None else last.document)
        return WatchedFile(content.kept(), document)

    def _read_documents(self, files: Mapping[str, WatchedFile]) -> Mapping[str, WatchedDocument]:
        """The documents of all files, after some have changed."""
        return {name: file.document for name, file in files.items()}


def _being_written(before: Mapping[str, FileContent], after: Mapping[str, FileContent]) -> set[str]:
    """The files that appeared, were removed or were written between two reads."""
    # A writer that begins with an empty file leaves the same bytes at any two points in time, but not the same times.
    return {
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) or before[name].times != after[name].times
    }
