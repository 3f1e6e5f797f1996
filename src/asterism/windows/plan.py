"""The part of a window operator that its calls read; created once, with the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from asterism.columns.time import TimeColumn
from asterism.expressions.aggregates import Aggregates
from asterism.operators.keyed_state import StateSpec
from asterism.windows.assigners import Windows
from asterism.windows.evictors import Evictor
from asterism.windows.folds import Folding
from asterism.windows.panes import Partials, Reduction
from asterism.windows.process_function import ProcessWindowFunction
from asterism.windows.stored_windows import FUNCTION_KEYS, FUNCTION_STATE, WINDOW_STATE
from asterism.windows.trigger_table import TriggerTable
from asterism.windows.triggers import TimeSpan, Trigger

FIRINGS = "firings"
"""The operator's output of results; there may be another one for late elements."""
KINDS = ("early", "on_time", "late")
COUNTED = tuple(f"{kind}_firings" for kind in KINDS)
UNFIRED = "unfired_elements"
"""The names of the metrics."""
CLOSING = ("drop", "fire_if_non_empty", "fire_always")
"""The actions at the end of a window, by the numbers of the kernels; some elements may not have fired by then."""
ON_TIME = ("fire_if_non_empty", "fire_always")
"""Whether a window that is empty fires on time."""
GAP, DISTANCES = "g:", "d:"
"""Prepared columns: the gap of a session; the numbers that triggers compare."""
META = pa.schema([("seen", pa.int64())])
"""Data of a page besides its panes: the watermark at which it was written."""
META_TABLE, PANE_TABLE, ROW_TABLE = range(3)
"""The tables of a page: META, the panes and, if elements are kept, their rows."""
WindowFunction = Callable[[pa.Table, TimeSpan], Any] | ProcessWindowFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """Windows, triggers and computations, bound to the columns of a stream."""

    windows: Windows
    trigger: Trigger
    table: TriggerTable
    evictor: Evictor | None
    time: TimeColumn
    is_event_time: bool
    in_order: bool
    lateness: int
    """microseconds"""
    closing: int
    """an index of CLOSING"""
    always_on_time: bool
    session_ids: bool
    keys: tuple[str, ...]
    kept_columns: tuple[str, ...]
    """The columns of elements that are needed later."""
    partials: Partials | None
    computation: Aggregates | Reduction | Folding | None
    function: WindowFunction | None
    states: Mapping[str, StateSpec]
    """The states of the function."""
    result_schema: pa.Schema
    result_names: tuple[str, ...]
    key_schema: pa.Schema
    pane_schema: pa.Schema
    row_schema: pa.Schema
    firing_schema: pa.Schema

    @property
    def page_schemas(self) -> list[pa.Schema]:
        """The tables of a page of state."""
        contents = [] if self.partials is not None else [self.row_schema]
        return [META, self.pane_schema, *contents, *self.state_schemas.values()]

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        """The tables of the states of the function, the last ones of a page."""
        if not self.states:
            return {}
        by_key = {FUNCTION_STATE + name: spec.schema for name, spec in self.states.items()}
        by_window = {WINDOW_STATE + name: spec.schema for name, spec in self.states.items()}
        return {FUNCTION_KEYS: self.key_schema, **by_key, **({} if self.windows.merges else by_window)}
