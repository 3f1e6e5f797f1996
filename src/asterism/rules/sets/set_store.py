"""The folder in which a query stores its sets of pattern processors and related data; all processes of the query can read it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from asterism.arguments import expect, expect_string
from asterism.columns.time import BEFORE_TIME
from asterism.errors import AsterismError, PatternProcessorError, StateError, printable
from asterism.files.durable_files import NotWrittenError
from asterism.files.file_systems import NO_CREDENTIALS, has_credentials, opened, read_whole, replace_whole
from asterism.rules.definition.lookup_tables import LookupVersion, digest_of_rows
from asterism.rules.definition.processor import PatternProcessor, Slot
from asterism.rules.sets import kill_list
from asterism.rules.sets.discovery_status import OFF, PENDING, STALE, WAITING, Status
from asterism.rules.sets.history import History, HistoryEntry
from asterism.rules.sets.kill_list import KillList, is_named
from asterism.rules.sets.rule_counts import RuleCounts
from asterism.rules.sets.sets import ProcessorSet, digest_of
from asterism.rules.sets.used_versions import LOST, UsedVersions, Versions, versions_from_bytes

KEPT_FILES = 100
"""The number of sets whose files are kept: a query can be reset by as many micro-batches, as Spark keeps of its logs."""
STORE = "pattern_processors"
"""The name of the store's folder in the checkpoint."""
_HISTORY, _LOOKUPS = "history", "lookups"
_VERSIONS, _RECENT_VERSIONS = "versions.json", "recent_versions.json"
WAIT = timedelta(minutes=1)
"""How long to wait for a version by default."""
_BETWEEN = 0.1
"""Seconds between two reads of the status."""
_OWNER = re.compile(rb"[0-9a-f]{32}")
_RESTORE = "restore the folder that belongs to the checkpoint"
_T = TypeVar("_T")


