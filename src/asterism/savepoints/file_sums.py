"""The sizes and checksums of the files of a savepoint, which its manifest has. They find damage: whoever can write the files can
write the manifest, too.

The checksums are CRC-32, as in Parquet and ZIP: Spark has a function for it, and it takes no time beside reading.

See docs/decisions/0166.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from asterism.errors import StateError
from asterism.files.file_systems import read_whole

MANY_IN_FILE = 2**26
"""The maximum size in bytes of files that are read as a whole."""
MAX_NAME = 1_000
_CHUNK = 2**24
"""How much of a file is read at once, in bytes."""
_THREADS = 8
CHANGED = "a file of the savepoint has changed"
_AGAIN = "create the savepoint again, or copy all of its files; after a change on purpose, remove its entry from the manifest"


class FileSum(NamedTuple):
    """
    :ivar crc32: None: Spark has written the file, and it is larger than MANY_IN_FILE
    """

    size: int
    crc32: int | None = None

    @classmethod
    def of(cls, content: bytes | pa.Buffer) -> FileSum:
        """
        >>> FileSum.of(b"carts")
        FileSum(size=5, crc32=1308641964)
        """
        return cls(len(content), zlib.crc32(content))


FileSums = Mapping[str, FileSum]
"""By the paths of files below a folder."""


def below(sums: FileSums, folder: str) -> dict[str, FileSum]:
    """Those of the files in a folder, by their paths there.

    >>> below({"keys/a": FileSum(1), "keys-2/b": FileSum(2), "rules.json": FileSum(3)}, "keys")
    {'a': FileSum(size=1, crc32=None)}
    """
    return {name.removeprefix(f"{folder}/"): each for name, each in sums.items() if name.startswith(f"{folder}/")}


def sums_to_json(sums: FileSums) -> dict[str, Any]:
    return {
        name: {"size": each.size} if each.crc32 is None else {"size": each.size, "crc32": f"{each.crc32:08x}"}
        for name, each in sorted(sums.items())
    }


def sums_from_json(document: Mapping[str, Mapping[str, Any]]) -> dict[str, FileSum]:
    """:raises ValueError: these are no sizes and checksums"""
    sums = {}
    for name, each in dict(document).items():
        size, crc32 = each["size"], each.get("crc32")
        if type(name) is not str or len(name) > MAX_NAME or type(size) is not int or size < 0:
            raise ValueError(f"the size of the file {name!r:.60} is {size!r:.40}")
        if crc32 is not None and (type(crc32) is not str or len(crc32) > 8):
            raise ValueError(f"the checksum of the file {name!r:.60} is {crc32!r:.40}")
        sums[name] = FileSum(size, None if crc32 is None else int(crc32, 16))
    return sums


def check_sum(sums: FileSums, name: str, actual: FileSum, place: str) -> None:
    """
    :param actual: without a checksum, if only the size is known
    :param place: the folder that *sums* belong to, for messages
    :raises StateError: the file is another one than that of the manifest. One that the manifest does not have is not compared
    """
    expected = sums.get(name, actual)
    what = f"{place}/{name} has"
    if expected.size != actual.size:
        raise StateError(CHANGED, f"{what} {actual.size:,} bytes, and the manifest says {expected.size:,}.", _AGAIN)
    if None not in (expected.crc32, actual.crc32) and expected.crc32 != actual.crc32:
        raise StateError(
            CHANGED, f"{what} the CRC-32 {actual.crc32:08x}, and the manifest says {expected.crc32:08x}.", _AGAIN
        )


def check_missing(sums: FileSums, names: Iterable[str], place: str) -> None:
    """:raises StateError: a file of the manifest is not among *names*"""
    missing = sorted(sums.keys() - set(names))
    if missing:
        raise StateError("a file of the savepoint is missing", f"{place}/{missing[0]}", _AGAIN)


def files_below(files: fs.FileSystem, path: str) -> Iterator[tuple[str, fs.FileInfo]]:
    """The files below a folder, with their paths there, without those of Hadoop and Spark that are not read."""
    root = path.strip("/")
    for info in files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.type is fs.FileType.File and not info.base_name.startswith((".", "_SUCCESS")):
            yield info.path[info.path.index(root) + len(root) + 1 :], info


def sums_in(files: fs.FileSystem, infos: Mapping[str, fs.FileInfo]) -> dict[str, FileSum]:
    """The sizes and checksums of files, which are read for it.

    :param infos: by names
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(infos, threads.map(lambda info: sum_of(contents_of(files, info)), infos.values()), strict=True))


def contents_of(files: fs.FileSystem, info: fs.FileInfo) -> Iterator[bytes]:
    """A file in parts; a small one as a whole, so that a read that fails is repeated."""
    if info.size <= _CHUNK:
        yield read_whole(files, info.path)
        return
    with files.open_input_stream(info.path) as file:
        while content := file.read(_CHUNK):
            yield content


def sum_of(contents: Iterable[bytes]) -> FileSum:
    """The size and checksum of a file that is read in parts.

    >>> sum_of([b"car", b"ts"]) == FileSum.of(b"carts")
    True
    """
    crc32 = size = 0
    for content in contents:
        crc32, size = zlib.crc32(content, crc32), size + len(content)
    return FileSum(size, crc32)
