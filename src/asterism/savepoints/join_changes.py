"""The state of a join, continued with other bounds, windows, conditions or another type.

The state has the rows that a later row may still join. A pair is found when the watermark passes its later row, so pairs of rows
that were passed before the change are not found again. See docs/decisions/0132.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, TIME
from asterism.joins.kept_rows import MATCHED, SEEN
from asterism.joins.kinds import IntervalJoin, WindowJoin
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JoinOperator, StreamJoinOperator
from asterism.joins.stored_joins import LEFT
from asterism.operators.evolution import FIXED, aligned, aligned_tables, check_evolution
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.savepoints.changes import SOON, StateChange, rows_of_keys, rows_of_state, written_page
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
        self.fingerprint = hashlib.sha256(b"changed" + self.new.to_bytes()).digest()[:16]

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        if not self._others:
            return []
        return ["rows whose former bounds or windows had passed are not in the state: new rows do not join them"]

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
        if MATCHED in schema.names and MATCHED not in rows.column_names:
            counts[PlanPart(what, "", "", DROPPED, _NO_MARK)] += rows.num_rows
            return rows.slice(0, 0)
        if SEEN in schema.names and SEEN not in rows.column_names:  # none of its windows has been joined
            rows = rows.append_column(SEEN, pa.array(np.full(rows.num_rows, BEFORE_TIME)))
        times = rows.column(TIME).to_numpy()
        keep, over = self._open(rows, times), self._over(name, times)
        for fate, outcome, reason in (
            (~keep, DROPPED, _NO_WINDOW),
            (keep & over, CONTINUES, _OVER),
            (keep & ~over, CONTINUES, ""),
        ):
            counts[PlanPart(what, "", "", outcome, reason)] += int(fate.sum())
        for lost, reason in self._unreported(name, times):
            counts[PlanPart(f"results with a row of {name} alone", "", "", DROPPED, reason)] += int(lost.sum())
        for part in [part for part, count in counts.items() if not count]:
            del counts[part]
        return rows.filter(pa.array(keep))

    def _open(self, rows: pa.Table, times: Ints) -> Mask:
        """The rows that have a window that has not been joined."""
        kind = self._operator.kind if isinstance(self._operator, JoinOperator) else None
        open_ = np.ones(len(times), np.bool_)
        if isinstance(kind, WindowJoin) and kind.gap is None and SEEN in rows.column_names and self._others:
            row, _, end = kind.windows.assign(times)
            open_ = np.bincount(row[end - 1 > rows.column(SEEN).to_numpy()[row]], minlength=len(times)) > 0
        return open_

    def _over(self, name: str, times: Ints) -> Mask:
        """The rows that no later row can join."""
        kind = self._operator.kind if isinstance(self._operator, JoinOperator) else None
        if isinstance(self._operator, MultiJoinOperator):
            number = list(self._operator.inputs).index(name)
            return times + self._operator.join.kept_for[number] <= self._watermark
        if isinstance(kind, IntervalJoin):
            return times + (kind.upper if name == LEFT else -kind.lower) <= self._watermark
        return np.zeros(len(times), np.bool_)

    def _unreported(self, name: str, times: Ints) -> list[tuple[Mask, str]]:
        """Of a join of many streams: the rows that waited for a row of another input, and whose time without it has passed."""
        if not isinstance(self._operator, MultiJoinOperator) or not self._others:
            return []
        names, join = list(self._operator.inputs), self._operator.join
        lost = []
        for bound in join.bounds:
            if join.left[bound.later] and names[bound.earlier] == name:
                reason = f"if it has joined no row of {names[bound.later]}: its new bounds have passed"
                lost.append((times + bound.upper <= self._watermark, reason))
        return lost

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        counts = Counter({PlanPart(WAITING, "", "", CONTINUES, ""): events.num_rows} if events.num_rows else {})
        return aligned(events, self.new.inputs[name]), counts
