"""The windows in the pages of a window operator, as rows for people."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from asterism.columns.time import END_OF_TIME, MOMENT, moments
from asterism.operators.state_definition import StateDefinition, keys_as_structs
from asterism.operators.stored_state import tables_of_page

PANES = "panes"
"""The table of windows in a page."""


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
