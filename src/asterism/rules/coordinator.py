"""The coordinator: takes what a discoverer found, refuses what cannot be used, numbers the sets, keeps them where all can read.

It runs on Spark's driver, beside the source that announces the sets (FLIP-200: the operator's coordinator). The store is a
folder: a set is written there before it is announced, so whoever acts on a number can read it, also after a failure.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from asterism.arguments import described
from asterism.errors import AsterismError, PatternProcessorError, StateError, printable
from asterism.rules import kill_list
from asterism.rules.binding import ProcessorCompiler
from asterism.rules.discovery_status import HEARTBEAT, INTERRUPTED, MAX_LOG, OFF, VALID, Status, now_text
from asterism.rules.durable_files import NotWrittenError, make_folder, replace_file
from asterism.rules.kill_list import WITHOUT, KillList, is_named, names_of
from asterism.rules.processor import (
    Discovered,
    PatternProcessor,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    duplicate,
    found_at,
)
from asterism.rules.sets import ProcessorSet, digest_of, stored
from asterism.rules.used_versions import UsedVersions

KEPT_FILES = 100
"""Sets whose files stay, so that one can go back as many micro-batches at least: Spark keeps its own logs of that many."""
MAX_REASON = 2000
"""Characters of an error that are told."""
STORE = "pattern_processors"
"""The store's folder in the checkpoint."""
LOOK_AT_KILLED = 2.0
"""Seconds between two looks at the list of killed processors, and at what could not be written."""
RESTART, MAX_RESTART = 1.0, 60.0
"""Seconds until a discoverer that has failed is made anew: at first, and at most."""
MAX_LOOK = 120.0
"""Seconds after which a look that has not returned is told of. Their own timeouts, of at most a minute, come before."""
_OWNER = re.compile(rb"[0-9a-f]{32}")
_RESTORE = "restore the folder as it was beside the checkpoint"
_T = TypeVar("_T")
_log = logging.getLogger("asterism.rules.processor")


