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
from asterism.columns.arrays import Ints, from_numpy, to_numpy
from asterism.columns.groups import KEY_HASH
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME, TimeColumn
from asterism.embedded.lazy_events import LazyTable, SelectedEvents
from asterism.embedded.parts import BUCKETS, BucketsOf, TablePart, Workers, buckets_of, chunks_of, divided_rows
from asterism.embedded.source_filters import SourceBits, SourceFilter
from asterism.errors import StreamDefinitionError
from asterism.expressions.ranges import Ranges
from asterism.matching.operator import CepOperator
from asterism.operators.key_group import ONE_KEY, KeyGroupOperator
from asterism.operators.operator import EVENTS, Arrival, Now, Operator, sorted_arrival, watermark_of_table
from asterism.operators.sink_functions import Sink, check_columns_of_sink, sink_of_output
from asterism.operators.state.state_store import MemoryStore
from asterism.text.progress import report

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
        if not wants_late:
            return operator.relevant(name, rows)
        # No event of a table is late but those without a time.
        seen = operator.pattern.sees(rows) | (to_numpy(rows.column(TIME)) == NO_TIME)
        return rows if seen.all() else rows.filter(from_numpy(seen))

    def run(operator: CepOperator, part: TablePart) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        for outputs in operator.process_part(part.read()[EVENTS], now):
            _add(rows, outputs)
        return {name: pa.concat_tables(tables) for name, tables in rows.items()}

    schemas = {EVENTS: operator.inputs[EVENTS].prepared}
    keys = _buckets_of_keys(schemas[EVENTS])
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


def _buckets_of_keys(prepared: pa.Schema) -> BucketsOf:
    """The buckets of prepared rows, by their keys."""
    keys = [name for name in prepared.names if name.startswith("k:") and name != "k:" + ONE_KEY]
    return lambda rows: buckets_of(rows.select(keys))


def run_key_groups(
    operator: Operator, events: Any, key_groups: int, first: Sequence[Arrival], *, threads: int
) -> Outputs:
    """The rows of all outputs of an operator that chooses the keys of its events itself, over a table in any order.

    :param events: a table, or :class:`~asterism.embedded.parts.LazyEvents`, with the columns that the operator reads
    :param first: arrivals that every key group gets before all others
    :param threads: the number of threads, all of which use the operator
    """
    now = time.time_ns() // 1000
    end = END_OF_TIME if operator.processing_time else now
    prepared = operator.inputs[EVENTS].prepared

    def prepare(operator: Operator, name: str, chunk: pa.Table) -> pa.Table:
        rows = operator.prepare(name, chunk)
        return _in_groups(rows.select(prepared.names), to_numpy(rows.column(KEY_HASH)) % key_groups)

    def run(operator: Operator, part: TablePart) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        events, groups = _by_group_and_time(part.read()[EVENTS])
        numbers, begins = np.unique(groups, return_index=True)
        for group, (begin, stop) in zip(numbers.tolist(), pairwise([*begins.tolist(), len(groups)]), strict=True):
            store = MemoryStore()
            slices = [events.slice(at, min(_ROWS, stop - at)) for at in range(begin, stop, _ROWS)]
            calls = [first, *(sorted_arrival(EVENTS, each) for each in slices)]
            for arrivals, moment in (
                *((arrivals, Now(processing_time=now, key_group=group)) for arrivals in calls),
                ([], Now(END_OF_TIME, end, key_group=group)),
            ):
                for result in operator.slices(store, arrivals, moment):
                    _add(rows, result.outputs)
            report(stop, len(groups), "events that the rules can use")
        return {name: pa.concat_tables(tables) for name, tables in rows.items()}

    schemas = {EVENTS: prepared.append(pa.field(KEY_HASH, pa.int64()))}
    operator.open()
    buckets = _buckets_of_groups(key_groups)
    if threads > 1:  # what they share is compiled once
        operator.prepare(EVENTS, operator.inputs[EVENTS].schema.empty_table())
    with (
        Workers(operator, lambda: operator, threads) as workers,
        closing_rows(divided_rows(workers, {EVENTS: events}, prepare, schemas, buckets)) as divided,
    ):
        return whole(operator, workers.map(run, divided.parts()))


