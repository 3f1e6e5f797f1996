"""Copies events before the exchange: one copy for each key by which some pattern processor groups, if the event is relevant
to it.

A copy belongs to a *selector*, the list of key expressions, and contains the numbers of the conditions that it satisfies. So
each distinct condition is evaluated once, for many events at a time, no matter how many processors and key groups there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import KEY_HASH, mask_of, offsets_of
from asterism.columns.hashing import hash_strings
from asterism.columns.keys import KEY, key_strings
from asterism.columns.time import NO_TIME, TIME
from asterism.errors import InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.matching.binding import python_mask
from asterism.patterns.conditions import PythonCondition
from asterism.rules.binding import NO_KEY, BoundPatternProcessor, BoundProcessor, ProcessorCompiler
from asterism.rules.condition_index import ConditionIndex
from asterism.rules.sets import keep
from asterism.text.printable import event_text

SELECTOR, SINCE, FIRST, MET, FAILED = "__selector", "__since", "__first", "__met", "__failed"
"""Columns of copies besides KEY: the number of the selector; the set in force at arrival; whether it is the first copy of its
event; the numbers of the conditions that the event satisfies, except for those in an index, and of those that could not be
computed (the number of the selector if the key could not). The first copy has the numbers of all conditions, of any selector,
because it alone determines whether an event is late.
"""
MAX_FAILURES = 16
"""The maximum number of events in a batch that are identified individually if they abort the evaluation (for example for lack
of memory). The remaining ones also count as failed.
"""
_NUMBERS = pa.list_(pa.int64())


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
    return pa.schema([*head, *(field.with_name("e:" + field.name) for field in events)])


def copies_of(
    events: pa.Table,
    times: pa.Array | pa.ChunkedArray,
    processors: Sequence[BoundProcessor],
    compiler: ProcessorCompiler,
) -> pa.Table:
    """The copies of *events*, with KEY_HASH."""
    schema = copies_schema(events.schema)
    timeless = times.to_numpy() == NO_TIME
    parts = [schema.empty_table().append_column(KEY_HASH, pa.array([], pa.int64()))]
    if timeless.any():
        parts.append(_timeless(events.filter(pa.array(timeless)), schema))
        timed = pa.array(~timeless)
        events, times = events.filter(timed), times.filter(timed)
    met, failed = _evaluated(events, processors)
    all_met, all_failed = _listed(met, events.num_rows), _listed(failed, events.num_rows)
    seen = np.zeros(events.num_rows, np.bool_)
    for selector in sorted({one.selector for one in processors}):
        mine = [one for one in processors if one.selector == selector]
        conditions = RuleConditions.of(mine)
        numbers = conditions.evaluated.tolist()
        own_met = _listed({n: met[n] for n in numbers}, events.num_rows)
        failures = {n: failed[n] for n in numbers if n in failed}
        if conditions.needs_all:
            wanted = np.ones(events.num_rows, np.bool_)
        else:
            wanted = (np.diff(own_met[0]) > 0) | conditions.indexed_by(events.columns)
            for mask in failures.values():
                wanted |= mask
        rows = np.flatnonzero(wanted)
        kept = events.take(pa.array(rows))
        keys, keyless = _keys(kept, selector, compiler)
        number = mine[0].number
        own_failed, every_failed = _listed(failures, events.num_rows), all_failed
        if keyless.any():
            without = np.zeros(events.num_rows, np.bool_)
            without[rows[keyless]] = True
            own_failed = _listed({**failures, number: without}, events.num_rows)
            every_failed = _listed({**failed, number: without}, events.num_rows)
        first = ~seen[rows]
        seen[rows] = True
        columns = [
            pa.array(np.full(len(rows), number, np.int64)),
            keys,
            times.take(pa.array(rows)),
            pa.array(np.zeros(len(rows), np.int64)),
            pa.array(first),
            _taken(own_met, all_met, rows, first),
            _taken(own_failed, every_failed, rows, first),
            *kept.columns,
        ]
        hashes = (hash_strings(keys) ^ np.uint64(number & (2**64 - 1))).view(np.int64)
        parts.append(pa.table(columns, schema=schema).append_column(KEY_HASH, pa.array(hashes)))
    return pa.concat_tables(parts)


def _timeless(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """Events without a time are treated as late, with one copy each, no matter which processors require them."""
    rows = events.num_rows
    none = _lists(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
    zeros = pa.array(np.zeros(rows, np.int64))
    times, first = pa.array(np.full(rows, NO_TIME)), pa.array(np.ones(rows, np.bool_))
    columns = [zeros, pa.array([NO_KEY] * rows), times, zeros, first, none, none, *events.columns]
    return pa.table(columns, schema=schema).append_column(KEY_HASH, zeros)


def _taken(own: tuple[Ints, Ints], every: tuple[Ints, Ints], rows: Ints, first: Mask) -> pa.ListArray:
    """For each of *rows* its numbers in *own*, or in *every* if the row is *first*."""
    both = pa.concat_arrays([_lists(*own), _lists(*every)])
    return both.take(pa.array(np.where(first, len(own[0]) - 1 + rows, rows)))


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
    array = lists.combine_chunks()
    rows = np.repeat(np.arange(len(array)), pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False))
    return rows, array.flatten().to_numpy(zero_copy_only=False)


# ---------------------------------------------------------------------------------------------------- after the exchange


class CopyFilter:
    """Filters copies after the exchange by the requirements of processors.

    Before the exchange, the processors of a micro-batch are not known exactly: events are copied for more processors than
    these, and for different ones when a micro-batch is repeated. The remaining copies depend only on the events and the
    processors.
    """

    def __init__(self, processors: Sequence[BoundProcessor]) -> None:
        self.processors = list(processors)
        numbers = dict.fromkeys(one.number for one in processors)
        self._of = {
            number: RuleConditions.of([one for one in processors if one.number == number]) for number in numbers
        }
        # A shadow must not affect the output of late events.
        self._if_late = RuleConditions.of([one for one in processors if not one.processor.shadow])

    @classmethod
    def of(cls, processors: Sequence[BoundProcessor]) -> CopyFilter:
        """The requirements of these processors. The most recent ones are cached for the lifetime of the process."""
        key = tuple(map(id, processors))
        return _FILTERS.get(key) or keep(_FILTERS, MAX_FILTERS, key, cls(processors))

    def of_arrivals(self, copies: pa.Table, version: int, time: int) -> pa.Table:
        """The copies that a processor requires, with the set *version* as SINCE. Of late events, which are at or before
        *time*, one copy each remains if a processor that is not a shadow requires them. MET and FAILED contain what the
        processors of the selector use, and FIRST is whether the event is late.
        """
        times, selectors = copies.column(TIME).to_numpy(), copies.column(SELECTOR).to_numpy()
        late = times <= time
        met_rows, met = flattened(copies.column(MET))
        failed_rows, failed = flattened(copies.column(FAILED))
        wanted = np.zeros(copies.num_rows, np.bool_)
        used_met, used_failed = np.zeros(len(met), np.bool_), failed == selectors[failed_rows]
        for selector, conditions in self._of.items():
            mine = selectors == selector
            of_met, of_failed = mine[met_rows], mine[failed_rows]
            used_met[of_met] = np.isin(met[of_met], conditions.evaluated)
            used_failed[of_failed] |= np.isin(failed[of_failed], conditions.evaluated)
            wanted[mine] = conditions.required(copies.filter(pa.array(mine)))
        if late.any():
            needed = np.zeros(copies.num_rows, np.bool_)
            needed[late] = self._if_late.required(copies.filter(pa.array(late)))
            wanted = np.where(late, (needed | (times == NO_TIME)) & copies.column(FIRST).to_numpy(), wanted)
        columns = {
            SINCE: pa.array(np.full(copies.num_rows, version, np.int64)),
            FIRST: pa.array(late),
            MET: _counted(met_rows[used_met], met[used_met], copies.num_rows),
            FAILED: _counted(failed_rows[used_failed], failed[used_failed], copies.num_rows),
        }
        for name, column in columns.items():
            copies = copies.set_column(copies.column_names.index(name), copies.schema.field(name), column)
        return copies if wanted.all() else copies.filter(pa.array(wanted))


class RuleConditions:
    """The distinct conditions of processors: those that are in an index, and those that are evaluated before the
    exchange, by number.
    """

    def __init__(self, processors: Sequence[BoundProcessor]) -> None:
        self.processors = list(processors)  # alive as long as this is: `of` finds it by their ids
        ranges = {number: found for one in processors for number, found in zip(one.conditions, one.ranges, strict=True)}
        self.numbers = np.array(sorted(ranges), np.int64)
        is_indexed = np.array([ranges[number] is not None for number in self.numbers.tolist()], np.bool_)
        self.evaluated = self.numbers[~is_indexed]
        self.needs_all = any(one.needs_all for one in processors)
        self._evaluated_places = np.flatnonzero(~is_indexed)
        indexed = [
            ranges[number] or () if is_in else ()
            for number, is_in in zip(self.numbers.tolist(), is_indexed, strict=True)
        ]
        schema = processors[0].schema if processors else pa.schema([])
        self._event_columns = [f"e:{name}" for name in schema.names]
        self._index = ConditionIndex(schema, indexed)

    @classmethod
    def of(cls, processors: Sequence[BoundProcessor]) -> RuleConditions:
        """The conditions of these processors. The most recent ones are cached for the lifetime of the process."""
        key = tuple(map(id, processors))
        return _CONDITIONS.get(key) or keep(_CONDITIONS, MAX_CONDITIONS, key, cls(processors))

    def indexed_by(self, columns: Sequence[pa.ChunkedArray]) -> Mask:
        """The events, by their columns, that satisfy a condition in the index."""
        return self._index.meets_any(columns)

    def required(self, copies: pa.Table) -> Mask:
        """The copies that the processors require: all, or those that satisfy a condition or for which one of them fails."""
        if self.needs_all:
            return np.ones(copies.num_rows, np.bool_)
        if not self.processors:
            return np.zeros(copies.num_rows, np.bool_)
        found = self._index.meets_any(copies.select(self._event_columns).columns)
        for name in (MET, FAILED):
            rows, numbers = flattened(copies.column(name))
            found[rows[np.isin(numbers, self.evaluated)]] = True
        return found

    def by_condition(self, copies: pa.Table) -> tuple[Ints, Ints]:
        """For each condition the ascending positions of the copies that satisfy it, as offsets and values."""
        from asterism.rules.kernels import by_condition

        lists = copies.column(MET).combine_chunks()
        met_at = offsets_of(pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False))
        met = lists.flatten().to_numpy(zero_copy_only=False)
        if len(self.evaluated):
            at = np.minimum(np.searchsorted(self.evaluated, met), len(self.evaluated) - 1)
            met = np.where(self.evaluated[at] == met, self._evaluated_places[at], -1)
        else:
            met_at, met = np.zeros_like(met_at), np.empty(0, np.int64)
        indexed = self._index.met(copies.select(self._event_columns).columns)
        return by_condition(*indexed, met_at, met, len(self.numbers))


def _counted(rows: Ints, numbers: Ints, count: int) -> pa.ListArray:
    """The inverse of :func:`flattened`."""
    return _lists(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), numbers)


# ---------------------------------------------------------------------------------------------------- conditions, keys


def _evaluated(events: pa.Table, processors: Sequence[BoundProcessor]) -> tuple[dict[int, Mask], dict[int, Mask]]:
    """For each condition that is not in an index, by its number, the events that satisfy it; for each condition that fails, the
    events for which it does.
    """
    union = Vectorized(events.schema)
    numbers: dict[int, int] = {}
    met, failed = dict[int, Mask](), dict[int, Mask]()
    for one in processors:
        if not isinstance(one, BoundPatternProcessor):
            continue
        for number, source, ranges in zip(one.conditions, one.pattern.bit_sources, one.ranges, strict=True):
            if not isinstance(source, int):
                if number not in met:
                    met[number], bad = _called(source, events)
                    if bad.any():
                        failed[number] = bad
            elif ranges is None and number not in numbers:
                numbers[number] = union.adopt(one.pattern.vectorized, source)
    try:
        values = [mask_of(column) for column in union.evaluate(events)] if numbers else []
        return met | {number: values[at] for number, at in numbers.items()}, failed
    except InvalidEventError:
        pass
    for number, at in numbers.items():
        met[number], bad = _tolerant(union.alone(at), _HOLDS, events)
        if bad.any():
            failed[number] = bad
    return met, failed


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
    """What *evaluate* returns, in parts if it fails for all events together."""
    met, bad = np.zeros(events.num_rows, np.bool_), np.zeros(events.num_rows, np.bool_)
    remaining = MAX_FAILURES
    todo = [(0, events.num_rows)]
    while todo:
        begin, end = todo.pop()
        try:
            met[begin:end], bad[begin:end] = evaluate(events.slice(begin, end - begin))
        except InvalidEventError:  # the error is not caused by the values of a single event
            if end - begin == 1 or not remaining:
                bad[begin:end] = True
                remaining = max(remaining - 1, 0)
            else:
                middle = (begin + end) // 2
                todo += [(middle, end), (begin, middle)]
    return met, bad


_HOLDS, _COMPUTED = "CASE WHEN {} THEN 1 ELSE 0 END", "CASE WHEN hash({}) IS NULL THEN 0 ELSE 1 END"
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\berror\(|[()]|[^'"()]+?(?=\berror\(|['"()]|$)""")