class FolderStore:
    """Sets of processors in a folder: a path, or a URI that Arrow knows (``hdfs://``, ``s3://``, ``gs://``).

    ``sets/<number>.json`` are the sets; ``retained.json`` the numbers of those that may still be in force; ``replaced.json``
    which processors of older sets are, as key groups said last; ``versions.json`` what each version was; ``killed.json`` what a
    person has taken out; ``status.json`` how discovery is. One coordinator writes them: the last that has claimed the folder,
    which ``owner`` tells. ``replaced.json`` is written by the tasks, and ``killed.json`` by people.

    A file is replaced whole. On a local path it is there after a power failure, too; elsewhere that is up to the file system.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._files: fs.FileSystem | None = None
        self._folder = ""
        self._cache: dict[int, ProcessorSet] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "_files": None, "_folder": "", "_cache": {}}

    def _open(self) -> fs.FileSystem:
        if self._files is None:
            if "://" in self.location or self.location.startswith("file:"):
                self._files, self._folder = fs.FileSystem.from_uri(self.location)
            else:
                self._files, self._folder = fs.LocalFileSystem(), self.location
        return self._files

    def local_folder(self) -> str | None:
        """The folder, if it is on this machine's own file system."""
        return self._folder if isinstance(self._open(), fs.LocalFileSystem) else None

    def _read(self, name: str) -> bytes | None:
        files = self._open()
        try:
            if isinstance(files, fs.LocalFileSystem):
                with Path(f"{self._folder}/{name}").open("rb") as local:
                    return local.read()
            with files.open_input_file(f"{self._folder}/{name}") as file:
                found: bytes = file.readall()
        except FileNotFoundError:
            return None
        return found

    def _write(self, name: str, value: bytes) -> None:
        """A reader sees the old content or the new one, never a part."""
        files = self._open()
        path = f"{self._folder}/{name}"
        folder = path.rpartition("/")[0]
        if isinstance(files, fs.LocalFileSystem):
            make_folder(Path(folder))
            replace_file(Path(path), value)
            return
        files.create_dir(folder, recursive=True)
        with files.open_output_stream(path + ".new") as file:
            file.write(value)
        files.move(path + ".new", path)

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
        found = self._read("owner")
        if found is None or not _OWNER.fullmatch(found):
            self.claim(owner)  # it was lost
            return True
        return found == owner.encode()

    def numbers(self) -> list[int]:
        """The numbers of the retained sets, in order. If that list is lost, all sets that are there: too many do no harm."""
        value = self._read("retained.json")
        if value is not None:
            with suppress(ValueError, RecursionError):
                found = json.loads(value)
                if isinstance(found, list) and all(type(number) is int and number > 0 for number in found):
                    return sorted(found)
        return self._numbers_of_sets()

    def _numbers_of_sets(self) -> list[int]:
        files = self._open()
        found = files.get_file_info(fs.FileSelector(f"{self._folder}/sets", allow_not_found=True))
        names = [re.fullmatch(r"([1-9][0-9]{0,17})\.json", one.base_name) for one in found]
        return sorted(int(name[1]) for name in names if name)

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
                "restore the folder beside the checkpoint",
            )
        return value

    def digest(self, number: int) -> bytes:
        """By which :meth:`stored` knows a set again.

        :raises StateError: it cannot be read
        """
        value = self._stored(number)
        self._decoded(f"sets/{number}.json", value, ProcessorSet.from_bytes, _RESTORE)
        return digest_of(value)

    def stored(self, number: int, digest: bytes) -> bytes:
        """A set as it was written, unread: whoever told its *digest* has read it.

        :raises StateError: it is another one
        """
        value = self._stored(number)
        if digest_of(value) != digest:
            raise StateError(f"{self.location}/sets/{number}.json is not the set that was announced", hint=_RESTORE)
        return value

    def retained(self) -> list[ProcessorSet]:
        numbers = self.numbers()
        self._cache = {number: found for number, found in self._cache.items() if number in numbers}
        return [self.get(number) for number in numbers]

    def put(self, new: ProcessorSet) -> None:
        """Durably, before anybody is told of it."""
        numbers = self.numbers()
        self._cache.pop(new.version, None)  # of an attempt that failed
        self._write(f"sets/{new.version}.json", new.to_bytes())
        self._write("retained.json", json.dumps(sorted({*numbers, new.version})).encode())
        old = new.version - KEPT_FILES
        if old > 0 and old not in numbers:
            with suppress(OSError):
                self._open().delete_file(f"{self._folder}/sets/{old}.json")

    def committed(self, number: int) -> None:
        """No micro-batch will announce a set up to this one any more: those before it go, unless they have processors that are
        in force until the time of their successor.
        """
        numbers = self.numbers()
        if len(numbers) < 2:
            return
        kept = [n for n in numbers if n >= number] or numbers[-1:]
        kept = sorted({*kept, *self._replaced_later(numbers, number)})
        if kept != numbers:
            self._write("retained.json", json.dumps(kept).encode())

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        with suppress(OSError, NotWrittenError):  # then more is retained than is needed
            self._write("replaced.json", json.dumps({"set": version, "processors": processors}).encode())

    def _replaced_later(self, numbers: Sequence[int], committed: int) -> set[int]:
        """The sets with a processor that a later one replaces at a time, unless key groups have said that it is not in force any
        more, or a set up to *committed* has killed it. (Key groups of an earlier micro-batch did not know the sets after it;
        those of a later one have not begun yet.)
        """
        said, in_force = 0, set[tuple[str, int]]()
        value = self._read("replaced.json")
        if value is not None:
            with suppress(ValueError, KeyError, TypeError, RecursionError):  # what cannot be read says nothing
                told = json.loads(value)
                said, in_force = int(told["set"]), {(str(id), int(version)) for id, version in told["processors"]}
        found: dict[str, dict[int, PatternProcessor]] = {}
        last = 0
        before: dict[str, PatternProcessor] = {}
        for number in numbers:
            now = {processor.id: processor for processor in self.get(number).processors}
            for name, old in before.items():
                new = now.get(name)
                if new is None or (new.version != old.version and new.timestamp is None):
                    found.pop(name, None)
                elif new.version != old.version and (number > said or (name, old.version) in in_force):
                    found.setdefault(name, {})[last] = old
            last, before = number, now
        killed = {number: self.get(number).killed for number in numbers if number <= committed}
        return {
            number
            for replaced in found.values()
            for number, old in replaced.items()
            if not any(is_named(old, names) for later, names in killed.items() if later > number)
        }

    def used_versions(self) -> tuple[UsedVersions, bool]:
        """What each version was, and whether the store knows it: one that an earlier release has made does not."""
        value = self._read("versions.json")
        if value is None:
            return UsedVersions().with_(one for found in self.retained() for one in found.processors), False
        hint = "restore it, or remove it: then versions that are not in use any more may come again with another definition"
        return self._decoded("versions.json", value, UsedVersions.from_bytes, hint), True

    def write_used_versions(self, used: UsedVersions) -> None:
        self._write("versions.json", used.to_bytes())

    def _read_or_tell(self, name: str) -> bytes | None:
        """:raises StateError: it is there, and cannot be read"""
        try:
            return self._read(name)
        except OSError as error:
            raise StateError(f"{self.location}/{name} cannot be read", error.strerror or str(error)) from None

    def killed(self) -> KillList:
        """What a person has taken out.

        :raises StateError: the list cannot be read
        """
        value = self._read_or_tell("killed.json")
        hint = "remove it, and kill again what must stay out: `asterism rules kill`"
        return {} if value is None else self._decoded("killed.json", value, kill_list.from_bytes, hint)

    def write_killed(self, killed: KillList) -> None:
        self._write("killed.json", kill_list.to_bytes(killed))

    def read_status(self) -> Status:
        """How discovery is, as it was told last; ``stale`` if whoever tells it is silent for too long.

        :raises StateError: it cannot be read
        """
        value = self._read_or_tell("status.json")
        if value is None:
            return Status()
        hint = "a query that runs writes it anew within seconds"
        return self._decoded("status.json", value, Status.from_bytes, hint).seen_at(datetime.now(UTC))

    def write_status(self, status: Status) -> None:
        self._write("status.json", status.to_bytes())


