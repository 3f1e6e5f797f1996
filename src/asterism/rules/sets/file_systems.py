"""Files by a path, or by a URI that Arrow supports (``hdfs://``, ``s3://``, ``gs://``, ``abfss://``)."""

from __future__ import annotations

import re

from pyarrow import fs

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A scheme of at least two letters: a single one is a drive of Windows."""
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/@]*:[^/@]*@")
"""A user with a password. (``abfss://container@account`` has none.)"""
NO_CREDENTIALS = (
    "give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or as the role of the machine"
)
_S3 = re.compile("^s3[an]:")
"""The schemes of Hadoop for S3."""


def is_path(location: str) -> bool:
    return _URI.match(location) is None


def has_credentials(location: str) -> bool:
    """Whether a URI contains a password, which would be shown in messages.

    >>> [has_credentials(text) for text in ("s3://key:secret@bucket/rules", "abfss://data@account.net/rules", "/a:b@c")]
    [True, False, False]
    """
    return _CREDENTIALS.match(location) is not None


def opened(location: str) -> tuple[fs.FileSystem, str]:
    """:raises pyarrow.ArrowInvalid: Arrow does not support the URI"""
    if is_path(location):
        return fs.LocalFileSystem(), location
    file_system_and_path: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(_S3.sub("s3:", location))
    return file_system_and_path
