"""What tests of savepoints share."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from asterism.spark.savepoints.folders import StoredFolder


def folder_of(path: Path, **files: str) -> StoredFolder:
    """A folder of the local file system.

    :param files: the texts of files to write there; ``__`` in a name is a slash
    """
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return StoredFolder(str(path), fs.LocalFileSystem(), str(path))
