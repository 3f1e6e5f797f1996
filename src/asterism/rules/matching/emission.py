"""Which matches of a call are emitted, and which are suppressed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.columns.keys import KEY
from asterism.matching.matcher import MatchColumns, Step
from asterism.rules.binding.binding import (
    BoundClauseProcessor,
)
from asterism.rules.matching.selections import ENTRY
from asterism.rules.matching.suppression import Attempt
from asterism.rules.sets.sets import (
    Entry,
)


class Emission:
    """Decides which matches of a call are emitted.

    :param entries: the processors, by their numbers in the call
    :ivar suppressed: the number of rows that are not emitted, without those of shadows
    """

    def __init__(self, entries: Sequence[Entry], attempt: Attempt) -> None:
        self._entries, self.attempt = entries, attempt
        self._suppressing = [number for number, entry in enumerate(entries) if entry.processor.suppress is not None]
        self.suppressed = 0

    def matches_of(self, step: Step) -> tuple[MatchColumns, Ints]:
        """The matches that are emitted, and for each the number of those suppressed before it. A suppressed match computes no
        measures.
        """
        matches = step.matches
        emitted, suppressed = np.ones(len(matches), np.bool_), np.zeros(len(matches), np.int64)
        entries = step.keys.column(ENTRY).to_numpy()[matches.key]
        for number in self._suppressing:
            of_entry = np.flatnonzero(entries == number)
            if not of_entry.size:
                continue
            entry = self._entries[number]
            span = entry.processor.suppress_micros
            assert span is not None
            keys = step.keys.column(KEY).take(pa.array(matches.key[of_entry])).to_pylist()
            decided = self.attempt.decide(entry.name, span, keys, matches.emitted[of_entry].tolist())
            emitted[of_entry], suppressed[of_entry] = decided
            self._count(entry, decided.emitted)
        return (matches, suppressed) if emitted.all() else (some_of(matches, emitted), suppressed[emitted])

    def rows_of_clause(self, bound: BoundClauseProcessor, results: pa.Table) -> tuple[pa.Table, Ints]:
        """As :meth:`matches_of`, for the results of the only processor, which has a clause."""
        [entry] = self._entries
        span, clause = entry.processor.suppress_micros, bound.clause
        if span is None:
            return results, np.zeros(results.num_rows, np.int64)
        ends = [column.tolist() for column in clause.ends_of(results)]
        matches = None if clause.one_row else list(zip(*ends, strict=True))
        emitted, suppressed = self.attempt.decide(
            entry.name, span, clause.keys_of(results).to_pylist(), ends[2], matches
        )
        self._count(entry, emitted)
        return results.filter(pa.array(emitted)), suppressed[emitted]

    def _count(self, entry: Entry, emitted: Mask) -> None:
        if not entry.processor.shadow:
            self.suppressed += int((~emitted).sum())


def some_of(matches: MatchColumns, wanted: Mask) -> MatchColumns:
    """Select some of the matches."""
    counts = np.diff(matches.offsets)
    events = np.repeat(wanted, counts)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[wanted])])
    parts = (matches.events[events], matches.positions[events], matches.stages[events])
    numbers = None if matches.numbers is None else matches.numbers[wanted]
    return MatchColumns(matches.key[wanted], matches.emitted[wanted], offsets, *parts, numbers)
