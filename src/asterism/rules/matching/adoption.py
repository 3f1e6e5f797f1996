"""A version of a rule that continues with the partial matches of the version that it replaces.

This happens at the time of the switch: everything before it has been processed by the former version, and nothing by the new
one. So it does not depend on where a micro-batch ends. Partial matches and the searches of clauses continue as in a changed
savepoint.

See docs/decisions/0112 and 0144.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.caches import IdentityCache
from asterism.changes.partial_matches import PARTIAL, MatchesChange
from asterism.changes.plan import DROPPED, Counts, PlanPart, described
from asterism.columns.time import BEFORE_TIME
from asterism.errors import AsterismError, StateError
from asterism.matching.operator import identity_of_function
from asterism.matching.page import Page
from asterism.matching.stored_matches import CHANGE, described_automaton, described_pattern
from asterism.operators.evolution import CANNOT_CONTINUE
from asterism.operators.operator import EVENTS
from asterism.row_patterns.operator import count_searches
from asterism.rules.binding.binding import (
    BoundClauseProcessor,
    BoundPatternProcessor,
    BoundProcessor,
    ProcessorCompiler,
)
from asterism.rules.binding.clauses import ClauseOfRule
from asterism.rules.definition.processor import PatternProcessor, RuleName
from asterism.rules.matching.changed_searches import SEARCHES, SearchesChange
from asterism.rules.matching.selections import ENTRY
from asterism.rules.sets.sets import Entry

KEY_OF_RULES = pa.schema([("key", pa.string())])
"""The key of each clause of a rule: the texts of its values."""
OTHER_FORM = "one version is a pattern, and the other one a clause"
_MOST = 2_000
"""The maximum number of pairs of versions that a process keeps."""
_SHOWN = 5
_log = logging.getLogger("asterism.rules.processor")


class AdoptedSearches:
    """The searches of a clause, continued with another one.

    :raises AsterismError: none can continue
    """

    def __init__(self, old: ClauseOfRule, new: ClauseOfRule) -> None:
        self._clause = new
        self._change = SearchesChange(old.definition_named_as(new), new.operator, old.operator.current_row)

    def state(self, value: bytes, passed: int) -> tuple[bytes | None, Counts]:
        """(the state of the new clause, None: nothing continues; what became of the keys whose search waits).

        :param passed: the event time up to which the former clause has searched
        """
        operator = self._clause.operator
        try:
            made, counts = self._change.page(value, operator.definition.tables)
            if made is not None:  # what fails without a further row is not adopted
                nothing = operator.inputs[EVENTS].prepared.empty_table()
                deque(self._clause.advance(made, nothing, passed, over=False), maxlen=0)
        except MemoryError:
            raise
        except Exception as error:
            made, counts = None, _dropped(value, f"the new clause fails: {error}")
        return made, Counter({part: count for part, count in counts.items() if part.what == SEARCHES})


@dataclass(frozen=True, slots=True)
class Adoption:
    """
    :param new, old: the names of the versions
    :param change: what becomes of the partial matches, or of the searches; None: none can continue, for a *reason*
    :param keeps: whether the former version also keeps them: the new one is its shadow
    :param passed: the event time up to which the former version has processed everything
    """

    new: RuleName
    old: RuleName
    change: MatchesChange | AdoptedSearches | None
    reason: str = ""
    keeps: bool = False
    passed: int = BEFORE_TIME

    @classmethod
    def of(cls, new: Entry, old: Entry, compiler: ProcessorCompiler, *, keeps: bool, passed: int) -> Adoption:
        # A change remembers what it has compared, so that each thread has its own.
        change, reason = _CHANGES.of(
            [new.processor, old.processor],
            lambda: _change_of(new.processor, old.processor, compiler),
            compiler.definition,
            threading.get_ident(),
        )
        return cls(new.name, old.name, change, reason, keeps, passed)

    def of_page(self, names: list[RuleName], page: Page) -> tuple[list[RuleName], Page, Counts]:
        """The names of versions in a page, the page, and what became of the partial matches of the former version.

        :param names: those to which the keys of the page refer
        """
        if isinstance(self.change, AdoptedSearches):
            return names, page, Counter()
        entries = page.keys.column(ENTRY).to_numpy()
        mine = entries == names.index(self.old) if self.old in names else np.zeros(len(entries), np.bool_)
        if not mine.any():
            return names, page, Counter()
        adopted = page.of(np.flatnonzero(mine))
        rest = page if self.keeps else page.of(np.flatnonzero(~mine))
        if self.change is None:
            part = PlanPart(PARTIAL, "", "", DROPPED, self.reason)
            return names, rest, +Counter({part: int(partial_matches_of(adopted).sum())})
        changed, _, _, counts = self.change.page(adopted, passed=self.passed)
        number = pa.array(np.full(changed.keys.num_rows, len(names), np.int32))
        changed = replace(changed, keys=changed.keys.set_column(0, ENTRY, number))
        return [*names, self.new], Page.concat([rest, changed]), counts

    def of_searches(self, value: bytes) -> tuple[bytes | None, Counts]:
        """(the state of the new version, None: nothing continues; what became of the keys whose search waits).

        :param value: the state of the former version, which has a clause
        """
        if isinstance(self.change, AdoptedSearches):
            return self.change.state(value, self.passed)
        return None, _dropped(value, self.reason)

    def report(self, counts: Counts) -> None:
        """Log what was dropped."""
        dropped = [(part, count) for part, count in counts.items() if part.outcome == DROPPED]
        if dropped:
            shown = "; ".join(f"{count:,} {described(part)}" for part, count in dropped[:_SHOWN])
            what = "pattern processor %s version %s drops partial matches of version %s: %s"
            _log.warning(what, *self.new[:2], self.old[1], shown)


def _dropped(value: bytes, reason: str) -> Counts:
    """The keys whose search waits, as dropped."""
    return +Counter({PlanPart(SEARCHES, "", "", DROPPED, reason): count_searches(value, KEY_OF_RULES)})


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
) -> tuple[MatchesChange | AdoptedSearches | None, str]:
    try:
        before, after = compiler.bind(old), compiler.bind(new)
    except AsterismError:
        return None, "the former version cannot be used any more"
    if before.number != after.number:
        return None, "it groups the events by another key"
    missing = sorted(set(after.kept_lookups) - set(before.kept_lookups))
    if missing:
        return None, f'its events were stored without the lookup "{missing[0]}"'
    try:
        return _changed(before, after), ""
    except AsterismError as error:
        return None, error.message.removeprefix(CANNOT_CONTINUE)


def _changed(before: BoundProcessor, after: BoundProcessor) -> MatchesChange | AdoptedSearches:
    if isinstance(before, BoundPatternProcessor) and isinstance(after, BoundPatternProcessor):
        return MatchesChange(_details(before), _details(after), after.pattern)
    if isinstance(before, BoundClauseProcessor) and isinstance(after, BoundClauseProcessor):
        return AdoptedSearches(before.clause, after.clause)
    raise StateError(OTHER_FORM)


def _details(bound: BoundPatternProcessor) -> dict[str, Any]:
    pattern = bound.pattern
    return {**described_automaton(pattern.nfa), CHANGE: described_pattern(pattern, identity_of_function)}


_CHANGES = IdentityCache[tuple[MatchesChange | AdoptedSearches | None, str]](_MOST)


def adoptions_of(
    pairs: Sequence[tuple[Entry, Entry]], remaining: Iterable[Entry], compiler: ProcessorCompiler, passed: int
) -> list[Adoption]:
    """
    :param remaining: the entries after the switch
    :param passed: the event time up to which everything was processed before it
    """
    if not pairs:  # in most calls, and there may be many entries
        return []
    still = {entry.name for entry in remaining}
    return [Adoption.of(new, old, compiler, keeps=old.name in still, passed=passed) for new, old in pairs]
