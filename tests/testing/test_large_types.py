"""State continues when Spark passes strings with 64-bit offsets, and again with 32-bit ones (``useLargeVarTypes``)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern, TumblingWindows
from asterism.errors import CheckpointMismatchError
from asterism.operators.state.keyed_state import ValueState
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.operator import DynamicCepOperator, RuleOptions
from asterism.testing import (
    JoinHarness,
    OperatorHarness,
    PatternHarness,
    RowPatternHarness,
    StreamOperatorHarness,
    WindowHarness,
)
from tests.rules.driver import Driver

SMALL = {"ts": pa.timestamp("us", "UTC"), "user": pa.string(), "kind": pa.string(), "names": pa.list_(pa.string())}
LARGE = SMALL | {"user": pa.large_string(), "kind": pa.large_string(), "names": pa.list_(pa.large_string())}
SCHEMAS = [pa.schema(SMALL), pa.schema(LARGE)]
AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND kind > LAST(a.kind)")
CLAUSE = "PARTITION BY user ORDER BY ts ALL ROWS PER MATCH PATTERN (A B) DEFINE B AS kind > PREV(kind)"


class Remember(StreamOperator):
    events = Input("ts TIMESTAMP, user STRING, kind STRING")
    last = ValueState("STRING")
    pairs = Output("user STRING, pair STRING")

    @events.process_element
    def on_event(self, e: Any, ctx: Any) -> None:
        self.pairs.collect(user=ctx.key, pair=f"{self.last.value()} {e.kind}")
        self.last.update(e.kind)


def pattern(schema: pa.Schema) -> OperatorHarness:
    return PatternHarness(AB, schema, keys=["user"], key_groups=2)


def windows(schema: pa.Schema) -> OperatorHarness:
    aggregate = ["max(kind) AS most", "collect_list(kind) AS kinds", "count(*) AS n"]
    size = TumblingWindows.of(timedelta(minutes=1))
    return WindowHarness(size, None, schema, keys=["user"], aggregate=aggregate, key_groups=2)


def rows(schema: pa.Schema) -> OperatorHarness:
    return RowPatternHarness(CLAUSE, schema, key_groups=2)


def join(schema: pa.Schema) -> OperatorHarness:
    side = {"columns": schema, "key": "user", "time": "ts"}
    between = timedelta(0), timedelta(minutes=1)
    return JoinHarness.interval_join(side, side, between, prefix="r_", on="kind < r_kind", key_groups=2)


def operator(schema: pa.Schema) -> OperatorHarness:
    options = {"key": "user", "time": "ts", "columns": schema}
    return StreamOperatorHarness(Remember(), {"events": options}, key_groups=2)


def event(schema: pa.Schema, second: int, user: str, kind: str) -> pa.Table:
    row = {"ts": datetime(2025, 1, 1, 0, 0, second, tzinfo=UTC), "user": user, "kind": kind, "names": [kind, None]}
    return pa.Table.from_pylist([row], schema)


EVENTS = [(1, "ann", "a"), (2, "bob", "a"), (3, "ann", "b"), (4, "bob", "b")]


def play(make: Callable[[pa.Schema], OperatorHarness], schemas: list[pa.Schema]) -> dict[str, list[str]]:
    """An event with each schema; the one before it is processed, and the last one waits."""
    harness: OperatorHarness | None = None
    for schema, (second, user, kind) in zip(schemas, EVENTS, strict=True):
        harness, before = make(schema), harness
        if before is not None:
            harness.restore(before.snapshot())
        for name in harness.operator.inputs:
            harness.feed(event(schema, second, user, kind), name)
            harness.feed_watermark(1_735_689_600_000_000 + 1_000_000 * (second - 1), name)
    assert harness is not None
    harness.end()
    names = [name for name in harness.operator.output_schemas if "late" not in name]
    return {name: sorted(map(repr, harness.rows(name))) for name in names}


@pytest.mark.parametrize("make", [pattern, windows, rows, join, operator])
def test_state_continues(make: Callable[[pa.Schema], OperatorHarness]) -> None:
    small, large = SCHEMAS
    expected = play(make, [small] * 4)
    assert sum(map(len, expected.values())) >= 2
    assert play(make, [small, large, small, large]) == expected
    assert play(make, [large, large, small, small]) == expected


def test_state_of_rules_continues() -> None:
    rules = [
        PatternProcessor("ab", 1, AB),
        PatternProcessor("clause", 1, sql=CLAUSE.replace("PARTITION BY user ORDER BY ts", "")),
    ]

    def found(schemas: list[pa.Schema]) -> list[str]:
        driver = Driver(schema=schemas[0]).batch(sets=rules)
        for schema, (second, user, kind) in zip(schemas, EVENTS, strict=True):
            driver.operator = DynamicCepOperator(schema, driver.sets, RuleOptions(keys=["user"], time="ts"))
            driver.stores = copy.deepcopy(driver.stores)
            driver.batch(event(schema, second, user, kind), watermark=second - 1)
        return sorted(map(repr, driver.end().rows["matches"]))

    small, large = SCHEMAS
    expected = found([small] * 4)
    assert len(expected) == 6
    assert found([small, large, small, large]) == expected


def test_bytes_as_keys_have_the_setting_in_the_error() -> None:
    """The hash of a key is not the same."""
    small, large = (
        pattern(pa.schema({"ts": SMALL["ts"], "user": kind, "kind": pa.string()}))
        for kind in (pa.binary(), pa.large_binary())
    )
    with pytest.raises(CheckpointMismatchError, match=r"set spark\.sql\.execution\.arrow\.useLargeVarTypes as before"):
        large.operator.check_state(small.operator.definition)  # type: ignore[attr-defined]
