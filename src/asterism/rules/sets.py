"""Sets of pattern processors as they are published and as they are in force.

A set has a number and is published as a whole, in JSON. A key group keeps *entries*: a processor, the set that added it, and
the event times for which it is in force. Given the sets in order, the entries are the same in every key group.
"""

from __future__ import annotations

import gc
import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol
from weakref import WeakValueDictionary

from asterism.caches import keep, recent
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.rules.kill_list import is_named
from asterism.rules.lookup_tables import LookupVersion
from asterism.rules.processor import PatternProcessor, Slot, found_at, from_text

MAX_SETS = 16
"""How many sets a process keeps, of all queries together. A query needs two of them at a time. With rules that change all the
time, each of the others keeps the versions in memory that it had and that nothing uses any more.
"""
MAX_ENTRIES = 2 * MAX_SETS
"""How many entries of key groups a process keeps, and how many changes of them."""
OBJECTS = 100_000
"""After how many new objects Python looks for reference cycles while rules are read or bound."""


WaitingVersion = tuple[int, PatternProcessor]
"""A version with a timestamp, and the number of the last set that had it."""


@dataclass(frozen=True, slots=True)
class ProcessorSet:
    """All processors from one point on. *version* counts the sets, from 1; *killed* has the names of the processors that a
    person has excluded; *lookups* has the versions of the tables that they read, by the names of the lookups; *waiting* has
    the versions of earlier sets that come into force before those of this one, see :func:`still_waiting`.
    """

    version: int
    processors: tuple[PatternProcessor, ...]
    killed: tuple[str, ...] = ()
    lookups: tuple[LookupVersion, ...] = ()
    waiting: tuple[WaitingVersion, ...] = ()

    @property
    def all_processors(self) -> Iterator[PatternProcessor]:
        """Those of the set, and those that wait."""
        yield from self.processors
        for _, processor in self.waiting:
            yield processor

    def to_bytes(self) -> bytes:
        found = {"version": self.version, "processors": [processor.text for processor in self.processors]}
        killed = {"killed": self.killed} if self.killed else {}
        lookups = {"lookups": lookups_to_json(self.lookups)} if self.lookups else {}
        waiting = {"waiting": [[number, one.text] for number, one in self.waiting]} if self.waiting else {}
        return json.dumps(found | killed | lookups | waiting, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> ProcessorSet:
        """Read the result of :meth:`to_bytes`. Its processors are not checked again, because each was checked when it was
        accepted.

        Equal bytes return the same object, and so do the processors that sets share. The cache exists as long as the process,
        and its size is limited.
        """
        key = digest_of(value)
        return recent(_SETS, key) or keep(_SETS, MAX_SETS, key, cls._read(value))

    @classmethod
    def _read(cls, value: bytes) -> ProcessorSet:
        found = json.loads(value)
        with rarely_collected():
            processors = tuple(processor_of(text) for text in found["processors"])
            waiting = tuple((number, processor_of(text)) for number, text in found.get("waiting", ()))
        killed, lookups = tuple(found.get("killed", ())), lookups_from_json(found.get("lookups", {}))
        return cls(found["version"], processors, killed, lookups, waiting)


def still_waiting(
    before: ProcessorSet, processors: Iterable[PatternProcessor], time: int = BEFORE_TIME
) -> tuple[WaitingVersion, ...]:
    """The versions of the set *before*, and of those before it, that come into force in turn before *processors*, the versions of
    the next set: each has an earlier timestamp than the version that follows it.

    A set has them, because a micro-batch gets only the newest set. So they do not depend on which sets a micro-batch got.

    :param time: an event time that all key groups have reached, in microseconds; versions that were replaced by then are left out
    """
    now = {processor.slot: processor for processor in processors}
    known = [*before.waiting, *((before.version, one) for one in before.processors)]
    found = [(number, one) for number, one in known if one.slot in now and _is_before(one, now[one.slot])]
    successors = dict(now)
    kept: list[WaitingVersion] = []
    for number, one in reversed(found):
        begins = successors[one.slot].effective_from
        if begins is not None and begins > time:
            kept.append((number, one))
        successors[one.slot] = one
    return tuple(reversed(kept))


def _is_before(one: PatternProcessor, other: PatternProcessor) -> bool:
    return one.timestamp is not None and other.timestamp is not None and one.timestamp < other.timestamp


def lookups_to_json(lookups: Iterable[LookupVersion]) -> dict[str, Any]:
    return {one.name: one.to_dict() for one in lookups}


def lookups_from_json(found: Mapping[str, Any]) -> tuple[LookupVersion, ...]:
    return tuple(LookupVersion.from_dict(name, one) for name, one in found.items())


def digest_of(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def processor_of(text: str) -> PatternProcessor:
    """The processor with this :attr:`~PatternProcessor.text`, which was checked when it was accepted."""
    return _PROCESSORS.get(text) or _known(text, from_text(text))


def stored(processor: PatternProcessor) -> PatternProcessor:
    """The object that :func:`processor_of` returns for *processor*."""
    text = processor.text
    return _PROCESSORS.get(text) or _known(text, found_at(processor.as_data(), None))


def _known(text: str, processor: PatternProcessor) -> PatternProcessor:
    with _LOCK:
        return _PROCESSORS.setdefault(text, processor)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for reference cycles less often, because that takes a quarter of the time to read or bind a thousand rules.

    It is not switched off, because the syntax trees of rules are cycles.
    """
    before = gc.get_threshold()
    if 0 < before[0] < OBJECTS:
        gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


_LOCK = threading.Lock()
_PROCESSORS: WeakValueDictionary[str, PatternProcessor] = WeakValueDictionary()
"""Those that are in use. A rule that changes often would otherwise fill the memory with its versions."""
_SETS: dict[bytes, ProcessorSet] = {}
_ENTRIES: dict[tuple[int, ...], Entries] = {}
_CHANGES: dict[tuple[int, int, int | None, int], tuple[Entries, ProcessorSet, Entries]] = {}
"""What follows from entries and a set. Entries do not refer to those that follow them: the first ones, which are none, would
keep all others in memory.
"""


class ProcessorSource(Protocol):
    """Provides the needed sets to the stage before the exchange, which does not receive updates."""

    def retained(self) -> Sequence[ProcessorSet]:
        """The sets that may be in force in the current micro-batch: the newest, and those that it may replace. Additional
        sets do no harm.
        """

    def read_lookup(self, version: LookupVersion) -> bytes:
        """The stored rows of a version of a lookup."""

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        """Report from after the exchange, where event time is known: of the processors that were replaced up to the set
        *version*, these (id, version) are in force until the time of their successor. Every key group reports it, and again
        if a micro-batch is repeated.
        """

    def expired(self, time: int) -> None:
        """Report, from the same place, the event time (microseconds) at which a processor was found to have expired."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A processor in a key group.

    :param since: the number of the set that added it
    :param begins: the event time in microseconds from which it is in force; None: always
    :param until: the event time at which its successor replaces it; None: there is no successor
    :param disabled: whether it failed or is *killed*; it is then disabled until its next version
    :param killed: whether a person has excluded it; nothing of it is evaluated
    """

    processor: PatternProcessor
    since: int
    begins: int | None = None
    until: int | None = None
    disabled: bool = False
    killed: bool = False

    @property
    def name(self) -> tuple[str, int, int]:
        """Id, version and the set that added it, because a version may be removed and added again."""
        return self.processor.id, self.processor.version, self.since

    @property
    def first_time(self) -> int:
        return BEFORE_TIME if self.begins is None else self.begins

    @property
    def end_time(self) -> int:
        """The first time at which it is not in force any more, because of a successor or because it expires."""
        until = END_OF_TIME if self.until is None else self.until
        expires = self.processor.effective_until
        return until if expires is None else min(until, expires)

    def to_dict(self) -> dict[str, Any]:
        found = {"since": self.since, "begins": self.begins, "until": self.until, "disabled": self.disabled}
        found["killed"] = self.killed
        return {"processor": self.processor.text, **{k: v for k, v in found.items() if v}}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Entry:
        return cls(
            processor_of(found["processor"]),
            found["since"],
            found.get("begins"),
            found.get("until"),
            found.get("disabled", False),
            found.get("killed", False),
        )


@dataclass(frozen=True, slots=True)
class Span:
    """The events that a processor sees: those with times from *begins* to before *until* (microseconds). Of events that have
    waited since an earlier release, those that arrived with the set *since* or later.
    """

    since: int = 0
    begins: int = BEFORE_TIME
    until: int = END_OF_TIME


class Entries(tuple[Entry, ...]):
    """The entries of a key group. Key groups mostly have the same, so that a process has one object for them, which keeps what
    follows from them.
    """

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """The object for these entries. The most recent ones are cached for the lifetime of the process."""
        made = cls(entries)
        key = tuple(map(id, made))
        return recent(_ENTRIES, key) or keep(_ENTRIES, MAX_ENTRIES, key, made)

    @cached_property
    def enabled(self) -> Entries:
        return Entries.of(entry for entry in self if not entry.disabled)

    @cached_property
    def with_pattern(self) -> Entries:
        return Entries.of(entry for entry in self if entry.processor.sql is None)

    @cached_property
    def with_clause(self) -> Entries:
        return Entries.of(entry for entry in self if entry.processor.sql is not None)

    @cached_property
    def spans(self) -> Sequence[Span]:
        return [Span(entry.since, entry.first_time, entry.end_time) for entry in self]

    @cached_property
    def suppress(self) -> bool:
        return any(entry.processor.suppress is not None for entry in self)

    @cached_property
    def are_scheduled(self) -> bool:
        """Whether any of them begins at a time, or expires."""
        return any(entry.begins is not None or entry.processor.expires is not None for entry in self)

    @cached_property
    def replaced_later(self) -> Sequence[tuple[str, int]]:
        """The processors (id, version) that are in force until the time of their successor."""
        return sorted((entry.processor.id, entry.processor.version) for entry in self if entry.until is not None)

    @cached_property
    def _end(self) -> bool:
        return any(map(can_end, self))

    def has_expired(self, time: int) -> bool:
        """Whether one of them has ended at the event time *time* because it has expired."""
        return self._end and any(has_expired(entry, time) for entry in self)

    def passed(self, time: int) -> Entries:
        """:func:`passed`"""
        return Entries.of(passed(self, time)) if self._end else self

    def without(self, names: Collection[str]) -> Entries:
        """:func:`without`"""
        return Entries.of(without(self, names)) if names else self

    def depend_on_time(self, new: ProcessorSet) -> bool:
        """Whether the entries after the set *new* depend on the event time at which it arrives."""
        return self.are_scheduled or self._end or any(one.timestamp or one.expires for one in new.all_processors)

    def after(self, new: ProcessorSet, horizon: int, known: int = 0) -> Entries:
        """:func:`updated`, without those that the set has killed."""
        key = id(self), id(new), horizon if self.depend_on_time(new) else None, known if new.waiting else 0
        found = recent(_CHANGES, key)
        if found is None:
            made = Entries.of(without(updated(self, new, horizon, known), new.killed))
            found = keep(_CHANGES, MAX_ENTRIES, key, (self, new, made))
        return found[2]


def updated(entries: Iterable[Entry], new: ProcessorSet, horizon: int, known: int = 0) -> list[Entry]:
    """The entries after a set has arrived, in the order of the set, at the event time *horizon* (microseconds).

    A set is complete. Of the previous entries, it keeps those that it contains, and those that are in force until the time of
    a successor that it contains. All of this holds for the processors and for their shadows, independently of each other.

    * A processor that is in force, or whose time is in the future, is kept with its partial matches, with its new labels and
      *expires*.
    * A processor without a timestamp, or whose time has passed, immediately replaces the processor with its id.
    * A processor whose time is in the future is added. The one in force stays until then, and so do those that wait for an
      earlier time: all come into force in turn.
    * A processor whose time is in the future, and that is neither in the set nor one of its *waiting* ones, is removed; it was
      never in force.
    * A processor that has expired is removed. If it is later extended, it begins anew.
    * A shadow that is not a shadow any more is kept with its partial matches, and replaces the processor as any other version
      would. The same holds in the other direction.

    :param known: the number of the set before; of the *waiting* ones, those of later sets are added first
    """
    before: dict[str, list[Entry]] = {}
    for entry in passed(entries, horizon):
        before.setdefault(entry.processor.id, []).append(entry)
    by_id: dict[str, list[PatternProcessor]] = {}
    for processor in new.processors:
        by_id.setdefault(processor.id, []).append(processor)
    waiting: dict[Slot, list[WaitingVersion]] = {}
    for number, processor in new.waiting:
        waiting.setdefault(processor.slot, []).append((number, processor))
    found: list[Entry] = []
    for id, processors in by_id.items():
        free = before.get(id, [])
        for processor in sorted(processors, key=lambda one: one.shadow):
            own = [entry for entry in free if entry.processor.shadow == processor.shadow]
            in_turn = [*waiting.get(processor.slot, ()), (new.version, processor)]
            own = [
                entry
                for entry in own
                if entry.first_time <= horizon or any(entry.processor.has_definition_of(one) for _, one in in_turn)
            ]
            for number, version in in_turn:
                if number > known:
                    own = _with_new(version, own, free, number, horizon)
            found += own
            names = {entry.name for entry in own}
            free = [entry for entry in free if entry.name not in names]
    return passed(found, horizon)


def _with_new(
    processor: PatternProcessor, own: Sequence[Entry], free: Sequence[Entry], number: int, horizon: int
) -> list[Entry]:
    """The entries of a slot after the set *number*, in the order of their times.

    :param own: the previous entries of the slot
    :param free: those of its id, of which it may take one that was, or was not, a shadow
    """
    in_force = next((entry for entry in own if entry.first_time <= horizon), None)
    if in_force is not None and in_force.processor.has_definition_of(processor):
        return [_until(None, _as_now(processor, in_force))]
    others = (entry for entry in (*own, *free) if entry is not in_force)
    known = next((entry for entry in others if entry.processor.has_definition_of(processor)), None)
    if known is None:
        newest = Entry(processor, number, processor.effective_from)
    else:
        newest = _as_now(processor, known)
    if newest.first_time <= horizon:
        return [_until(None, newest)]
    earlier = [entry for entry in own if entry is not known and entry.first_time < newest.first_time]
    in_turn = [*sorted(earlier, key=attrgetter("first_time")), newest]
    ends = [*(entry.begins for entry in in_turn[1:]), None]
    return [_until(end, entry) for entry, end in zip(in_turn, ends, strict=True)]


def _until(time: int | None, entry: Entry) -> Entry:
    return entry if entry.until == time else replace(entry, until=time)


def _as_now(processor: PatternProcessor, entry: Entry) -> Entry:
    """The entry with the processor as the newest set has it: with its labels and *expires*, as a shadow or not."""
    return entry if entry.processor is processor else replace(entry, processor=processor)


def passed(entries: Iterable[Entry], time: int) -> list[Entry]:
    """The entries that have not ended at the event time *time*."""
    return [entry for entry in entries if not can_end(entry) or entry.end_time > time]


def can_end(entry: Entry) -> bool:
    """Whether there is a time at which an entry ends."""
    return entry.until is not None or entry.processor.expires is not None


def has_expired(entry: Entry, time: int) -> bool:
    """Whether an entry has ended at the event time *time* because it has expired."""
    expires = entry.processor.effective_until
    return expires is not None and expires == entry.end_time and expires <= time


def without(entries: Iterable[Entry], names: Collection[str]) -> list[Entry]:
    """The entries, with those that are named (``id`` or ``id@version``) marked as killed."""
    return [
        entry if entry.killed or not is_named(entry.processor, names) else replace(entry, disabled=True, killed=True)
        for entry in entries
    ]
