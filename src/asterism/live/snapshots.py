"""Snapshots of a live engine in a folder: a SQLite database with the pages of state, which a transaction replaces as a whole.

Only the pages that have changed are written. A snapshot is written by a thread of its own while the engine goes on. The lease in
the folder keeps other processes away.

See docs/decisions/0136 and 0169.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from asterism.errors import AsterismError, CheckpointMismatchError, LeaseLostError, NewerStateError, StateError
from asterism.files.durable_files import NotWrittenError, replace_file
from asterism.files.lease import Lease
from asterism.live.handover import Handed
from asterism.live.live_store import Changes, encoded

DATABASE = "state.sqlite"
LEASE = "lease"
"""The folder of the lease, in that of the engine."""
FORMAT = 2
"""The format of a snapshot: since 2, there are checksums."""
PAUSE = 1e-4
"""Seconds in which a call begins or goes on: Python runs one thread at a time."""
_BETWEEN_PAUSES = 2**15
"""The number of bytes of pages that are encoded between two pauses, in less than a quarter of a millisecond."""
_PATIENCE = 0.5
"""Seconds for which the pages of a snapshot wait in all until no call is running."""
_LOG_SIZE = 2**22
"""The size to which the log of SQLite is cut, in bytes, once its content is in the database; a snapshot may need more."""
_SCHEMA = """
CREATE TABLE pages (number INTEGER PRIMARY KEY, value BLOB NOT NULL, crc32 INTEGER);
CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 0), content TEXT NOT NULL, crc32 INTEGER);
"""
_FROM_FORMAT_1 = """
BEGIN;
ALTER TABLE pages ADD COLUMN crc32 INTEGER;
ALTER TABLE snapshot ADD COLUMN crc32 INTEGER;
COMMIT;
"""
_OF_THE_SYSTEM = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)  # fmt: skip
"""Errors of SQLite in which a disk or a permission is the problem, and not the content."""
_OF_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What a snapshot has beside the pages of state. Times are microseconds.

    :param positions: of each input the position of the last batch that the state contains, as the caller has given it
    :param batch: the number of calls so far
    :param ended: the inputs that have ended
    :param counts: the totals of the counters
    :param watermark: that of the operator; None: there is none yet
    :param snapshots: the number of snapshots so far, with this one
    :param details: what the companion of the operator keeps
    :param handed: what sinks have taken of calls that had no effect
    :param pages: the number of pages; None: format 1, which does not have it
    """

    positions: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 0
    events: int = 0
    ended: tuple[str, ...] = ()
    over: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    processing_time: int = 0
    watermark: int | None = None
    next_processing_time: int | None = None
    zone: str | None = None
    snapshots: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    handed: Handed = field(default_factory=dict)
    pages: int | None = None

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> SnapshotRecord:
        """:raises StateError: it was written by a later release, or by something else"""
        content = json.loads(text)
        if content.pop("format") > FORMAT:
            raise NewerStateError(
                f"the snapshot has a later format than {FORMAT}, which this release reads",
                hint="open it with the release that has written it, or a later one",
            )
        known = {each.name for each in fields(cls)}
        record = cls(**{name: value for name, value in content.items() if name in known})
        return cls(**{**asdict(record), "ended": tuple(record.ended)})


