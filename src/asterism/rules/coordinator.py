"""The coordinator: takes what a discoverer found, refuses what cannot be used, numbers the sets, keeps them where all can read.

It runs on Spark's driver, beside the source that announces the sets (FLIP-200: the operator's coordinator). The store is a
folder: a set is written there before it is announced, so whoever acts on a number can read it, also after a failure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from uuid import uuid4

from asterism.arguments import described
from asterism.errors import AsterismError, PatternProcessorError, StateError, printable
from asterism.rules.binding import ProcessorCompiler
from asterism.rules.discovery_status import HEARTBEAT, INTERRUPTED, MAX_LOG, OFF, VALID, Status, now_text
from asterism.rules.durable_files import NotWrittenError
from asterism.rules.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    duplicate,
)
from asterism.rules.kill_list import WITHOUT, KillList, is_named, names_of
from asterism.rules.processor import PatternProcessor, found_at
from asterism.rules.set_store import FolderStore
from asterism.rules.sets import ProcessorSet, stored

MAX_REASON = 2000
"""Characters of an error that are told."""
LOOK_AT_KILLED = 2.0
"""Seconds between two looks at the list of killed processors, and at what could not be written."""
RESTART, MAX_RESTART = 1.0, 60.0
"""Seconds until a discoverer that has failed is made anew: at first, and at most."""
MAX_LOOK = 120.0
"""Seconds after which a look that has not returned is told of. Their own timeouts, of at most a minute, come before."""
_log = logging.getLogger("asterism.rules.processor")


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
        self._published_with: KillList | None = None
        """The list by which this run has looked what the newest set must say is killed."""
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
            target=self._begin, args=[looked, taken], name="pattern processors", daemon=True
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

    def _first_look(self) -> Sequence[Discovered]:
        """Of a new discoverer."""
        self._discoverer = self._factory.create_pattern_processor_discoverer()
        return self._discoverer.initial_pattern_processors()

    def _begin(self, looked: threading.Event, taken: Future[None]) -> None:
        """The first look, and then all others. *looked* is set when the look has returned."""
        try:
            try:
                found = self._first_look()
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
        self._watch()

    def keep_watching(self) -> None:
        """Replace the thread that looks for updates, if it is dead: whatever it died of, updates are not to stay away."""
        with self._lock, self._tried("look for updates", Exception):
            dead = self._watcher is not None and not self._watcher.is_alive()
            if self._ended or self._closed.is_set() or (self._watcher is not None and not dead):
                return
            if dead:
                self.on_discovery_failed(RuntimeError("the thread that looks for updates has died"))
            self._watcher = threading.Thread(target=self._watch, name="pattern processors", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """One discoverer after another: one that raises has failed, one that returns has ended."""
        wait = RESTART
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                if self._discoverer is None:
                    self.on_look_begun()
                    self.on_pattern_processors_updated(self._first_look())
                if not self._closed.is_set():
                    assert self._discoverer is not None
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
                if killed != self._published_with:
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
        self._killed = self._published_with = killed
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