def _without_error(text: str) -> str:
    """Replace ``error(text)`` by a failing cast, because DuckDB's TRY does not support it.

    >>> _without_error("CASE WHEN (c0 = 0) THEN error('by (0)') ELSE 1 / c0 END")
    "CASE WHEN (c0 = 0) THEN list_extract([NULL], CAST('!' || 'by (0)' AS INTEGER)) ELSE 1 / c0 END"
    """
    found, ends = [], []
    for token in _TOKENS.findall(text):
        if token == "error(":
            ends.append(" AS INTEGER))")
            token = "list_extract([NULL], CAST('!' || "
        elif token == "(":
            ends.append(")")
        elif token == ")":
            token = ends.pop()
        found.append(token)
    return "".join(found)


def _keys(
    events: pa.Table,
    selector: tuple[str, ...],
    compiler: ProcessorCompiler,
) -> tuple[pa.Array, Mask]:
    """The key texts, and the events for which the key could not be computed."""
    rows = events.num_rows
    none = np.zeros(rows, np.bool_)
    if not selector:
        return key_strings([], rows), none
    expressions, numbers = compiler.key_expressions(selector)
    try:
        values = expressions.evaluate(events)
    except InvalidEventError:
        for number in set(numbers):
            none |= _tolerant(expressions.alone(number), _COMPUTED, events)[1]
        values = expressions.evaluate(events.filter(pa.array(~none)))
        good = key_strings([values[number] for number in numbers], int(rows - none.sum()))
        place = np.cumsum(~none) - 1
        taken = good.take(pa.array(place, mask=none))
        return taken.fill_null(NO_KEY), none
    return key_strings([values[number] for number in numbers], rows), none


