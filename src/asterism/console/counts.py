"""The counts of rules over time. The status of a query has only current counts, so it is read at intervals and remembered.

Decision 159 (``docs/decisions/0159-alerts-over-time-from-counts.md``).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import Status, now_text
from asterism.rules.sets.history import HistoryEntry
from asterism.rules.sets.set_store import history_of, store_at

INTERVAL = 5.0
"""Seconds between two reads of the status."""
MAX_POINTS = 120
HOUR = 3600
MAX_HOURS = 60 * 24
"""Hours whose matches are remembered."""
MAX_COUNTS = 200_000
"""Numbers of matches of a rule in an hour that are remembered, over all hours: of more, the latest hours."""
MAX_LISTED = 50
"""Rules in a list of those with most matches."""
MAX_ENTRIES = 200
"""Entries of the history of a rule."""
_log = logging.getLogger("asterism.console")


class MatchesByHour:
    """The matches of each rule by hour, as far as they are remembered.

    A status has counts since the checkpoint was created, so an hour has what they have grown by. What was found while the status
    could not be read is counted in the hour in which it can be read again.
    """

    def __init__(self) -> None:
        self.since: datetime | None = None
        """When the first counts were read."""
        self._last: dict[tuple[str, int | None], int] = {}
        """The counts of each version, also of versions that are not in the status any more: they may come back."""
        self._hours: dict[int, Counter[str]] = {}

    def add(self, now: datetime, totals: Mapping[tuple[str, int | None], int]) -> None:
        """Remember the counts of a status.

        :param totals: the matches of each version of a rule since the checkpoint was created
        """
        if self.since is None:
            self.since, self._last = now, dict(totals)
        hour = int(now.timestamp()) // HOUR
        for version, total in totals.items():
            last = self._last.get(version, 0)
            if total != last:  # another checkpoint counts from 0
                counts = self._hours.setdefault(hour, Counter())
                counts[version[0]] += total - last if total > last else total
        self._last = dict(totals) if len(self._last) > MAX_COUNTS else {**self._last, **totals}
        for past in sorted(self._hours)[:-1]:
            if past > hour - MAX_HOURS and sum(map(len, self._hours.values())) <= MAX_COUNTS:
                break
            del self._hours[past]

    def of(self, id: str | None) -> list[list[Any]]:
        """The hours with matches of a rule, or of all rules, each as its begin and the number of matches."""
        counts = {hour: rules.total() if id is None else rules[id] for hour, rules in sorted(self._hours.items())}
        return [[_hour_text(hour), count] for hour, count in counts.items() if count]

    def by_rule(self, now: datetime) -> list[list[Any]]:
        """The rules with most matches, each with those of the last 24 hours, of the last 7 days, and of all hours."""
        this = int(now.timestamp()) // HOUR
        sums = {days: Counter[str]() for days in (1, 7, MAX_HOURS)}
        for hour, rules in self._hours.items():
            for days, total in sums.items():
                if this - hour < 24 * days:
                    total.update(rules)
        return [[id, *(total[id] for total in sums.values())] for id, _ in sums[MAX_HOURS].most_common(MAX_LISTED)]


def _hour_text(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR, UTC).isoformat()


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
        self._by_hour = MatchesByHour()
        self._earlier: dict[str, int] = {}
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
        earlier: Counter[str] = Counter()
        try:
            store = store_at(self.checkpoint)
            status = store.read_status()
            listed = {(rule.id, rule.version) for rule in status.rules}
            for (id, version), counts in store.counts().versions.items():
                earlier[id] += 0 if (id, version) in listed else counts.matches
        except AsterismError as error:
            problem = error
        except OSError as error:
            problem = AsterismError("the checkpoint cannot be read", str(error))
        with self._lock:
            self._problem = problem
            if status is None:
                return
            self._status, self._earlier = status, {id: matches for id, matches in earlier.items() if matches}
            matches: Counter[str] = Counter()
            by_version: Counter[tuple[str, int | None]] = Counter()
            for rule in status.rules:
                matches[rule.id] += rule.matches
                by_version[rule.id, rule.version] += rule.matches
            self._points.append((now_text(), dict(matches)))
            self._by_hour.add(datetime.now(UTC), by_version)

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

    def free_version(self, new: PatternProcessor) -> int:
        """The version of a rule, or the next one that the query has not used if it was used for another definition. If the
        checkpoint cannot be read, the version of the rule.
        """
        with suppress(AsterismError, OSError):
            return store_at(self.checkpoint).used_versions()[0].free_version(new)
        return new.version

    def history(self, id: str) -> list[HistoryEntry]:
        """The last entries of a rule in the history of the query, the newest first.

        :raises StateError: the history cannot be read
        """
        entries = [entry for entry in history_of(self.checkpoint) if entry.is_about(id)]
        return entries[: -MAX_ENTRIES - 1 : -1]

    def alerts(self, id: str | None) -> dict[str, Any]:
        """The matches by hour, of a rule or of all, and the rules with most of them."""
        now = datetime.now(UTC)
        with self._lock:
            since = self._by_hour.since
            return {
                "since": None if since is None else since.isoformat(),
                "until": now.isoformat(),
                "hours": self._by_hour.of(id),
                "rules": self._by_hour.by_rule(now) if id is None else [],
            }

    def earlier(self) -> dict[str, int]:
        """For each rule, the matches of its former versions, which the status does not list any more."""
        with self._lock:
            return self._earlier

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
