"""What the discoverers that ask again and again have in common."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from asterism.rules.interfaces import Discovered, PeriodicPatternProcessorDiscoverer, processor_from, processors_from


class Items:
    """Makes processors of the items of one document, again and again: those that stay as they are are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str], Discovered | None] = {}
        """By a digest of the item: what YAML repeats with aliases is there once, and would be long as text."""

    def processors(self, items: Sequence[Any], place: str) -> list[Discovered]:
        now: dict[tuple[bytes, str], Discovered | None] = {}

        def make(item: Any, name: str, place: str | None) -> Discovered | None:
            key = (hashlib.sha256(json.dumps(item).encode()).digest(), name)
            now[key] = self._known[key] if key in self._known else processor_from(item, name, place)
            return now[key]

        found = processors_from(items, place, make)
        self._known = now
        return found


class PollingDiscoverer(PeriodicPatternProcessorDiscoverer):
    """Asks one question: is there something new, and what?"""

    _latest: Sequence[Discovered] = ()

    @abstractmethod
    def poll(self) -> Sequence[Discovered] | None:
        """All processors; None, if nothing has changed since they were last returned."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        self.check_pattern_processor_update()
        return self._latest

    def check_pattern_processor_update(self) -> bool:
        found = self.poll()
        if found is None:
            return False
        self._latest = found
        return True

    def latest_pattern_processors(self) -> Sequence[Discovered]:
        return self._latest
