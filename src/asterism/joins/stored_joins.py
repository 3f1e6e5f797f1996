"""The rows in the pages of a join, as rows for ``read_state``."""

from __future__ import annotations

import pyarrow as pa

from asterism.columns.time import TIME
from asterism.operators.state.state_definition import StateDefinition, keys_as_structs
from asterism.operators.stored_state import events_of, tables_of_page

LEFT, RIGHT = "left", "right"
"""The inputs of a join, and the tables of its pages."""


def kept_rows_of(definition: StateDefinition, side: str, value: bytes, schema: pa.Schema) -> pa.Table:
    """The rows of one side in a page.

    :param schema: of :func:`asterism.operators.stored_state.waiting_schema`
    """
    rows = tables_of_page(definition, value)[side]
    return events_of(keys_as_structs(rows, definition.keys.names), rows, TIME, schema)
