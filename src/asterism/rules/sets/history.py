"""The history of a query's pattern processors: what changed, when, from where, by whom, and what was refused.

The coordinator appends an entry for each change to files in the query's store. The oldest files are removed when there are too
many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from asterism.rules.definition.processor import PatternProcessor, by_slot
from asterism.rules.sets.discovery_status import EXPIRED, KILLED, now_text
from asterism.rules.sets.interfaces import promoted_item
from asterism.rules.sets.kill_list import is_name_of, name_for

ADDED, REPLACED, REMOVED = "added", "replaced", "removed"
PROMOTED = "promoted"
"""From a shadow to the version in force."""
CHANGED = "changed"
"""The labels or *expires* of a version."""
ADMITTED = "admitted"
"""Removed from the kill list."""
LOOKED_UP = "lookup"
"""New rows of a lookup."""
MAX_FILE = 256_000
"""The size in bytes at which another file is begun, because a file is rewritten for each change."""
MAX_FILES = 200
MAX_DEFINITION = 100_000
"""Characters; longer definitions are left out."""
MAX_TEXT = 1_000
"""Maximum number of characters of a reason or a place."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What happened to one processor.

    :param time: when the query did it (ISO 8601, UTC)
    :param set: the number of the newest set of the query at that time
    :param what: added, replaced, promoted, removed, changed, refused, killed, admitted or expired; lookup: a lookup has new rows
    :param id: the id of the processor; of a kill list, the name: ``id`` or ``id@version``; or the name of the lookup
    :param version: its version afterwards, or the refused one
    :param before: its version before
    :param by: who made the change, if the source records it
    :param place: where the processor was found
    :param reason: why it was refused or killed, or what has changed
    :param definition: the JSON form of a version that was added, unless it is too long
    :param shadow: whether it is the shadow of the processor
    """

    time: str
    set: int
    what: str
    id: str
    version: int | None = None
    before: int | None = None
    by: str | None = None
    place: str | None = None
    reason: str | None = None
    definition: str | None = None
    shadow: bool = False

    @property
    def name(self) -> str:
        """The name as in a refusal: the id, or for a shadow ``id@version``."""
        return name_for(self.id, self.version if self.shadow else None)

    def is_about(self, id: str) -> bool:
        """Whether the entry is about the processor *id*."""
        return is_name_of(self.id, id) if self.what in (KILLED, ADMITTED) else self.id == id

    def __str__(self) -> str:
        """
        >>> print(HistoryEntry("2026-01-31T12:00:00+00:00", 4, REPLACED, "burst", 2, 1))
        burst replaced, version 1 -> 2, accepted
        """
        subject = f"shadow of {self.id}" if self.shadow else self.id
        if self.what in (ADDED, REPLACED, PROMOTED, REMOVED):
            versions = " -> ".join("-" if number is None else str(number) for number in (self.before, self.version))
            return f"{subject} {self.what}, version {versions}, accepted"
        if self.what == CHANGED:
            return f"{subject} {self.reason}, version {self.version} continues"
        if self.what == KILLED:
            return f"{self.id} killed: {self.reason}"
        if self.what == ADMITTED:
            return f"{self.id} no longer killed"
        if self.what == LOOKED_UP:
            return f"lookup {self.id}: {self.reason}"
        version = "" if self.version is None else f" version {self.version}"
        return f"{subject}{version} has {self.what}" if self.what == EXPIRED else f"{subject}{version} {self.what}"

    def to_dict(self) -> dict[str, Any]:
        """The fields without those that are None or false."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}

    @classmethod
    def from_dict(cls, stored: Any) -> HistoryEntry:
        """:raises ValueError: the value was not written by :meth:`to_dict`"""
        if not isinstance(stored, dict):
            raise ValueError("an entry is not an object")
        known = {name: stored[name] for name in _KINDS if name in stored}
        for name, value in known.items():
            if type(value) is not _KINDS[name]:
                raise ValueError(f"{name} has the invalid value {value!r:.60}")
        if not known.keys() >= {"time", "set", "what", "id"}:
            raise ValueError("an entry has no time, set, what or id")
        return cls(**known)


_KINDS: dict[str, type] = {
    **{each.name: int if each.name in ("set", "version", "before") else str for each in fields(HistoryEntry)},
    "shadow": bool,
}