class SnapshotFolder:
    """The folder of a live engine, which this process has leased.

    :param location: the path of the folder, which is created
    :raises CheckpointInUseError: another engine uses the folder
    :raises StateError: the folder has something else, or cannot be read or written
    """

    def __init__(self, location: str | PathLike[str]) -> None:
        self.path = Path(fspath(location)).absolute()
        self._lease = Lease(str(self.path / LEASE), f"the folder {self.path}")
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="asterism snapshot")
        self._pending: Future[None] | None = None
        self.is_called = False
        """Whether the engine is called: pages are encoded between calls, as long as there is patience."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _check_content(self.path)
            self._lease.acquire()
        except (OSError, ValueError) as error:  # a path with characters that paths cannot have
            raise _unusable(self.path, str(error)) from error
        try:
            self._database = self._opened()
            self._identity = self._identity_now()
            self._user = _user_of(self._database)
        except BaseException:
            self._lease.release()
            raise

    def _identity_now(self) -> tuple[int, int] | None:
        """What identifies the file of the database; None: there is none."""
        try:
            status = (self.path / DATABASE).stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _opened(self) -> sqlite3.Connection:
        database: sqlite3.Connection | None = None
        try:
            if not (self.path / DATABASE).exists():
                _create(self.path)
            # The thread that writes snapshots uses it, after this one.
            database = _connected(self.path, "rw", check_same_thread=False, isolation_level=None, timeout=60)
            if "crc32" not in {name for _, name, *_ in database.execute("PRAGMA table_info(pages)")}:
                database.executescript(_FROM_FORMAT_1)
            # A commit is on the disk when it returns, and a reader of a savepoint does not disturb it.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA journal_size_limit = {_LOG_SIZE}")
            _take_over(database)
        except sqlite3.Error as error:
            if database is not None:
                database.close()
            raise _unreadable(self.path, error) from error
        return database

    def read(self) -> tuple[SnapshotRecord | None, dict[int, bytes]]:
        """The last snapshot, and its pages; None: there is none yet."""
        return _content_of(self._database, self.path)

    # ------------------------------------------------------------------ writing

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._pending is not None and not self._pending.done()

    def write(
        self,
        changes: Changes,
        record: SnapshotRecord,
        saved: Callable[[], None],
        failed: Callable[[AsterismError], None],
    ) -> None:
        """Write a snapshot in the background; while the interpreter ends, in the thread of the caller.

        :param saved: called in the background when it is on the disk
        :param failed: called in the background if it cannot be written: the former snapshot remains
        """

        def write() -> None:
            try:
                self._commit(changes, record)
                saved()
            except AsterismError as error:
                failed(error)
            except Exception as error:  # whatever it is: what has been taken for the snapshot must not be forgotten
                failed(_unwritable(self.path, error))

        try:
            self._pending = self._writer.submit(write)
        except RuntimeError:  # the interpreter ends, and takes no new work for its threads
            self.wait()
            write()

    def check(self) -> None:
        """
        :raises LeaseLostError: another process has taken over the folder
        :raises StateError: the claims of the folder cannot be read
        """
        try:
            self._lease.check()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def wait(self) -> None:
        """Wait until the snapshot that is being written is complete, or has failed."""
        self.is_called = False
        if self._pending is not None:
            self._pending.result()

    def _commit(self, changes: Changes, record: SnapshotRecord) -> None:
        self._lease.check()
        if self._identity_now() != self._identity:  # SQLite goes on with a file that has no name any more
            raise StateError(
                f"the snapshot in {self.path} is gone",
                "The folder was removed or replaced while the engine used it. The state in memory remains.",
                "open another folder, and send the events from the beginning",
            )
        values, patient_until, encoded_bytes = [], time.monotonic() + _PATIENCE, 0
        for number, value in changes.items():
            if value is not None:
                while self.is_called and time.monotonic() < patient_until:
                    time.sleep(10 * PAUSE)
                content = encoded(value)
                values.append((number, content, _sum_of(content, number)))
                encoded_bytes += len(content)
                if encoded_bytes > _BETWEEN_PAUSES:
                    encoded_bytes = 0
                    time.sleep(PAUSE)
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            if _user_of(database) != self._user:  # this process was paused since the lease was checked
                raise LeaseLostError(
                    f"the folder {self.path} was taken over by another engine",
                    "This process was paused while it wrote a snapshot. The snapshots of the other one remain.",
                    "this engine has stopped writing; to continue it, stop the other one first",
                )
            database.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?, ?)", values)
            database.executemany(
                "DELETE FROM pages WHERE number = ?", [(number,) for number, value in changes.items() if value is None]
            )
            text = record.to_json()
            database.execute("INSERT OR REPLACE INTO snapshot VALUES (0, ?, ?)", [text, _sum_of(text.encode())])
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Wait for the last snapshot, and leave the folder to other processes."""
        self.is_called = False
        self._writer.shutdown()
        with suppress(sqlite3.Error):  # everything is committed
            self._database.close()
        self._lease.release()


def read_snapshot(location: str | PathLike[str]) -> tuple[SnapshotRecord, dict[int, bytes]]:
    """The last snapshot in a folder, and its pages, also while an engine uses it.

    :raises StateError: there is none, or it cannot be read
    """
    path = Path(fspath(location)).absolute()
    try:
        with closing(_connected(path, "ro")) as database:
            record, pages = _content_of(database, path)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    if record is None:
        raise StateError(f"the folder {path} has no snapshot")
    return record, pages


