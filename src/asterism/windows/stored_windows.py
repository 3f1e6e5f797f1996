"""The windows in the pages of a window operator, and the states of its window function, as rows for ``read_state``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from asterism.columns.time import END_OF_TIME, MOMENT, moments
from asterism.operators.evolution import STATES_OF_WINDOW_FUNCTIONS
from asterism.operators.state.keyed_state import KEY
from asterism.operators.state.state_definition import StateDefinition, keys_as_structs
from asterism.operators.stored_state import entries, entries_schema, tables_of_page

PANES = "panes"
"""The table of windows in a page."""
FUNCTION_KEYS = "function_keys"
"""The table of the keys for which a window function has state."""
FUNCTION_STATE, WINDOW_STATE = STATES_OF_WINDOW_FUNCTIONS
"""The prefixes of the tables of states of a window function, by key and by window."""


def windows_schema(key: pa.DataType) -> pa.Schema:
    """The columns of :func:`windows_of`."""
    times = [("window_start", MOMENT), ("window_end", MOMENT), ("kept_until", MOMENT)]
    return pa.schema([("key", key), *times, ("firings", pa.int64()), ("elements", pa.int64())])


def windows_of(definition: StateDefinition, value: bytes) -> pa.Table:
    """The windows in a page."""
    panes = tables_of_page(definition, value)[PANES]
    start, end = (panes.column(name).to_numpy() for name in ("start", "end"))
    bounded = end != END_OF_TIME
    kept = np.where(bounded, end, 0) + int(definition.details["lateness"])
    keys = keys_as_structs(panes, definition.keys.names)
    columns = [keys, moments(start, bounded), moments(end, bounded), moments(kept, bounded)]
    return pa.table(
        [*columns, panes.column("firings"), panes.column("count")],
        schema=windows_schema(keys.type),
    )


# ---------------------------------------------------------------------- states of window functions


def states_of_keys(
    definition: StateDefinition, value: bytes, table: str, *, positions: bool, keys: str = FUNCTION_KEYS
) -> pa.Table:
    """The entries of a state by key in a page.

    :param table: the table of the state, with its prefix
    :param positions: whether it is a list
    :param keys: the table of the keys
    """
    tables = tables_of_page(definition, value)
    return entries(tables[table], keys_as_structs(tables[keys], definition.keys.names), positions=positions)


def window_state_schema(key: pa.DataType, table: pa.Schema, *, positions: bool) -> pa.Schema:
    """The columns of :func:`states_of_windows`."""
    key_field, *others = entries_schema(key, table, positions=positions)
    return pa.schema([key_field, ("window_start", MOMENT), ("window_end", MOMENT), *others])


def states_of_windows(definition: StateDefinition, value: bytes, table: str, *, positions: bool) -> pa.Table:
    """The entries of a state by window in a page; the parameters are those of :func:`states_of_keys`."""
    tables = tables_of_page(definition, value)
    windows, rows = windows_of(definition, value), tables[table]
    by_window = entries(rows, windows.column("key").combine_chunks(), positions=positions)
    of_rows = windows.take(rows.column(KEY))
    columns = [by_window.column("key"), of_rows.column("window_start"), of_rows.column("window_end")]
    schema = window_state_schema(by_window.schema.field("key").type, rows.schema, positions=positions)
    return pa.table([*columns, *by_window.columns[1:]], schema=schema)
