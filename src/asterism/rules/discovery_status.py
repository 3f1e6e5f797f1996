"""How the discovery of pattern processors is, as a coordinator writes it and others read it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta

INITIALIZING, VALID, INTERRUPTED, STALE, OFF = "initializing", "valid", "interrupted", "stale", "off"
HEARTBEAT = 10.0
"""Seconds between two signs of life."""
MISSED = 3
"""Signs of life that may be missing: a store, too, may be slow."""
MAX_LOG = 20
"""Lines of the log that a status has."""


@dataclass(slots=True)
class Status:
    """How discovery is.

    :param state: initializing; valid: the last look succeeded; interrupted: it failed, the last set goes on; stale: there was no
        sign of life for three times *heartbeat*: the query was killed, hangs, or cannot reach its store; or the last one is as
        far in the future: clocks differ, and it says nothing; off: closed
    :param version: the number of the newest set
    :param processors: id to version of what is in it; a version with a timestamp may still wait for its time
    :param refused: id to reason and place, of what was found and cannot be used
    :param killed: ``id`` or ``id@version`` to reason, of what a person has taken out
    :param error: of the last look, if it failed
    :param since: when the state was entered (ISO 8601, UTC, as all times here)
    :param looked: when a look last succeeded
    :param alive: when this was written last
    :param heartbeat: after how many seconds at most it is written again
    :param log: the last lines of the log ``asterism.rules.processor``
    """

    state: str = INITIALIZING
    version: int = 0
    processors: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    since: str = ""
    killed: dict[str, str] = field(default_factory=dict)
    looked: str = ""
    alive: str = ""
    heartbeat: float = 0.0
    log: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Status:
        """:raises ValueError: it is not what :meth:`to_bytes` wrote"""
        found = json.loads(value)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        status = cls()
        for each in fields(cls):
            if each.name not in found:
                continue  # an earlier release had no such field
            given, kind = found[each.name], type(getattr(status, each.name))
            good = isinstance(
                given, (str, type(None)) if each.name == "error" else (int, float) if kind is float else kind
            )
            if not good:
                raise ValueError(f"{each.name} is {given!r:.60}")
            setattr(status, each.name, given)
        if status.alive and datetime.fromisoformat(status.alive).tzinfo is None:
            raise ValueError(f"alive is {status.alive!r:.60}, without a zone")
        return status

    def seen_at(self, now: datetime) -> Status:
        """As it is to be taken at a time: a process that was killed cannot write that it has ended."""
        if self.state == OFF or not self.heartbeat or not self.alive:
            return self
        alive = datetime.fromisoformat(self.alive)
        if abs(now - alive) <= timedelta(seconds=MISSED * self.heartbeat):
            return self
        why = f"no sign of life since {self.alive}"
        if alive > now:
            why = f"the last sign of life is of {self.alive}, which is still to come: clocks differ"
        before = f"it was {self.state}" + ("" if self.error is None else f": {self.error}")
        return replace(self, state=STALE, error=f"{why}; {before}", since=self.alive)


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
