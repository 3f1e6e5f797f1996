"""The contents of panes, and the results of firings.

:class:`Partials` keeps one row per pane, whatever the number of its elements: for incremental SQL aggregates, or a function that
reduces two elements to one. :class:`Rows` keeps the elements themselves: for other aggregates, functions of all rows, and
evictors. Both resolve the indexes of contents that :mod:`asterism.windows.kernels` records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.arguments import function_name, shown
from asterism.columns.arrays import Ints, Mask, cast_table, cast_to
from asterism.columns.groups import consecutive, offsets_of
from asterism.errors import UserFunctionError
from asterism.windows.evictors import BuiltInEvictor, Evictor
from asterism.windows.folds import Computation
from asterism.windows.triggers import TimeSpan
from asterism.windows.user_functions import called, table_of

NONE = -1


@dataclass(frozen=True, slots=True)
class RecordedFirings:
    """The firings that the kernel recorded, and the elements that they refer to.

    :ivar contents: the contents of the panes at the end of the call
    :ivar segment_of: by element; NONE: it was not added
    """

    n_panes: int
    contents: Ints
    fired: Ints
    """the contents of each firing"""
    segment_of: Ints
    n_segments: int
    left: Ints
    right: Ints
    elements: pa.Table

    @property
    def first_join(self) -> int:
        return self.n_panes + len(self.segment_of)

    def by_segment(self) -> tuple[Ints | None, Ints]:
        """(the elements by segment, those that were not added first; None: they are in this order; where each segment begins)"""
        numbers = self.segment_of
        at = offsets_of(np.bincount(numbers - NONE, minlength=self.n_segments + 1))[1:]
        return None if bool((numbers[1:] >= numbers[:-1]).all()) else np.argsort(numbers, kind="stable"), at


class Partials:
    """Contents with one row per pane."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.kept = pa.schema([field.with_name(f"p:{n}") for n, field in enumerate(computation.partial_schema)])

    def continued(self, panes: pa.Table, names: Sequence[str], aligned: pa.Table) -> pa.Table:
        """The *panes* of a former computation with partials of these *names*. A new partial counts from now on.

        :param aligned: the panes with the columns of the new schema
        """
        do = self.computation
        empty = do.merge(do.partial_schema.empty_table(), np.empty(0, np.int64), panes.num_rows)
        known = {name: panes.column(f"p:{number}") for number, name in enumerate(names)}
        for number, (name, field) in enumerate(zip(do.partial_names, self.kept, strict=True)):
            column = known[name] if name in known else empty.column(number)
            aligned = aligned.set_column(aligned.column_names.index(field.name), field, cast_to(column, field.type))
        return aligned

    def run(self, recorded: RecordedFirings, before: pa.Table) -> tuple[pa.Table, pa.Table]:
        """
        :param before: the partials of the panes before the call; arbitrary for panes without contents
        :return: the results of the firings; the partials of the panes after it
        """
        from asterism.windows.kernels import levels_of

        do = self.computation
        n_panes, first_join = recorded.n_panes, recorded.first_join
        before = before.rename_columns(do.partial_schema.names)
        by_segment, segment_at = recorded.by_segment()
        levels = np.zeros(len(recorded.left), np.int64)
        deepest = int(levels_of(recorded.left, recorded.right, n_panes, len(recorded.segment_of), levels))
        is_segment = (recorded.right >= n_panes) & (recorded.right < first_join)
        all_segments = np.arange(recorded.n_segments)

        def fold(segments: Ints, into: pa.Table | None) -> pa.Table:
            """Combine the elements of each of *segments* into one row."""
            if by_segment is None and segments is all_segments and not segment_at[0]:
                return do.fold(recorded.segment_of, len(segments), plain(recorded.elements), into)
            sizes = segment_at[segments + 1] - segment_at[segments]
            group = np.repeat(np.arange(len(segments)), sizes)
            rows = consecutive(segment_at[segments], sizes)
            rows = rows if by_segment is None else by_segment[rows]
            everything = len(rows) == recorded.elements.num_rows and bool((rows[1:] > rows[:-1]).all())
            chosen = recorded.elements if everything else recorded.elements.take(pa.array(rows))
            return do.fold(group, len(segments), plain(chosen), into)

        first = np.ones(recorded.n_segments, np.bool_)
        first[recorded.right[is_segment] - n_panes] = False
        alone = recorded.fired[(recorded.fired >= n_panes) & (recorded.fired < first_join)]
        first[alone - n_panes] = True  # a session fired with it and was merged into another one later
        begins = all_segments if first.all() else np.flatnonzero(first)
        # The position of the value of each of the contents in the concatenation of all *levels*.
        where = np.full(first_join + len(recorded.left), NONE, np.int64)
        where[:n_panes] = np.arange(n_panes)
        where[n_panes + begins] = n_panes + np.arange(len(begins))
        values = _Values([before, fold(begins, None)])
        by_level = np.argsort(levels, kind="stable")
        level_at = np.searchsorted(levels[by_level], np.arange(1, deepest + 2))
        for begin, end in pairwise(level_at):
            joins = by_level[begin:end]
            for selected in (joins[is_segment[joins]], joins[~is_segment[joins]]):
                if not len(selected):
                    continue
                left, right = where[recorded.left[selected]], recorded.right[selected]
                if is_segment[selected[0]]:
                    new = fold(right - n_panes, values.take(left))
                else:
                    both = np.stack([left, where[right]], axis=1).ravel()
                    new = do.merge(values.take(both), np.repeat(np.arange(len(selected)), 2), len(selected))
                where[first_join + selected] = values.size + np.arange(len(selected))
                values.add(new)
        fired = where[recorded.fired]
        if (recorded.fired == NONE).any():
            fired[recorded.fired == NONE] = values.size
            values.add(do.merge(do.partial_schema.empty_table(), np.empty(0, np.int64), 1))
        results = do.finish(values.take(fired)) if len(fired) else pa.schema(do.fields).empty_table()
        after = np.where(recorded.contents == NONE, NONE, where[recorded.contents])
        kept = values.whole.take(pa.array(after, mask=after == NONE))
        return results, kept.rename_columns(self.kept.names)


