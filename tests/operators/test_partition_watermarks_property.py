"""The watermark of inputs with partitions is that of Flink, for all divisions into micro-batches, tasks and key groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from asterism import Input, Output, Pattern, StreamOperator
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.multiple_input import MultipleInputOperator, Wire
from tests.operators.partitioned_query import SECOND, PartitionedQuery, with_partitions
from tests.reference.watermarks import PartitionedSource, SeveralInputs

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
OUTPUTS = {
    "matches": OutputSpec(OutputKind.MATCHES, measures=("a.id AS event",)),
    "late": OutputSpec(OutputKind.LATE),
}
Events = list[tuple[int, int]]
"""The partition and the time, in seconds, of each event."""

events = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=8)
idle_times = st.sampled_from([None, 5, 10])
pauses = st.tuples(st.just("restart"), st.integers(0, 30))


def micros(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND


def operator_of(idle_after: int | None) -> Any:
    """Each event is a match when the watermark has passed it."""
    operator = CepOperator(Pattern.begin("a"), SCHEMA, keys=["id"], time="ts", outputs=OUTPUTS)
    return with_partitions(operator, micros(idle_after))


@given(
    st.lists(st.one_of(events, st.integers(1, 15), pauses), max_size=12),
    idle_times,
    st.integers(0, 5),
    st.sampled_from([1, 3]),
    st.integers(1, 3),
)
def test_late_events_and_the_watermark_are_those_of_flink(
    steps: list[Any], idle_after: int | None, delay: int, key_groups: int, tasks: int
) -> None:
    query = PartitionedQuery(operator_of(idle_after), ["id"], key_groups, delay * SECOND)
    source = PartitionedSource(delay * SECOND, micros(idle_after))
    reference = SeveralInputs({"events": source})
    late: list[int] = []
    on_time: list[tuple[int, int]] = []
    number = 0
    for step in steps:
        if isinstance(step, tuple):
            query.restart()
            query.now += step[1] * SECOND
        elif isinstance(step, int):
            reference.micro_batch({}, query.now + step * SECOND, begins_run=query.begins_run)
            query.at(query.now + step * SECOND)
        else:
            rows = [(number + place, time * SECOND, partition) for place, (partition, time) in enumerate(step)]
            number += len(rows)
            late += [row for row, time, _ in rows if source.is_late(time)]
            on_time += [(row, time) for row, time, _ in rows if not source.is_late(time)]
            arrived = [(str(partition), time) for _, time, partition in rows]
            reference.micro_batch({"events": arrived}, query.now, begins_run=query.begins_run)
            query.micro_batch(*[table_of(rows[task::tasks]) for task in range(min(tasks, len(rows)))])
        passed = [row for row, time in on_time if source.watermark is not None and time <= source.watermark]
        assert sorted(row["id"] for row in query.outputs.get("late", [])) == late
        assert sorted(row["event"] for row in query.outputs.get("matches", [])) == passed
        assert query.watermark == source.watermark
    query.end()
    assert sorted(row["event"] for row in query.outputs.get("matches", [])) == [row for row, _ in on_time]
    assert all(store.is_empty for store in query.stores)


class Both(StreamOperator):
    """Emits elements when the watermark has passed them. Keys have timers in processing time, which other key groups lack."""

    left = Input("id BIGINT, ts TIMESTAMP")
    right = Input("id BIGINT, ts TIMESTAMP")
    untimed = Input("id BIGINT")
    seen = Output("id BIGINT")
    late = Output("id BIGINT")

    @left.process_element
    @right.process_element
    def see(self, element: Any, ctx: Any) -> None:
        self.seen.collect(id=ctx.key)

    @untimed.process_element
    def alarm(self, element: Any, ctx: Any) -> None:
        ctx.register_processing_time_timer("alarm", ctx.processing_time + timedelta(seconds=3))

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        pass

    @left.process_late
    @right.process_late
    def see_late(self, element: Any, ctx: Any) -> None:
        self.late.collect(id=element.id)


micro_batches = st.fixed_dictionaries(
    {"pass": st.integers(0, 15)},
    optional={"left": events, "right": events, "untimed": events, "restart": st.integers(0, 30)},
)


@given(st.lists(micro_batches, max_size=10), idle_times, idle_times, st.booleans(), st.sampled_from([1, 3]))
def test_inputs_with_partitions_and_without_agree_in_all_key_groups(
    steps: list[Any], left_idle: int | None, right_idle: int | None, right_has_partitions: bool, key_groups: int
) -> None:
    idle_after = {"left": micros(left_idle), "right": micros(right_idle)}
    partitioned = {"left": True, "right": right_has_partitions}
    schema = SCHEMA.append(pa.field("partition", pa.int32()))
    wires = {
        name: Wire(schema, ["id"], "ts", idle_after[name], watermark_by=("partition",) if partitioned[name] else ())
        for name in idle_after
    }
    operator = MultipleInputOperator(Both(), {**wires, "untimed": Wire(schema, ["id"])})
    query = PartitionedQuery(operator, ["id"], key_groups)
    reference = SeveralInputs({name: PartitionedSource(0, idle_after[name]) for name in idle_after})
    late: list[int] = []
    on_time: list[tuple[int, int]] = []
    number = 0
    for step in steps:
        if "restart" in step:
            query.restart()
            query.now += step["restart"] * SECOND
        query.now += step["pass"] * SECOND
        tables, arrived = {}, {}
        for name in ("left", "right", "untimed"):
            rows = [(number + place, time * SECOND, part) for place, (part, time) in enumerate(step.get(name, []))]
            number += len(rows)
            if rows:
                tables[name] = table_of(rows)
            if name != "untimed":
                late += [row for row, time, _ in rows if reference.is_late(time)]
                on_time += [(row, time) for row, time, _ in rows if not reference.is_late(time)]
                arrived[name] = [(str(part) if partitioned[name] else "", time) for _, time, part in rows]
        reference.micro_batch(arrived, query.now, begins_run=query.begins_run)
        query.micro_batch(**tables)
        passed = [row for row, time in on_time if reference.watermark is not None and time <= reference.watermark]
        assert sorted(row["id"] for row in query.outputs.get("late", [])) == late
        assert sorted(row["id"] for row in query.outputs.get("seen", [])) == passed


def table_of(rows: list[tuple[int, int, int]]) -> pa.Table:
    ids, times, partitions = zip(*rows, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(times, pa.timestamp("us", "UTC")), pa.array(partitions, pa.int32())]
    return pa.table(columns, names=["id", "ts", "partition"])
