"""The partial matches of a pattern in a page, continued with another pattern.

They continue by the names of their stages (:mod:`asterism.changes.automata`). What cannot be continued is dropped, and counted
with the reason.

See docs/decisions/0132.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.changes.automata import AutomatonChange, StoredAutomaton
from asterism.changes.plan import CONTINUES, DROPPED, ENDED, MERGED, Counts, PlanPart
from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import offsets_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.errors import StateError
from asterism.matching.binding import BoundPattern
from asterism.matching.key_rows import KeyRows
from asterism.matching.page import Page
from asterism.matching.stored_matches import CHANGE
from asterism.operators.evolution import FIXED, WITHOUT_STATE
from asterism.patterns.automaton import NfaStateKind
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import SkipKind

PREVIOUS_EVENTS = "the number of earlier events that PREV() reads"
"""In the fixed part of a definition."""
PARTIAL, HELD = "partial matches", "finished matches that a skip strategy holds back"
_TOO_LONG = "its events do not fit into the new window"
_SAME = "the same as another one without the events of removed stages"
_OVER = "its new window has passed: it ends at once"


class MatchesChange:
    """
    :param old, new: the details of the definitions: those of :func:`described_automaton`, and CHANGE
    :param pattern: the new pattern
    :param renamed: new names of stages, by their former names
    :param lacking: of each new stage, why its events cannot be continued with; those of other stages can
    :param watermark: that of the state
    :raises StateError: keys do not remember what the new pattern needs
    """

    def __init__(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        pattern: BoundPattern,
        renamed: Mapping[str, str] | None = None,
        lacking: Mapping[str, str] | None = None,
        watermark: int = BEFORE_TIME,
    ) -> None:
        self._pattern, self._watermark = pattern, watermark
        before, after = StoredAutomaton.of_details(old), StoredAutomaton.of_details(new)
        self.automaton = AutomatonChange(before, after, renamed or {}, lacking)
        self._memory = _Memory(old, new)
        self.first_match_only = pattern.plan.skip.kind is SkipKind.FIRST_MATCH_ONLY

    def page(
        self,
        page: Page,
        aligned: Callable[[pa.Table, int], pa.Table] | None = None,
        passed: int = BEFORE_TIME,
    ) -> tuple[Page, Ints, Ints, Counts]:
        """(a page of the keys that have a state; their index among the former keys; the next deadline of each; the counts).

        :param aligned: returns the events and their number as events with the columns of the new pattern. Default: they have them
        :param passed: the event time up to which the former pattern has processed everything, if it may have kept partial
            matches that had ended by then
        """
        counts = Counter[PlanPart]()
        page = self._without_ended(page, passed, counts)
        progress, size = self._progress(page.nodes), page.keys.num_rows
        nodes = self._nodes(page.nodes)
        runs, of_runs = self._runs(page, progress, nodes, counts)
        held, of_held = self._held(page, progress, nodes, counts)
        timers, of_timers = self._timers(page, runs, of_runs)
        rows = KeyRows(
            offsets_of(np.bincount(of_runs, minlength=size)), runs,
            offsets_of(np.bincount(of_held, minlength=size)), held,
            offsets_of(np.bincount(of_timers, minlength=size)), timers.reshape(-1, 1),
        )  # fmt: skip
        events = page.events if aligned is None else aligned(page.events, len(page.times))
        changed = Page(page.keys, events, page.times, page.positions, nodes.rows, rows)
        live = np.flatnonzero(np.any([np.diff(at) > 0 for at, _ in rows.pairs()], axis=0))
        deadlines = np.full(size, END_OF_TIME, np.int64)
        begun = (runs[:, 1] >= 0) & (runs[:, 2] >= 0)
        np.minimum.at(deadlines, of_runs[begun], _deadlines(self.automaton.new, page.times, nodes.rows, runs[begun]))
        np.minimum.at(deadlines, of_timers, timers)
        return changed.of(live), live, deadlines[live], counts

    def _without_ended(self, page: Page, passed: int, counts: Counts) -> Page:
        """Without the partial matches whose window or gap has passed, which rules may keep for some time: see decision 173."""
        if passed == BEFORE_TIME or self._pattern.semantics is Semantics.FLINK:  # in Flink, they may complete a match
            return page
        rows = page.rows.run_rows
        begun = np.flatnonzero((rows[:, 1] >= 0) & (rows[:, 2] >= 0))
        ended = _deadlines(self.automaton.old, page.times, page.nodes, rows[begun]) <= passed
        if not ended.any():
            return page
        counts[PlanPart(PARTIAL, "", "", ENDED, "")] += int(ended.sum())
        kept = np.ones(len(rows), np.bool_)
        kept[begun[ended]] = False
        run_at = offsets_of(kept)[page.rows.run_at]
        return replace(page, rows=page.rows._replace(run_at=run_at, run_rows=rows[kept]))

    def _progress(self, nodes: Ints) -> Ints:
        """For each node, the number of its progress in both automata."""
        automaton, progress = self.automaton, list[int]()
        for _, stage, parent in nodes.tolist():
            if parent >= len(progress):
                raise StateError("the nodes of the savepoint are not in order")
            before = automaton.begin if parent < 0 else progress[parent]
            progress.append(before if stage < 0 else automaton.after(before, stage))
        return np.array(progress, np.int64)

    def _nodes(self, nodes: Ints) -> _Nodes:
        numbers = np.array([*self.automaton.stages, -1], np.int64)  # -1: a node of what a key remembers
        rows, replaced_by = nodes.copy(), np.arange(len(nodes))
        rows[:, 1] = numbers[nodes[:, 1]]
        is_removed = (rows[:, 1] < 0) & (nodes[:, 1] >= 0)
        if not is_removed.any():
            return _Nodes(rows, replaced_by, None)
        for node in np.flatnonzero(is_removed).tolist():
            parent = nodes[node, 2]
            replaced_by[node] = replaced_by[parent] if parent >= 0 else -1
        has_parent = nodes[:, 2] >= 0
        rows[has_parent, 2] = replaced_by[nodes[has_parent, 2]]
        first = list[int]()
        for event, _, parent in rows.tolist():
            first.append(event if parent < 0 else first[parent])
        return _Nodes(rows, replaced_by, np.array(first, np.int64))

    def _runs(self, page: Page, progress: Ints, nodes: _Nodes, counts: Counts) -> tuple[Ints, Ints]:
        """The partial matches that continue, with the rows of the start state and of what keys remember; and the key of each."""
        rows = page.rows.run_rows
        owners = np.repeat(np.arange(page.keys.num_rows), np.diff(page.rows.run_at))
        is_memory, begun = rows[:, 2] < 0, (rows[:, 1] >= 0) & (rows[:, 2] >= 0)
        memory, kept = self._memory.changed(rows[is_memory])
        made, of_made = self._begun(page, rows[begun], owners[begun], progress, nodes, counts)
        rest = ~is_memory & ~begun
        start, of_start = self._start_rows(rows[rest], owners[rest], of_made)
        new = np.concatenate([memory, made, start])
        of_new = np.concatenate([owners[is_memory][kept], of_made, of_start])
        order = np.lexsort((new[:, 0], of_new))  # by key and first event: the start state is the last one
        return new[order], of_new[order]

    def _begun(
        self, page: Page, rows: Ints, owners: Ints, progress: Ints, nodes: _Nodes, counts: Counts
    ) -> tuple[Ints, Ints]:
        automaton, former = self.automaton, page.nodes
        groups = np.stack([progress[rows[:, 1]], rows[:, 2], former[rows[:, 1], 1]], 1)
        kinds, of_kind = np.unique(groups, axis=0, return_inverse=True)
        of_kind = of_kind.reshape(-1)
        places = [automaton.place(code, state) for code, state, _ in kinds.tolist()]
        ends = nodes.replaced_by[rows[:, 1]]
        first = rows[:, 0] if nodes.first is None else nodes.first[ends]
        window = automaton.new.window
        fits = (page.times[nodes.rows[ends, 0]] - page.times[first] < window) | (window == 0) | (ends < 0)
        sizes = np.array([len(place.states) for place in places], np.int64)[of_kind]
        of_row = np.repeat(np.arange(len(rows)), np.where(fits, sizes, 0))
        begins = offsets_of(np.where(fits, sizes, 0))[:-1]
        targets = np.array([state for place in places for state in place.states], np.int64)
        first_target = offsets_of(np.array([len(place.states) for place in places], np.int64))[:-1][of_kind]
        states = targets[first_target[of_row] + np.arange(len(of_row)) - begins[of_row]]
        made = np.stack([first[of_row], ends[of_row], states], 1)
        _, distinct = np.unique(made[:, 1:], axis=0, return_index=True)
        distinct = np.sort(distinct)
        made, of_row = made[distinct], of_row[distinct]
        remains, over = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        remains[of_row] = True
        over[of_row] = _deadlines(self.automaton.new, page.times, nodes.rows, made) <= self._watermark
        for kind, (_, state, stage) in enumerate(kinds.tolist()):
            where = automaton.old.stages[stage], automaton.old.states[state][0]
            of_this, place = of_kind == kind, places[kind]
            fate: Mask
            for fate, outcome, reason in (
                (of_this & (sizes == 0), DROPPED, place.reason or ""),
                (of_this & (sizes > 0) & ~fits, DROPPED, _TOO_LONG),
                (of_this & (sizes > 0) & fits & ~remains, MERGED, _SAME),
                (remains & of_this & over, CONTINUES, _OVER),
                (remains & of_this & ~over, CONTINUES, automaton.waits(place.states, where[1])),
            ):
                if fate.any():
                    counts[PlanPart(PARTIAL, *where, outcome, reason)] += int(fate.sum())
        return made, owners[of_row]

    def _start_rows(self, rows: Ints, owners: Ints, of_begun: Ints) -> tuple[Ints, Ints]:
        """The rows of the start state, which is not stored if it is the only one, and of keys in which no match can begin."""
        old, new = self.automaton.old, self.automaton.new
        is_start = rows[:, 2] == old.start
        if self._pattern.semantics is Semantics.FLINK or self.first_match_only:
            kept = ~is_start | np.isin(owners, of_begun)
        else:
            kept = is_start & np.isin(owners, of_begun)
        changed = rows[kept].copy()
        changed[is_start[kept], 2] = new.start
        return changed, owners[kept]

    def _held(self, page: Page, progress: Ints, nodes: _Nodes, counts: Counts) -> tuple[Ints, Ints]:
        """The finished matches that are held back and are matches of the new pattern, too; and the key of each."""
        rows, automaton = page.rows.waiting_rows, self.automaton
        owners = np.repeat(np.arange(page.keys.num_rows), np.diff(page.rows.waiting_at))
        if not len(rows):
            return rows, owners
        ends = nodes.replaced_by[rows[:, 1]]
        kept = ends >= 0
        for number, (code, stage) in enumerate(
            zip(progress[rows[:, 1]].tolist(), page.nodes[rows[:, 1], 1].tolist(), strict=True)
        ):
            reason = automaton.is_complete(code)
            kept[number] &= reason is None
            outcome = CONTINUES if kept[number] else DROPPED
            counts[PlanPart(HELD, automaton.old.stages[stage], "", outcome, reason or "")] += 1
        first = rows[:, 0] if nodes.first is None else nodes.first[ends]
        made, owners = np.stack([first, ends, rows[:, 2]], 1)[kept], owners[kept]
        if kept.all() and nodes.first is None:
            return made, owners  # their order is that of a heap
        order = np.lexsort((made[:, 0], owners))
        return made[order], owners[order]

    def _timers(self, page: Page, runs: Ints, of_runs: Ints) -> tuple[Ints, Ints]:
        """Flink's timers, one for each event that begins a partial match, at the end of its window; and the key of each."""
        before, now = self.automaton.old.window, self.automaton.new.window
        times = page.rows.timer_rows[:, 0]
        owners = np.repeat(np.arange(page.keys.num_rows), np.diff(page.rows.timer_at))
        if self._pattern.semantics is not Semantics.FLINK or now == 0:
            return times[:0], owners[:0]
        if before == 0:
            begun = (runs[:, 1] >= 0) & (runs[:, 2] >= 0)
            times, owners = page.times[runs[begun, 0]], of_runs[begun]
        distinct = np.unique(np.stack([owners, times - before + now], 1), axis=0)
        return distinct[:, 1], distinct[:, 0]


