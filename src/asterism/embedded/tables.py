"""Runs operators over tables in this process, as :mod:`asterism.spark.host.batch` does in the tasks of Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing as closing_rows
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from asterism.arguments import expect
from asterism.columns.arrays import Ints
from asterism.columns.groups import BUCKET, KEY_HASH
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME
from asterism.embedded.lazy_events import LazyTable, SelectedEvents
from asterism.embedded.parts import Workers, divided_rows
from asterism.errors import StreamDefinitionError
from asterism.matching.operator import CepOperator
from asterism.operators.key_group import ONE_KEY, KeyGroupOperator
from asterism.operators.operator import EVENTS, Arrival, Now, Operator, closing, sorted_arrival, watermark_of_table
from asterism.operators.sink_functions import Sink, check_columns_of_sink, sink_of_output
from asterism.operators.state.state_store import MemoryStore

Outputs = dict[str, pa.Table]
"""The rows of each output."""
_ROWS = 1_000_000
"""The number of events in a call of an operator."""
KEY_GROUPS = 32
"""The default, as of a DataFrame of Spark: operators and rules see their key group."""
_Parts = defaultdict[str, list[pa.Table]]
KeyedOperator = TypeVar("KeyedOperator", bound=KeyGroupOperator)


def parts_of_pattern(
    operator: CepOperator, build: Callable[[], CepOperator], events: Any, *, threads: int
) -> Iterator[Mapping[str, pa.Table]]:
    """The rows of all outputs of a pattern over a table, whose rows may be in any order; part by part.

    :param build: makes another such operator
    :param events: a table, or :class:`~asterism.embedded.parts.LazyEvents`, with the columns that the operator reads
    """
    now = Now(processing_time=time.time_ns() // 1000)
    wants_late = operator.wants_late

    def prepare(operator: CepOperator, name: str, chunk: pa.Table) -> pa.Table:
        rows = operator.prepare(name, chunk)
        seen = operator.pattern.sees(rows)
        if wants_late:
            seen |= rows.column(TIME).to_numpy() == NO_TIME
        return rows if seen.all() else rows.filter(pa.array(seen))

    def run(operator: CepOperator, read: Callable[[], Mapping[str, pa.Table]]) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        prepared = read()[EVENTS]
        # One bucket, which has all keys; then the end of the part.
        state = operator.initial_table_state()
        for part in (prepared, prepared.slice(0, 0)):
            buckets = pa.array(np.zeros(part.num_rows, np.int64))
            steps = operator.process_table(state, part.append_column(BUCKET, buckets), now)
            while True:
                try:
                    _add(rows, next(steps))
                except StopIteration as end:
                    state = end.value
                    break
        return {name: pa.concat_tables(tables) for name, tables in rows.items()}

    schemas = {EVENTS: operator.inputs[EVENTS].prepared}
    keys = _key_columns(schemas[EVENTS])
    with (
        Workers(operator, build, threads) as workers,
        closing_rows(divided_rows(workers, {EVENTS: events}, prepare, schemas, keys)) as divided,
    ):
        yield from workers.map(run, divided.parts())


def threads_of(*, alone: bool) -> int:
    """The number of threads of a query, which is that of pyarrow: ``pyarrow.set_cpu_count``.

    :param alone: whether no functions of the user are called, which need not be safe for threads
    """
    return int(pa.cpu_count()) if alone else 1


def _key_columns(prepared: pa.Schema) -> list[str]:
    """The columns of the key in prepared rows."""
    return [name for name in prepared.names if name.startswith("k:") and name != "k:" + ONE_KEY]


def run_key_groups(
    operator: Operator, name: str, events: pa.Table, key_groups: int, first: Sequence[Arrival]
) -> Outputs:
    """The rows of all outputs of an operator that chooses the keys of its events itself, over a table in any order.

    :param name: the input of the events
    :param first: arrivals that every key group gets before all others
    """
    now = time.time_ns() // 1000
    end = END_OF_TIME if operator.processing_time else now
    rows: _Parts = defaultdict(list)
    operator.open()
    with closing(operator):
        prepared = _prepared(operator, name, events)
        groups = prepared.column(KEY_HASH).to_numpy() % key_groups
        order = np.lexsort((prepared.column(TIME).to_numpy(), groups))
        events = prepared.select(operator.inputs[name].prepared.names).take(pa.array(order))
        numbers, begins = np.unique(groups[order], return_index=True)
        for group, (begin, stop) in zip(numbers.tolist(), pairwise([*begins.tolist(), len(order)]), strict=True):
            store = MemoryStore()
            parts = [events.slice(at, min(_ROWS, stop - at)) for at in range(begin, stop, _ROWS)]
            calls = [first, *(sorted_arrival(name, part) for part in parts)]
            for arrivals, moment in (
                *((arrivals, Now(processing_time=now, key_group=group)) for arrivals in calls),
                ([], Now(END_OF_TIME, end, key_group=group)),
            ):
                for result in operator.slices(store, arrivals, moment):
                    _add(rows, result.outputs)
    return _whole(operator, rows)


def run_instances(
    operator: Operator, tables: Mapping[str, pa.Table], hashes: Mapping[str, Ints], key_groups: int
) -> Outputs:
    """The rows of all outputs of an operator, each key group of which is an instance, as Spark runs it.

    :param tables: that of each input, whose rows may be in any order
    :param hashes: for each row of an input the hash that determines its key group
    """
    now = time.time_ns() // 1000
    end = END_OF_TIME if operator.processing_time else now
    rows: _Parts = defaultdict(list)
    operator.open()
    with closing(operator):
        inputs = {name: _grouped(operator, name, table, hashes[name] % key_groups) for name, table in tables.items()}
        broadcast = any(operator.inputs[name].broadcast and events.num_rows for name, (events, _) in inputs.items())
        used = [group for _, groups in inputs.values() for group in np.unique(groups).tolist()]
        for group in range(key_groups) if broadcast else sorted(set(used)):
            store, arrivals = MemoryStore(), _arrivals_of_group(operator, inputs, group)
            for parts, moment in (
                (arrivals, Now(processing_time=now, key_group=group)),
                ([], Now(END_OF_TIME, end, key_group=group)),
            ):
                for result in operator.slices(store, parts, moment):
                    _add(rows, result.outputs)
    return _whole(operator, rows)


def _grouped(operator: Operator, name: str, table: pa.Table, groups: Ints) -> tuple[pa.Table, Ints]:
    """The prepared events of an input, sorted by key group and time, and their key groups; of a broadcast input by time."""
    events = _prepared(operator, name, table)
    times = events.column(TIME).to_numpy()
    order = np.argsort(times, kind="stable") if operator.inputs[name].broadcast else np.lexsort((times, groups))
    return events.take(pa.array(order)), groups[order]


def _arrivals_of_group(operator: Operator, inputs: Mapping[str, tuple[pa.Table, Ints]], group: int) -> list[Arrival]:
    """What a key group gets: its elements, and watermarks before their last time. Inputs without a time come first, and
    broadcast inputs before keyed ones.
    """
    ranked = sorted(inputs, key=lambda name: not operator.inputs[name].broadcast)
    parts = {}
    for name in ranked:
        events, groups = inputs[name]
        if not operator.inputs[name].broadcast:
            begin, stop = np.searchsorted(groups, [group, group + 1]).tolist()
            events = events.slice(begin, stop - begin)
        if events.num_rows:
            parts[name] = events
    lasts = [events.column(TIME)[-1].as_py() for name, events in parts.items() if operator.inputs[name].timed]
    last = max((time for time in lasts if time != NO_TIME), default=None)
    arrivals = []
    for name in ranked:
        passed = last is not None or name != max(parts, key=ranked.index)
        watermark = watermark_of_table(operator.inputs[name], last, passed)
        arrivals.append(Arrival(name, parts.get(name), watermark))
    return arrivals


def parts_of_inputs(
    operator: KeyedOperator, build: Callable[[], KeyedOperator], tables: Mapping[str, Any], *, threads: int
) -> Iterator[Mapping[str, pa.Table]]:
    """The rows of all outputs of an operator over a table for each of its inputs, whose rows may be in any order; part by part.

    :param build: makes another such operator
    :param tables: tables, or :class:`~asterism.embedded.parts.LazyEvents`, with the columns that the operator reads
    """
    now = Now(processing_time=time.time_ns() // 1000, key_group=0)
    # As in a stream, functions see the time of the query, unless there are timers in processing time.
    end = Now(END_OF_TIME, END_OF_TIME if operator.processing_time else now.processing_time, key_group=0)

    def run(operator: KeyedOperator, read: Callable[[], Mapping[str, pa.Table]]) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        store, prepared = MemoryStore(), {}
        for name, events in read().items():
            if events.num_rows:
                order = np.argsort(events.column(TIME).to_numpy(), kind="stable")
                prepared[name] = events.take(pa.array(order))
        last = max(events.column(TIME)[-1].as_py() for events in prepared.values())
        arrivals = [Arrival(name, prepared.get(name), max(last - 1, BEFORE_TIME)) for name in tables]
        for parts, moment in ((arrivals, now), ([], end)):
            for result in operator.slices(store, parts, moment):
                _add(rows, result.outputs)
        return {name: pa.concat_tables(some) for name, some in rows.items()}

    def opened() -> KeyedOperator:
        other = build()
        other.open()
        return other

    schemas = {name: operator.inputs[name].prepared for name in tables}
    operator.open()
    keys = _key_columns(next(iter(schemas.values())))

    def prepare(operator: KeyedOperator, name: str, chunk: pa.Table) -> pa.Table:
        return operator.prepare(name, chunk)

    with (
        Workers(operator, opened, threads) as workers,
        closing_rows(divided_rows(workers, tables, prepare, schemas, keys)) as divided,
    ):
        yield from workers.map(run, divided.parts())


def whole(operator: Operator, parts: Iterable[Mapping[str, pa.Table]]) -> Outputs:
    """The rows of all parts."""
    rows: _Parts = defaultdict(list)
    for part in parts:
        _add(rows, part)
    return _whole(operator, rows)


def function_schema(schema: Any, hint: str) -> pa.Schema:
    """The schema of the rows that a function of a user returns.

    :raises StreamDefinitionError: *schema* is none
    """
    expect(StreamDefinitionError, schema, pa.Schema | str, "the schema of a function must be a string", hint)
    return schema_of(schema)


def write(schemas: Mapping[str, pa.Schema], run: Callable[[], Outputs], sinks: Mapping[str, Sink]) -> None:
    """Compute outputs once, and call each sink with one.

    :param schemas: those of the outputs
    """
    of_outputs = {output: sink_of_output(sink, output) for output, sink in sinks.items()}
    for output, sink in of_outputs.items():
        check_columns_of_sink(sink, schemas[output].names)
    rows = run()
    for output, sink in of_outputs.items():
        sink(rows[output], 0)


def selected(events: Any, operator: Operator, name: str = EVENTS) -> Any:
    """The columns of events that an operator reads."""
    names = operator.inputs[name].schema.names
    return SelectedEvents(events, names) if isinstance(events, LazyTable) else events.select(names)


def _prepared(operator: Operator, name: str, events: pa.Table) -> pa.Table:
    return operator.prepare(name, events.select(operator.inputs[name].schema.names))


def _add(rows: _Parts, outputs: Mapping[str, pa.Table]) -> None:
    for name, table in outputs.items():
        rows[name].append(table)


def _whole(operator: Operator, rows: _Parts) -> Outputs:
    return {
        name: pa.concat_tables(rows[name]) if rows[name] else schema.empty_table()
        for name, schema in operator.output_schemas.items()
    }
