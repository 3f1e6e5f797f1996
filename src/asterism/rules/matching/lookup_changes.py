"""What has changed in the lookups of a query that is started again from its checkpoint, and which rules are affected.

A rule that is in force, or waits for its time, continues with the values that it has read. So a lookup can change in everything
that no such rule reads: see docs/decisions/0075-lookups-that-change.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.caches import IdentityCache
from asterism.columns.arrays import Ints
from asterism.errors import AsterismError, CheckpointMismatchError
from asterism.expressions.types import name_of
from asterism.operators.evolution import mismatch
from asterism.rules.binding.binding import BoundClauseProcessor, ProcessorCompiler
from asterism.rules.definition.lookup_tables import LookupColumn
from asterism.rules.definition.processor import PatternProcessor, RuleName
from asterism.rules.sets.sets import Entries

MAX_SHOWN = 10
"""Rules that a message names."""
MAX_CONVERSIONS = 4
_NAME = attrgetter("name")
_SQL_FIELDS = ("pattern", "sql", "select")
"""The fields of a rule in which it can read a lookup."""
_AGAIN = "; or undo this change"
_REPLACE = (
    "give the changed lookup another name, and keep this one until the query uses new versions of these rules" + _AGAIN
)


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a lookup, or of a *column* of it (None: of all). It affects rules that read it, or that define its name."""

    lookup: LookupColumn
    what: str
    column: str | None = None
    detail: str = ""
    remedy: str = _REPLACE


def _changes(former: Sequence[LookupColumn], now: Mapping[str, LookupColumn]) -> Iterator[_Change]:
    """:param former: a key without columns is unknown and is not compared"""
    for old in former:
        new = now.get(old.name)
        if new is None:
            remedy = "keep it until the query uses versions of these rules that do not read it, or has none of them"
            yield _Change(old, f"the lookup {old.name} was removed", remedy=remedy + _AGAIN)
            continue
        if old.key and old.key != new.key:
            keys = f"Was: {', '.join(old.key)}\nIs:  {', '.join(new.key)}\n"
            yield _Change(old, f"the key of the lookup {old.name} changed", detail=keys)
        for field in old.schema:
            column = f"the column {field.name!r:.100} of the lookup {old.name}"
            if field.name not in new.schema.names:
                yield _Change(old, f"{column} was removed", field.name)
            elif new.schema.field(field.name).type != field.type:
                types = f"from {name_of(field.type)} to {name_of(new.schema.field(field.name).type)}"
                yield _Change(old, f"{column} changed its type {types}", field.name)


def check_lookups(
    processors: Iterable[PatternProcessor], former: Sequence[LookupColumn], compiler: ProcessorCompiler
) -> None:
    """:raises CheckpointMismatchError: something has changed that a processor with the lookups *former* reads"""
    names = {lookup.name for lookup in former}
    changes = list(_changes(former, compiler.lookups))
    added = [lookup for name, lookup in compiler.lookups.items() if name not in names]
    if not changes and not added:
        return
    known = list(dict.fromkeys(processors))
    for change in changes:
        readers = [processor for processor in known if _reads(processor, change, former, compiler)]
        if readers:
            raise mismatch(f"{change.what}, and rules read it", change.detail + _listed(readers), change.remedy)
    for lookup in added:
        others = [
            processor
            for processor in known
            if _mentions(processor, lookup)
            and _binds(processor, former, compiler)
            and not _binds(processor, sorted([*former, lookup], key=_NAME), compiler)
        ]
        if others:
            what = f"there is a new lookup {lookup.name}, and rules have this name for something else"
            raise mismatch(what, _listed(others), "give the lookup another name")


def unusable_rules(processors: Sequence[PatternProcessor], error: AsterismError) -> CheckpointMismatchError:
    """The error if active rules cannot be used with the changed query. *error*: the error of one of them"""
    what = "rules that are in force cannot be used with this query"
    remedy = "undo the change of the query, and change or remove the rules before"
    return mismatch(what, f"{_listed(processors)}\n{error.message}", remedy)