def failure_of(one: BoundProcessor, number: int, event: pa.Table, compiler: ProcessorCompiler) -> InvalidEventError:
    """The error for an event for which *number*, as in FAILED, could not be computed."""
    evaluate: Callable[[pa.Table], Any]
    what, evaluate = "its key", compiler.key_expressions(one.selector)[0].evaluate
    if number != one.number:
        assert isinstance(one, BoundPatternProcessor), "a clause has no conditions here"
        what = f"a condition of {one.stages_with(number)}"
        source = one.pattern.bit_sources[one.conditions.index(number)]
        if isinstance(source, int):
            evaluate = one.pattern.vectorized.alone(source).evaluate
        else:
            evaluate = partial(python_mask, source)
    shown = event_text(event.to_pylist()[0])
    try:
        evaluate(event)
    except InvalidEventError as error:
        return InvalidEventError(
            f"{what} could not be computed", f"{error.message}\n{error.detail}\nevent: {shown}", error.hint
        )
    # It is one of the events that were not evaluated separately.
    return InvalidEventError(f"{what} could not be computed", "It fails on many events.")


MAX_FILTERS, MAX_CONDITIONS = 8, 64
_CONDITIONS: dict[tuple[int, ...], RuleConditions] = {}
_FILTERS: dict[tuple[int, ...], CopyFilter] = {}
