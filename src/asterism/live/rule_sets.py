"""The rules of a live engine: their discovery, and the sets that calls get, as Spark's driver does for a query.

A set takes effect at the beginning of a call, for all rules at once. Its number is in the snapshot.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from asterism.errors import AsterismError, StateError
from asterism.live.snapshots import PAUSE
from asterism.operators.counted import CallMetrics, Counted
from asterism.operators.operator import Arrival
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.matching.operator import PROCESSORS
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.rule_counts import FAMILY, LAST_MATCH, WATERMARK
from asterism.rules.sets.set_store import FolderStore

_log = logging.getLogger("asterism")
_QUERY = "live"
"""The id of a query in the counts of rules whose snapshots have none: an earlier release has written them."""
_OF_RULES = f"{FAMILY}/"
_TIMES = (WATERMARK, f'{FAMILY}/["{LAST_MATCH}"')
"""The beginnings of the names of metrics that are no counts, but times."""
_PART = 100
"""The number of counts that are added between two pauses."""
_RESTORE = "restore the whole folder, or open another one"


class LiveRuleSets:
    """Discovers rules, and gives their sets to the calls of a live engine.

    :param details: what the snapshot has kept
    :raises PatternProcessorError: there are no rules, and none of an earlier run
    :raises StateError: the folder of the sets is not that of the snapshot
    """

    def __init__(
        self,
        compiler: ProcessorCompiler,
        store: FolderStore,
        factory: PatternProcessorDiscovererFactory,
        *,
        without: frozenset[str],
        lookups: tuple[DefinedLookup, ...],
        details: Mapping[str, Any],
    ) -> None:
        self._store = store
        compiler.keeps_tried = True
        self._coordinator = Coordinator(compiler, store, without, lookups)
        self._counts = store.counts()
        self._metrics: dict[str, int] = {}
        self._counted: dict[int, Counted] = {}
        """Sums of what has the same names, by the identities of these."""
        # The counts belong to the state: those of another folder with the same store do not go on.
        self._query = details.get("query", _QUERY) if details else uuid.uuid4().hex
        self._coordinator.start(factory)
        try:
            self._check(details)
        except BaseException:
            self._coordinator.close()
            raise

    def _check(self, details: Mapping[str, Any]) -> None:
        number = details.get("set", 0)
        if number > self._coordinator.version:
            raise StateError(
                f"the snapshot has {number} sets of pattern processors, but their folder only {self._coordinator.version}",
                f"It is {self._store.location}.",
                _RESTORE,
            )
        if number and number in self._store.numbers() and details["digest"] != self._coordinator.digest(number).hex():
            raise StateError(
                f"set {number} of pattern processors is not the one that the snapshot has used",
                f"The folder of the sets was replaced: {self._store.location}.",
                _RESTORE,
            )

    def begin(self, details: Mapping[str, Any]) -> tuple[list[Arrival], Mapping[str, Any]]:
        """The newest set, if the state does not have it yet."""
        self._coordinator.keep_watching()
        number, before = self._coordinator.version, details.get("set", 0)
        details = {**details, "query": self._query}
        if number <= before:
            return [], details
        self._coordinator.planned(number, before)
        digest = self._coordinator.digest(number)
        arrival = Arrival(PROCESSORS, prepared_set(self._store.stored(number, digest)))
        return [arrival], {**details, "set": number, "digest": digest.hex()}

    def succeeded(self, metrics: Mapping[str, int]) -> None:
        sums, of_call = self._metrics, CallMetrics.of(metrics)
        for names, numbers, counts in of_call.counted:
            if id(names) not in self._counted:
                every = np.arange(len(names))
                self._counted[id(names)] = Counted(names, every, np.zeros_like(every))
            self._counted[id(names)].counts[numbers] += counts
        for name, value in of_call.named.items():
            if name.startswith(_TIMES):
                sums[name] = max(value, sums.get(name, value))
            elif name.startswith(_OF_RULES):
                sums[name] = sums.get(name, 0) + value

    def saving(self, details: Mapping[str, Any], number: int) -> Callable[[], None]:
        counted = [
            Counted(names, np.flatnonzero(counts), counts[counts != 0]) for names, _, counts in self._counted.values()
        ]
        metrics = CallMetrics(self._metrics, counted)
        self._metrics, self._counted = {}, {}

        def saved() -> None:
            try:
                if self._counts.add(self._query, number, _in_parts(metrics)):
                    sets = self._store.retained()
                    self._counts.forget({(rule.id, rule.version) for each in sets for rule in each.processors})
                    self._store.write_counts(self._counts)
            except (OSError, AsterismError) as error:  # they can be counted again
                _log.warning("the counts of pattern processors cannot be written: %s", error)
            if "set" in details:
                self._coordinator.committed(details["set"])

        return saved

    def status(self) -> Status:
        """The status of the rules and of their discovery."""
        return self._coordinator.current_status()

    def close(self) -> None:
        self._coordinator.close()


def _in_parts(metrics: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Metrics in parts, with a pause after each, as those of a snapshot."""
    items = iter(metrics.items())
    while part := dict(islice(items, _PART)):
        yield part
        time.sleep(PAUSE)
