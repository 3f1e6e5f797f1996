"""A streaming source that carries control messages to every key group; today, the end of input.

Its offsets live in Spark's own offset log: the micro-batch that brings a message is fixed, the same after a failure, and the
same for all key groups. The first offset also records what the checkpoint was made with, so that a query that does not
fit is refused before it touches any state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from asterism.errors import StateError
from asterism.spark import CHUNKS, CONTROL, END_OF_INPUT
from asterism.spark.key_groups import label

NAME = "asterism_control"


class ControlSource(DataSource):
    """Options: ``keyGroups``, ``definition`` (what the query computes, as text), ``drain`` (send the end of input), ``timers``
    (there are some in processing time).
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return CHUNKS

    def streamReader(self, schema: Any) -> Reader:
        key_groups, definition = int(self.options["keyGroups"]), self.options["definition"]
        if self.options.get("drain", "false") == "true":
            return DrainReader(key_groups, definition)
        return ControlReader(key_groups, definition, timers=self.options.get("timers", "false") == "true")


class Reader(DataSourceStreamReader):
    """Offsets: ``messages``, how many were sent, ``starts``, and ``keyGroups`` and ``definition``, which never change."""

    def __init__(self, key_groups: int, definition: str) -> None:
        self.key_groups, self.definition = key_groups, definition

    def initialOffset(self) -> dict[str, Any]:
        return {"messages": 0, "keyGroups": self.key_groups, "definition": self.definition}

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

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(None)] if end["messages"] > start["messages"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, int, None, bytes]]:
        for group in range(self.key_groups):
            yield label(group), CONTROL, 0, None, END_OF_INPUT


class ControlReader(Reader, SupportsTriggerAvailableNow):
    """Says nothing.

    But Spark runs micro-batches without data only after one with data: where there are *timers* in processing time, a query that
    is started anew would let them wait until something comes. Its first micro-batch is this source's: ``starts`` counts them.
    """

    last: dict[str, Any] | None = None

    def __init__(self, key_groups: int, definition: str, *, timers: bool = False) -> None:
        super().__init__(key_groups, definition)
        self.timers = timers

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self.check(start)
        if not self.timers:
            return start
        if self.last is None:
            self.last = start | {"starts": start.get("starts", 0) + 1}
        return self.last


class DrainReader(Reader):
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
