"""Base classes of polling discoverers."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from asterism.rules.sets.interfaces import (
    Discovered,
    PeriodicPatternProcessorDiscoverer,
    processor_from,
    processors_from,
)


class Items:
    """Creates processors from the items of one document, repeatedly; unchanged items are read only once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str], Discovered | None] = {}
        """By a digest of the item: a YAML value that is repeated with aliases is stored once, and would be long as text."""
        self._same: dict[int, tuple[Any, tuple[bytes, str]]] = {}
        """Items and their keys, by their identity."""

    def processors(
        self, items: Sequence[Any], place: str | None, parameters: Sequence[Mapping[str, str | None]] | None = None
    ) -> list[Discovered]:
        now: dict[tuple[bytes, str], Discovered | None] = {}
        same: dict[int, tuple[Any, tuple[bytes, str]]] = {}

        def make(item: Any, name: str, place: str | None) -> Discovered | None:
            before, key = self._same.get(id(item), (None, None))
            if before is not item or key is None or key[1] != name:
                key = (hashlib.sha256(json.dumps(item).encode()).digest(), name)
            same[id(item)] = item, key
            now[key] = self._known[key] if key in self._known else processor_from(item, name, place)
            return now[key]

        discovered = processors_from(items, place, make, parameters)
        self._known, self._same = now, same
        return discovered


class PollingDiscoverer(PeriodicPatternProcessorDiscoverer):
    """A discoverer with a single method, which returns the processors if they have changed."""

    _latest: Sequence[Discovered] = ()

    @abstractmethod
    def poll(self) -> Sequence[Discovered] | None:
        """All processors, or None if nothing has changed since they were last returned."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        self.check_pattern_processor_update()
        return self._latest

    def check_pattern_processor_update(self) -> bool:
        discovered = self.poll()
        if discovered is None:
            return False
        self._latest = discovered
        return True

    def latest_pattern_processors(self) -> Sequence[Discovered]:
        return self._latest
