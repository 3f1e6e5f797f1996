"""Drives the operator of pattern processors without Spark: sets, events and time, over key groups."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from asterism import Pattern
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.partition_watermarks import partition_name
from asterism.operators.state.state_store import MemoryStore
from asterism.rules.definition.lookup_tables import (
    LookupColumn,
    LookupVersion,
    checked_rows,
    digest_of_rows,
    rows_to_bytes,
)
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import MATCHES
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.rule_counts import FAMILY, RuleCounts
from asterism.rules.sets.sets import ProcessorSet, next_versions

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("user", pa.string()),
        ("item", pa.int64()),
        ("kind", pa.string()),
        ("x", pa.float64()),
    ]
)
Event = tuple[float | None, str, int, str, float]
"""Second (None: the time is null), user, item, kind, x."""
Found = tuple[str, int, tuple[str, ...], str]
"""A match: processor, version, key, kinds and seconds of its events."""


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def chain(*kinds: str, strict: bool = False, within: int | None = 60) -> Pattern:
    """One stage for each kind, named as it."""
    pattern = Pattern.begin(kinds[0]).where(f"kind = '{kinds[0]}'")
    for kind in kinds[1:]:
        pattern = (pattern.next(kind) if strict else pattern.followed_by(kind)).where(f"kind = '{kind}'")
    return pattern if within is None else pattern.within(timedelta(seconds=within))


def processor(name: str, version: int, pattern: Pattern, **more: Any) -> PatternProcessor:
    return PatternProcessor(name, version, pattern, **more)


def table_of(events: Iterable[Event]) -> pa.Table:
    columns = [[None if second is None else at(second), *rest] for second, *rest in events]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in columns], SCHEMA)


class Sets:
    """What a folder beside the checkpoint is on Spark. Sets that are not announced may be retained, too: *surplus*."""

    def __init__(self) -> None:
        self.all: list[ProcessorSet] = []
        self.surplus: list[PatternProcessor] = []
        self.replaced: list[tuple[int, list[tuple[str, int]]]] = []
        """What key groups have said, each once."""
        self.expired_at: list[int] = []
        self.lookups: tuple[LookupVersion, ...] = ()
        """Those of the next sets."""
        self.surplus_lookups: tuple[LookupVersion, ...] = ()
        self.rows_of_lookups: dict[LookupVersion, bytes] = {}

    def look_up(self, lookup: LookupColumn, rows: pa.Table) -> None:
        """The next sets have these rows."""
        value = rows_to_bytes(checked_rows(lookup, rows))
        version = LookupVersion(lookup.name, len(self.all) + 1, digest_of_rows(value), rows.num_rows)
        self.lookups = (*(one for one in self.lookups if one.name != lookup.name), version)
        self.rows_of_lookups[version] = value

    def read_lookup(self, version: LookupVersion) -> bytes:
        return self.rows_of_lookups[version]

    def expired(self, time: int) -> None:
        self.expired_at.append(time)

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        if not self.replaced or self.replaced[-1] != (version, list(processors)):
            self.replaced.append((version, list(processors)))

    def put(self, processors: Sequence[PatternProcessor], killed: Sequence[str] = ()) -> ProcessorSet:
        before = self.all[-1] if self.all else ProcessorSet(0, ())
        last, earlier, added = next_versions(before, processors)
        self.all.append(ProcessorSet(before.version + 1, last, tuple(killed), self.lookups, earlier, added))
        return self.all[-1]

    def retained(self) -> list[ProcessorSet]:
        return [*self.all, ProcessorSet(10**6, tuple(self.surplus), lookups=self.surplus_lookups)]


class Driver:
    """:param key_groups: each with a store of its own"""

    def __init__(
        self,
        *,
        keys: Sequence[str] = ("user",),
        key_groups: int = 1,
        time: str | None = "ts",
        schema: pa.Schema = SCHEMA,
        **more: Any,
    ) -> None:
        self.sets = Sets()
        self.operator = DynamicCepOperator(schema, self.sets, RuleOptions(keys=keys, time=time, **more))
        self.stores = [MemoryStore() for _ in range(key_groups)]
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self.operator.output_schemas}
        self.metrics: dict[str, int] = {}
        self.counts = RuleCounts()

    def batch(
        self,
        events: Iterable[Event] | pa.Table = (),
        *,
        sets: Sequence[PatternProcessor] | None = None,
        between: Sequence[Sequence[PatternProcessor]] = (),
        killed: Sequence[str] = (),
        watermark: float | None = None,
        partitions: Mapping[str, float] | None = None,
        processing_time: float = 0,
    ) -> Driver:
        """A micro-batch: perhaps a set (and others *between* it and the last one), events, and a watermark after them
        (seconds). *killed* are the names that the set says are. *partitions* are those with events, each
        with its watermark.
        """
        new = [prepared_set(self.sets.put(found).to_bytes()) for found in between]
        new += [] if sets is None else [prepared_set(self.sets.put(sets, killed).to_bytes())]
        rows = events if isinstance(events, pa.Table) else table_of(events)
        prepared = self.operator.prepare(EVENTS, rows) if rows.num_rows else None
        for number, store in enumerate(self.stores):
            arrivals = [Arrival(PROCESSORS, found) for found in new]
            if prepared is not None:
                hashes = prepared.column(KEY_HASH).to_numpy().view(np.uint64)
                mine = prepared.filter(pa.array(hashes % np.uint64(len(self.stores)) == np.uint64(number)))
                arrivals.append(Arrival(EVENTS, mine.drop_columns([KEY_HASH])))
            if watermark is not None:
                arrivals.append(Arrival(EVENTS, None, int(watermark * 1_000_000)))
            if partitions:
                of_partitions = {partition_name([name]): round(each * 1_000_000) for name, each in partitions.items()}
                arrivals.append(Arrival(EVENTS, partitions=of_partitions))
            self._call(store, arrivals, Now(BEFORE_TIME, int(processing_time * 1_000_000), number))
        return self

    def end(self) -> Driver:
        for store in self.stores:
            self._call(store, [], Now(END_OF_TIME, END_OF_TIME))
        return self

    def _call(self, store: MemoryStore, arrivals: list[Arrival], now: Now) -> None:
        result = self.operator.process(store, arrivals, now)
        for name, table in result.outputs.items():
            self.rows[name] += table.to_pylist()
        for name, count in result.metrics.items():
            if not name.startswith(FAMILY + "/"):
                self.metrics[name] = self.metrics.get(name, 0) + count
        reported = {name: count for name, count in result.metrics.items() if name.startswith(FAMILY + "/")}
        self.counts.add("query", self.counts.batch + 1, [reported])

    @property
    def found(self) -> list[Found]:
        """Matches, sorted."""
        return self.found_in(MATCHES)

    def found_in(self, output: str) -> list[Found]:
        return sorted(
            (
                row["processor_id"],
                row["processor_version"],
                tuple(row["key"]),
                " ".join(f"{e['event']['kind']}{e['event']['ts'].timestamp():g}" for e in row["events"]),
            )
            for row in self.rows[output]
        )


def cuts(events: Sequence[Event], rng: random.Random) -> Iterable[list[Event]]:
    """The events in pieces."""
    begin = 0
    while begin < len(events):
        end = begin + rng.randint(1, 4)
        yield list(events[begin:end])
        begin = end
