"""Hadoop's file systems for Arrow: for the URIs that Spark takes and Arrow does not.

Rules are stored and read by processes without a JVM: the control source, the tasks, the command ``asterism rules``. Each of
them that needs a file system of Hadoop starts a small JVM, with py4j and the jars that PySpark brings, and ends it with itself.
Both interfaces are public: Hadoop's ``FileSystem`` and ``FileContext``, and Arrow's ``FileSystemHandler``.

See docs/decisions/0121.
"""

from __future__ import annotations

import atexit
import errno
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from asterism.errors import StateError
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway

_CHUNK = 2**20
"""Bytes that are sent to the JVM, or from it, at a time."""
_MAX_ERROR = 300
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF")
START_SECONDS = 120.0
"""A JVM that takes longer to start is ended. On a busy machine, it has taken half a minute."""
_NEEDED = "org.apache.hadoop.fs.FileContext"
"""A class of Hadoop's client."""
_UNUSABLE = "Hadoop's file systems cannot be used"
_lock = threading.RLock()


@dataclass
class _Started:
    """A JVM of this process."""

    java: subprocess.Popen[bytes]
    client: GatewayClient
    gateway: JavaGateway

    def end(self) -> None:
        if self in _started:
            with suppress(Exception):
                self.gateway.shutdown()
            _end(self.java)


_started: list[_Started] = []
"""One, or none."""
_lost: list[_Started] = []
"""Of a parent process, whose sockets must not be closed, or dead."""


def _gateway() -> JavaGateway:
    if not _started:
        _started.append(_launched())
        atexit.register(_started[0].end)
    return _started[0].gateway


def _lose() -> None:
    """The next call starts a JVM."""
    for lost in _started:
        lost.client.is_connected = False  # else, py4j tells the JVM which of its objects are not used any more
        _lost.append(lost)
    _started.clear()


def _forget_dead_jvm() -> None:
    with _lock, suppress(subprocess.TimeoutExpired):
        if _started:
            java = _started[0].java
            java.wait(1)  # its sockets are closed before it has ended
            assert java.stdin is not None
            java.stdin.close()
            _lose()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it
    _lock = threading.RLock()
    _lose()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)


def _launched() -> _Started:
    from py4j.java_gateway import GatewayParameters, JavaGateway

    with tempfile.TemporaryFile() as errors:
        java = _java(errors)
        lines = _first_lines(java, 2)
        if len(lines or ()) < 2:
            _end(java)
            errors.seek(0)
            said = one_line(errors.read(_MAX_ERROR).decode(errors="replace"), _MAX_ERROR)
            if lines is None:
                said = f"The JVM has not started within {START_SECONDS:g} seconds. {said}".strip()
            raise StateError(_UNUSABLE, said or "The JVM ends, and says nothing.")
    assert lines is not None
    parameters = GatewayParameters(port=int(lines[0]), auth_token=lines[1].decode(), auto_convert=True)
    client = _client(parameters)
    gateway = JavaGateway(client, gateway_parameters=parameters)
    try:
        gateway.jvm.java.lang.Class.forName(_NEEDED)
    except Exception:
        client.is_connected = False
        _end(java)
        hint = "set SPARK_HOME to a Spark with Hadoop, or SPARK_DIST_CLASSPATH to Hadoop's jars"
        raise StateError(_UNUSABLE, f"no jar has {_NEEDED}", hint) from None
    return _Started(java, client, gateway)


def _client(parameters: GatewayParameters) -> GatewayClient:
    from py4j.java_gateway import GatewayClient
    from py4j.protocol import get_return_value, is_error

    class Client(GatewayClient):  # type: ignore[misc] # py4j has no types
        """Raises the exceptions of its JVM by itself. In a program with a session, PySpark has replaced the function of py4j that
        does so with one that asks Spark's JVM about an object which only this JVM has.
        """

        def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
            answer = super().send_command(command, retry, binary)
            text = answer[0] if binary else answer
            if is_error(text)[0]:
                get_return_value(text, self)
            return answer

    return Client(gateway_parameters=parameters)


