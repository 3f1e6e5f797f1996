"""One call of a :class:`asterism.windows.operator.WindowOperator` for one key group, from its pages of state to its firings.

The call reads the state and looks up panes, column by column. The compiled :mod:`asterism.windows.kernels` finds the firings,
:mod:`asterism.windows.panes` computes the results, and the remaining panes are written back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import consecutive, first_rows, group_codes, offsets_of, sorted_rows
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.errors import OperatorError
from asterism.operators.key_group import Group
from asterism.operators.operator import EVENTS
from asterism.operators.state.keyed_state import KEY
from asterism.operators.state.state_store import (
    additions_from_bytes,
    tables_from_bytes,
    tables_to_bytes,
    with_additions,
)
from asterism.windows import kernels
from asterism.windows.assigners import SessionWindows, assigned
from asterism.windows.panes import NONE, RecordedFirings, Rows, applied, plain, results_of
from asterism.windows.plan import (
    COUNTED,
    DISTANCES,
    FIRINGS,
    GAP,
    KINDS,
    META,
    META_TABLE,
    PANE_TABLE,
    ROW_TABLE,
    UNFIRED,
    WindowPlan,
)
from asterism.windows.process_function import FunctionStates, ProcessWindowFunction, divided, renumbered
from asterism.windows.session_ids import IDS, REPLACES, SESSION_ID, Sessions
from asterism.windows.spec import CLOSING
from asterism.windows.trigger_table import CallPhase
from asterism.windows.triggers import TimeSpan
from asterism.windows.user_triggers import UserDefinedTriggers, span_of

EMPTIED = "emptied"
"""In state: 1 if an evictor has removed all elements of a pane. It fires as if it had one, since its trigger has seen it."""
MAX_FIRINGS = 2**24
"""In one call for one key group; the limit is higher if there are many elements."""


class PaneSources(NamedTuple):
    """Where the panes of a call come from, and which elements they get."""

    old: Ints
    """the index of each pane in the state, or NONE"""
    example: Ints
    """an event for each pane that is new: it has its key"""
    row: Ints
    """the event of each element, in the order of the kernel"""
    first: Ints
    """the first element of each pane, in sessions of each key"""
    ends: Ints | None = None
    """in sessions: the end of the window that each element may start"""
    old_at: Ints | None = None
    """in sessions: the first pane of each key in the state"""


class PaneContents(NamedTuple):
    """The stored contents of each pane: partials, or the elements."""

    counts: Ints
    """the number of elements of each pane"""
    partials: pa.Table | None
    rows: pa.Table | None
    """the elements, in the order of the panes"""


@dataclass
class WindowCall:
    """One call for one key group."""

    plan: WindowPlan
    group: Group
    events: pa.Table
    watermarks: Ints
    """the watermark at which each event is processed"""
    stages: Ints
    """the stage of the call in which it is processed"""
    processing_time: int
    """the processing time, for windows in event time"""
    report_late: Callable[[Group, str, pa.Table], None]
    """receives late elements"""

    def __post_init__(self) -> None:
        self.spec, self.contents = self.plan.spec, self.plan.contents
        self.event_time = self.spec.is_event_time
        # Sessions that touch are merged: in order, they must wait for elements at their end.
        waits = self.spec.in_order and self.spec.windows.merges
        self.resolution = self.spec.time_column.resolution if self.event_time and not waits else 0
        self.lateness = self.spec.lateness_micros if self.event_time else END_OF_TIME

    def run(self) -> None:
        self._load()
        times = self.events.column(TIME).to_numpy()
        if self.spec.windows.merges:
            self._sessions(times)
        else:
            self._aligned(times)

    # -- state

    def _load(self) -> None:
        plan, group = self.plan, self.group
        horizon = group.watermark if self.event_time else group.processing_time
        self.pages = group.load([self.events], plan.key_schema.names, horizon)
        schemas = plan.page_schemas
        pages = [
            [schema.empty_table() for schema in schemas] if value is None else tables_from_bytes(value, schemas)
            for value in self.pages.stored
        ]
        panes = [page[PANE_TABLE] for page in pages]
        sizes = [table.num_rows for table in panes]
        seen = [next(iter(page[META_TABLE].column("seen").to_pylist()), BEFORE_TIME) for page in pages]
        self.old = pa.concat_tables([plan.pane_schema.empty_table(), *panes]).combine_chunks()
        self.old_seen = np.repeat(np.array(seen, np.int64), sizes)
        self.old_page = np.repeat(np.arange(len(pages)), sizes)
        self._load_additions(len(schemas), sizes)
        rows = [page[ROW_TABLE] for page in pages] if self.contents.partials is None else []
        self.old_rows = pa.concat_tables([plan.row_schema.empty_table(), *rows])
        names = plan.key_schema.names
        self.stored_states = (
            [page[len(schemas) - len(plan.state_schemas) :] for page in pages] if self.contents.states else []
        )
        with_state = pa.concat_tables([plan.key_schema.empty_table(), *(tables[0] for tables in self.stored_states)])
        self.all_keys = pa.concat_tables([self.old.select(names), with_state, self.events.select(names)])
        codes, self.n_keys = group_codes(self.all_keys)
        self.old_code, state_code, self.event_code = np.split(
            codes, np.cumsum([self.old.num_rows, with_state.num_rows])
        )
        if isinstance(self.contents.function, ProcessWindowFunction):
            self._load_states(state_code, sizes, codes)

    def _load_states(self, state_code: Ints, sizes: list[int], codes: Ints) -> None:
        """The states of the function, by the codes of keys and by the indexes of old panes."""
        counts = [tables[0].num_rows for tables in self.stored_states]
        owners, panes = divided(state_code, counts), divided(np.arange(sum(sizes)), sizes)
        names, schemas = list(self.contents.states), list(self.plan.state_schemas.values())
        loaded = [
            renumbered([tables[at] for tables in self.stored_states], schema, owners if at <= len(names) else panes)
            for at, schema in enumerate(schemas)
            if at > 0
        ]
        self.states_by_key = dict(zip(names, loaded, strict=False))
        self.states_by_pane = dict(zip(names, loaded[len(names) :], strict=False))
        self.page_of_key = np.zeros(self.n_keys, np.int64)
        self.page_of_key[self.event_code] = self.pages.of_events[0]
        self.page_of_key[self.old_code] = self.old_page
        self.page_of_key[state_code] = np.repeat(np.arange(len(counts)), counts)
        self.key_rows = self.all_keys.take(pa.array(first_rows(codes, self.n_keys)))

    def _load_additions(self, tables: int, sizes: list[int]) -> None:
        """Columns of panes that earlier releases do not have. Without them, a pane that has not fired has only new elements."""
        firings, counts = (self.old.column(name).to_numpy() for name in ("firings", "count"))
        self.old_unfired = np.where(firings == 0, counts, 0)
        self.old_emptied = np.zeros(len(firings), np.int64)
        self.old_ids: list[str | None] = [None] * len(firings)
        self.old_replaces: list[list[str]] = [[]] * len(firings)
        first = 0
        for value, size in zip(self.pages.stored, sizes, strict=True):
            added = None if value is None else additions_from_bytes(value, tables)
            if added is not None:
                of_page = slice(first, first + size)
                self.old_unfired[of_page] = added.column(UNFIRED).to_numpy()
                if EMPTIED in added.column_names:
                    self.old_emptied[of_page] = added.column(EMPTIED).to_numpy()
                if self.spec.session_ids and SESSION_ID in added.column_names:
                    self.old_ids[of_page] = added.column(SESSION_ID).to_pylist()
                    self.old_replaces[of_page] = added.column(REPLACES).to_pylist()
            first += size

    def _panes(self, old: Ints, count: int) -> Any:
        """Panes for the kernel: *old* is the previous index of each, or NONE."""
        was = old != NONE
        back = old[was]
        words = np.tile(self.plan.table.initial, (count, 1))
        if len(back):
            flat = self.old.column("words").combine_chunks()
            values = np.asarray(flat.values.to_numpy()).reshape(-1, words.shape[1])
            words[was] = values[np.arange(flat.offset, flat.offset + len(flat))][back]

        def column(name: str) -> Ints:
            values = np.zeros(count, np.int64)
            values[was] = self.old.column(name).to_numpy()[back]
            return values

        elements = column("count")
        elements[was] += self.old_emptied[back]
        unfired = np.zeros(count, np.int64)
        unfired[was] = self.old_unfired[back]
        contents = np.where(column("count") > 0, np.arange(count), NONE)
        seen = np.full(count, BEFORE_TIME, np.int64)
        seen[was] = self.old_seen[back]
        return kernels.Panes(
            start=column("start"),
            end=column("end"),
            seen=seen,
            words=words,
            firings=column("firings"),
            count=elements,
            unfired=unfired,
            contents=contents,
            segment=np.full(count, NONE, np.int64),
            alive=was.copy(),
            watermark=np.full(count, BEFORE_TIME, np.int64),
        )

    def _rules(self) -> Any:
        plan, group = self.plan, self.group
        return kernels.Rules(
            table=plan.table.rows,
            initial=plan.table.initial,
            thresholds=plan.table.thresholds,
            purges=plan.table.purges,
            event=self.event_time,
            lateness=self.lateness,
            resolution=self.resolution,
            before=group.before if self.event_time else BEFORE_TIME,
            watermark=group.watermark if self.event_time else BEFORE_TIME,
            processing_time=self.processing_time if self.event_time else group.processing_time,
            in_order=self.spec.in_order,
            ending=group.watermark == END_OF_TIME if self.event_time else group.over,
            closing=CLOSING.index(self.spec.closing),
            always_on_time=self.spec.on_time == "fire_always",
            turns=plan.table.turns,
        )

    # -- windows

    def _aligned(self, times: Ints) -> None:
        row, start, end = assigned(self.spec.windows, times)
        if self.event_time:
            kept = self._kept_until(end) > self.watermarks[row]
            if not kept.all():
                taken = np.zeros(len(times), np.bool_)
                taken[row[kept]] = True
                self._late(~taken)
                row, start, end = row[kept], start[kept], end[kept]
        n_old = self.old.num_rows
        code = np.concatenate([self.old_code, self.event_code[row]])
        starts = np.concatenate([self.old.column("start").to_numpy(), start])
        differ = self.spec.windows.starts_differ
        by_end = () if differ else (np.concatenate([self.old.column("end").to_numpy(), end]),)
        order, new = sorted_rows(code, starts, *by_end)  # existing panes come first
        pane_of = np.cumsum(new) - 1
        first = order[new]
        count = len(first)
        old = np.where(first < n_old, first, NONE)
        panes = self._panes(old, count)
        fresh = old == NONE
        panes.start[fresh] = start[first[fresh] - n_old]
        panes.end[fresh] = end[first[fresh] - n_old]
        if n_old:
            is_element = order >= n_old
            order, pane_of = order[is_element] - n_old, pane_of[is_element]
        at = offsets_of(np.bincount(pane_of, minlength=count))
        example = np.where(fresh, row[np.maximum(first - n_old, 0)] if len(row) else 0, NONE)
        self._play(panes, PaneSources(old, example, row[order], at))

    def _sessions(self, times: Ints) -> None:
        windows = self.spec.windows
        assert isinstance(windows, SessionWindows)
        gaps = self.events.column(GAP).to_numpy() if windows.dynamic_gap is not None else None
        _, _, end = windows.assign(times, gaps)
        before = np.lexsort((self.old.column("start").to_numpy(), self.old_code))
        chosen = np.argsort(self.event_code, kind="stable")
        count = len(before) + len(chosen)
        old = np.concatenate([before, np.full(len(chosen), NONE, np.int64)])
        panes = self._panes(old, count)
        keys = np.arange(self.n_keys + 1)
        old_at = np.searchsorted(self.old_code[before], keys)
        at = np.searchsorted(self.event_code[chosen], keys)
        example = np.concatenate([np.full(len(before), NONE, np.int64), chosen])
        self._play(panes, PaneSources(old, example, chosen, at, end[chosen], old_at))

    def _kept_until(self, end: Ints) -> Ints:
        """The time at which windows with these ends are dropped."""
        last = np.where(end == END_OF_TIME, END_OF_TIME, end - self.resolution)
        if not self.event_time:
            return last
        return np.where(last > END_OF_TIME - self.lateness, END_OF_TIME, last + self.lateness)

    def _late(self, late: Mask) -> None:
        if late.any():
            self.report_late(self.group, EVENTS, self.events.filter(pa.array(late)))

    # -- the kernel and its results

    def _play(self, panes: Any, sources: PaneSources) -> None:
        self.sources, self.old_of = sources, sources.old
        self._run(panes)
        now, log = self.panes, self.log
        if log.late.any():
            late = np.zeros(self.events.num_rows, np.bool_)
            late[sources.row[log.late]] = True
            self._late(late)
        self.fired = log.firings[: log.sizes[kernels.FIRED]]
        recorded = RecordedFirings(
            n_panes=len(now.start),
            contents=np.where(now.alive, now.contents, NONE),
            fired=self.fired[:, kernels.CONTENTS],
            segment_of=log.segment_of,
            n_segments=int(log.sizes[kernels.SEGMENTS]),
            left=log.left[: log.sizes[kernels.JOINS]],
            right=log.right[: log.sizes[kernels.JOINS]],
            elements=self.elements,
        )
        if log.sizes[kernels.UNFIRED]:
            self.group.metrics[UNFIRED] += int(log.sizes[kernels.UNFIRED])
        self.key_of = self._keys()
        self.sessions = self._sessions_of(panes) if self.spec.session_ids else None
        self.states = self._states()
        gone = ~now.alive
        if (
            sources.ends is not None
        ):  # a session that is part of another one continues, and not every element has begun one
            gone[log.merges[: log.sizes[kernels.MERGES], 1]] = False
            gone &= now.end > now.start
        self.dropped = np.flatnonzero(gone)
        self._write(self._results(recorded))

    def _run(self, panes: Any) -> None:
        """Run the kernel on copies of *panes*, with more room for firings until there is enough."""
        table, sources, row = self.plan.table, self.sources, self.sources.row
        self.rules = self._rules()
        everywhere = len(row) == self.events.num_rows and bool((row[1:] > row[:-1]).all())
        read = self.events.drop_columns(self.plan.key_schema.names)
        self.elements = events = read if everywhere else read.take(pa.array(row))
        self._element_times = events.column(TIME).to_numpy()
        distances = np.zeros((len(row), len(table.distances)))
        for n in range(len(table.distances)):
            distances[:, n] = pc.fill_null(events.column(f"{DISTANCES}{n}"), np.nan).to_numpy()
        elements = kernels.Elements(
            sources.first, self._element_times, self.watermarks[row], row, self.stages[row], distances
        )
        count, room = len(panes.start), 2 * len(row) + 2 * len(sources.old) + 64
        while True:
            self.panes = kernels.Panes(*(array.copy() for array in panes))
            self.log = kernels.Log(
                firings=np.empty((room, 10), np.int64),
                segment_of=np.full(len(row), NONE, np.int64),
                left=np.empty(2 * len(row) + count + 1, np.int64),
                right=np.empty(2 * len(row) + count + 1, np.int64),
                sizes=np.zeros(5, np.int64),
                late=np.zeros(len(row), np.bool_),
                merges=np.zeros((0 if sources.ends is None else count, 3), np.int64),
            )
            self.user_defined = self._user_defined() if table.user_defined else None
            call = self.rules, self.panes, self.log, elements
            run: Any
            if sources.ends is None:
                run = kernels.aligned_compiled if self.user_defined is None else kernels.aligned
                code = run(*call, self.user_defined)
            else:
                run = kernels.sessions_compiled if self.user_defined is None else kernels.sessions
                slots = np.zeros(count + 1, np.int64)
                code = run(*call, sources.old_at, sources.ends, slots, self.user_defined)
            if code == kernels.OK:
                return
            if room > max(MAX_FIRINGS, 4 * len(row)):
                raise OperatorError(
                    f"windows fire more than {room:,} times at once",
                    f"Trigger: {self.spec.effective_trigger!r}\nTime has advanced by too many intervals at once.",
                    "use a longer interval, or after_first_element(...), which waits for a new element",
                )
            room *= 4

    def _sessions_of(self, before: Any) -> Sessions | None:
        """:param before: the panes before the call"""
        log, sources, old = self.log, self.sources, self.old_of
        if sources.ends is None:
            return None
        merges = [
            (survivor, merged, fired, bool(self.panes.firings[merged]))
            for survivor, merged, fired in log.merges[: log.sizes[kernels.MERGES]].tolist()
        ]
        ids = [None if at == NONE else self.old_ids[at] for at in old.tolist()]
        replaces = {
            pane: list(self.old_replaces[at])
            for pane, at in enumerate(old.tolist())
            if at != NONE and self.old_replaces[at]
        }
        # A pane begins with the window of its element; in state of earlier releases, with its window then.
        was = old != NONE
        starts, ends = np.where(was, before.start, 0), np.where(was, before.end, 0)
        starts[~was], ends[~was] = self._element_times, sources.ends
        return Sessions(self.key_of, ids, replaces, (starts, ends), merges)

    def _states(self) -> FunctionStates | None:
        if not isinstance(self.contents.function, ProcessWindowFunction):
            return None
        plan, old, example = self.plan, self.old_of, self.sources.example
        was = old != NONE
        keys = np.empty(len(old), np.int64)
        keys[was], keys[~was] = self.old_code[old[was]], self.event_code[example[~was]]
        by_window = None
        if not self.spec.windows.merges:
            pane_of = np.empty(self.old.num_rows, np.int64)
            pane_of[old[was]] = np.flatnonzero(was)
            by_window = {name: renumbered([rows], rows.schema, [pane_of]) for name, rows in self.states_by_pane.items()}
        return FunctionStates(
            self.contents.function,
            self.key_rows.select(plan.key_schema.names if self.spec.keys else []).rename_columns(list(self.spec.keys)),
            self.states_by_key,
            by_window,
            keys,
            time=self.group.before if self.event_time else BEFORE_TIME,
            event_time=self.event_time,
        )

    def _applied(self, elements: pa.Table, offsets: Ints, spans: list[TimeSpan]) -> tuple[pa.Table, Ints]:
        """Call the window function for each firing."""
        fired, panes = self.fired, self.panes
        if self.states is None:
            assert callable(self.contents.function)
            return applied(self.contents.function, self.contents.schema, elements, offsets, spans)
        # Windows that are dropped are cleared after their firings of that time.
        gone = self.dropped
        at = self._kept_until(panes.end[gone])
        stages = np.where(at <= self.group.before, CallPhase.BEFORE, CallPhase.AFTER)
        stages = stages if self.event_time else np.full(len(gone), CallPhase.PROCESSING_TIME)
        place = np.where(fired[:, kernels.PLACE] == NONE, END_OF_TIME, fired[:, kernels.PLACE])
        order = np.lexsort(
            [
                np.repeat([0, 1], [len(fired), len(gone)]),
                np.concatenate([fired[:, kernels.STOP], panes.end[gone]]),
                np.concatenate([place, np.full(len(gone), END_OF_TIME)]),
                np.concatenate([fired[:, kernels.TIME], at]),
                np.concatenate([fired[:, kernels.STAGE], stages]),
            ]
        )
        tables, firing_of = [self.contents.schema.empty_table()], []
        for number in order.tolist():
            if number >= len(fired):
                pane = int(gone[number - len(fired)])
                span = (
                    TimeSpan(None, None)
                    if self.spec.windows.is_global
                    else span_of(int(panes.start[pane]), int(panes.end[pane]))
                )
                self.states.clear(pane, span, int(at[number - len(fired)]))
                continue
            stage, time = int(fired[number, kernels.STAGE]), int(fired[number, kernels.TIME])
            timed = CallPhase.PROCESSING_TIME if not self.event_time else None
            moves = stage == timed if timed is not None else stage in (CallPhase.BEFORE, CallPhase.AFTER)
            contents = elements.slice(int(offsets[number]), int(offsets[number + 1] - offsets[number]))
            rows = self.states.process(
                int(fired[number, kernels.PANE]),
                contents,
                spans[number],
                time if moves else BEFORE_TIME,
                self.contents.schema,
            )
            tables.append(rows)
            firing_of.append(np.full(rows.num_rows, number, np.int64))
        self.states.emitted().add_to(self.group)
        return pa.concat_tables(tables), np.concatenate([np.empty(0, np.int64), *firing_of])

    def _user_defined(self) -> UserDefinedTriggers:
        texts = self.old.column("own").to_pylist()
        states = [texts[at] if at != NONE else None for at in self.old_of.tolist()]
        names = self.plan.kept_columns
        rows = self.elements.select(["e:" + name for name in names]).rename_columns(names).to_pylist()
        return UserDefinedTriggers(self.plan.table, self.panes, states, rows, self.rules)

    def _keys(self) -> pa.Table:
        """The key of each pane."""
        old, example, names = self.old_of, self.sources.example, self.plan.key_schema.names
        both = pa.concat_tables([self.old.select(names), self.events.select(names)]).combine_chunks()
        return both.take(pa.array(np.where(old != NONE, old, self.old.num_rows + example)))

    def _results(self, recorded: RecordedFirings) -> PaneContents:
        """Emit the results, and return the contents of each pane."""
        old = self.old_of
        if self.contents.partials is not None:
            was = old != NONE
            before = self.old.select(self.contents.partials.kept.names).take(pa.array(np.where(was, old, 0), mask=~was))
            results, kept = self.contents.partials.run(recorded, before)
            self._emit(*self._finished(results, np.arange(len(self.fired))))
            return PaneContents(self.panes.count, kept, None)
        old_counts = self.old.column("count").to_numpy()
        sizes = np.where(old != NONE, old_counts[np.maximum(old, 0)] if len(old_counts) else 0, 0)
        starts = np.cumsum(old_counts) - old_counts
        first = np.where(old != NONE, starts[np.maximum(old, 0)] if len(starts) else 0, 0)
        old_rows = self.old_rows.take(pa.array(consecutive(first, sizes)))
        old_at = offsets_of(sizes)
        make: Any
        if self.contents.computation is not None:
            make = partial(results_of, self.contents.computation)
        else:
            spans = self._spans()

            def make(rows: pa.Table, offsets: Ints, firings: Ints) -> tuple[pa.Table, Ints]:
                return self._applied(plain(rows), offsets, spans)

        evict_spans = self._spans() if self.spec.evictor is not None and self.spec.evictor.is_user_defined else []
        results, firing_of, rows, counts = Rows(make, self.spec.evictor, evict_spans).run(recorded, old_rows, old_at)
        if self.contents.computation is not None:
            results, firing_of = self._finished(results, firing_of)
        self._emit(results, firing_of)
        return PaneContents(counts, None, rows)

    def _finished(self, results: pa.Table, firing_of: Ints) -> tuple[pa.Table, Ints]:
        """The result of each firing, or the result of the window function for it and the key."""
        if self.contents.function is None:
            return results, firing_of
        keys = self.key_of.take(pa.array(self.fired[:, kernels.PANE])).columns
        # A stream without a key has a constant one; a reduced element contains its key, unless there is no element.
        of_keys = dict(zip(self.spec.keys, keys, strict=False))
        both = of_keys | dict(zip(results.column_names, results.columns, strict=True)) | of_keys
        results = pa.table(list(both.values()), names=list(both))
        return self._applied(results, np.arange(len(self.fired) + 1), self._spans())

    def _spans(self) -> list[TimeSpan]:
        if self.spec.windows.is_global:
            return [TimeSpan(None, None)] * len(self.fired)
        return [span_of(start, end) for start, end in self.fired[:, [kernels.START, kernels.STOP]].tolist()]

    def _emit(self, results: pa.Table, firing_of: Ints) -> None:
        fired = self.fired
        for number, metric in enumerate(COUNTED):
            count = int((fired[:, kernels.FIRING_KIND] == number).sum())
            if count:
                self.group.metrics[metric] += count
        place = fired[:, kernels.PLACE]
        place = np.where(place == NONE, END_OF_TIME, place)  # a timer fires after the elements of its time
        order = np.lexsort((fired[:, kernels.STOP], place, fired[:, kernels.TIME], fired[:, kernels.STAGE]))
        if not np.array_equal(firing_of, np.arange(len(fired))):
            ranks = np.empty(len(fired), np.int64)
            ranks[order] = np.arange(len(fired))
            order = np.argsort(ranks[firing_of], kind="stable")
        which = firing_of[order]
        firings = fired[which]
        columns: list[Any] = []
        if self.spec.keys:
            columns = self.key_of.take(pa.array(firings[:, kernels.PANE])).columns
        if self.spec.windows.is_global:
            columns += [pa.nulls(len(firings), self.spec.time_column.written)] * 2
        else:
            columns += [
                self.spec.time_column.from_micros(firings[:, at], firings[:, kernels.START])
                for at in (kernels.START, kernels.STOP)
            ]
        kinds = pa.array(KINDS).take(pa.array(firings[:, kernels.FIRING_KIND]))
        columns += [pa.array(firings[:, kernels.FIRING_NUMBER]), kinds, pa.array(firings[:, kernels.IS_LAST] != 0)]
        if self.sessions is not None:
            panes = fired[:, kernels.PANE]
            replaced = self.sessions.replaced(panes, np.bincount(firing_of, minlength=len(fired)))
            columns += [self.sessions.ids(firings[:, kernels.PANE]), replaced.take(pa.array(which))]
        columns += results.take(pa.array(order)).select(self.contents.names).columns
        self.group.emit(FIRINGS, pa.table(columns, schema=self.plan.firing_schema))

    def _write(self, contents: PaneContents) -> None:
        """Write the panes that remain to the pages of state."""
        panes, group, old = self.panes, self.group, self.old_of
        event_times, processing_times = np.zeros(len(panes.start), np.int64), np.zeros(len(panes.start), np.int64)
        kernels.next_timers(self.rules, panes, event_times, processing_times)
        table = self._pane_table(contents)
        seen = pa.table({"seen": [max(group.watermark, BEFORE_TIME)]}, schema=META)
        row_at = np.cumsum(contents.counts) - contents.counts
        remaining = np.flatnonzero(panes.alive & (not group.over))
        # A key whose windows have all been dropped may still have state of the window function.
        states = None if self.states is None or not self.contents.states else self.states.settled()
        owners = np.empty(0, np.int64)
        if states is not None and not group.over:
            owners = np.unique(np.concatenate([rows.column(KEY).to_numpy() for rows in states[0]]))

        def encoded(which: Ints) -> tuple[bytes, int, int]:
            kept = remaining[which[which < len(remaining)]]
            keys_of_page = owners[which[which >= len(remaining)] - len(remaining)]
            tables = [seen, table.take(pa.array(kept))]
            if contents.rows is not None:
                tables.append(contents.rows.take(pa.array(consecutive(row_at[kept], contents.counts[kept]))))
            if states is not None:
                tables.append(self.key_rows.take(pa.array(keys_of_page)))
                tables += [_rows_of(state, keys_of_page, self.n_keys) for state in states[0]]
                tables += [_rows_of(state, kept, len(panes.start)) for state in states[1]]
            next_event_time = int(event_times[kept].min(initial=END_OF_TIME)) if self.event_time else END_OF_TIME
            value = with_additions(tables_to_bytes(tables), self._additions(contents.counts, kept))
            return value, next_event_time, int(processing_times[kept].min(initial=END_OF_TIME))

        def keys() -> pa.Table:
            of_panes = table.select(self.plan.key_schema.names).take(pa.array(remaining))
            return pa.concat_tables([of_panes, *([self.key_rows.take(pa.array(owners))] if len(owners) else [])])

        was = old != NONE
        page_of = np.empty(len(panes.start), np.int64)
        page_of[was] = self.old_page[old[was]]
        page_of[~was] = self.pages.of_events[0][self.sources.example[~was]]
        pages = page_of[remaining]
        if len(owners):
            pages = np.concatenate([pages, self.page_of_key[owners]])
        self.pages.rewrite(keys, pages, partial(map, encoded))

    def _pane_table(self, contents: PaneContents) -> pa.Table:
        panes = self.panes
        words = pa.FixedSizeListArray.from_arrays(pa.array(panes.words.ravel()), panes.words.shape[1])
        numbers = (panes.start, panes.end, panes.firings, contents.counts)
        columns: list[Any] = [*self.key_of.columns, *map(pa.array, numbers), words]
        if self.user_defined is not None:
            columns.append(pa.array(self.user_defined.texts(), pa.string()))
        if contents.partials is not None:
            columns += contents.partials.columns
        return pa.table(columns, schema=self.plan.pane_schema)

    def _additions(self, counts: Ints, kept: Ints) -> pa.Table | None:
        """The columns of the panes *kept* that earlier releases do not have; None: all have their defaults."""
        panes = self.panes
        unfired, usual = panes.unfired[kept], np.where(panes.firings[kept] == 0, counts[kept], 0)
        emptied = np.asarray((counts[kept] == 0) & (panes.count[kept] > 0), np.int64)
        if self.sessions is None and not emptied.any() and (unfired == usual).all():
            return None
        added: dict[str, Any] = {UNFIRED: pa.array(unfired), EMPTIED: pa.array(emptied)}
        if self.sessions is not None:
            added |= {SESSION_ID: self.sessions.ids(kept), REPLACES: self.sessions.to_be_replaced(kept).cast(IDS)}
        return pa.table(added)


def _rows_of(state: pa.Table, owners: Ints, count: int) -> pa.Table:
    """The rows of a state that belong to the *owners*, by their positions there; *count*: of all possible owners."""
    position = np.full(count, NONE, np.int64)
    position[owners] = np.arange(len(owners))
    owner_of = position[state.column(KEY).to_numpy()]
    rows = state.filter(pa.array(owner_of != NONE))
    rows = rows.set_column(0, KEY, pa.array(owner_of[owner_of != NONE]))
    return rows.take(pa.array(np.argsort(owner_of[owner_of != NONE], kind="stable")))
