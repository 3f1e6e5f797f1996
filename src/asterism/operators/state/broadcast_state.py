"""Broadcast state in the state of a key group: an index, and parts that are written only if they change.

Every key group has the same broadcast state. A process therefore decodes and encodes each version of it once, however many key
groups it runs: the index has a digest of each part, and identifies the version. A key group that finds its version decoded in its
process reads nothing but the index.

A part has some thousand consecutive entries. Where a part of a map ends depends on the entries themselves, so that an entry that
is added or removed changes one part, and does not move the entries of the parts after it.

See docs/decisions/0055 and 0100.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.caches import keep, recent
from asterism.columns.arrays import Ints
from asterism.operators.state.keyed_state import NAME, StateEntries, StateKind, StateSpec, StateTable
from asterism.operators.state.page_numbers import PageKind
from asterism.operators.state.state_store import (
    BODY,
    Record,
    StateStore,
    batch_from_bytes,
    batch_to_bytes,
    kind_of,
    layout_of,
    record_of,
    tables_from_bytes,
)

PART = 1024
"""The mean number of entries of a part."""
_LARGEST_PART = 8 * PART
_VERSIONS = 4
"""The number of versions that a process keeps: of several operators, or before and after a change."""
_DIGEST = 16


@dataclass(slots=True)
class _Version:
    """A version of the broadcast state.

    :ivar index: for each state its parts, each with the number of its page and its digest
    :ivar entries: for each state that was read its entries: an Entry or None, a list or a dict of them. Never changed.
    :ivar parts: the bytes of parts by digest, if this process has encoded them
    """

    index: dict[str, list[tuple[int, bytes]]]
    entries: dict[str, Any] = field(default_factory=dict)
    parts: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def pages(self) -> dict[int, bytes]:
        """The pages of all parts, with their digests."""
        return dict(part for parts in self.index.values() for part in parts)

    def to_bytes(self) -> bytes:
        index = {name: [[page, digest.hex()] for page, digest in parts] for name, parts in self.index.items()}
        return record_of(Record.BROADCAST, json.dumps(index).encode())

    @classmethod
    def from_bytes(cls, value: bytes, names: Iterable[str]) -> _Version:
        """The version without states that are not among *names*."""
        layout_of(value, Record.BROADCAST)
        index = json.loads(value[BODY:])
        return cls({name: [(page, bytes.fromhex(digest)) for page, digest in index.get(name, ())] for name in names})


def parts_in(index: bytes, name: str) -> list[int]:
    """The pages of the parts of a state, in order. Those of a list have PART entries each, but for the last one."""
    return [page for page, _ in _Version.from_bytes(index, [name]).index[name]]


_known: dict[tuple[tuple[StateSpec, ...], bytes], _Version] = {}
"""The last versions of this process, by the states and the stored index."""


_UNREAD = object()


class BroadcastEntries(StateEntries):
    """A broadcast state. Its entries are shared by key groups, and copied before the first change."""

    def __init__(self, spec: StateSpec, state: BroadcastState) -> None:
        super().__init__(spec)
        self._state = state
        self.is_changed, self._is_shared = False, True
        self._entries: Any = _UNREAD

    def entries(self, key: int) -> Any:
        if self._entries is _UNREAD:
            self._entries = self._state.shared(self.spec)
        return self._entries

    def replace(self, key: int, entries: Any) -> None:
        self.is_changed, self._is_shared, self._entries = True, False, entries

    def share(self, entries: Any) -> None:
        """Replace the entries by some that other key groups have, too."""
        self.is_changed, self._is_shared, self._entries = True, True, entries

    def begin_change(self) -> None:
        if self._is_shared:
            shared = self.entries(0)
            self.replace(0, shared if self.spec.kind is StateKind.VALUE else shared.copy())


class BroadcastState:
    """The broadcast states of a key group in one call.

    :param page: the page of the index
    """

    def __init__(self, store: StateStore, page: int, specs: Mapping[str, StateSpec]) -> None:
        self._store, self._page, self._specs = store, page, specs
        self._stored = store.read_page(page) if specs else None
        self._key = tuple(specs.values())
        self._earlier = self._stored is not None and kind_of(self._stored) == Record.TABLES
        if self._stored is None or self._earlier:
            self._version = _Version({name: [] for name in specs})
        else:
            key = self._key, self._stored
            known = recent(_known, key)
            self._version = known or keep(_known, _VERSIONS, key, _Version.from_bytes(self._stored, specs))
        self.tables = {name: BroadcastEntries(spec, self) for name, spec in specs.items()}
        if self._earlier:
            # The state of release 0.1.0 is one page with all tables.
            assert self._stored is not None
            rows = tables_from_bytes(self._stored, [spec.schema for spec in specs.values()])
            for table, rows_of_state in zip(self.tables.values(), rows, strict=True):
                table.replace(0, _entries_of(table.spec, [rows_of_state]))

    def shared(self, spec: StateSpec) -> Any:
        """The entries of a state as they were at the beginning of the call."""
        entries = self._version.entries
        if spec.name not in entries:
            parts = [self._store.read_page(page) for page, _ in self._version.index[spec.name]]
            entries[spec.name] = _entries_of(
                spec, [batch_from_bytes(part, spec.schema) for part in parts if part is not None]
            )
        return entries[spec.name]

    @property
    def index(self) -> bytes | None:
        """Identifies the state at the beginning of the call."""
        return self._stored

    def changes(self) -> dict[str, Any]:
        """The entries of the states that have changed, to be shared with other key groups."""
        changed = {name: table.entries(0) for name, table in self.tables.items() if table.is_changed}
        self.take_over(changed)
        return changed

    def take_over(self, entries: Mapping[str, Any]) -> None:
        for name, shared in entries.items():
            self.tables[name].share(shared)

    def write(self, *, over: bool) -> None:
        """Write what has changed. *over*: no state remains."""
        if over:
            self._replace(None)
        elif any(table.is_changed for table in self.tables.values()):
            self._replace(self._changed())

    def _changed(self) -> _Version | None:
        """The version with the current entries; None if there are none."""
        entries = {name: table.entries(0) for name, table in self.tables.items() if table.is_changed}
        versions = [version for (key, _), version in reversed(_known.items()) if key == self._key]
        same = next((version for version in versions if _are_in(version, entries, self._version)), None)
        if same is not None:
            # The next key group that takes over these entries finds the same objects, and need not compare them.
            same.entries |= entries
            return same
        old = self._version
        taken = old.pages
        free = PageKind.BROADCAST_PART.free(taken)
        version = _Version({}, old.entries | entries)
        for name, spec in self._specs.items():
            if name not in entries:
                version.index[name] = old.index[name]
                continue
            pages = {digest: page for page, digest in old.index[name]}
            version.index[name] = []
            for part in _parts_of(spec, entries[name]):
                digest = hashlib.blake2b(part, digest_size=_DIGEST).digest()
                version.parts[digest] = part
                page = pages.pop(digest, None)
                version.index[name].append((next(free) if page is None else page, digest))
        return version if any(version.index.values()) else None

    def _replace(self, version: _Version | None) -> None:
        index = None if version is None else version.to_bytes()
        if index == self._stored:
            return
        before, after = self._version.pages, {} if version is None else version.pages
        for page in before.keys() - after.keys():
            self._store.write_page(page, None)
        for page, digest in after.items():
            if before.get(page) != digest:
                assert version is not None
                self._store.write_page(page, version.parts[digest])
        self._store.write_page(self._page, index)
        if version is not None and index is not None:
            _known.pop((self._key, index), None)
            keep(_known, _VERSIONS, (self._key, index), version)


def pages_of_entries(entries: Mapping[str, pa.Table]) -> tuple[bytes, dict[int, bytes]]:
    """The index and the pages of parts of broadcast states that were not stored before.

    :param entries: for each state its entries, in order, with the schema of the state
    """
    free = PageKind.BROADCAST_PART.free(())
    version = _Version({})
    pages: dict[int, bytes] = {}
    for name, rows in entries.items():
        version.index[name] = []
        for part in _divided(rows):
            page = next(free)
            pages[page] = part
            version.index[name].append((page, hashlib.blake2b(part, digest_size=_DIGEST).digest()))
    return version.to_bytes(), pages


def _are_in(version: _Version, entries: Mapping[str, Any], before: _Version) -> bool:
    """Whether *version* is the one before with these *entries*, encoded by this process, and from the same version."""
    return all(
        name in version.entries
        and (_same(version.entries[name], entries[name]) if name in entries else version.index[name] == parts)
        and all(digest in version.parts or (page, digest) in parts for page, digest in version.index[name])
        for name, parts in before.index.items()
    )


def _same(left: Any, right: Any) -> bool:
    """Whether the entries of a state are the same, in the same order."""
    if left is right:
        return True
    if isinstance(left, dict):
        return len(left) == len(right) and _alike(left, right) and _alike(left.values(), right.values())
    if isinstance(left, list):
        return len(left) == len(right) and _alike(left, right)
    return _alike([left], [right])


def _alike(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Compare by representation, which distinguishes 0.0 from -0.0, and only what is not the same object."""
    return all(repr(a) == repr(b) for a, b in zip(some, others, strict=True) if a is not b)


