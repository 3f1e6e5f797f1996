"""The manifest of a savepoint: a JSON document with what belongs to no key, and where the query was."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from asterism.columns.time import BEFORE_TIME
from asterism.errors import AsterismError, NewerStateError, StateError
from asterism.operators.key_group import MAX_KEY_GROUPS
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.file_sums import FileSums, sums_from_json, sums_to_json
from asterism.savepoints.key_groups import Summary
from asterism.savepoints.offset_log import watermark_in, with_key_groups

FORMAT = 2
"""Rises when a savepoint of this release could not be restored by an earlier one."""
_ONE_OPERATOR = 1
"""The format of the savepoint of a query with one operator, which earlier releases restore."""
MANIFEST = "manifest.json"
SEAM = "history.json"
"""The file of a savepoint that was made from a table, or by a live engine: see :class:`StoredSeam`."""
SOURCES = "sources"
"""The folder of what sources keep in a checkpoint, in it and in its savepoints."""
INCOMPLETE = "incomplete.json"
"""The file of a folder in which a savepoint is being written, or was not written to its end."""
ROWS = "keys"
"""The folder of the state by key. Those of waiting events and broadcast state have the names of inputs and states in them."""
MAX_SIZE = 2**26
"""The maximum size of a manifest and of what is in it, in bytes. The positions of sources are most of it."""
_MAX_TASKS = 2**20
_MAX_NUMBER = 2**62
_FOLDER, _TABLE = re.compile(r"operator-[1-9]\d{0,3}"), re.compile(r"keys|(waiting|broadcast)_[A-Za-z0-9_]+")
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
class UpstreamOperator:
    """An operator before the last one of a query.

    :ivar folder: that of its tables in the savepoint
    :ivar time_mode, key_groups, summary, counts: as in :class:`Manifest`
    """

    folder: str
    time_mode: str
    key_groups: int
    summary: Summary | None
    counts: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "time_mode": self.time_mode,
            "key_groups": self.key_groups,
            "counts": dict(self.counts),
            "operator": _operator_to_dict(self.summary),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> UpstreamOperator:
        return cls(
            _matching(_FOLDER, "folder", document["folder"]),
            _text("time_mode", document["time_mode"]),
            _number("key_groups", document["key_groups"], 1, MAX_KEY_GROUPS),
            _summary_of(document["operator"]),
            _counts(document["counts"]),
        )


def _operator_to_dict(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    definition = summary.definition
    encoded = base64.b64encode(definition.to_bytes()).decode()
    return {"kind": definition.kind.value, "definition": encoded, **summary.to_dict()}


def _summary_of(operator: Mapping[str, Any] | None) -> Summary | None:
    if operator is None:
        return None
    return Summary.from_dict(StateDefinition.from_bytes(base64.b64decode(operator["definition"])), operator)


def _number(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.40}, not an integer from {least:,} to {most:,}")
    return value


def _text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{name} is {value!r:.40}, not a string")
    return value


def _matching(pattern: re.Pattern[str], name: str, value: Any) -> str:
    if not pattern.fullmatch(_text(name, value)):
        raise ValueError(f"{name} is {value!r:.60}, which create does not write")
    return value  # type: ignore[no-any-return]


def _counts(counts: Any) -> dict[str, int]:
    """How many rows the tables have. Their names are those of folders, so they must not lead to another place."""
    return {
        _matching(_TABLE, "counts", name): _number(f"counts of {name}", count, 0, _MAX_NUMBER)
        for name, count in dict(counts).items()
    }


def _lines(name: str, lines: Any) -> str:
    return "\n".join(_text(name, line) for line in list(lines))


def _position_of(query: Mapping[str, Any]) -> QueryPosition:
    """:raises ValueError: it is no position, or the logs of Spark in it are not those of a known version"""
    planned = None if query["planned"] is None else _lines("planned", query["planned"])
    offsets, commit = (_lines(name, query[name]) for name in ("offsets", "commit"))
    try:
        watermark_in(commit)
        for log in (offsets, planned):
            if log:
                with_key_groups(log, 1)
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the logs of Spark cannot be read: {error}") from None
    return QueryPosition(
        _text("id", query["id"]),
        _number("batch_id", query["batch_id"], -1, _MAX_NUMBER),
        _number("batches", query["batches"], 0, _MAX_NUMBER),
        offsets,
        commit,
        planned,
    )


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    :ivar spark, asterism: the versions that wrote it
    :ivar created: ISO 8601, UTC
    :ivar time_mode: Spark's name of the time mode of the operator
    :ivar tasks: the number of stateful tasks
    :ivar summary: None: there was no state, as after a drain
    :ivar counts: the number of keys, and of the events of each input that wait
    :ivar upstream: the operators before the last one, in the order of Spark's numbers, which begin at the last one
    :ivar files: the sizes and checksums of the other files; none of an earlier release
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
    upstream: Sequence[UpstreamOperator] = ()
    files: FileSums = field(default_factory=dict)

    def watermark_of(self, summary: Summary) -> int:
        """The event time of an operator in microseconds: its watermark, or Spark's. Those of its inputs do not count: one
        may be ahead, and what comes from the others is not late.
        """
        of_spark = watermark_in(self.position.commit)
        return max(summary.watermark, of_spark * 1000 if of_spark else BEFORE_TIME)

    @property
    def written_at(self) -> int:
        """The processing time of the savepoint in microseconds."""
        return int(datetime.fromisoformat(self.created).timestamp()) * 1_000_000

    def to_json(self) -> str:
        position = self.position
        document: dict[str, Any] = {
            "format": FORMAT if self.upstream else _ONE_OPERATOR,
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
            "operator": _operator_to_dict(self.summary),
        }
        if self.upstream:
            document["upstream"] = [operator.to_dict() for operator in self.upstream]
        if self.files:
            document["files"] = sums_to_json(self.files)
        return json.dumps(document, indent=2, ensure_ascii=False)

    @property
    def operators(self) -> list[Manifest | UpstreamOperator]:
        """By Spark's number: the last operator of the query is the first one."""
        return [self, *self.upstream]

    def operator_number(self, operator_id: int | None) -> int:
        """The number of one operator; None stands for the only one.

        :raises StateError: there is no such operator, or there are several and none is named
        """
        count = len(self.operators)
        if operator_id is None and count == 1:
            return 0
        if operator_id is None or not 0 <= operator_id < count:
            raise StateError(
                f"the query of the savepoint has {count} operator{'s' if count > 1 else ''}",
                f"Their numbers are 0 to {count - 1}; 0 is the last one." if count > 1 else "Its number is 0.",
                "operator_id=0, or --operator-id 0" if operator_id is None else None,
            )
        return operator_id

    def with_operator(self, number: int, summary: Summary | None, counts: Mapping[str, int]) -> Manifest:
        """The manifest with other state of one operator."""
        if number == 0:
            return replace(self, summary=summary, counts=counts)
        upstream = list(self.upstream)
        upstream[number - 1] = replace(upstream[number - 1], summary=summary, counts=counts)
        return replace(self, upstream=tuple(upstream))

    @classmethod
    def from_json(cls, text: str | bytes, place: str) -> Manifest:
        """
        :param place: the savepoint, for messages
        :raises StateError: it is not a manifest, or that of a later release
        """
        try:
            if len(text) > MAX_SIZE:
                raise ValueError(f"it is larger than {MAX_SIZE:,} bytes")
            document = json.loads(text)
            if _number("format", document["format"], 1, _MAX_NUMBER) > FORMAT:
                raise NewerStateError(
                    f"the savepoint has the format {document['format']}, but this release reads only up to {FORMAT}",
                    place,
                    f"restore it with Asterism {document.get('asterism')} or later",
                )
            manifest = cls(
                _text("asterism", document["asterism"]),
                _text("spark", document["spark"]),
                _text("created", document["created"]),
                _position_of(document["query"]),
                _text("time_mode", document["time_mode"]),
                _number("key_groups", document["key_groups"], 1, MAX_KEY_GROUPS),
                _number("tasks", document["tasks"], 1, _MAX_TASKS),
                _summary_of(document["operator"]),
                _counts(document["counts"]),
                tuple(map(UpstreamOperator.from_dict, document.get("upstream", ()))),
                sums_from_json(document.get("files", {})),
            )
            _number("created", manifest.written_at, -_MAX_NUMBER, _MAX_NUMBER)
        except NewerStateError as error:
            raise NewerStateError(error.message, error.detail or place, error.hint) from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, AsterismError) as error:
            what = f"{error.message}: {error.detail}" if isinstance(error, AsterismError) else str(error)
            raise StateError(f"there is no savepoint in {place}", f"{MANIFEST}: {what}", _NO_SAVEPOINT) from None
        return manifest


