"""What distinguishes two savepoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asterism.columns.time import BEFORE_TIME, END_OF_TIME, moments
from asterism.operators.state.state_definition import StateDefinition
from asterism.rules.sets.sets import Entry
from asterism.savepoints.key_groups import Summary
from asterism.savepoints.manifest import Manifest, UpstreamOperator
from asterism.savepoints.offset_log import watermark_in
from asterism.savepoints.rule_sets import RuleSets


class ChangedValue(NamedTuple):
    """Something that is not the same.

    :ivar before, after: None: there is none
    """

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class TableDifferences:
    """The rows of a table: ``keys``, with a row for each key; ``waiting_NAME``, ``broadcast_NAME``.

    :ivar changed: rows of keys that both savepoints have, with different states. Events and entries of broadcast state are
        added and removed.
    """

    table: str
    before: int
    after: int
    added: int
    removed: int
    changed: int


@dataclass(frozen=True, slots=True)
class OperatorDifferences:
    """
    :ivar operator_id: Spark's number; 0 is the last operator
    :ivar definition: the kind, the tables and their columns, the details
    :ivar watermarks: of the operator and its inputs, as times
    :ivar rules: those in force or waiting for their time, by ``id@version``
    """

    operator_id: int
    definition: Sequence[ChangedValue]
    watermarks: Sequence[ChangedValue]
    rules: Sequence[ChangedValue]
    tables: Sequence[TableDifferences] = ()

    def __bool__(self) -> bool:
        rows = any(table.added or table.removed or table.changed for table in self.tables)
        return bool(self.definition or self.watermarks or self.rules or rows)


@dataclass(frozen=True, slots=True)
class SavepointDifferences:
    """What distinguishes a savepoint from another one.

    :ivar query: the query, the numbers of micro-batches, key groups and tasks, the versions, the watermark of Spark
    :ivar sources: the positions of the sources, by their number in the program
    :ivar operators: those of both, the last one of the query first
    """

    query: Sequence[ChangedValue]
    sources: Sequence[ChangedValue]
    operators: Sequence[OperatorDifferences]

    def __bool__(self) -> bool:
        return bool(self.query or self.sources or any(self.operators))

    def to_dict(self) -> dict[str, Any]:
        """The differences as JSON."""

        def listed(differences: Sequence[ChangedValue]) -> list[dict[str, Any]]:
            return [difference._asdict() for difference in differences]

        return {
            "query": listed(self.query),
            "sources": listed(self.sources),
            "operators": [
                {
                    "operator_id": each.operator_id,
                    "definition": listed(each.definition),
                    "watermarks": listed(each.watermarks),
                    "rules": listed(each.rules),
                    "tables": [{name: getattr(table, name) for name in table.__slots__} for table in each.tables],
                }
                for each in self.operators
            ],
        }


_Operator = Manifest | UpstreamOperator


def of_queries(before: Manifest, after: Manifest) -> list[ChangedValue]:
    return list(_changes(_query(before), _query(after)))


def _query(manifest: Manifest) -> dict[str, Any]:
    position = manifest.position
    return {
        "query": position.query_id,
        "micro-batch": position.batches + position.batch_id,
        "planned micro-batch": position.planned is not None,
        "watermark of Spark": watermark_in(position.commit),
        "operators": 1 + len(manifest.upstream),
        "tasks": manifest.tasks,
        "Asterism": manifest.asterism,
        "Spark": manifest.spark,
    }


def of_sources(before: Manifest, after: Manifest) -> list[ChangedValue]:
    lines = [manifest.position.offsets.splitlines()[2:] for manifest in (before, after)]
    return list(_changes(*({f"source {number}": line for number, line in enumerate(some)} for some in lines)))


def of_operators(
    number: int, before: _Operator | None, after: _Operator | None, rules: Sequence[RuleSets | None]
) -> OperatorDifferences:
    """
    :param before, after: the operator in each savepoint; None: one of them does not have it
    :param rules: its rules in each
    """
    definitions = [_definition(operator) for operator in (before, after)]
    summaries = [None if operator is None else operator.summary for operator in (before, after)]
    return OperatorDifferences(
        number,
        list(_changes(*definitions)),
        list(_changes(*(_watermarks(summary) for summary in summaries))),
        list(_changes(*(_entries(sets) for sets in rules))),
    )


def _definition(operator: _Operator | None) -> dict[str, Any]:
    if operator is None:
        return {}
    found: dict[str, Any] = {"key groups": operator.key_groups, "time mode": operator.time_mode}
    if operator.summary is None:
        return found
    definition: StateDefinition = operator.summary.definition
    found |= {"kind": definition.kind.value, "key": str(definition.keys.names)}
    for kind, schemas in (("table", definition.tables), ("input", definition.inputs)):
        found |= {f"{kind} {name}.{f.name}": str(f.type) for name, schema in schemas.items() for f in schema}
    return found | _flat("", definition.details)


def _flat(prefix: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The details of a definition, of which some are objects."""
    flat: dict[str, Any] = {}
    for name, value in details.items():
        flat |= _flat(f"{prefix}{name}.", value) if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _watermarks(summary: Summary | None) -> dict[str, Any]:
    if summary is None:
        return {}
    names = list(summary.definition.inputs)
    times = {"operator": summary.watermark, **dict(zip(names, summary.watermarks, strict=True))}
    for number, partitions in summary.partitions.items():
        named = zip(partitions.names, partitions.watermarks.tolist(), strict=True)
        times |= {f"{names[number]} {name}": time for name, time in named}
    return {name: _moment(time) for name, time in times.items()}


def _moment(time: int) -> str | None:
    if time in (BEFORE_TIME, END_OF_TIME):
        return None if time == BEFORE_TIME else "the end of time"
    [moment] = moments(np.array([time], np.int64)).to_pylist()
    return None if moment is None else str(moment.isoformat())


def _entries(sets: RuleSets | None) -> dict[str, Any]:
    if sets is None:
        return {}
    names = {name for failed in sets.disabled.values() for name in failed}
    return {f"{e.processor.id}@{e.processor.version}": _state_of(e, names) for e in sets.sets.entries}


def _state_of(entry: Entry, disabled: set[Any]) -> str:
    if entry.killed:
        return "killed"
    if entry.disabled or entry.name in disabled:
        return "disabled" if entry.disabled else "disabled in some key groups"
    return "shadow" if entry.processor.shadow else "in force or waiting for its time"


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ChangedValue]:
    for name in {**before, **after}:
        values = before.get(name), after.get(name)
        if values[0] != values[1]:
            yield ChangedValue(name, *values)
