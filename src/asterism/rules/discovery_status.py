"""The status of the discovery of pattern processors, which the coordinator writes and other processes read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta

INITIALIZING, VALID, INTERRUPTED, STALE, OFF = "initializing", "valid", "interrupted", "stale", "off"
HEARTBEAT = 10.0
"""The interval in seconds at which the status is written."""
MISSED = 3
"""The number of heartbeats that may be missing, because a store may be slow."""
MAX_LOG = 20
"""The number of log lines in a status."""


@dataclass(slots=True)
class Status:
    """The status of discovery.

    :param state: initializing; valid: the last poll succeeded; interrupted: it failed, and the last set stays in force;
        stale: there was no heartbeat for three times *heartbeat*, because the query was killed, hangs or cannot reach its
        store, or the last heartbeat is as far in the future, because clocks differ and it is meaningless; off: closed
    :param version: the number of the newest set
    :param processors: maps the ids of its processors to versions; a version with a timestamp may not be in force yet
    :param refused: maps ids to reason and place, for processors that were found and cannot be used
    :param killed: maps ``id`` or ``id@version`` to the reason, for processors that a person has excluded
    :param error: the error of the last poll, if it failed
    :param since: when the state was entered (ISO 8601 in UTC, as all times here)
    :param last_poll: when a poll last succeeded
    :param alive: when the status was last written
    :param heartbeat: the maximum number of seconds until it is written again
    :param log: the last lines of the log ``asterism.rules.processor``
    """

    state: str = INITIALIZING
    version: int = 0
    processors: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    since: str = ""
    killed: dict[str, str] = field(default_factory=dict)
    last_poll: str = ""
    alive: str = ""
    heartbeat: float = 0.0
    log: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Status:
        """:raises ValueError: the value was not written by :meth:`to_bytes`"""
        found = json.loads(value)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        found.setdefault("last_poll", found.get("looked", ""))  # the name in release 0.1
        status = cls()
        for each in fields(cls):
            if each.name not in found:
                continue  # a field that earlier releases do not write
            given, kind = found[each.name], type(getattr(status, each.name))
            good = isinstance(
                given, (str, type(None)) if each.name == "error" else (int, float) if kind is float else kind
            )
            if not good:
                raise ValueError(f"{each.name} has the invalid value {given!r:.60}")
            setattr(status, each.name, given)
        if status.alive and datetime.fromisoformat(status.alive).tzinfo is None:
            raise ValueError(f"alive is {status.alive!r:.60}, without a zone")
        return status

    def seen_at(self, now: datetime) -> Status:
        """The status as seen at a time, which may be stale: a process that was killed cannot write that it has ended."""
        if self.state == OFF or not self.heartbeat or not self.alive:
            return self
        alive = datetime.fromisoformat(self.alive)
        if abs(now - alive) <= timedelta(seconds=MISSED * self.heartbeat):
            return self
        why = f"no heartbeat since {self.alive}"
        if alive > now:
            why = f"the last heartbeat is at {self.alive}, which is in the future: the clocks differ"
        before = f"it was {self.state}" + ("" if self.error is None else f": {self.error}")
        return replace(self, state=STALE, error=f"{why}; {before}", since=self.alive)


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