class OneSet(FolderStore):
    """In place of a folder where a run sees one set, which travels to the workers with it: over a table."""

    def __init__(self) -> None:
        super().__init__("")
        self._value: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cache": {}}

    def claim(self, owner: str) -> None:
        """Nobody else has it."""

    def belongs_to(self, owner: str) -> bool:
        return True

    def put(self, new: ProcessorSet) -> None:
        self._value, self._cache = new.to_bytes(), {}

    def retained(self) -> list[ProcessorSet]:
        if self._value is not None and not self._cache:
            found = ProcessorSet.from_bytes(self._value)
            self._cache[found.version] = found
        return list(self._cache.values())

    def used_versions(self) -> tuple[UsedVersions, bool]:
        return UsedVersions(), True

    def write_used_versions(self, used: UsedVersions) -> None:
        """It is the only set."""

    def killed(self) -> KillList:
        return {}

    def write_status(self, status: Status) -> None:
        """Nobody will ask."""

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        """Nothing is ever removed."""


class Coordinator(PatternProcessorManager):
    """The manager of FLIP-200: its set is what was discovered last, less what was refused.

    :param without: names of processors (``id`` or ``id@version``) that this run leaves out: they are not looked at
    """

    def __init__(self, compiler: ProcessorCompiler, store: FolderStore, without: Iterable[str] = ()) -> None:
        self.compiler, self.store = compiler, store
        self._without = dict.fromkeys(without, WITHOUT)
        self._lock = threading.RLock()
        """For what is told and changed at once; nobody has it for long."""
        self._updating = threading.Lock()
        """For one update after the other, which may take long; taken before the other lock."""
        self._name = uuid4().hex
        store.claim(self._name)
        self._closed = threading.Event()
        self._discoverer: PatternProcessorDiscoverer | None = None
        self._watcher: threading.Thread | None = None
        self._ended = False
        """Has the discoverer said that nothing more will come?"""
        self._look: float | None = None
        """When the look that is under way began, by the monotonic clock; None also after it was told as too long."""
        retained = store.retained()
        self._set = retained[-1] if retained else ProcessorSet(0, ())
        self._used, self._knows_used = store.used_versions()
        self._killed = store.killed()
        self._discovered: Sequence[Discovered] | None = None
        """What was found last,"""
        self._taken_with = self._killed
        """and what was killed when a set was made of it."""
        self._checked: dict[str, AsterismError | None] = {}
        """By their texts, what is wrong with the processors that were found last."""
        self._lines: deque[str] = deque(maxlen=MAX_LOG)
        self._problems: set[str] = set()
        """What cannot be done now, and has been told."""
        self._written = 0.0
        self.status = Status(
            version=self._set.version,
            processors={processor.id: processor.version for processor in self._set.processors},
            killed=self._reasons(),
            since=now_text(),
            heartbeat=HEARTBEAT,
        )
        # The first look may never return, or kill this process: what is there is of an earlier run.
        self._write_status()

    @property
    def version(self) -> int:
        """The number of the newest set; it can be read from the store."""
        with self._lock:
            return self._set.version

    def current_pattern_processors(self) -> Sequence[PatternProcessor]:
        with self._lock:
            return self._set.processors

    def committed(self, number: int) -> None:
        """The micro-batch that announced this set, or a later one, has been committed.

        What is not needed any more and cannot be removed now is removed after another micro-batch.
        """
        with self._lock, self._tried("remove sets that are not needed any more"):
            self._check_owner()
            self.store.committed(number)

    # ------------------------------------------------------------------ discovery

    def start(self, factory: PatternProcessorDiscovererFactory) -> None:
        """Get the first set, and watch for others.

        :raises PatternProcessorError: discovery fails, or does not answer, and there is no set from an earlier run to go on with
        """
        self._factory = factory
        looked, taken = threading.Event(), Future[None]()
        self.on_look_begun()
        self._watcher = threading.Thread(
            target=self._begin, args=[factory, looked, taken], name="pattern processors", daemon=True
        )
        self._watcher.start()
        threading.Thread(target=self._tend, name="status of pattern processors", daemon=True).start()
        # What is looked at may never answer. To take what was found may last as long as it needs.
        error = taken.exception() if looked.wait(MAX_LOOK) else _too_long()
        if error is not None:
            if not self.version:
                failure = PatternProcessorError("no pattern processors could be discovered", described(error))
                self._enter(OFF, str(failure))
                self.close()
                raise failure from error
            self._watch_look()
            self._look_at_killed()

    def _begin(self, factory: PatternProcessorDiscovererFactory, looked: threading.Event, taken: Future[None]) -> None:
        """The first look, and then all others. *looked* is set when the look has returned."""
        try:
            try:
                self._discoverer = factory.create_pattern_processor_discoverer()
                found = self._discoverer.initial_pattern_processors()
            finally:
                looked.set()
            if not self._closed.is_set():  # else nobody waits for it any more
                self.on_pattern_processors_updated(found)
        except BaseException as error:  # also where a discoverer calls sys.exit
            try:
                if not self.version:
                    self._closed.set()  # the query does not begin, so nobody is to look again
                    return
                self.on_discovery_failed(error)
            finally:
                taken.set_exception(error)
        else:
            taken.set_result(None)
        self._watch(factory)

    def keep_watching(self) -> None:
        """Replace the thread that looks for updates, if it is dead: whatever it died of, updates are not to stay away."""
        with self._lock, self._tried("look for updates", Exception):
            dead = self._watcher is not None and not self._watcher.is_alive()
            if self._ended or self._closed.is_set() or (self._watcher is not None and not dead):
                return
            if dead:
                self.on_discovery_failed(RuntimeError("the thread that looks for updates has died"))
            self._watcher = threading.Thread(
                target=self._watch, args=[self._factory], name="pattern processors", daemon=True
            )
            self._watcher.start()

    def _watch(self, factory: PatternProcessorDiscovererFactory) -> None:
        """One discoverer after another: one that raises has failed, one that returns has ended."""
        wait = RESTART
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                if self._discoverer is None:
                    self.on_look_begun()
                    self._discoverer = factory.create_pattern_processor_discoverer()
                    self.on_pattern_processors_updated(self._discoverer.initial_pattern_processors())
                if not self._closed.is_set():
                    self._discoverer.discover_pattern_processor_updates(self)
                self._ended = True
                return
            except BaseException as error:  # also where a discoverer calls sys.exit
                if self._closed.is_set():
                    return
                self.on_discovery_failed(error)
                failed, self._discoverer = self._discoverer, None
                with suppress(BaseException):
                    if failed is not None:
                        failed.close()
            if time.monotonic() - began > MAX_RESTART:
                wait = RESTART
            self._closed.wait(wait)
            wait = min(2 * wait, MAX_RESTART)

    def _tend(self) -> None:
        """What is to be done from time to time, whatever the discoverer does."""
        while not self._closed.wait(min(LOOK_AT_KILLED, HEARTBEAT)):
            self.keep_watching()
            self._watch_look()
            self._look_at_killed()
            with self._lock:
                if self._problems or time.monotonic() - self._written >= HEARTBEAT:
                    self._write_status()

    def close(self) -> None:
        self._closed.set()
        with suppress(Exception):
            if self._discoverer is not None:
                self._discoverer.close()
        self._enter(OFF)

    def on_look_begun(self) -> None:
        self._look = time.monotonic()

    def _watch_look(self) -> None:
        """Discovery is interrupted where the look that is under way lasts too long. It goes on, in its thread."""
        with self._lock:
            if self.version and self._look is not None and time.monotonic() - self._look >= MAX_LOOK:
                self.on_discovery_failed(_too_long())  # which forgets the look: it is told once

    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        self._look = None
        for item in pattern_processors:
            if not isinstance(item, PatternProcessor | RefusedProcessor):
                raise PatternProcessorError(
                    f"the discoverer has found {item!r:.60}", "It gives out PatternProcessor and RefusedProcessor."
                )
        with self._updating:
            self._take([_as_data(one) for one in pattern_processors])
        self._enter(VALID, looked=True, write=True)

    def on_nothing_changed(self) -> None:
        self._look = None
        self._enter(VALID, looked=True)

    def on_discovery_failed(self, error: BaseException) -> None:
        """It raises nothing: whoever calls it has an error already."""
        self._look = None
        text = printable(described(error)[:MAX_REASON])
        if self.status.error != text:
            self._tell(logging.WARNING, f"pattern processors: discovery failed, set {self.version} goes on: {text}")
        self._enter(INTERRUPTED, text)

    def _look_at_killed(self) -> None:
        with self._tried("take out what was killed", Exception):
            with self._lock:
                killed = self.store.killed()
                if not self._set.version:  # the first set will be made without it
                    self._killed = killed
                    return
                if killed != self._killed or self._named_by(killed, self._set.processors) != self._set.killed:
                    self._publish(self._set.processors, None, killed)
                    self._write_status()
            # What may come in again; an update that is under way sees to it itself.
            if self._taken_with != killed and self._updating.acquire(blocking=False):
                try:
                    if self._discovered is not None:
                        self._take(self._discovered)
                finally:
                    self._updating.release()
                with self._lock:
                    self._write_status()

    def _take(self, found: Sequence[Discovered]) -> None:
        """Make a set of what was found, and of what was killed. The caller holds *_updating*.

        To try out thousands of rules takes minutes, in which others ask for the newest set, or kill one of its processors.
        """
        while True:
            with self._lock:
                known, killed = self._set, self._killed
            before = {processor.id: processor for processor in known.processors}
            after, refused = self._accepted(found, before, {*self._without, *killed})
            with self._lock:
                if self._set is known and self._killed is killed:
                    self._publish(after, refused, killed)
                    self._discovered, self._taken_with = found, killed
                    return

    def _publish(
        self, after: Sequence[PatternProcessor], refused: Sequence[RefusedProcessor] | None, killed: KillList
    ) -> None:
        """Make a set, if it is another one. *refused* is None where nothing was looked at."""
        before = {processor.id: processor for processor in self._set.processors}
        reasons = self.status.refused
        if refused is not None:
            reasons = {one.id: str(one.error) + (f"\n  In: {one.place}" if one.place else "") for one in refused}
            for one in refused:
                if self.status.refused.get(one.id) != reasons[one.id]:
                    self._tell(logging.WARNING, f"refused: {one}")
        out = self._named_by(killed, after)
        changed = [p.id for p in after] != list(before) or not all(_are_equal(before[p.id], p) for p in after)
        if not self._set.version or changed or out != self._set.killed:
            self._check_owner()
            new = ProcessorSet(self._set.version + 1, tuple(map(stored, after)), out)
            used = self._used.with_(after)
            if used is not self._used or not self._knows_used:
                self.store.write_used_versions(used)
                self._knows_used = True
            self.store.put(new)
            for name in sorted({*out} ^ {*self._set.killed}):
                what = f"killed: {killed[name].reason}" if name in killed else "not killed any more"
                self._tell(logging.INFO, printable(f"pattern processors {new.version}: {name} {what}"))
            self._set, self._used = new, used
            for line in _changes(new.version, before, {p.id: p for p in after}):
                self._tell(logging.INFO, line)
        self._killed = killed
        self.status.processors = {processor.id: processor.version for processor in after}
        self.status.refused, self.status.killed = reasons, self._reasons()

    def _reasons(self) -> dict[str, str]:
        return {name: one.reason for name, one in self._killed.items()} | self._without

    def _named_by(self, killed: KillList, processors: Iterable[PatternProcessor]) -> tuple[str, ...]:
        """The names on the list that mean one of *processors*, or one of an older set: that may be in force until the time of its
        successor. A name that the newest set has stays, so that it is not told as let in again when that time has come.
        """
        if not killed:
            return ()
        known = [*processors, *(one for found in self.store.retained() for one in found.processors)]
        names = {name for one in known for name in names_of(one)}
        return tuple(sorted((names | {*self._set.killed}) & killed.keys()))

    def _check_owner(self) -> None:
        if not self.store.belongs_to(self._name):
            raise StateError(
                "another query has begun to use the folder of pattern processors",
                self.store.location,
                "give every query a store of its own: by default it is in the checkpoint",
            )

    # ------------------------------------------------------------------ status

    def _tell(self, level: int, line: str) -> None:
        _log.log(level, "%s", line)
        self._lines.append(f"{now_text()} {logging.getLevelName(level)} {line[:MAX_REASON]}")

    @contextmanager
    def _tried(self, what: str, *more: type[Exception]) -> Iterator[None]:
        """Something that is tried again: that the store fails, or what is said besides, is told once."""
        failures: tuple[type[Exception], ...] = (OSError, NotWrittenError, *more)
        try:
            yield
        except failures as error:
            if what not in self._problems:
                self._tell(logging.WARNING, printable(f"pattern processors: cannot {what} now: {error}"[:MAX_REASON]))
            self._problems.add(what)
        else:
            self._problems.discard(what)

    def _enter(self, state: str, error: str | None = None, *, looked: bool = False, write: bool = False) -> None:
        with self._lock:
            status = self.status
            if status.state == OFF:
                return  # the thread that watches may end later, and a query be started again before it has
            changed = (status.state, status.error) != (state, error)
            if changed:
                status.since = now_text()
            if looked:
                status.looked = now_text()
            status.state, status.error = state, error
            if changed or write:
                self._write_status()

    def _write_status(self) -> None:
        """What cannot be written now is written later."""
        with self._tried("write the status", Exception):
            status = self.status
            status.version, status.log, status.alive = self._set.version, list(self._lines), now_text()
            self._written = time.monotonic()
            if self.store.belongs_to(self._name):
                self.store.write_status(status)

    # ------------------------------------------------------------------ what is accepted

    def _accepted(
        self, found: Sequence[Discovered], before: Mapping[str, PatternProcessor], left_out: set[str]
    ) -> tuple[list[PatternProcessor], list[RefusedProcessor]]:
        """The processors of the next set, and what was refused; of an id the last."""
        after: dict[str, PatternProcessor] = {}
        refused: dict[str, RefusedProcessor] = {}
        for item in found:
            if isinstance(item, PatternProcessor) and item.id in after:
                item = duplicate(item, after[item.id].place)
            if isinstance(item, PatternProcessor) and is_named(item, left_out):
                # It stays in the set, killed; a version that came since is looked at when it may come in.
                if item.id in before:
                    after[item.id] = before[item.id]
                continue
            error = item.error if isinstance(item, RefusedProcessor) else self._check(item, before.get(item.id))
            if error is None:
                assert isinstance(item, PatternProcessor)
                after[item.id] = item
                continue
            refused[item.id] = RefusedProcessor(item.id, error, item.version, item.place)
            if item.id in before:  # the last good version stays
                after.setdefault(item.id, before[item.id])
        texts = {item.text for item in found if isinstance(item, PatternProcessor)}
        self._checked = {text: error for text, error in self._checked.items() if text in texts}
        if any(isinstance(item, RefusedProcessor) and item.unidentified for item in found):
            after = {**before, **after}  # it may have been any of those that are missing
        return list(after.values()), list(refused.values())

    def _check(self, new: PatternProcessor, old: PatternProcessor | None) -> AsterismError | None:
        same = old is not None and _are_equal(old, new)
        if old is not None and new.version == old.version and not same:
            return PatternProcessorError(
                f"its definition has changed, and its version has not ({new.version})",
                hint="raise the version; the partial matches of the old one are dropped then",
            )
        if same and (new.function is None or new.function in self.compiler.functions):
            return None  # it was good when it was taken, perhaps by an earlier run
        if new.text not in self._checked:
            try:
                self.compiler.try_out(new)
                self._checked[new.text] = None
            except Exception as error:
                self._checked[new.text] = _told(error)
        return self._checked[new.text] or self._used.check(new)