def _listed(processors: Sequence[PatternProcessor]) -> str:
    names = [f"{processor.id} version {processor.version}" for processor in processors]
    more = f" and {len(names) - MAX_SHOWN:,} more" if len(names) > MAX_SHOWN else ""
    return f"Rules: {', '.join(names[:MAX_SHOWN])}{more}"


def _mentions(processor: PatternProcessor, lookup: LookupColumn) -> bool:
    return lookup.name.lower() in processor.text.lower()


def _reads(
    processor: PatternProcessor, change: _Change, former: Sequence[LookupColumn], compiler: ProcessorCompiler
) -> bool:
    """Whether a processor reads the changed part: without it, the processor cannot be bound."""
    lookup = change.lookup
    if not _mentions(processor, lookup) or not _binds(processor, former, compiler):
        return False
    others = [other for other in former if other is not lookup]
    if _binds(processor, others, compiler):
        return False  # the name refers to something else
    rest = [field for field in lookup.schema if field.name != change.column]
    if change.column is None or not rest or _reads_as_a_whole(processor, lookup.name):
        return True
    less = LookupColumn(lookup.name, (), (), pa.schema(rest))
    return not _binds(processor, sorted([*others, less], key=_NAME), compiler)


def _binds(processor: PatternProcessor, lookups: Sequence[LookupColumn], compiler: ProcessorCompiler) -> bool:
    return compiler.with_lookups(lookups).binds(processor)


def _reads_as_a_whole(processor: PatternProcessor, lookup: str) -> bool:
    """Whether a processor may read all columns of *lookup*, as in ``LAST(b.limits)``, but not in ``limits IS NULL``."""
    alone = re.compile(rf"""(?<!\w){re.escape(lookup)}(?!\w)(?!["`\s]*(\.|IS\s+(NOT\s+)?NULL\b))""", re.IGNORECASE)
    document = json.loads(processor.text)
    return any(alone.search(text) for name in _SQL_FIELDS for text in _strings(document.get(name)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(part)


class LookupConversion:
    """Converts the state of the processors of *entries* to the lookups and the order of columns of *compiler*.

    :param events: the columns of the events of the former definition, which are those of *compiler* in any order
    :ivar written, numbers: the numbers of conditions that have changed, ascending, and their new numbers. They contain
        the places of the columns that they read, and the place of a lookup depends on the names of the others.
    :ivar clauses: of each processor with a clause the tables of its state, before and now
    :raises CheckpointMismatchError: see :func:`check_lookups`
    """

    def __init__(
        self, events: pa.Schema, former: Sequence[LookupColumn], entries: Entries, compiler: ProcessorCompiler
    ) -> None:
        check_lookups([entry.processor for entry in entries], former, compiler)
        before = compiler.with_lookups(former, events)
        numbers: dict[int, int] = {}
        self.clauses: dict[RuleName, tuple[Mapping[str, pa.Schema], Mapping[str, pa.Schema]]] = {}
        for entry in entries.enabled:
            old, new = before.bind(entry.processor), compiler.bind(entry.processor)
            pairs = zip(old.evaluated, new.evaluated, strict=True)
            numbers |= {was: now for was, now in pairs if was is not None and now is not None and was != now}
            if isinstance(old, BoundClauseProcessor) and isinstance(new, BoundClauseProcessor):
                tables = old.clause.operator.definition.tables, new.clause.operator.definition.tables
                self.clauses[entry.name] = tables
        self.written: Ints = np.array(sorted(numbers), np.int64)
        self.numbers: Ints = np.array([numbers[number] for number in sorted(numbers)], np.int64)

    @classmethod
    def of(
        cls, events: pa.Schema, former: Sequence[LookupColumn], entries: Entries, compiler: ProcessorCompiler
    ) -> LookupConversion:
        """This conversion. The most recent ones are cached for the lifetime of the process."""
        described = repr((events.names, former))
        return _CONVERSIONS.of(
            [entries], lambda: cls(events, former, entries, compiler), compiler.definition, described
        )


_CONVERSIONS = IdentityCache[LookupConversion](MAX_CONVERSIONS)
