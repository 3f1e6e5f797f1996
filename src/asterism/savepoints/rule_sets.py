"""The rules of a query in a savepoint: what is in force, as all key groups have it, and in which of them rules are disabled."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from sqlglot import exp

from asterism.errors import AsterismError, ExpressionError, StateError
from asterism.expressions.parsing import parse
from asterism.expressions.routines.user_functions import types_of_signatures
from asterism.expressions.types import name_of
from asterism.operators.state.state_definition import StateDefinition
from asterism.row_patterns.clause.reading import read
from asterism.rules.binding.binding import Selector, selector_of, selector_of_partitions, selector_of_stream
from asterism.rules.definition.processor import PatternProcessor, RuleName
from asterism.rules.matching.state_pages import SetState, entries_of_page, entries_to, sets_from_json, sets_to_json
from asterism.rules.sets.set_store import FolderStore
from asterism.rules.sets.sets import Entries, Entry

RULES = "rules.json"
"""The file of a savepoint, beside its manifest."""
MAX_RULES_SIZE = 2**30
"""The maximum size of this file, in bytes."""


@dataclass(frozen=True)
class RuleSets:
    """
    :param sets: the entries and the rest, without what is disabled in some key groups only
    :param disabled: the rules that have failed, by the key group where they did
    :param key_groups: the number of key groups that *disabled* refers to
    :param keys: the key of the stream
    :param seeds: the seeds of the hashes of keys, by the numbers of selectors
    :param udfs: the types of the results of the functions in Python that rules may call, by name, as SQL
    :param key_columns: what a key can be named by: the columns in the keys of the stream and of the rules, and expressions
    """

    sets: SetState
    disabled: Mapping[int, frozenset[RuleName]]
    key_groups: int
    keys: Sequence[str]
    seeds: Mapping[int, int] = field(default_factory=dict)
    udfs: Mapping[str, str] = field(default_factory=dict)
    key_columns: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        pages: Mapping[int, bytes],
        key_groups: int,
        keys: Sequence[str],
        others: Iterable[PatternProcessor] = (),
        udfs: Mapping[str, pa.DataType] | None = None,
    ) -> RuleSets:
        """
        :param pages: those with the sets, by key group; at least one
        :param others: rules that are not in force, but whose events may wait
        :param udfs: the types of the functions in Python that rules may call
        :raises StateError: the key groups have different sets
        """
        states = {group: entries_of_page(page) for group, page in pages.items()}
        if len({state.version for state in states.values()}) > 1:
            raise StateError(
                "key groups have different sets of rules",
                hint="let the query process a micro-batch, which calls all key groups, and stop it again",
            )
        # Time passes in a key group when it is called. An entry that has ended in some of them ends in the others as well.
        base = max(states.values(), key=lambda state: len(state.entries))
        failed = {group: frozenset(e.name for e in state.entries if _has_failed(e)) for group, state in states.items()}
        everywhere = frozenset.intersection(*failed.values()) if len(failed) == key_groups else frozenset()
        entries = Entries.of(
            replace(entry, disabled=entry.name in everywhere) if not entry.killed else entry for entry in base.entries
        )
        selectors = [_selector_of(rule, keys) for rule in (*others, *(entry.processor for entry in entries))]
        seeds = {selector.number: selector.seed for selector in selectors}
        stream = selector_of_stream(keys)
        disabled = {group: names - everywhere for group, names in failed.items() if names - everywhere}
        return cls(
            base._replace(entries=entries),
            disabled,
            key_groups,
            list(keys),
            {**seeds, stream.number: stream.seed},
            {name: name_of(kind) for name, kind in (udfs or {}).items()},
            _key_columns(selectors, keys),
        )

    @classmethod
    def of_store(
        cls, pages: Mapping[int, bytes], key_groups: int, definition: StateDefinition | None, store: FolderStore
    ) -> RuleSets:
        """As :meth:`of`, with what the store of the query has beside the pages.

        :param definition: that of the state by key; None: there is none
        """
        exists = store.exists()
        others = [rule for retained in store.retained() for rule in retained.all_processors] if exists else []
        udfs = types_of_signatures(store.read_status().udfs) if exists else {}
        return cls.of(pages, key_groups, [] if definition is None else definition.details["keys"], others, udfs)

    def page_of(self, group: int, key_groups: int) -> bytes:
        """The page of a key group among another number of them.

        A rule is disabled in it if it is disabled in one of the former key groups whose keys it can have: a multiple of
        the former number keeps exactly those keys disabled that were.
        """
        common = math.gcd(self.key_groups, key_groups)
        names = {name for former, names in self.disabled.items() if former % common == group % common for name in names}
        if not names:
            return entries_to(self.sets)
        entries = Entries.of(
            replace(entry, disabled=True) if entry.name in names else entry for entry in self.sets.entries
        )
        return entries_to(self.sets._replace(entries=entries))

    def __reduce__(self) -> tuple[Any, ...]:
        return RuleSets.from_json, (self.to_json(), "")

    @cached_property
    def selectors(self) -> dict[RuleName, int]:
        """The seed of the selector of each rule."""
        return {entry.name: _selector_of(entry.processor, self.keys).seed for entry in self.sets.entries}

    @cached_property
    def texts(self) -> dict[RuleName, str]:
        return {entry.name: entry.processor.text for entry in self.sets.entries}

    def to_json(self) -> str:
        document: dict[str, Any] = {
            **sets_to_json(self.sets),
            "key_groups": self.key_groups,
            "keys": list(self.keys),
            "disabled_in": [[group, sorted(names)] for group, names in sorted(self.disabled.items())],
            "seeds": [list(pair) for pair in sorted(self.seeds.items())],
            "key_columns": sorted(self.key_columns),
        }
        if self.udfs:
            document["udfs"] = dict(self.udfs)
        return json.dumps(document, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str, place: str) -> RuleSets:
        """
        :param place: the savepoint, for messages
        :raises StateError: these are not the rules of a savepoint
        """
        try:
            document = json.loads(text)
            sets, keys = sets_from_json(document), list(document["keys"])
            disabled = {
                int(group): frozenset((id, version, since) for id, version, since in names)
                for group, names in document["disabled_in"]
            }
            selectors = (_selector_of(entry.processor, keys) for entry in sets.entries)
            columns = document.get("key_columns")  # earlier releases have none
            return cls(
                sets,
                disabled,
                int(document["key_groups"]),
                keys,
                {int(number): int(seed) for number, seed in document["seeds"]},
                {str(name): str(kind) for name, kind in document.get("udfs", {}).items()},
                _key_columns(selectors, keys) if columns is None else frozenset(map(str, columns)),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AsterismError) as error:
            raise StateError(f"the rules of the savepoint {place} cannot be read", f"{RULES}: {error}"[:300]) from None


def _has_failed(entry: Entry) -> bool:
    return entry.disabled and not entry.killed


def _selector_of(rule: PatternProcessor, keys: Sequence[str]) -> Selector:
    if rule.sql is None:
        return selector_of(rule, keys)
    partition_by = tuple(key.expression.text for key in read(rule.sql).partition_by)
    return selector_of_partitions(partition_by, keys)


def _key_columns(selectors: Iterable[Selector], keys: Sequence[str]) -> frozenset[str]:
    texts = {text for selector in selectors for text in selector.expressions}
    columns = {name for text in texts for name in _columns_in(text)}
    return frozenset({*keys, *texts, *columns})


def _columns_in(text: str) -> set[str]:
    try:
        return {column.parts[0].name for column in parse(text).find_all(exp.Column)}
    except ExpressionError:
        return set()
