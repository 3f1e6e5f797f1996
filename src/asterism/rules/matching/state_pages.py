"""The state of the rules of a key group, as pages: the entries, the partial matches, and the processors with a clause."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.caches import IdentityCache, keep, recent
from asterism.changes.plan import Counts
from asterism.columns.time import BEFORE_TIME, TIME
from asterism.matching.page import DecodedPage, PackedPage, Page, together
from asterism.operators.state.pages import Pages
from asterism.rules.definition.lookup_tables import LookupVersion
from asterism.rules.definition.processor import RuleName
from asterism.rules.matching.active_rules import ActiveRules
from asterism.rules.matching.adoption import Adoption, adopted
from asterism.rules.matching.selections import ENTRY, KEYS
from asterism.rules.sets.sets import (
    MAX_SETS,
    Entries,
    Entry,
    ProcessorSet,
    lookups_from_json,
    lookups_to_json,
)

SET_SCHEMA = pa.schema([(TIME, pa.int64()), ("set", pa.binary())])
"""The schema of :func:`prepared_set`."""


class KnownSelector(NamedTuple):
    """A selector of which every event that may wait has a copy.

    :param since: the number of the first set for which this holds
    :param until: the latest event time, in microseconds, of the events that had arrived before this set. Later events have a
        copy, whenever they arrive; of those until then, some may have none, so the rules of the selector see none of them.
    """

    number: int
    since: int
    until: int = BEFORE_TIME


class SetState(NamedTuple):
    """The number of the newest set, the entries, the lookups of that set, and the selectors of which every event that may wait
    has a copy; None in the state of an earlier release. *waiting_time* is the longest of the operator, of all runs.
    """

    version: int
    entries: Entries
    lookups: tuple[LookupVersion, ...] = ()
    selectors: tuple[KnownSelector, ...] | None = None
    waiting_time: int = 0


NO_SETS = SetState(0, Entries.of(()))
_LENGTH = struct.Struct("<I")


def prepared_set(stored: bytes) -> pa.Table:
    """A stored set as an element of the broadcast input, compressed to about a tenth, because rules are similar."""
    return pa.table([[BEFORE_TIME], [zlib.compress(stored)]], schema=SET_SCHEMA)


# Key groups have the same sets and mostly the same entries, so that a process writes and reads each only once.
@lru_cache(maxsize=MAX_SETS)
def set_from(value: bytes) -> ProcessorSet:
    return ProcessorSet.from_bytes(zlib.decompress(value))


_DECODED: dict[bytes, SetState] = {}
_ENCODED = IdentityCache[bytes](MAX_SETS)


def _decoded(value: bytes) -> SetState:
    return sets_from_json(json.loads(zlib.decompress(value)))


def sets_from_json(stored: Mapping[str, Any]) -> SetState:
    """The result of :func:`sets_to_json`."""
    entries = Entries.of(Entry.from_dict(entry) for entry in stored["entries"])
    selectors = stored.get("selectors")
    return SetState(
        stored["version"],
        entries,
        lookups_from_json(stored.get("lookups", {})),
        None if selectors is None else tuple(KnownSelector(*each) for each in selectors),
        stored.get("waiting_time", 0),
    )


def entries_of_page(value: bytes | None) -> SetState:
    """The result of :func:`entries_to`; empty if the state has no such page."""
    if value is None:
        return NO_SETS
    return recent(_DECODED, value) or keep(_DECODED, MAX_SETS, value, _decoded(value))


def entries_to(state: SetState) -> bytes:
    rest = state.version, state.lookups, state.selectors, state.waiting_time
    return _ENCODED.of([state.entries], lambda: _encoded(state), *rest)


def sets_to_json(state: SetState) -> dict[str, Any]:
    document: dict[str, Any] = {"version": state.version, "entries": [entry.to_dict() for entry in state.entries]}
    if state.lookups:
        document["lookups"] = lookups_to_json(state.lookups)
    if state.selectors is not None:
        document["selectors"] = [each if each.until > BEFORE_TIME else each[:2] for each in state.selectors]
    if state.waiting_time:
        document["waiting_time"] = state.waiting_time
    return document


def _encoded(state: SetState) -> bytes:
    value = zlib.compress(json.dumps(sets_to_json(state), ensure_ascii=False, separators=(",", ":")).encode())
    keep(_DECODED, MAX_SETS, value, state)
    return value


def page_to(in_force: ActiveRules, page: Page) -> bytes:
    """Write a page, preceded by the names of the processors to which the indexes in its keys refer."""
    used, place = np.unique(page.keys.column(ENTRY).to_numpy(), return_inverse=True)
    names = in_force.names_of(used)
    page = replace(page, keys=page.keys.set_column(0, ENTRY, pa.array(place.astype(np.int32)))) if len(used) else page
    return named_page(names, page)


def named_page(names: bytes, page: Page) -> bytes:
    """A page whose keys have indexes of *names*, a list in JSON."""
    return _named(names, page.to_bytes() if page.keys.num_rows else b"")


def _named(names: bytes, content: bytes) -> bytes:
    return b"".join([_LENGTH.pack(len(names)), names, content])


def joined(
    pages: Pages,
    in_force: ActiveRules,
    event_schema: pa.Schema,
    adoptions: Sequence[Adoption] = (),
    counts: dict[RuleName, Counts] | None = None,
) -> Page:
    """The keys of all pages that were read, with indexes of the processors with a pattern, and without the keys of others.

    :param counts: receives what became of the partial matches that were adopted
    """
    made: dict[RuleName, Counts] = {} if counts is None else counts
    decoded = [
        _page_from(value, in_force, event_schema, adoptions, made) for value in pages.stored if value is not None
    ]
    return together(decoded or [Page.empty(KEYS, event_schema)])


class ResidentRulePage:
    """A page of the rules that are *in_force*, to whose numbers its keys refer, as it stays in the memory of a live engine."""

    __slots__ = ("content", "in_force")

    def __init__(self, in_force: ActiveRules, content: PackedPage | DecodedPage) -> None:
        self.in_force, self.content = in_force, content

    def __len__(self) -> int:
        return len(self.content)

    def to_bytes(self) -> bytes:
        if isinstance(self.content, DecodedPage):
            return page_to(self.in_force, self.content.page)
        from asterism.rules.binding.kernels import ranked

        keys = self.content.keys
        used, place = ranked(keys.column(0).to_numpy())
        keys = pa.RecordBatch.from_arrays([pa.array(place), keys.column(1)], schema=KEYS)
        return _named(self.in_force.names_of(used), self.content.stored_with(keys))


def _page_from(
    value: bytes | ResidentRulePage,
    in_force: ActiveRules,
    event_schema: pa.Schema,
    adoptions: Sequence[Adoption],
    counts: dict[RuleName, Counts],
) -> Page | PackedPage:
    if isinstance(value, ResidentRulePage):
        if value.in_force is in_force:
            return value.content if isinstance(value.content, PackedPage) else value.content.page
        value = value.to_bytes()
    from asterism.matching.kernels import rows_of_keys

    names, content = names_of_page(value)
    if not content:
        return Page.empty(KEYS, event_schema)
    page = Page.from_bytes(content, KEYS, event_schema)
    names, page = adopted(names, page, adoptions, counts)
    entry_of_key = in_force.numbers_of(names).astype(np.int32)[page.keys.column(ENTRY).to_numpy()]
    live = entry_of_key >= 0
    keys = page.keys.set_column(0, ENTRY, pa.array(entry_of_key)).filter(pa.array(live))
    return replace(page, keys=keys, rows=rows_of_keys(page.rows, np.flatnonzero(live)))


def names_of_page(value: bytes) -> tuple[list[RuleName], bytes]:
    """The processors to which the indexes in the keys of a page refer, and the page; no bytes if it has no keys."""
    names, content = page_parts(value)
    return [(name, version, since) for name, version, since in json.loads(names[_LENGTH.size :])], content


def page_parts(value: bytes) -> tuple[bytes, bytes]:
    """The names of the processors with which a page begins, as they are stored, and the rest."""
    (length,) = _LENGTH.unpack_from(value)
    begin = _LENGTH.size + length
    return value[:begin], value[begin:]


# ---------------------------------------------------------------------- processors with a clause


@dataclass(frozen=True, slots=True)
class ClauseState:
    """The remaining state of a processor with a clause, and its next deadline.

    :param waiting: the number of rows of undecided matches; 0 in the state of an earlier release, which did not count them
    """

    name: RuleName
    value: bytes
    deadline: int
    waiting: int = 0


def clauses_to(states: Sequence[ClauseState]) -> bytes:
    """Write the states, preceded by the name, the deadline, the size and the waiting rows of each."""
    heads = [[state.name, state.deadline, len(state.value), state.waiting] for state in states]
    head = json.dumps(heads, ensure_ascii=False).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *(state.value for state in states)])


def clauses_from(value: bytes | None) -> dict[RuleName, ClauseState]:
    """Read the result of :func:`clauses_to`."""
    states: dict[RuleName, ClauseState] = {}
    if value is None:
        return states
    (length,) = _LENGTH.unpack_from(value)
    at = _LENGTH.size + length
    for (id_, version, since), deadline, size, *waiting in json.loads(value[_LENGTH.size : at]):
        name = (id_, version, since)
        states[name] = ClauseState(name, value[at : at + size], deadline, *waiting)
        at += size
    return states
