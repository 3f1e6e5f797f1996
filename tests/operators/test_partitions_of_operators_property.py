"""Every kind of operator over streams of which each partition has a watermark: if the partitions are in order, no event is late,
however far one is behind another, and the results are those of all events at once. They do not depend on the divisions into
micro-batches, tasks and key groups, nor on restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import (
    BroadcastInput,
    BroadcastValueState,
    Input,
    Output,
    Pattern,
    StreamOperator,
    TumblingWindows,
    ValueState,
)
from asterism.operators.key_group import KeyGroupOperator
from asterism.testing import JoinHarness, PatternHarness, RowPatternHarness, StreamOperatorHarness, WindowHarness
from tests.operators.partitioned_query import SECOND, PartitionedQuery, with_partitions

COLUMNS = "id BIGINT, user STRING, kind STRING, ts TIMESTAMP"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("kind", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("partition", pa.string()),
    ]
)
SIDE = {"key": "user", "time": "ts", "columns": COLUMNS}
MINUTE = timedelta(minutes=1)
A_THEN_B = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(MINUTE)
CLAUSE = """
    PARTITION BY user ORDER BY ts MEASURES FIRST(A.id) AS a, LAST(B.id) AS b, COUNT(B.*) AS n AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B+ C) WITHIN INTERVAL '60' SECOND DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'a'
"""


class Versions(StreamOperator):
    """The latest element of a broadcast input, and how many elements its key had since."""

    left = Input(COLUMNS)
    right = BroadcastInput(COLUMNS)
    newest = BroadcastValueState("BIGINT")
    seen = ValueState("BIGINT")
    rows = Output("id BIGINT, version BIGINT, seen BIGINT")
    late = Output("id BIGINT")

    @right.process_element
    def take(self, element: Any, ctx: Any) -> None:
        self.newest.update(element.id)

    @left.process_element
    def see(self, element: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        self.rows.collect(id=element.id, version=self.newest.value(), seen=self.seen.value())

    @left.process_late
    @right.process_late
    def see_late(self, element: Any, ctx: Any) -> None:
        self.late.collect(id=element.id)


KINDS: dict[str, Callable[[int], Any]] = {
    "pattern": lambda n: PatternHarness(A_THEN_B, COLUMNS, keys=["user"], key_groups=n),
    "windows": lambda n: WindowHarness(
        TumblingWindows.of(MINUTE),
        columns=COLUMNS,
        keys=["user"],
        aggregate=("count(*) AS n", "sum(id) AS s"),
        key_groups=n,
    ),
    "clause": lambda n: RowPatternHarness(CLAUSE, COLUMNS, key_groups=n),
    "interval join": lambda n: JoinHarness.interval_join(
        SIDE, SIDE, (-MINUTE, MINUTE), how="left", prefix="r_", key_groups=n
    ),
    "as-of join": lambda n: JoinHarness.as_of_join(SIDE, SIDE, how="left", prefix="r_", key_groups=n),
    "window join": lambda n: JoinHarness.window_join(
        SIDE, SIDE, TumblingWindows.of(MINUTE), how="full", prefix="r_", key_groups=n
    ),
    "operator with a broadcast input": lambda n: StreamOperatorHarness(
        Versions(), {"left": {"key": "user", "time": "ts"}, "right": {"time": "ts"}}, key_groups=n
    ),
    "multi-join": lambda n: JoinHarness.multi_join(
        {"left": SIDE, "right": SIDE}, {("left", "right"): (-MINUTE, MINUTE)}, prefix={"right": "r_"}, key_groups=n
    ),
}
Rows = list[dict[str, Any]]
moves = st.tuples(st.integers(0, 2), st.sampled_from(["left", "right"]), st.integers(1, 100), st.sampled_from("ab"))
cuts = st.tuples(moves, st.sampled_from(["on", "on", "cut", "restart"]), st.sampled_from(["ann", "bob"]))


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=max(1, settings().max_examples // 3))
def test_results_are_those_of_all_events_at_once(kind: str, data: st.DataObject) -> None:
    key_groups = data.draw(st.sampled_from([1, 3]))
    operator = KINDS[kind](key_groups).operator
    sides = list(operator.inputs)
    tasks = data.draw(st.integers(1, 2))
    behind = [0, 0, data.draw(st.sampled_from([0, 3600]))]
    times = {(side, number): 10_000 - behind[number] for side in sides for number in range(3)}
    # A partition is known from its first event.
    steps: list[Any] = [
        {side: [row(-part - 1, "eve", "x", times[side, part], part) for part in range(3)] for side in sides}
    ]
    every: dict[str, Rows] = {side: [*steps[0][side]] for side in sides}
    for number, ((part, side, later, event_kind), after, user) in enumerate(data.draw(st.lists(cuts, max_size=25))):
        name = side if len(sides) > 1 else sides[0]
        times[name, part] += later
        steps[-1].setdefault(name, []).append(row(number, user, event_kind, times[name, part], part))
        every[name].append(steps[-1][name][-1])
        steps += [{}] if after == "cut" else ["restart", {}] if after == "restart" else []

    query = PartitionedQuery(partitioned(operator), ["user"], key_groups)
    for step in steps:
        if step == "restart":
            query.restart()
        elif step:
            query.micro_batch(*_tasks(step, sides[0], tasks), name=sides[0], **_others(step, sides[1:]))
    query.end()

    at_once = PartitionedQuery(KINDS[kind](1).operator, ["user"])
    at_once.micro_batch(table(every[sides[0]]), name=sides[0], **_others(every, sides[1:]))
    at_once.end()
    assert {name: sorted(map(repr, rows)) for name, rows in query.outputs.items()} == {
        name: sorted(map(repr, rows)) for name, rows in at_once.outputs.items()
    }
    assert not any(name.startswith("late") for name in query.outputs)


def partitioned(operator: KeyGroupOperator) -> KeyGroupOperator:
    for name in operator.inputs:
        with_partitions(operator, name=name)
    return operator


def row(number: int, user: str, kind: str, second: int, part: int) -> dict[str, Any]:
    """Times are unique, because the order of events with equal times is that of their arrival."""
    return {"id": number, "user": user, "kind": kind, "ts": second * SECOND + number + 1, "partition": str(part)}


def table(rows: Rows) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _tasks(step: dict[str, Rows], side: str, count: int) -> list[pa.Table]:
    rows = step.get(side, [])
    return [table(rows[task::count]) for task in range(min(count, len(rows)))]


def _others(step: dict[str, Rows], sides: list[str]) -> dict[str, pa.Table]:
    return {side: table(step[side]) for side in sides if step.get(side)}
