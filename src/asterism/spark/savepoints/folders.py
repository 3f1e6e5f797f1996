"""The files of savepoints and checkpoints that are read and written on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from pyspark.sql import SparkSession

from asterism.files.file_systems import opened, read_text, read_whole, replace_whole
from asterism.savepoints.file_sums import FileSums, check_missing, check_sum, contents_of, files_below, sum_of
from asterism.spark.session.settings import hadoop_settings, resolved


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """A folder at a path or a URI."""

    location: str
    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, spark: SparkSession, location: str) -> StoredFolder:
        location = resolved(spark, location.rstrip("/"))
        files, path = opened(location.removeprefix("file:"), hadoop_settings(spark))
        return cls(location, files, path)

    def __truediv__(self, name: str) -> StoredFolder:
        return StoredFolder(f"{self.location}/{name}", self.files, f"{self.path}/{name}")

    def names(self) -> list[str]:
        """The names of what is in the folder, without checksums."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self.files.get_file_info(selector) if info.base_name[0] != ".")

    def numbers(self) -> list[int]:
        """The names that are numbers, as those of Spark's logs."""
        return sorted(int(name) for name in self.names() if name.isdigit())

    def read(self, name: str, most: int | None = None) -> str | None:
        """The text of a file; None: there is none.

        :param most: its maximum size in bytes
        :raises StateError: it is larger, or not text
        """
        try:
            return read_text(self.files, f"{self.path}/{name}", most)
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Write a file. Nothing remains of a checksum that Hadoop has written for a former one."""
        self.files.create_dir(self.path, recursive=True)
        checksum = f"{self.path}/.{name}.crc"
        if self.files.get_file_info(checksum).type is fs.FileType.File:
            self.files.delete_file(checksum)
        with self.files.open_output_stream(f"{self.path}/{name}") as file:
            file.write(text.encode())

    def replace(self, name: str, text: str) -> None:
        """Write a file that is there as a whole or as it was before, whenever this is interrupted."""
        replace_whole(self.files, f"{self.path}/{name}", text.encode())

    def copy_to(self, other: StoredFolder, sums: FileSums | None = None) -> None:
        """Copy all files below this folder.

        :param sums: what they are compared with
        :raises StateError: a file is another one, or missing
        """
        if self.files.get_file_info(self.path).type is not fs.FileType.Directory:
            check_missing(sums or {}, (), self.location)
            return
        infos = dict(files_below(self.files, self.path))
        check_missing(sums or {}, infos, self.location)
        for below, info in infos.items():
            parent, _, name = f"{other.path}/{below}".rpartition("/")
            other.files.create_dir(parent, recursive=True)
            with other.files.open_output_stream(f"{parent}/{name}") as file:
                copied = sum_of(_written(file, contents_of(self.files, info)))
            check_sum(sums or {}, below, copied, self.location)

    def texts(self) -> Iterator[str]:
        """The contents of all files below this folder; what is not text is replaced."""
        infos = self.files.get_file_info(fs.FileSelector(self.path, recursive=True, allow_not_found=True))
        for info in infos:
            if info.type is fs.FileType.File:
                yield read_whole(self.files, info.path).decode(errors="replace")

    def delete(self) -> None:
        if self.files.get_file_info(self.path).type is fs.FileType.Directory:
            self.files.delete_dir(self.path)

    def delete_file(self, name: str) -> None:
        if self.files.get_file_info(f"{self.path}/{name}").type is fs.FileType.File:
            self.files.delete_file(f"{self.path}/{name}")


def _written(file: Any, contents: Iterable[bytes]) -> Iterator[bytes]:
    """The same contents, of which each was written."""
    for content in contents:
        file.write(content)
        yield content
