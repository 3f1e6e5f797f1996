"""The control source of a query with pattern processors. In addition to the control messages, it publishes rule sets.

The reader runs on Spark's driver, in a separate process, together with the coordinator. The number of a rule set is in the
offset. Therefore a set is delivered in the same micro-batch to all key groups, also after a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from pyspark import cloudpickle

from asterism.errors import StateError
from asterism.spark.host.control_source import ControlSource, DrainReader, SourceReader, renamed
from asterism.spark.host.partitioning import label
from asterism.spark.host.versions import DataSource, InputPartition, SupportsTriggerAvailableNow
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from asterism.rules.binding.binding import ProcessorCompiler
    from asterism.rules.publishing.coordinator import Coordinator
    from asterism.rules.publishing.lookup_watch import DefinedLookup
    from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
    from asterism.rules.sets.set_store import FolderStore


NAME = "asterism_processors"
MAX_ERROR = 300  # characters of an error in an offset
_RESTORE = "restore the folder that belongs to the checkpoint, or use a new checkpoint location"
PROCESSORS = "processors"
Row = tuple[int, str, int, None, bytes]


@dataclass(frozen=True, slots=True)
class Payload:
    """The configuration of the reader. Only the user's own process creates it."""

    factory: PatternProcessorDiscovererFactory
    compiler: ProcessorCompiler
    store: FolderStore
    without: frozenset[str] = frozenset()
    lookups: tuple[DefinedLookup, ...] = ()

    def source(self) -> type[DataSource]:
        """A source with this payload.

        The payload is an attribute of the class, which is transferred as opaque bytes. Options are not suitable: they appear
        in query plans, and the factory may contain a password.
        """
        pickled = cloudpickle.dumps(self)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        return renamed(RuleSource, f"{NAME}_{uuid4().hex}", payload=pickled)


class RuleSource(ControlSource):
    """A control source with the same options. Its *payload* is a pickled :class:`Payload`."""

    payload: ClassVar[bytes]

    def reader_of_stream(self) -> SourceReader:
        return (ProcessorDrainReader if self.drains else ProcessorReader)(self.options, self.payload)


class _Announces(SourceReader):
    """Publishes rule sets. Offsets also have ``set``, the number of the newest set; ``digest``, which identifies its content;
    ``ends``, the number of ends of input before it was published; and ``discovery``, the status of the discovery at that time.
    The status is therefore in the query's progress, and a change of it starts a micro-batch, even an empty one.
    """

    def __init__(self, options: Mapping[str, str], payload: bytes) -> None:
        super().__init__(options)
        self.payload = payload
        self._coordinator: Coordinator | None = None
        self._is_continued = False

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_coordinator": None, "payload": b""}

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, started at the first access and stopped with the query."""
        if self._coordinator is None:
            self.protect()
            from asterism.files.file_systems import use_settings
            from asterism.rules.publishing.coordinator import Coordinator

            payload: Payload = cloudpickle.loads(self.payload)
            use_settings(payload.store.hadoop or {})
            _log_updates(payload.store.location)
            self.stop_on_signal()
            coordinator = Coordinator(payload.compiler, payload.store, payload.without, payload.lookups)
            coordinator.start(payload.factory)
            self._coordinator = coordinator
        return self._coordinator

    def initialOffset(self) -> dict[str, Any]:
        return {**super().initialOffset(), "set": 0}

    def check(self, start: dict[str, Any]) -> dict[str, Any]:
        start = super().check(start)
        store = self.coordinator.store.location
        if start["set"] > self.coordinator.version:
            raise StateError(
                f"the checkpoint has {start['set']} sets of pattern processors, but their folder only {self.coordinator.version}",
                f"It is {store}.",
                _RESTORE,
            )
        # Offsets of earlier releases have no digest.
        if "digest" in start and not self._is_continued and start["digest"] != self._digest(start["set"]):
            raise StateError(
                f"set {start['set']} of pattern processors is not the one that the checkpoint has used",
                f"The folder of the sets was replaced by an older one, or by that of another query: {store}.",
                _RESTORE,
            )
        self._is_continued = True
        return start

    def announced(self, offset: dict[str, Any]) -> dict[str, Any]:
        self.coordinator.keep_watching()
        status = self.coordinator.status
        announced = status.state if status.error is None else f"{status.state}: {one_line(status.error, MAX_ERROR)}"
        newest = self.coordinator.version
        if newest and newest >= offset["set"]:
            offset = offset | {"set": newest, "digest": self._digest(newest)}
        return offset | {"ends": offset["messages"], "discovery": announced}

    def _digest(self, number: int) -> str:
        return self.coordinator.digest(number).hex()[:32]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts = list(super().partitions(start, end))
        self.coordinator.planned(end["set"], start["set"])
        # The end of input also deletes the set from the state of the key groups, so that a later run must publish it again.
        if end["set"] > start["set"] or end.get("ends", 0) > start.get("ends", 0):
            # Only the newest set is sent: sets that were replaced between two micro-batches never take effect.
            number = end["set"]
            parts.append(InputPartition((self.coordinator.store, number, self.coordinator.digest(number))))
        return parts

    def read(self, partition: InputPartition) -> Iterator[Row]:
        if isinstance(partition.value, bytes):
            yield from super().read(partition)
            return
        from asterism.operators.state.state_store import batch_to_bytes
        from asterism.rules.matching.state_pages import prepared_set

        store, number, digest = partition.value
        chunk = batch_to_bytes(prepared_set(store.stored(number, digest)))
        for group in range(self.key_groups):
            yield label(group), PROCESSORS, number, None, chunk

    def commit(self, end: dict[str, Any]) -> None:
        self.coordinator.committed(end["set"])

    def end(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
        super().end()


class ProcessorReader(_Announces, SupportsTriggerAvailableNow):
    """Publishes sets as they are discovered; with the trigger *available now*, only the newest set at the start."""

    pinned: dict[str, Any] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self.pinned = self.announced({"set": 0, "messages": 0})

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        start = self.check(start)
        if self.last is not None:
            return self.last
        if self.is_ending(limit):
            return self.ended(self.announced(start))
        if self.timers and self.started is None:
            return self._with_set(self.with_start(start))
        return self._with_set(start) if self.pinned is None else self.drained(self._with_set(start))

    def _with_set(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after *start*, with the set that is published."""
        if self.pinned is None:
            return self.announced(start)
        number, messages = max(start["set"], self.pinned["set"]), start["messages"]
        return start | self.pinned | {"set": number, "messages": messages, "ends": messages}


class ProcessorDrainReader(_Announces, DrainReader):
    """Publishes the newest set and the end of input, once."""


def _log_updates(store: str) -> None:
    """Log to standard error, which is that of the driver: in this process of Spark's, logging is not configured. A driver may
    have several queries, so each line names the folder of the sets.
    """
    log = logging.getLogger("asterism")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(store)s: %(message)s", defaults={"store": store})
        )
        log.addHandler(handler)
        log.setLevel(logging.INFO)
