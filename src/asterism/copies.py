"""Before the exchange: an event is copied for each key by which some pattern processor groups, if it can matter to one of them.

A copy belongs to a *selector*, the list of key expressions, and says which conditions it meets, by number: so every distinct
condition is evaluated once, over many events at a time, whatever the number of processors and of key groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.bound_processors import NO_KEY, BoundProcessor, ProcessorCompiler
from asterism.errors import InvalidEventError
from asterism.expressions import Vectorized
from asterism.hashing import hash_texts
from asterism.key_group import KEY_HASH
from asterism.keys import KEY, key_texts
from asterism.matcher import mask_of
from asterism.operator import TIME
from asterism.state import Ints

SELECTOR, SINCE, FIRST, MET, FAILED = "__selector", "__since", "__first", "__met", "__failed"
"""Columns of copies, beside KEY: the selector's number; the set in force at arrival; is it the first copy of its event? the
numbers of the conditions that the event meets, and of those that could not be computed (of the selector, if the key could not).
"""
MAX_FAILURES = 16
"""So many events on which a condition fails are told apart in a batch; those that are left over count as failed, too."""
_NUMBERS = pa.list_(pa.int64())
Mask = npt.NDArray[np.bool_]


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
    met, failed = _conditions(events, processors)
    schema = copies_schema(events.schema)
    seen = np.zeros(events.num_rows, np.bool_)
    empty = schema.empty_table().append_column(KEY_HASH, pa.array([], pa.int64()))
    parts = [empty]
    for selector in sorted({one.selector for one in processors}):
        mine = [one for one in processors if one.selector == selector]
        numbers = sorted({number for one in mine for number in one.conditions})
        met_at, met_numbers = _listed({n: met[n] for n in numbers}, events.num_rows)
        failures = {n: failed[n] for n in numbers if n in failed}
        if any(one.needs_all for one in mine):
            wanted = np.ones(events.num_rows, np.bool_)
        else:
            wanted = np.diff(met_at) > 0
            for mask in failures.values():
                wanted |= mask
        rows = np.flatnonzero(wanted)
        kept = events.take(pa.array(rows))
        keys, keyless = _keys(kept, selector, compiler)
        number = mine[0].number
        if keyless.any():
            failures[number] = np.zeros(events.num_rows, np.bool_)
            failures[number][rows[keyless]] = True
        first = ~seen[rows]
        seen[rows] = True
        columns = [
            pa.array(np.full(len(rows), number, np.int64)),
            keys,
            times.take(pa.array(rows)),
            pa.array(np.zeros(len(rows), np.int64)),
            pa.array(first),
            _lists(met_at, met_numbers).take(pa.array(rows)),
            _lists(*_listed(failures, events.num_rows)).take(pa.array(rows)),
            *kept.columns,
        ]
        hashes = (hash_texts(keys) ^ np.uint64(number & (2**64 - 1))).view(np.int64)
        parts.append(pa.table(columns, schema=schema).append_column(KEY_HASH, pa.array(hashes)))
    return pa.concat_tables(parts)


def _lists(at: Ints, numbers: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(at.astype(np.int32)), pa.array(numbers))


def _listed(masks: Mapping[int, Mask], rows: int) -> tuple[Ints, Ints]:
    """For each row the numbers whose mask holds: where they begin, and they."""
    held = [np.flatnonzero(mask) for mask in masks.values()]
    row_of = np.concatenate([*held, np.empty(0, np.int64)])
    numbers = np.repeat(np.array(list(masks), np.int64), [len(some) for some in held])
    order = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of, minlength=rows)
    return np.concatenate([[0], np.cumsum(counts)]), numbers[order]


# ---------------------------------------------------------------------------------------------------- conditions, keys


def _conditions(events: pa.Table, processors: Sequence[BoundProcessor]) -> tuple[dict[int, Mask], dict[int, Mask]]:
    """Which events meet each condition, by its number, and of the conditions that fail, on which events."""
    union = Vectorized(events.schema)
    numbers: dict[int, int] = {}
    for one in processors:
        for number, source in zip(one.conditions, one.matcher.bit_sources, strict=True):
            if number not in numbers:
                numbers[number] = union.adopt(one.matcher.vectorized, source)
    try:
        values = [mask_of(column) for column in union.evaluate(events)] if numbers else []
        return {number: values[at] for number, at in numbers.items()}, {}
    except InvalidEventError:
        pass
    met, failed = {}, {}
    for number, at in numbers.items():
        met[number], bad = _tolerant(union.alone(at), events)
        if bad.any():
            failed[number] = bad
    return met, failed


def _tolerant(expression: Vectorized, events: pa.Table) -> tuple[Mask, Mask]:
    """On which events an expression holds, and on which it fails: those are found by halving."""
    met, bad = np.zeros(events.num_rows, np.bool_), np.zeros(events.num_rows, np.bool_)
    told = MAX_FAILURES
    todo = [(0, events.num_rows)]
    while todo:
        begin, end = todo.pop()
        try:
            met[begin:end] = mask_of(expression.evaluate(events.slice(begin, end - begin))[0])
        except InvalidEventError:
            if end - begin == 1 or not told:
                bad[begin:end] = True
                told = max(told - 1, 0)
            else:
                middle = (begin + end) // 2
                todo += [(middle, end), (begin, middle)]
    return met, bad


def _keys(
    events: pa.Table,
    selector: tuple[str, ...],
    compiler: ProcessorCompiler,
) -> tuple[pa.Array, Mask]:
    """The key texts, and for which events there is none."""
    rows = events.num_rows
    none = np.zeros(rows, np.bool_)
    if not selector:
        return key_texts([], rows), none
    expressions, numbers = compiler.key_expressions(selector)
    try:
        values = expressions.evaluate(events)
    except InvalidEventError:
        for number in set(numbers):
            none |= _tolerant(expressions.alone(number), events)[1]
        values = expressions.evaluate(events.filter(pa.array(~none)))
        good = key_texts([values[number] for number in numbers], int(rows - none.sum()))
        place = np.cumsum(~none) - 1
        taken = good.take(pa.array(place, mask=none))
        return taken.fill_null(NO_KEY), none
    return key_texts([values[number] for number in numbers], rows), none


def failure_of(one: BoundProcessor, number: int, event: pa.Table, compiler: ProcessorCompiler) -> InvalidEventError:
    """What is wrong with an event for which *number*, as FAILED has it, could not be computed."""
    what, expression = "its key", compiler.key_expressions(one.selector)[0]
    if number != one.number:
        what = f"a condition of {one.stages_with(number)}"
        expression = one.matcher.vectorized.alone(one.matcher.bit_sources[one.conditions.index(number)])
    shown = ", ".join(f"{name}={values[0]!r:.60}" for name, values in event.to_pydict().items())
    try:
        expression.evaluate(event)
    except InvalidEventError as error:
        return InvalidEventError(
            f"{what} could not be computed", f"{error.message}\n{error.detail}\nevent: {shown}", error.hint
        )
    # It is one of those that were left over.
    return InvalidEventError(f"{what} could not be computed", "It fails on many events.")
