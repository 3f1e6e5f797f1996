"""A version of a rule that continues with the partial matches of the version that it replaces.

This happens at the time of the switch: everything before it has been processed by the former version, and nothing by the new
one. So it does not depend on where a micro-batch ends. Partial matches continue as in a changed savepoint.

See docs/decisions/0112.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.caches import IdentityCache
from asterism.changes.partial_matches import PARTIAL, MatchesChange
from asterism.changes.plan import DROPPED, Counts, PlanPart, described
from asterism.errors import AsterismError
from asterism.matching.operator import identity_of_function
from asterism.matching.page import Page
from asterism.matching.stored_matches import CHANGE, described_automaton, described_pattern
from asterism.rules.binding.binding import BoundPatternProcessor, ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor, RuleName
from asterism.rules.matching.selections import ENTRY
from asterism.rules.sets.sets import Entry

_MOST = 2_000
"""The maximum number of pairs of versions that a process keeps."""
_SHOWN = 5
_log = logging.getLogger("asterism.rules.processor")


@dataclass(frozen=True, slots=True)
class Adoption:
    """
    :param new, old: the names of the versions
    :param change: what becomes of the partial matches; None: none can continue, for a *reason*
    :param keeps: whether the former version also keeps them: the new one is its shadow
    """

    new: RuleName
    old: RuleName
    change: MatchesChange | None
    reason: str = ""
    keeps: bool = False

    @classmethod
    def of(cls, new: Entry, old: Entry, compiler: ProcessorCompiler, *, keeps: bool) -> Adoption:
        # A change remembers what it has compared, so that each thread has its own.
        change, reason = _CHANGES.of(
            [new.processor, old.processor],
            lambda: _change_of(new.processor, old.processor, compiler),
            compiler.definition,
            threading.get_ident(),
        )
        return cls(new.name, old.name, change, reason, keeps)

    def of_page(self, names: list[RuleName], page: Page) -> tuple[list[RuleName], Page, Counts]:
        """The names of versions in a page, the page, and what became of the partial matches of the former version.

        :param names: those to which the keys of the page refer
        """
        entries = page.keys.column(ENTRY).to_numpy()
        mine = entries == names.index(self.old) if self.old in names else np.zeros(len(entries), np.bool_)
        if not mine.any():
            return names, page, Counter()
        adopted = page.of(np.flatnonzero(mine))
        rest = page if self.keeps else page.of(np.flatnonzero(~mine))
        if self.change is None:
            part = PlanPart(PARTIAL, "", "", DROPPED, self.reason)
            return names, rest, +Counter({part: int(partial_matches_of(adopted).sum())})
        changed, _, _, counts = self.change.page(adopted)
        number = pa.array(np.full(changed.keys.num_rows, len(names), np.int32))
        changed = replace(changed, keys=changed.keys.set_column(0, ENTRY, number))
        return [*names, self.new], Page.concat([rest, changed]), counts

    def report(self, counts: Counts) -> None:
        """Log what was dropped."""
        dropped = [(part, count) for part, count in counts.items() if part.outcome == DROPPED]
        if dropped:
            shown = "; ".join(f"{count:,} {described(part)}" for part, count in dropped[:_SHOWN])
            what = "pattern processor %s version %s drops partial matches of version %s: %s"
            _log.warning(what, *self.new[:2], self.old[1], shown)


def partial_matches_of(page: Page) -> Any:
    """For each key of a page, the number of its partial matches."""
    begun = (page.rows.run_rows[:, 1] >= 0) & (page.rows.run_rows[:, 2] >= 0)
    of_rows = np.repeat(np.arange(page.keys.num_rows), np.diff(page.rows.run_at))
    return np.bincount(of_rows[begun], minlength=page.keys.num_rows)


def adopted(
    names: list[RuleName], page: Page, adoptions: Iterable[Adoption], counts: dict[RuleName, Counts]
) -> tuple[list[RuleName], Page]:
    """The names of versions in a page, and the page, after some adoptions. Adds what became of the partial matches to *counts*,
    by the name of the new version.
    """
    for adoption in adoptions:
        names, page, of_page = adoption.of_page(names, page)
        counts.setdefault(adoption.new, Counter()).update(of_page)
    return names, page


def _change_of(
    new: PatternProcessor, old: PatternProcessor, compiler: ProcessorCompiler
) -> tuple[MatchesChange | None, str]:
    try:
        before, after = compiler.bind(old), compiler.bind(new)
    except AsterismError:
        return None, "the former version cannot be used any more"
    if not isinstance(before, BoundPatternProcessor) or not isinstance(after, BoundPatternProcessor):
        return None, "the former version is a clause"
    if before.number != after.number:
        return None, "it groups the events by another key"
    missing = sorted(set(after.kept_lookups) - set(before.kept_lookups))
    if missing:
        return None, f'its events were stored without the lookup "{missing[0]}"'
    try:
        return MatchesChange(_details(before), _details(after), after.pattern), ""
    except AsterismError as error:
        return None, error.message


def _details(bound: BoundPatternProcessor) -> dict[str, Any]:
    pattern = bound.pattern
    return {**described_automaton(pattern.nfa), CHANGE: described_pattern(pattern, identity_of_function)}


_CHANGES = IdentityCache[tuple[MatchesChange | None, str]](_MOST)


def adoptions_of(
    pairs: Sequence[tuple[Entry, Entry]], remaining: Iterable[Entry], compiler: ProcessorCompiler
) -> list[Adoption]:
    """:param remaining: the entries after the switch"""
    still = {entry.name for entry in remaining}
    return [Adoption.of(new, old, compiler, keeps=old.name in still) for new, old in pairs]