@dataclass(frozen=True, slots=True)
class StoredSeam:
    """Where a query over a stream begins after a savepoint that has no positions of sources.

    :ivar until: in microseconds, the time at which the stream begins; None: all of it comes after the savepoint
    :ivar positions: of a live engine, as the caller gave them, by input
    """

    until: int | None = None
    positions: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        document: dict[str, Any] = {"until": self.until}
        return json.dumps(document if self.positions is None else document | {"positions": dict(self.positions)})

    @classmethod
    def from_json(cls, text: str, place: str) -> StoredSeam:
        """
        :param place: the savepoint, for messages
        :raises StateError: it is not the file SEAM of a savepoint
        """
        try:
            document = json.loads(text)
            until, positions = document.get("until"), document.get("positions")
            if until is not None:
                _number("until", until, -_MAX_NUMBER, _MAX_NUMBER)
            if not isinstance(positions, dict | None):
                raise ValueError("positions is not an object")
        except (ValueError, AttributeError, RecursionError) as error:
            raise StateError(f"the file {place}/{SEAM} cannot be read", str(error)) from None
        return cls(until, positions)


def no_savepoint(place: str) -> StateError:
    return StateError(f"there is no savepoint in {place}", f"It has no {MANIFEST}.", _NO_SAVEPOINT)


def folder_of_waiting(name: str) -> str:
    return f"waiting_{_in_paths(name)}"


def folder_of_broadcast(name: str) -> str:
    return f"broadcast_{_in_paths(name)}"


def _in_paths(name: str) -> str:
    """The name of an input or a state in the name of a folder, where Spark and stores allow few characters."""
    return name if name.isascii() and name.isidentifier() else name.encode().hex()
