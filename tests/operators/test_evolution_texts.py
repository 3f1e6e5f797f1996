"""Operators that were changed go on with the state of what they were, or say what they cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
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
    SlidingWindows,
    StreamOperator,
    TumblingWindows,
    ValueState,
    WindowOperator,
)
from asterism.errors import StateError
from asterism.expressions.evaluation import tried_before
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.evolution import check_evolution
from asterism.operators.state.state_definition import StateDefinition
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import RowPatternOperator
from asterism.testing import OperatorHarness, StreamOperatorHarness
from asterism.windows.plan import FIRINGS
from asterism.windows.triggers import Trigger
from tests.kit import Golden, Provocation

EVENTS = pa.schema({"user": pa.string(), "ts": pa.int64(), "x": pa.int64(), "y": pa.int64()})
MINUTE = timedelta(minutes=1)


def events(*rows: tuple[str, int, int, int]) -> pa.Table:
    """User, second, x, y."""
    found = [{"user": user, "ts": second * 1000, "x": x, "y": y} for user, second, x, y in rows]
    return pa.Table.from_pylist(found, EVENTS)


def continued(before: OperatorHarness, operator: Any, keys: Any = ("user",)) -> OperatorHarness:
    after = OperatorHarness(operator, keys=keys, key_groups=len(before.stores))
    snapshot = before.snapshot()
    after.restore(snapshot)
    after.outputs = {name: [] for name in operator.output_schemas}
    return after


# ---------------------------------------------------------------------- user-defined operators


class Sums(StreamOperator):
    rows = Input("user STRING, ts BIGINT, x BIGINT")
    limits = BroadcastInput("x BIGINT")
    total = ValueState("BIGINT")
    limit = BroadcastMapState("STRING", "BIGINT")
    totals = Output("user STRING, total BIGINT")

    @rows.process_element
    def row(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.x)
        self.totals.collect(user=e.user, total=self.total.value())

    @limits.process_element
    def on_limit(self, e: Any, ctx: Any) -> None:
        self.limit.put("x", e.x)


class More(StreamOperator):
    """Another column, states before and after the known one, an output, other functions."""

    rows = Input("user STRING, ts BIGINT, x BIGINT, y BIGINT")
    limits = BroadcastInput("x BIGINT")
    seen = ListState("BIGINT")
    total = ValueState("BIGINT")
    last = MapState("STRING", "BIGINT")
    named = BroadcastMapState("STRING", "STRING")
    limit = BroadcastMapState("STRING", "BIGINT")
    totals = Output("user STRING, total BIGINT, seen BIGINT, y BIGINT, x_limit BIGINT, names BIGINT")
    others = Output("user STRING")

    @rows.process_element
    def row(self, e: Any, ctx: Any) -> None:
        self.seen.add(e.x)
        self.last.put("y", e.y)
        self.total.update((self.total.value() or 0) + 10 * e.x)
        self.others.collect(user=e.user)
        found = {"seen": len(self.seen.get()), "y": self.last.get("y"), "names": len(list(self.named.keys()))}
        self.totals.collect(user=e.user, total=self.total.value(), x_limit=self.limit.get("x"), **found)

    @limits.process_element
    def on_limit(self, e: Any, ctx: Any) -> None: ...


INPUTS: dict[str, Any] = {"rows": {"key": "user", "time": "ts"}, "limits": {}}


def sums(operator: StreamOperator, **inputs: Any) -> StreamOperatorHarness:
    return StreamOperatorHarness(operator, {**INPUTS, **inputs}, key_groups=2)


def test_an_operator_with_more_states_inputs_columns_and_outputs() -> None:
    before = sums(Sums()).send("limits", {"x": 7})
    before.send("rows", [{"user": "ann", "ts": 1000, "x": 1}, {"user": "bob", "ts": 1000, "x": 2}])
    before.advance_watermark("rows", "5s")
    before.send("rows", [{"user": "ann", "ts": 9000, "x": 3}])  # waits for the watermark
    after = sums(More()).restore(before.snapshot())
    after.outputs = {"totals": [], "others": []}
    after.send("rows", [{"user": "ann", "ts": 10_000, "x": 4, "y": 5}]).end()
    assert [tuple(row.values()) for row in after.rows("totals")] == [
        ("ann", 31, 1, None, 7, 0),
        ("ann", 71, 2, 5, 7, 0),
    ]
    assert after.is_empty


def test_an_operator_evolves_twice_and_in_any_key_group() -> None:
    """A key group that had nothing to do has the state of the first definition."""

    class Third(More):
        third = ValueState("BIGINT")

    before = sums(Sums())
    before.send("rows", [{"user": name, "ts": 1000, "x": 1} for name in "abcdef"]).advance_watermark("rows", "5s")
    between = sums(More()).restore(before.snapshot())
    between.outputs = {"totals": [], "others": []}
    between.send("rows", [{"user": "a", "ts": 6000, "x": 1, "y": 1}])
    after = sums(Third()).restore(between.snapshot())
    after.send("rows", [{"user": name, "ts": 7000, "x": 1, "y": 1} for name in "abcdef"]).end()
    found = {(row["user"], row["total"]) for row in after.rows("totals")}
    assert found == {("a", 11), ("a", 21), *((name, 11) for name in "bcdef")}


class Fewer(StreamOperator):
    rows = Input("user STRING, ts BIGINT, x BIGINT")
    limits = BroadcastInput("x BIGINT")
    limit = BroadcastMapState("STRING", "BIGINT")
    totals = Output("user STRING, total BIGINT")

    @rows.process_element
    def row(self, e: Any, ctx: Any) -> None: ...

    @limits.process_element
    def on_limit(self, e: Any, ctx: Any) -> None: ...


def other_type() -> type[StreamOperator]:
    class OtherType(Sums):
        total = ValueState("STRING")

    return OtherType


def other_kind() -> type[StreamOperator]:
    class OtherKind(Sums):
        total = ListState("BIGINT")

    return OtherKind


def other_column() -> type[StreamOperator]:
    class OtherColumn(Sums):
        rows = Input("user STRING, ts BIGINT, x STRING")

        @rows.process_element
        def row(self, e: Any, ctx: Any) -> None: ...

    return OtherColumn


OPERATORS: dict[str, tuple[Callable[[], StreamOperator], dict[str, Any]]] = {
    "operator_state_removed": (Fewer, {}),
    "operator_state_of_another_type": (other_type(), {}),
    "operator_state_of_another_kind": (other_kind(), {}),
    "operator_column_of_another_type": (other_column(), {}),
    "operator_other_event_time": (Sums, {"rows": {"key": "user"}}),
    "operator_other_key": (Sums, {"rows": {"key": "x", "time": "ts"}}),
}


# ---------------------------------------------------------------------- windows


AT_END = EventTimeTrigger.after_end_of_window()


def windows(*measures: str, **changes: Any) -> WindowOperator:
    options: dict[str, Any] = {
        "keys": ["user"],
        "time": "ts",
        "trigger": early(3),
        "measures": measures or ["sum(x) AS x"],
    }
    options |= changes
    if "function" in options or "reduce" in options:
        del options["measures"]
    return WindowOperator(options.pop("windows", TumblingWindows.of(MINUTE)), options.pop("schema", EVENTS), **options)


def early(count: int) -> Trigger:
    return AT_END.with_early_trigger(CountTrigger.at_least(count))


def fed(operator: WindowOperator) -> OperatorHarness:
    harness = OperatorHarness(operator, keys=["user"], key_groups=2)
    return harness.feed(events(("ann", 1, 1, 10), ("ann", 2, 2, 20), ("bob", 70, 4, 40))).move(watermark=3_000_000)


def test_windows_with_more_measures() -> None:
    """The new ones count from the change on; a column before the known ones does not matter."""
    schema = pa.schema([pa.field("z", pa.int64()), *EVENTS])
    after = continued(
        fed(windows()), windows("max(y) AS y", "avg(x) AS mean", "sum(x) AS x", "count(*) AS n", schema=schema)
    )
    new = events(("ann", 5, 4, 30)).add_column(0, "z", pa.array([1]))
    rows = after.feed(new).end().rows(FIRINGS)
    assert [(row["user"], row["firing"], row["y"], row["x"], row["n"]) for row in rows if row["kind"] == "on_time"] == [
        ("ann", 2, 30, 7, 1),
        ("bob", 1, None, 4, 0),
    ]


def test_windows_with_fewer_measures() -> None:
    before = fed(windows("max(y) AS y", "sum(x) AS x"))
    after = continued(before, windows("sum(x) AS x"))
    assert [row["x"] for row in after.end().rows(FIRINGS)] == [3, 4]


def test_a_trigger_with_another_count() -> None:
    """The elements that were counted remain counted; windows that fire with the next element do so."""
    after = continued(fed(windows()), windows(trigger=early(2)))
    rows = after.feed(events(("ann", 5, 4, 0))).move(watermark=20_000_000).rows(FIRINGS)
    assert [(row["kind"], row["x"]) for row in rows] == [("early", 7)]


def test_windows_with_another_lateness_are_removed_at_the_new_time() -> None:
    for lateness in (timedelta(0), 5 * MINUTE):
        after = continued(fed(windows(lateness=2 * MINUTE)), windows(lateness=lateness))
        after.move(watermark=90_000_000).feed(events(("ann", 30, 5, 0)))
        found = [(row["kind"], row["x"]) for row in after.end().rows(FIRINGS) if row["user"] == "ann"]
        assert found == [("on_time", 3)] + [("late", 8)] * (lateness > timedelta(0))


def test_windows_with_another_function() -> None:
    def first(rows: pa.Table, window: Any) -> dict[str, Any]:
        return {"n": rows.num_rows}

    def second(rows: pa.Table, window: Any) -> dict[str, Any]:
        return {"m": -rows.num_rows, "y": rows.column("y").to_pylist()}

    before = fed(windows(function=first, output="n BIGINT"))
    after = continued(before, windows(function=second, output="m BIGINT, y ARRAY<BIGINT>"))
    assert [(row["m"], row["y"]) for row in after.end().rows(FIRINGS)] == [(-2, [10, 20]), (-1, [40])]


def nothing(rows: pa.Table, window: Any) -> dict[str, Any]:
    return {"n": 0}


WINDOWS: dict[str, Callable[[], CepOperator | WindowOperator]] = {
    "other_windows": lambda: windows(windows=SlidingWindows.of(2 * MINUTE, MINUTE)),
    "other_trigger": lambda: windows(trigger=AT_END.with_late_trigger(CountTrigger.at_least(2)), lateness=MINUTE),
    "windows_of_elements": lambda: windows(function=nothing, output="n BIGINT"),
    "windows_in_order": lambda: windows(in_order=True),
    "windows_of_another_key": lambda: windows(keys=[]),
}


# ---------------------------------------------------------------------- patterns


def pattern(kinds: str = "ab", **changes: Any) -> CepOperator:
    measures = changes.pop("measures", ["LAST(a.x) AS x"])
    outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures=measures)}
    stages = Pattern.begin("a").where("x = 1").followed_by(kinds[1:]).where("x = 2").within(MINUTE)
    return CepOperator(stages, EVENTS, **{"keys": ["user"], "time": "ts", "outputs": outputs} | changes)


def matched() -> OperatorHarness:
    harness = OperatorHarness(pattern(), keys=["user"], key_groups=2)
    harness.feed(events(("ann", 1, 1, 10), ("bob", 2, 1, 20))).move(watermark=3_000_000)
    return harness.feed(events(("bob", 6, 2, 50)))  # waits for the watermark


def test_a_pattern_with_more_measures() -> None:
    """A column that was not kept before is NULL in the events of that time."""
    after = continued(matched(), pattern(measures=["LAST(a.x) AS x", "LAST(a.y) AS a_y", "LAST(b.y) AS b_y"]))
    rows = after.feed(events(("ann", 7, 2, 70))).end().rows("matches")
    assert sorted((row["user"], row["x"], row["a_y"], row["b_y"]) for row in rows) == [
        ("ann", 1, None, 70),
        ("bob", 1, None, None),
    ]


PATTERNS: dict[str, Callable[[], CepOperator | WindowOperator]] = {
    "pattern_changed": lambda: pattern("ac"),
    "pattern_of_another_key": lambda: pattern(keys=["y"]),
    "pattern_with_pages": lambda: pattern(pages=4),
    "windows_instead_of_a_pattern": windows,
}


# ---------------------------------------------------------------------- clauses

CLAUSE = """PARTITION BY user ORDER BY ts MEASURES {measures} PATTERN (A X* B) WITHIN INTERVAL 60 SECONDS
    DEFINE A AS x = 1, {define}, B AS x = 2"""
NEUTRAL, EVERY = "X AS x = 3", "X AS x > A.y"


def clause(measures: str = "A.x AS x", define: str = EVERY, **parts: str) -> RowPatternOperator:
    text = CLAUSE.format(measures=measures, define=define)
    for name, part in parts.items():
        text = re.sub(name.upper() + r" .*?(?= [A-Z]{4}|\n)", part, text)
    with tried_before():
        return RowPatternOperator(check(read(text), EVENTS), EVENTS)


def searched(define: str = EVERY) -> OperatorHarness:
    harness = OperatorHarness(clause(define=define), keys=["user"], key_groups=2)
    harness.feed(events(("ann", 1, 1, 0), ("bob", 2, 1, 0), ("bob", 3, 3, 9))).move(watermark=4_000_000)
    return harness.feed(events(("bob", 6, 2, 50)))  # waits for the watermark


def test_a_clause_with_more_measures() -> None:
    """The columns that the rows of the state have, they keep; others are NULL there. Which rows they are does not change."""
    after = continued(searched(), clause("A.x AS x, SUM(X.x) AS xs, COUNT(X.x) AS n, LAST(B.ts) AS ended"))
    rows = after.feed(events(("ann", 7, 2, 70))).end().rows("matches")
    assert sorted((row["user"], row["x"], row["xs"], row["n"], row["ended"]) for row in rows) == [
        ("ann", 1, None, 0, 7000),
        ("bob", 1, 3, 1, 6000),
    ]


CLAUSES: dict[str, Callable[[], RowPatternOperator]] = {
    "clause_with_another_condition": lambda: clause(define="X AS x > 2 + A.y"),
    "clause_with_another_pattern": lambda: clause(pattern="PATTERN (A X+ B)"),
    "clause_in_another_order": lambda: clause(order="ORDER BY ts, y"),
    "clause_with_earlier_rows": lambda: clause("PREV(A.x) AS x"),
    "clause_with_numbers": lambda: clause("MATCH_NUMBER() AS x"),
    "clause_with_dropped_rows": lambda: clause("COUNT(X.x) AS n", define=NEUTRAL),
}


# ---------------------------------------------------------------------- what cannot change


class PatternOfRelease010(CepOperator):
    """A sum of DECIMAL as release 0.1.0 kept it: as DOUBLE."""

    @property
    def definition(self) -> StateDefinition:
        today = super().definition

        def as_double(schema: pa.Schema) -> pa.Schema:
            at = schema.get_field_index("s:0")
            return schema if at < 0 else schema.set(at, pa.field("s:0", pa.float64()))

        tables, inputs = (
            {name: as_double(schema) for name, schema in schemas.items()} for schemas in (today.tables, today.inputs)
        )
        return replace(today, tables=tables, inputs=inputs)


def sum_of_decimals_of_release_010() -> None:
    schema = EVENTS.set(2, pa.field("x", pa.decimal128(9, 2)))
    pattern = Pattern.begin("a").where("y = 0").times(2).followed_by("b").where("SUM(a.x) > 5")
    options: dict[str, Any] = {"keys": ["user"], "time": "ts", "outputs": {"matches": OutputSpec(OutputKind.MATCHES)}}
    check_evolution(
        PatternOfRelease010(pattern, schema, **options).definition, CepOperator(pattern, schema, **options).definition
    )


def refused(name: str) -> None:
    if name in OPERATORS:
        make, inputs = OPERATORS[name]
        before = sums(Sums()).send("rows", [{"user": "ann", "ts": 1000, "x": 1}]).advance_watermark("rows", "5s")
        sums(make(), **inputs).restore(before.snapshot()).end()
    else:
        operator = (WINDOWS | PATTERNS | CLAUSES)[name]()
        if name in CLAUSES:
            before = searched(NEUTRAL if name == "clause_with_dropped_rows" else EVERY)
        else:
            before = matched() if name in PATTERNS else fed(windows())
        continued(before, operator).move(watermark=5_000_000)


NAMES = (*OPERATORS, *WINDOWS, *PATTERNS, *CLAUSES)
TEXTS: dict[str, Provocation] = {
    **{name: partial(refused, name) for name in NAMES},
    "pattern_with_sum_of_decimals_of_0_1_0": sum_of_decimals_of_release_010,
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_cannot_change(golden: Golden, name: str) -> None:
    assert isinstance(golden.error(name, TEXTS[name]), StateError)
