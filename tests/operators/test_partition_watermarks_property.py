"""The watermark of an input with partitions is that of Flink, for all divisions into micro-batches, tasks and key groups."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from asterism import Pattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from tests.operators.partitioned_query import SECOND, PartitionedQuery, with_partitions
from tests.reference.watermarks import PartitionedSource

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
OUTPUTS = {
    "matches": OutputSpec(OutputKind.MATCHES, measures=("a.id AS event",)),
    "late": OutputSpec(OutputKind.LATE),
}
Events = list[tuple[int, int]]
"""The partition and the time, in seconds, of each event."""

events = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=8)
steps = st.lists(st.one_of(events, st.integers(1, 15), st.just("restart")), max_size=12)


def operator_of(idle_after: int | None) -> Any:
    """Each event is a match when the watermark has passed it."""
    operator = CepOperator(Pattern.begin("a"), SCHEMA, keys=["id"], time="ts", outputs=OUTPUTS)
    return with_partitions(operator, None if idle_after is None else idle_after * SECOND)


@given(steps, st.sampled_from([None, 5, 10]), st.integers(0, 5), st.sampled_from([1, 3]), st.integers(1, 3))
def test_late_events_and_the_watermark_are_those_of_flink(
    steps: list[Any], idle_after: int | None, delay: int, key_groups: int, tasks: int
) -> None:
    query = PartitionedQuery(operator_of(idle_after), ["id"], key_groups, delay * SECOND)
    source = PartitionedSource(delay * SECOND, None if idle_after is None else idle_after * SECOND)
    late: list[int] = []
    on_time: list[tuple[int, int]] = []
    number = 0
    for step in steps:
        if step == "restart":
            query.restart()
        elif isinstance(step, int):
            # Spark calls the operator at each timer, not only at the last one.
            for now in range(query.now + SECOND, query.now + step * SECOND + 1, SECOND):
                query.at(now)
                source.at(now)
        else:
            rows = [(number + place, time * SECOND, partition) for place, (partition, time) in enumerate(step)]
            number += len(rows)
            late += [row for row, time, _ in rows if source.is_late(time)]
            on_time += [(row, time) for row, time, _ in rows if not source.is_late(time)]
            query.micro_batch(*[table_of(rows[task::tasks]) for task in range(min(tasks, len(rows)))])
            source.micro_batch([(str(partition), time) for _, time, partition in rows], query.now)
        passed = [row for row, time in on_time if source.watermark is not None and time <= source.watermark]
        assert sorted(row["id"] for row in query.outputs.get("late", [])) == late
        assert sorted(row["event"] for row in query.outputs.get("matches", [])) == passed
        assert query.watermark == source.watermark
    query.end()
    assert sorted(row["event"] for row in query.outputs.get("matches", [])) == [row for row, _ in on_time]
    assert all(store.is_empty for store in query.stores)


def table_of(rows: list[tuple[int, int, int]]) -> pa.Table:
    ids, times, partitions = zip(*rows, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(times, pa.timestamp("us", "UTC")), pa.array(partitions, pa.int32())]
    return pa.table(columns, names=["id", "ts", "partition"])
