"""Snapshots of a live engine in a folder: a SQLite database with the pages of state, which a transaction replaces as a whole.

Only the pages that have changed are written. A snapshot is written by a thread of its own while the engine goes on. The lease in
the folder keeps other processes away.

See docs/decisions/0136.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from asterism.errors import AsterismError, CheckpointMismatchError, NewerStateError, StateError
from asterism.files.lease import Lease
from asterism.live.handover import Handed
from asterism.live.live_store import Changes, encoded

DATABASE = "state.sqlite"
LEASE = "lease"
"""The folder of the lease, in that of the engine."""
FORMAT = 1
_PAUSE = 1e-4
"""Seconds after each page that is encoded, in which a call goes on: Python runs one thread at a time."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (id INTEGER PRIMARY KEY CHECK (id = 0), content TEXT NOT NULL);
"""


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
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _check_content(self.path)
            self._lease.acquire()
        except (OSError, ValueError) as error:  # a path with characters that paths cannot have
            raise StateError(f"the folder {self.path} cannot be used", str(error)) from error
        try:
            self._database = self._opened()
        except BaseException:
            self._lease.release()
            raise

    def _opened(self) -> sqlite3.Connection:
        database: sqlite3.Connection | None = None
        try:
            # The thread that writes snapshots uses it, after this one.
            database = sqlite3.connect(self.path / DATABASE, check_same_thread=False, isolation_level=None, timeout=60)
            # A commit is on the disk when it returns, and a reader of a savepoint does not disturb it.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            if database is not None:
                database.close()
            if "disk is full" in str(error):
                raise StateError(
                    f"the folder {self.path} cannot be used", str(error), "make room on the disk"
                ) from error
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
        if self._pending is not None:
            self._pending.result()

    def _commit(self, changes: Changes, record: SnapshotRecord) -> None:
        self._lease.check()
        values = []
        for number, value in changes.items():
            if value is not None:
                values.append((number, encoded(value)))
                time.sleep(_PAUSE)
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?)", values)
            database.executemany(
                "DELETE FROM pages WHERE number = ?", [(number,) for number, value in changes.items() if value is None]
            )
            database.execute("INSERT OR REPLACE INTO snapshot VALUES (0, ?)", [record.to_json()])
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Wait for the last snapshot, and leave the folder to other processes."""
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
        with closing(sqlite3.connect(f"{(path / DATABASE).as_uri()}?mode=ro", uri=True)) as database:
            record, pages = _content_of(database, path)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    if record is None:
        raise StateError(f"the folder {path} has no snapshot")
    return record, pages


def is_live_folder(location: str | PathLike[str]) -> bool:
    """Whether a folder is that of a live engine."""
    return (Path(fspath(location)) / DATABASE).exists()


_Content = tuple[SnapshotRecord | None, dict[int, bytes]]


def _content_of(database: sqlite3.Connection, path: Path) -> _Content:
    try:
        database.execute("BEGIN")
        rows = database.execute("SELECT content FROM snapshot").fetchall()
        pages = dict(database.execute("SELECT number, value FROM pages"))
        database.execute("ROLLBACK")
        return (SnapshotRecord.from_json(rows[0][0]) if rows else None), pages
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error


def _check_content(path: Path) -> None:
    """:raises CheckpointMismatchError: the folder belongs to something else"""
    names = {each.name for each in path.iterdir()}
    if names - {LEASE} and DATABASE not in names:
        raise CheckpointMismatchError(
            f"the folder {path} is not that of a live engine",
            f"It has {', '.join(sorted(names)[:3])}.",
            "open an empty folder",
        )


def _unreadable(path: Path, error: Exception) -> StateError:
    return StateError(
        f"the snapshot in {path} cannot be read",
        f"{type(error).__name__}: {error}",
        "restore the folder; or open another one, and send the events from the beginning",
    )


def _unwritable(path: Path, error: Exception) -> StateError:
    return StateError(
        f"the snapshot in {path} cannot be written",
        f"{type(error).__name__}: {error}\nThe former snapshot remains, and so does the state in memory.",
        "make room on the disk and call again; or open the folder again, and send the events after its position",
    )
