"""The coordinator validates discovered rules, refuses invalid ones, numbers the sets and stores them.

It runs on Spark's driver, together with the source that announces the sets (FLIP-200: the operator's coordinator). The store
is a folder. A set is written there before it is announced, so that every reader of its number can read the set, even after a
failure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from asterism.arguments import described
from asterism.columns.time import BEFORE_TIME, to_datetime
from asterism.errors import AsterismError, PatternProcessorError, StateError, printable
from asterism.expressions.routines.user_functions import UserFunctions
from asterism.files.durable_files import NotWrittenError
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor, with_place
from asterism.rules.matching.lookup_changes import check_lookups
from asterism.rules.publishing.acceptance import ProcessorChecks, accept, as_error
from asterism.rules.publishing.lookup_watch import DefinedLookup, LookupWatch, stored_lookups
from asterism.rules.sets.discovery_status import (
    DISABLED,
    EXPIRED,
    HEARTBEAT,
    INTERRUPTED,
    KILLED,
    MAX_LOG,
    OFF,
    PENDING,
    REFUSED,
    VALID,
    WAITING,
    RuleState,
    Status,
    now_text,
)
from asterism.rules.sets.history import ADMITTED, LOOKED_UP, MAX_TEXT, HistoryEntry, changes
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    refusal,
)
from asterism.rules.sets.kill_list import WITHOUT, KillList, names_of
from asterism.rules.sets.set_store import FolderStore
from asterism.rules.sets.sets import Entries, Entry, ProcessorSet, next_versions, not_superseded, stored
from asterism.text.printable import one_line

MAX_REASON = 2000
"""Maximum number of characters of a reported error."""
LOOKUP_TICK = 0.5
"""Seconds between two checks whether the table of a lookup is due."""
KILL_LIST_INTERVAL = 2.0
"""Seconds between two reads of the kill list, and between two attempts to write what could not be written."""
RESTART, MAX_RESTART = 1.0, 60.0
"""Seconds until a failed discoverer is replaced: the first delay and the longest."""
MAX_NAMED = 10
"""Refused rules that an error names."""
MAX_UNWRITTEN = 10_000
"""Entries of the history that wait because the store cannot be written; the oldest ones are dropped."""
MAX_POLL_SECONDS = 120.0
"""Seconds after which a poll that has not returned is reported. Discoverers time out within a minute."""
_log = logging.getLogger("asterism.rules.processor")


class Coordinator(PatternProcessorManager):
    """The manager of FLIP-200. Its set contains the processors discovered last, except the refused ones.

    :param without: names of processors (``id`` or ``id@version``) that this run leaves out and does not check
    :param lookups: those of the *compiler*, with the sources of their tables
    """

    def __init__(
        self,
        compiler: ProcessorCompiler,
        store: FolderStore,
        without: Iterable[str] = (),
        lookups: Sequence[DefinedLookup] = (),
    ) -> None:
        self.compiler, self.store = compiler, store
        self._without = dict.fromkeys(without, WITHOUT)
        self._lock = threading.RLock()
        """Protects the state that is reported and changed together; it is held only briefly."""
        self._updating = threading.Lock()
        """Serializes updates, which may take long; it is acquired before the other lock."""
        self._name = uuid4().hex
        store.claim(self._name)
        self._closed = threading.Event()
        self._discoverer: PatternProcessorDiscoverer | None = None
        self._watcher: threading.Thread | None = None
        self._ended = False
        """Whether the discoverer has returned, so that no further updates follow."""
        self._poll_started: float | None = None
        """When the current poll began, by the monotonic clock; None also after it was reported as too long."""
        retained = store.retained()
        self._set = retained[-1] if retained else ProcessorSet(0, ())
        self._digest: tuple[int, bytes] | None = None
        self._former_lookups = stored_lookups(self._set.lookups, store)
        self._lookups = LookupWatch(lookups, self._set.lookups, self._former_lookups)
        self._looked_up_in = 0
        """The number of the last set of this run with a new version of a lookup."""
        self._used, self._knows_used = store.used_versions()
        self._killed = store.killed()
        self._published_with: KillList | None = None
        """The kill list with which this run last checked the killed names of the newest set."""
        self._discovered: Sequence[Discovered] | None = None
        """The processors that were discovered last."""
        self._taken_with = self._killed
        """The kill list with which they were made into a set."""
        self._checks = ProcessorChecks(compiler)
        self._expired = {_expiry(processor) for processor in self._expired_at(store.expired_until())}
        """The expired processors that have been reported, in this run or before."""
        self._entries = Entries()
        """The processors that the last planned micro-batch uses."""
        self._planned = 0
        """The number of its set; 0: this run has planned none."""
        self._live = self._states_before()
        """The states of these processors, at first those of the last run."""
        self._refused: list[RefusedProcessor] = []
        self._lines: deque[str] = deque(maxlen=MAX_LOG)
        self._problems: set[str] = set()
        """Operations that currently fail, and whose failure has been reported."""
        self._history = store.history()
        self._unwritten: deque[HistoryEntry] = deque(maxlen=MAX_UNWRITTEN)
        """The entries of the history that could not be written yet."""
        self._recorded = self._complete_history()
        """The reasons, in the history, of the processors that were refused last. An earlier run may have reported them."""
        self._written = 0.0
        self.status = self._status_at_start()
        self._tell_states()
        # The first poll may never return, or end this process, so the status of an earlier run must be replaced before it.
        self._write_status()

    def _status_at_start(self) -> Status:
        return Status(
            version=self._set.version,
            processors=_versions(self._set.processors, shadow=False),
            shadows=_versions(self._set.processors, shadow=True),
            killed=self._reasons(),
            since=now_text(),
            heartbeat=HEARTBEAT,
            conditions={name: condition.signature for name, condition in self.compiler.conditions.items()},
            udfs={function.name: function.signature for function in self.compiler.udfs.values()},
            lookups=self._lookups.states(),
        )

    @property
    def version(self) -> int:
        """The number of the newest set, which can be read from the store."""
        with self._lock:
            return self._set.version

    def digest(self, number: int) -> bytes:
        """The digest by which :meth:`FolderStore.stored` identifies a set. It is cached for the last set.

        :raises AsterismError: the set cannot be read from the store
        """
        with self._lock:
            if self._digest is None or self._digest[0] != number:
                self._digest = number, self.store.digest(number)
            return self._digest[1]

    def current_pattern_processors(self) -> Sequence[PatternProcessor]:
        with self._lock:
            return self._set.processors

    def columns(self) -> tuple[pa.Schema, Semantics]:
        return self.compiler.schema, self.compiler.semantics

    def udfs(self) -> UserFunctions:
        return self.compiler.udfs

    def committed(self, number: int) -> None:
        """The micro-batch that announced this set, or a later one, has been committed.

        Sets that are not needed any more and cannot be removed now are removed after another micro-batch.
        """
        with self._lock, self._tried("remove old sets"):
            self._check_owner()
            self.store.committed(number)

    # ------------------------------------------------------------------ discovery

    def start(self, factory: PatternProcessorDiscovererFactory) -> None:
        """Get the first set, and watch for others.

        :raises PatternProcessorError: discovery fails or does not respond, and there is no set of an earlier run; or a lookup of
            which no earlier run has stored the table cannot be read
        :raises StateError: a rule of the set of an earlier run reads a column that a lookup no longer has
        """
        check_lookups(self._set.processors, self._former_lookups, self.compiler)
        self._factory = factory
        polled, taken = threading.Event(), Future[None]()
        self.on_poll_begun()
        self._watcher = threading.Thread(
            target=self._begin, args=[polled, taken], name="pattern processors", daemon=True
        )
        self._watcher.start()
        threading.Thread(target=self._tend, name="status of pattern processors", daemon=True).start()
        if self._lookups:
            threading.Thread(target=self._watch_lookups, args=[polled], name="lookups", daemon=True).start()
        # The poll may never return. Processing its result may take as long as necessary.
        error = taken.exception() if polled.wait(MAX_POLL_SECONDS) else _too_long()
        if error is not None:
            if not self._can_go_on:
                failure = PatternProcessorError("no pattern processors could be discovered", described(error))
                self._enter(OFF, str(failure))
                self.close()
                raise failure from error
            self._check_poll()
            self._apply_kill_list()

    @property
    def _can_go_on(self) -> bool:
        """Whether there is a set, and a table for each lookup, so that the query can start although discovery has failed."""
        return bool(self.version) and self._lookups.all_are_known

    def _first_poll(self) -> Sequence[Discovered]:
        self._discoverer = self._factory.create_pattern_processor_discoverer()
        return self._discoverer.initial_pattern_processors()

    def _begin(self, polled: threading.Event, taken: Future[None]) -> None:
        """Poll for the first time, and then watch. *polled* is set when the first poll has returned."""
        try:
            try:
                self.read_lookups()
                discovered = self._first_poll()
            finally:
                polled.set()
            if not self._closed.is_set():  # else start() has given up
                self.on_pattern_processors_updated(discovered)
        except BaseException as error:  # a discoverer may call sys.exit
            try:
                if not self._can_go_on:
                    self._closed.set()  # the query does not start, so polling ends
                    return
                self.on_discovery_failed(error)
            finally:
                taken.set_exception(error)
        else:
            taken.set_result(None)
        self._watch()

    def keep_watching(self) -> None:
        """Replace the thread that watches for updates if it has died for any reason."""
        with self._lock, self._tried("poll for updates", Exception):
            dead = self._watcher is not None and not self._watcher.is_alive()
            if self._ended or self._closed.is_set() or (self._watcher is not None and not dead):
                return
            if dead:
                self.on_discovery_failed(RuntimeError("the polling thread has died"))
            self._watcher = threading.Thread(target=self._watch, name="pattern processors", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """Run one discoverer after another: if it raises an error it has failed, and if it returns discovery has ended."""
        wait = RESTART
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                if self._discoverer is None:
                    self.on_poll_begun()
                    self.on_pattern_processors_updated(self._first_poll())
                if not self._closed.is_set():
                    assert self._discoverer is not None
                    self._discoverer.discover_pattern_processor_updates(self)
                self._ended = True
                return
            except BaseException as error:  # a discoverer may call sys.exit
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
        while not self._closed.wait(min(KILL_LIST_INTERVAL, HEARTBEAT)):
            self.keep_watching()
            self._check_poll()
            self._apply_kill_list()
            self._report_expired()
            with self._lock:
                self._write_history()
                written = self._written
                status = self._status_now() if self._problems or time.monotonic() - written >= HEARTBEAT else None
            if status is not None:
                content = status.to_bytes()  # takes long for many rules, so it is done without the lock
                with self._lock:
                    if self._written == written:
                        self._write_status(content)

    # ------------------------------------------------------------------ lookups

    def read_lookups(self) -> None:
        """:raises PatternProcessorError: a table cannot be read, and no earlier run has read it"""
        self.poll_lookups()
        self._lookups.check_all_are_known()

    def poll_lookups(self) -> None:
        """Read the tables that are due. Rows that cannot be used are refused, and the version in force stays."""
        for name, error in self._lookups.poll():
            if error is not None:
                self._tell(logging.WARNING, printable(f"refused: lookup {name}: {one_line(error, MAX_REASON)}"))
        with self._lock:
            self.status.lookups = self._lookups.states()

    def _watch_lookups(self, begun: threading.Event) -> None:
        begun.wait()
        while not self._closed.wait(LOOKUP_TICK):
            with self._tried("read the tables of lookups", Exception):
                self.poll_lookups()
                self.publish_lookups()

    def publish_lookups(self) -> None:
        """Publish a set with the tables that were read, unless the last such set has not been used yet: so only few versions of a
        table can be in use in a micro-batch.
        """
        with self._lock:
            if self._lookups.has_news and self._set.version and self._looked_up_in <= self._planned:
                self._publish(self._set.listed, None, self._killed)
                self._write_status()

    def close(self) -> None:
        self._closed.set()
        with suppress(Exception):
            if self._discoverer is not None:
                self._discoverer.close()
        self._enter(OFF)

    def on_poll_begun(self) -> None:
        self._poll_started = time.monotonic()

    def _check_poll(self) -> None:
        """Report discovery as interrupted if the current poll takes too long. The poll continues in its thread."""
        with self._lock:
            began = self._poll_started
            if self.version and began is not None and time.monotonic() - began >= MAX_POLL_SECONDS:
                self.on_discovery_failed(_too_long())  # resets the start time, so that it is reported once

    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        self._poll_started = None
        for processor in pattern_processors:
            if not isinstance(processor, PatternProcessor | RefusedProcessor):
                raise PatternProcessorError(
                    f"the discoverer returned {processor!r:.60}",
                    "It must return PatternProcessor or RefusedProcessor objects.",
                )
        with self._updating:
            self._take([_as_data(each) for each in pattern_processors])
        self._enter(VALID, polled=True, write=True)

    def on_nothing_changed(self) -> None:
        self._poll_started = None
        self._enter(VALID, polled=True)

    def on_discovery_failed(self, error: BaseException) -> None:
        """Record the failure. The method raises no errors, because its caller already handles one."""
        self._poll_started = None
        text = printable(described(error)[:MAX_REASON])
        if self.status.error != text:
            self._tell(
                logging.WARNING, f"pattern processors: discovery failed, set {self.version} stays in force: {text}"
            )
        self._enter(INTERRUPTED, text)

    def _apply_kill_list(self) -> None:
        with self._tried("remove killed pattern processors", Exception):
            with self._lock:
                killed = self.store.killed()
                if not self._set.version:  # the first set will be made without the killed processors
                    self._killed = killed
                    return
                if killed != self._published_with:
                    self._publish(self._set.listed, None, killed)
                    self._write_status()
            # Processors that are not killed any more may be added again. An update in progress does that itself.
            if self._taken_with != killed and self._updating.acquire(blocking=False):
                try:
                    if self._discovered is not None:
                        self._take(self._discovered)
                finally:
                    self._updating.release()
                with self._lock:
                    self._write_status()

    def _report_expired(self) -> None:
        """Report the processors that have expired, each once."""
        with self._lock, self._tried("read which pattern processors have expired"):
            expired = self._expired_at(self.store.expired_until())
            new = [processor for processor in expired if _expiry(processor) not in self._expired]
            self._expired.update(map(_expiry, new))
            number = self._set.version
            self._record(HistoryEntry(now_text(), number, EXPIRED, p.id, p.version, shadow=p.shadow) for p in new)

    def _expired_at(self, time: int) -> list[PatternProcessor]:
        """The processors of the newest set that have expired at this event time."""
        return [
            processor
            for processor in self._set.all_processors
            if processor.effective_until is not None and processor.effective_until <= time
        ]

    def _take(self, discovered: Sequence[Discovered]) -> None:
        """Make a set of the discovered processors, without the killed ones. The caller holds *_updating*.

        Checking thousands of rules takes minutes, during which other threads may read the newest set, or kill one of its
        processors.
        """
        while True:
            with self._lock:
                known, killed = self._set, self._killed
            accepted = accept(
                known, discovered, {*self._without, *killed}, self._used, self._checks.error, self._event_time
            )
            self._checks.forget_others(discovered)
            with self._lock:
                if self._set is known and self._killed is killed:
                    self._publish(accepted.listed, accepted.refused, killed)
                    self._discovered, self._taken_with = discovered, killed
                    return

    def _publish(
        self, after: Sequence[PatternProcessor], refused: Sequence[RefusedProcessor] | None, killed: KillList
    ) -> None:
        """Publish a set if it differs from the current one. *refused* is None if no processor was checked.

        :param after: all versions that the source has, in the order in which those of a rule come into force
        """
        has_earlier = self._set.earlier or len({p.slot for p in after}) < len(after)
        time = self._event_time(certain=True) if has_earlier else BEFORE_TIME
        before, after = not_superseded(self._set.listed, time), not_superseded(after, time)
        reasons = self.status.refused
        if refused is not None:
            reasons = {
                processor.name: str(processor.error) + (f"\n  In: {processor.place}" if processor.place else "")
                for processor in refused
            }
            self._record_refused(refused)
        out = self._named_by(killed, after)
        changed = len(before) != len(after) or not all(map(_are_equal, before, after))
        news = self._lookups.has_news and self._looked_up_in <= self._planned
        if not self._set.version or changed or out != self._set.killed or news:
            self._check_owner()
            number = self._set.version + 1
            lookups = self._lookups.store_versions(number, self.store) if news else self._set.lookups
            processors, earlier, added = next_versions(self._set, [*map(stored, after)], time)
            new = ProcessorSet(number, processors, out, lookups, earlier, added)
            used = self._used.with_(after)
            if used is not self._used or not self._knows_used:
                self.store.write_used_versions(used, self._used if self._knows_used else None)
                self._knows_used = True
            self.store.put(new)
            entries = [
                HistoryEntry(now_text(), new.version, KILLED, name, by=killed[name].by, reason=killed[name].reason)
                if name in killed
                else HistoryEntry(now_text(), new.version, ADMITTED, name)
                for name in sorted({*out} ^ {*self._set.killed})
            ]
            self._set, self._used = new, used
            if news:
                self._looked_up_in = number
                self._lookups.published(lookups)
                self.status.lookups = self._lookups.states()
                entries += [
                    HistoryEntry(now_text(), number, LOOKED_UP, lookup.name, reason=f"{lookup.rows:,} rows")
                    for lookup in lookups
                    if lookup.version == number
                ]
            self._record([*entries, *changes(new.version, before, after)])
        if refused is not None:
            self._refused = list(refused)
        self._killed = self._published_with = killed
        # Of several versions, the last one.
        self.status.processors, self.status.shadows = _versions(after, shadow=False), _versions(after, shadow=True)
        self.status.refused, self.status.killed = reasons, self._reasons()
        self._tell_states()

    def _record(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
            self._tell(logging.INFO, printable(f"pattern processors {entry.set}: {entry}"))
            self._unwritten.append(entry)
        self._write_history()

    def expect_some_rule(self) -> None:
        """:raises PatternProcessorError: all rules were refused, so that the result of a run over a table would be empty"""
        if self._refused and not (self.status.processors or self.status.shadows):
            shown = [str(processor) for processor in self._refused[:MAX_NAMED]]
            more = len(self._refused) - len(shown)
            none = f"none of the {len(self._refused):,} rules can be used"
            raise PatternProcessorError(
                "the rule cannot be used" if len(self._refused) == 1 else none,
                "\n".join([*shown, f"and {more:,} more"] if more else shown),
                "correct the rules; over a stream, a rule that is refused leaves its last valid version in force",
            )

    def _record_refused(self, refused: Sequence[RefusedProcessor]) -> None:
        """Report the refusals that are new in the log, and append them to the history."""
        reasons = {processor.name: processor.error.message[:MAX_TEXT] for processor in refused}
        for processor in refused:
            if self._recorded.get(processor.name) != reasons[processor.name]:
                self._tell(logging.WARNING, f"refused: {processor}")
                place = None if processor.place is None else processor.place[:MAX_TEXT]
                self._unwritten.append(
                    HistoryEntry(
                        now_text(), self._set.version, REFUSED, processor.id, processor.version, by=processor.changed_by,
                        place=place, reason=reasons[processor.name], shadow=bool(processor.shadow),
                    )
                )  # fmt: skip
        self._recorded = reasons
        self._write_history()

    def _write_history(self) -> None:
        if self._unwritten:
            with self._tried("write the history"):
                self._history.append(self._unwritten)
                self._unwritten.clear()

    def _complete_history(self) -> dict[str, str]:
        """Add the newest set to the history if the last run did not, and return the reasons of its last refusals."""
        reasons: dict[str, str] = {}
        with self._tried("read the history", AsterismError):
            last = self._history.last_entries()
            for entry in last:
                if entry.what == REFUSED:
                    reasons[entry.name] = entry.reason or ""
                else:
                    reasons.pop(entry.name, None)
            known = last[-1].set if last else 0
            if known < self._set.version:
                before = self.store.get(known).listed if known else []
                self._record(changes(self._set.version, before, self._set.listed))
        return reasons

    def _reasons(self) -> dict[str, str]:
        return {name: details.reason for name, details in self._killed.items()} | self._without

    def _named_by(self, killed: KillList, processors: Iterable[PatternProcessor]) -> tuple[str, ...]:
        """The names on the list that match one of *processors*, or one of an older set, which may be in force until the time
        of its successor. A name that the newest set contains stays, so that it is not reported as removed from the list when
        that time has come.
        """
        if not killed:
            return ()
        before = (processor for processor_set in self.store.retained() for processor in processor_set.all_processors)
        names = {name for processor in (*processors, *before) for name in names_of(processor)}
        return tuple(sorted((names | {*self._set.killed}) & killed.keys()))

    def _check_owner(self) -> None:
        if not self.store.belongs_to(self._name):
            raise StateError(
                "another query has started to use the folder of pattern processors",
                self.store.location,
                "use a separate store for every query: by default, it is in the checkpoint",
            )

    # ------------------------------------------------------------------ what is in force

    def planned(self, number: int, before: int) -> None:
        """A micro-batch is planned that uses the set *number*; the one before it used the set *before*."""
        with self._lock, self._tried("determine what is in force", Exception):
            if number <= self._planned:
                return
            if not before and not self._planned:
                counts = self.store.counts()
                if counts.batch == 0:  # a history, which is searched before the first micro-batch, and counted as 0
                    before = max((version.since for version in counts.versions.values()), default=0)
            retained = [] if self._planned else self.store.retained()
            first = [processor_set for processor_set in retained if processor_set.version <= before]
            for processor_set in [*first, self.store.get(number)]:
                horizon = self._event_time() if self._entries.depend_on_time(processor_set) else BEFORE_TIME
                self._entries = self._entries.after(processor_set, horizon).without(self._without)
            self._planned = number
            known = {(state.id, state.version): state for state in self._live}
            restored = before if first else 0
            self._live = [self._state(entry, known, restored) for entry in self._entries]
            self._tell_states()
            self._write_status()

    def _event_time(self, *, certain: bool = False) -> int:
        """In microseconds, as reached by key groups. *certain*: also if the query is reset to an earlier micro-batch."""
        counts = self.store.counts()
        reached = counts.certain_watermark if certain else counts.watermark
        return BEFORE_TIME if reached is None else reached

    def _state(self, entry: Entry, known: Mapping[tuple[str, int | None], RuleState], restored: int) -> RuleState:
        """:param restored: the last set of an earlier run"""
        id, version, added = entry.name
        old = known.get((id, version))
        if old is not None and (added <= restored or old.added == added):
            added, since = old.added, old.since  # older sets may have been removed since then
        else:
            since = now_text()
        begins = "" if entry.begins is None else to_datetime(entry.begins).isoformat()
        ends = entry.processor.effective_until
        expires = "" if ends is None else to_datetime(ends).isoformat()
        state = RuleState(id, version, WAITING, since, begins, expires, added=added, shadow=entry.processor.shadow)
        if entry.killed:
            names = names_of(entry.processor)
            reason = next((why for name, why in self._reasons().items() if name in names), None)
            return replace(state, state=KILLED, reason=reason)
        return state if begins else replace(state, state=state.active_state)

    def _states_before(self) -> list[RuleState]:
        with suppress(OSError, AsterismError):
            return [
                replace(state, state=WAITING if state.begins else state.active_state, reason=None)
                if state.state == DISABLED
                else state
                for state in self.store.read_status().rules
                if state.state not in (PENDING, REFUSED)
            ]
        return []

    def _tell_states(self) -> None:
        live = {(state.id, state.version, state.shadow) for state in self._live}
        pending = [
            RuleState(processor.id, processor.version, PENDING, shadow=processor.shadow)
            for processor in self._set.listed
            if (processor.id, processor.version, processor.shadow) not in live
        ]
        reasons = self.status.refused
        refused = [
            RuleState(
                processor.id, processor.version, REFUSED, reason=reasons[processor.name], shadow=bool(processor.shadow)
            )
            for processor in self._refused
        ]
        self.status.rules = [*self._live, *pending, *refused]

    def current_status(self) -> Status:
        with self._lock:
            status = self._status_now()
        return status.with_counts(self.store.counts())

    # ------------------------------------------------------------------ status

    def _tell(self, level: int, line: str) -> None:
        _log.log(level, "%s", line)
        self._lines.append(f"{now_text()} {logging.getLevelName(level)} {line[:MAX_REASON]}")

    @contextmanager
    def _tried(self, what: str, *more: type[Exception]) -> Iterator[None]:
        """Run an operation that is retried later, and report its failure once. *more*: errors besides those of the store."""
        failures: tuple[type[Exception], ...] = (OSError, NotWrittenError, *more)
        try:
            yield
        except failures as error:
            if what not in self._problems:
                self._tell(logging.WARNING, printable(f"pattern processors: cannot {what} now: {error}"[:MAX_REASON]))
            self._problems.add(what)
        else:
            self._problems.discard(what)

    def _enter(self, state: str, error: str | None = None, *, polled: bool = False, write: bool = False) -> None:
        with self._lock:
            status = self.status
            if status.state == OFF:
                return  # the watching thread may end later, after the query has been started again
            changed = (status.state, status.error) != (state, error)
            if changed:
                status.since = now_text()
            if polled:
                status.last_poll = now_text()
            status.state, status.error = state, error
            if changed or write:
                self._write_status()

    def _status_now(self) -> Status:
        """A copy of the status, without counts."""
        status = self.status
        status.version, status.log, status.alive = self._set.version, list(self._lines), now_text()
        return replace(status)

    def _write_status(self, content: bytes | None = None) -> None:
        """Write the status, or *content*, if it is known already. If that fails, it is written later."""
        with self._tried("write the status", Exception):
            self._written = time.monotonic()
            if self.store.belongs_to(self._name):
                self.store.write_status(self._status_now().to_bytes() if content is None else content)


def _versions(processors: Iterable[PatternProcessor], *, shadow: bool) -> dict[str, int]:
    return {processor.id: processor.version for processor in processors if processor.shadow == shadow}


def _are_equal(processor: PatternProcessor, other: PatternProcessor) -> bool:
    # An earlier release may have written a different text.
    return processor.text == other.text or processor == other


def _as_data(processor: Discovered) -> Discovered:
    """A processor as the store returns it: without the fields of a subclass, and with conditions as strings."""
    if isinstance(processor, RefusedProcessor):
        return processor
    try:
        return with_place(processor, processor.place).as_data()
    except Exception as error:
        return refusal(processor, as_error(error))


def _expiry(processor: PatternProcessor) -> tuple[str, int, int | None]:
    return processor.id, processor.version, processor.effective_until


def _too_long() -> TimeoutError:
    return TimeoutError(f"a poll has not returned for more than {MAX_POLL_SECONDS:g} seconds")
