"""The memory of a pattern of the earlier events of a key, beside the partial matches.

* ``PREV(x)`` reads the events of the key before the current one, in a condition, or before an event of the match, in a measure.
* ``begin_without(stage)`` needs the time of the last event of the stage.
* ``starts_with_first_event()`` needs to know whether the key had an event before.
* ``MATCH_NUMBER()`` needs the number of earlier matches of the key.

The kernel does not read this memory: the values are computed in advance for all events of a call, and become slots.

In the state, they are rows among the partial matches of a page. Such a row has a negative state, -1 minus its *code*: 0 for the
key itself, whose node is -1 minus the number of its matches; then the last events, from the newest on; then the last event of
each absence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import offsets_of, positions_among_equals
from asterism.matching.binding import BoundPattern
from asterism.matching.instructions import FIRST_EVENT
from asterism.matching.key_rows import KeyRows
from asterism.matching.page import NO_EVENT

_KEY = 0
"""The code of the row of a key; the codes of its events follow."""


class PreviousValue(NamedTuple):
    """A slot with the value of another one, for an event of the key before the current one."""

    slot: int
    before: int
    """1: the event immediately before"""


class Fact(NamedTuple):
    """A slot with a value that a pattern reads from the earlier events of a key."""

    pattern: int
    number: int
    """FIRST_EVENT: whether there is none; otherwise, how long ago the last event of this absence was"""


class KeyMemory:
    """
    :param of_keys: for each key its pattern
    :param rows: the rows of the keys in the state
    :param ended: for each key whether its input has ended
    :param begins: where the new events of each key begin, followed by the end of the last key
    :param times: the times of all events
    :param bits: the condition bits of all events
    """

    def __init__(
        self,
        patterns: Sequence[BoundPattern],
        of_keys: Ints,
        ended: Mask,
        rows: KeyRows,
        begins: Ints,
        times: Ints,
        bits: Ints,
    ) -> None:
        self._ended = ended
        self._patterns, self._of_keys, self._begins, self._times, self._bits = patterns, of_keys, begins, times, bits
        n_keys = len(of_keys)
        self._previous = np.array([pattern.remembers_events for pattern in patterns], np.int64)
        width = max(
            before + len(pattern.nfa.absences) for before, pattern in zip(self._previous, patterns, strict=True)
        )
        self._events = np.full((n_keys, width), -1, np.int64)
        """for each key the remembered events, in the order of their codes; -1: there is none"""
        self._known = np.zeros(n_keys, np.bool_)
        self._matches = np.zeros(n_keys, np.int64)
        of_rows = np.repeat(np.arange(n_keys), np.diff(rows.run_at))
        is_memory = rows.run_rows[:, 2] < 0
        codes = -1 - rows.run_rows[is_memory, 2]
        keys, stored = of_rows[is_memory], rows.run_rows[is_memory]
        of_key = codes == _KEY
        self._known[keys] = True
        self._matches[keys[of_key]] = -1 - stored[of_key, 1]
        self._events[keys[~of_key], codes[~of_key] - 1] = stored[~of_key, 0]
        self.rows = rows._replace(
            run_at=offsets_of(np.bincount(of_rows[~is_memory], minlength=n_keys)), run_rows=rows.run_rows[~is_memory]
        )
        """the rows of the partial matches"""
        self._counts = np.diff(begins)
        self._key_of_event = np.repeat(np.arange(n_keys), self._counts)
        self._place = np.arange(len(self._key_of_event)) + begins[0] - begins[self._key_of_event]
        """for each new event how many new events of its key precede it"""

    # ------------------------------------------------------------------ slots

    def fill(self, values: Ints, slots: dict[PreviousValue | Fact, int]) -> None:
        """Compute the values of *slots* for the new events; *values*: those of all events, in the layout of the kernel."""
        new = slice(int(self._begins[0]), int(self._begins[-1]))
        for slot, number in slots.items():
            column = 2 * number
            values[:, column + 1] = 1
            if isinstance(slot, PreviousValue):
                source = self.before(slot.before)
                exists = source >= 0
                of_source = values[source, 2 * slot.slot : 2 * slot.slot + 2]
                values[new, column] = np.where(exists, of_source[:, 0], 0)
                values[new, column + 1] = np.where(exists, of_source[:, 1], 1)
            elif slot.number == FIRST_EVENT:
                values[new, column] = ~self._known[self._key_of_event] & (self._place == 0)
                values[new, column + 1] = 0
            else:
                source = self._last_before(slot)
                values[new, column] = self._times[new] - self._times[source]
                values[new, column + 1] = source < 0

    def before(self, before: int) -> Ints:
        """For each new event the event of its key that is *before* places earlier, or -1."""
        stored = np.maximum(before - 1 - self._place, 0)
        stored = np.where(stored < self._events.shape[1], stored, 0)
        here = np.arange(len(self._place)) + self._begins[0] - before
        numbers: Ints = np.where(self._place >= before, here, self._events[self._key_of_event, stored])
        return np.where(self._previous[self._of_keys[self._key_of_event]] >= before, numbers, -1)

    def _of_absence(self, fact: Fact) -> tuple[Ints, Mask]:
        """(for each new event the last event of the absence up to it, among the new ones of its key, or -1; whether the event's
        key has the pattern)
        """
        pattern = self._patterns[fact.pattern]
        of_pattern = self._of_keys[self._key_of_event] == fact.pattern
        bits = self._bits[self._begins[0] : self._begins[-1]]
        holds = of_pattern & pattern.evaluation.holding(pattern.nfa.absences[fact.number].guard, bits)
        numbers = np.arange(len(of_pattern)) + self._begins[0]
        last = np.maximum.accumulate(np.where(holds, numbers, -1)) if len(of_pattern) else numbers
        return np.where(last >= self._begins[self._key_of_event], last, -1), of_pattern

    def _last_before(self, fact: Fact) -> Ints:
        """For each new event the last event of the absence before it, or -1."""
        last, of_pattern = self._of_absence(fact)
        earlier = np.where(self._place > 0, np.concatenate([[-1], last[:-1]]) if len(last) else last, -1)
        code = int(self._previous[fact.pattern]) + fact.number
        return np.where(earlier >= 0, earlier, np.where(of_pattern, self._events[self._key_of_event, code], -1))

    # ------------------------------------------------------------------ matches

    def numbers(self, keys: Ints) -> Ints:
        """The numbers of matches, which continue those of their *keys*; the matches of a key are neighbours."""
        match_numbers = (
            self._matches[keys] + positions_among_equals(keys, np.zeros_like(keys), np.ones(len(keys), np.bool_)) + 1
        )
        np.add.at(self._matches, keys, 1)
        return match_numbers

    # ------------------------------------------------------------------ state

    def stored(self, rows: KeyRows, nodes: Ints) -> tuple[KeyRows, Ints]:
        """The *rows* of all keys together with those of the memory, and the *nodes* together with those of its events."""
        n_keys = len(self._of_keys)
        known = (self._known | (self._counts > 0)) & ~self._ended
        parts_of_keys, parts = [], []
        for number, pattern in enumerate(self._patterns):
            if not pattern.has_memory:
                continue
            of_pattern = self._of_keys == number
            if pattern.counts_keys:
                keys = np.flatnonzero(of_pattern & known)
                row = np.stack(
                    [np.full(len(keys), NO_EVENT), -1 - self._matches[keys], np.full(len(keys), -1 - _KEY)], 1
                )
                parts_of_keys.append(keys)
                parts.append(row)
            for code, events in enumerate(self._remembered(number), start=1):
                keys = np.flatnonzero(of_pattern & (events >= 0) & ~self._ended)
                added = np.full((len(keys), 3), -1)
                added[:, 0] = events[keys]
                row = np.stack([events[keys], len(nodes) + np.arange(len(keys)), np.full(len(keys), -1 - code)], 1)
                nodes = np.concatenate([nodes, added])
                parts_of_keys.append(keys)
                parts.append(row)
        key_of_row = np.repeat(np.arange(n_keys), np.diff(rows.run_at))
        of_rows = np.concatenate([key_of_row, *parts_of_keys])
        order = np.argsort(of_rows, kind="stable")
        run_rows = np.concatenate([rows.run_rows, *parts])[order]
        return rows._replace(run_at=offsets_of(np.bincount(of_rows, minlength=n_keys)), run_rows=run_rows), nodes

    def _remembered(self, number: int) -> list[Ints]:
        """For each code of a pattern the event of each key to remember, or -1."""
        ends, events_by_code = self._begins[1:], []
        for place in range(int(self._previous[number])):
            stored = self._events[np.arange(len(ends)), np.maximum(place - self._counts, 0)]
            events_by_code.append(np.where(self._counts > place, ends - 1 - place, stored))
        for absence in range(len(self._patterns[number].nfa.absences)):
            last, _ = self._of_absence(Fact(number, absence))
            stored = self._events[:, int(self._previous[number]) + absence]
            newest = np.where(
                self._counts > 0, last[np.maximum(ends - 1 - self._begins[0], 0)] if len(last) else -1, -1
            )
            events_by_code.append(np.where(newest >= 0, newest, stored))
        return events_by_code
