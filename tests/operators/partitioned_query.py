"""A query over a stream of several partitions, without Spark: the stages before and after the exchange."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.spark.host.exchange import pack, partitions_from_bytes
from asterism.spark.host.partitioning import group_of
from asterism.spark.host.times import EVENT_TIME, PARTITION
from asterism.testing.operator_harness import key_hashes

SECOND = 1_000_000


def with_partitions(
    operator: KeyGroupOperator,
    idle_after: int | None = None,
    *,
    columns: tuple[str, ...] = ("partition",),
    name: str = EVENTS,
) -> KeyGroupOperator:
    """The operator, of which the input *name* has a watermark for each partition. *idle_after* is in microseconds."""
    operator.inputs = {
        **operator.inputs,
        name: replace(operator.inputs[name], watermark_by=columns, idle_after=idle_after),
    }
    return operator


@dataclass
class PartitionedQuery:
    """Times are microseconds.

    :param keys: the columns of the key, of every input
    """

    operator: KeyGroupOperator
    keys: Sequence[str]
    key_groups: int = 1
    delay: int = 0
    now: int = 0
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    begins_run: bool = True

    def __post_init__(self) -> None:
        self.stores = [MemoryStore() for _ in range(self.key_groups)]
        self.next_times: list[int | None] = [None] * self.key_groups
        self.watermark: int | None = None
        self.behind: Mapping[str, Mapping[str, int]] = {}
        self.calls = 0

    def micro_batch(self, *tasks: pa.Table, name: str = EVENTS, **others: pa.Table) -> None:
        """The events of each task, with the columns ``ts`` and ``partition``.

        :param others: events of other inputs in this micro-batch
        """
        arrivals: list[list[Arrival]] = [[] for _ in self.stores]
        for of, events in [*((name, task) for task in tasks), *others.items()]:
            spec = self.operator.inputs[of]
            rows = events.append_column(KEY_HASH, pa.array(key_hashes(events.select(self.keys))))
            if spec.watermark_by:
                rows = rows.append_column(EVENT_TIME, events.column("ts").cast(pa.int64()))
                rows = rows.append_column(f"{PARTITION}0", events.column("partition"))
            packed = pack(self.operator, self.key_groups, of, self.delay)(iter(rows.to_batches()))
            for row in sorted((row for batch in packed for row in batch.to_pylist()), key=lambda row: row["seq"]):
                arrivals[group_of(row["key_group"])].append(self._arrival(row))
        self._calls(arrivals)

    def publish(self, arrival: Arrival) -> None:
        """A message to every key group, such as a set of rules."""
        self._calls([[arrival] for _ in self.stores])

    def _calls(self, arrivals: Sequence[Sequence[Arrival]]) -> None:
        """A micro-batch. In the first one of a run, all key groups are called."""
        begins_run, self.begins_run = self.begins_run, False
        for group, of_group in enumerate(arrivals):
            if of_group or begins_run:
                self._call(group, of_group, begins_run=begins_run)
        for group, time in enumerate(self.next_times):
            if time is not None and time <= self.now:
                self._call(group, [])

    def _arrival(self, row: dict[str, Any]) -> Arrival:
        name, chunk = row["input"], row["chunk"]
        partitions = None if chunk is None else partitions_from_bytes(chunk)
        if partitions is not None:
            return Arrival(name, partitions=partitions)
        events = None if chunk is None else batch_from_bytes(chunk, self.operator.inputs[name].prepared)
        return Arrival(name, events) if row["watermark"] is None else Arrival(name, events, row["watermark"])

    def at(self, now: int) -> None:
        """A micro-batch without data at this processing time. As on Spark, the key groups with a timer are called."""
        self.now = now
        self._calls([[] for _ in self.stores])

    def call(self, group: int) -> None:
        """Call a key group for a timer that others do not have."""
        self._call(group, [])

    def end(self) -> None:
        for group in range(self.key_groups):
            self._call(group, [], END_OF_TIME)

    def restart(self, operator: KeyGroupOperator | None = None) -> None:
        """:param operator: another one, which continues with the state"""
        self.operator = pickle.loads(pickle.dumps(self.operator)) if operator is None else operator
        self.stores = [MemoryStore(store.header, dict(store.pages)) for store in self.stores]
        self.begins_run = True

    def header(self, group: int = 0) -> GroupHeader:
        stored = self.stores[group].header
        assert stored is not None
        return GroupHeader.from_bytes(stored)

    def _call(
        self, group: int, arrivals: Sequence[Arrival], watermark: int | None = None, *, begins_run: bool = False
    ) -> None:
        now = Now(BEFORE_TIME if watermark is None else watermark, self.now, group, begins_run)
        self.calls += 1
        result = self.operator.process(self.stores[group], arrivals, now)
        self.next_times[group] = result.next_processing_time
        self.behind = result.behind
        self.watermark = result.watermark if result.watermark is not None else self.watermark
        for name, table in result.outputs.items():
            self.outputs.setdefault(name, []).extend(table.to_pylist())