def _java(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process, which ends when its standard input is closed: also when this process is killed."""
    path = f"{os.environ.get('JAVA_HOME', '')}/bin{os.pathsep}{os.environ.get('PATH', '')}"
    java, jars = shutil.which("java", path=path), _jars()
    if java is None or not any(jars.glob("py4j-*.jar")):
        missing = "Java is not on PATH" if java is None else f"{jars} has no py4j-*.jar"
        raise StateError(_UNUSABLE, missing, "set JAVA_HOME and SPARK_HOME")
    folders = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    more = [text for name in ("SPARK_DIST_CLASSPATH", "CLASSPATH") if (text := os.environ.get(name))]
    classpath = os.pathsep.join([*folders, f"{jars}/*", *more])
    try:
        return subprocess.Popen(
            [java, "-cp", classpath, *_JVM, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,  # Ctrl-C is for this process
        )
    except OSError as error:
        raise StateError(_UNUSABLE, f"{java} does not start: {error.strerror}", "set JAVA_HOME") from None


def _first_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes] | None:
    """Of the output of a process; fewer if it ends; None: it is too slow. What follows is read and dropped."""
    lines: list[bytes] = []
    are_read = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if len(lines) < count:
                    lines.append(line.strip())
                if len(lines) == count:
                    are_read.set()
        are_read.set()

    threading.Thread(target=read, name="asterism-hadoop", daemon=True).start()
    return lines if are_read.wait(START_SECONDS) else None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _jars() -> Path:
    """The folder of Spark's jars."""
    home = os.environ.get("SPARK_HOME")
    if home and (folder := Path(home, "jars")).is_dir():
        return folder
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StateError("Hadoop's file systems need Spark's jars", hint="set SPARK_HOME, or install pyspark")
    return Path(spec.origin).parent / "jars"


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Hadoop's exceptions, as Python has them."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getSimpleName())
        reason = one_line(str(error.java_exception.getMessage()), _MAX_ERROR)
        if kind == "FileNotFoundException":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        if kind == "UnsupportedFileSystemException":
            hint = "add its jar to Spark's folder of jars, or to SPARK_DIST_CLASSPATH, on all machines"
            raise StateError(f"Hadoop has no file system for {path}", reason, hint) from None
        raise OSError(f"{kind}: {reason}") from None
    except (Py4JError, ConnectionError) as error:
        _forget_dead_jvm()
        raise OSError(f"the JVM of Hadoop's file systems: {one_line(str(error), _MAX_ERROR)}") from None


@lru_cache(maxsize=32)
def hadoop_files(root: str, settings: frozenset[tuple[str, str]]) -> fs.FileSystem:
    """:class:`HadoopFiles`, once for each process: stores are made anew for each task."""
    return fs.PyFileSystem(HadoopFiles(root, dict(settings)))


class HadoopFiles(fs.FileSystemHandler):  # type: ignore[misc] # Arrow has no types
    """A file system of Hadoop.

    :param root: the scheme and the authority of its URIs: ``hdfs://namenode:8020``
    :param settings: of Hadoop, in addition to those in ``HADOOP_CONF_DIR``
    """

    def __init__(self, root: str, settings: Mapping[str, str]) -> None:
        self.root, self.settings = root, dict(settings)
        self._opened: tuple[JavaGateway, Any, Any] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopFiles) and (self.root, self.settings) == (other.root, other.settings)

    def __hash__(self) -> int:
        return hash(self.root)

    def get_type_name(self) -> str:
        return "hadoop"

    def normalize_path(self, path: str) -> str:
        return path

    @contextmanager
    def _calls(self, path: str) -> Iterator[tuple[Any, Any, Any]]:
        """The JVM, the file system, and *path* as Hadoop has it."""
        with _as_os_errors(self.root + path):
            with _lock:
                gateway = _gateway()
                if self._opened is None or self._opened[0] is not gateway:
                    self._opened = gateway, *self._systems(gateway)
                _, system, _ = self._opened
            yield gateway.jvm, system, gateway.jvm.org.apache.hadoop.fs.Path(self.root + path)

    def _systems(self, gateway: JavaGateway) -> tuple[Any, Any]:
        """The file system, and its context, which replaces files in one step; None: it has none."""
        from py4j.protocol import Py4JJavaError

        jvm = gateway.jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in self.settings.items():
            configuration.set(name, value)
        uri = jvm.java.net.URI(f"{self.root}/")
        system = jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, configuration)
        try:
            context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)
        except Py4JJavaError:
            context = None
        return system, context

    # ------------------------------------------------------------------ what is there

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        infos = []
        for path in paths:
            with self._calls(path) as (_, system, at):
                try:
                    infos.append(_info(path, system.getFileStatus(at)))
                except Exception as error:
                    if not _is_missing(error):
                        raise
                    infos.append(fs.FileInfo(path, fs.FileType.NotFound))
        return infos

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with self._calls(selector.base_dir) as (_, system, at):
                listed = [(str(status.getPath().getName()), status) for status in system.listStatus(at)]
                infos = [_info(f"{selector.base_dir.rstrip('/')}/{name}", status) for name, status in listed]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if selector.recursive:
            for info in [info for info in infos if info.type is fs.FileType.Directory]:
                infos += self.get_file_info_selector(fs.FileSelector(info.path, recursive=True, allow_not_found=True))
        return infos

    def read_end(self, path: str, count: int) -> bytes:
        """The last bytes of a file, of which all others read the whole."""
        with self._calls(path) as (_, system, at):
            begin = max(int(system.getFileStatus(at).getLen()) - count, 0)
            stream = system.open(at)
            try:
                stream.seek(begin)
                return bytes(stream.readNBytes(count))
            finally:
                stream.close()

    def open_input_file(self, path: str) -> pa.NativeFile:
        with self._calls(path) as (_, system, at):
            stream = system.open(at)
            try:
                parts = []
                while part := stream.readNBytes(_CHUNK):
                    parts.append(part)
            finally:
                stream.close()
        return pa.BufferReader(b"".join(parts))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    # ------------------------------------------------------------------ changes

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        return pa.PythonFile(_WholeFile(partial(self.write, path)), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        raise NotImplementedError("files are replaced as a whole")

    def write(self, path: str, content: bytes) -> None:
        with self._calls(path) as (_, system, at):
            stream = system.create(at, True)
            try:
                for begin in range(0, len(content), _CHUNK):
                    stream.write(content[begin : begin + _CHUNK])
            finally:
                stream.close()

    def move(self, src: str, dest: str) -> None:
        """Replaces *dest*: in one step on HDFS and wherever Hadoop has a ``FileContext``; elsewhere, it is missing briefly."""
        with self._calls(src) as (jvm, system, source):
            hadoop = jvm.org.apache.hadoop.fs
            target = hadoop.Path(self.root + dest)
            assert self._opened is not None
            gateway, _, context = self._opened
            if context is not None:
                how = gateway.new_array(hadoop.Options.Rename, 1)
                how[0] = hadoop.Options.Rename.OVERWRITE
                context.rename(source, target, how)
                return
            system.delete(target, False)
            if not system.rename(source, target):
                raise OSError(f"{self.root}{src} cannot be renamed to {dest}")

    def create_dir(self, path: str, recursive: bool) -> None:
        with self._calls(path) as (_, system, at):
            system.mkdirs(at)

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def _delete(self, path: str, *, recursive: bool) -> None:
        with self._calls(path) as (_, system, at):
            if not system.delete(at, recursive):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError("folders are not deleted")

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("folders are not deleted")

    def copy_file(self, src: str, dest: str) -> None:
        self.write(dest, self.open_input_file(src).readall())


class _WholeFile:
    """Collects what is written; the file is written when it is closed."""

    closed = False

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """What is written is whole or not there."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._write(b"".join(self._parts))


def _is_missing(error: Exception) -> bool:
    thrown = getattr(error, "java_exception", None)
    return thrown is not None and thrown.getClass().getSimpleName() == "FileNotFoundException"


def _info(path: str, status: Any) -> fs.FileInfo:
    if status.isDirectory():
        return fs.FileInfo(path, fs.FileType.Directory)
    return fs.FileInfo(
        path, fs.FileType.File, size=int(status.getLen()), mtime_ns=int(status.getModificationTime()) * 10**6
    )
