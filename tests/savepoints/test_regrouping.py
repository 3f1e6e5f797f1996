"""A run whose key groups become more and fewer, through the tables of a savepoint, has the rows of one that keeps them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from asterism import (
    BroadcastInput,
    BroadcastMapState,
    CountTrigger,
    EventTimeTrigger,
    Input,
    ListState,
    MapState,
    Output,
    Pattern,
    ProcessWindowFunction,
    SessionWindows,
    SlidingWindows,
    StreamOperator,
    TumblingWindows,
    ValueState,
)
from asterism.savepoints.plain_types import plain_schema, retyped
from asterism.testing import (
    JoinHarness,
    PatternHarness,
    RowPatternHarness,
    StreamOperatorHarness,
    WindowHarness,
)
from asterism.testing.operator_harness import OperatorHarness
from tests.every_type import TYPES, value_and_null
from tests.kit import FACTOR, small_pages
from tests.savepoints.regrouping import in_parquet, regroup

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("v", pa.int64())])
KINDS = "aabbc"
USERS = [f"u{number}" for number in range(12)]


class Accounts(StreamOperator):
    """Every kind of state and timer, and elements that wait to be selected by the watermark."""

    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    limits = BroadcastInput("name STRING, v BIGINT")
    total = ValueState("BIGINT", ttl=40 * SECOND)
    last = ListState("STRUCT<v: BIGINT, tags: ARRAY<STRING>>")
    by_rest = MapState("BIGINT", "DOUBLE")
    limit = BroadcastMapState("STRING", "BIGINT")
    out = Output("user STRING, line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.last.add({"v": e.v, "tags": [str(e.v), "x"]})
        self.by_rest.put(e.v % 3, (self.by_rest.get(e.v % 3) or 0.5) + e.v)
        ctx.register_event_time_timer(f"t{e.v % 2}", e.ts + 15 * SECOND)
        line = f"{self.total.value()} {sorted(self.by_rest.items())} {sorted(self.limit.items())}"
        self.out.collect(user=e.user, line=line)

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.limit.put(e.name, e.v)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(user=ctx.key, line=f"{timer.name} {[each['v'] for each in self.last.get()]}")
        if timer.name == "t1":
            self.last.clear()


class Growth(ProcessWindowFunction):
    """A window function with state by key and by window."""

    firings = ValueState("BIGINT")
    seen = ListState("BIGINT")

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        of_key, of_window = ctx.global_state(self.firings), ctx.window_state(self.firings)
        of_key.update((of_key.value() or 0) + 1)
        of_window.update((of_window.value() or 0) + 1)
        ctx.global_state(self.seen).add(elements.num_rows)
        return {"n": of_key.value(), "m": of_window.value(), "seen": str(ctx.global_state(self.seen).get())}


PATTERNS = {
    "followed by": Pattern.begin("a").where("kind = 'a'").followed_by_any("b").where("kind = 'b' AND v >= a.v"),
    "loop": Pattern.begin("a").where("kind = 'a'").one_or_more().followed_by("b").where("kind = 'b'"),
    "absent": Pattern.begin("a").where("kind = 'a'").not_followed_by("c").where("kind = 'c'"),
    "previous": Pattern.begin("a").where("v > PREV(v)").next("b").where("kind = 'b'"),
}
CLAUSE = """
    PARTITION BY user ORDER BY ts MEASURES FIRST(A.v) AS first, LAST(B.v) AS last, COUNT(*) AS n, MATCH_NUMBER() AS number
    AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) WITHIN INTERVAL '20' SECOND
    DEFINE A AS kind = 'a', B AS v >= PREV(v)
