"""A user-defined :class:`asterism.operators.stream_operator.StreamOperator`, connected to inputs, as an operator over key groups.

A page of state contains the keys, a table per keyed state, the timers, and per input the elements that wait to be selected.
Broadcast state is stored separately: see :mod:`asterism.operators.state.broadcast_state`.

Source: FLIP-92.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import described
from asterism.columns.arrays import Ints, cast_to
from asterism.columns.groups import first_rows, group_codes
from asterism.columns.schemas import small_type
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, MILLISECONDS, NO_TIME, TIME, TimeColumn
from asterism.errors import (
    ColumnNotFoundError,
    ColumnTypeError,
    StreamDefinitionError,
    UserFunctionError,
)
from asterism.operators.context import EVENT, Element
from asterism.operators.evolution import FIXED, aligned_tables
from asterism.operators.key_group import LATE, ONE_KEY, Group, KeyGroupOperator, key_schema_of
from asterism.operators.operator import Arrival, InputSpec, Now, Result
from asterism.operators.ordering import fire_due, run
from asterism.operators.runtime import TIMERS, Arrived, Runtime, Waiting
from asterism.operators.state.broadcast_state import BroadcastState
from asterism.operators.state.keyed_state import State, StateSpec, StateTable
from asterism.operators.state.page_numbers import BROADCAST_PAGE
from asterism.operators.state.pages import PAGE, Pages, fixed_pages_of
from asterism.operators.state.state_definition import KEYS_TABLE, UNKNOWN_COLUMNS, OperatorKind, StateDefinition
from asterism.operators.state.state_store import Record, StateStore, kind_of, tables_by_name, tables_to_bytes
from asterism.operators.stored_state import BROADCAST, STATE, TIMERS_TABLE, WAITING, of_broadcast, of_keys
from asterism.operators.stream_operator import Counter, Gauge, Histogram, Input, Output, StreamOperator


@dataclass(frozen=True, slots=True)
class Wire:
    """The connection of an input: the available columns, the key columns, and the event time.

    :param idle_after: microseconds
    :param watermark_by: the columns that distinguish the partitions, each of which has a watermark
    :param distributed: whether the elements have no key and are distributed over the key groups, each of which is an instance of
        the operator
    """

    schema: pa.Schema
    keys: Sequence[str] = ()
    time: str | None = None
    idle_after: int | None = None
    distributed: bool = False
    watermark_by: tuple[str, ...] = ()

    @property
    def kind(self) -> Sequence[str]:
        """What earlier releases do not know is left out of definitions if it is not used."""
        return ["distributed"] if self.distributed else []


def check_operator(operator: Any) -> None:
    """:raises StreamDefinitionError: it is not an operator, such as the class of one"""
    if not isinstance(operator, StreamOperator):
        raise StreamDefinitionError(
            f"not an operator: {operator!r:.100}", hint="use an instance of a subclass of StreamOperator: MyOperator()"
        )


class _CallKeys(NamedTuple):
    """The distinct keys of a call, numbered: first those of the pages that were loaded, then the new ones of events.

    :param starts: the number of the first key of each page, and that of the first new key
    :param page_of: the page of each key
    :param of_events: for each input, the number of the key of each event
    """

    table: pa.Table
    starts: Ints
    page_of: Ints
    of_events: Mapping[str, Ints]

    @classmethod
    def of(
        cls, of_pages: Sequence[pa.Table], of_inputs: Mapping[str, pa.Table], loaded: Pages, empty: pa.Table
    ) -> _CallKeys:
        """
        :param of_pages: the keys of each page
        :param of_inputs: the keys of the events of each input
        """
        all_keys = pa.concat_tables([*of_pages, empty, *of_inputs.values()])
        codes, count = group_codes(all_keys)
        sizes = [keys.num_rows for keys in of_pages]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        page_of = np.zeros(count, np.int64)
        page_of[: starts[-1]] = np.repeat(np.arange(len(sizes)), sizes)
        of_events: dict[str, Ints] = {}
        at = int(starts[-1])
        for (name, keys), pages in zip(of_inputs.items(), loaded.of_events, strict=True):
            of_events[name] = codes[at : at + keys.num_rows]
            at += keys.num_rows
            page_of[of_events[name]] = pages
        return cls(all_keys.take(pa.array(first_rows(codes, count))), starts, page_of, of_events)


class MultipleInputOperator(KeyGroupOperator):
    """:param wires: the connection of each input, by name
    :param pages: a fixed number of pages of state per key group; None: as many as the size of the state requires
    :raises StreamDefinitionError, ColumnNotFoundError: an input is missing, unknown or mistyped, or the keys do not match
    """

    def __init__(self, operator: StreamOperator, wires: Mapping[str, Wire], *, pages: int | None = None) -> None:
        self.set_pages(pages)
        check_operator(operator)
        self.operator = operator
        self.declared: dict[str, Input] = operator.declared(Input)
        _check_wires(type(operator).__name__, self.declared, wires)
        self.wires = {name: wires[name] for name in self.declared}
        self.key_schema = _key_schema(self.declared, self.wires)
        self._selectable = _selectable(type(operator))
        specs: list[StateSpec] = [state.spec for state in operator.declared(State).values()]
        self.states = {spec.name: spec for spec in specs if not spec.broadcast}
        self.broadcast_states = {spec.name: spec for spec in specs if spec.broadcast}
        self.inputs = {name: self._input(name, wire) for name, wire in self.wires.items()}
        outputs: dict[str, Output] = operator.declared(Output)
        self.output_schemas = {name: output.schema for name, output in outputs.items()}
        self.metrics = (*operator.declared(Counter), LATE)
        self.gauges = {name: gauge.aggregate for name, gauge in operator.declared(Gauge).items()}
        self.histograms = {name: histogram.buckets for name, histogram in operator.declared(Histogram).items()}
        self.processing_time = not self.event_time or any(wire.idle_after is not None for wire in self.wires.values())
        self.processing_time |= type(operator).on_processing_time_timer is not StreamOperator.on_processing_time_timer
        self._stored_keys = pa.schema([field.with_name("k:" + field.name) for field in self.key_schema])
        self._page_schemas = of_keys(self.definition.tables)
        self._empty_page = {name: schema.empty_table() for name, schema in self._page_schemas.items()}
        schemas = [str(schema) for schema in self._page_schemas.values()]
        connections = [
            (name, str(self.inputs[name].prepared), wire.keys, wire.time, *_unit(wire), *wire.kind)
            for name, wire in self.wires.items()
        ]
        definition = repr((self.states, self.broadcast_states, schemas, connections, self.pages))
        self.fingerprint = hashlib.sha256(definition.encode()).digest()[:16]
        self._runtime: Runtime | None = None

    @property
    def definition(self) -> StateDefinition:
        of_class = definition_of(type(self.operator))

        def kind(name: str) -> str:
            return "broadcast" if self.inputs[name].broadcast else "".join(self.wires[name].kind) or "keyed"

        fixed = {
            **{f'the event time of the input "{name}"': _time_of(wire) for name, wire in self.wires.items()},
            **{f'the kind of the input "{name}"': kind(name) for name in self.inputs},
            "the use of processing time": str(self.processing_time),
            "pages": str(self.pages),
        }
        return replace(
            of_class,
            keys=pa.schema([] if self.key_schema.names == [ONE_KEY] else self.key_schema),
            tables={**of_class.tables, KEYS_TABLE: self._stored_keys},
            inputs={name: spec.prepared for name, spec in self.inputs.items()},
            details={**of_class.details, FIXED: fixed},
        )

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        return aligned_tables(page, of_keys(old.tables), of_keys(self.definition.tables))

    def evolved(self, group: Group, old: StateDefinition) -> None:
        before = group.store.read_page(BROADCAST_PAGE)
        if before is not None and kind_of(before) == Record.TABLES:  # state of 0.1.0; later ones find states by name
            new = aligned_tables(before, of_broadcast(old.tables), of_broadcast(self.definition.tables))
            group.store.write_page(BROADCAST_PAGE, new)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_runtime": None}

    def _input(self, name: str, wire: Wire) -> InputSpec:
        declared = self.declared[name]
        needed = [*declared.schema.names, *wire.keys, *([wire.time] if wire.time is not None else [])]
        keys = [] if declared.broadcast else [field.with_name("k:" + field.name) for field in self.key_schema]
        paged = [pa.field(PAGE, pa.uint8())] if self.pages > 1 and not declared.broadcast else []
        prepared = [*keys, pa.field(TIME, pa.int64()), *paged, *(f.with_name("e:" + f.name) for f in declared.schema)]
        read = pa.schema([field for field in wire.schema if field.name in needed])
        timed, prepared_schema = wire.time is not None, pa.schema(prepared)
        return InputSpec(read, prepared_schema, declared.broadcast, timed, wire.idle_after, wire.watermark_by)

    # ------------------------------------------------------------------ life

    def open(self) -> None:
        self._runtime = Runtime(self.operator, self.event_time)
        try:
            self._runtime.operator.open()
        except Exception as error:
            self._runtime = None
            raise UserFunctionError(f"{type(self.operator).__name__}.open failed", described(error)) from error

    def close(self) -> None:
        if self._runtime is not None:
            operator, self._runtime = self._runtime.operator, None
            operator.close()

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            self.open()
        assert self._runtime is not None
        return self._runtime

    # ------------------------------------------------------------------ before the exchange

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        wire, declared, spec = self.wires[name], self.declared[name], self.inputs[name]
        columns: list[Any] = []
        if not declared.broadcast:
            keys = zip(wire.keys, self.key_schema, strict=True) if wire.keys else ()
            columns = [cast_to(events.column(key), field.type) for key, field in keys]
            columns = columns or [pa.array(np.zeros(events.num_rows, np.int8))]
        columns.append(self._times(name, wire, events))
        if self.pages > 1 and not declared.broadcast:
            # An instance has a single key, and its elements have any hashes.
            pages = (
                pa.array(np.zeros(events.num_rows, np.uint8))
                if wire.distributed
                else fixed_pages_of(events, self.pages)
            )
            columns.append(pages)
        columns += [cast_to(events.column(field.name), field.type) for field in declared.schema]
        return pa.table(columns, schema=spec.prepared)

    def _times(self, name: str, wire: Wire, events: pa.Table) -> pa.ChunkedArray | pa.Array:
        if wire.time is None:
            return pa.array(np.full(events.num_rows, BEFORE_TIME, np.int64))
        return TimeColumn.of(wire.time, wire.schema).of_events(
            events,
            lenient="process_late" in self.declared[name].functions,
            what=f'elements of the input "{name}"',
            detail="An element without a time cannot be ordered.",
            hint="filter such elements out, or define a process_late function for this input, which receives them",
        )

    # ------------------------------------------------------------------ with state

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        if now.processing_time != END_OF_TIME:  # at the end of input every timer is due anyway
            self.runtime.processing_time = now.processing_time
        yield from super().slices(store, arrivals, now)

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        declared, runtime = self.declared[name], self.runtime
        if declared.broadcast and group.number:  # every key group has the same late elements
            return
        if "process_late" not in declared.functions:
            group.metrics[LATE] += events.num_rows
            return
        timers = StateTable(TIMERS, TIMERS.schema.empty_table())
        runtime.begin({}, {}, timers, self.key_schema.empty_table(), before=group.watermark, now=group.processing_time,
                      ended=lambda name: False, is_first=True)  # fmt: skip
        arrived = self._arrived(name, events, np.zeros(0, np.int64))
        for element, time in zip(arrived.elements(), arrived.times.tolist(), strict=True):
            runtime.late(declared, element, None if time == NO_TIME else time)
        runtime.tools.taken().add_to(group)
        runtime.finish()

    def _arrived(self, name: str, events: pa.Table, keys: Ints) -> Arrived:
        declared = self.declared[name]
        rows = events.select(["e:" + column for column in declared.schema.names])
        return Arrived(declared, rows.rename_columns(declared.schema.names), events.column(TIME).to_numpy(), keys)

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> None:
        keyed = {name: table for name, table in ready.items() if not self.declared[name].broadcast}
        # A broadcast element, and the function for the end of an input, may visit all keys.
        everything = len(keyed) < len(ready) or self._reselects_inputs(group) or bool(self._ending(group))
        key_names = self._stored_keys.names
        loaded = group.load(list(keyed.values()), key_names, horizon, everything=everything)
        pages = [
            self._empty_page if value is None else tables_by_name(value, self._page_schemas) for value in loaded.stored
        ]
        keys = _CallKeys.of(
            [page[KEYS_TABLE] for page in pages],
            {name: table.select(key_names) for name, table in keyed.items()},
            loaded,
            self._empty_page[KEYS_TABLE],
        )

        def stored(spec: StateSpec, name: str) -> StateTable:
            return StateTable(spec, _renumbered([page[name] for page in pages], keys.starts, self._empty_page[name]))

        tables = {name: stored(spec, STATE + name) for name, spec in self.states.items()}
        timers = stored(TIMERS, TIMERS_TABLE)
        broadcast = BroadcastState(group.store, BROADCAST_PAGE, self.broadcast_states)
        waiting = self._waiting(pages, keys.starts)
        runtime = self.runtime
        runtime.begin(
            tables,
            broadcast.tables,
            timers,
            keys.table.select([])
            if self.key_schema.names == [ONE_KEY]
            else keys.table.rename_columns(self.key_schema.names),
            before=group.before,
            now=group.processing_time,
            ended=group.ended.__contains__,
            is_first=not group.number,
        )
        if not self.event_time:
            horizon = runtime.processing_time
        arrived = [
            self._arrived(name, ready[name], keys.of_events.get(name, np.full(ready[name].num_rows, -1, np.int64)))
            for name in self.inputs
            if name in ready
        ]
        run(runtime, arrived, horizon, waiting, broadcast)
        self._tell_watermarks(group)
        for name in self._ending(group):
            runtime.input_name = name
            runtime.end_input(self.declared[name].functions["end_input"])
        if self._ending(group):
            fire_due(runtime, horizon)
        runtime.tools.taken().add_to(group)

        time = runtime.time
        settled = [table.settle(time) for table in (*tables.values(), timers)]
        left = [*settled, *(self._still_waiting(waiting, name) for name in self._selectable)]
        self._rewrite(group, loaded, keys, left, horizon)
        broadcast.write(over=group.over)
        runtime.finish()

    def _rewrite(self, group: Group, loaded: Pages, keys: _CallKeys, left: Sequence[pa.Table], horizon: int) -> None:
        """Write the pages that were loaded. *left*: the remaining rows of the tables of all pages"""
        alive = np.zeros(keys.table.num_rows, np.bool_)
        for rows in left:
            alive[rows.column("key").to_numpy()] = True
        remaining = np.flatnonzero(alive & (not group.over))
        encoded = partial(self._page, keys.table, remaining, left, horizon)
        loaded.rewrite(lambda: keys.table.take(pa.array(remaining)), keys.page_of[remaining], partial(map, encoded))

    def _reselects_inputs(self, group: Group) -> bool:
        """Whether keys may select other inputs, because an input has ended."""
        return bool(group.newly_ended and self._selectable)

    @property
    def sees_every_call(self) -> bool:
        return any("process_watermark" in declared.functions for declared in self.declared.values())

    def must_advance(self, group: Group) -> bool:
        return self._reselects_inputs(group) or any(
            {"process_watermark", "end_input"} & self.declared[name].functions.keys() for name in group.moved
        )

    def _waiting(self, pages: Sequence[Mapping[str, pa.Table]], starts: Ints) -> Waiting | None:
        if not self._selectable:
            return None
        waiting = Waiting(self._selectable)
        waiting_rows: list[tuple[int, str, dict[str, Any]]] = []
        for start, page in zip(starts, pages, strict=False):
            for name in self._selectable:
                rows = page[WAITING + name].to_pylist(maps_as_pydicts="lossy")
                waiting_rows += [(row.pop("order"), name, row | {"key": row["key"] + int(start)}) for row in rows]
        for _, name, row in sorted(waiting_rows, key=lambda item: item[0]):
            key, time = row.pop("key"), row.pop("time")
            waiting.add(key, self.declared[name], time, Element((column[2:], value) for column, value in row.items()))
        return waiting

    def _still_waiting(self, waiting: Waiting | None, name: str) -> pa.Table:
        assert waiting is not None
        rows = [
            {"key": key, "order": order, "time": time, **{"e:" + column: value for column, value in element.items()}}
            for key, items in waiting.elements.items()
            for order, (spec, time, element) in enumerate(items)
            if spec.name == name
        ]
        return pa.Table.from_pylist(rows, _waiting_schema(self.declared[name]))

    def _page(
        self,
        keys: pa.Table,
        remaining: Ints,
        left: Sequence[pa.Table],
        horizon: int,
        which: Ints,
    ) -> tuple[bytes, int, int]:
        """A page of the keys ``remaining[which]``, and the next event time and processing time at which it must be read."""
        selected = remaining[which]
        new_number = np.full(keys.num_rows, -1, np.int64)
        new_number[selected] = np.arange(len(selected))
        tables = [keys.take(pa.array(selected))]
        for rows in left:
            numbers = new_number[rows.column("key").to_numpy()]
            kept = rows.filter(pa.array(numbers >= 0))
            tables.append(kept.set_column(0, "key", pa.array(numbers[numbers >= 0])))
        page = dict(zip(self._page_schemas, tables, strict=True))
        times = page[TIMERS_TABLE].column("value").to_numpy()
        on_event = pc.starts_with(page[TIMERS_TABLE].column("name"), EVENT).to_numpy().astype(np.bool_)
        next_event_time = int(times[on_event].min(initial=END_OF_TIME))
        next_processing_time = int(times[~on_event].min(initial=END_OF_TIME))
        if any(page[WAITING + name].num_rows for name in self._selectable):
            next_event_time = min(next_event_time, horizon + 1)  # inputs that were not selected may be selected later
        return tables_to_bytes(tables), next_event_time, next_processing_time

    def _tell_watermarks(self, group: Group) -> None:
        for name, declared in self.declared.items():
            self.runtime.input_name = name
            if "process_watermark" in declared.functions and name in group.moved:
                self.runtime.watermark(declared.functions["process_watermark"], group.moved[name])

    def _ending(self, group: Group) -> list[str]:
        """The inputs that have ended in this call and have a function for that."""
        return [name for name in group.newly_ended if "end_input" in self.declared[name].functions]


def definition_of(operator: type[StreamOperator]) -> StateDefinition:
    """The state of an operator as far as its class determines it. The keys are unknown."""
    states: list[StateSpec] = [state.spec for state in operator.declared(State).values()]
    keyed, broadcast = ([spec for spec in states if spec.broadcast is kind] for kind in (False, True))
    tables = {
        KEYS_TABLE: UNKNOWN_COLUMNS,
        **{STATE + spec.name: spec.schema for spec in keyed},
        TIMERS_TABLE: TIMERS.schema,
        **{WAITING + name: _waiting_schema(declared) for name, declared in _selectable(operator).items()},
        **{BROADCAST + spec.name: spec.schema for spec in broadcast},
    }
    kinds = {spec.name: spec.kind.value for spec in (*keyed, *broadcast)}
    details = {"operator": operator.__name__, "kinds": kinds, FIXED: {}}
    return StateDefinition(OperatorKind.OPERATOR, pa.schema([]), tables, {}, details)


def _selectable(operator: type[StreamOperator]) -> dict[str, Input]:
    """The inputs whose elements may have to wait to be selected."""
    inputs: dict[str, Input] = operator.declared(Input)
    return {name: declared for name, declared in inputs.items() if not declared.broadcast and operator.selects()}


def _waiting_schema(declared: Input) -> pa.Schema:
    """The schema of the elements of an input that wait to be selected."""
    columns = [field.with_name("e:" + field.name) for field in declared.schema]
    return pa.schema([("key", pa.int64()), ("order", pa.int64()), ("time", pa.int64()), *columns])


def _time_of(wire: Wire) -> str:
    return " in ".join([wire.time, *_unit(wire)]) if wire.time is not None else "none"


def _unit(wire: Wire) -> list[str]:
    """The unit of the event time, if it is not the default."""
    unit = MILLISECONDS if wire.time is None else TimeColumn.of(wire.time, wire.schema).unit
    return [] if unit == MILLISECONDS else [unit]


def _check_wires(operator: str, declared: Mapping[str, Input], wires: Mapping[str, Wire]) -> None:
    if not declared:
        raise StreamDefinitionError(f"{operator} has no inputs", hint='clicks = Input("user STRING")')
    for name, spec in declared.items():
        if not {"process_element", "process_batch"} & spec.functions.keys():
            raise StreamDefinitionError(
                f'the input "{name}" of {operator} has no function',
                hint=f"@{name}.process_element decorates a method(self, element, ctx) whose name is unique in the class",
            )
        if name not in wires:
            raise StreamDefinitionError(
                f'the input "{name}" of {operator} is not connected', f"Connected: {', '.join(wires) or 'nothing'}"
            )
    keyed = [name for name, spec in declared.items() if not spec.broadcast]
    distributed = [name for name in keyed if wires[name].distributed]
    if distributed and distributed != keyed:
        other = next(name for name in keyed if not wires[name].distributed)
        raise StreamDefinitionError(
            f'the input "{distributed[0]}" of {operator} is distributed, and the input "{other}" is not',
            "An element that is distributed has no key, and meets only some of the other elements.",
            "connect a DataStream to each of them, or a KeyedStream to each; a BroadcastInput can be combined with both",
        )
    for name, wire in wires.items():
        if name not in declared:
            raise StreamDefinitionError(f'{operator} has no input "{name}"', f"Its inputs: {', '.join(declared)}")
        if declared[name].broadcast and wire.keys:
            raise StreamDefinitionError(
                f'the input "{name}" of {operator} is a broadcast input and cannot have a key',
                hint="connect a BroadcastStream",
            )
        for field in declared[name].schema:
            if field.name not in wire.schema.names:
                raise ColumnNotFoundError.from_missing_and_available(
                    field.name, wire.schema.names, f'in the input "{name}" of {operator}'
                )
            actual = wire.schema.field(field.name).type
            if not _same_type(small_type(actual), small_type(field.type)):
                raise ColumnTypeError(
                    f'the column "{field.name}" of the input "{name}" is {actual}, but {operator} declares {field.type}',
                    hint="CAST it before connecting, or declare the actual types of the input's columns",
                )


def _same_type(actual: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(wanted):
        return bool((actual.tz is None) == (wanted.tz is None))
    if not pa.types.is_nested(actual) or actual.id != wanted.id:
        return bool(actual == wanted)
    inner, others = ([kind.field(n) for n in range(kind.num_fields)] for kind in (actual, wanted))
    # The names of the fields inside a list or a map differ between engines.
    if pa.types.is_struct(actual) and [field.name for field in inner] != [field.name for field in others]:
        return False
    return len(inner) == len(others) and all(
        _same_type(field.type, other.type) for field, other in zip(inner, others, strict=True)
    )


def _key_schema(declared: Mapping[str, Input], wires: Mapping[str, Wire]) -> pa.Schema:
    """The key columns, named as in the first keyed input."""
    keyed = [name for name, spec in declared.items() if not spec.broadcast]
    if not keyed:
        raise StreamDefinitionError(
            "an operator needs a keyed input", "An operator with only broadcast inputs is not supported."
        )
    fields = {name: [wires[name].schema.field(key) for key in wires[name].keys] for name in keyed}
    check_same_keys(fields)
    return key_schema_of(fields[keyed[0]])


def check_same_keys(fields: Mapping[str, Sequence[pa.Field]]) -> None:
    """
    :param fields: the key columns of each keyed input
    :raises StreamDefinitionError: their types differ
    """
    (first_name, first), *others = fields.items()
    for name, key_fields in others:
        if [f.type for f in key_fields] != [f.type for f in first]:
            raise StreamDefinitionError(
                f'the keys of the inputs "{first_name}" and "{name}" differ',
                f"{first_name}: {_shown(first)}\n{name}: {_shown(key_fields)}",
                "connect inputs with the same number of key columns, of the same types",
            )


def _shown(fields: Sequence[pa.Field]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields) or "no key"


def _renumbered(tables: Sequence[pa.Table], starts: Ints, empty: pa.Table) -> pa.Table:
    """The rows of the *tables* of pages, with consecutive key indexes."""
    if len(tables) == 1:
        return tables[0]
    moved = [
        table.set_column(0, "key", pa.array(table.column("key").to_numpy() + start))
        for table, start in zip(tables, starts, strict=False)
    ]
    return pa.concat_tables([empty, *moved])