class FolderStore:
    """Stores sets of processors in a folder: a path, or any URI that Spark takes (``hdfs://``, ``s3a://``, ``gs://``, ...).

    * ``sets/<number>.json``: the sets
    * ``retained.json``: the numbers of the sets that may still be in force
    * ``replaced.json``: the processors of older sets that are still in force, as last reported by key groups
    * ``versions.json`` and ``recent_versions.json``: the digest of each version
    * ``killed.json``: the kill list
    * ``status.json``: the status of discovery
    * ``counts.json``: the counts of processors
    * ``history/<number>.jsonl``: what has changed
    * ``lookups/<name>/<number>.parquet``: the rows of a lookup, from the set with this number on

    One coordinator writes these files, the last that has claimed the folder, which is named in ``owner``; but the tasks write
    ``replaced.json``, the program that started the query writes ``counts.json``, and people change ``killed.json``. Files are
    replaced as a whole. On a local path, a new file survives a power failure; elsewhere, that depends on the file system.

    :param hadoop: Hadoop's settings, as ``fs.s3a.endpoint``; None: those of the process
    """

    def __init__(self, location: str, hadoop: Mapping[str, str] | None = None) -> None:
        if has_credentials(location):
            raise StateError("the URI of a store contains credentials", hint=NO_CREDENTIALS)
        self.location, self.hadoop = location, hadoop
        self._files: fs.FileSystem | None = None
        self._folder = ""
        self._cache: dict[int, ProcessorSet] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "hadoop": self.hadoop, "_files": None, "_folder": "", "_cache": {}}

    def _open(self) -> fs.FileSystem:
        if self._files is None:
            try:
                self._files, self._folder = opened(self.location, self.hadoop)
            except (pa.ArrowInvalid, ValueError) as error:
                raise StateError(
                    f"a store of pattern processors cannot be in {self.location}",
                    str(error),
                    "store=folder, which all machines see: a path, or a URI that Spark takes",
                ) from None
        return self._files

    def local_folder(self) -> str | None:
        """The folder, if it is on the local file system."""
        return self._folder if isinstance(self._open(), fs.LocalFileSystem) else None

    def _read(self, name: str) -> bytes | None:
        files = self._open()
        try:
            if isinstance(files, fs.LocalFileSystem):
                with Path(f"{self._folder}/{name}").open("rb") as local:
                    return local.read()
            return read_whole(files, f"{self._folder}/{name}")
        except FileNotFoundError:
            return None

    def _json(self, name: str) -> Any:
        """The content of a file; None if it does not exist or cannot be parsed."""
        with suppress(ValueError, RecursionError):
            return json.loads(self._read(name) or b"null")
        return None

    def _write(self, name: str, value: bytes) -> None:
        replace_whole(self._open(), f"{self._folder}/{name}", value)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self._open().delete_file(f"{self._folder}/{name}")

    def _decoded(self, name: str, value: bytes, decode: Callable[[bytes], _T], hint: str) -> _T:
        try:
            return decode(value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AsterismError) as error:
            reason = printable(f"{type(error).__name__}: {error}"[:200])
            raise StateError(f"{self.location}/{name} cannot be read", reason, hint) from None

    def exists(self) -> bool:
        return self._read("owner") is not None or self._read("retained.json") is not None

    def claim(self, owner: str) -> None:
        self._write("owner", owner.encode())

    def belongs_to(self, owner: str) -> bool:
        stored_owner = self._read("owner")
        if stored_owner is None or not _OWNER.fullmatch(stored_owner):
            self.claim(owner)  # the file was lost
            return True
        return stored_owner == owner.encode()

    def numbers(self) -> list[int]:
        """The sorted numbers of the retained sets or, if the list is lost, of all stored sets: additional ones do no harm."""
        retained = self._json("retained.json")
        if isinstance(retained, list) and all(type(number) is int and number > 0 for number in retained):
            return sorted(retained)
        return self._numbered("sets", "json")

    def _numbered(self, folder: str, suffix: str) -> list[int]:
        """The sorted numbers of the files in a folder that are named by numbers."""
        names = [re.fullmatch(rf"([1-9][0-9]{{0,17}})\.{suffix}", name) for name in self._names_in(folder)]
        return sorted(int(name[1]) for name in names if name)

    def _names_in(self, folder: str) -> list[str]:
        files = self._open()
        listed = files.get_file_info(fs.FileSelector(f"{self._folder}/{folder}", allow_not_found=True))
        return [file.base_name for file in listed]

    def get(self, number: int) -> ProcessorSet:
        if number not in self._cache:
            value = self._stored(number)
            self._cache[number] = self._decoded(f"sets/{number}.json", value, ProcessorSet.from_bytes, _RESTORE)
        return self._cache[number]

    def _stored(self, number: int) -> bytes:
        value = self._read(f"sets/{number}.json")
        if value is None:
            raise PatternProcessorError(
                f"the set {number} of pattern processors is missing",
                self.location,
                _RESTORE,
            )
        return value

    def digest(self, number: int) -> bytes:
        """:raises StateError: the set cannot be read"""
        value = self._stored(number)
        self._decoded(f"sets/{number}.json", value, ProcessorSet.from_bytes, _RESTORE)
        return digest_of(value)

    def stored(self, number: int, digest: bytes) -> bytes:
        """The bytes of a set, which are not parsed again, because they were when *digest* was computed.

        :raises StateError: the set has another digest
        """
        value = self._stored(number)
        if digest_of(value) != digest:
            raise StateError(f"{self.location}/sets/{number}.json is not the set that was announced", hint=_RESTORE)
        return value

    def retained(self) -> list[ProcessorSet]:
        numbers = self.numbers()
        self._forget_others(numbers)
        return [self.get(number) for number in numbers]

    def _forget_others(self, numbers: Sequence[int]) -> None:
        known = [*self._cache.items()]  # other threads may add some meanwhile
        self._cache = {number: processor_set for number, processor_set in known if number in numbers}

    def put(self, new: ProcessorSet) -> None:
        """Store a set durably, before it is announced."""
        numbers = self.numbers()
        self._cache.pop(new.version, None)  # of an attempt that failed
        self._write(f"sets/{new.version}.json", new.to_bytes())
        self._write("retained.json", json.dumps(sorted({*numbers, new.version})).encode())
        old = new.version - KEPT_FILES
        if old > 0 and old not in numbers:
            self._remove(f"sets/{old}.json")

    def put_lookup(self, version: LookupVersion, value: bytes) -> None:
        """Store the rows of a version, before the set that has it. Versions that no stored set has are removed."""
        folder = f"{_LOOKUPS}/{version.name}"
        stored = self._numbered(folder, "parquet")
        self._write(f"{folder}/{version.version}.parquet", value)
        needed = {
            max((candidate for candidate in stored if candidate <= number), default=0)
            for number in [*self._numbered("sets", "json"), *self.numbers()]
        }
        for old in stored:
            if old not in needed and old != version.version:
                self._remove(f"{folder}/{old}.parquet")

    def read_lookup(self, version: LookupVersion) -> bytes:
        """:raises StateError: the rows are missing or have another digest"""
        name = f"{_LOOKUPS}/{version.name}/{version.version}.parquet"
        value = self._read(name)
        if value is None or digest_of_rows(value) != version.digest:
            problem = "is missing" if value is None else "has other rows than those that were announced"
            raise StateError(f"{self.location}/{name} {problem}", hint=_RESTORE)
        return value

    def committed(self, number: int) -> None:
        """No micro-batch will announce this set or an earlier one any more, so earlier sets are removed, unless they have
        processors that are in force until the time of their successor.
        """
        numbers = self.numbers()
        if len(numbers) < 2:
            return
        kept = [n for n in numbers if n >= number] or numbers[-1:]
        kept = sorted({*kept, *self._replaced_later(numbers, number)})
        if kept != numbers:
            self._write("retained.json", json.dumps(kept).encode())
        self._forget_others(kept)

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        with suppress(OSError, NotWrittenError):  # more sets than needed are then retained
            self._write("replaced.json", json.dumps({"set": version, "processors": processors}).encode())

    def expired(self, time: int) -> None:
        with suppress(OSError, NotWrittenError):  # the expiry is then not logged
            self._write("expired.json", json.dumps({"time": time}).encode())

    def expired_until(self) -> int:
        """The last event time (microseconds) at which key groups have found that a processor has expired."""
        with suppress(ValueError, KeyError, TypeError):
            return int(self._json("expired.json")["time"])
        return BEFORE_TIME

    def _replaced_later(self, numbers: Sequence[int], committed: int) -> set[int]:
        """The sets with a processor that a later one replaces at a time, unless key groups have reported that it is not in
        force any more, or a set up to *committed* has killed it. (Key groups of an earlier micro-batch did not know the later
        sets; those of a later one have not started yet.)
        """
        reported, in_force = 0, set[tuple[str, int]]()
        stored = self._json("replaced.json")
        with suppress(ValueError, KeyError, TypeError):
            in_force = {(str(id), int(version)) for id, version in stored["processors"]}
            reported = int(stored["set"])
        replaced_by_slot: dict[Slot, dict[int, PatternProcessor]] = {}
        last = 0
        before: dict[Slot, PatternProcessor] = {}
        for number in numbers:
            now = {processor.slot: processor for processor in self.get(number).processors}
            for slot, old in before.items():
                new = now.get(slot)
                if new is None or (new.version != old.version and new.timestamp is None):
                    replaced_by_slot.pop(slot, None)
                elif new.version != old.version and (number > reported or (old.id, old.version) in in_force):
                    replaced_by_slot.setdefault(slot, {})[last] = old
            last, before = number, now
        killed = {number: self.get(number).killed for number in numbers if number <= committed}
        return {
            number
            for replaced in replaced_by_slot.values()
            for number, old in replaced.items()
            if not any(is_named(old, names) for later, names in killed.items() if later > number)
        }

    def used_versions(self) -> tuple[UsedVersions, bool]:
        """The digests of all versions, and whether they are stored. A store of an earlier release does not have them."""
        stored = self._versions_in(_VERSIONS), self._versions_in(_RECENT_VERSIONS)
        if stored == (None, None):
            return UsedVersions().with_(
                processor for retained_set in self.retained() for processor in retained_set.processors
            ), False
        return UsedVersions(*stored), True

    def _versions_in(self, name: str) -> Versions | None:
        value = self._read(name)
        return None if value is None else self._decoded(name, value, versions_from_bytes, LOST)

    def write_used_versions(self, used: UsedVersions, stored: UsedVersions | None) -> None:
        """:param stored: the versions that are stored; None: none"""
        used.write(stored, partial(self._write, _VERSIONS), partial(self._write, _RECENT_VERSIONS))

    def _read_or_raise(self, name: str) -> bytes | None:
        """:raises StateError: the file exists and cannot be read"""
        try:
            return self._read(name)
        except OSError as error:
            raise StateError(f"{self.location}/{name} cannot be read", error.strerror or str(error)) from None

    def killed(self) -> KillList:
        """:raises StateError: the list cannot be read"""
        value = self._read_or_raise("killed.json")
        hint = "remove it, and kill the rules again: `asterism rules kill`"
        return {} if value is None else self._decoded("killed.json", value, kill_list.from_bytes, hint)

    def write_killed(self, killed: KillList) -> None:
        self._write("killed.json", kill_list.to_bytes(killed))

    def counts(self) -> RuleCounts:
        """The counts of processors; none if they cannot be read, because they can be counted again."""
        with suppress(OSError, pa.ArrowException, ValueError, KeyError, TypeError, RecursionError):
            value = self._read("counts.json")
            return RuleCounts() if value is None else RuleCounts.from_bytes(value)
        return RuleCounts()

    def write_counts(self, counts: RuleCounts) -> None:
        self._write("counts.json", counts.to_bytes())

    def history(self) -> History:
        return History(self)

    def history_numbers(self) -> list[int]:
        return self._numbered(_HISTORY, "jsonl")

    def read_history(self, number: int) -> bytes | None:
        return self._read(f"{_HISTORY}/{number}.jsonl")

    def write_history(self, number: int, value: bytes) -> None:
        self._write(f"{_HISTORY}/{number}.jsonl", value)

    def remove_history(self, number: int) -> None:
        self._remove(f"{_HISTORY}/{number}.jsonl")

    def read_status(self) -> Status:
        """The last status, with counts; it is ``stale`` if it has not been written for too long.

        :raises StateError: it cannot be read
        """
        value = self._read_or_raise("status.json")
        if value is None:
            return Status()
        hint = "a running query rewrites it within seconds"
        status = self._decoded("status.json", value, Status.from_bytes, hint)
        return status.seen_at(datetime.now(UTC)).with_counts(self.counts())

    def write_status(self, status: Status | bytes) -> None:
        """:param status: also as :meth:`Status.to_bytes` has written it"""
        self._write("status.json", status if isinstance(status, bytes) else status.to_bytes())


