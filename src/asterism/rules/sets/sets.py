"""Sets of pattern processors as they are published and as they are in force.

A set has a number and is published as a whole, in JSON. A key group keeps *entries*: a processor, the set that added it, and
the event times for which it is in force. Given the sets in order, the entries are the same in every key group.

See docs/decisions/0106.
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
from itertools import pairwise
from typing import Any, Protocol
from weakref import WeakValueDictionary

from asterism.caches import IdentityCache, keep, recent
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.rules.definition.lookup_tables import LookupVersion
from asterism.rules.definition.processor import ANY_VERSION, PatternProcessor, Slot, by_slot, from_text, with_place
from asterism.rules.sets.kill_list import is_named

MAX_SETS = 16
"""How many sets a process keeps, of all queries together. A query needs two of them at a time. With rules that change all the
time, each of the others keeps the versions in memory that it had and that nothing uses any longer.
"""
MAX_ENTRIES = 2 * MAX_SETS
"""How many entries of key groups a process keeps, and how many changes of them."""
OBJECTS = 100_000
"""After how many new objects Python looks for reference cycles while rules are read or bound."""


LISTED = "listed"
"""The set has the version, because its source still has it."""
FORMER = "former"
"""Only earlier sets have the version; sources mostly have one version of a rule at a time."""
WITHDRAWN = "withdrawn"
"""An earlier set has the version, and its source has removed it while it still has the next one. Where the version is in force
already, it stays in force until then; elsewhere it never comes into force.
"""


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A version of a rule that is in force before the last one of a set.

    :param added: the number of the set from which on all sets have it
    :param status: :data:`LISTED`, :data:`FORMER` or :data:`WITHDRAWN`
    """

    added: int
    processor: PatternProcessor
    status: str = FORMER

    @property
    def slot(self) -> Slot:
        return self.processor.slot


@dataclass(frozen=True, slots=True)
class ProcessorSet:
    """All processors from one point on. *version* counts the sets, from 1; *killed* has the names of the processors that a
    person has excluded; *lookups* has the versions of the tables that they read, by the names of the lookups.

    A rule may have several versions with timestamps. *processors* has the last one of each slot; *earlier* has those that are
    in force before it, in the order of their times, the first perhaps without a timestamp. Those that only earlier sets had
    are among them, because a micro-batch gets only the newest set: see :func:`next_versions`.

    :param added: for each of *processors*, the number of the set from which on all sets have it; empty: an earlier release has
        written the set, and the numbers are not known
    """

    version: int
    processors: tuple[PatternProcessor, ...]
    killed: tuple[str, ...] = ()
    lookups: tuple[LookupVersion, ...] = ()
    earlier: tuple[EarlierVersion, ...] = ()
    added: tuple[int, ...] = ()

    @property
    def all_processors(self) -> Iterator[PatternProcessor]:
        """The processors of the set, and the versions of earlier sets that may be in force."""
        yield from self.processors
        for version in self.earlier:
            yield version.processor

    @property
    def is_timeless(self) -> bool:
        """Whether all processors are in force at any event time."""
        return not self.earlier and all(processor.effective_until is None for processor in self.processors)

    def used_from(self, time: int | None) -> Iterator[PatternProcessor]:
        """The processors to which events from the event time *time* on matter; None: any time."""
        followers: dict[Slot, int] = {}
        for version in reversed([*self.earlier, *(EarlierVersion(0, last, LISTED) for last in self.processors)]):
            processor, follower = version.processor, followers.get(version.slot)
            ends = [end for end in (follower, processor.effective_until) if end is not None]
            if time is None or not ends or min(ends) > time:
                yield processor
            if version.status != WITHDRAWN:
                followers[processor.slot] = _begins(processor)

    @property
    def listed(self) -> list[PatternProcessor]:
        """What the source has: all versions of each rule, in the order in which they come into force."""
        before = by_slot(version.processor for version in self.earlier if version.status == LISTED)
        return [each for last in self.processors for each in (*before.get(last.slot, ()), last)]

    @property
    def numbered(self) -> Iterator[tuple[int, PatternProcessor]]:
        """The *processors*, each with the number of the set from which on all sets have it."""
        return zip(self.added or (0,) * len(self.processors), self.processors, strict=True)

    def to_bytes(self) -> bytes:
        document = {"version": self.version, "processors": [processor.text for processor in self.processors]}
        killed = {"killed": self.killed} if self.killed else {}
        lookups = {"lookups": lookups_to_json(self.lookups)} if self.lookups else {}
        earlier = {"earlier": [[version.added, version.processor.text, version.status] for version in self.earlier]}
        added = {"added": self.added} if any(self.added) else {}
        return json.dumps(
            document | killed | lookups | (earlier if self.earlier else {}) | added, ensure_ascii=False
        ).encode()

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
        stored = json.loads(value)
        with rarely_collected():
            processors = tuple(processor_of(text) for text in stored["processors"])
            earlier = tuple(
                EarlierVersion(added, processor_of(text), status) for added, text, status in stored.get("earlier", ())
            )
        killed, lookups = tuple(stored.get("killed", ())), lookups_from_json(stored.get("lookups", {}))
        return cls(stored["version"], processors, killed, lookups, earlier, tuple(stored.get("added", ())))