def run_instances(
    operator: Operator,
    tables: Mapping[str, Any],
    hashes: Mapping[str, Callable[[pa.Table], Ints]],
    key_groups: int,
) -> Outputs:
    """The rows of all outputs of an operator, each key group of which is an instance, as Spark runs it.

    :param tables: for each input its rows, in any order: a table, or :class:`~asterism.embedded.parts.LazyEvents`
    :param hashes: for each input the hashes of rows that determine their key groups
    """
    now = time.time_ns() // 1000
    end = END_OF_TIME if operator.processing_time else now
    names = [name for name in tables if not operator.inputs[name].broadcast]

    def prepare(operator: Operator, name: str, chunk: pa.Table) -> pa.Table:
        return _in_groups(operator.prepare(name, chunk), hashes[name](chunk) % key_groups)

    def run(operator: Operator, part: TablePart) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        keyed = {name: _by_group_and_time(table) for name, table in part.read().items()}
        inputs = {name: keyed[name] if name in keyed else everywhere[name] for name in tables}
        if has_broadcast:
            groups = [group for group in range(key_groups) if _bucket(group, key_groups) in part.buckets]
        else:
            groups = sorted({group for _, of_rows in keyed.values() for group in np.unique(of_rows).tolist()})
        for group in groups:
            store, arrivals = MemoryStore(), _arrivals_of_group(operator, inputs, group)
            for parts, moment in (
                (arrivals, Now(processing_time=now, key_group=group)),
                ([], Now(END_OF_TIME, end, key_group=group)),
            ):
                for result in operator.slices(store, parts, moment):
                    _add(rows, result.outputs)
        return {name: pa.concat_tables(some) for name, some in rows.items()}

    schemas = {name: operator.inputs[name].prepared.append(pa.field(KEY_HASH, pa.int64())) for name in names}
    operator.open()
    # Functions of the user need not be safe for threads.
    with Workers(operator, lambda: operator, threads_of(alone=False)) as workers:
        everywhere = {name: _by_time(operator, name, tables[name]) for name in tables if name not in names}
        has_broadcast = any(events.num_rows for events, _ in everywhere.values())
        keyed = {name: tables[name] for name in names}
        with closing_rows(divided_rows(workers, keyed, prepare, schemas, _buckets_of_groups(key_groups))) as divided:
            return whole(operator, workers.map(run, divided.parts(empty=has_broadcast)))


def _in_groups(rows: pa.Table, groups: Ints) -> pa.Table:
    """Prepared rows with their key groups, in place of the hashes that determine these."""
    return rows.append_column(KEY_HASH, from_numpy(groups))


def _by_group_and_time(rows: pa.Table) -> tuple[pa.Table, Ints]:
    """(prepared rows, sorted by key group and time; their key groups)"""
    groups = to_numpy(rows.column(KEY_HASH))
    order = np.lexsort((to_numpy(rows.column(TIME)), groups))
    return rows.drop_columns([KEY_HASH]).take(from_numpy(order)), groups[order]


def _by_time(operator: Operator, name: str, events: Any) -> tuple[pa.Table, Ints]:
    """(the prepared rows of a broadcast input, sorted by time; no key groups)"""
    chunks = [operator.prepare(name, chunk) for chunk in chunks_of(events)]
    rows = pa.concat_tables(chunks) if chunks else operator.inputs[name].prepared.empty_table()
    order = np.argsort(to_numpy(rows.column(TIME)), kind="stable")
    return rows.take(from_numpy(order)), np.zeros(0, np.int64)


def _bucket(group: Any, key_groups: int) -> Any:
    """The bucket of a key group, all rows of which are in one part; or of each of many."""
    return group * BUCKETS // key_groups


def _buckets_of_groups(key_groups: int) -> BucketsOf:
    return lambda rows: _bucket(to_numpy(rows.column(KEY_HASH)), key_groups).astype(np.uint8)


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

    def run(operator: KeyedOperator, part: TablePart) -> Mapping[str, pa.Table]:
        rows: _Parts = defaultdict(list)
        store, prepared = MemoryStore(), {}
        for name, events in part.read().items():
            if events.num_rows:
                order = np.argsort(to_numpy(events.column(TIME)), kind="stable")
                prepared[name] = events.take(from_numpy(order))
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
    keys = _buckets_of_keys(next(iter(schemas.values())))

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
    return {
        name: pa.concat_tables(rows[name]) if rows[name] else schema.empty_table()
        for name, schema in operator.output_schemas.items()
    }


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


def selected(events: Any, operator: Operator, name: str = EVENTS, only: SourceFilter | None = None) -> Any:
    """The columns of events that an operator reads, see :func:`selected_columns`."""
    return selected_columns(events, operator.inputs[name].schema.names, only)


def selected_for_pattern(events: Any, operator: CepOperator) -> Any:
    """:func:`selected`, without events that cannot matter if their source can leave them out, and with the conditions as bits if
    it can evaluate them.
    """
    pattern = operator.pattern
    ranges = None if operator.wants_late else pattern.relevant_ranges
    only = filter_of(ranges, operator.schema, operator.time, operator.processing_time)
    if pattern.bit_conditions is not None:
        bits = SourceBits(tuple(pattern.bit_fields), pattern.bit_conditions, tuple(operator.columns_beside_bits))
        only = (only or SourceFilter(None, operator.schema, None))._replace(bits=bits)
    return selected(events, operator, only=only)


def filter_of(ranges: Ranges | None, schema: pa.Schema, time: TimeColumn, processing_time: bool) -> SourceFilter | None:
    """The filter that keeps the events in *ranges*; None: there is none."""
    return None if ranges is None else SourceFilter(ranges, schema, None if processing_time else time)


def selected_columns(events: Any, names: Sequence[str], only: SourceFilter | None = None) -> Any:
    """Some columns of a table, or of :class:`~asterism.embedded.parts.LazyEvents`.

    :param only: the rows that its source has to read, if it can leave out others
    """
    return SelectedEvents(events, names, only) if isinstance(events, LazyTable) else events.select(names)


def _add(rows: _Parts, outputs: Mapping[str, pa.Table]) -> None:
    for name, table in outputs.items():
        rows[name].append(table)