class SingleSetStore(FolderStore):
    """Replaces the folder in runs over a table: files in memory. The set and the lookups are sent to workers with the query."""

    def __init__(self) -> None:
        super().__init__("")
        self._contents: dict[str, bytes] = {}

    def __getstate__(self) -> dict[str, Any]:
        sent = {
            name: value for name, value in [*self._contents.items()] if name.startswith(("sets/", _LOOKUPS, "retained"))
        }
        return super().__getstate__() | {"_contents": sent}

    def local_folder(self) -> str | None:
        return None

    def _read(self, name: str) -> bytes | None:
        return self._contents.get(name)

    def _write(self, name: str, value: bytes) -> None:
        self._contents[name] = value

    def _remove(self, name: str) -> None:
        self._contents.pop(name, None)

    def _names_in(self, folder: str) -> list[str]:
        return [name.removeprefix(f"{folder}/") for name in [*self._contents] if name.startswith(f"{folder}/")]


def store_at(place: str) -> FolderStore:
    """:raises StateError: *place* is neither the checkpoint of a query nor the folder of its store"""
    expect_string(StateError, place, "a checkpoint must be a path", '"/data/checkpoint"')
    for location in (f"{place.rstrip('/')}/{STORE}", place):
        store = FolderStore(location)
        try:
            if store.exists():
                return store
        except (OSError, pa.ArrowException) as error:
            raise StateError(f"{location} cannot be read", str(error)) from None
    raise StateError(
        f"{place} is not the checkpoint of a query with pattern processors",
        f"It has no folder {STORE}, and is not such a folder itself.",
        "use the folder that is the query's checkpoint= or store=",
    )


