"""The pages of user-defined operators, and the events that wait, as rows for ``read_state``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, cast_to, one_chunk, with_fields
from asterism.columns.keys import KEY as KEY_TEXT
from asterism.columns.keys import key_values
from asterism.columns.schemas import small_type
from asterism.columns.time import MOMENT, TIME, moments
from asterism.operators.context import EVENT
from asterism.operators.state.keyed_state import EXPIRES, KEY, NAME, VALUE
from asterism.operators.state.state_definition import StateDefinition, keys_as_structs
from asterism.operators.state.state_store import batch_from_bytes, tables_by_name

STATE, BROADCAST, WAITING, TIMERS_TABLE = "state:", "broadcast:", "waiting:", "timers"
"""The tables of a page: prefixes of the names of states and inputs; the timers. Those of broadcast state have their own page."""
RULE_KEY = pa.list_(pa.string())
"""The type of the keys of rules."""


def key_type(definition: StateDefinition | None) -> pa.DataType:
    """The type of the column of keys."""
    if definition is None or not definition.keys.names:
        return pa.string()
    return RULE_KEY if definition.keys.names == [KEY_TEXT] else pa.struct(list(definition.keys))


def rule_keys(texts: pa.Array) -> pa.Array:
    return pa.array([key_values(text) for text in texts.to_pylist()], RULE_KEY)


def of_keys(tables: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The tables of a page of keys."""
    return {name: schema for name, schema in tables.items() if not name.startswith(BROADCAST)}


def of_broadcast(tables: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The tables of the page of broadcast state."""
    return {name: schema for name, schema in tables.items() if name.startswith(BROADCAST)}


def tables_of_page(definition: StateDefinition, value: bytes, *, broadcast: bool = False) -> dict[str, pa.Table]:
    return tables_by_name(value, of_broadcast(definition.tables) if broadcast else of_keys(definition.tables))


# ---------------------------------------------------------------------- states


def entries_schema(key: pa.DataType | None, table: pa.Schema, *, positions: bool) -> pa.Schema:
    """The columns of :func:`entries`.

    :param key: None: broadcast state, which has no key
    :param table: the schema of the state
    :param positions: whether it is a list
    """
    fields = [] if key is None else [pa.field("key", key)]
    if positions:
        fields.append(pa.field("position", pa.int64()))
    if NAME in table.names:
        fields.append(pa.field("map_key", table.field(NAME).type))
    fields.append(table.field(VALUE))
    if EXPIRES in table.names:
        fields.append(pa.field(EXPIRES, MOMENT))
    return pa.schema(fields)


def entries(rows: pa.Table, keys: pa.Array | None, *, positions: bool, first: int = 0) -> pa.Table:
    """The entries of one state.

    :param keys: the keys of the page; None: broadcast state
    :param first: the position of the first entry
    """
    of_rows = rows.column(KEY).to_numpy()
    columns = [] if keys is None else [keys.take(pa.array(of_rows))]
    if positions:
        columns.append(pa.array(_positions(of_rows) + first))
    columns += [rows.column(name) for name in (NAME, VALUE) if name in rows.column_names]
    if EXPIRES in rows.column_names:
        columns.append(moments(rows.column(EXPIRES).to_numpy()))
    return pa.table(
        columns, schema=entries_schema(None if keys is None else keys.type, rows.schema, positions=positions)
    )


def _positions(sorted_keys: Ints) -> Ints:
    begins = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1])) if len(sorted_keys) else sorted_keys
    positions: Ints = np.arange(len(sorted_keys)) - np.repeat(begins, np.diff(np.append(begins, len(sorted_keys))))
    return positions


def timers_schema(key: pa.DataType) -> pa.Schema:
    return pa.schema([("key", key), ("name", pa.string()), ("time", MOMENT), ("domain", pa.string())])


def timers(tables: Mapping[str, pa.Table], keys: pa.Array) -> pa.Table:
    rows = tables[TIMERS_TABLE]
    names = rows.column(NAME).to_pylist()
    columns = [
        keys.take(pa.array(rows.column(KEY).to_numpy())),
        pa.array([name[1:] for name in names], pa.string()),
        moments(rows.column(VALUE).to_numpy()),
        pa.array(["event time" if name[0] == EVENT else "processing time" for name in names], pa.string()),
    ]
    return pa.table(columns, schema=timers_schema(keys.type))


# ---------------------------------------------------------------------- waiting events


def columns_of_events(prepared: Iterable[pa.Field]) -> list[pa.Field]:
    """The columns of the stream that are kept, under their own names."""
    return [field.with_name(field.name[2:]) for field in prepared if field.name.startswith("e:")]


def aligned_column(rows: pa.Table, field: pa.Field) -> pa.Array:
    """A column of stored rows as *field*; NULL if they were stored without it."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = one_chunk(rows.column(field.name))
    if small_type(column.type) == small_type(field.type):
        return cast_to(column, field.type)
    return with_fields(column, field.type) if pa.types.is_struct(field.type) else column


def kept_column(rows: pa.Table, field: pa.Field) -> pa.Array:
    """A column of events."""
    return aligned_column(rows, field.with_name("e:" + field.name))


def waiting_schema(key: pa.DataType, prepared: pa.Schema) -> pa.Schema:
    """The columns of waiting events of an input; those of the stream that are kept are a struct."""
    fields = columns_of_events(prepared)
    return pa.schema([("key", key), ("time", MOMENT), ("event", pa.struct(fields) if fields else pa.string())])


def waiting_events(definition: StateDefinition, name: str, value: bytes, schema: pa.Schema) -> pa.Table:
    """The events of the input *name* in a buffer or chunk. *schema*: of :func:`waiting_schema`"""
    prepared = definition.inputs[name]
    rows = batch_from_bytes(value, prepared)
    of_key = [field.name for field in prepared if field.name.startswith("k:")]
    if KEY_TEXT in prepared.names:
        keys = rule_keys(rows.column(KEY_TEXT))
    elif of_key:
        keys = keys_as_structs(rows.select(of_key), definition.keys.names)
    else:  # a broadcast input
        keys = pa.nulls(rows.num_rows, key_type(definition))
    return events_of(keys, rows, TIME, schema)


def unselected_events(rows: pa.Table, keys: pa.Array, schema: pa.Schema) -> pa.Table:
    """The elements of an input that wait to be selected, with the *keys* of their page."""
    keys_of_rows = keys.take(pa.array(rows.column(KEY).to_numpy()))
    return events_of(keys_of_rows, rows, "time", schema)


def events_of(keys: pa.Array, rows: pa.Table, time: str, schema: pa.Schema) -> pa.Table:
    """Stored events, with their *keys*. *time*: the column of their times; *schema*: of :func:`waiting_schema`"""
    event = schema.field("event").type
    columns: pa.Array = pa.nulls(rows.num_rows, event)
    if pa.types.is_struct(event):
        parts = [kept_column(rows, field) for field in event]
        columns = pa.StructArray.from_arrays(parts, fields=list(event))
    return pa.table([keys, moments(rows.column(time).to_numpy()), columns], schema=schema)


def numbers_of_entries(tables: Mapping[str, pa.Table], keys: int) -> tuple[Ints, Ints]:
    """For each key of a page the number of entries of all its states, and of its timers."""
    counts = np.zeros((2, keys), np.int64)
    for name, rows in tables.items():
        if name.startswith(STATE) or name == TIMERS_TABLE:
            np.add.at(counts[int(name == TIMERS_TABLE)], rows.column(KEY).to_numpy(), 1)
    return counts[0], counts[1]
