"""The coordinator: takes what a discoverer found, refuses what cannot be used, numbers the sets, keeps them where all can read.

It runs on Spark's driver, beside the source that announces the sets (FLIP-200: the operator's coordinator). The store is a
folder: a set is written there before it is announced, so whoever acts on a number can read it, also after a failure.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pyarrow import fs

from asterism.bound_processors import ProcessorCompiler
from asterism.errors import AsterismError, PatternProcessorError, StateError
from asterism.processor_sets import ProcessorSet
from asterism.processors import (
    Discovered,
    PatternProcessor,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    duplicate,
    found_at,
)
from asterism.words import printable

KEPT_FILES = 100
"""Sets whose files stay, so that one can go back as many micro-batches at least: Spark keeps its own logs of that many."""
MAX_REASON = 2000
"""Characters of an error that are told."""
INITIALIZING, VALID, INTERRUPTED, OFF = "initializing", "valid", "interrupted", "off"
_log = logging.getLogger("asterism.processors")


class FolderStore:
    """Sets of processors in a folder: a path, or a URI that Arrow knows (``hdfs://``, ``s3://``, ``gs://``).

    ``sets/<number>.json`` are the sets; ``retained.json`` the numbers of those that may still be in force; ``replaced.json``
    which processors of older sets are, as key groups said last; ``status.json`` says how discovery is. One coordinator writes
    it: the last that has claimed it, which ``owner`` tells. ``replaced.json`` alone is written by the tasks.
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

    def _read(self, name: str) -> bytes | None:
        files = self._open()
        try:
            with files.open_input_file(f"{self._folder}/{name}") as file:
                found: bytes = file.readall()
        except FileNotFoundError:
            return None
        return found

    def _write(self, name: str, value: bytes) -> None:
        """A reader sees the old content or the new one, never a part."""
        files = self._open()
        path = f"{self._folder}/{name}"
        files.create_dir(path.rpartition("/")[0], recursive=True)
        with files.open_output_stream(path + ".new") as file:
            file.write(value)
        files.move(path + ".new", path)

    def claim(self, owner: str) -> None:
        self._write("owner", owner.encode())

    def belongs_to(self, owner: str) -> bool:
        return self._read("owner") == owner.encode()

    def numbers(self) -> list[int]:
        """The numbers of the retained sets, in order."""
        value = self._read("retained.json")
        return [] if value is None else sorted(json.loads(value))

    def get(self, number: int) -> ProcessorSet:
        if number not in self._cache:
            value = self._read(f"sets/{number}.json")
            if value is None:
                raise PatternProcessorError(
                    f"the set {number} of pattern processors is missing",
                    self.location,
                    "restore the folder beside the checkpoint",
                )
            self._cache[number] = ProcessorSet.from_bytes(value)
        return self._cache[number]

    def retained(self) -> list[ProcessorSet]:
        numbers = self.numbers()
        self._cache = {number: found for number, found in self._cache.items() if number in numbers}
        return [self.get(number) for number in numbers]

    def put(self, new: ProcessorSet) -> None:
        """Durably, before anybody is told of it."""
        numbers = self.numbers()
        self._write(f"sets/{new.version}.json", new.to_bytes())
        self._write("retained.json", json.dumps([*numbers, new.version]).encode())
        old = new.version - KEPT_FILES
        if old > 0 and old not in numbers:
            with suppress(FileNotFoundError):
                self._open().delete_file(f"{self._folder}/sets/{old}.json")

    def committed(self, number: int) -> None:
        """No micro-batch will announce a set up to this one any more: those before it go, unless they have processors that are
        in force until the time of their successor.
        """
        numbers = self.numbers()
        if len(numbers) < 2:
            return
        kept = [n for n in numbers if n >= number] or numbers[-1:]
        kept = sorted({*kept, *self._replaced_later(numbers)})
        if kept != numbers:
            self._write("retained.json", json.dumps(kept).encode())

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        with suppress(OSError):  # then more is retained than is needed
            self._write("replaced.json", json.dumps({"set": version, "processors": processors}).encode())

    def _replaced_later(self, numbers: Iterable[int]) -> set[int]:
        """The sets with a processor that a later one replaces at a time, unless key groups have said that it is not in force any
        more. (Those of an earlier micro-batch did not know the sets after it; those of a later one have not begun yet.)
        """
        said: dict[str, Any] = {"set": 0, "processors": []}
        with suppress(ValueError):
            said = json.loads(self._read("replaced.json") or json.dumps(said))
        in_force = set(map(tuple, said["processors"]))
        found: dict[str, set[int]] = {}
        last = 0
        before: dict[str, PatternProcessor] = {}
        for number in numbers:
            now = {processor.id: processor for processor in self.get(number).processors}
            for name, old in before.items():
                new = now.get(name)
                if new is None or (new.version != old.version and new.timestamp is None):
                    found.pop(name, None)
                elif new.version != old.version and (number > said["set"] or (name, old.version) in in_force):
                    found.setdefault(name, set()).add(last)
            last, before = number, now
        return set().union(*found.values())

    def read_status(self) -> Status:
        value = self._read("status.json")
        return Status() if value is None else Status(**json.loads(value))

    def write_status(self, status: Status) -> None:
        self._write("status.json", json.dumps(asdict(status)).encode())


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

    def write_status(self, status: Status) -> None:
        """Nobody will ask."""

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        """Nothing is ever removed."""


@dataclass(slots=True)
class Status:
    """How discovery is.

    :param state: initializing; valid: the last look succeeded; interrupted: it failed, the last set goes on; off: closed
    :param version: the number of the newest set
    :param processors: id to version of what is in it; a version with a timestamp may still wait for its time
    :param refused: id to reason and place, of what was found and cannot be used
    :param error: of the last look, if it failed
    :param since: when the state was entered (ISO 8601, UTC)
    """

    state: str = INITIALIZING
    version: int = 0
    processors: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    since: str = ""


class Coordinator(PatternProcessorManager):
    """The manager of FLIP-200: its set is what was discovered last, less what was refused."""

    def __init__(self, compiler: ProcessorCompiler, store: FolderStore) -> None:
        self.compiler, self.store = compiler, store
        self._lock = threading.RLock()
        self._name = uuid4().hex
        store.claim(self._name)
        self._discoverer: PatternProcessorDiscoverer | None = None
        retained = store.retained()
        self._set = retained[-1] if retained else ProcessorSet(0, ())
        self._checked: dict[PatternProcessor, AsterismError | None] = {}
        self.status = Status(
            version=self._set.version,
            processors={processor.id: processor.version for processor in self._set.processors},
        )

    @property
    def version(self) -> int:
        """The number of the newest set; it can be read from the store."""
        with self._lock:
            return self._set.version

    def current_pattern_processors(self) -> Sequence[PatternProcessor]:
        with self._lock:
            return self._set.processors

    def committed(self, number: int) -> None:
        """The micro-batch that announced this set, or a later one, has been committed."""
        with self._lock:
            self._check_owner()
            self.store.committed(number)

    def start(self, factory: PatternProcessorDiscovererFactory) -> None:
        """Get the first set, and watch for others.

        :raises PatternProcessorError: discovery fails, and there is no set from an earlier run to go on with
        """
        try:
            self._discoverer = factory.create_pattern_processor_discoverer()
            self.on_pattern_processors_updated(self._discoverer.initial_pattern_processors())
        except Exception as error:
            if not self.version:
                raise PatternProcessorError(
                    "no pattern processors could be discovered", f"{type(error).__name__}: {error}"
                ) from error
            self.on_discovery_failed(error)
        if self._discoverer is not None:
            threading.Thread(target=self._watch, name="pattern processors", daemon=True).start()

    def _watch(self) -> None:
        assert self._discoverer is not None
        try:
            self._discoverer.discover_pattern_processor_updates(self)
        except BaseException as error:  # it is over, also where a discoverer calls sys.exit
            self.on_discovery_failed(error)

    def close(self) -> None:
        if self._discoverer is not None:
            self._discoverer.close()
        self._enter(OFF)

    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        for item in pattern_processors:
            if not isinstance(item, PatternProcessor | RefusedProcessor):
                raise PatternProcessorError(
                    f"the discoverer has found {item!r:.60}", "It gives out PatternProcessor and RefusedProcessor."
                )
        with self._lock:
            before = {processor.id: processor for processor in self._set.processors}
            after, refused = self._accepted(pattern_processors, before)
            if not self._set.version or [p.id for p in after] != list(before) or any(before[p.id] != p for p in after):
                self._check_owner()
                new = ProcessorSet(self._set.version + 1, tuple(after))
                self.store.put(new)
                self._set = new
                _log_changes(new.version, before, {p.id: p for p in after})
            self.status.processors = {processor.id: processor.version for processor in after}
            self.status.refused = refused
        self._enter(VALID)

    def on_discovery_failed(self, error: BaseException) -> None:
        text = printable(f"{type(error).__name__}: {error}"[:MAX_REASON])
        if self.status.error != text:
            _log.warning("pattern processors: discovery failed, set %s goes on: %s", self.version, text)
        self._enter(INTERRUPTED, text)

    def _check_owner(self) -> None:
        if not self.store.belongs_to(self._name):
            raise StateError(
                "another query has begun to use the folder of pattern processors",
                self.store.location,
                "give every query a store of its own: by default it is in the checkpoint",
            )

    def _enter(self, state: str, error: str | None = None) -> None:
        with self._lock:
            status = self.status
            if status.state == OFF or not self.store.belongs_to(self._name):
                return  # the thread that watches may end later, and a query be started again before it has
            if (status.state, status.error) != (state, error):
                status.since = datetime.now(UTC).isoformat(timespec="seconds")
            status.state, status.error, status.version = state, error, self._set.version
            self.store.write_status(status)

    def _accepted(
        self, found: Sequence[Discovered], before: Mapping[str, PatternProcessor]
    ) -> tuple[list[PatternProcessor], dict[str, str]]:
        """The processors of the next set, and for each id that was refused the reason."""
        after: dict[str, PatternProcessor] = {}
        refused: dict[str, str] = {}
        # Without what a class of the user's own adds: that would not come back from the store.
        found = [found_at(item, item.place) if isinstance(item, PatternProcessor) else item for item in found]
        for item in found:
            if isinstance(item, PatternProcessor) and item.id in after:
                item = duplicate(item, after[item.id].place)
            error = item.error if isinstance(item, RefusedProcessor) else self._check(item, before.get(item.id))
            if error is None:
                assert isinstance(item, PatternProcessor)
                after[item.id] = item
                continue
            refused[item.id] = str(error) if item.place is None else f"{error}\n  In: {item.place}"
            if self.status.refused.get(item.id) != refused[item.id]:
                _log.warning("refused: %s", RefusedProcessor(item.id, error, item.version, item.place))
            if item.id in before:  # the last good version stays
                after.setdefault(item.id, before[item.id])
        self._checked = {item: self._checked[item] for item in found if item in self._checked}
        if any(isinstance(item, RefusedProcessor) and item.unidentified for item in found):
            after = {**before, **after}  # it may have been any of those that are missing
        return list(after.values()), refused

    def _check(self, new: PatternProcessor, old: PatternProcessor | None) -> AsterismError | None:
        if old is not None and new.version == old.version and new != old:
            return PatternProcessorError(
                f"its definition has changed, and its version has not ({new.version})",
                hint="raise the version; the partial matches of the old one are dropped then",
            )
        if new == old and (new.function is None or new.function in self.compiler.functions):
            return None  # it was good when it was taken, perhaps by an earlier run
        if new not in self._checked:
            try:
                new.to_dict()  # first, for it tells what of a pattern made in Python is no data
                self.compiler.try_out(new)
                self._checked[new] = None
            except AsterismError as error:
                self._checked[new] = error
            except Exception as error:  # whatever a rule from outside brings about, it is alone in it
                self._checked[new] = PatternProcessorError("it cannot be used", f"{type(error).__name__}: {error}")
        return self._checked[new]


def _log_changes(version: int, before: Mapping[str, PatternProcessor], after: Mapping[str, PatternProcessor]) -> None:
    for name in [*after, *(name for name in before if name not in after)]:
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and old.version == new.version:
            continue
        what = "removed" if new is None else "added" if old is None else "replaced"
        _log.info(
            "pattern processors %s: %s %s, version %s -> %s, accepted",
            version,
            name,
            what,
            "-" if old is None else old.version,
            "-" if new is None else new.version,
        )
