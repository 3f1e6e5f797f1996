"""Many patterns over the same events, in one call of the kernel.

The automata of all patterns stand in common tables, and a key of the kernel is a pattern together with a key of the events. A
pattern is shown the events that meet one of its conditions (all of them, if it asks for the very next one); what the others
cost it is nothing.

In the :class:`~asterism.matching.page.Page` of a set, a key is (ENTRY, KEY): the number of the pattern and the key as text.
An event is kept once, whatever the number of partial matches and patterns that it belongs to; states are numbered within
their pattern, so that a page can be read by another set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of, positions_among_equals, rows_of
from asterism.columns.keys import KEY, key_values
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.errors import AsterismError
from asterism.expressions.evaluation import Vectorized
from asterism.matching.instructions import Op
from asterism.matching.matcher import SLICE, Matcher, Step, slices_of, slot_values, with_strings
from asterism.matching.page import Page
from asterism.rules.binding import BoundProcessor
from asterism.rules.event_copies import MET, SELECTOR, SINCE

if TYPE_CHECKING:
    from asterism.matching.kernels import Tables


ENTRY = "__entry"
MAX_SETS = 8
_HINT = "bound them with within(...), until(...), times(...) or a narrower condition; docs/limits.md tells more"
KEYS = pa.schema([(ENTRY, pa.int32()), (KEY, pa.string())])


@dataclass(frozen=True, slots=True)
class Span:
    """Which events a pattern sees: those that arrived with the set *since* or later, of the times from *begins* on and before
    *until* (microseconds).
    """

    since: int = 0
    begins: int = BEFORE_TIME
    until: int = END_OF_TIME


@dataclass(frozen=True, slots=True)
class Failure:
    """The pattern *entry* failed at *time*; or it went beyond a *limit*."""

    entry: int
    time: int
    error: Exception
    limit: bool = False


class MatcherSet:
    """Patterns over events of one schema, at least one, numbered as in *bound*."""

    def __init__(self, bound: Sequence[BoundProcessor]) -> None:
        self.bound = list(bound)
        schema = self.schema = bound[0].matcher.scope.schema
        self.event_schema = pa.schema([field.with_name("e:" + field.name) for field in schema])
        self.words = max(one.matcher.words for one in bound)
        self.conditions = np.unique(np.array([n for one in bound for n in one.conditions], np.int64))
        self.slots: list[str] = []
        """Of all patterns: a column of the page's events, or the number of an expression of *computed*."""
        self.computed = Vectorized(schema)
        self.strings: list[str] = []
        self._string_numbers: dict[str, int] = {}
        self._tables: Tables | None = None
        self._selectors = {number: self._questions(number) for number in {one.number for one in bound}}

    def _questions(self, selector: int) -> tuple[Ints, Ints, Ints]:
        """The patterns of a selector, and the tables *patterns* (but for their spans) and *asks* of :func:`shares`."""
        mine = [number for number, one in enumerate(self.bound) if one.number == selector]
        asks: list[tuple[int, int]] = []
        patterns = []
        for one in (self.bound[number] for number in mine):
            conditions = np.searchsorted(self.conditions, one.conditions).tolist()
            patterns.append((len(asks), len(asks) + len(conditions), int(one.needs_all), 0, 0, 0))
            asks += zip(conditions, range(len(conditions)), strict=True)
        return np.array(mine, np.int64), np.array(patterns, np.int64), np.array(asks, np.int64).reshape(-1, 2)

    @classmethod
    def of(cls, bound: Sequence[BoundProcessor]) -> MatcherSet:
        """The set of these patterns; the last ones are kept for as long as the process lives."""
        key = tuple(map(id, bound))
        if key not in _SETS:
            while len(_SETS) >= MAX_SETS:
                _SETS.pop(next(iter(_SETS)))
            _SETS[key] = cls(bound)
        return _SETS[key]

    # ------------------------------------------------------------------ tables

    @property
    def tables(self) -> Tables:
        """The automata of all patterns in common tables."""
        if self._tables is None:
            self._tables = self._make_tables()
        return self._tables

    def _make_tables(self) -> Tables:
        from asterism.matching import kernels as k

        parts = []
        states = edges = guards = conditions = ops = 0
        for one in self.bound:
            own = one.matcher.tables()
            moved = own._replace(
                states=own.states.copy(), edges=own.edges.copy(), guards=own.guards.copy(),
                conditions=own.conditions.copy(), ops=self._moved_ops(one.matcher, own.ops), automata=own.automata.copy(),
            )  # fmt: skip
            moved.states[:, [k.FIRST_EDGE, k.END_EDGE]] += edges
            moved.edges[:, k.TARGET] += states
            moved.edges[:, k.GUARD] += np.where(moved.edges[:, k.GUARD] >= 0, guards, 0)
            moved.guards[:, 0] += conditions
            moved.guards[:, 1:] += np.where(moved.guards[:, 1:] >= 0, guards, 0)
            moved.conditions[:, 1:] += ops
            moved.automata[:, [k.FIRST_STATE, k.START_STATE]] += states
            parts.append(moved)
            states, edges, guards = states + len(own.states), edges + len(own.edges), guards + len(own.guards)
            conditions, ops = conditions + len(own.conditions), ops + len(own.ops)

        names = ("states", "edges", "guards", "conditions", "ops", "automata")
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return parts[0]._replace(**joined)

    def _moved_ops(self, matcher: Matcher, ops: Ints) -> Ints:
        """A pattern's operations, with slots and strings by their numbers in the set."""
        slots = np.array([self._slot(matcher, number) for number in matcher.programs.slots], np.int64)
        ops = ops.copy()
        for row in ops:
            if row[0] == Op.SLOT:
                row[1] = slots[row[1]]
            elif row[0] == Op.AGG and row[4] >= 0:
                row[4] = slots[row[4]]
            elif row[0] == Op.STRING:
                text = matcher.programs.strings[row[1]]
                row[1] = self._string_numbers.setdefault(text, len(self.strings))
                if row[1] == len(self.strings):
                    self.strings.append(text)
        return ops

    def _slot(self, matcher: Matcher, number: int) -> int:
        name = matcher.slot_column(number)
        if not name.startswith("e:"):
            name = str(self.computed.adopt(matcher.vectorized, number))
        if name not in self.slots:
            self.slots.append(name)
        return self.slots.index(name)

    def _slot_values(self, pool: pa.Table) -> list[pa.ChunkedArray]:
        values = self.computed.evaluate(pool.rename_columns(self.schema.names)) if self.computed.texts else []
        return [pool.column(name) if name.startswith("e:") else values[int(name)] for name in self.slots]

    # ------------------------------------------------------------------ partial matches

    def slices(
        self, page: Page, copies: pa.Table, spans: Sequence[Span], horizon: int
    ) -> Iterator[Step | list[Failure]]:
        """Feed *copies* (in order of arrival) to the partial matches of *page*, and advance to *horizon*, or as far as the
        spans of the patterns go; what a pattern still holds at the end of its span is dropped.

        What comes of it comes in slices. If patterns fail, the first failure of each of them comes last, and what came before
        is of no use.
        """
        from asterism.matching import kernels

        tables = self.tables
        copies = copies.take(pa.array(np.argsort(copies.column(TIME).to_numpy(), kind="stable")))
        times = copies.column(TIME).to_numpy()
        n_state = len(page.times)
        pool = pa.concat_tables([page.events, copies.select(self.event_schema.names)]).combine_chunks()
        slots = self._slot_values(pool)
        texts = pc.dictionary_encode(
            pa.chunked_array([*page.keys.column(KEY).chunks, *copies.column(KEY).chunks], pa.string()).combine_chunks()
        )
        codes = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        n_codes = max(len(texts.dictionary), 1)
        state_codes, new_codes = codes[: page.keys.num_rows], codes[page.keys.num_rows :]

        rows, bits, entries = self._shares(copies, new_codes, times, spans)
        pool_rows = np.concatenate([np.arange(n_state), n_state + rows])
        pool_times = np.concatenate([page.times, times[rows]])
        pool_bits = np.concatenate([np.zeros((n_state, self.words), np.int64), bits])
        values, ranks = slot_values(slots, pool_rows, self.strings)
        if len(ranks):
            tables = tables._replace(ops=with_strings(tables.ops, ranks))

        # The kernel's keys: first those that have events, in their order, then what else the state knows.
        state_keys = page.keys.column(ENTRY).to_numpy().astype(np.int64) * n_codes + state_codes
        pair_keys = entries * n_codes + new_codes[rows]
        seen = np.ones(len(rows), np.bool_)
        positions = np.concatenate([page.positions, positions_among_equals(pair_keys, times[rows], seen)])
        begins = np.flatnonzero(np.diff(pair_keys, prepend=-1))
        known = _places(state_keys, pair_keys[begins])
        others = np.setdiff1d(np.arange(len(state_keys)), known)
        in_state = np.concatenate([known, others])
        keys = np.concatenate([pair_keys[begins], state_keys[others]])
        event_at = n_state + np.concatenate([begins, np.full(len(others) + 1, len(rows))])
        entry_of_key, code_of_key = keys // n_codes, keys % n_codes
        first_state = tables.automata[:, kernels.FIRST_STATE]
        run_at, run_rows = _gathered(page.run_at, page.run_rows, in_state)
        run_rows[:, 2] += np.repeat(first_state[entry_of_key], np.diff(run_at))
        ends = np.array(
            [min(horizon, span.until - 1) if span.until != END_OF_TIME else horizon for span in spans], np.int64
        )
        key_table = pa.table([entry_of_key.astype(np.int32), texts.dictionary.take(pa.array(code_of_key))], schema=KEYS)
        row_times = np.concatenate([page.times, times])
        inputs = tables, entry_of_key, pool_times, pool_bits, values, event_at, ends[entry_of_key]
        nodes = np.concatenate([page.nodes, np.empty((64, 3), np.int64)])
        waits = _gathered(page.waiting_at, page.waiting_rows, in_state)
        stored = nodes, len(page.nodes), run_at, run_rows, *waits, *_gathered(page.timer_at, page.timer_rows, in_state)
        most = SLICE
        for made in slices_of(inputs, stored, most, go_on=True, patterns=len(self.bound)):
            if made.failures[:, kernels.FAILED_HOW].any():
                continue
            for matches, timeouts, complete in made.found(pool, pool_rows, positions, most):
                dropped = made.dropped if complete else 0
                if not (complete and made.last):
                    yield Step(key_table, pool, row_times, matches, timeouts, [], [], dropped, last=False)
        if made.failures[:, kernels.FAILED_HOW].any():
            yield [self._failure(entry, key_table, *failure) for entry, failure in enumerate(made.failures.tolist())
                   if failure[kernels.FAILED_HOW] != kernels.OK]  # fmt: skip
            return

        nodes, n_nodes, wakes = made.nodes, made.n_nodes, made.wakes
        run_at, runs, waiting_at, waiting, timer_at, timers = made.rows
        over = np.array([span.until <= horizon for span in spans], np.bool_)
        alive = (np.diff(run_at) > 0) | (np.diff(waiting_at) > 0) | (np.diff(timer_at) > 0)
        live = alive & ~over[entry_of_key]
        kept_runs, kept_run_at = rows_of(runs, run_at, live)
        kept_waiting, kept_waiting_at = rows_of(waiting, waiting_at, live)
        kept_timers, kept_timer_at = rows_of(timers, timer_at, live)
        kept_nodes, kept = kernels.compact(len(pool_times), nodes, n_nodes, kept_runs, kept_waiting)
        # Two patterns may have kept the same event; what it is among those that they can see may differ.
        room = int(positions.max(initial=0)) + 1
        pairs, number = np.unique(pool_rows[kept] * room + positions[kept], return_inverse=True)
        kept_rows, kept_positions = pairs // room, pairs % room
        if len(kept):
            kept_nodes[:, 0] = number[kept_nodes[:, 0]]
            for some in (kept_runs, kept_waiting):
                begun = some[:, 1] >= 0
                some[begun, 0] = number[some[begun, 0]]
        kept_runs[:, 2] -= np.repeat(first_state[entry_of_key[live]], np.diff(kept_run_at))
        new = Page(
            keys=key_table.filter(pa.array(live)),
            events=pool.take(pa.array(kept_rows)),
            times=row_times[kept_rows],
            positions=kept_positions,
            nodes=kept_nodes,
            run_at=kept_run_at,
            run_rows=kept_runs,
            waiting_at=kept_waiting_at,
            waiting_rows=kept_waiting,
            timer_at=kept_timer_at,
            timer_rows=kept_timers,
        )
        wake = int(wakes[live].min(initial=kernels.NEVER))
        yield Step(key_table, pool, row_times, matches, timeouts, [new], [wake], dropped)

    def _shares(self, copies: pa.Table, codes: Ints, times: Ints, spans: Sequence[Span]) -> tuple[Ints, Ints, Ints]:
        """Pattern after pattern and key after key the events that it is to see: their rows, their bits, the pattern."""
        from asterism.rules.kernels import BEGINS, SINCE_SET, UNTIL, by_condition, shares

        limits = np.array([(span.since, span.begins, span.until) for span in spans], np.int64)
        selectors = copies.column(SELECTOR).to_numpy()
        since = copies.column(SINCE).to_numpy()
        met = copies.column(MET).combine_chunks()
        all_rows, all_bits, all_entries = (
            [np.empty(0, np.int64)],
            [np.empty((0, self.words), np.int64)],
            [np.empty(0, np.int64)],
        )
        for selector in np.unique(selectors).tolist():
            if selector not in self._selectors:
                continue  # of a processor that is gone
            mine, patterns, asks = self._selectors[selector]
            rows = np.flatnonzero(selectors == selector)
            rows = rows[np.argsort(codes[rows], kind="stable")]
            lists = met.take(pa.array(rows))
            met_at = offsets_of(pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False))
            numbers = lists.flatten().to_numpy(zero_copy_only=False)
            asked = _places(self.conditions, numbers)
            at, positions = by_condition(met_at, asked, len(self.conditions))
            patterns[:, [SINCE_SET, BEGINS, UNTIL]] = limits[mine]
            seen, bits, counts = shares(patterns, asks, at, positions, since[rows], times[rows], self.words)
            all_rows.append(rows[seen])
            all_bits.append(bits)
            all_entries.append(np.repeat(mine, counts))
        return np.concatenate(all_rows), np.concatenate(all_bits), np.concatenate(all_entries)

    def _failure(self, entry: int, keys: pa.Table, time: int, code: int, key: int, state: int) -> Failure:
        from asterism.matching import kernels

        one = self.bound[entry]
        where = [f"key {', '.join(map(repr, key_values(keys.column(KEY)[key].as_py())))}"]
        if state >= 0:
            stage = self.tables.edges[self.tables.states[state, kernels.FIRST_EDGE], kernels.STAGE]
            where = [f'stage "{one.matcher.nfa.stages[stage]}"', *where]
        where.append(f"event of {np.datetime64(time, 'us')}")
        limits = (kernels.TOO_MANY_RUNS, kernels.TOO_MUCH_WORK, kernels.TOO_MANY_HELD, kernels.TOO_MANY_EDGES)
        try:
            one.matcher.raise_error(code, ", ".join(where), hint=_HINT)
        except AsterismError as error:
            return Failure(entry, time, error, limit=code in limits)
        raise AssertionError(code)


def _places(values: Ints, wanted: Ints) -> Ints:
    """Where each of the *wanted* is among *values*, which are distinct; -1: nowhere."""
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values, wanted, sorter=order), max(len(values) - 1, 0))
    if not len(values):
        return np.full(len(wanted), -1, np.int64)
    found = order[at]
    return np.where(values[found] == wanted, found, -1)


def _gathered(at: Ints, rows: Ints, keys: Ints) -> tuple[Ints, Ints]:
    """The rows of *keys* (-1: a key that has none) in that order: where they begin, and they."""
    counts = np.append(np.diff(at), 0)[keys]
    begins = np.append(at[:-1], 0)[keys]
    new_at = offsets_of(counts)
    index = np.arange(new_at[-1]) + np.repeat(begins - new_at[:-1], counts)
    return new_at, rows[index]


_SETS: dict[tuple[int, ...], MatcherSet] = {}
