"""The state of windows, continued with another trigger, evictor, allowed lateness, size or content.

A window continues if the new assigner has it, too. Its elements and aggregates are not judged again; only what decides when it
fires is new. See docs/decisions/0132.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import group_codes
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.operators.evolution import FIXED, aligned, aligned_table, check_evolution
from asterism.operators.operator import EVENTS
from asterism.operators.state.keyed_state import KEY
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import (
    additions_from_bytes,
    tables_by_name,
    tables_to_bytes,
    with_additions,
)
from asterism.savepoints.changes.change import SOON, StateChange, rows_of_keys, rows_of_state, written_page
from asterism.savepoints.kinds import key_states
from asterism.windows.assigners import SessionWindows, assigned
from asterism.windows.operator import WindowOperator
from asterism.windows.stored_windows import PANES, WINDOW_STATE
from asterism.windows.trigger_table import KIND, NO_MOMENT, NUMBER, WORD, TriggerPart, TriggerTable

OPEN, FIRED = "windows", "windows that have fired"
WAITING = "events that wait"
_WINDOWS, _CONTENT, _EVICTS = "the windows", "what the state contains", "what the evictor compares"
_TRIGGER = "the trigger", "what the trigger compares"
_ROWS, _OWN, _WORDS = "rows", "own", "words"
_NO_WINDOW = "the new definition has no such window"
_OVER = "its time in the new definition has passed: it ends at once"
_ANEW = "the new trigger begins anew"
_GAP = re.compile(
    r"SessionWindows\.with_gap\(timedelta\((days|hours|minutes|seconds|milliseconds|microseconds)=([0-9]{1,20})\)\)"
)


class WindowsChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: that of the new windows
    :param watermark: that of the state
    :raises StateError: the state cannot be continued at all
    """

    def __init__(self, old: StateDefinition, operator: WindowOperator, watermark: int = BEFORE_TIME) -> None:
        self.old, self.new, self._operator, self._watermark = old, operator.definition, operator, watermark
        before, now = old.details[FIXED], self.new.details[FIXED]
        changed = {name for name in (_WINDOWS, *_TRIGGER, _EVICTS, _CONTENT) if before.get(name) != now.get(name)}
        known = old.inputs[EVENTS]
        more = [f for f in self.new.inputs[EVENTS] if f.name not in known.names and not f.name.startswith("e:")]
        self._compares_more = [f.name for f in more]
        fixed = {**before, **{name: now[name] for name in changed if name in now}}
        inputs = {EVENTS: pa.schema([*known, *more])}
        check_evolution(replace(old, details={**old.details, FIXED: fixed}, inputs=inputs), self.new)
        self._lost = _lost(before, now, changed)
        self._other_windows, self._other_trigger = _WINDOWS in changed, not changed.isdisjoint(_TRIGGER)

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        if not self._other_windows or self._is_session:
            return []
        return ["new windows that began before the change lack the elements before it"]

    @property
    def _is_session(self) -> bool:
        """Whether both definitions have sessions."""
        sessions = isinstance(self._operator.spec.windows, SessionWindows)
        return sessions and self.old.details[FIXED][_WINDOWS].startswith(SessionWindows.__name__)

    # ------------------------------------------------------------------ rows

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` that still have a state, and what became of all."""
        before, after = key_states(self.old), key_states(self.new)
        page = written_page(before, rows)
        tables = tables_by_name(page, self.old.tables)
        panes = _StoredPanes.of(tables[PANES], before.keys.names)
        ends = self._ends(panes)
        keep = self._keeps(panes)
        counts = self._counted(panes, ends, keep)
        made, state = after.read(self._page(page, tables, ends, keep))
        left = rows_of_keys(before, rows, made)
        due = np.full(made.num_rows, max(self._watermark, 0) + SOON)  # what was not due may be due now
        return rows_of_state(after, left, made, state, due), counts

    def _ends(self, panes: _StoredPanes) -> Ints:
        """The ends of the windows: of sessions with another gap, so much later or earlier, but before the next one."""
        gap, former = (_gap_of(each.details[FIXED][_WINDOWS]) for each in (self.new, self.old))
        if not self._other_windows or not self._is_session or gap is None or former is None:
            return panes.end
        ends: Ints = panes.end + gap - former
        order = np.lexsort((panes.start, panes.keys))
        following = panes.keys[order[1:]] == panes.keys[order[:-1]]
        limit = np.where(following, panes.start[order[1:]] - 1, END_OF_TIME)
        ends[order[:-1]] = np.minimum(ends[order[:-1]], np.maximum(limit, panes.end[order[:-1]]))
        return ends

    def _keeps(self, panes: _StoredPanes) -> Mask:
        """A mask of the windows that continue."""
        count = len(panes.start)
        if self._lost is not None or (self._other_windows and self._merges_otherwise):
            return np.zeros(count, np.bool_)
        windows = self._operator.spec.windows
        if not self._other_windows or windows.merges:
            return np.ones(count, np.bool_)
        keep: Mask = panes.end == END_OF_TIME
        if windows.is_global:
            return keep
        keep = np.zeros(count, np.bool_)
        bounded = np.flatnonzero(panes.end != END_OF_TIME)
        row, start, end = assigned(windows, panes.start[bounded])
        same = (start == panes.start[bounded][row]) & (end == panes.end[bounded][row])
        keep[bounded[row[same]]] = True
        return keep

    @property
    def _merges_otherwise(self) -> bool:
        return self._operator.spec.windows.merges != self._is_session

    def _counted(self, panes: _StoredPanes, ends: Ints, keep: Mask) -> Counts:
        counts: Counts = Counter()
        has_end = ends != END_OF_TIME
        lateness = np.where(panes.firings > 0, self._operator.spec.lateness_micros, 0)
        over = has_end & (np.where(has_end, ends, 0) + lateness - 1 <= self._watermark)
        again = _ANEW if self._other_trigger else ""
        for what, of_what in ((OPEN, panes.firings == 0), (FIRED, panes.firings > 0)):
            for fate, outcome, reason in (
                (~keep, DROPPED, self._lost or _NO_WINDOW),
                (keep & over, CONTINUES, _OVER),
                (keep & ~over, CONTINUES, again),
            ):
                counts[PlanPart(what, "", "", outcome, reason)] += int((fate & of_what).sum())
        return +counts

    def _page(self, page: bytes, tables: dict[str, pa.Table], ends: Ints, keep: Mask) -> bytes:
        """A page of the new definition, with the windows that are kept."""
        kept = pa.array(np.flatnonzero(keep))
        numbers = np.cumsum(keep) - 1
        made: dict[str, pa.Table] = {}
        for name, rows in tables.items():
            if name == PANES:
                at = rows.column_names.index("end")
                made[name] = self._anew(rows.set_column(at, rows.schema.field(at), pa.array(ends)).take(kept))
            elif name == _ROWS:
                owners = np.repeat(np.arange(len(keep)), tables[PANES].column("count").to_numpy())
                made[name] = rows.filter(pa.array(keep[owners]))
            elif name.startswith(WINDOW_STATE):
                owners = rows.column(KEY).to_numpy()
                chosen = rows.filter(pa.array(keep[owners]))
                moved = pa.array(numbers[owners[keep[owners]]]).cast(rows.schema.field(KEY).type)
                made[name] = chosen.set_column(chosen.column_names.index(KEY), rows.schema.field(KEY), moved)
            else:
                made[name] = rows
        added = additions_from_bytes(page, len(tables))
        if self._lost is not None:
            empty = {name: schema.empty_table() for name, schema in self.new.tables.items()}
            others = {name: aligned_table(name, made[name], empty[name].schema) for name in empty if name in made}
            return tables_to_bytes(list({**empty, **others, PANES: empty[PANES]}.values()))
        definition = replace(self.old, tables={name: rows.schema for name, rows in made.items()})
        value = with_additions(tables_to_bytes(list(made.values())), None if added is None else added.take(kept))
        return self._operator.converted(definition, value)

    def _anew(self, panes: pa.Table) -> pa.Table:
        """The windows with a trigger that begins, if it is another one."""
        if not self._other_trigger:
            return panes
        start, end, firings = (panes.column(name).to_numpy() for name in ("start", "end", "firings"))
        words = _begun(self._operator.table, start, end, firings, self._watermark)
        at = panes.column_names.index(_WORDS)
        flat = pa.array(words.ravel(), pa.int64())
        panes = panes.set_column(at, _WORDS, pa.FixedSizeListArray.from_arrays(flat, words.shape[1]))
        return panes.drop_columns([_OWN]) if _OWN in panes.column_names else panes

    # ------------------------------------------------------------------ events that wait

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """The prepared events of an input that wait for the watermark, and what became of all."""
        schema, reason = self.new.inputs[name], None
        if self._compares_more:
            reason = "they were stored without what the new windows, trigger or evictor compare"
        outcome = CONTINUES if reason is None else DROPPED
        counts = Counter({PlanPart(WAITING, "", "", outcome, reason or ""): events.num_rows} if events.num_rows else {})
        return (aligned(events, schema) if reason is None else schema.empty_table()), counts


@dataclass(frozen=True)
class _StoredPanes:
    """The windows of a page.

    :ivar keys: numbers of their keys
    """

    keys: Ints
    start: Ints
    end: Ints
    firings: Ints

    @classmethod
    def of(cls, panes: pa.Table, keys: list[str]) -> _StoredPanes:
        start, end, firings = (panes.column(name).to_numpy() for name in ("start", "end", "firings"))
        return cls(group_codes(panes.select(keys))[0], start, end, firings)


def _begun(table: TriggerTable, start: Ints, end: Ints, firings: Ints, watermark: int) -> Ints:
    """The words of a trigger that begins in windows that have elements: as after an element, but none is counted or compared. In
    a window that has fired at its end, it does not do so again.
    """
    from asterism.windows.kernels import ARMED, OVER, find_live

    words = np.tile(table.initial, (len(start), 1))
    live = np.zeros(len(table.rows), np.bool_)
    find_live(table.rows, table.initial, live)
    passed, now = end - 1 <= watermark, np.maximum(start, watermark)
    for row in np.flatnonzero(live).tolist():
        kind, number, at = (int(table.rows[row, column]) for column in (KIND, NUMBER, WORD))
        if kind in (TriggerPart.END_EVENT, TriggerPart.END_PROCESSING):
            words[:, at] = np.where(passed & (firings > 0), OVER, ARMED)
        elif kind == TriggerPart.EACH_EVENT:
            words[~passed, at] = OVER
            words[:, at + 1] = np.where(passed, NO_MOMENT, (now // number + 1) * number)
        elif kind == TriggerPart.FIRST_EVENT:
            words[:, at + 1] = now + number
        elif kind in (TriggerPart.EACH_PROCESSING, TriggerPart.FIRST_PROCESSING):
            words[:, at + 1] = 0  # due at once
    return words


def _gap_of(windows: str) -> int | None:
    """The gap of sessions in microseconds, from the text of the windows in a definition; None: they have no fixed one.

    >>> _gap_of(repr(SessionWindows.with_gap(timedelta(minutes=10))))
    600000000
    """
    found = _GAP.fullmatch(windows)
    return None if found is None else micros(timedelta(**{found[1]: int(found[2])}))


def _lost(before: dict[str, str], now: dict[str, str], changed: set[str]) -> str | None:
    """Why no window can continue; None: some can."""
    if _CONTENT in changed:
        return f"its state is {before[_CONTENT]}, and the new definition needs {now[_CONTENT]}"
    if _EVICTS in changed and now[_EVICTS] != "nothing":
        return "its elements were stored without what the new evictor compares"
    return None