"""

IN_SECONDS: dict[str, Any] = {"keys": ["user"], "time": "ts"}
TRIGGER = (
    EventTimeTrigger.after_end_of_window()
    .with_early_trigger(CountTrigger.at_least(3))
    .with_late_trigger(CountTrigger.at_least(1))
)


def of_pattern(name: str, key_groups: int) -> OperatorHarness:
    return PatternHarness(PATTERNS[name].within(30 * SECOND), SCHEMA, **IN_SECONDS, key_groups=key_groups)


def of_windows(windows: Any, key_groups: int, **options: Any) -> OperatorHarness:
    return WindowHarness(
        windows, TRIGGER, SCHEMA, **IN_SECONDS, key_groups=key_groups, allowed_lateness=10 * SECOND, **options
    )


def of_join(key_groups: int) -> OperatorHarness:
    side = {"columns": SCHEMA, "key": "user", "time": "ts"}
    return JoinHarness.interval_join(
        side, side, (-5 * SECOND, 9 * SECOND), how="full", prefix="r_", key_groups=key_groups
    )


def of_as_of_join(key_groups: int) -> OperatorHarness:
    side = {"columns": SCHEMA, "key": "user", "time": "ts"}
    return JoinHarness.as_of_join(side, side, how="left", prefix="r_", key_groups=key_groups)


AGGREGATES = ["SUM(v) AS v", "COUNT(DISTINCT kind) AS kinds", "MAX(ts) AS ts"]
CASES: dict[str, Callable[[int], OperatorHarness]] = {
    **{f"pattern, {name}": partial(of_pattern, name) for name in PATTERNS},
    "MATCH_RECOGNIZE": lambda groups: RowPatternHarness(CLAUSE, SCHEMA, key_groups=groups),
    "tumbling windows with aggregates": lambda groups: of_windows(
        TumblingWindows.of(20 * SECOND), groups, aggregate=AGGREGATES
    ),
    "sliding windows with elements": lambda groups: of_windows(SlidingWindows.of(20 * SECOND, 10 * SECOND), groups),
    "sessions with ids": lambda groups: of_windows(
        SessionWindows.with_gap(6 * SECOND), groups, aggregate=AGGREGATES, session_ids=True
    ),
    "window function with state": lambda groups: of_windows(
        TumblingWindows.of(20 * SECOND), groups, process=Growth(), schema="n BIGINT, m BIGINT, seen STRING"
    ),
    "interval join": of_join,
    "as-of join": of_as_of_join,
    "operator": lambda groups: StreamOperatorHarness(
        Accounts(), {"orders": {"key": "user", "time": "ts"}, "limits": {}}, key_groups=groups
    ),
}

FEWER_CASES = [
    name
    for name in CASES
    if FACTOR > 1
    or name
    not in {
        "pattern, loop",
        "pattern, absent",
        "pattern, previous",
        "sliding windows with elements",
        "sessions with ids",
    }
]
"""In ``make test``, one of each operator, and a window function."""


def steps(seed: int) -> list[tuple[str, Any]]:
    """Elements, which may be out of order by some seconds, and watermarks."""
    rng = random.Random(seed)
    made: list[tuple[str, Any]] = []
    for number in range(24):
        rows = [
            {
                "user": rng.choice(USERS),
                "ts": EPOCH + (4 * number + rng.randrange(8)) * SECOND,
                "kind": rng.choice(KINDS),
                "v": rng.randrange(9),
            }
            for _ in range(rng.randrange(9))
        ]
        made.append(("rows", rows))
        if number % 2:
            made.append(("watermark", 4 * number * 1_000_000 - 1))
    return made


def feed(harness: OperatorHarness, number: int, step: tuple[str, Any]) -> None:
    """Send a step, those of several inputs to each in turn."""
    what, value = step
    inputs = [name for name, spec in harness.operator.inputs.items() if not spec.broadcast]
    for name in inputs:
        if what == "watermark":
            harness.feed_watermark(value, name)
        elif value:
            sent = value if len(inputs) == 1 else value[inputs.index(name) :: 2]
            columns = set(harness.operator.inputs[name].schema.names)
            rows = [{key: cell for key, cell in row.items() if key in columns} for row in sent]
            harness.feed(pa.Table.from_pylist(rows, harness.operator.inputs[name].schema), name)
    if "limits" in harness.operator.inputs and number % 5 == 0:
        limits = pa.Table.from_pylist(
            [{"name": f"n{number % 4}", "v": number}], harness.operator.inputs["limits"].schema
        )
        harness.feed(limits, "limits")


def outputs_of(make: Callable[[int], OperatorHarness], seed: int, *, moves: bool) -> Counter[str]:
    rng = random.Random(seed)
    harness = make(4 if moves else 3)
    for number, step in enumerate(steps(seed)):
        if moves and number % 5 == 4:
            regroup(harness, rng.choice([1, 2, 5, 9]))
        feed(harness, number, step)
    harness.end()
    return Counter(f"{name} {row}" for name in harness.operator.output_schemas for row in harness.rows(name))


@pytest.mark.parametrize("case", CASES)
def test_key_groups_can_become_more_and_fewer(case: str) -> None:
    expected = outputs_of(CASES[case], 1, moves=False)
    assert len(expected) > 10
    with small_pages():
        assert outputs_of(CASES[case], 1, moves=True) == expected


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_are_what_they_were(name: str) -> None:
    values = value_and_null(name)
    several = pa.concat_arrays([values, values]).slice(1)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), several)
    table = pa.table({"value": several, "lists": lists, "structs": pa.StructArray.from_arrays([several], ["v"])})
    read = in_parquet(table)
    assert read.schema == plain_schema(table.schema)
    for column in table.column_names:
        stored = table.column(column).combine_chunks()
        restored = retyped(read.column(column).combine_chunks(), stored.type)
        assert restored.type.equals(stored.type, check_metadata=True)
        assert repr(restored.to_pylist()) == repr(stored.to_pylist())
        restored.validate(full=True)
