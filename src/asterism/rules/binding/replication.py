"""Copies events before the exchange: one copy for each key by which some pattern processor groups, if the event is relevant
to it, or may wait for the watermark: then the processors of later sets may need it, too.

A copy belongs to a *selector*, the list of key expressions, and contains the numbers of the conditions that it satisfies. So
each distinct condition is evaluated once, for many events at a time, no matter how many processors and key groups there are.

A condition that reads a lookup is evaluated with each version of the table that may be in force, and has a number for each of
them. After the exchange, the version is known: the other numbers are dropped, and this one becomes the number of the condition.

See docs/decisions/0012.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import IdentityCache
from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.failures import evaluated_in_parts
from asterism.columns.groups import KEY_HASH, mask_of, offsets_of
from asterism.columns.keys import KEY, key_strings
from asterism.columns.time import NO_TIME, TIME
from asterism.errors import EvaluationFailedError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.ranges import MAX_ALTERNATIVES, Alternative, Ranges
from asterism.matching.binding import python_mask
from asterism.patterns.conditions import PythonCondition
from asterism.rules.binding.binding import (
    NO_KEY,
    BoundPatternProcessor,
    BoundProcessor,
    ProcessorCompiler,
    Selector,
    number_of,
)
from asterism.rules.binding.condition_index import NO_REST, ConditionIndex
from asterism.rules.binding.text_index import TextIndex, text_index
from asterism.rules.definition.lookup_tables import LookupVersion, nulls_of
from asterism.text.printable import event_text

SELECTOR, SINCE, FIRST, MET, FAILED = "__selector", "__since", "__first", "__met", "__failed"
"""Columns of copies besides KEY: the number of the selector; the newest set at arrival; whether it is the first copy of its
event, or for events that wait, whether it is kept regardless of processors; the numbers of the conditions that the event
satisfies, except for those in an index, and of those that could not be computed (the number of the selector if the key could
not). The first copy has the numbers of all conditions, of any selector, because it alone determines whether an event is late. MET
is NULL if the conditions must be evaluated again.
"""
_NUMBERS = pa.list_(pa.int64())
LookupVersions = Mapping[str, LookupVersion]
"""The versions of lookups, by name; one that is missing has no rows."""


def copies_schema(events: pa.Schema) -> pa.Schema:
    head = [
        pa.field(SELECTOR, pa.int64()),
        pa.field(KEY, pa.string()),
        pa.field(TIME, pa.int64()),
        pa.field(SINCE, pa.int64()),
        pa.field(FIRST, pa.bool_()),
        pa.field(MET, _NUMBERS),
        pa.field(FAILED, _NUMBERS),
    ]
    return pa.schema([*head, *stored_columns(events)])


def stored_columns(events: pa.Schema) -> pa.Schema:
    """The columns of events in copies and in pages."""
    return pa.schema([field.with_name("e:" + field.name) for field in events])


def copies_of(
    events: pa.Table,
    times: pa.Array | pa.ChunkedArray,
    processors: Sequence[BoundProcessor],
    compiler: ProcessorCompiler,
    versions: Sequence[LookupVersions] = ({},),
    read: Callable[[LookupVersion], bytes] | None = None,
    *,
    kept: Mask | None = None,
    selectors: Mapping[int, Selector] = MappingProxyType({}),
) -> pa.Table:
    """The copies of *events*, with KEY_HASH. Their columns of lookups are NULL.

    :param versions: of the lookups, in each set that may be in force
    :param read: see :func:`~asterism.rules.definition.lookup_tables.table_of`
    :param kept: the events that are copied for the processors, even if none of them needs it, and for *selectors*, by number
    """
    from asterism.columns.hashing import hash_strings

    schema = copies_schema(compiler.schema)
    timeless = times.to_numpy() == NO_TIME
    parts = []
    if timeless.any():
        parts.append(_timeless(events.filter(pa.array(timeless)), schema, compiler))
        timed = pa.array(~timeless)
        events, times = events.filter(timed), times.filter(timed)
        kept = None if kept is None else kept[~timeless]
    evaluated = _evaluated(events, processors, compiler, versions, read)
    failed = evaluated.failed
    all_failed = _listed(failed, events.num_rows)
    seen = np.zeros(events.num_rows, np.bool_)
    of_selectors = RuleConditions.by_selector(processors)
    known = selectors_of_rules(processors)
    if kept is not None and kept.any():
        known = {**known, **selectors}
    for number, selector in _in_order(known, compiler):
        wanted = np.zeros(events.num_rows, np.bool_) if kept is None else kept.copy()
        numbers = np.empty(0, np.int64)
        if number in of_selectors:
            numbers = evaluated.numbers_of(of_selectors[number])
            wanted |= evaluated.required(events, of_selectors[number])
        failures = {n: mask for n, mask in failed.items() if n in numbers}
        rows = np.flatnonzero(wanted)
        copied = events.take(pa.array(rows))
        keys, keyless = _keys(copied, selector, compiler)
        every_failed = all_failed
        if keyless.any():
            failures[number] = np.zeros(events.num_rows, np.bool_)
            failures[number][rows[keyless]] = True
            every_failed = _listed({**failed, number: failures[number]}, events.num_rows)
        first = ~seen[rows]
        seen[rows] = True
        columns = [
            pa.array(np.full(len(rows), number, np.int64)),
            keys,
            times.take(pa.array(rows)),
            pa.array(np.zeros(len(rows), np.int64)),
            pa.array(first),
            _taken(evaluated.met_of(numbers), evaluated.met, rows, first),
            _taken(_listed(failures, events.num_rows), every_failed, rows, first),
            *copied.columns,
            *(nulls_of(lookup, copied.num_rows) for lookup in compiler.lookups.values()),
        ]
        hashes = (hash_strings(keys) ^ np.uint64(selector.seed & (2**64 - 1))).view(np.int64)
        parts.append(pa.table(columns, schema=schema).append_column(KEY_HASH, pa.array(hashes)))
    return pa.concat_tables(parts or [schema.empty_table().append_column(KEY_HASH, pa.array([], pa.int64()))])


def selectors_of_rules(processors: Sequence[BoundProcessor]) -> Mapping[int, Selector]:
    """The selectors of processors by their numbers. The most recent ones are cached for the lifetime of the process."""
    return _SELECTORS.of(processors, lambda: {bound.number: bound.selector for bound in processors})


def ranges_needed(processors: Sequence[BoundProcessor]) -> Ranges | None:
    """Alternatives, of which one holds for every event that some processor requires; None: other events may be required, too, a
    condition may fail, or there would be more than MAX_ALTERNATIVES.
    """
    needed: dict[Alternative, None] = {}
    for bound in processors:
        if bound.needs_all or None in bound.ranges:
            return None
        needed.update(dict.fromkeys(each for ranges in bound.ranges for each in ranges or ()))
    if len(needed) <= MAX_ALTERNATIVES:
        return tuple(needed)
    # Of thousands of conditions, one column may tell most of the events that matter: that with the fewest values.
    of_columns: dict[tuple[int, bool], dict[Alternative, None]] = {}
    for alternative in needed:
        for limits in alternative:
            of_columns.setdefault(limits[:2], {})[(limits,)] = None
    in_all = [
        tuple(ranges)
        for column, ranges in of_columns.items()
        if len(ranges) <= MAX_ALTERNATIVES
        and all(any(limits[:2] == column for limits in alternative) for alternative in needed)
    ]
    return min(in_all, key=len, default=None)


def _in_order(selectors: Mapping[int, Selector], compiler: ProcessorCompiler) -> list[tuple[int, Selector]]:
    """The selectors with their numbers. The selector of the stream comes first: the first copy of a kept event belongs to it,
    regardless of the other rules.
    """
    stream = compiler.stream_selector.number
    return sorted(selectors.items(), key=lambda numbered: (numbered[0] != stream, numbered[1].expressions, numbered[0]))


def _timeless(events: pa.Table, schema: pa.Schema, compiler: ProcessorCompiler) -> pa.Table:
    """Events without a time are treated as late, with one copy each, no matter which processors require them."""
    rows = events.num_rows
    none = _lists(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
    zeros = pa.array(np.zeros(rows, np.int64))
    times, first = pa.array(np.full(rows, NO_TIME)), pa.array(np.ones(rows, np.bool_))
    lookups = (nulls_of(lookup, rows) for lookup in compiler.lookups.values())
    columns = [zeros, pa.array([NO_KEY] * rows), times, zeros, first, none, none, *events.columns, *lookups]
    return pa.table(columns, schema=schema).append_column(KEY_HASH, zeros)


def _taken(selected: tuple[Ints, Ints], every: tuple[Ints, Ints], rows: Ints, first: Mask) -> pa.ListArray:
    """For each of *rows* its numbers in *selected*, or in *every*, which has all of these, if the row is *first*."""
    if not len(every[1]):
        return _lists(np.zeros(len(rows) + 1, np.int64), every[1])
    both = pa.concat_arrays([_lists(*selected), _lists(*every)])
    return both.take(pa.array(np.where(first, len(selected[0]) - 1 + rows, rows)))


def _lists(at: Ints, numbers: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(at.astype(np.int32)), pa.array(numbers))


def _listed(masks: Mapping[int, Mask], rows: int) -> tuple[Ints, Ints]:
    """For each row the numbers whose mask is true, as offsets and values."""
    held = [np.flatnonzero(mask) for mask in masks.values()]
    row_of = np.concatenate([*held, np.empty(0, np.int64)])
    numbers = np.repeat(np.array(list(masks), np.int64), [len(some) for some in held])
    order = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of, minlength=rows)
    return np.concatenate([[0], np.cumsum(counts)]), numbers[order]


def flattened(lists: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Flatten a column of lists: the row of each value, and the values."""
    array = one_chunk(lists)
    values = array.flatten().to_numpy(zero_copy_only=False)
    if not len(values):
        return np.empty(0, np.int64), values
    rows = np.repeat(np.arange(len(array)), pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False))
    return rows, values