def next_versions(
    before: ProcessorSet, listed: Iterable[PatternProcessor], time: int = BEFORE_TIME
) -> tuple[tuple[PatternProcessor, ...], tuple[EarlierVersion, ...], tuple[int, ...]]:
    """The *processors*, *earlier* and *added* of the set that follows the set *before* and has the versions *listed*.

    Of each slot, *listed* has one version or several, in the order in which they come into force. They determine what is in force
    from the time of the first of them on. Until then, the versions of earlier sets stay, so it does not matter which of the sets
    a micro-batch gets.

    :param time: an event time that all key groups have reached, in microseconds, and will not leave; versions that were
        replaced by then are left out
    """
    number = before.version + 1
    slots = by_slot(listed)
    known = [*before.earlier, *(EarlierVersion(since, processor, LISTED) for since, processor in before.numbered)]
    former = by_slot(known)
    versions_before = {(each.processor.id, each.processor.version): each for each in known}

    def added(processor: PatternProcessor) -> int:
        same = versions_before.get(
            (processor.id, processor.version)
        )  # perhaps in the other slot: a shadow that is promoted
        return same.added if same is not None and same.processor.has_definition_of(processor) else number

    earlier: list[EarlierVersion] = []
    for slot, versions in slots.items():
        in_turn = [*_former_versions(former.get(slot, ()), versions)]
        in_turn += [EarlierVersion(added(processor), processor, LISTED) for processor in versions[:-1]]
        begins = versions[-1].effective_from
        kept: list[EarlierVersion] = []
        for each in reversed(in_turn):
            if begins is not None and begins > time:
                kept.append(each)
            if each.status != WITHDRAWN:
                begins = each.processor.effective_from
        earlier += reversed(kept)
    last = tuple(versions[-1] for versions in slots.values())
    return last, tuple(earlier), tuple(map(added, last))


def not_superseded(listed: Sequence[PatternProcessor], time: int) -> list[PatternProcessor]:
    """The versions without those that the next one has replaced by the event time *time*, in microseconds."""
    kept = [
        processor
        for processor, following in pairwise(listed)
        if processor.slot != following.slot or _begins(following) > time
    ]
    return [*kept, *listed[-1:]]


