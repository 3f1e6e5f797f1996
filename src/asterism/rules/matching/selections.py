"""Selects the copies of events for each pattern processor, and matches all processors in one call of the kernel.

A processor sees the events that satisfy one of its conditions, or all events if it has strict contiguity. Other events cost
it nothing.

In the :class:`~asterism.matching.page.Page` of a set, a key is (ENTRY, KEY): the index of the processor and the key text. An
event is stored once, no matter how many partial matches and processors refer to it. States are numbered within their pattern,
so that a page can be read with another set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import IdentityCache
from asterism.columns.arrays import Ints
from asterism.columns.groups import consecutive, offsets_of, positions_of_all
from asterism.columns.keys import KEY, key_values
from asterism.columns.time import END_OF_TIME, TIME
from asterism.errors import LimitExceededError, MalformedPatternError
from asterism.matching.matcher import KeyedEvents, Matcher, PatternFailure, Step
from asterism.matching.page import Page
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import TIMED_OUT, BoundPatternProcessor
from asterism.rules.binding.replication import SELECTOR, SINCE, RuleConditions, stored_columns
from asterism.rules.sets.sets import Span

ENTRY = "__entry"
MAX_SETS = 8
_HINT = "bound them with within(...), until(...), times(...) or a narrower condition; see docs/limits.md"
KEYS = pa.schema([(ENTRY, pa.int32()), (KEY, pa.string())])


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """The processor with the index *entry* failed at *time*, or exceeded a *limit*."""

    entry: int
    time: int
    error: Exception
    limit: bool = False


class Selections:
    """At least one processor over events of the same schema, indexed as in a sequence of them, and the events that each sees."""

    def __init__(self, bound: Sequence[BoundPatternProcessor]) -> None:
        schema = bound[0].pattern.scope.schema
        self.event_schema = stored_columns(schema)
        reporting = [TIMED_OUT in rule.outputs for rule in bound]
        self.matcher = Matcher([rule.pattern for rule in bound], self.event_schema, reporting)
        self._selectors = {number: _OfSelector.of(bound, number) for number in {rule.number for rule in bound}}

    @classmethod
    def of(cls, bound: Sequence[BoundPatternProcessor]) -> Selections:
        """The selections of these processors. The most recent ones are cached for the lifetime of the process."""
        return _SETS.of(bound, lambda: cls(bound))

    def advance(
        self,
        page: Page,
        copies: pa.Table,
        spans: Sequence[Span],
        horizon: int,
        *,
        common_positions: bool = False,
        counts: Ints | None = None,
    ) -> Iterator[Step | list[RuleFailure]]:
        """Match *copies* (in arrival order) with the partial matches of *page*, and advance to *horizon* or to the end of the
        span of a processor. Partial matches that remain at the end of a span are dropped.

        The result is a sequence of slices. If processors fail, the last element is the first failure of each of them, and the
        previous slices must be discarded.

        :param common_positions: whether the position of an event counts all copies of its selector, key and time, and so is the
            same for all processors; otherwise, it counts only the copies that the processor sees
        :param counts: receives the number of events that each processor sees
        """
        shown = self._shown(page, copies, spans, horizon, common_positions=common_positions)
        if counts is not None:
            counts[:] = np.bincount(shown.pattern, np.diff(shown.begins), len(counts))
        for made in self.matcher.advance(page, shown, go_on=True):
            yield made if isinstance(made, Step) else [_failure(failure, shown.keys) for failure in made]

    def _shown(
        self, page: Page, copies: pa.Table, spans: Sequence[Span], horizon: int, *, common_positions: bool
    ) -> KeyedEvents:
        times = copies.column(TIME).to_numpy()
        order = np.argsort(times, kind="stable")
        texts = pc.dictionary_encode(
            pa.chunked_array([*page.keys.column(KEY).chunks, *copies.column(KEY).chunks], pa.string()).combine_chunks()
        )
        codes = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        n_codes = max(len(texts.dictionary), 1)
        state_codes, new_codes = codes[: page.keys.num_rows], codes[page.keys.num_rows :]
        state_keys = page.keys.column(ENTRY).to_numpy().astype(np.int64) * n_codes + state_codes
        limits = _limits_of(spans)
        until = limits[:, 2]
        ends = np.where(until != END_OF_TIME, np.minimum(horizon, until - 1), horizon)
        state_order = np.argsort(state_keys, kind="stable")
        sorted_keys = state_keys[state_order]
        seen = self._seen(copies, order, new_codes, times, limits, ends, sorted_keys, n_codes)

        # The keys of the kernel: first those that have events, in their order, then the other keys of the state.
        known = _places(sorted_keys, state_order, seen.keys)
        is_other = np.ones(len(state_keys), np.bool_)
        is_other[known[known >= 0]] = False
        others = np.flatnonzero(is_other)
        keys = np.concatenate([seen.keys, state_keys[others]])
        entry_of_key, code_of_key = keys // n_codes, keys % n_codes
        return KeyedEvents(
            keys=pa.table([entry_of_key.astype(np.int32), texts.dictionary.take(pa.array(code_of_key))], schema=KEYS),
            stored=np.concatenate([known, others]),
            pattern=entry_of_key,
            kept=(until > horizon)[entry_of_key],
            horizon=ends[entry_of_key],
            begins=np.concatenate([seen.begins, np.full(len(others) + 1, len(seen.rows))]),
            table=copies,
            rows=seen.rows,
            bits=seen.bits,
            positions=_common_positions(copies, new_codes, times)[seen.rows] if common_positions else seen.positions,
        )

    def _seen(
        self,
        copies: pa.Table,
        order: Ints,
        codes: Ints,
        times: Ints,
        limits: Ints,
        ends: Ints,
        state_keys: Ints,
        n_codes: int,
    ) -> _Seen:
        """The events that may matter to each processor and key.

        :param order: the rows of *copies* in the order of their times
        :param codes: of the keys of *copies*
        :param limits: of the processors, see :func:`_limits_of`
        :param ends: for each processor the time to which it advances
        :param state_keys: the keys that have partial matches, ascending: the index of the processor times *n_codes* plus the code
        """
        from asterism.rules.binding.kernels import BEGINS, HORIZON, SINCE_SET, UNTIL, SortedEvents, StateKeys, shares

        selectors = copies.column(SELECTOR).to_numpy()
        since = copies.column(SINCE).to_numpy()
        state_at = np.searchsorted(state_keys, np.arange(len(limits) + 1) * n_codes)
        seen_of_selectors = [_Seen.none(self.matcher.words)]
        for selector in np.unique(selectors).tolist():
            if selector not in self._selectors:
                continue  # of a removed processor
            selected = self._selectors[selector]
            indices, patterns = selected.processors, selected.patterns.copy()
            rows = order[selectors[order] == selector]
            rows = rows[np.argsort(codes[rows], kind="stable")]
            at, positions = selected.conditions.by_condition(selected.conditions.read_of(copies, rows))
            patterns[:, [SINCE_SET, BEGINS, UNTIL]], patterns[:, HORIZON] = limits[indices], ends[indices]
            state_sizes = np.diff(state_at)[indices]
            keys_with_state = state_keys[consecutive(state_at[indices], state_sizes)] % n_codes
            key_at = np.searchsorted(codes[rows], np.arange(n_codes + 1))
            seen, bits, alike, runs = shares(
                patterns,
                selected.uses,
                SortedEvents(since[rows], times[rows], codes[rows], key_at, at, positions),
                StateKeys(offsets_of(state_sizes), keys_with_state),
                self.matcher.words,
            )
            seen_of_selectors.append(
                _Seen(rows[seen], bits, alike, indices[runs[:, 0]] * n_codes + runs[:, 1], runs[:, 2])
            )
        begins = offsets_of([len(part.rows) for part in seen_of_selectors])
        parts = [
            part._replace(begins=part.begins + begin)
            for part, begin in zip(seen_of_selectors, begins.tolist(), strict=False)
        ]
        return _Seen(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class _Seen(NamedTuple):
    """Events by processor and key: rows, bits, positions among those of the same key and time; the keys, and where they begin."""

    rows: Ints
    bits: Ints
    positions: Ints
    keys: Ints
    begins: Ints

    @classmethod
    def none(cls, words: int) -> _Seen:
        empty = np.empty(0, np.int64)
        return cls(empty, np.empty((0, words), np.int64), empty, empty, empty)


@dataclass(frozen=True, slots=True)
class _OfSelector:
    """The processors of a selector, by index, with the tables of :func:`shares` (but no spans and ends) and their conditions."""

    processors: Ints
    patterns: Ints
    uses: Ints
    conditions: RuleConditions

    @classmethod
    def of(cls, bound: Sequence[BoundPatternProcessor], selector: int) -> _OfSelector:
        from asterism.matching.kernels import BITS, RELEVANT, START_STATE, WINDOW

        processors = [number for number, rule in enumerate(bound) if rule.number == selector]
        conditions = RuleConditions.by_selector(bound)[selector]
        places = {number: place for place, number in enumerate(conditions.numbers.tolist())}
        uses: list[tuple[int, int, int, int]] = []
        patterns = []
        for rule in (bound[number] for number in processors):
            tables = rule.pattern.tables
            starting = int(tables.states[tables.automata[0, START_STATE], RELEVANT])
            always = starting < 0 or rule.pattern.semantics is Semantics.FLINK or rule.pattern.depends_on_all_events
            first_use = len(uses)
            most_in_vain, at_once, completing = rule.completing
            uses += [
                (places[condition], bit, starting >> (bit % BITS) & 1, int(bit in completing))
                for bit, condition in enumerate(rule.conditions)
            ]
            most = rule.pattern.longest_match
            bounds = (END_OF_TIME if most is None else most, int(tables.automata[0, WINDOW]))
            sees = (first_use, len(uses), int(rule.needs_all), int(always))
            # The last four columns are set for each call.
            patterns.append((*sees, *bounds, most_in_vain, int(at_once), 0, 0, 0, 0))
        return cls(
            np.array(processors, np.int64),
            np.array(patterns, np.int64),
            np.array(uses, np.int64).reshape(-1, 4),
            conditions,
        )


def _failure(failure: PatternFailure, keys: pa.Table) -> RuleFailure:
    where = [f"key {', '.join(map(repr, key_values(keys.column(KEY)[failure.key].as_py())))}"]
    if failure.stage is not None:
        where = [f'stage "{failure.stage}"', *where]
    where.append(f"event of {np.datetime64(failure.time, 'us')}")
    error = failure.error(", ".join(where), _HINT)
    return RuleFailure(
        failure.number, failure.time, error, limit=isinstance(error, LimitExceededError | MalformedPatternError)
    )


def _common_positions(copies: pa.Table, codes: Ints, times: Ints) -> Ints:
    """The position of each copy among all those of its selector, key (by its code) and time."""
    _, selectors = np.unique(copies.column(SELECTOR).to_numpy(), return_inverse=True)
    return positions_of_all(selectors * (int(codes.max(initial=0)) + 1) + codes, times)


def _places(ordered: Ints, order: Ints, wanted: Ints) -> Ints:
    """The index of each of *wanted* among distinct values, or -1 if there is none.

    :param ordered: the values in ascending order, and *order*, the index of each
    """
    if not len(ordered):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, order[at], -1)


def _limits_of(spans: Sequence[Span]) -> Ints:
    """The columns of *spans*: *since*, *begins* and *until*, made once for each sequence."""
    return _LIMITS.of([spans], lambda: np.array([(span.since, span.begins, span.until) for span in spans], np.int64))


_LIMITS = IdentityCache[Ints](MAX_SETS)
_SETS = IdentityCache[Selections](MAX_SETS)
