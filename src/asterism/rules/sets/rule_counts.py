"""The metrics that key groups report about processors in a micro-batch, and their sums over micro-batches.

A name of such a metric is JSON: the counted thing, the processor's id and version, and the set that added it. The metrics are in
the progress of a query. The process that started the query adds them up and writes the sum into the store; nothing in a result
depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

from asterism.rules.definition.processor import MAX_PROCESSORS, RuleName
from asterism.text.printable import one_line

FAMILY = "processors"
"""The family of the metrics; a slash and the name follow."""
MATCHES, TIMED_OUT, ERROR, ENABLED, PARTIAL_MATCHES, LAST_MATCH = (
    "matches",
    "timed_out",
    "error",
    "enabled",
    "partial_matches",
    "last_match",
)
SHADOW_MATCHES = "shadow"
ADOPTED, NOT_ADOPTED = "adopted", "not_adopted"
EVENTS = "events"
_TOTALS = {
    MATCHES: "matches",
    SHADOW_MATCHES: "shadow_matches",
    TIMED_OUT: "timed_out",
    ERROR: "errors",
    EVENTS: "events",
    ADOPTED: "adopted",
    NOT_ADOPTED: "not_adopted",
}
"""The fields that count since the checkpoint was created."""
MAX_WITH_EVENTS = 1_000
"""The maximum number of rules whose events a key group reports for a micro-batch: those with the most."""
WATERMARK = f'{FAMILY}/["watermark"]'
"""The name of the metric with the event time of a key group, in microseconds."""
MAX_VERSIONS = 2 * MAX_PROCESSORS
"""The maximum number of versions of processors that are counted: those that changed last."""
MAX_PAST = 1_000
"""The number of unused versions that :meth:`RuleCounts.forget` keeps, and how many may be added until it is called."""
MAX_RESET = 100
"""The number of micro-batches by which a query can be reset: Spark keeps the state of as many."""
MAX_ERROR = 300
"""The maximum length of an error in a name."""
MAX_GROUPS = 32
"""The maximum number of key groups of a version that are listed."""


@lru_cache(maxsize=MAX_VERSIONS)
def metric(what: str, name: RuleName) -> str:
    """The name of a metric.

    >>> metric(MATCHES, ("a", 2, 1))
    'processors/["matches","a",2,1]'
    """
    return f"{FAMILY}/{json.dumps([what, *name], ensure_ascii=False, separators=(',', ':'))}"


@lru_cache(maxsize=MAX_VERSIONS)
def _parts_of(name: str) -> tuple[Any, ...]:
    """The inverse of :func:`metric` and :func:`error_metric`."""
    return tuple(json.loads(name.removeprefix(FAMILY + "/")))


def error_metric(name: RuleName, error: str, group: int | None = None) -> str:
    """The name of the metric for a processor that is disabled in a key group."""
    number = [] if group is None else [group]
    return f"{FAMILY}/{json.dumps([ERROR, *name, one_line(error, MAX_ERROR), *number], ensure_ascii=False)}"


@dataclass(slots=True)
class VersionCounts:
    """The counts of one version of a processor.

    :param since: the number of the set that added it last; *partial_matches* and *disabled* are those since then
    :param errors: how often it failed, or exceeded a limit, in a key group
    :param partial_matches: the current number
    :param disabled: the current number of key groups in which it is disabled after an error
    :param last_match: the latest ``match_time``, in microseconds
    :param error: the last error
    :param shadow_matches: the matches while it was a shadow, which are not among *matches*
    :param groups: the numbers of the first of the *disabled* key groups, ascending
    :param events: how many events were searched for it, each once for each key
    :param adopted: the partial matches of a former version with which it has continued; of a clause, the keys whose search
        was undecided
    :param not_adopted: those with which it could not continue, in the same unit
    """

    since: int = 0
    matches: int = 0
    timed_out: int = 0
    errors: int = 0
    partial_matches: int = 0
    disabled: int = 0
    last_match: int | None = None
    error: str | None = None
    shadow_matches: int = 0
    groups: list[int] = field(default_factory=list)
    events: int = 0
    adopted: int = 0
    not_adopted: int = 0

    def add(self, what: str, since: int, value: int, error: str | None, group: int | None = None) -> None:
        if since > self.since:  # it was removed and added again
            self.since, self.partial_matches, self.disabled, self.groups = since, 0, 0, []
        if what in _TOTALS:
            setattr(self, _TOTALS[what], getattr(self, _TOTALS[what]) + value)
        if what == LAST_MATCH:
            self.last_match = value if self.last_match is None else max(self.last_match, value)
        if what == ERROR:
            self.error = error
        if since == self.since:
            self.partial_matches += value if what == PARTIAL_MATCHES else 0
            self.disabled += value if what == ERROR else -value if what == ENABLED else 0
            if what == ERROR and group is not None and len(self.groups) < MAX_GROUPS:
                self.groups = sorted({*self.groups, group})
            if self.disabled <= 0:
                self.groups = []


@dataclass(slots=True)
class RuleCounts:
    """The counts of processors, by id and version.

    :param watermark: the event time that key groups have reached, in microseconds, if a processor has a timestamp
    :param query: the id of the query
    :param batch: the last micro-batch that is included
    :param missed: the number of micro-batches that are not included, because the process that counts was killed
    :param reached: the event times of recent micro-batches, as pairs of a number and the *watermark* since then
    """

    versions: dict[tuple[str, int], VersionCounts] = field(default_factory=dict)
    watermark: int | None = None
    query: str = ""
    batch: int = -1
    missed: int = 0
    reached: list[tuple[int, int]] = field(default_factory=list)

    @property
    def certain_watermark(self) -> int | None:
        """The event time that key groups have reached, also if the query is reset to an earlier micro-batch."""
        return self.reached[0][1] if self.reached and self.reached[0][0] <= self.batch - MAX_RESET else None

    def add(self, query: str, batch: int, groups: Iterable[Mapping[str, int]]) -> bool:
        """Add a micro-batch, given the metrics of its key groups. Returns whether anything has changed."""
        if query != self.query:  # the state of another query began without partial matches
            self.versions, self.watermark, self.missed, self.reached = {}, None, 0, []
            self.query, self.batch = query, batch - 1
        if batch <= self.batch:
            return False
        self.missed += batch - self.batch - 1
        self.batch = batch
        changed = False
        for metrics in groups:
            for name, value in metrics.items():
                changed = True
                self._add(_parts_of(name), value)
        while len(self.versions) > MAX_VERSIONS:
            del self.versions[next(iter(self.versions))]
        if self.watermark is not None and (not self.reached or self.reached[-1][1] < self.watermark):
            self.reached.append((batch, self.watermark))
        while len(self.reached) > 1 and self.reached[1][0] <= batch - MAX_RESET:
            del self.reached[0]
        return changed

    def _add(self, name: Sequence[Any], value: int) -> None:
        if len(name) == 1:
            self.watermark = value if self.watermark is None else max(self.watermark, value)
            return
        what, id, version, since, *more = name
        counts = self.versions.pop((id, version), None) or VersionCounts(since)
        self.versions[id, version] = counts  # at the end, because the first ones are dropped
        counts.add(what, since, value, *(more or [None]))

    def forget(self, in_use: Collection[tuple[str, int]]) -> None:
        """Keep *in_use* (id and version), and of the others those that changed last."""
        past = [key for key in self.versions if key not in in_use]
        for key in past[: max(len(past) - MAX_PAST, 0)]:
            del self.versions[key]

    def to_bytes(self) -> bytes:
        values = attrgetter(*VersionCounts.__slots__)
        versions = [[*key, *values(counts)] for key, counts in self.versions.items()]
        document = {"query": self.query, "batch": self.batch, "missed": self.missed, "watermark": self.watermark}
        document["reached"] = self.reached
        return json.dumps({**document, "versions": versions}, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> RuleCounts:
        """:raises ValueError: the value was not written by :meth:`to_bytes`"""
        stored = json.loads(value)
        query, batch, missed, watermark = (stored[name] for name in ("query", "batch", "missed", "watermark"))
        if type(query) is not str or {type(batch), type(missed)} != {int} or type(watermark) not in (int, type(None)):
            raise ValueError("a field has an invalid value")
        versions = {}
        for id, version, *values in stored["versions"]:
            counts = VersionCounts(*values)
            totals = (getattr(counts, name) for name in _TOTALS.values())
            numbers = version, counts.since, *totals, counts.partial_matches, counts.disabled, *counts.groups
            others = type(counts.last_match) in (int, type(None)) and type(counts.error) in (str, type(None))
            if type(id) is not str or {*map(type, numbers)} != {int} or not others:
                raise ValueError(f"the counts of {id!r:.60} are invalid")
            versions[id, version] = counts
        reached = [(number, time) for number, time in stored.get("reached", ())]
        if {type(value) for pair in reached for value in pair} - {int}:
            raise ValueError("reached has an invalid value")
        return cls(versions, watermark, query, batch, missed, reached)
