"""The state of a join, continued with other bounds, windows, conditions or another type.

The state has the rows that a later row may still join. A pair is found when the watermark passes its later row, so pairs of rows
that were passed before the change are not found again. See docs/decisions/0132.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, TIME
from asterism.joins.kept_rows import MATCHED, SEEN
from asterism.joins.kinds import IntervalJoin, WindowJoin
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JoinOperator, StreamJoinOperator
from asterism.joins.stored_joins import LEFT
from asterism.joins.types import FILTERING
from asterism.operators.evolution import FIXED, aligned, aligned_tables, check_evolution
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.savepoints.changes.change import SOON, StateChange, rows_of_keys, rows_of_state, written_page
from asterism.savepoints.kinds import key_states

_KIND, _JOINED, _TYPE = "the kind of the join", "what is joined", "the type of the join"
_NO_MARK = "it was stored without whether it has joined another row, which the new type needs"
_NO_WINDOW = "all its windows of the new definition have ended"
_OVER = "its new bounds have passed: it ends at once"
WAITING = "events that wait"


class JoinChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: that of the new join
    :param watermark: that of the state
    :raises StateError: the state cannot be continued at all
    """

    def __init__(self, old: StateDefinition, operator: StreamJoinOperator, watermark: int = BEFORE_TIME) -> None:
        self.old, self.new, self._operator, self._watermark = old, operator.definition, operator, watermark
        before, now = old.details[FIXED], self.new.details[FIXED]
        may_change = {name: now[name] for name in (_JOINED, _TYPE) if name in now}
        check_evolution(replace(old, details={**old.details, FIXED: {**before, **may_change}}), self.new)
        self._others = before.get(_JOINED) != now.get(_JOINED)
        self._filtered, self._filters = before.get(_TYPE) in FILTERING, now.get(_TYPE) in FILTERING
        self._kind = operator.kind if isinstance(operator, JoinOperator) else None

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        notes = []
        if self._others:
            notes.append(
                "rows whose former bounds or windows had passed are not in the state: new rows do not join them"
            )
        if self._others and isinstance(self._operator, MultiJoinOperator) and any(self._operator.join.left):
            notes.append("rows that end at once, and have joined no row of a left-joined input, are not reported alone")
        if self._remembers and self._filtered and not self._filters:
            notes.append("rows of left that have joined are not in the state: new rows do not join them")
        return notes

    @property
    def _remembers(self) -> bool:
        """Whether a row can be in the state after it has joined another one."""
        return self._kind is not None and self._kind.remembers_matches

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` that still have a state, and what became of all."""
        before, after = key_states(self.old), key_states(self.new)
        tables = tables_by_name(written_page(before, rows), self.old.tables)
        counts: Counts = Counter()
        kept = {name: self._kept(name, table, counts) for name, table in tables.items()}
        definition = replace(self.old, tables={name: table.schema for name, table in kept.items()})
        page = aligned_tables(tables_to_bytes(list(kept.values())), definition.tables, self.new.tables)
        keys, state = after.read(page)
        left = rows_of_keys(before, rows, keys)
        due = np.full(keys.num_rows, max(self._watermark, 0) + SOON)  # what was not due may be due now
        return rows_of_state(after, left, keys, state, due), counts

    def _kept(self, name: str, rows: pa.Table, counts: Counts) -> pa.Table:
        """The rows of an input that continue."""
        schema, what = self.new.tables[name], f"rows of {name}"
        if self._remembers and name == LEFT and self._filtered:  # the former join kept only rows that had not joined
            rows = rows.append_column(MATCHED, pa.array(np.zeros(rows.num_rows, np.bool_)))
        needs_mark = MATCHED in schema.names or (self._remembers and name == LEFT and self._filters)
        if needs_mark and MATCHED not in rows.column_names:
            if rows.num_rows:
                counts[PlanPart(what, "", "", DROPPED, _NO_MARK)] += rows.num_rows
            return rows.slice(0, 0)
        if name == LEFT and self._filters and MATCHED in rows.column_names:  # those that have joined were reported
            rows = rows.filter(pc.invert(rows.column(MATCHED)))
        if self._has_windows and (self._others or SEEN not in rows.column_names):
            # Windows that have ended are not joined again, nor in part.
            seen = pa.array(np.full(rows.num_rows, self._watermark))
            rows = rows.drop_columns([SEEN]) if SEEN in rows.column_names else rows
            rows = rows.append_column(SEEN, seen)
        times = rows.column(TIME).to_numpy()
        keep, over = self._open(rows, times), self._over(name, times)
        for fate, outcome, reason in (
            (~keep, DROPPED, _NO_WINDOW),
            (keep & over, CONTINUES, _OVER),
            (keep & ~over, CONTINUES, ""),
        ):
            counts[PlanPart(what, "", "", outcome, reason)] += int(fate.sum())
        for part in [part for part, count in counts.items() if not count]:
            del counts[part]
        return rows.filter(pa.array(keep))

    @property
    def _has_windows(self) -> bool:
        """Whether it is a window join of windows other than sessions."""
        return isinstance(self._kind, WindowJoin) and self._kind.gap is None

    def _open(self, rows: pa.Table, times: Ints) -> Mask:
        """The rows that have a window that has not been joined."""
        open_ = np.ones(len(times), np.bool_)
        if isinstance(self._kind, WindowJoin) and self._has_windows and self._others:
            row, _, end = self._kind.windows.assign(times)
            open_ = np.bincount(row[end - 1 > rows.column(SEEN).to_numpy()[row]], minlength=len(times)) > 0
        return open_

    def _over(self, name: str, times: Ints) -> Mask:
        """The rows that no later row can join."""
        if isinstance(self._operator, MultiJoinOperator):
            number = list(self._operator.inputs).index(name)
            return times + self._operator.join.kept_for[number] <= self._watermark
        if isinstance(self._kind, IntervalJoin):
            return times + (self._kind.upper if name == LEFT else -self._kind.lower) <= self._watermark
        return np.zeros(len(times), np.bool_)

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        counts = Counter({PlanPart(WAITING, "", "", CONTINUES, ""): events.num_rows} if events.num_rows else {})
        return aligned(events, self.new.inputs[name]), counts
