"""A streaming source that carries control messages to every key group; today, the end of input.

Its offsets live in Spark's own offset log: the micro-batch that brings a message is fixed, the same after a failure, and the
same for all key groups. The first offset also records what the checkpoint was made with, so that a query that does not
fit is refused before it touches any state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from asterism.errors import StateError
from asterism.spark import CHUNKS, CONTROL, END_OF_INPUT, signals
from asterism.spark.partitioning import label

NAME = "asterism_control"
_NO_LIMIT = 2**31 - 1


class ControlSource(DataSource):
    """Options: ``keyGroups``, ``definition`` (what the query computes, as text), ``drain`` (send the end of input), ``timers``
    (there are some in processing time), ``signals`` (the folder where a query says that it ends the input of all its operators),
    ``zone`` (the session's time zone, where an expression asks for it).
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return CHUNKS

    def streamReader(self, schema: Any) -> SourceReader:
        key_groups, definition = int(self.options["keyGroups"]), self.options["definition"]
        folder, zone = self.options.get("signals"), self.options.get("zone")
        if self.options.get("drain", "false") == "true":
            return DrainReader(key_groups, definition, folder, zone)
        timers = self.options.get("timers", "false") == "true"
        return ControlReader(key_groups, definition, folder, zone, timers=timers)


class SourceReader(DataSourceStreamReader):
    """Offsets: ``messages``, how many were sent, ``starts``; and ``keyGroups``, ``definition`` and ``zone``, which stay."""

    def __init__(self, key_groups: int, definition: str, folder: str | None = None, zone: str | None = None) -> None:
        self.key_groups, self.definition, self.folder, self.zone = key_groups, definition, folder, zone
        if folder is not None:
            signals.announce(folder)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Not "all that is available": so that is what Spark asks for only where it plans one micro-batch for everything.
        return ReadMaxRows(_NO_LIMIT)

    def is_ending(self, limit: ReadLimit) -> bool:
        """Does this query, which another operator ends, plan its last micro-batch?"""
        return isinstance(limit, ReadAllAvailable) and self.folder is not None and signals.is_ending(self.folder)

    def initialOffset(self) -> dict[str, Any]:
        zone = {} if self.zone is None else {"zone": self.zone}
        return {"messages": 0, "keyGroups": self.key_groups, "definition": self.definition, **zone}

    def check(self, start: dict[str, Any]) -> None:
        if start["keyGroups"] != self.key_groups:
            raise StateError(
                f"the checkpoint was made with {start['keyGroups']} key groups, this query has {self.key_groups}",
                "Keys are spread over key groups for the life of a checkpoint.",
                f"set key_groups={start['keyGroups']}, or start with a new checkpoint location",
            )
        if start["definition"] != self.definition:
            raise StateError(
                "the checkpoint belongs to another query",
                "What must be the same: the pattern, its columns, outputs and semantics;\n"
                "or the operator's states, and the columns, keys and times of its inputs.",
                "start with a new checkpoint location, or run what the checkpoint was made with",
            )
        before = start.get("zone", self.zone)  # checkpoints of earlier releases do not tell
        if self.zone is not None and before != self.zone:
            raise StateError(
                f"the checkpoint was made in the time zone {before}, this session is in {self.zone}",
                "An expression asks for it, as hour(ts) or a time that is written without a zone do.",
                f'spark.conf.set("spark.sql.session.timeZone", "{before}"), or start with a new checkpoint location',
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(None)] if end["messages"] > start["messages"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, int, None, bytes]]:
        for group in range(self.key_groups):
            yield label(group), CONTROL, 0, None, END_OF_INPUT


class ControlReader(SourceReader, SupportsTriggerAvailableNow):
    """Says nothing, unless an operator behind this one ends the input.

    But Spark runs micro-batches without data only after one with data: where there are *timers* in processing time, a query that
    is started anew would let them wait until something comes. Its first micro-batch is this source's: ``starts`` counts them.
    """

    last: dict[str, Any] | None = None

    def __init__(
        self,
        key_groups: int,
        definition: str,
        folder: str | None = None,
        zone: str | None = None,
        *,
        timers: bool = False,
    ) -> None:
        super().__init__(key_groups, definition, folder, zone)
        self.timers = timers

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self.check(start)
        if self.last is None and self.is_ending(limit):
            self.last = start | {"messages": start["messages"] + 1}
        elif self.last is None and self.timers:
            self.last = start | {"starts": start.get("starts", 0) + 1}
        return start if self.last is None else self.last


class DrainReader(SourceReader):
    """Sends the end of input, once.

    It does not support the trigger *available now*, on purpose: Spark then takes everything that is available from all
    sources in one micro-batch, so that nothing can come after the end of input.
    """

    last: dict[str, Any] | None = None

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self.check(start)
        if self.last is None:
            self.last = start | {"messages": start["messages"] + 1}
        return self.last
