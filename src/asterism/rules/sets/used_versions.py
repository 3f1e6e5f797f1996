"""Digests of all versions that were ever accepted. A version keeps its definition for the lifetime of a store.

A match contains id and version, and its ``match_id`` depends on them. Neither would identify a processor if a version could
be reused with another definition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from asterism.errors import PatternProcessorError, VersionConflictError
from asterism.rules.definition.processor import PatternProcessor, canonical_text, defining

MAX_VERSIONS = 100_000
"""The maximum number of remembered versions of all ids. Those accepted first are removed first, except those in use."""
MAX_RECENT = 500
"""The maximum number of versions in the file of recent ones, which is written with each set."""
LOST = "restore or remove it; if it is removed, versions that are no longer in use can return with another definition"
"""The hint for a file that cannot be read."""
_LAYOUT = 1
Versions = Mapping[tuple[str, int], str]


class UsedVersions:
    """A digest of the processor for each id and version, in the order of acceptance.

    The versions are in two files, so that the cost of a new version does not grow with the number of versions before it: the
    *recent* ones, which are written each time, and all *earlier* ones, which are written when there are too many recent ones.
    A version may be in both, if a process ended between the two.
    """

    def __init__(self, earlier: Versions | None = None, recent: Versions | None = None) -> None:
        self._earlier: Versions = {} if earlier is None else earlier
        self._recent: Versions = {} if recent is None else recent

    def __len__(self) -> int:
        return len(self._earlier) + sum(key not in self._earlier for key in self._recent)

    def _digest_of(self, key: tuple[str, int]) -> str | None:
        return self._recent.get(key) or self._earlier.get(key)

    def check(self, new: PatternProcessor) -> PatternProcessorError | None:
        """Return the error if the version of *new* was used for another definition."""
        known = self._digest_of((new.id, new.version))
        # The earlier text is written only if the digest differs, because it is not cached.
        if known is None or known == _digest(new.definition) or known == _digest(_earlier_text_of(new)):
            return None
        return VersionConflictError(
            f"version {new.version} of {new.id!r} already had another definition",
            "The definition of a version cannot change, even if the version was removed or replaced.",
            f"use a version that has not been used: {self._next(new.id)}",
        )

    def free_version(self, new: PatternProcessor) -> int:
        """The version of *new*, or the next one that has not been used if it was used for another definition."""
        return new.version if self.check(new) is None else self._next(new.id)

    def _next(self, id: str) -> int:
        return max(used for name, used in chain(self._earlier, self._recent) if name == id) + 1

    def with_(self, accepted: Iterable[PatternProcessor], in_use: Iterable[tuple[str, Any]] = ()) -> UsedVersions:
        """Add *accepted*; return self if all of them are known.

        :param in_use: id and version of other processors that must not be removed; read only if there are too many
        """
        keys = {(processor.id, processor.version): processor for processor in accepted}
        new = {key: _digest(processor.definition) for key, processor in keys.items() if self._digest_of(key) is None}
        if not new:
            return self
        recent = {**self._recent, **new}
        if len(recent) <= MAX_RECENT:
            return UsedVersions(self._earlier, recent)
        versions = {**self._earlier, **recent}
        too_many = len(versions) - MAX_VERSIONS
        if too_many > 0:
            kept = keys.keys() | set(in_use)
            for key in [key for key in versions if key not in kept][:too_many]:
                del versions[key]
        return UsedVersions(versions)

    def write(
        self, stored: UsedVersions | None, earlier: Callable[[bytes], None], recent: Callable[[bytes], None]
    ) -> None:
        """:param stored: the versions on disk; None: none. *earlier* and *recent* write one of the two files."""
        if stored is None or self._earlier is not stored._earlier:
            earlier(_to_bytes(self._earlier))
        recent(_to_bytes(self._recent))


def _to_bytes(versions: Versions) -> bytes:
    rows = [[id, version, digest] for (id, version), digest in versions.items()]
    return json.dumps({"layout": _LAYOUT, "versions": rows}, ensure_ascii=False, separators=(",", ":")).encode()


def versions_from_bytes(value: bytes) -> Versions:
    """:raises ValueError: the value was not written by :class:`UsedVersions`"""
    stored = json.loads(value)
    if not isinstance(stored, dict) or stored.get("layout") != _LAYOUT or not isinstance(stored.get("versions"), list):
        raise ValueError(f"not versions of layout {_LAYOUT}")
    digests = {}
    for row in stored["versions"]:
        match row:
            case [str() as id, int() as version, str() as digest]:
                digests[id, version] = digest
            case _:
                raise ValueError(f"not a version: {row!r:.60}")
    return digests


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _earlier_text_of(processor: PatternProcessor) -> str:
    """The text that earlier releases wrote: the timestamp keeps its time zone."""
    json_form = defining(processor).to_dict()
    if processor.timestamp is not None:
        json_form["timestamp"] = processor.timestamp.isoformat()
    return canonical_text(json_form)