def changes(
    number: int, before: Sequence[PatternProcessor], after: Sequence[PatternProcessor]
) -> Iterator[HistoryEntry]:
    """The entries of a set with *after* instead of *before*, both in the order in which versions of a rule come into force."""
    now = now_text()
    was, now_are = by_slot(before), by_slot(after)
    versions = {id: in_slot[-1].version for (id, shadow), in_slot in now_are.items() if not shadow}
    promoted = {id for (id, shadow), in_slot in was.items() if shadow and versions.get(id) == in_slot[-1].version}

    def brought(what: str, new: PatternProcessor, old: PatternProcessor | None = None) -> HistoryEntry:
        return HistoryEntry(
            now, number, what, new.id, new.version, None if old is None else old.version, new.changed_by, _place(new),
            definition=new.text if len(new.text) <= MAX_DEFINITION else None, shadow=new.shadow,
        )  # fmt: skip

    for slot in [*now_are, *(slot for slot in was if slot not in now_are)]:
        id, shadow = slot
        had, has = was.get(slot, []), now_are.get(slot, [])
        known, kept = {processor.version: processor for processor in had}, {processor.version for processor in has}
        for old in had if not has else had[:-1]:
            if old.version not in kept and not (shadow and id in promoted):
                yield HistoryEntry(now, number, REMOVED, id, before=old.version, shadow=shadow)
        for new in has:
            if had and new is has[-1] and new.version != had[-1].version:
                yield brought(PROMOTED if id in promoted and not shadow else REPLACED, new, had[-1])
            elif new.version not in known:
                yield brought(PROMOTED if id in promoted and not shadow and new is has[-1] else ADDED, new)
            else:
                for reason in _reasons(known[new.version], new):
                    yield HistoryEntry(
                        now, number, CHANGED, id, new.version, new.version, new.changed_by, _place(new), reason,
                        shadow=shadow,
                    )  # fmt: skip


def _place(processor: PatternProcessor) -> str | None:
    return None if processor.place is None else processor.place[:MAX_TEXT]


def _reasons(old: PatternProcessor, new: PatternProcessor) -> Iterator[str]:
    if old.labels != new.labels:
        yield "has other labels"
    if old.expires != new.expires:
        yield "no longer expires" if new.expires is None else f"expires at {new.expires.isoformat()}"


def item_of_version(entries: Iterable[HistoryEntry], id: str, version: int) -> dict[str, Any] | None:
    """The JSON form with which a version last came into a set, as a rule that is not a shadow; None: it is not in *entries*,
    of which the oldest are the first.
    """
    definitions = [
        entry.definition
        for entry in entries
        if entry.id == id and entry.version == version and entry.definition is not None
    ]
    return promoted_item(json.loads(definitions[-1])) if definitions else None


class HistoryStore(Protocol):
    def history_numbers(self) -> list[int]: ...

    def read_history(self, number: int) -> bytes | None: ...

    def write_history(self, number: int, value: bytes) -> None: ...

    def remove_history(self, number: int) -> None: ...


class History:
    """The history in a query's store. Only the coordinator appends to it."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._number: int | None = None
        """The number of the last file."""
        self._last = b""
        """The content of the last file."""

    def append(self, entries: Iterable[HistoryEntry]) -> None:
        """:raises OSError, NotWrittenError: the files cannot be written; some of the entries may have been"""
        number, text = self._opened()
        if text and not text.endswith(b"\n"):
            text += b"\n"  # of a file that was not written completely
        for entry in entries:
            line = json.dumps(entry.to_dict(), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
            if text and len(text) + len(line) > MAX_FILE:
                self._write(number, text)
                number, text = number + 1, b""
            text += line
        self._write(number, text)

    def _opened(self) -> tuple[int, bytes]:
        """The number and the content of the last file, which is read once."""
        if self._number is None:
            numbers = self._store.history_numbers()
            number = numbers[-1] if numbers else 1
            self._last = self._store.read_history(number) or b""
            self._number = number
        return self._number, self._last

    def _write(self, number: int, text: bytes) -> None:
        if (number, text) == (self._number, self._last):
            return
        self._store.write_history(number, text)
        if number != self._number and number > MAX_FILES:
            self._store.remove_history(number - MAX_FILES)
        self._number, self._last = number, text

    def entries(self) -> Iterator[HistoryEntry]:
        """All entries, the oldest first. Lines that cannot be read are left out."""
        for number in self._store.history_numbers():
            yield from _entries_in(self._store.read_history(number) or b"")

    def last_entries(self) -> Sequence[HistoryEntry]:
        return list(_entries_in(self._opened()[1]))


def _entries_in(text: bytes) -> Iterator[HistoryEntry]:
    for line in text.splitlines():
        try:
            yield HistoryEntry.from_dict(json.loads(line))
        except (ValueError, RecursionError):
            continue