def status_of(place: str) -> Status:
    """The status of a query's rules and their discovery, from any process. *place* is its checkpoint or its ``store``.

    :raises StateError: there is no such query, or its status cannot be read
    """
    return store_at(place).read_status()


def history_of(place: str) -> list[HistoryEntry]:
    """The history of the rules of a query, the oldest entry first. *place* is its checkpoint or its ``store``.

    :raises StateError: there is no such query
    """
    return list(store_at(place).history().entries())


def wait_for(place: str, versions: Mapping[str, int], *, timeout: timedelta = WAIT) -> Status:
    """Wait until a query uses these versions of rules, or later ones, and return its status. *place* is its checkpoint or its
    ``store``.

    A version is in force when a micro-batch has been planned that uses it. A version with a timestamp counts as soon as it
    waits for that time, and a shadow if it has exactly the version.

    :param versions: maps ids to versions
    :param timeout: how long to wait
    :raises PatternProcessorError: a version was refused or killed, is disabled or has expired
    :raises StateError: the query has ended, its status cannot be read, or the time is over
    """
    expect(StateError, versions, Mapping, "versions must map ids to versions", '{"burst": 2}')
    for id, version in versions.items():
        expect_string(StateError, id, "versions must map ids to versions", '{"burst": 2}')
        expect(StateError, version, int, f"the version of {id!r:.60} must be an integer", '{"burst": 2}')
    expect(StateError, timeout, timedelta, "the timeout must be a timedelta", "timedelta(minutes=1)")
    until = time.monotonic() + timeout.total_seconds()
    left = dict(versions)
    while True:
        try:
            status = status_of(place)
        except StateError:
            if time.monotonic() >= until:
                raise
            status = Status()  # it has not begun yet
        for state in status.rules:
            wanted = left.get(state.id)
            if wanted is None or state.version is None or state.version < wanted:
                continue
            if state.shadow and state.version > wanted:
                continue  # the version in force is meant
            if state.state in (state.active_state, WAITING):
                del left[state.id]
            elif state.state != PENDING:
                raise PatternProcessorError(f"{state.id} version {state.version} is {state.state}", state.reason)
        if not left:
            return status
        named = ", ".join(f"{id} version {version}" for id, version in left.items())
        if status.state in (OFF, STALE):
            raise StateError(f"the query does not run, and does not use {named}", status.error)
        if time.monotonic() >= until:
            raise StateError(
                f"{named} is not in force after {timeout}",
                None if status.error is None else f"The discovery is {status.state}: {status.error}",
            )
        time.sleep(_BETWEEN)
