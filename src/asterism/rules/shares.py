"""Determines which copies of events each pattern processor sees, and matches all processors in one call of the kernel.

A processor sees the events that satisfy one of its conditions, or all events if it has strict contiguity. Other events cost
it nothing.

In the :class:`~asterism.matching.page.Page` of a set, a key is (ENTRY, KEY): the index of the processor and the key text. An
event is stored once, no matter how many partial matches and processors refer to it. States are numbered within their pattern,
so that a page can be read with another set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of, positions_among_equals
from asterism.columns.keys import KEY, key_values
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.errors import LimitExceededError, MalformedPatternError
from asterism.matching.matcher import KeyedEvents, Matcher, PatternFailure, Step
from asterism.matching.page import Page
from asterism.rules.binding import BoundProcessor
from asterism.rules.replication import MET, SELECTOR, SINCE
from asterism.rules.sets import keep

ENTRY = "__entry"
MAX_SETS = 8
_HINT = "bound them with within(...), until(...), times(...) or a narrower condition; see docs/limits.md"
KEYS = pa.schema([(ENTRY, pa.int32()), (KEY, pa.string())])


@dataclass(frozen=True, slots=True)
class Span:
    """The events that a processor sees: those that arrived with the set *since* or later, with times from *begins* to before
    *until* (microseconds).
    """

    since: int = 0
    begins: int = BEFORE_TIME
    until: int = END_OF_TIME


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """The processor with the index *entry* failed at *time*, or exceeded a *limit*."""

    entry: int
    time: int
    error: Exception
    limit: bool = False


class Shares:
    """At least one processor over events of the same schema, indexed as in *bound*, and the events that each sees."""

    def __init__(self, bound: Sequence[BoundProcessor]) -> None:
        self.bound = list(bound)  # alive as long as this is: `of` finds it by their ids
        schema = bound[0].pattern.scope.schema
        self.event_schema = pa.schema([field.with_name("e:" + field.name) for field in schema])
        self.matcher = Matcher([one.pattern for one in bound], self.event_schema)
        self.conditions = np.unique(np.array([n for one in bound for n in one.conditions], np.int64))
        self._selectors = {number: self._questions(bound, number) for number in {one.number for one in bound}}

    def _questions(self, bound: Sequence[BoundProcessor], selector: int) -> tuple[Ints, Ints, Ints]:
        """The processors of a selector, and the tables *patterns* (without their spans) and *uses* of :func:`shares`."""
        mine = [number for number, one in enumerate(bound) if one.number == selector]
        uses: list[tuple[int, int]] = []
        patterns = []
        for one in (bound[number] for number in mine):
            conditions = np.searchsorted(self.conditions, one.conditions).tolist()
            patterns.append((len(uses), len(uses) + len(conditions), int(one.needs_all), 0, 0, 0))
            uses += zip(conditions, range(len(conditions)), strict=True)
        return np.array(mine, np.int64), np.array(patterns, np.int64), np.array(uses, np.int64).reshape(-1, 2)

    @classmethod
    def of(cls, bound: Sequence[BoundProcessor]) -> Shares:
        """The shares of these processors. The most recent ones are cached for the lifetime of the process."""
        key = tuple(map(id, bound))
        return _SETS.get(key) or keep(_SETS, MAX_SETS, key, cls(bound))

    def advance(
        self, page: Page, copies: pa.Table, spans: Sequence[Span], horizon: int
    ) -> Iterator[Step | list[RuleFailure]]:
        """Match *copies* (in arrival order) with the partial matches of *page*, and advance to *horizon* or to the end of the
        span of a processor. Partial matches that remain at the end of a span are dropped.

        The result is a sequence of slices. If processors fail, the last element is the first failure of each of them, and the
        previous slices must be discarded.
        """
        shown = self._shown(page, copies, spans, horizon)
        for made in self.matcher.advance(page, shown, go_on=True):
            yield made if isinstance(made, Step) else [_failure(failure, shown.keys) for failure in made]

    def _shown(self, page: Page, copies: pa.Table, spans: Sequence[Span], horizon: int) -> KeyedEvents:
        copies = copies.take(pa.array(np.argsort(copies.column(TIME).to_numpy(), kind="stable")))
        times = copies.column(TIME).to_numpy()
        texts = pc.dictionary_encode(
            pa.chunked_array([*page.keys.column(KEY).chunks, *copies.column(KEY).chunks], pa.string()).combine_chunks()
        )
        codes = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        n_codes = max(len(texts.dictionary), 1)
        state_codes, new_codes = codes[: page.keys.num_rows], codes[page.keys.num_rows :]
        rows, bits, entries = self._shares(copies, new_codes, times, spans)

        # The keys of the kernel: first those that have events, in their order, then the other keys of the state.
        state_keys = page.keys.column(ENTRY).to_numpy().astype(np.int64) * n_codes + state_codes
        pairs = entries * n_codes + new_codes[rows]
        begins = np.flatnonzero(np.diff(pairs, prepend=-1))
        known = _places(state_keys, pairs[begins])
        others = np.setdiff1d(np.arange(len(state_keys)), known)
        keys = np.concatenate([pairs[begins], state_keys[others]])
        entry_of_key, code_of_key = keys // n_codes, keys % n_codes
        until = np.array([span.until for span in spans], np.int64)
        ends = np.where(until != END_OF_TIME, np.minimum(horizon, until - 1), horizon)
        return KeyedEvents(
            keys=pa.table([entry_of_key.astype(np.int32), texts.dictionary.take(pa.array(code_of_key))], schema=KEYS),
            stored=np.concatenate([known, others]),
            pattern=entry_of_key,
            kept=(until > horizon)[entry_of_key],
            horizon=ends[entry_of_key],
            begins=np.concatenate([begins, np.full(len(others) + 1, len(rows))]),
            table=copies,
            rows=rows,
            bits=bits,
            positions=positions_among_equals(pairs, times[rows], np.ones(len(rows), np.bool_)),
        )

    def _shares(self, copies: pa.Table, codes: Ints, times: Ints, spans: Sequence[Span]) -> tuple[Ints, Ints, Ints]:
        """By processor and key, the events that each processor sees: their rows, their bits and the index of the processor."""
        from asterism.rules.kernels import BEGINS, SINCE_SET, UNTIL, by_condition, shares

        limits = np.array([(span.since, span.begins, span.until) for span in spans], np.int64)
        selectors = copies.column(SELECTOR).to_numpy()
        since = copies.column(SINCE).to_numpy()
        met = copies.column(MET).combine_chunks()
        words = self.matcher.words
        found = [(np.empty(0, np.int64), np.empty((0, words), np.int64), np.empty(0, np.int64))]
        for selector in np.unique(selectors).tolist():
            if selector not in self._selectors:
                continue  # of a removed processor
            mine, patterns, uses = self._selectors[selector]
            rows = np.flatnonzero(selectors == selector)
            rows = rows[np.argsort(codes[rows], kind="stable")]
            lists = met.take(pa.array(rows))
            met_at = offsets_of(pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False))
            numbers = lists.flatten().to_numpy(zero_copy_only=False)
            at, positions = by_condition(met_at, _places(self.conditions, numbers), len(self.conditions))
            patterns[:, [SINCE_SET, BEGINS, UNTIL]] = limits[mine]
            seen, bits, counts = shares(patterns, uses, at, positions, since[rows], times[rows], words)
            found.append((rows[seen], bits, np.repeat(mine, counts)))
        rows, bits, entries = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return rows, bits, entries


def _failure(failure: PatternFailure, keys: pa.Table) -> RuleFailure:
    where = [f"key {', '.join(map(repr, key_values(keys.column(KEY)[failure.key].as_py())))}"]
    if failure.stage is not None:
        where = [f'stage "{failure.stage}"', *where]
    where.append(f"event of {np.datetime64(failure.time, 'us')}")
    error = failure.error(", ".join(where), _HINT)
    return RuleFailure(
        failure.number, failure.time, error, limit=isinstance(error, LimitExceededError | MalformedPatternError)
    )


def _places(values: Ints, wanted: Ints) -> Ints:
    """The index of each of *wanted* in *values*, which are distinct, or -1 if there is none."""
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values, wanted, sorter=order), max(len(values) - 1, 0))
    if not len(values):
        return np.full(len(wanted), -1, np.int64)
    found = order[at]
    return np.where(values[found] == wanted, found, -1)


_SETS: dict[tuple[int, ...], Shares] = {}
