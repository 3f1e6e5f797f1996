"""Which copies of events the search of each processor with a clause needs.

Hundreds of processors with a clause see the same copies, and most of these matter to few of them. Shared work is done once per
call, and the rows with which a match can begin are looked up in the index of conditions
(:mod:`asterism.rules.binding.condition_index`). A processor for which no row and no deadline matters is not called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.groups import positions_of_all
from asterism.columns.keys import KEY
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.rules.binding.binding import BoundClauseProcessor
from asterism.rules.binding.replication import FAILED, SELECTOR, SINCE, RuleConditions
from asterism.rules.sets.sets import Span


@dataclass(frozen=True)
class SeenCopies:
    """The copies that processors of the same selector see, in arrival order. *mask*: their rows among all copies."""

    copies: pa.Table
    mask: Mask

    @cached_property
    def times(self) -> Ints:
        values: Ints = self.copies.column(TIME).to_numpy()
        return values

    @cached_property
    def has_failures(self) -> bool:
        """Whether a condition or key could not be computed for one of the events."""
        return bool(pc.any(pc.greater(pc.list_value_length(self.copies.column(FAILED)), 0)).as_py())

    @cached_property
    def keys(self) -> pa.DictionaryArray:
        return pc.dictionary_encode(one_chunk(self.copies.column(KEY)))

    @cached_property
    def codes(self) -> Ints:
        """The key number of each copy."""
        values: Ints = self.keys.indices.to_numpy(zero_copy_only=False)
        return values

    @cached_property
    def positions(self) -> pa.Array:
        """The position of each event among those of its key and time. All of these arrive together."""
        return pa.array(positions_of_all(self.codes, self.times))

    @cached_property
    def place_of(self) -> Ints:
        """Maps each row of all copies to its row among these."""
        return np.cumsum(self.mask) - 1


class ClauseEvents:
    """The copies of one call, from the view of each processor."""

    def __init__(self, copies: pa.Table, bound: Sequence[BoundClauseProcessor]) -> None:
        self._copies, self._bound = copies, bound
        self._times, self._since = copies.column(TIME).to_numpy(), copies.column(SINCE).to_numpy()
        self._selectors = copies.column(SELECTOR).to_numpy()
        self._seen: dict[tuple[int, Span], SeenCopies] = {}

    def of(self, bound: BoundClauseProcessor, span: Span) -> SeenCopies:
        first, since, last = (
            (int(self._times.min()), int(self._since.min()), int(self._times.max()))
            if self._copies.num_rows
            else (END_OF_TIME, 0, BEFORE_TIME)
        )
        # Spans that select the same copies share an entry.
        alike = Span(max(span.since, since), max(span.begins, first), END_OF_TIME if span.until > last else span.until)
        key = bound.number, alike
        if key not in self._seen:
            mask = (self._selectors == bound.number) & (self._since >= alike.since)
            mask &= (self._times >= alike.begins) & (self._times < alike.until)
            self._seen[key] = SeenCopies(self._copies if mask.all() else self._copies.filter(pa.array(mask)), mask)
        return self._seen[key]

    def needed(self, bound: BoundClauseProcessor, seen: SeenCopies, waiting: pa.Array | None) -> Mask | None:
        """Which copies the search needs: all copies of keys that are *waiting*; of other keys, the copies from the first event on
        with which a match can begin. None: all copies.
        """
        if not bound.conditions:
            return None
        first = np.full(len(seen.keys.dictionary), END_OF_TIME)
        at, rows = self._starting
        (place,) = np.searchsorted(self._conditions.numbers, bound.conditions)
        starting = rows[at[place] : at[place + 1]]
        starting = seen.place_of[starting[seen.mask[starting]]]
        np.minimum.at(first, seen.codes[starting], seen.times[starting])
        if waiting is not None:
            known = pc.index_in(seen.keys.dictionary, waiting).is_valid().to_numpy(zero_copy_only=False)
            first[known] = BEFORE_TIME
        wanted: Mask = seen.times >= first[seen.codes]
        return wanted

    @cached_property
    def _conditions(self) -> RuleConditions:
        return RuleConditions.of(self._bound)

    @cached_property
    def _starting(self) -> tuple[Ints, Ints]:
        return self._conditions.by_condition(self._copies)
