"""Files by a path, or by a URI that Arrow supports (``hdfs://``, ``s3://``, ``gs://``, ``abfss://``)."""

from __future__ import annotations

import re

from pyarrow import fs

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A scheme of at least two letters: a single one is a drive of Windows."""
_S3 = re.compile("^s3[an]:")
"""The schemes of Hadoop for S3."""


def is_path(location: str) -> bool:
    """Whether this is a path, not a URI."""
    return _URI.match(location) is None


def opened(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it.

    :raises pyarrow.ArrowInvalid: Arrow does not support the URI
    """
    if is_path(location):
        return fs.LocalFileSystem(), location
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(_S3.sub("s3:", location))
    return found
