"""EQL over Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.time import MILLISECONDS
from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.events import (
    EVENT,
    SAMPLE,
    SEQUENCE,
    EventPlan,
    SamplePlan,
    SequencePlan,
    number_of,
    plan_of,
    unsupported_pipe,
)
from asterism.elastic.samples import chosen
from asterism.elastic.sequences import COPY, KEY, LARGEST_INTEGER_KEY, KeyForm, form_of_keys, no_columns_of_copies
from asterism.embedded.events import table_of
from asterism.embedded.row_patterns import row_pattern_stream
from asterism.errors import ExpressionTypeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import name_of
from asterism.row_patterns.match_recognize import MatchRecognize

_INTEGERS = pa.decimal128(38, 0)


def eql(text: str, events: Any, time: str, category: str, options: Any) -> pa.Table:
    """See :func:`asterism.eql`."""
    table = table_of(events, time, MILLISECONDS)
    plan = plan_of(text, table.schema, time=time, category=category)
    if isinstance(plan, EventPlan):
        found = _where(table, plan.condition)
        return _piped(_in_time_order(found, time), plan) if plan.pipes else found
    if isinstance(plan, SamplePlan):
        return _samples(_in_time_order(table, time), plan)
    return _sequences(table, plan, time, options)


def _sequences(table: pa.Table, plan: SequencePlan, time: str, options: Any) -> pa.Table:
    rows = _where(table, plan.relevant)
    columns = table.column_names
    row = next(name for number in count() if (name := f"eql_row_{number}") not in columns)
    rows = rows.append_column(row, pa.array(range(rows.num_rows), pa.int64()))
    if plan.of.copies:
        rows = _copied(rows, plan.of.copies, [time, row])
    clause = MatchRecognize(plan.clause).clause
    matches = row_pattern_stream(rows, clause, options["max_out_of_orderness"], None, (), None, False, {}).matches
    places = matches.select([time, row]).rename_columns(["time", "row"])
    return _piped_sequences(matches.select([SEQUENCE, EVENT, *columns]), places, plan)


def _piped_sequences(events: pa.Table, places: pa.Table, plan: SequencePlan) -> pa.Table:
    """The events of sequences in the order in which the sequences end, after the pipes.

    :param places: the columns ``time`` and ``row`` of the events
    """
    starts = np.flatnonzero(events[EVENT].to_numpy() == 1)
    ends = np.append(starts[1:], events.num_rows)[: len(starts)]
    order = pc.sort_indices(places.take(pa.array(ends - 1)), [("time", "ascending"), ("row", "ascending")]).to_numpy()
    for pipe in plan.pipes:
        match pipe.name:
            case "head":
                order = order[: number_of(pipe)]
            case "tail":
                order = order[max(len(order) - number_of(pipe), 0) :]
            case "unique":
                first = events.take(pa.array(starts[order]))
                order = order[_first_rows(first, pipe, plan.writer).to_numpy()]
            case "count" if pipe is plan.pipes[-1]:
                return pa.table({"count": pa.array([len(order)], pa.int64())})
            case _:
                raise unsupported_pipe(pipe, plan.writer.text, "a sequence")
    rows = [np.arange(starts[at], ends[at]) for at in order]
    return events.take(pa.array(np.concatenate(rows) if rows else np.empty(0, np.int64)))


def _samples(table: pa.Table, plan: SamplePlan) -> pa.Table:
    """The events of the samples, which are in the order of their first events."""
    keys = [_evaluated(table, item.keys) for item in plan.items]
    forms = [form_of_keys([value.type for value in position]) for position in zip(*keys, strict=True)]
    candidates: dict[tuple[Any, ...], list[list[int]]] = {}
    for number, item in enumerate(plan.items):
        mask = pc.fill_null(_mask(table, item.condition), False).to_numpy()
        values = [
            _in_form(value, form).filter(pa.array(mask)).to_pylist()
            for value, form in zip(keys[number], forms, strict=True)
        ]
        rows = np.flatnonzero(mask).tolist()
        for row, *key in zip(rows, *values, strict=True):
            of_item = candidates.setdefault(tuple(key), [[] for _ in plan.items])[number]
            if len(of_item) < len(plan.items):
                of_item.append(row)
    samples = [found for lists in candidates.values() if (found := chosen(lists)) is not None]
    samples.sort(key=min)
    for pipe in plan.pipes:
        if pipe.name != "count" or pipe is not plan.pipes[-1]:
            raise unsupported_pipe(pipe, plan.writer.text, "a sample")
        return pa.table({"count": pa.array([len(samples)], pa.int64())})
    size = len(plan.items)
    events = table.take(pa.array([row for rows in samples for row in rows], pa.int64()))
    numbers = np.repeat(np.arange(1, len(samples) + 1), size)
    places = pa.array(np.tile(np.arange(1, size + 1), len(samples)), pa.int32())
    return events.add_column(0, SAMPLE, pa.array(numbers, pa.int64())).add_column(1, EVENT, places)


def _copied(rows: pa.Table, copies: Sequence[tuple[str, ...]], order: Sequence[str]) -> pa.Table:
    """See :data:`~asterism.elastic.sequences.COPY`; *order* are the columns by which the events are ordered."""
    no_columns_of_copies(rows.column_names)
    values_of = {keys: _evaluated(rows, keys) for keys in dict.fromkeys(copies)}  # several runs may have the same keys
    parts, evaluated = [], [values_of[keys] for keys in copies]
    forms = [form_of_keys([values.type for values in position]) for position in zip(*evaluated, strict=True)]
    for number, keys in enumerate(evaluated):
        part = rows.append_column(COPY, pa.array(np.full(rows.num_rows, number, np.int32)))
        for at, (values, form) in enumerate(zip(keys, forms, strict=True), 1):
            part = part.append_column(f"{KEY}{at}", _in_form(values, form).cast(pa.string()))
        parts.append(part)
    return pa.concat_tables(parts).sort_by([*((name, "ascending") for name in order), (COPY, "descending")])


def _in_form(values: pa.ChunkedArray, form: KeyForm) -> pa.ChunkedArray:
    """Keys in the form in which they are compared."""
    if form is KeyForm.SAME:
        return values
    if form is KeyForm.NUMBER and not pa.types.is_integer(values.type):
        is_whole = pc.and_(
            pc.equal(pc.floor(values), values), pc.less(pc.abs(values.cast(pa.float64())), LARGEST_INTEGER_KEY)
        )
        whole = pc.if_else(is_whole, values, pa.scalar(None, values.type)).cast(_INTEGERS).cast(pa.string())
        return pc.if_else(pc.fill_null(is_whole, False), whole, values.cast(pa.float64()).cast(pa.string()))
    kinds = {KeyForm.INTEGER: pa.int64(), KeyForm.DOUBLE: pa.float64()}
    return values.cast(kinds.get(form, pa.string()))


def _evaluated(table: pa.Table, texts: Sequence[str]) -> list[pa.ChunkedArray]:
    vectorized, scope = Vectorized(table.schema), Scope(table.schema)
    numbers = [vectorized.add(scope.resolve(parse(text), text), text) for text in texts]
    values = vectorized.evaluate(table) if numbers else []
    return [
        pa.chunked_array([values[number]]) if isinstance(values[number], pa.Array) else values[number]
        for number in numbers
    ]


def _in_time_order(table: pa.Table, time: str) -> pa.Table:
    keys = pa.table({"time": table[time], "row": pa.array(range(table.num_rows), pa.int64())})
    return table.take(pc.sort_indices(keys, sort_keys=[("time", "ascending"), ("row", "ascending")]))


def _where(table: pa.Table, condition: str) -> pa.Table:
    return table.filter(_mask(table, condition))


def _mask(table: pa.Table, condition: str) -> pa.ChunkedArray:
    [mask] = _evaluated(table, [condition])
    if pa.types.is_null(mask.type):
        return mask.cast(pa.bool_())
    if not pa.types.is_boolean(mask.type):
        raise ExpressionTypeError(f"a condition must be a BOOLEAN, not {name_of(mask.type)}", f"in: {condition}")
    return mask


def _piped(table: pa.Table, plan: EventPlan) -> pa.Table:
    for pipe in plan.pipes:
        table = _after(table, pipe, plan)
    return table


def _after(table: pa.Table, pipe: syntax.EqlPipe, plan: EventPlan) -> pa.Table:
    match pipe.name:
        case "head" | "tail":
            number = number_of(pipe)
            return table.slice(0 if pipe.name == "head" else max(table.num_rows - number, 0), number)
        case "filter":
            return _where(table, plan.writer.sql(pipe.arguments[0]))
        case "count":
            return pa.table({"count": pa.array([table.num_rows], pa.int64())})
        case "unique":
            return table.take(_first_rows(table, pipe, plan.writer))
    # NULL comes first
    keys, order = _keys(table, pipe, plan.writer), []
    for name in keys.column_names[:-1]:
        keys = keys.append_column(f"{name}_is_there", pc.is_valid(keys[name]))
        order += [f"{name}_is_there", name]
    return table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in [*order, "row"]]))


def _first_rows(table: pa.Table, pipe: syntax.EqlPipe, writer: ConditionWriter) -> pa.Array:
    """The first row for each combination of the values of a pipe."""
    keys = _keys(table, pipe, writer)
    grouped = keys.group_by(keys.column_names[:-1], use_threads=False).aggregate([("row", "min")])["row_min"]
    first = grouped.combine_chunks()
    return pc.take(first, pc.sort_indices(first))


def _keys(table: pa.Table, pipe: syntax.EqlPipe, writer: ConditionWriter) -> pa.Table:
    """The values of a pipe, and the number of the row."""
    values = _evaluated(table, [writer.sql(argument) for argument in pipe.arguments])
    keys = pa.table({f"k{number}": value for number, value in enumerate(values)})
    return keys.append_column("row", pa.array(range(table.num_rows), pa.int64()))