def _are_equal(one: PatternProcessor, other: PatternProcessor) -> bool:
    # An earlier release may have written another text.
    return one.text == other.text or one == other


def _as_data(one: Discovered) -> Discovered:
    """What comes back from the store: without what a class of the user's own adds, and with conditions that are text."""
    if isinstance(one, RefusedProcessor):
        return one
    try:
        return found_at(one, one.place).as_data()
    except Exception as error:
        return RefusedProcessor(one.id, _told(error), one.version, one.place)


def _told(error: Exception) -> AsterismError:
    """Whatever a rule from outside brings about, it is alone in it."""
    if isinstance(error, AsterismError):
        return error
    return PatternProcessorError("it cannot be used", described(error))


def _too_long() -> TimeoutError:
    return TimeoutError(f"a look has not returned for more than {MAX_LOOK:g} seconds")


def _changes(
    version: int, before: Mapping[str, PatternProcessor], after: Mapping[str, PatternProcessor]
) -> Iterator[str]:
    """A line for each."""
    for name in [*after, *(name for name in before if name not in after)]:
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and old.version == new.version:
            continue
        what = "removed" if new is None else "added" if old is None else "replaced"
        versions = " -> ".join("-" if one is None else str(one.version) for one in (old, new))
        yield f"pattern processors {version}: {name} {what}, version {versions}, accepted"


def store_at(place: str) -> FolderStore:
    """The store of a query, by its checkpoint or by the store's own folder.

    :raises StateError: there is none
    """
    for location in (f"{place.rstrip('/')}/{STORE}", place):
        store = FolderStore(location)
        try:
            if store.exists():
                return store
        except (OSError, pa.ArrowException) as error:
            raise StateError(f"{location} cannot be read", str(error)) from None
    raise StateError(
        f"{place} is no checkpoint of a query with pattern processors",
        f"It has no folder {STORE}, and is none itself.",
        "give the folder that is the query's checkpoint=, or its store=",
    )


def status_of(place: str) -> Status:
    """How the discovery of a query is, from any process: *place* is its checkpoint, or its ``store``.

    :raises StateError: there is no such query, or its status cannot be read
    """
    return store_at(place).read_status()