def _entries_of(spec: StateSpec, parts: Sequence[pa.Table]) -> Any:
    return StateTable(spec, pa.concat_tables([spec.schema.empty_table(), *parts])).entries(0)


def _parts_of(spec: StateSpec, entries: Any) -> list[bytes]:
    table = StateTable(spec, spec.schema.empty_table())
    table.replace(0, entries)
    return _divided(table.settle(0))


def _divided(rows: pa.Table) -> list[bytes]:
    """The entries of a state in parts."""
    cuts = _cuts(rows.column(NAME) if NAME in rows.column_names else None, rows.num_rows)
    return [batch_to_bytes(rows.slice(begin, end - begin)) for begin, end in itertools.pairwise(cuts)]


def _cuts(names: pa.ChunkedArray | None, count: int) -> list[int]:
    """Where the parts begin, followed by the end of the last one."""
    if count <= PART:
        return [0, count] if count else [0]
    if names is None:
        return [*range(0, count, PART), count]
    # Compiled code is loaded only if it is needed.
    from asterism.columns.hashing import hash_keys

    ends: Ints = np.flatnonzero(hash_keys(pa.table({NAME: names})) % np.uint64(PART) == 0) + 1
    cuts = [0]
    for end in [*ends.tolist(), count]:
        cuts += range(cuts[-1] + _LARGEST_PART, end, _LARGEST_PART)
        if end > cuts[-1]:
            cuts.append(end)
    return cuts