# ---------------------------------------------------------------------------------------------------- after the exchange


class CopyFilter:
    """Filters copies after the exchange by the requirements of processors.

    Before the exchange, the processors of a micro-batch are not known exactly: events are copied for more processors than
    these, and for different ones when a micro-batch is repeated. The remaining copies depend only on the events, the
    processors, and the versions of the lookups.
    """

    def __init__(self, processors: Sequence[BoundProcessor], versions: LookupVersions) -> None:
        self.processors = list(processors)
        reading = {
            _written(number, lookups, versions): number
            for bound in processors
            for number, lookups in zip(bound.evaluated, bound.lookups, strict=True)
            if number is not None and lookups
        }
        self._written = np.array(sorted(reading), np.int64)
        self._number_of_written = np.array([reading[each] for each in self._written.tolist()], np.int64)
        kept = {name for bound in processors for name in bound.kept_lookups}
        self.kept_lookups = {
            name: np.array(sorted({bound.number for bound in processors if name in bound.kept_lookups}), np.int64)
            for name in sorted(kept)
        }
        """For each lookup that is read after the exchange, the selectors of the processors that read it."""
        self._of = RuleConditions.by_selector(processors)
        # A shadow must not affect the output of late events.
        self._if_late = RuleConditions.of([bound for bound in processors if not bound.processor.shadow])

    @classmethod
    def of(cls, processors: Sequence[BoundProcessor], versions: LookupVersions) -> CopyFilter:
        """The requirements of these processors. The most recent ones are cached for the lifetime of the process."""
        return _FILTERS.of(processors, lambda: cls(processors, versions), *versions.values())

    def of_arrivals(
        self, copies: pa.Table, version: int, time: int, passes: int, selectors: Mapping[int, int]
    ) -> pa.Table:
        """The copies that are kept, with the set *version* as SINCE: those of *selectors* that a processor requires, or that may
        wait, because their times are after *passes*; the latter have a true FIRST. Of each selector, those until the time in
        *selectors* are left out. Of late events, which are at or before *time*, one copy each remains if a processor that is not
        a shadow requires them. MET and FAILED contain the numbers that the processors of the selector use.
        """
        copies = with_numbers(copies, self._written, self._number_of_written)
        times = copies.column(TIME).to_numpy()
        of_copies = copies.column(SELECTOR).to_numpy()
        known = np.zeros(copies.num_rows, np.bool_)
        for selector, until in selectors.items():
            known |= (of_copies == selector) & (times > until)
        late, waits = times <= time, times > passes
        wanted = known & waits & ~late
        wanted |= self.required(copies, known & ~waits & ~late)
        if late.any():
            needed = late & (times == NO_TIME)
            needed[late] |= self._if_late.required(self._if_late.read_of(copies, np.flatnonzero(late)))
            wanted |= needed & copies.column(FIRST).to_numpy()
        if not wanted.all():
            copies, waits = copies.filter(pa.array(wanted)), waits[wanted]
        return self._with_what_is_used(copies, version, waits)

    def required(self, copies: pa.Table, which: Mask) -> Mask:
        selectors = copies.column(SELECTOR).to_numpy()
        wanted = np.zeros(copies.num_rows, np.bool_)
        for selector, conditions in self._of.items():
            of_selector = which & (selectors == selector)
            if of_selector.any():
                wanted[of_selector] = conditions.required(conditions.read_of(copies, np.flatnonzero(of_selector)))
        return wanted

    def _with_what_is_used(self, copies: pa.Table, version: int, waits: Mask) -> pa.Table:
        selectors = copies.column(SELECTOR).to_numpy()
        met_rows, met = flattened(copies.column(MET))
        failed_rows, failed = flattened(copies.column(FAILED))
        used_met, used_failed = np.zeros(len(met), np.bool_), failed == selectors[failed_rows]
        for selector, conditions in self._of.items():
            of_selector = selectors == selector
            if len(met):
                of_met = of_selector[met_rows]
                used_met[of_met] = np.isin(met[of_met], conditions.evaluated)
            if len(failed):
                of_failed = of_selector[failed_rows]
                used_failed[of_failed] |= np.isin(failed[of_failed], conditions.evaluated)
        columns = {
            SINCE: pa.array(np.full(copies.num_rows, version, np.int64)),
            FIRST: pa.array(waits),
            MET: _counted(met_rows[used_met], met[used_met], copies.num_rows),
            FAILED: _counted(failed_rows[used_failed], failed[used_failed], copies.num_rows),
        }
        return _with_columns(copies, columns)

    def evaluated_again(
        self,
        copies: pa.Table,
        version: int,
        compiler: ProcessorCompiler,
        versions: LookupVersions,
        read: Callable[[LookupVersion], bytes],
    ) -> pa.Table:
        """The copies with MET and FAILED for these processors, and *version* as SINCE, regardless of their values on arrival.

        :param versions: of the lookups that the events see
        :param read: see :func:`~asterism.rules.definition.lookup_tables.table_of`
        """
        schema = compiler.events
        selectors = copies.column(SELECTOR).to_numpy()
        rows_of_met, rows_of_failed = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        all_met, all_failed = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        failed_rows, failed = flattened(copies.column(FAILED))
        keyless = failed == selectors[failed_rows]
        rows_of_failed.append(failed_rows[keyless])
        all_failed.append(failed[keyless])
        for selector, conditions in self._of.items():
            rows = np.flatnonzero(selectors == selector)
            if not len(rows) or not len(conditions.evaluated):
                continue
            selected = copies.take(pa.array(rows))
            events = pa.table([selected.column(f"e:{name}") for name in schema.names], schema=schema)
            evaluated = _evaluated(events, conditions.processors, compiler, [versions], read)
            number_of = {each: number for number, some in evaluated.written.items() for each in some}
            for (at, found), places, numbers in (
                (evaluated.met, rows_of_met, all_met),
                (_listed(evaluated.failed, len(rows)), rows_of_failed, all_failed),
            ):
                places.append(np.repeat(rows, np.diff(at)))
                numbers.append(np.array([number_of.get(each, each) for each in found.tolist()], np.int64))
        columns = {
            SINCE: pa.array(np.full(copies.num_rows, version, np.int64)),
            MET: _grouped(np.concatenate(rows_of_met), np.concatenate(all_met), copies.num_rows),
            FAILED: _grouped(np.concatenate(rows_of_failed), np.concatenate(all_failed), copies.num_rows),
        }
        return _with_columns(copies, columns)