def is_live_folder(location: str | PathLike[str]) -> bool:
    """Whether a folder is that of a live engine."""
    return (Path(fspath(location)) / DATABASE).exists()


def _create(path: Path) -> None:
    """Create a database without a snapshot, as a whole: one without tables is damaged.

    :raises StateError: it cannot be written
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        content = database.serialize()
    try:
        replace_file(path / DATABASE, content)
    except NotWrittenError as error:
        raise _unusable(path, error.detail or error.message) from error


def _user_of(database: sqlite3.Connection) -> int:
    """The number of the last engine that has opened the database."""
    number: int = database.execute("PRAGMA user_version").fetchone()[0]
    return number


def _take_over(database: sqlite3.Connection) -> None:
    """Keep former users from writing, also one that was paused within a snapshot, when it had checked its lease."""
    database.execute("BEGIN IMMEDIATE")
    database.execute(f"PRAGMA user_version = {(_user_of(database) + 1) % 2**31}")
    database.execute("COMMIT")


def _connected(path: Path, mode: str, **options: Any) -> sqlite3.Connection:
    """:param mode: rw, ro; a database is never created"""
    database: sqlite3.Connection = sqlite3.connect(f"{(path / DATABASE).as_uri()}?mode={mode}", uri=True, **options)
    return database


_Content = tuple[SnapshotRecord | None, dict[int, bytes]]


def _content_of(database: sqlite3.Connection, path: Path) -> _Content:
    try:
        database.execute("BEGIN")
        snapshots = database.execute("SELECT * FROM snapshot").fetchall()
        pages = {}
        for number, value, *sums in database.execute("SELECT * FROM pages"):
            _check_sum(f"page {number}", value, sums, number)
            pages[number] = value
        database.execute("ROLLBACK")
        record = None
        for _, text, *sums in snapshots:
            _check_sum("its description", text.encode(), sums)
            record = SnapshotRecord.from_json(text)
        expected = 0 if record is None else record.pages
        if expected is not None and expected != len(pages):
            raise ValueError(f"it has {len(pages)} of {expected} pages")
        return record, pages
    except (sqlite3.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error


def _sum_of(value: bytes, number: int = 0) -> int:
    """:param number: that of a page, which the checksum is of, too"""
    return zlib.crc32(value, number & 0xFFFFFFFF)


def _check_sum(name: str, value: bytes, sums: list[int | None], number: int = 0) -> None:
    """:param sums: the CRC-32; None, or none: format 1 has written the value"""
    if any(expected is not None and expected != _sum_of(value, number) for expected in sums):
        raise ValueError(f"{name} was changed")


def _check_content(path: Path) -> None:
    """:raises CheckpointMismatchError: the folder belongs to something else"""
    names = {each.name for each in path.iterdir()}
    names = {name for name in names if not name.startswith(f".{DATABASE}.")}  # what an interrupted start has left
    if names - {LEASE} and DATABASE not in names:
        raise CheckpointMismatchError(
            f"the folder {path} is not that of a live engine",
            f"It has {', '.join(sorted(names)[:3])}.",
            "open an empty folder",
        )


def _unusable(path: Path, detail: str) -> StateError:
    hint = "make room on the disk" if "disk is full" in detail or "No space" in detail else None
    return StateError(f"the folder {path} cannot be used", detail, hint)


def _unreadable(path: Path, error: Exception) -> StateError:
    if isinstance(error, sqlite3.Error) and _code(error) in _OF_THE_SYSTEM:
        return _unusable(path, str(error))
    return StateError(
        f"the snapshot in {path} is damaged",
        f"{DATABASE}: {error}",
        "restore the folder; or open another one, and send the events from the beginning",
    )


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of Python's module itself have none


def _unwritable(path: Path, error: Exception) -> StateError:
    if isinstance(error, sqlite3.Error) and _code(error) in _OF_DAMAGE:
        return _unreadable(path, error)
    return StateError(
        f"the snapshot in {path} cannot be written",
        f"{type(error).__name__}: {error}\nThe former snapshot remains, and so does the state in memory.",
        "make room on the disk and call again; or open the folder again, and send the events after its position",
    )