class _Values:
    """Partials, level by level. Most reads are of the last level; earlier levels are concatenated only if needed."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = [pa.concat_tables(tables).combine_chunks()]
        self.size = self.tables[0].num_rows

    def add(self, table: pa.Table) -> None:
        self.tables.append(table)
        self.size += table.num_rows

    @property
    def whole(self) -> pa.Table:
        if len(self.tables) > 1:
            self.tables = [pa.concat_tables(self.tables).combine_chunks()]
        return self.tables[0]

    def take(self, rows: Ints) -> pa.Table:
        last = self.tables[-1]
        first = self.size - last.num_rows
        if len(rows) and rows.min() >= first:
            return last.take(pa.array(rows - first))
        return self.whole.take(pa.array(rows))


@dataclass(frozen=True, slots=True)
class Rows:
    """Contents with the elements of each pane.

    :param make: computes the results of firings: a table of all their rows, and the offset of the rows of each
    :param spans: the window of each firing, for a user-defined evictor
    """

    make: Callable[[pa.Table, Ints, Ints], tuple[pa.Table, Ints]]
    evictor: Evictor | None
    spans: Sequence[TimeSpan] = ()

    def run(self, recorded: RecordedFirings, old: pa.Table, old_at: Ints) -> tuple[pa.Table, Ints, pa.Table, Ints]:
        """
        :param old: the rows of the panes before the call; *old_at*: the offset of the rows of each pane
        :return: the rows of results, and the firing of each; the rows of all panes after the call, and the number of rows of each
        """
        n_panes, first_join = recorded.n_panes, recorded.first_join
        rows = pa.concat_tables(
            [old, cast_table(recorded.elements.select(old.column_names), old.schema)]
        ).combine_chunks()
        by_segment, segment_at = recorded.by_segment()
        known: dict[int, Ints] = {NONE: np.empty(0, np.int64)}

        def of(contents: int) -> Ints:
            """The indexes of the rows, in order."""
            stack = [contents]
            while stack:
                at = stack[-1]
                if at in known:
                    stack.pop()
                elif at < n_panes:
                    known[at] = np.arange(old_at[at], old_at[at + 1])
                elif at < first_join:
                    segment = at - n_panes
                    begin, end = segment_at[segment : segment + 2].tolist()
                    added = np.arange(begin, end) if by_segment is None else by_segment[begin:end]
                    known[at] = old.num_rows + added
                else:
                    parts = [int(recorded.left[at - first_join]), int(recorded.right[at - first_join])]
                    missing = [part for part in parts if part not in known]
                    stack += missing
                    if not missing:
                        known[at] = np.concatenate([known[part] for part in parts])
            return known[contents]

        gone = np.zeros(rows.num_rows, np.bool_)
        chosen: list[Ints] = []
        for firing, contents in enumerate(recorded.fired.tolist()):
            in_firing = of(contents)
            if self.evictor is not None:
                in_firing = in_firing[~gone[in_firing]]
                keep = self._kept(rows, in_firing, firing)
                gone[in_firing[~keep]] = True
                in_firing = in_firing if self.evictor.after else in_firing[keep]
            chosen.append(in_firing)
        sizes = np.array([len(in_firing) for in_firing in chosen], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        fired_rows = rows.take(pa.array(np.concatenate(chosen))) if chosen else rows.slice(0, 0)
        results, firing_of = self.make(fired_rows, offsets, np.arange(len(chosen)))
        left: list[Ints] = []
        for contents in recorded.contents.tolist():
            in_pane = of(contents)
            left.append(in_pane[~gone[in_pane]])
        counts = np.array([len(in_pane) for in_pane in left], np.int64)
        kept = rows.take(pa.array(np.concatenate(left))) if left else rows.slice(0, 0)
        return results, firing_of, kept, counts

    def _kept(self, rows: pa.Table, in_firing: Ints, firing: int) -> Mask:
        evictor = self.evictor
        assert evictor is not None
        if not isinstance(evictor, BuiltInEvictor):
            return kept_by(evictor, plain(rows).take(pa.array(in_firing)), self.spans[firing])
        if evictor.kind == "count":
            return np.asarray(np.arange(len(in_firing)) >= len(in_firing) - evictor.keep)
        if evictor.kind == "time":
            times = rows.column(TIMES).to_numpy()[in_firing]
            return np.asarray(times > times.max() - evictor.keep) if len(times) else np.empty(0, np.bool_)
        if isinstance(evictor.distance, str):
            values = rows.column(DISTANCE).to_numpy()[in_firing]
            # An element without a distance is kept.
            return ~(np.abs(values - values[-1]) >= evictor.threshold) if len(values) else np.empty(0, np.bool_)
        names = [name for name in rows.column_names if name.startswith("e:")]
        elements = rows.select(names).rename_columns([name[2:] for name in names]).take(pa.array(in_firing)).to_pylist()
        return np.array(
            [distance(evictor.distance, former, elements[-1]) < evictor.threshold for former in elements],
            np.bool_,
        )


TIMES, DISTANCE = "__time", "x:"
"""Columns of kept rows: the time; the number whose differences an evictor compares."""


def distance(function: Callable[[Any, Any], Any], former: Mapping[str, Any], element: Mapping[str, Any]) -> float:
    """Call a user's delta function, which must return a number."""
    what = f"the delta function {function_name(function)}"
    result = called(what, function, former, element)
    if isinstance(result, bool) or not isinstance(result, int | float | np.integer | np.floating):
        raise UserFunctionError(
            f"{what} must return a number, not {result!r}",
            "The distance between two elements is compared with the threshold.",
        )
    return float(result)


