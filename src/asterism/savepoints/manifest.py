"""The manifest of a savepoint: a JSON document with what belongs to no key, and where the query was."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asterism.errors import NewerStateError, StateError
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.key_groups import Summary

FORMAT = 1
"""Rises when a savepoint of this release could not be restored by an earlier one."""
MANIFEST = "manifest.json"
SEAM = "history.json"
"""The file of a savepoint that was made from a table: ``until``, in microseconds."""
_NO_SAVEPOINT = "name the folder that `asterism savepoint create` has written"


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """Where the query was.

    :ivar query_id: Spark's id of the query
    :ivar batch_id: its last completed micro-batch
    :ivar batches: how many micro-batches its sinks have seen before the first of its checkpoint, because it was restored itself
    :ivar offsets, commit: the files of Spark's offset log and commit log for this micro-batch
    :ivar planned: the offset log of the next micro-batch, if it was planned: it is repeated as it was
    """

    query_id: str
    batch_id: int
    batches: int
    offsets: str
    commit: str
    planned: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    :ivar spark, asterism: the versions that wrote it
    :ivar created: ISO 8601, UTC
    :ivar time_mode: Spark's name of the time mode of the operator
    :ivar tasks: the number of stateful tasks
    :ivar summary: None: there was no state, as after a drain
    :ivar counts: the number of keys, and of the events of each input that wait
    """

    asterism: str
    spark: str
    created: str
    position: QueryPosition
    time_mode: str
    key_groups: int
    tasks: int
    summary: Summary | None
    counts: Mapping[str, int]

    def to_json(self) -> str:
        position = self.position
        document: dict[str, Any] = {
            "format": FORMAT,
            "asterism": self.asterism,
            "spark": self.spark,
            "created": self.created,
            "query": {
                "id": position.query_id,
                "batch_id": position.batch_id,
                "batches": position.batches,
                "offsets": position.offsets.splitlines(),
                "commit": position.commit.splitlines(),
                "planned": None if position.planned is None else position.planned.splitlines(),
            },
            "time_mode": self.time_mode,
            "key_groups": self.key_groups,
            "tasks": self.tasks,
            "counts": dict(self.counts),
            "operator": None,
        }
        if self.summary is not None:
            definition = self.summary.definition
            document["operator"] = {
                "kind": definition.kind.value,
                "definition": base64.b64encode(definition.to_bytes()).decode(),
                **self.summary.to_dict(),
            }
        return json.dumps(document, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, place: str) -> Manifest:
        """
        :param place: the savepoint, for messages
        :raises StateError: it is not a manifest, or that of a later release
        """
        try:
            document = json.loads(text)
            if document["format"] > FORMAT:
                raise NewerStateError(
                    f"the savepoint has the format {document['format']}, but this release reads only up to {FORMAT}",
                    place,
                    f"restore it with Asterism {document.get('asterism')} or later",
                )
            query, operator = document["query"], document["operator"]
            summary = None
            if operator is not None:
                definition = StateDefinition.from_bytes(base64.b64decode(operator["definition"]))
                summary = Summary.from_dict(definition, operator)
            planned = None if query["planned"] is None else "\n".join(query["planned"])
            offsets, commit = ("\n".join(query[name]) for name in ("offsets", "commit"))
            position = QueryPosition(
                query["id"], int(query["batch_id"]), int(query["batches"]), offsets, commit, planned
            )
            return cls(
                document["asterism"],
                document["spark"],
                document["created"],
                position,
                document["time_mode"],
                int(document["key_groups"]),
                int(document["tasks"]),
                summary,
                document["counts"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(f"there is no savepoint in {place}", f"{MANIFEST}: {error}", _NO_SAVEPOINT) from None


def no_savepoint(place: str) -> StateError:
    return StateError(f"there is no savepoint in {place}", f"It has no {MANIFEST}.", _NO_SAVEPOINT)