def _deadlines(automaton: StoredAutomaton, times: Ints, nodes: Ints, runs: Ints) -> Ints:
    """The deadline of each partial match; the end of time if it has none."""
    kinds, gaps = (np.array([state[at] for state in automaton.states], np.int64) for at in (1, 2))
    first, node, state = runs.T
    by_window = times[first] + automaton.window if automaton.window else np.full(len(runs), END_OF_TIME)
    by_gap = np.where(gaps[state] > 0, times[nodes[node, 0]] + gaps[state], END_OF_TIME)
    return np.where(kinds[state] == NfaStateKind.LAST, END_OF_TIME, np.minimum(by_window, by_gap))


@dataclass(frozen=True)
class _Nodes:
    """The nodes with the numbers of the new stages.

    :ivar replaced_by: for each node itself or, if its stage was removed, the last one before it of a stage that remains; -1:
        there is none
    :ivar first: the first event of each chain; None: no stage was removed
    """

    rows: Ints
    replaced_by: Ints
    first: Ints | None


class _Memory:
    """The rows with what keys remember, for a pattern that remembers no more."""

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before, now = old.get(CHANGE, {}), new[CHANGE]
        self._old_previous = int(before["previous"] if "previous" in before else old[FIXED][PREVIOUS_EVENTS])
        self._previous, self._counts = int(now["previous"]), bool(now["counts_keys"])
        absences = list(before.get("absences", []))
        self._absences = [now["absences"].index(stage) if stage in now["absences"] else -1 for stage in absences]
        if self._previous > self._old_previous:
            raise too_little(f"PREV reads {self._previous} earlier events of a key", f"{self._old_previous}")
        if self._counts and not before.get("counts_keys", False):
            raise too_little("the first event of a key, or the number of its matches, matters", "neither")
        unknown = [stage for stage in now["absences"] if stage not in absences]
        if unknown:
            raise too_little(f'the last event of "{unknown[0]}" matters', "no such event")

    def changed(self, rows: Ints) -> tuple[Ints, Ints]:
        """(the rows that the new pattern needs, with its codes; which of *rows* they are)."""
        codes = -1 - rows[:, 2]
        codes_of: dict[int, int] = {0: 0} if self._counts else {}
        codes_of |= {1 + place: 1 + place for place in range(self._previous)}
        for number, now in enumerate(self._absences):
            if now >= 0:
                codes_of[1 + self._old_previous + number] = 1 + self._previous + now
        kept = np.flatnonzero(np.isin(codes, list(codes_of)))
        changed = rows[kept].copy()
        changed[:, 2] = [-1 - codes_of[code] for code in codes[kept].tolist()]
        return changed, kept


def too_little(needs: str, has: str) -> StateError:
    return StateError(
        "the state cannot be continued with this pattern: keys do not remember enough",
        f"In the new pattern, {needs}. The former one remembers {has}.",
        WITHOUT_STATE,
    )
