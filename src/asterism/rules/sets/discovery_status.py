"""The status of pattern processors, which the coordinator writes and other processes read: discovery, and what is in force."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from asterism.columns.time import to_datetime
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts

INITIALIZING, VALID, INTERRUPTED, STALE, OFF = "initializing", "valid", "interrupted", "stale", "off"
HEARTBEAT = 10.0
"""The interval in seconds at which the status is written."""
MISSED = 3
"""The number of heartbeats that may be missing, because a store may be slow."""
MAX_LOG = 20
"""The number of log lines in a status."""
PENDING, WAITING, IN_FORCE, SHADOW, DISABLED, EXPIRED, KILLED, REFUSED = (
    "pending",
    "waiting",
    "in force",
    "shadow",
    "disabled",
    "expired",
    "killed",
    "refused",
)
STATES = (PENDING, WAITING, IN_FORCE, SHADOW, DISABLED, EXPIRED, KILLED, REFUSED)
"""The states of versions of processors."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """The state of one version of a processor in a query.

    :param state: pending: no micro-batch has used it yet; waiting: event time has not reached *begins*; in force; shadow: it
        runs beside the version in force; disabled: in some or all key groups, after an error; expired: event time has reached
        *expires*; killed: a person has excluded it; refused: it cannot be used
    :param since: when the first micro-batch that uses it was planned
    :param begins: the event time from which it is in force, if it has a timestamp
    :param expires: the event time from which it is not in force any more, if it expires
    :param reason: why it is disabled, killed or refused
    :param disabled_groups: the number of key groups in which it is disabled after an error
    :param matches, timed_out, errors: the counts of this version since the checkpoint was created
    :param partial_matches: their current number; of a rule in SQL, the number of rows of undecided matches
    :param last_match: the latest ``match_time``
    :param added: the number of the set that added it
    :param shadow: whether it is a shadow, regardless of its state
    :param shadow_matches: the number of its matches while it was a shadow, which are not among *matches*
    :param groups: the numbers of the first 32 of these *disabled_groups*
    :param adopted: the number of partial matches of a former version with which it has continued
    :param not_adopted: those that it has dropped although it adopts
    :param events: its cost: the number of events that were searched for it, among those that may matter to it
    """

    id: str
    version: int | None
    state: str
    since: str = ""
    begins: str = ""
    expires: str = ""
    reason: str | None = None
    disabled_groups: int = 0
    matches: int = 0
    timed_out: int = 0
    errors: int = 0
    partial_matches: int = 0
    last_match: str = ""
    added: int = 0
    shadow: bool = False
    shadow_matches: int = 0
    groups: tuple[int, ...] = ()
    events: int = 0
    adopted: int = 0
    not_adopted: int = 0

    @property
    def active_state(self) -> str:
        """The state when it is neither waiting nor disabled."""
        return SHADOW if self.shadow else IN_FORCE

    def to_dict(self) -> dict[str, Any]:
        """The required fields, and those that differ from their defaults."""
        values = {name: getattr(self, name) for name in _KINDS}
        return {name: value for name, value in values.items() if value or name in _REQUIRED}

    @classmethod
    def from_dict(cls, stored: Any) -> RuleState:
        """:raises ValueError: the value was not written by :meth:`to_dict`"""
        if not isinstance(stored, dict):
            raise ValueError("a rule is not an object")
        known = {name: value for name, value in stored.items() if name in _KINDS}
        if isinstance(groups := known.get("groups"), list) and all(type(group) is int for group in groups):
            known["groups"] = tuple(groups)
        for name, value in known.items():
            if isinstance(value, bool) != (_KINDS[name] is bool) or not isinstance(value, _KINDS[name]):
                raise ValueError(f"{name} has the invalid value {value!r:.60}")
        if not known.keys() >= _REQUIRED:
            raise ValueError("a rule has no id, version or state")
        return cls(**known)

    def counted(self, counts: VersionCounts | None) -> RuleState:
        """The state with counts; disabled if the rule is disabled in a key group."""
        if counts is None or self.state in (PENDING, REFUSED):
            return self
        state = replace(self, matches=counts.matches, timed_out=counts.timed_out, errors=counts.errors)
        state = replace(state, shadow_matches=counts.shadow_matches, events=counts.events)
        state = replace(state, adopted=counts.adopted, not_adopted=counts.not_adopted)
        if counts.last_match is not None:
            state = replace(state, last_match=to_datetime(counts.last_match).isoformat())
        if counts.since < self.added or self.state in (KILLED, EXPIRED):
            return state  # it has begun again without partial matches, or has ended
        state = replace(state, partial_matches=max(counts.partial_matches, 0))
        if counts.disabled > 0:
            state = replace(state, state=DISABLED, disabled_groups=counts.disabled, reason=counts.error)
            state = replace(state, groups=tuple(counts.groups))
        return state


@dataclass(frozen=True, slots=True)
class LookupState:
    """The table of a lookup.

    :param version: the number of the set in which its rows were published
    :param rows: their number
    :param read_at: when the table was last found to be usable, or unchanged
    :param error: why it cannot be used now; the version stays in force
    """

    version: int = 0
    rows: int = 0
    read_at: str = ""
    error: str | None = None

    @classmethod
    def from_dict(cls, stored: Any) -> LookupState:
        """:raises ValueError: the value was not written as a dict of this class"""
        if not isinstance(stored, dict):
            raise ValueError("a lookup is not an object")
        state = cls(**{each.name: stored[each.name] for each in fields(cls) if each.name in stored})
        numbers = type(state.version) is int and type(state.rows) is int
        if not numbers or not isinstance(state.read_at, str) or not isinstance(state.error, str | None):
            raise ValueError(f"a lookup has an invalid value: {stored!r:.100}")
        return state


_REQUIRED = {"id", "version", "state"}
_KINDS: dict[str, type | tuple[type, ...]] = {
    **{each.name: type(each.default) for each in fields(RuleState)},
    "id": str,
    "version": (int, type(None)),
    "state": str,
    "reason": (str, type(None)),
}


@dataclass(slots=True)
class Status:
    """The status of the processors of a query and of their discovery.

    :param state: initializing; valid: the last poll succeeded; interrupted: it failed, and the last set stays in force;
        stale: there was no heartbeat for three times *heartbeat*, because the query was killed, hangs or cannot reach its
        store, or the last heartbeat is as far in the future, because clocks differ and it is meaningless; off: closed
    :param version: the number of the newest set
    :param processors: maps the ids of its processors to versions; a version with a timestamp may not be in force yet
    :param refused: maps names as in a kill list (ids; of shadows, ``id@version``) to reason and place, for discovered processors
        that cannot be used
    :param killed: maps ``id`` or ``id@version`` to the reason, for processors that a person has excluded
    :param error: the error of the last poll, if it failed
    :param since: when the state was entered (ISO 8601 in UTC, as all times here)
    :param last_poll: when a poll last succeeded
    :param alive: when the status was last written
    :param heartbeat: the maximum number of seconds until it is written again
    :param log: the last lines of the log ``asterism.rules.definition.processor``
    :param rules: the versions of processors that the query uses, will use or has refused, in the order of the set
    :param missed: the number of micro-batches that their counts do not include
    :param shadows: maps ids to the versions of their shadows, which are not among *processors*
    :param conditions: maps the names of the conditions that the query has registered to their arguments, such as
        ``limit: float``
    :param udfs: maps the names of the functions in Python that rules can call to their signatures, such as
        ``haversine(a, b): DOUBLE``
    :param lookups: the tables of lookups, by name
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
    rules: list[RuleState] = field(default_factory=list)
    missed: int = 0
    shadows: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    lookups: dict[str, LookupState] = field(default_factory=dict)
    udfs: dict[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["lookups"] = {name: asdict(lookup) for name, lookup in self.lookups.items()}
        return json.dumps(values | {"rules": [rule.to_dict() for rule in self.rules]}).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Status:
        """:raises ValueError: the value was not written by :meth:`to_bytes`"""
        stored = json.loads(value)
        if not isinstance(stored, dict):
            raise ValueError("it is not an object")
        stored.setdefault("last_poll", stored.get("looked", ""))  # the name in release 0.1
        status = cls()
        for each in fields(cls):
            if each.name not in stored:
                continue  # a field that earlier releases do not write
            given, kind = stored[each.name], type(getattr(status, each.name))
            good = isinstance(
                given, (str, type(None)) if each.name == "error" else (int, float) if kind is float else kind
            )
            if not good:
                raise ValueError(f"{each.name} has the invalid value {given!r:.60}")
            setattr(status, each.name, given)
        status.rules = list(map(RuleState.from_dict, status.rules))
        status.lookups = {str(name): LookupState.from_dict(lookup) for name, lookup in status.lookups.items()}
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

    def with_counts(self, counts: RuleCounts) -> Status:
        """The status with the counts of rules, and with what event time has reached. The previous version of a rule is in
        force until the time of its successor, and is left out afterwards.
        """
        reached = "" if counts.watermark is None else to_datetime(counts.watermark).isoformat()
        rules: list[RuleState] = []
        for rule in self.rules:
            if rule.state == WAITING and _is_reached(rule.begins, reached):
                rule = replace(rule, state=rule.active_state)
                if rules and (rules[-1].id, rules[-1].shadow) == (rule.id, rule.shadow):  # its predecessor
                    rules.pop()
            if rule.state == rule.active_state and _is_reached(rule.expires, reached):
                rule = replace(rule, state=EXPIRED)
            key = None if rule.version is None else (rule.id, rule.version)
            rules.append(rule.counted(counts.versions.get(key)) if key is not None else rule)
        return replace(self, rules=rules, missed=counts.missed)


def _is_reached(time: str, reached: str) -> bool:
    return bool(time and reached) and datetime.fromisoformat(time) <= datetime.fromisoformat(reached)


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
