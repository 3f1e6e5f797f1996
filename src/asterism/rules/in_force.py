"""What the processors in force have in common in all key groups of a process.

Key groups mostly have the same entries. With a thousand of them, to bind, name and compare them again in every call of every key
group takes longer than to match a few hundred events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from asterism.columns.arrays import Ints
from asterism.rules.binding import BoundPatternProcessor, ProcessorCompiler
from asterism.rules.sets import Entry, ProcessorSet, can_end, keep, updated
from asterism.rules.shares import Shares, Span

MAX_CACHED = 16
RuleName = tuple[str, int, int]
"""Id, version, and the set that added it."""


class InForce:
    """:param entries: must not change"""

    def __init__(self, entries: Sequence[Entry], compiler: ProcessorCompiler) -> None:
        self.entries = list(entries)  # alive as long as this is: `of` finds it by their ids
        self.bound = compiler.bind_all(entry.processor for entry in entries if not entry.killed)
        """All but those that are killed."""
        self.first_end = min((entry.end_time for entry in entries if can_end(entry)), default=None)
        """The first time at which an entry ends."""
        self.undivided = any(one.processor.sql is not None or one.processor.suppress is not None for one in entries)
        """Whether the state must be in one page, because what it contains besides partial matches has no pages."""
        enabled = [entry for entry in entries if not entry.disabled]
        self.with_clause = [entry for entry in enabled if entry.processor.sql is not None]
        self.with_pattern = [entry for entry in enabled if entry.processor.sql is None]
        bound = [compiler.bind(entry.processor) for entry in self.with_pattern]
        self.patterns = [one for one in bound if isinstance(one, BoundPatternProcessor)]
        """The entries of :attr:`with_pattern`, in their order."""
        self.shares = Shares.of(self.patterns) if self.patterns else None
        self.spans = [Span(entry.since, entry.first_time, entry.end_time) for entry in self.with_pattern]
        self._numbers = {entry.name: number for number, entry in enumerate(self.with_pattern)}
        self._texts = [json.dumps(entry.name, ensure_ascii=False) for entry in self.with_pattern]

    @classmethod
    def of(cls, entries: Sequence[Entry], compiler: ProcessorCompiler) -> InForce:
        """These entries, bound. The most recent ones are cached for the lifetime of the process."""
        key: tuple[str | int, ...] = (compiler.definition, *map(id, entries))
        return _IN_FORCE.get(key) or keep(_IN_FORCE, MAX_CACHED, key, cls(entries, compiler))

    def names_of(self, numbers: Ints) -> bytes:
        """The names of some entries of :attr:`with_pattern`, as a page begins with them."""
        return f"[{','.join([self._texts[number] for number in numbers.tolist()])}]".encode()

    def numbers_of(self, names: Sequence[RuleName]) -> Ints:
        """For each of the *names* its index in :attr:`with_pattern`, or -1."""
        return np.array([self._numbers.get(name, -1) for name in names], np.int64)


def after_set(entries: Sequence[Entry], new: ProcessorSet, horizon: int) -> list[Entry]:
    """:func:`~asterism.rules.sets.updated`, once for all key groups with the same entries. The most recent results are cached for
    the lifetime of the process.
    """
    key = (id(new), horizon, *map(id, entries))
    found = _UPDATED.get(key) or keep(
        _UPDATED, MAX_CACHED, key, (new, list(entries), updated(entries, new, horizon))
    )  # what the key identifies stays alive
    return list(found[-1])


_IN_FORCE: dict[tuple[str | int, ...], InForce] = {}
_UPDATED: dict[tuple[int, ...], tuple[ProcessorSet, list[Entry], list[Entry]]] = {}
