"""Pattern processors that a person has excluded from a query: by ``id``, which means all versions, or by ``id@version``.

An id may contain ``@``. A name that ends in ``@`` and a number always means that version, so an id that itself ends in this
way, or in ``@``, is written with another ``@`` at the end: ``victim@3`` is version 3 of ``victim``, and ``victim@3@`` is all
versions of ``victim@3``.

A rule that fails can stop the query, and its set is part of the micro-batch that is then repeated, so removing the rule at
its source does not help. Adding its name to ``killed.json`` in the query's store does, and so does ``run(...,
without=[name])``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from asterism.errors import PatternProcessorError, RuleNotFoundError, StreamDefinitionError
from asterism.files.durable_files import alone_in
from asterism.rules.definition.processor import MAX_ID, MAX_PROCESSORS, PatternProcessor, is_name

MAX_REASON = 1000
"""Maximum length in characters."""
MAX_NAME = MAX_ID + len("@2147483647")
ALL_SETS = 2**63 - 1
"""In place of the number of the last set: every set."""
_LIKE_A_VERSION = re.compile(r"@[0-9]*\Z")
NO_REASON = "no reason was given"
WITHOUT = "excluded by run(without=...)"


@dataclass(frozen=True, slots=True)
class Killed:
    """*since*: ISO 8601, UTC. *by*: who did it; None: unknown."""

    reason: str
    since: str
    by: str | None = None


KillList = dict[str, Killed]
"""Maps names to the reason and time."""


class KillListStore(Protocol):
    def killed(self) -> KillList: ...

    def write_killed(self, killed: KillList) -> None: ...

    def local_folder(self) -> str | None: ...


def is_named(processor: PatternProcessor, names: Collection[str]) -> bool:
    """Whether *names* contain the id of the processor, or its id and version.

    >>> from asterism import Pattern
    >>> [is_named(PatternProcessor("a", 2, Pattern.begin("x")), [name]) for name in ("a", "a@2", "a@1")]
    [True, True, False]
    """
    return bool(names) and not names_of(processor).isdisjoint(names)


def names_of(processor: PatternProcessor) -> frozenset[str]:
    """The names by which a kill list can refer to a processor.

    >>> from asterism import Pattern
    >>> sorted(names_of(PatternProcessor("a@3", 2, Pattern.begin("x"))))
    ['a@3@', 'a@3@2']
    """
    id = processor.id
    return frozenset([name_for(id, processor.version), f"{id}@", name_for(id)])


def name_for(id: str, version: int | None = None) -> str:
    """The name of a version of a processor; None: that of all its versions.

    >>> name_for("a"), name_for("a", 2), name_for("a@3"), name_for("a@3", 2)
    ('a', 'a@2', 'a@3@', 'a@3@2')
    """
    if version is not None:
        return f"{id}@{version}"
    return f"{id}@" if _LIKE_A_VERSION.search(id) else id


def is_name_of(name: str, id: str) -> bool:
    """Whether *name* is that of a version of the processor *id*, or of all of them.

    >>> [is_name_of(name, "a") for name in ("a", "a@", "a@2", "a@3@", "b")]
    [True, True, True, False, False]
    """
    head, _, version = name.rpartition("@")
    return name == name_for(id) or (head == id and (version == "" or version.isdecimal()))


def checked_names(names: Iterable[str]) -> frozenset[str]:
    """:raises StreamDefinitionError: these are not names of pattern processors"""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise StreamDefinitionError(
            f"without must be a list of names, not {names!r:.60}", hint='without=["id"], or without=["id@version"]'
        )
    listed = list(names)
    wrong = [name for name in listed if not _is_name(name)]
    if wrong:
        raise StreamDefinitionError(
            f"this is not the name of a pattern processor: {wrong[0]!r:.60}", hint='"id", or "id@version"'
        )
    return frozenset(listed)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def to_bytes(killed: Mapping[str, Killed]) -> bytes:
    document = {
        "killed": {
            name: {field: value for field, value in asdict(details).items() if value is not None}
            for name, details in killed.items()
        }
    }
    # JSON can represent an unpaired surrogate, which a shell creates for a byte that is not UTF-8, but UTF-8 cannot.
    return json.dumps(document, ensure_ascii=False, indent=2).encode(errors="backslashreplace") + b"\n"


def from_bytes(value: bytes) -> KillList:
    """:raises ValueError: the value was not written by :func:`to_bytes`"""
    stored = json.loads(value)
    if not isinstance(stored, dict) or not isinstance(stored.get("killed"), dict):
        raise ValueError('it has no object "killed"')
    if len(stored["killed"]) > MAX_PROCESSORS:
        raise ValueError(f"it has more than {MAX_PROCESSORS:,} names")
    killed = {}
    for name, details in stored["killed"].items():
        match details:
            case {"reason": str() as reason, "since": str() as since} if _is_name(name):
                by = details.get("by")
                killed[name] = Killed(reason[:MAX_REASON], since, by if is_name(by) else None)
            case _:
                raise ValueError(f"not a name with a reason: {name!r:.60}")
    return killed


def kill(store: KillListStore, names: Iterable[str], reason: str | None = None, *, by: str | None = None) -> None:
    """Exclude processors from the query that has *store*: immediately if it runs, otherwise from its next start.

    :param by: who does it, if it is known
    :raises StreamDefinitionError: these are not names
    :raises PatternProcessorError: the list would be too long, or it cannot be written
    """
    given = (reason or NO_REASON)[:MAX_REASON]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = dict.fromkeys(sorted(checked_names(names)), Killed(given, now, by))
    _change(store, lambda killed: killed | new)


def unkill(store: KillListStore, names: Iterable[str]) -> None:
    """Allow processors again, from their next version on.

    :raises PatternProcessorError: a name is not on the list, or the list cannot be written
    """
    gone = checked_names(names)

    def without(killed: KillList) -> KillList:
        unknown = sorted(gone - killed.keys())
        if unknown:
            listed = ", ".join(sorted(killed)) or "nothing"
            raise RuleNotFoundError(f"{unknown[0]!r:.220} is not killed", f"Killed: {listed:.1000}")
        return {name: details for name, details in killed.items() if name not in gone}

    _change(store, without)


def _change(store: KillListStore, change: Callable[[KillList], KillList]) -> None:
    def do() -> None:
        killed = change(store.killed())
        if len(killed) > MAX_PROCESSORS:
            raise PatternProcessorError(f"more than {MAX_PROCESSORS:,} names would be killed")
        store.write_killed(killed)

    folder = store.local_folder()
    if folder is None:
        do()
    else:
        with alone_in(Path(folder)):
            do()