def _with_columns(copies: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in columns.items():
        copies = copies.set_column(copies.column_names.index(name), copies.schema.field(name), column)
    return copies


def with_numbers(copies: pa.Table, written: Ints, numbers: Ints) -> pa.Table:
    """Replace the numbers *written* (ascending) in MET and FAILED, such as those with versions of lookups, by *numbers*."""
    if not len(written):
        return copies
    for name in (MET, FAILED):
        rows, values = flattened(copies.column(name))
        at = np.minimum(np.searchsorted(written, values), len(written) - 1)
        values = np.where(written[at] == values, numbers[at], values)
        copies = _with_columns(copies, {name: _counted(rows, values, copies.num_rows)})
    return copies


def to_evaluate_again(copies: pa.Table) -> pa.Table:
    """Mark the copies that are kept regardless of processors, so that their conditions are evaluated again."""
    met = copies.column(MET)
    nulls = pa.nulls(copies.num_rows, met.type)
    return _with_columns(copies, {MET: pc.if_else(copies.column(FIRST), nulls, met)})


class RuleConditions:
    """The distinct conditions of processors: those that are in an index, and those that are evaluated before the exchange, by
    number; if only a part of a condition is in the index, its rest is evaluated.
    """

    def __init__(self, processors: Sequence[BoundProcessor]) -> None:
        self.processors = list(processors)
        parts = {
            number: (ranges, evaluated)
            for bound in processors
            for number, ranges, evaluated in zip(bound.conditions, bound.ranges, bound.evaluated, strict=True)
        }
        self.numbers = np.array(sorted(parts), np.int64)
        self.evaluated = np.array(sorted({number for _, number in parts.values() if number is not None}), np.int64)
        self.needs_all = any(bound.needs_all for bound in processors)
        place_of = {number: place for place, number in enumerate(self.evaluated.tolist())}
        self._condition_of = np.full(len(self.evaluated), -1, np.int64)
        """For each of *evaluated*, the place of the condition; -1: the expression is only the rest of conditions."""
        indexed: list[Ranges] = []
        rests: list[int] = []
        for place, (ranges, evaluated) in enumerate(parts[number] for number in self.numbers.tolist()):
            indexed.append(() if ranges is None else ranges)
            rests.append(NO_REST if ranges is None or evaluated is None else place_of[evaluated])
            if ranges is None:
                assert evaluated is not None
                self._condition_of[place_of[evaluated]] = place
        schema = processors[0].schema if processors else pa.schema([])
        self._index = ConditionIndex(schema, indexed, rests)
        self._event_columns = [schema.names[number] for number in self._index.columns]
        self._read = [f"e:{name}" for name in self._event_columns]

    @classmethod
    def of(cls, processors: Sequence[BoundProcessor]) -> RuleConditions:
        """The conditions of these processors. The most recent ones are cached for the lifetime of the process."""
        return _CONDITIONS.of(processors, lambda: cls(processors))

    @classmethod
    def by_selector(cls, processors: Sequence[BoundProcessor]) -> Mapping[int, RuleConditions]:
        """:meth:`of` the processors of each selector, by its number."""

        def conditions() -> Mapping[int, RuleConditions]:
            selected: dict[int, list[BoundProcessor]] = {}
            for processor in processors:
                selected.setdefault(processor.number, []).append(processor)
            return {number: cls(of_selector) for number, of_selector in selected.items()}

        return _BY_SELECTOR.of(processors, conditions)

    def satisfied(self, events: pa.Table, rows: Ints, numbers: Ints) -> Mask:
        """The events that satisfy a condition, given the *numbers* of the evaluated expressions that each of *rows* satisfies."""
        columns = [events.column(name) for name in self._event_columns]
        return self._satisfied(columns, self._masks(rows, numbers, events.num_rows))

    def _satisfied(self, columns: Sequence[pa.ChunkedArray], masks: Mask) -> Mask:
        satisfied: Mask = self._index.meets_any(columns, masks.shape[1], masks)
        return satisfied | masks[self._condition_of >= 0].any(axis=0)

    def _masks(self, rows: Ints, numbers: Ints, count: int) -> Mask:
        """Which of *count* copies satisfy each evaluated expression, given the *numbers* of their *rows*."""
        masks = np.zeros((len(self.evaluated), count), np.bool_)
        if len(self.evaluated):
            at = np.minimum(np.searchsorted(self.evaluated, numbers), len(self.evaluated) - 1)
            known = self.evaluated[at] == numbers
            masks[at[known], rows[known]] = True
        return masks

    def read_of(self, copies: pa.Table, rows: Ints) -> pa.Table:
        """Some rows of *copies*, with the columns that the other methods read."""
        read = copies.select([MET, FAILED, *self._read])
        return read if len(rows) == copies.num_rows and (np.diff(rows) == 1).all() else read.take(pa.array(rows))

    def required(self, copies: pa.Table) -> Mask:
        """The copies that the processors require: all, or those that satisfy a condition or for which one of them fails."""
        if self.needs_all:
            return np.ones(copies.num_rows, np.bool_)
        if not self.processors:
            return np.zeros(copies.num_rows, np.bool_)
        masks = self._masks(*flattened(copies.column(MET)), copies.num_rows)
        is_required = self._satisfied([copies.column(name) for name in self._read], masks)
        rows, numbers = flattened(copies.column(FAILED))
        if len(numbers):
            is_required[rows[np.isin(numbers, self.evaluated)]] = True
        return is_required

    def by_condition(self, copies: pa.Table) -> tuple[Ints, Ints]:
        """For each condition the ascending positions of the copies that satisfy it, as offsets and values."""
        from asterism.rules.binding.kernels import by_condition

        lists = one_chunk(copies.column(MET))
        met_at = offsets_of(pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False))
        met = lists.flatten().to_numpy(zero_copy_only=False)
        masks = self._masks(np.repeat(np.arange(copies.num_rows), np.diff(met_at)), met, copies.num_rows)
        if len(self.evaluated):
            at = np.minimum(np.searchsorted(self.evaluated, met), len(self.evaluated) - 1)
            met = np.where(self.evaluated[at] == met, self._condition_of[at], -1)
        else:
            met_at, met = np.zeros_like(met_at), np.empty(0, np.int64)
        indexed = self._index.met([copies.column(name) for name in self._read], copies.num_rows, masks)
        return by_condition(*indexed, met_at, met, len(self.numbers))


