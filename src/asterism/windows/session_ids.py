"""Ids of sessions, which survive merging, and the ids that a firing replaces.

The id of a session is a hash of its key and of the window of the element that began it: it does not change when the session grows
or another one is merged into it. When sessions merge, the one that begins first survives, and its next firing contains the ids of
those that have fired. An id is never used again: an element that could begin the same session again belongs to the session that
has the id, or is late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.ids import ids_of_numbers, seed_of
from asterism.columns.keys import key_strings

SESSION_ID, REPLACES = "session_id", "replaces"
SESSION_COLUMNS = (SESSION_ID, REPLACES)
IDS = pa.list_(pa.string())


@dataclass(slots=True)
class Sessions:
    """The ids of the panes of a call.

    :param keys: the key of each pane
    :param stored: the ids in state, by pane; None: there is none
    :param replaces: the ids in state that no firing has contained yet
    :param begin: the window that each pane began with
    :param merges: the merges of the call, see :mod:`asterism.windows.kernels`, and for each whether the merged pane had fired
    """

    keys: pa.Table
    stored: list[str | None]
    replaces: dict[int, list[str]]
    begin: tuple[Ints, Ints]
    merges: list[tuple[int, int, int, bool]]

    def ids(self, panes: Ints) -> pa.Array:
        """The ids of *panes*."""
        missing = np.array([pane for pane in np.unique(panes).tolist() if self.stored[pane] is None], np.int64)
        if len(missing):
            keys = key_strings(self.keys.take(pa.array(missing)).columns, len(missing))
            made = ids_of_numbers(_SEED, keys, [column[missing] for column in self.begin])
            for pane, session_id in zip(missing.tolist(), made.to_pylist(), strict=True):
                self.stored[pane] = session_id
        return pa.array([self.stored[pane] for pane in panes.tolist()], pa.string())

    def replaced(self, panes: Ints, rows: Ints) -> pa.Array:
        """The ids that each firing replaces.

        :param panes: the pane of each firing, in order
        :param rows: the number of rows of each; a firing without rows contains no ids
        """
        ids: list[list[str]] = [[] for _ in panes]
        if self.merges or self.replaces:
            first = 0
            for survivor, merged, before, fired in self.merges:
                self._add_to(ids, panes, rows, first, before)
                first = before
                of_merged = self.replaces.pop(merged, [])
                if fired:
                    of_merged = [*of_merged, *self.ids(np.array([merged])).to_pylist()]
                if of_merged:
                    self.replaces.setdefault(survivor, []).extend(of_merged)
            self._add_to(ids, panes, rows, first, len(panes))
        return pa.array(ids, IDS)

    def _add_to(self, ids: list[list[str]], panes: Ints, rows: Ints, first: int, end: int) -> None:
        for firing in range(first, end):
            if rows[firing]:
                ids[firing] = self.replaces.pop(int(panes[firing]), [])

    def to_be_replaced(self, panes: Ints) -> pa.Array:
        """The ids that the next firing of *panes* replaces."""
        return pa.array([self.replaces.get(pane, []) for pane in panes.tolist()], IDS)


_SEED = seed_of("session")
