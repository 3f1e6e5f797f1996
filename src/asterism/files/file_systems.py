"""Files by a path, or by a URI: Arrow reads and writes ``s3://``, ``s3a://``, ``gs://`` and ``abfss://``, Hadoop all others.

See docs/decisions/0121.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pyarrow import fs

from asterism.errors import StateError
from asterism.files.durable_files import make_folder, replace_file
from asterism.files.hadoop import HadoopFiles, hadoop_files

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A scheme of at least two letters: a single one is a drive of Windows."""
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/@]*:[^/@]*@")
"""A user with a password. (``abfss://container@account`` has none.)"""
NO_CREDENTIALS = (
    "give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or as the role of the machine"
)
_S3 = re.compile("^s3[an]?:")
"""The schemes of S3 in Arrow and in Hadoop."""
_OF_ARROW = ("file", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")
_ATTEMPTS = 10
"""Of a request to S3: with Arrow's three, a store that throttles would often interrupt discovery."""
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds between reads that fail."""
_settings: dict[str, str] = {}
_lock = threading.Lock()


def is_path(location: str) -> bool:
    return _URI.match(location) is None


def has_credentials(location: str) -> bool:
    """Whether a URI contains a password, which would be shown in messages.

    >>> [has_credentials(text) for text in ("s3://key:secret@bucket/rules", "abfss://data@account.net/rules", "/a:b@c")]
    [True, False, False]
    """
    return _CREDENTIALS.match(location) is not None


def use_settings(hadoop: Mapping[str, str]) -> None:
    """From now on, :func:`opened` without settings has these in this process: those of the session whose query it serves."""
    with _lock:
        _settings.update(hadoop)


def opened(location: str, hadoop: Mapping[str, str] | None = None) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and its path there.

    :param hadoop: Hadoop's settings, as ``fs.s3a.endpoint``; None: those of :func:`use_settings`
    :raises pyarrow.ArrowInvalid: the URI is invalid
    """
    if is_path(location):
        return fs.LocalFileSystem(), location
    if hadoop is None:
        with _lock:
            hadoop = dict(_settings)
    scheme, _, rest = location.partition(":")
    if scheme.lower() not in _OF_ARROW:
        parts = urlsplit(location)
        return hadoop_files(f"{scheme}://{parts.netloc}", frozenset(hadoop.items())), parts.path
    file_system_and_path: tuple[fs.FileSystem, str]
    if _S3.match(location) is None:
        file_system_and_path = fs.FileSystem.from_uri(location)
    elif hadoop and "?" not in location:
        path = rest.lstrip("/")
        file_system_and_path = fs.S3FileSystem(**s3_arguments(hadoop, path.partition("/")[0])), path
    else:
        delayed = "&allow_delayed_open=true" if "?" in location else "?allow_delayed_open=true"
        file_system_and_path = fs.FileSystem.from_uri(f"s3:{rest}{delayed}")
    return file_system_and_path


def s3_arguments(hadoop: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """The arguments of Arrow's S3 that say the same as the settings of S3A. Those of the bucket come before general ones.

    >>> settings = {"fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.s3a.bucket.rules.endpoint.region": "eu-west-1"}
    >>> arguments = s3_arguments(settings, "rules")
    >>> arguments["endpoint_override"], arguments["scheme"], arguments["region"]
    ('127.0.0.1:9000', 'http', 'eu-west-1')
    """

    def setting(name: str) -> str | None:
        return hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}") or None

    arguments: dict[str, Any] = {
        # A small file is written by one request, which either creates the object or does not.
        "allow_delayed_open": True,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    }
    endpoint = setting("endpoint")
    secure = setting("connection.ssl.enabled") != "false"
    if endpoint is not None:
        scheme, separator, host = endpoint.partition("://")
        arguments["endpoint_override"] = host.rstrip("/") if separator else endpoint
        secure = scheme == "https" if separator else secure
        arguments["force_virtual_addressing"] = setting("path.style.access") == "false"
    arguments["scheme"] = "https" if secure else "http"
    names = {
        "endpoint.region": "region",
        "access.key": "access_key",
        "secret.key": "secret_key",
        "session.token": "session_token",
        "assumed.role.arn": "role_arn",
    }
    arguments |= {name: value for of_s3a, name in names.items() if (value := setting(of_s3a)) is not None}
    if "Anonymous" in (setting("aws.credentials.provider") or ""):
        arguments["anonymous"] = True
    return arguments


def replace_whole(files: fs.FileSystem, path: str, content: bytes) -> None:
    """Replace a file, and create its folder, so that a reader sees the old or the new content, never a part. On a local file
    system, the new content survives a power failure.

    :raises OSError, NotWrittenError: the file cannot be written
    """
    folder, _, name = path.rpartition("/")
    if isinstance(files, fs.LocalFileSystem):
        make_folder(Path(folder))
        replace_file(Path(path), content)
        return
    if files.type_name in (
        "s3",
        "gcs",
        "abfs",
    ):  # a file appears when it is complete, in the place of the one that was there
        with files.open_output_stream(path) as file:
            file.write(content)
        return
    files.create_dir(folder, recursive=True)
    # Several processes may write the same file at once. What a killed process leaves does no harm.
    temporary = f"{folder}/.{name}.{uuid4().hex}"
    with files.open_output_stream(temporary) as file:
        file.write(content)
    files.move(temporary, path)


def read_whole(files: fs.FileSystem, path: str) -> bytes:
    """The content of a file.

    On S3, a read that fails is repeated: Arrow repeats the request, but the text of the error is then in the way of its answer.
    """
    return _repeated(files, partial(_read, files, path))


def read_end(files: fs.FileSystem, path: str, count: int) -> bytes:
    """The last *count* bytes of a file, or all of them, without the rest. On S3, as :func:`read_whole`."""
    handler = getattr(files, "handler", None)
    if isinstance(handler, HadoopFiles):
        return handler.read_end(path, count)
    return _repeated(files, partial(_read_end, files, path, count))


def read_text(files: fs.FileSystem, path: str, most: int | None = None) -> str:
    """The content of a file as text.

    :param most: its maximum size in bytes
    :raises FileNotFoundError: there is no file
    :raises StateError: it is larger, or not text
    """
    size = 0 if most is None else files.get_file_info(path).size
    if most is not None and size is not None and size > most:
        raise StateError(f"the file {path} has {size:,} bytes, at most {most:,} are read")
    try:
        return read_whole(files, path).decode()
    except UnicodeDecodeError as error:
        raise StateError(f"the file {path} is not text", str(error)) from None


def _repeated(files: fs.FileSystem, read: Callable[[], bytes]) -> bytes:
    for seconds in _PAUSES if files.type_name == "s3" else ():
        try:
            return read()
        except FileNotFoundError:
            raise
        except OSError:
            time.sleep(seconds)
    return read()


def _read_end(files: fs.FileSystem, path: str, count: int) -> bytes:
    with files.open_input_file(path) as file:
        file.seek(max(file.size() - count, 0))
        content: bytes = file.read(count)
    return content


def _read(files: fs.FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as file:
        content: bytes = file.readall()
    return content
