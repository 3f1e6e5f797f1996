"""The state of a MATCH_RECOGNIZE clause in a savepoint, continued with another clause. See docs/decisions/0132."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.time import BEFORE_TIME
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.row_patterns.operator import RowPatternOperator
from asterism.row_patterns.stored_searches import ROWS
from asterism.rules.matching.changed_searches import SearchesChange
from asterism.savepoints.changes.change import SOON, StateChange, rows_of_state, written_page
from asterism.savepoints.kinds import key_states

WAITING = "events that wait"


class ClauseChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: that of the new clause
    :param watermark: that of the state
    :raises StateError: the state cannot be continued at all
    """

    def __init__(self, old: StateDefinition, operator: RowPatternOperator, watermark: int = BEFORE_TIME) -> None:
        self.old, self._operator, self._watermark = old, operator, watermark
        self._searches = SearchesChange(old, operator)
        self.new = self._definition()

    def _definition(self) -> StateDefinition:
        new = self._operator.definition
        tables = {KEYS_TABLE: new.tables[KEYS_TABLE], ROWS: _with_stored(new.tables[ROWS], self.old.tables[ROWS])}
        inputs = {EVENTS: _with_stored(new.inputs[EVENTS], self.old.inputs[EVENTS])}
        return replace(new, tables=tables, inputs=inputs)

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        notes = []
        if self.old.details.get("drops_rows", True):
            notes.append("rows that could not matter to the former clause were not kept: the new one does not see them")
        return notes

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` that still have a state, and what became of all."""
        before, after = key_states(self.old), key_states(self.new)
        value, counts = self._searches.page(written_page(before, rows), self.new.tables)
        if value is None:
            return rows.slice(0, 0), counts
        made, state = after.read(value)
        due = np.full(rows.num_rows, max(self._watermark, 0) + SOON)  # what was undecided may be decided now
        return rows_of_state(after, rows, made, state, due), counts

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        schema, reason = self.new.inputs[name], self._searches.lacking(events.column_names)
        outcome = CONTINUES if reason is None else DROPPED
        counts = Counter({PlanPart(WAITING, "", "", outcome, reason or ""): events.num_rows} if events.num_rows else {})
        return (self._searches.columns(events, schema) if reason is None else schema.empty_table()), counts


def _with_stored(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """A schema with the columns of rows (``e:``) that were stored."""
    return pa.schema([*schema, *(f for f in stored if f.name.startswith("e:") and f.name not in schema.names)])