def _grouped(rows: Ints, numbers: Ints, count: int) -> pa.ListArray:
    """:func:`_counted`, if the rows are not in order."""
    order = np.argsort(rows, kind="stable")
    return _counted(rows[order], numbers[order], count)


def _counted(rows: Ints, numbers: Ints, count: int) -> pa.ListArray:
    """The inverse of :func:`flattened`."""
    return _lists(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), numbers)


# ---------------------------------------------------------------------------------------------------- conditions, keys


class _Evaluated(NamedTuple):
    """The results of conditions, by their numbers.

    :param met: for each event the conditions that it satisfies, as offsets and values
    :param failed: for each condition that fails, the events for which it fails
    :param written: for each condition that reads lookups, its numbers with their versions
    """

    met: tuple[Ints, Ints]
    failed: dict[int, Mask]
    written: Mapping[int, Sequence[int]]

    def numbers_of(self, conditions: RuleConditions) -> Ints:
        if not self.written:
            return conditions.evaluated
        numbers = [each for number in conditions.evaluated.tolist() for each in self.written.get(number, (number,))]
        return np.array(numbers, np.int64)

    def met_of(self, numbers: Ints) -> tuple[Ints, Ints]:
        """:attr:`met` of some conditions."""
        at, met = self.met
        rows, wanted = np.repeat(np.arange(len(at) - 1), np.diff(at)), np.isin(met, numbers)
        return offsets_of(np.bincount(rows[wanted], minlength=len(at) - 1)), met[wanted]

    def required(self, events: pa.Table, conditions: RuleConditions) -> Mask:
        if conditions.needs_all:
            return np.ones(events.num_rows, np.bool_)
        at, met = self.met
        if self.written:
            # Of a condition that reads lookups: the events that satisfy it with any version.
            number_of = {each: number for number, some in self.written.items() for each in some}
            met = np.array([number_of.get(each, each) for each in met.tolist()], np.int64)
        required = conditions.satisfied(events, np.repeat(np.arange(events.num_rows), np.diff(at)), met)
        for number in self.failed.keys() & set(self.numbers_of(conditions).tolist()):
            required = required | self.failed[number]
        return required