def kept_by(evictor: Evictor, elements: pa.Table, window: TimeSpan) -> Mask:
    """Call a user-defined evictor, which must return a Boolean for each element."""
    what = f"the evictor {type(evictor).__name__}"
    answer = called(what, evictor.keeps, elements, window)
    if isinstance(answer, pa.ChunkedArray | pa.Array):
        answer = answer.to_pylist()
    keeps = called(what, np.asarray, answer)
    if keeps.shape != (elements.num_rows,) or (len(keeps) and keeps.dtype != np.bool_):
        raise UserFunctionError(
            f"{what} must return a Boolean for each of {elements.num_rows:,} elements, not {shown(answer)}",
            "True: the element stays in the window.",
            'pc.equal(elements["kind"], "card"), or [True] * elements.num_rows',
        )
    return np.asarray(keeps, np.bool_)


def results_of(computation: Computation, rows: pa.Table, offsets: Ints, firings: Ints) -> tuple[pa.Table, Ints]:
    """SQL aggregates of kept elements: one row per firing."""
    segments = np.repeat(firings, np.diff(offsets))
    elements = plain(rows)
    partials = computation.fold(segments, len(firings), elements)
    return computation.finish(partials, offsets, elements), firings


def plain(rows: pa.Table) -> pa.Table:
    """The columns of the elements, with their own names."""
    names = [name for name in rows.column_names if name.startswith("e:")]
    return rows.select(names).rename_columns([name[2:] for name in names])


def applied(
    function: Callable[..., Any], schema: pa.Schema, elements: pa.Table, offsets: Ints, windows: Sequence[Any]
) -> tuple[pa.Table, Ints]:
    """Call a user function with the elements of each firing and its window; it returns any number of rows."""
    tables, firing_of = [schema.empty_table()], []
    what = f"the window function {function_name(function)}"
    for firing, window in enumerate(windows):
        contents = elements.slice(int(offsets[firing]), int(offsets[firing + 1] - offsets[firing]))
        rows = table_of(what, called(what, function, contents, window), schema)
        tables.append(rows)
        firing_of.append(np.full(rows.num_rows, firing, np.int64))
    return pa.concat_tables(tables), np.concatenate([np.empty(0, np.int64), *firing_of])