def _former_versions(
    former: Sequence[EarlierVersion], versions: Sequence[PatternProcessor]
) -> Iterator[EarlierVersion]:
    """The versions of earlier sets that may be in force before the first of *versions*."""
    first = versions[0].effective_from
    if first is None:
        return
    still_listed = {processor.version for processor in versions}
    followers = [version.processor.version for version in former if version.status == LISTED]
    for each in former:
        begins = each.processor.effective_from
        status = each.status
        if status == LISTED:
            followers.pop(0)
            status = FORMER if still_listed.isdisjoint(followers) else WITHDRAWN
        if each.processor.version not in still_listed and (begins is None or begins < first):
            yield replace(each, status=status)


def lookups_to_json(lookups: Iterable[LookupVersion]) -> dict[str, Any]:
    return {lookup.name: lookup.to_dict() for lookup in lookups}


def lookups_from_json(stored: Mapping[str, Any]) -> tuple[LookupVersion, ...]:
    return tuple(LookupVersion.from_dict(name, lookup) for name, lookup in stored.items())


def digest_of(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def processor_of(text: str) -> PatternProcessor:
    """The processor with this :attr:`~PatternProcessor.text`, which was checked when it was accepted."""
    return _PROCESSORS.get(text) or _known(text, from_text(text))


def stored(processor: PatternProcessor) -> PatternProcessor:
    """The object that :func:`processor_of` returns for *processor*."""
    text = processor.text
    return _PROCESSORS.get(text) or _known(text, with_place(processor.as_data(), None))


def _known(text: str, processor: PatternProcessor) -> PatternProcessor:
    with _LOCK:
        return _PROCESSORS.setdefault(text, processor)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for reference cycles less often, because that takes a quarter of the time to read or bind a thousand rules.

    It is not switched off, because the syntax trees of rules are cycles. What was set before is set again when the last thread
    leaves such a block.
    """
    with _LOCK:
        before = gc.get_threshold()
        if not _THRESHOLDS and 0 < before[0] < OBJECTS:
            gc.set_threshold(OBJECTS, *before[1:])
        _THRESHOLDS.append(before)
    try:
        yield
    finally:
        with _LOCK:
            first = _THRESHOLDS[0]
            _THRESHOLDS.pop()
            if not _THRESHOLDS:
                gc.set_threshold(*first)


_LOCK = threading.Lock()
_THRESHOLDS: list[tuple[int, int, int]] = []
"""What each thread that is in a block of :func:`rarely_collected` has found."""
_PROCESSORS: WeakValueDictionary[str, PatternProcessor] = WeakValueDictionary()
"""The processors in use, weakly referenced: the versions of a rule that changes often would otherwise fill the memory."""
_SETS: dict[bytes, ProcessorSet] = {}
_ENTRIES = IdentityCache["Entries"](MAX_ENTRIES)
_CHANGES = IdentityCache["Entries"](MAX_ENTRIES)
"""The entries that follow from entries and a set. If entries referred to them, the first, empty ones would keep all alive."""


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

    def has_expired(self, time: int) -> bool:
        """Whether it has ended at the event time *time* because it has expired."""
        expires = self.processor.effective_until
        return expires is not None and expires == self.end_time and expires <= time

    def to_dict(self) -> dict[str, Any]:
        state = {"since": self.since, "begins": self.begins, "until": self.until, "disabled": self.disabled}
        state["killed"] = self.killed
        return {"processor": self.processor.text, **{k: v for k, v in state.items() if v}}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Entry:
        return cls(
            processor_of(stored["processor"]),
            stored["since"],
            stored.get("begins"),
            stored.get("until"),
            stored.get("disabled", False),
            stored.get("killed", False),
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
    """The entries of a key group. A process has one object for equal ones, which caches what is derived from them."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """The object for these entries. The most recent ones are cached for the lifetime of the process."""
        made = cls(entries)
        return _ENTRIES.of(made, lambda: made)

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
        return tuple([Span(entry.since, entry.first_time, entry.end_time) for entry in self])

    @cached_property
    def suppress(self) -> bool:
        return any(entry.processor.suppress is not None for entry in self)

    @cached_property
    def are_scheduled(self) -> bool:
        """Whether an entry begins at a time, or expires."""
        return any(entry.begins is not None or entry.processor.expires is not None for entry in self)

    @cached_property
    def replaced_later(self) -> Sequence[tuple[str, int]]:
        """The processors (id, version) that are in force until the time of their successor."""
        return sorted((entry.processor.id, entry.processor.version) for entry in self if entry.until is not None)

    @cached_property
    def in_turn(self) -> Sequence[tuple[Entry, Entry]]:
        """:func:`adopted_in_turn`"""
        return adopted_in_turn(self) if self.are_scheduled else []

    @cached_property
    def _end(self) -> bool:
        return any(map(can_end, self))

    def has_expired(self, time: int) -> bool:
        """Whether an entry has ended at the event time *time* because it has expired."""
        return self._end and any(entry.has_expired(time) for entry in self)

    def passed(self, time: int) -> Entries:
        return Entries.of(passed(self, time)) if self._end else self

    def without(self, names: Collection[str]) -> Entries:
        """The entries, of which the named ones (``id`` or ``id@version``) are marked as killed."""
        if not names:
            return self
        return Entries.of(
            entry
            if entry.killed or not is_named(entry.processor, names)
            else replace(entry, disabled=True, killed=True)
            for entry in self
        )

    def depend_on_time(self, new: ProcessorSet) -> bool:
        """Whether the entries after the set *new* depend on the event time at which it arrives."""
        return (
            self.are_scheduled
            or self._end
            or any(processor.timestamp or processor.expires for processor in new.all_processors)
        )

    def after(self, new: ProcessorSet, horizon: int) -> Entries:
        """:func:`updated`, without those that the set has killed."""
        since = horizon if self.depend_on_time(new) else None
        return _CHANGES.of([self, new], lambda: Entries.of(updated(self, new, horizon)).without(new.killed), since)


def updated(entries: Iterable[Entry], new: ProcessorSet, horizon: int) -> list[Entry]:
    """The entries after a set has arrived, in the order of the set, at the event time *horizon* (microseconds).

    A set is complete. Of the previous entries, it keeps those that it contains, and those that are in force until the time of
    a successor that it contains. All of this holds for the processors and for their shadows, independently of each other.

    * A processor that is in force, or whose time is in the future, is kept with its partial matches, with its new labels and
      *expires*.
    * A processor without a timestamp, or whose time has passed, immediately replaces the processor with its id.
    * A processor whose time is in the future is added. The one in force stays until then, and so do those that wait for an
      earlier time: all come into force in turn.
    * A processor whose time is in the future, and that the set does not have, is removed; it was never in force.
    * A processor that has expired is removed. If it is later extended, it begins anew.
    * A processor that was removed and added again begins anew, even if both happened between two micro-batches.
    * A shadow that is not a shadow any more is kept with its partial matches, and replaces the processor as any other version
      would. The same holds in the other direction.
    """
    before: dict[str, list[Entry]] = {}
    for entry in passed(entries, horizon):
        before.setdefault(entry.processor.id, []).append(entry)
    by_id: dict[str, list[EarlierVersion]] = {}
    for added, processor in new.numbered:
        by_id.setdefault(processor.id, []).append(EarlierVersion(added, processor, LISTED))
    earlier = by_slot(new.earlier)
    after: list[Entry] = []
    for id, versions in by_id.items():
        free = before.get(id, [])
        for last in sorted(versions, key=lambda version: version.processor.shadow):
            in_turn = [*earlier.get(last.slot, ()), last]
            of_slot = [e for e in free if e.processor.shadow == last.processor.shadow and e.first_time <= horizon]
            for version in _from(in_turn, of_slot, horizon):
                of_slot = _with_new(version, of_slot, free, new.version, horizon)
            after += of_slot
            names = {entry.name for entry in of_slot}
            free = [entry for entry in free if entry.name not in names]
    return passed(after, horizon)


def _from(in_turn: Sequence[EarlierVersion], in_force: Sequence[Entry], horizon: int) -> list[EarlierVersion]:
    """The versions of a slot that are in force or will be, given the entries *in_force*, which end when the next one begins."""
    first = 0
    for number, version in enumerate(in_turn):
        if _begins(version.processor) <= horizon:
            if version.status != WITHDRAWN:
                first = number
            elif any(_is_of(entry, version) for entry in in_force):
                first = number + 1
    return [version for version in in_turn[first:] if version.status != WITHDRAWN]


def _is_of(entry: Entry, version: EarlierVersion) -> bool:
    """Whether an entry is that of a version, which has not been removed and added again since then."""
    return entry.since >= version.added and entry.processor.has_definition_of(version.processor)


def _begins(processor: PatternProcessor) -> int:
    return BEFORE_TIME if processor.effective_from is None else processor.effective_from


def _with_new(
    new: EarlierVersion, of_slot: Sequence[Entry], free: Sequence[Entry], number: int, horizon: int
) -> list[Entry]:
    """The entries of a slot with a version that comes after them, in the order of their times.

    :param of_slot: the entries of the slot that are in force, or come before the version
    :param free: the entries of its id before the set. The version may continue an entry among them, even if it has become a
        shadow or is no longer one.
    :param number: the number of the set
    """
    same = next((entry for entry in (*of_slot, *free) if _is_of(entry, new)), None)
    if same is None:
        entry = Entry(new.processor, number, new.processor.effective_from)
    else:
        # With its labels and *expires* as the newest set has them, as a shadow or not.
        same_now = same if same.processor is new.processor else replace(same, processor=new.processor)
        entry = _until(None, same_now)
    if entry.first_time <= horizon:
        return [entry]
    earlier = [other for other in of_slot if other is not same and other.first_time < entry.first_time]
    return [*earlier[:-1], *(_until(entry.begins, other) for other in earlier[-1:]), entry]


def _until(time: int | None, entry: Entry) -> Entry:
    return entry if entry.until == time else replace(entry, until=time)


def adopted_at_once(before: Iterable[Entry], after: Iterable[Entry], time: int) -> list[tuple[Entry, Entry]]:
    """The entries that a set has brought into force at the event time *time* and that adopt the partial matches of another one,
    with this one. It ends then, or it is in force and the new one is its shadow.

    :param before, after: the entries before and after the set
    """
    former = [entry for entry in before if entry.first_time <= time and not entry.disabled]
    known = {entry.name for entry in former}
    pairs = []
    for new in after:
        if new.processor.adopt is None or new.name in known or new.first_time > time or new.disabled:
            continue
        of_id = [entry for entry in former if entry.processor.id == new.processor.id and _adopts(new, entry)]
        same = [entry for entry in of_id if entry.processor.shadow == new.processor.shadow]
        pairs += [(new, old) for old in (same or (of_id if new.processor.shadow else []))[:1]]
    return pairs


def adopted_in_turn(entries: Iterable[Entry]) -> list[tuple[Entry, Entry]]:
    """The entries that come into force at a time, and adopt the partial matches of the one that ends then, with this one."""
    ends = {(entry.processor.slot, entry.end_time): entry for entry in entries if entry.until is not None}
    pairs = []
    for new in entries:
        old = ends.get((new.processor.slot, new.first_time))
        if old is not None and not (old.disabled or new.disabled) and _adopts(new, old):
            pairs.append((new, old))
    return pairs


def _adopts(new: Entry, old: Entry) -> bool:
    return new.processor.adopt in (ANY_VERSION, old.processor.version)


def passed(entries: Iterable[Entry], time: int) -> list[Entry]:
    """The entries that have not ended at the event time *time*."""
    return [entry for entry in entries if not can_end(entry) or entry.end_time > time]


def can_end(entry: Entry) -> bool:
    """Whether there is a time at which an entry ends."""
    return entry.until is not None or entry.processor.expires is not None