class _Evaluations:
    """The conditions of processors that are not in an index, and the rests of those that are, in the order of evaluation.

    :param versions: of the lookups, in each set that may be in force
    """

    def __init__(
        self, processors: Sequence[BoundProcessor], compiler: ProcessorCompiler, versions: Sequence[LookupVersions]
    ) -> None:
        self.called: dict[int, PythonCondition] = {}
        self.unions: dict[tuple[LookupVersion, ...], _ConditionUnion] = {}
        """The conditions in SQL, by the versions of the lookups that they read."""
        self.written: dict[int, list[int]] = {}
        for bound in processors:
            if not isinstance(bound, BoundPatternProcessor):
                continue
            sources = zip(bound.evaluated, bound.pattern.bit_sources, bound.ranges, bound.lookups, strict=True)
            for number, source, ranges, lookups in sources:
                if number is None:
                    continue
                if not isinstance(source, int):
                    self.called[number] = source
                    continue
                versions_of = {_written(number, lookups, each): each for each in versions} if lookups else {number: {}}
                if lookups:
                    self.written[number] = list(versions_of)
                for each, known in versions_of.items():
                    of = tuple(known[name] for name in lookups if name in known)
                    union = self.unions.setdefault(of, _ConditionUnion(compiler.schema))
                    if each not in union.numbers:
                        union.add(each, bound.pattern.vectorized, source, rest=ranges is not None)


