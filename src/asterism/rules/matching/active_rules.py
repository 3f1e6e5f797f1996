"""Data about the active processors that all key groups of a process share.

Key groups mostly have the same entries. Binding, naming and comparing a thousand of them in every call of every key group would
take longer than matching a few hundred events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from asterism.caches import IdentityCache
from asterism.columns.arrays import Ints
from asterism.rules.binding.binding import BoundPatternProcessor, ProcessorCompiler
from asterism.rules.definition.processor import RuleName
from asterism.rules.matching.selections import Selections
from asterism.rules.sets.kill_list import is_named
from asterism.rules.sets.rule_counts import metric
from asterism.rules.sets.sets import MAX_SETS, Entries, ProcessorSet, can_end, rarely_collected


class ActiveRules:
    def __init__(self, entries: Entries, compiler: ProcessorCompiler) -> None:
        self.entries = entries
        with rarely_collected():
            self.bound = tuple([compiler.bind(entry.processor) for entry in entries if not entry.killed])
        """The bound rules of all entries except killed ones."""
        self.first_end = min((entry.end_time for entry in entries if can_end(entry)), default=None)
        """The first time at which an entry ends."""
        self.undivided = entries.suppress or bool(entries.with_clause)
        """Whether the state must be in one page, because only partial matches can be divided into pages."""
        self.with_clause = entries.enabled.with_clause
        self.with_pattern = entries.enabled.with_pattern
        bound = [compiler.bind(entry.processor) for entry in self.with_pattern]
        self.patterns = tuple([rule for rule in bound if isinstance(rule, BoundPatternProcessor)])
        """The entries of :attr:`with_pattern`, in their order."""
        self.selections = Selections.of(self.patterns) if self.patterns else None
        self.spans = self.with_pattern.spans
        self._numbers = {entry.name: number for number, entry in enumerate(self.with_pattern)}
        self._metrics: dict[tuple[str, bool], list[str]] = {}
        self._texts = [json.dumps(entry.name, ensure_ascii=False) for entry in self.with_pattern]

    @classmethod
    def of(cls, entries: Entries, compiler: ProcessorCompiler) -> ActiveRules:
        """The active rules for these entries. The most recent ones are cached for the lifetime of the process."""
        return _IN_FORCE.of([entries], lambda: cls(entries, compiler), compiler.definition)

    def metrics(self, what: str, *, of_clauses: bool = False) -> Sequence[str]:
        """The names of :func:`~asterism.rules.sets.rule_counts.metric` of :attr:`with_pattern`, or of :attr:`with_clause`."""
        if (what, of_clauses) not in self._metrics:
            entries = self.with_clause if of_clauses else self.with_pattern
            self._metrics[what, of_clauses] = [metric(what, entry.name) for entry in entries]
        return self._metrics[what, of_clauses]

    def names_of(self, numbers: Ints) -> bytes:
        """The names of some entries of :attr:`with_pattern`, in the form in which a page begins."""
        return f"[{','.join([self._texts[number] for number in numbers.tolist()])}]".encode()

    def numbers_of(self, names: Sequence[RuleName]) -> Ints:
        """For each of the *names* its index in :attr:`with_pattern`, or -1."""
        return np.array([self._numbers.get(name, -1) for name in names], np.int64)


def selectors_of(new: ProcessorSet, compiler: ProcessorCompiler) -> frozenset[int]:
    """The selectors of the processors of a set that are not killed. The most recent results are cached for the process."""

    def selectors() -> frozenset[int]:
        usable = [
            processor
            for processor in new.processors
            if not is_named(processor, new.killed) and compiler.binds(processor)
        ]
        return frozenset(compiler.bind(processor).number for processor in usable)

    return _SELECTORS.of([new], selectors, compiler.definition)


_SELECTORS = IdentityCache[frozenset[int]](MAX_SETS)
_IN_FORCE = IdentityCache[ActiveRules](MAX_SETS)
