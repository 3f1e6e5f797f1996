"""The state of a MATCH_RECOGNIZE clause, continued with another clause.

The state has the rows of each key from the first undecided one on, and not how a match in progress has taken them. So the search
begins again at that row, with the new clause. See docs/decisions/0132.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import one_chunk
from asterism.columns.time import BEFORE_TIME
from asterism.errors import StateError
from asterism.operators.evolution import CHANGES_OF_SAVEPOINTS, FIXED, check_evolution
from asterism.operators.key_group import complete
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.operators.stored_state import aligned_column
from asterism.row_patterns.operator import WORDS, RowPatternOperator
from asterism.row_patterns.stored_searches import ROWS
from asterism.savepoints.changes import SOON, StateChange, rows_of_state, written_page
from asterism.savepoints.kinds import key_states

_REACH, _NUMBERED = "the number of earlier rows that PREV() reads", "the use of MATCH_NUMBER()"
SEARCHES, DECIDED, WAITING = "keys whose search waits", "keys without undecided rows", "events that wait"


class ClauseChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: that of the new clause
    :param watermark: that of the state
    :raises StateError: the state cannot be continued at all
    """

    def __init__(self, old: StateDefinition, operator: RowPatternOperator, watermark: int = BEFORE_TIME) -> None:
        self.old, self._operator, self._watermark = old, operator, watermark
        before, now = old.details[FIXED], operator.definition.details[FIXED]
        may_change = {name: now[name] for name in CHANGES_OF_SAVEPOINTS if name in now}
        if int(now[_REACH]) < int(before[_REACH]):
            may_change[_REACH] = now[_REACH]
        adjusted = replace(
            old, details={**old.details, FIXED: {**before, **may_change}}, inputs=operator.definition.inputs
        )
        check_evolution(adjusted, operator.definition)
        if operator.is_anchored and before["PATTERN"] != now["PATTERN"]:
            raise StateError(
                "the savepoint cannot be continued with a pattern that begins with ^",
                "Keys whose rows are all decided are not in it, and have had a first row.",
                "begin a new checkpoint",
            )
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
        tables = tables_by_name(written_page(before, rows), self.old.tables)
        keys, stored = tables[KEYS_TABLE], tables[ROWS]
        sizes, starts = (keys.column(f"p:{name}").to_numpy() for name in ("rows", "next_start"))
        waiting = int((starts < sizes).sum())
        reason = self._lacking(stored.column_names)
        outcome = CONTINUES if reason is None else DROPPED
        counts: Counts = Counter()
        counts[PlanPart(SEARCHES, "", "", outcome, reason or _AGAIN)] += waiting
        counts[PlanPart(DECIDED, "", "", outcome, reason or "")] += len(sizes) - waiting
        counts = +counts
        if reason is not None:
            return rows.slice(0, 0), counts
        changed = self._columns(stored, self.new.tables[ROWS])
        made, state = after.read(tables_to_bytes([keys, changed]))
        due = np.full(len(sizes), max(self._watermark, 0) + SOON)  # what was undecided may be decided now
        return rows_of_state(after, rows, made, state, due), counts

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        schema, reason = self.new.inputs[name], self._lacking(events.column_names)
        outcome = CONTINUES if reason is None else DROPPED
        counts = Counter({PlanPart(WAITING, "", "", outcome, reason or ""): events.num_rows} if events.num_rows else {})
        return (self._columns(events, schema) if reason is None else schema.empty_table()), counts

    def _lacking(self, stored: Sequence[str]) -> str | None:
        """Why rows with these columns cannot be searched with the new clause; None: they can."""
        current_row, former = self._operator.current_row, self.old.details.get("bits", [])
        needed = [name[2:] for name in self._operator.row_schema.names if name != WORDS]
        for text, columns in zip(current_row.texts, current_row.columns, strict=True):
            needed += [] if text in former else columns
        missing = next((name for name in needed if f"e:{name}" not in stored), None)
        return (
            None if missing is None else f'the new clause reads the column "{missing}", without which rows were stored'
        )

    def _columns(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The rows with the columns of *schema*, and the conditions of the new clause."""
        columns = [self._words(rows) if field.name == WORDS else aligned_column(rows, field) for field in schema]
        return pa.table(columns, schema=schema)

    def _words(self, rows: pa.Table) -> pa.Array:
        operator, former = self._operator, self.old.details.get("bits", [])
        known = [name for name in rows.column_names if name.startswith("e:") and name[2:] in operator.schema.names]
        events = rows.select(known).rename_columns([name[2:] for name in known])
        computed = operator.current_row.words(complete(events, operator.schema)).to_numpy().astype(np.int64)
        before = one_chunk(rows.column(WORDS)).to_numpy().astype(np.int64)
        words = np.zeros(rows.num_rows, np.int64)
        for bit, text in enumerate(operator.current_row.texts):
            stored = before >> former.index(text) if text in former else computed >> bit
            words |= (stored & 1) << bit
        return pa.array(words).cast(operator.current_row.word_type)


_AGAIN = "the search begins again at the first undecided row"


def _with_stored(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """A schema with the columns of rows (``e:``) that were stored."""
    return pa.schema([*schema, *(f for f in stored if f.name.startswith("e:") and f.name not in schema.names)])
