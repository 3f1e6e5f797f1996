"""What the discoverers that ask again and again have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from asterism.processors import Discovered, PeriodicPatternProcessorDiscoverer


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