def _evaluated(
    events: pa.Table,
    processors: Sequence[BoundProcessor],
    compiler: ProcessorCompiler,
    versions: Sequence[LookupVersions],
    read: Callable[[LookupVersion], bytes] | None,
) -> _Evaluated:
    """Evaluate the conditions that are not in an index, and the rests of those that are."""
    known = tuple(tuple(sorted(each.items())) for each in versions)
    evaluations = _EVALUATIONS.of(
        processors, lambda: _Evaluations(processors, compiler, versions), compiler.definition, known
    )
    met, failed = dict[int, Mask](), dict[int, Mask]()
    for number, condition in evaluations.called.items():
        met[number], bad = _called(condition, events)
        if bad.any():
            failed[number] = bad
    found = [_listed(met, events.num_rows)]
    for of, union in evaluations.unions.items():
        enriched = events
        if compiler.lookups:
            columns = compiler.looked_up(events, of, read) if read is not None else {}
            for name, lookup in compiler.lookups.items():
                column = columns.get(name)
                enriched = enriched.append_column(
                    lookup.field, nulls_of(lookup, events.num_rows) if column is None else column
                )
        found.append(union.evaluate(enriched, failed))
    return _Evaluated(_together(found), failed, evaluations.written)


def _together(found: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Lists for each event as one list for each event."""
    found = [lists for lists in found if len(lists[1])] or list(found[:1])
    if len(found) == 1:
        return found[0]
    rows = np.concatenate([np.repeat(np.arange(len(at) - 1), np.diff(at)) for at, _ in found])
    order = np.argsort(rows, kind="stable")
    return np.sum([at for at, _ in found], axis=0), np.concatenate([values for _, values in found])[order]


class _ConditionUnion:
    """Conditions that are evaluated together, with the places of their expressions by the numbers of the conditions."""

    def __init__(self, schema: pa.Schema) -> None:
        self.vectorized = Vectorized(schema)
        self.numbers: dict[int, int] = {}

    def add(self, number: int, of: Vectorized, source: int, *, rest: bool) -> None:
        self.numbers[number] = (self.vectorized.adopt_rest if rest else self.vectorized.adopt)(of, source)

    @cached_property
    def _index(self) -> TextIndex | None:
        return text_index(self.vectorized)

    @cached_property
    def _number_of(self) -> Ints | None:
        """The number of the condition of each expression; None if one is that of several conditions."""
        number_of = {place: number for number, place in self.numbers.items()}
        if len(number_of) < len(self.numbers):
            return None
        return np.array([number_of[place] for place in range(len(number_of))], np.int64)

    def evaluate(self, events: pa.Table, failed: dict[int, Mask]) -> tuple[Ints, Ints]:
        """For each event the conditions that it satisfies, as offsets and values. Adds those that fail to *failed*."""
        try:
            if self._index is not None and self._number_of is not None:
                at, met = self._index.met(events)
                return at, self._number_of[met]
            values = [mask_of(column) for column in self.vectorized.evaluate(events)]
            return _listed({number: values[at] for number, at in self.numbers.items()}, events.num_rows)
        except InvalidEventError:
            pass
        met_of: dict[int, Mask] = {}
        for number, place in self.numbers.items():
            met_of[number], bad = _tolerant(self.vectorized.alone(place), _HOLDS, events)
            if bad.any():
                failed[number] = bad
        return _listed(met_of, events.num_rows)


def _written(number: int, lookups: Sequence[str], versions: LookupVersions) -> int:
    """The number of a condition that reads *lookups*, with their versions."""
    known = (versions.get(name) for name in lookups)
    return number_of(
        "lookups", str(number), *("" if version is None else f"{version.version} {version.digest}" for version in known)
    )


def _tolerant(expression: Vectorized, template: str, events: pa.Table) -> tuple[Mask, Mask]:
    """The events for which an expression is true, and those for which it fails. Each event is evaluated independently of the
    others.

    :param template: SQL around the expression ``{}``; it is 1 where the expression is true, and never NULL
    """
    (text,) = expression.texts
    tried = f"TRY({template.replace('{}', _without_error(text))})"
    vectorized = Vectorized(expression.schema, [tried], [pa.int32()], expression.sources, expression.costs)

    def evaluate(part: pa.Table) -> tuple[Mask, Mask]:
        (answers,) = vectorized.evaluate(part)
        return pc.fill_null(answers, 0).to_numpy() == 1, answers.is_null().to_numpy()

    return _in_parts(evaluate, events)


def _called(condition: PythonCondition, events: pa.Table) -> tuple[Mask, Mask]:
    """As :func:`_tolerant`, for a function."""
    return _in_parts(lambda part: (python_mask(condition, part), np.zeros(part.num_rows, np.bool_)), events)


def _in_parts(evaluate: Callable[[pa.Table], tuple[Mask, Mask]], events: pa.Table) -> tuple[Mask, Mask]:
    """The result of *evaluate*. An event for which it raises an error fails."""
    met, bad = np.zeros(events.num_rows, np.bool_), np.ones(events.num_rows, np.bool_)
    for part, masks in evaluated_in_parts(evaluate, events):
        if masks is not None:
            met[part], bad[part] = masks
    return met, bad


_HOLDS, _COMPUTED = "CASE WHEN {} THEN 1 ELSE 0 END", "CASE WHEN hash({}) IS NULL THEN 0 ELSE 1 END"
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\berror\(|[()]|[^'"()]+?(?=\berror\(|['"()]|$)""")


