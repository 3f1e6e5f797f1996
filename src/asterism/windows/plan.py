"""A window operator that is bound to the columns of a stream; created once, with the operator."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from asterism.windows.contents import FiringContents
from asterism.windows.spec import WindowSpec
from asterism.windows.stored_windows import FUNCTION_KEYS, FUNCTION_STATE, WINDOW_STATE
from asterism.windows.trigger_table import TriggerTable

FIRINGS = "firings"
"""The operator's output of results; there may be another one for late elements."""
KINDS = ("early", "on_time", "late")
COUNTED = tuple(f"{kind}_firings" for kind in KINDS)
UNFIRED = "unfired_elements"
"""The names of the metrics."""
GAP, DISTANCES = "g:", "d:"
"""Prepared columns: the gap of a session; the numbers that triggers compare."""
META = pa.schema([("seen", pa.int64())])
"""Data of a page besides its panes: the watermark at which it was written."""
META_TABLE, PANE_TABLE, ROW_TABLE = range(3)
"""The tables of a page: META, the panes and, if elements are kept, their rows."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The part of a window operator that its calls read: windows, triggers and computations, bound to the columns of a stream."""

    spec: WindowSpec
    contents: FiringContents
    table: TriggerTable
    kept_columns: tuple[str, ...]
    """the columns of elements that are needed later"""
    key_schema: pa.Schema
    pane_schema: pa.Schema
    row_schema: pa.Schema
    firing_schema: pa.Schema

    @property
    def page_schemas(self) -> list[pa.Schema]:
        """The tables of a page of state."""
        rows = [] if self.contents.partials is not None else [self.row_schema]
        return [META, self.pane_schema, *rows, *self.state_schemas.values()]

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        """The tables of the states of the function, the last ones of a page."""
        states = self.contents.states
        if not states:
            return {}
        by_key = {FUNCTION_STATE + name: state.schema for name, state in states.items()}
        by_window = {WINDOW_STATE + name: state.schema for name, state in states.items()}
        return {FUNCTION_KEYS: self.key_schema, **by_key, **({} if self.spec.windows.merges else by_window)}
