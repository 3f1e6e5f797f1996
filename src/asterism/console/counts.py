"""The counts of rules over time. The status of a query has only current counts, so it is read at intervals and remembered."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from asterism.errors import AsterismError
from asterism.rules.sets.discovery_status import Status, now_text
from asterism.rules.sets.history import HistoryEntry
from asterism.rules.sets.set_store import history_of, status_of

INTERVAL = 5.0
"""Seconds between two reads of the status."""
MAX_POINTS = 120
MAX_ENTRIES = 200
"""Entries of the history of a rule."""
_log = logging.getLogger("asterism.console")


class WatchedStatus:
    """The status of a query, from its checkpoint.

    :param checkpoint: its checkpoint or its store
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._problem: AsterismError | None = None
        self._points: deque[tuple[str, dict[str, int]]] = deque(maxlen=MAX_POINTS)
        """Times, and the matches of each rule until then."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="asterism-console-status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Read the status once."""
        status, problem = None, None
        try:
            status = status_of(self.checkpoint)
        except AsterismError as error:
            problem = error
        except OSError as error:
            problem = AsterismError("the checkpoint cannot be read", str(error))
        with self._lock:
            self._problem = problem
            if status is None:
                return
            self._status = status
            matches: Counter[str] = Counter()
            for rule in status.rules:
                matches[rule.id] += rule.matches
            self._points.append((now_text(), dict(matches)))

    def current(self) -> tuple[Status | None, AsterismError | None]:
        """The last status, and why the newest cannot be read."""
        with self._lock:
            return self._status, self._problem

    def conditions(self) -> Mapping[str, str] | None:
        """The conditions that the query has registered, with their arguments; None: they are not known."""
        status = self.current()[0]
        return None if status is None or not status.alive else status.conditions

    def udfs(self) -> Mapping[str, str]:
        """The signatures of the functions in Python that the query lists, by name."""
        status = self.current()[0]
        return {} if status is None else status.udfs

    def history(self, id: str) -> list[HistoryEntry]:
        """The last entries of a rule in the history of the query, the newest first.

        :raises StateError: the history cannot be read
        """
        entries = [entry for entry in history_of(self.checkpoint) if entry.is_about(id)]
        return entries[: -MAX_ENTRIES - 1 : -1]

    def series(self) -> dict[str, Any]:
        """The times of the reads, and for each rule its matches between consecutive reads."""
        with self._lock:
            points = list(self._points)
        names = dict.fromkeys(name for _, matches in points for name in matches)
        increments = {}
        for name in names:
            totals = [matches.get(name) for _, matches in points]
            # Before a rule was there, it had no matches. A query that begins again counts from 0.
            increments[name] = [max((after or 0) - (before or 0), 0) for before, after in pairwise(totals)]
        return {"times": [moment for moment, _ in points], "matches": {n: v for n, v in increments.items() if any(v)}}