def _without_error(text: str) -> str:
    """Replace ``error(text)`` by a failing cast, because DuckDB's TRY does not support it.

    >>> _without_error("CASE WHEN (c0 = 0) THEN error('by (0)') ELSE 1 / c0 END")
    "CASE WHEN (c0 = 0) THEN list_extract([NULL], CAST('!' || 'by (0)' AS INTEGER)) ELSE 1 / c0 END"
    """
    replaced, ends = [], []
    for token in _TOKENS.findall(text):
        if token == "error(":
            ends.append(" AS INTEGER))")
            token = "list_extract([NULL], CAST('!' || "
        elif token == "(":
            ends.append(")")
        elif token == ")":
            token = ends.pop()
        replaced.append(token)
    return "".join(replaced)


def _keys(events: pa.Table, selector: Selector, compiler: ProcessorCompiler) -> tuple[pa.Array, Mask]:
    """The key texts, and the events for which the key could not be computed."""
    none = np.zeros(events.num_rows, np.bool_)
    if not selector.expressions:
        return key_strings([], events.num_rows), none
    expressions, numbers = compiler.key_expressions(selector.expressions)
    try:
        values = expressions.evaluate(events)
    except InvalidEventError:
        for number in set(numbers):
            none |= _tolerant(expressions.alone(number), _COMPUTED, events)[1]
        good = events.filter(pa.array(~none))
        keys = _key_texts(good, [expressions.evaluate(good)[number] for number in numbers], selector, compiler)
        place = np.cumsum(~none) - 1
        taken = keys.take(pa.array(place, mask=none))
        return taken.fill_null(NO_KEY), none
    return _key_texts(events, [values[number] for number in numbers], selector, compiler), none


def _key_texts(
    events: pa.Table, values: Sequence[pa.ChunkedArray], selector: Selector, compiler: ProcessorCompiler
) -> pa.Array:
    """The key texts; where all values are NULL, those of the key of the stream."""
    keys = key_strings(values, events.num_rows)
    if selector.instead_of_null is None or not all(value.null_count for value in values):
        return keys
    nulls = np.logical_and.reduce([value.is_null().to_numpy(zero_copy_only=False) for value in values])
    if not nulls.any():
        return keys
    expressions, numbers = compiler.key_expressions(selector.instead_of_null)
    instead = expressions.evaluate(events)
    return pc.if_else(pa.array(nulls), key_strings([instead[number] for number in numbers], events.num_rows), keys)


def failure_of(bound: BoundProcessor, number: int, event: pa.Table, compiler: ProcessorCompiler) -> InvalidEventError:
    """The error for an event for which *number*, as in FAILED, could not be computed."""
    evaluate: Callable[[pa.Table], Any]
    shown = event_text(event.to_pylist()[0])
    what, evaluate = "its key", compiler.key_expressions(bound.selector.expressions)[0].evaluate
    if number != bound.number:
        assert isinstance(bound, BoundPatternProcessor), "a clause has no conditions here"
        what = f"a condition of {bound.stages_with(number)}"
        source = bound.pattern.bit_sources[bound.evaluated.index(number)]
        if isinstance(source, int):
            evaluate = bound.pattern.vectorized.alone(source).evaluate
        else:
            # Functions see only the columns of the events.
            event = event.select(compiler.events.names)
            evaluate = partial(python_mask, source)
    try:
        evaluate(event)
    except InvalidEventError as error:
        return EvaluationFailedError(
            f"{what} could not be computed", f"{error.message}\n{error.detail}\nevent: {shown}", error.hint
        )
    # The event was not evaluated separately.
    return EvaluationFailedError(f"{what} could not be computed", "It fails on many events.")


MAX_FILTERS = 8
_EVALUATIONS = IdentityCache[_Evaluations](MAX_FILTERS)
_CONDITIONS = IdentityCache[RuleConditions](MAX_FILTERS)
_SELECTORS = IdentityCache[Mapping[int, Selector]](MAX_FILTERS)
_BY_SELECTOR = IdentityCache[Mapping[int, RuleConditions]](MAX_FILTERS)
_FILTERS = IdentityCache[CopyFilter](MAX_FILTERS)
